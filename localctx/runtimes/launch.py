"""How a server on this machine was started: its command line says what no endpoint does."""

from __future__ import annotations

from ipaddress import ip_address
from urllib.parse import urlsplit

import psutil  # type: ignore[import-untyped, unused-ignore]

__all__ = ["arguments"]


def arguments(url: str) -> list[str]:
    """The command line of the program that listens at a loopback address; empty where that cannot be seen."""
    parts = urlsplit(url)
    if parts.port is None or not _is_here(parts.hostname or ""):
        return []
    try:
        listening = [each for each in psutil.net_connections("tcp") if each.status == psutil.CONN_LISTEN]
        owner = next(each.pid for each in listening if each.pid and getattr(each.laddr, "port", None) == parts.port)
        return list(psutil.Process(owner).cmdline())
    except (psutil.Error, OSError, StopIteration):
        return []


def _is_here(host: str) -> bool:
    try:
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False
