"""The bodies of tool results that are too long for a journal's line: files named by the hash of their text.

A line whose texts are kept here holds the head and tail of what the model read, and `bodies`: of each text the hash and
the number of characters, under `content` (what the model read) or `whole` (what the tool returned).
"""

from __future__ import annotations

import os
import re
from contextlib import suppress
from dataclasses import replace
from hashlib import sha256
from typing import TYPE_CHECKING

from localctx.stores.files import open_file, private_folder, replace_file

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from localctx.core.journal import Entry

__all__ = ["LINE_BYTES", "MOST_BYTES", "Results", "names"]

MOST_BYTES = 64 * 2**20
"""What the bodies of one session may take on disk."""

LINE_BYTES = 4 * 2**10
"""A longer text is a file of its own (the design of the journal)."""

_HEAD_CHARACTERS = 400
_CHARACTER_BYTES = 4

_NAME = re.compile(r"[0-9a-f]{64}")
_OURS = re.compile(r"[0-9a-f]{64}|\.[0-9a-f]{64}\..+")
"""The names of bodies, and of what a program leaves that is killed while it writes one."""


class Results:
    """The bodies of one session. A disk that fails is no reason to stop: what cannot be kept is not, and says so.

    Only files in the folder itself are read, counted and removed, and only those that this module names; where the
    folder is a link, there are none, and nothing is kept.
    """

    def __init__(self, folder: Path, most: int = MOST_BYTES) -> None:
        self._folder, self._most = folder, most
        self._allowed = most
        self._bytes: int | None = None

    def lean(self, entry: Entry) -> Entry:
        """The entry as its line will hold it; a text that cannot be kept here stays in it."""
        message = entry.body.get("message")
        if not isinstance(message, dict) or message.get("role") != "tool":
            return entry
        texts = {"content": message.get("content"), "whole": entry.body.get("whole")}
        bodies = {place: kept for place, text in texts.items() if (kept := self._kept(text))}
        if not bodies:
            return entry
        body = {name: value for name, value in entry.body.items() if name not in bodies} | {"bodies": bodies}
        if "content" in bodies:
            body["message"] = {**message, "content": _ends(str(texts["content"]))}
        return replace(entry, body=body)

    def _kept(self, text: object) -> dict[str, object] | None:
        if not isinstance(text, str) or len(text.encode("utf-8", "surrogatepass")) <= LINE_BYTES:
            return None
        name = self.put(text)
        return None if name is None else {"hash": name, "characters": len(text)}

    def filled(self, entry: Entry) -> Entry:
        """The entry of a line with what the model read; where that is gone, its head and tail stay."""
        text = self.body(entry, "content") if "bodies" in entry.body else None
        message = entry.body.get("message")
        if text is None or not isinstance(message, dict):
            return entry
        return replace(entry, body={**entry.body, "message": {**message, "content": text}})

    def body(self, entry: Entry, place: str) -> str | None:
        """The text of a line that is kept here under `content` or `whole`; None where there is none, or none any more."""
        found = _bodies(entry).get(place)
        return None if found is None else self.get(*found)

    def put(self, text: str) -> str | None:
        """Keeps a text, on disk before this returns; its name, or None where it cannot be kept."""
        raw = text.encode("utf-8", "surrogatepass")
        name = sha256(raw).hexdigest()
        if self.get(name, len(text)) is not None:
            return name
        if len(raw) > self._most or self._folder.is_symlink():
            return None
        try:
            replace_file(self._folder / name, [raw])
        except OSError:
            return None
        self._bytes = None if self._bytes is None else self._bytes + len(raw)
        return name

    def get(self, name: str, characters: int) -> str | None:
        """The text of this name and length; None where it is gone, or is no longer what it was."""
        raw = self._raw(name, characters * _CHARACTER_BYTES)
        try:
            text = None if raw is None else raw.decode("utf-8", "surrogatepass")
        except UnicodeDecodeError:
            return None
        return text if text is not None and len(text) == characters else None

    def _raw(self, name: str, most: int) -> bytes | None:
        """The bytes of a body, at most so many."""
        if not _NAME.fullmatch(name) or self._folder.is_symlink():
            return None
        try:
            with os.fdopen(open_file(self._folder / name, os.O_RDONLY | os.O_NOFOLLOW), "rb") as file:
                large = os.fstat(file.fileno()).st_size > min(most, self._most)
                raw = b"" if large else file.read()
        except OSError:
            return None
        return raw if sha256(raw).hexdigest() == name else None

    def share(self, folder: Path) -> None:
        """Puts the bodies into another folder as well: the same files where that can be, else copies. Raises `OSError`."""
        found = [(name, size) for name, size in self._files() if _NAME.fullmatch(name)]
        if found:
            private_folder(folder)
        for name, size in found:
            try:
                os.link(self._folder / name, folder / name, follow_symlinks=False)
            except OSError:
                if (raw := self._raw(name, size)) is not None:
                    replace_file(folder / name, [raw])

    @property
    def too_large(self) -> bool:
        """Whether the bodies take more than they may."""
        if self._bytes is None:
            self._bytes = sum(size for _, size in self._files())
        return self._bytes > self._allowed

    def shrink(self, oldest_first: Iterable[str], pointed_at: frozenset[str]) -> int:
        """Removes the oldest bodies that nothing points at until a quarter of the room is free; how many went.

        What was named twice is as old as its last mention. Files that no name tells of go first: a program that was
        killed left them.
        """
        sizes = dict(self._files())
        left, gone = sum(sizes.values()), 0
        named = list(dict.fromkeys(reversed(list(oldest_first))))[::-1]
        for name in (*(sizes.keys() - set(named)), *named):
            if left <= self._most - self._most // 4:
                break
            if name in sizes and name not in pointed_at:
                with suppress(OSError):
                    (self._folder / name).unlink()
                    left -= sizes[name]
                    gone += 1
        self._bytes = left
        self._allowed = self._most if left <= self._most else left + self._most // 4
        return gone

    def _files(self) -> list[tuple[str, int]]:
        """The files that are ours, and their bytes."""
        found = list[tuple[str, int]]()
        if self._folder.is_symlink():
            return found
        with suppress(OSError), os.scandir(self._folder) as folder:
            for each in folder:
                with suppress(OSError):
                    if _OURS.fullmatch(each.name) and each.is_file(follow_symlinks=False):
                        found.append((each.name, each.stat(follow_symlinks=False).st_size))
        return found


def names(entry: Entry) -> set[str]:
    """The names of the bodies of a line."""
    return {name for name, _ in _bodies(entry).values()}


def _bodies(entry: Entry) -> dict[str, tuple[str, int]]:
    """The name and the number of characters of each body of a line, by what it is the text of."""
    bodies = entry.body.get("bodies")
    found = dict[str, tuple[str, int]]()
    for place, each in bodies.items() if isinstance(bodies, dict) else ():
        match each:
            case {"hash": str(name), "characters": int(characters)}:
                found[place] = name, characters
    return found


def _ends(text: str) -> str:
    left_out = len(text) - 2 * _HEAD_CHARACTERS
    return f"{text[:_HEAD_CHARACTERS]}\n[... {left_out:,} characters that are no longer here ...]\n{text[-_HEAD_CHARACTERS:]}"
