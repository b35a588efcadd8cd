"""How a server on this machine was started: its command line says what no endpoint does."""

from __future__ import annotations

from urllib.parse import urlsplit

import psutil

from localctx.config import this_machine

__all__ = ["arguments"]


def arguments(url: str) -> list[str]:
    """The command line of the program that listens at a loopback address; empty where that cannot be seen."""
    port = urlsplit(url).port
    if port is None or not this_machine(url):
        return []
    try:
        listening = [each for each in psutil.net_connections("tcp") if each.status == psutil.CONN_LISTEN]
        owner = next(each.pid for each in listening if each.pid and getattr(each.laddr, "port", None) == port)
        return list(psutil.Process(owner).cmdline())
    except (psutil.Error, OSError, StopIteration):
        return []
