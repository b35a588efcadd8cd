"""Decisions as values: pure functions over immutable data, standard library only."""
