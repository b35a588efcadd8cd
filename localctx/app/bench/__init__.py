"""Benchmarks that the owner of a machine runs: what counting, probing, a server and compaction take here."""
