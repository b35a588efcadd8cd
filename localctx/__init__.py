"""Finds out how much context a local model is really served with, and keeps a long run inside it."""

__version__ = "0.1.0"
