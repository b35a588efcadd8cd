"""The bodies of tool results that are too long for a journal's line: files named by the hash of their text."""

from __future__ import annotations

import os
import re
from contextlib import suppress
from hashlib import sha256
from typing import TYPE_CHECKING

from localctx.stores.files import replace_file

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

__all__ = ["MOST_BYTES", "Results"]

MOST_BYTES = 64 * 2**20
"""What the bodies of one session may take on disk."""

_NAME = re.compile(r"[0-9a-f]{64}")


class Results:
    """The bodies of one session. A disk that fails is no reason to stop: what cannot be kept is not, and says so."""

    def __init__(self, folder: Path, most: int = MOST_BYTES) -> None:
        self._folder, self._most = folder, most
        self._bytes: int | None = None

    def put(self, text: str) -> str | None:
        """Keeps a body, on disk before this returns; its name, or None where it cannot be kept."""
        raw = text.encode("utf-8", "surrogatepass")
        name = sha256(raw).hexdigest()
        path = self._folder / name
        if path.is_file():
            return name
        try:
            replace_file(path, text)
        except OSError:
            return None
        self._bytes = None if self._bytes is None else self._bytes + len(raw)
        return name

    def get(self, name: str) -> str | None:
        """The body of this name; None where it is gone, or is no longer what it was."""
        if not _NAME.fullmatch(name):
            return None
        try:
            raw = (self._folder / name).read_bytes()
        except OSError:
            return None
        return raw.decode("utf-8", "surrogatepass") if sha256(raw).hexdigest() == name else None

    @property
    def too_large(self) -> bool:
        """Whether the bodies take more than they may."""
        if self._bytes is None:
            self._bytes = sum(size for _, size in self._files())
        return self._bytes > self._most

    def shrink(self, oldest_first: Iterable[str], pointed_at: frozenset[str]) -> int:
        """Removes the oldest bodies that nothing points at until the rest may stay; how many went.

        Files that no name tells of go first: a program that was killed left them.
        """
        sizes = dict(self._files())
        left, gone = sum(sizes.values()), 0
        named = list(dict.fromkeys(oldest_first))
        for name in (*(sizes.keys() - set(named)), *named):
            if left <= self._most:
                break
            if name in sizes and name not in pointed_at:
                with suppress(OSError):
                    (self._folder / name).unlink()
                    left -= sizes[name]
                    gone += 1
        self._bytes = left
        return gone

    def _files(self) -> list[tuple[str, int]]:
        with suppress(OSError), os.scandir(self._folder) as found:
            return [(each.name, each.stat().st_size) for each in found if each.is_file(follow_symlinks=False)]
        return []
