"""Which commit the program is run from, read from the files of a checkout; no program is started for it."""

from __future__ import annotations

import re
from contextlib import suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["commit"]

_MOST_BYTES = 2**20
_HASH = re.compile(r"[0-9a-f]{40,64}")


def commit(root: Path) -> str | None:
    """The hash of the commit that is checked out in a folder; None where it is no checkout, or cannot be read."""
    with suppress(OSError, ValueError):
        folder = _folder(root / ".git")
        head = _read(folder / "HEAD")
        if not head.startswith("ref: "):
            return _hash(head)
        shared = (folder / _read(folder / "commondir")) if (folder / "commondir").is_file() else folder
        return _of_branch(head.removeprefix("ref: "), folder, shared)
    return None


def _folder(git: Path) -> Path:
    """The folder that Git keeps its files in: a work tree beside the first one names it in a file."""
    return git if git.is_dir() else git.parent / _read(git).removeprefix("gitdir: ")


def _of_branch(name: str, *folders: Path) -> str | None:
    for folder in folders:
        if (folder / name).is_file():
            return _hash(_read(folder / name))
        if (folder / "packed-refs").is_file():
            for line in _read(folder / "packed-refs").splitlines():
                if line.endswith(f" {name}"):
                    return _hash(line.split()[0])
    return None


def _hash(text: str) -> str | None:
    return text if _HASH.fullmatch(text) else None


def _read(path: Path) -> str:
    with path.open("rb") as file:
        return file.read(_MOST_BYTES).decode("utf-8").strip()
