from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from localctx.wiring.probing import DEFAULT_ADDRESSES

Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """A new user's: an empty home, an empty data directory, nothing set."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("LOCALCTX_")}
    return kept | {
        "HOME": str(tmp_path),
        "LOCALCTX_HOME": str(tmp_path / "data"),
        "LOCALCTX_OFFLINE": "1",
        "NO_COLOR": "1",
        "COLUMNS": "80",
    }


@pytest.fixture
def localctx(environment: dict[str, str], tmp_path: Path) -> Run:
    """Runs the program as a person would, in an empty folder."""
    folder = tmp_path / "work"
    folder.mkdir()

    def run(*args: str, stdin: str = "", seconds: float = 60, **extra: str) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            [sys.executable, "-m", "localctx", *args],
            input=stdin,
            capture_output=True,
            text=True,
            encoding="utf-8",
            cwd=folder,
            env=environment | extra,
            timeout=seconds,
            check=False,
        )
        assert "Traceback" not in done.stderr, done.stderr
        return done

    return run


def listens(url: str) -> bool:
    """Whether something listens at an address on this machine."""
    with socket.socket() as asking:
        return asking.connect_ex(("127.0.0.1", urlsplit(url).port or 0)) == 0


@pytest.fixture
def no_server() -> None:
    """For what is done where no server is: skips where one listens at a usual address."""
    for url in DEFAULT_ADDRESSES:
        if listens(url):
            pytest.skip(f"something listens at {url}")
