"""What a program that is to be killed needs, imported before it starts."""

import asyncio
import sqlite3

import anyio._backends._asyncio
import h11
import httpcore

import tests.killed.child

__all__ = ["anyio", "asyncio", "h11", "httpcore", "sqlite3", "tests"]
