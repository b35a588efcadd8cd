"""The journal on disk: append-only JSON lines, private, written by one program at a time and read by any number.

The text of a tool's result over 4 KiB is a file beside the journal (`localctx.stores.results`). Its line holds the
text's head and tail, and under `bodies` the hash and size of the text whose place they take; where that file is gone,
head and tail are what is left.
"""

from __future__ import annotations

import errno
import os
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import msgspec

from localctx.core.journal import Entry, check_header, decode, encode, entry_of, header, open_begins
from localctx.errors import JournalDamaged, StoreUnusable
from localctx.stores.files import private_folder, sync_folder
from localctx.stores.results import Results

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

__all__ = ["FileJournal", "Lines", "MemoryJournal", "lock"]


class MemoryJournal:
    """A journal that is gone with the program: `--ephemeral`, or nothing can be written (`trouble` says why)."""

    name: str | None = None
    """It has none: nobody can go on with it."""

    def __init__(self, trouble: str = "") -> None:
        self.trouble = trouble
        self._entries: list[Entry] = []

    @property
    def last_seq(self) -> int:
        """The number of the last entry; 0 before the first."""
        return len(self._entries)

    def entries(self) -> Sequence[Entry]:
        """All entries so far, in order."""
        return tuple(self._entries)

    def append(self, kind: str, body: Mapping[str, object], *, sync: bool = False) -> Entry:  # noqa: ARG002  the port's signature
        """Keeps one entry."""
        entry = Entry(len(self._entries) + 1, _now(), kind, body)
        self._entries.append(entry)
        return entry

    def whole(self, entry: Entry) -> str | None:
        """What a tool returned, where the message of its result holds less."""
        return _whole(entry)

    def shrink(self, pointed_at: Iterable[int]) -> int:  # noqa: ARG002  the port's signature
        """Nothing is on disk."""
        return 0

    def leave(self) -> None:
        """Nothing is kept."""


class Lines:
    """The entries of a journal file, in order, as often as they are asked for; a line is in memory only while it is read.

    A last line without its end was torn by a crash, and is none. Raises `StoreUnusable` where the file cannot be read,
    `JournalDamaged` for a line that is no entry.
    """

    def __init__(self, path: Path) -> None:
        self.path, self._results = path, Results(path.parent / "results")

    def __iter__(self) -> Iterator[Entry]:
        """Reads them."""
        return map(self._filled, self.bare())

    def bare(self) -> Iterator[Entry]:
        """The entries as their lines hold them: long results by head and tail."""
        last = 0
        for number, line in enumerate(self._complete(), 1):
            if number == 1:
                _check_header(line, self.path)
                continue
            try:
                entry = _decoded(line)
            except (JournalDamaged, UnicodeDecodeError) as error:
                raise _damaged(self.path, number, "is no journal entry", last) from error
            if entry.seq <= last:
                raise _damaged(self.path, number, f"has seq {entry.seq} after {last}", last)
            last = entry.seq
            yield entry

    def _complete(self) -> Iterator[bytes]:
        try:
            with self.path.open("rb") as file:
                for line in file:
                    if line.endswith(b"\n"):
                        yield line
        except OSError as error:
            raise unusable(self.path, error) from error

    def whole(self, entry: Entry) -> str | None:
        """What a tool returned, where the message of its result holds less; None as well where that is gone."""
        return self._body(entry, "whole") or _whole(entry)

    def _filled(self, entry: Entry) -> Entry:
        text = self._body(entry, "content") if "bodies" in entry.body else None
        message = entry.body.get("message")
        if text is None or not isinstance(message, dict):
            return entry
        return replace(entry, body={**entry.body, "message": {**message, "content": text}})

    def _body(self, entry: Entry, place: str) -> str | None:
        name = _names(entry).get(place)
        return None if name is None else self._results.get(name)


class FileJournal:
    """`journal.jsonl` of one session, locked while it is open.

    A last line that was torn by a crash is cut off; begins that were never committed are closed as aborted. What cannot be
    written is kept in memory, `trouble` says why, and the next append tries again. Raises `StoreUnusable` where
    another program writes the session, or where it can neither be made nor read, `JournalDamaged` for a line within it that is
    no entry.
    """

    def __init__(self, path: Path) -> None:
        self.path, self.name = path, path.parent.name
        self.trouble, self._writable, self.last_seq = "", True, 0
        self._lines, self._results = Lines(path), Results(path.parent / "results")
        self._unsaved = list[Entry]()
        self._fd = self._opened()
        try:
            self._begin()
        except BaseException:
            self.close()
            raise

    def _opened(self) -> int:
        try:
            private_folder(self.path.parent)
            return os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600)
        except OSError as error:
            self.trouble, self._writable = str(unusable(self.path.parent, error)), False
            with suppress(OSError):
                return os.open(self.path, os.O_RDONLY)
            raise StoreUnusable(self.trouble) from error

    def _begin(self) -> None:
        lock(self._fd, self.path)
        self._end = _end_of_last_line(self._fd)
        self.last_seq, self._said = 0, False
        begun = list[Entry]()
        for entry in self._lines.bare():
            self.last_seq, self._said = entry.seq, self._said or entry.type == "message"
            if entry.type in {"begin", "commit", "abort"}:
                begun.append(entry)
        if self._end == 0 and self._writable:
            with suppress(OSError):
                self._write(header(self.name, _now()), sync=True)
                sync_folder(self.path.parent)
        for left in open_begins(begun):
            self.append("abort", {"begin": left}, sync=True)

    def entries(self) -> Iterable[Entry]:
        """All entries so far, in order; to be gone through as often as wanted."""
        return _Both(self._lines, self._unsaved)

    def append(self, kind: str, body: Mapping[str, object], *, sync: bool = False) -> Entry:
        """Writes one entry before it counts; `sync` waits until it would survive a power failure."""
        entry = Entry(self.last_seq + 1, _now(), kind, body)
        self.last_seq, self._said = entry.seq, self._said or kind == "message"
        self._unsaved.append(entry)
        if self._writable:
            self._save(sync=sync)
        return entry

    def _save(self, *, sync: bool) -> None:
        """Writes what is not on disk yet, oldest first."""
        try:
            while self._unsaved:
                self._write(encode(self._lean(self._unsaved[0])), sync=False)
                del self._unsaved[0]
            if sync:
                os.fsync(self._fd)
            self.trouble = ""
        except OSError as error:
            self.trouble = str(unusable(self.path, error))

    def _write(self, line: str, *, sync: bool) -> None:
        """Writes a line whole; what a failed attempt left is cut off before the next one."""
        if os.fstat(self._fd).st_size != self._end:
            os.ftruncate(self._fd, self._end)
        raw = line.encode() + b"\n"
        written = 0
        while written < len(raw):
            written += os.write(self._fd, memoryview(raw)[written:])
        self._end += len(raw)
        if sync:
            os.fsync(self._fd)

    def _lean(self, entry: Entry) -> Entry:
        """The entry as its line will hold it."""
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
        if not isinstance(text, str) or len(text.encode("utf-8", "surrogatepass")) <= _LINE_BYTES:
            return None
        name = self._results.put(text)
        return None if name is None else {"hash": name, "characters": len(text)}

    def whole(self, entry: Entry) -> str | None:
        """What a tool returned, where the message of its result holds less; None as well where that is gone."""
        return self._lines.whole(entry)

    def shrink(self, pointed_at: Iterable[int]) -> int:
        """Removes the oldest bodies where they take more than they may; how many went.

        Never one of the lines in `pointed_at`.
        """
        if not self._results.too_large:
            return 0
        lines, named, kept = set(pointed_at), list[str](), set[str]()
        for entry in self._lines.bare():
            names = _names(entry).values()
            named += names
            kept |= set(names) if entry.seq in lines else set()
        return self._results.shrink(named, frozenset(kept))

    def leave(self) -> None:
        """Closes a session; one in which nothing was said is no session, and goes."""
        if not self._said:
            with suppress(OSError):
                self.path.unlink()
                self.path.parent.rmdir()
        self.close()

    def close(self) -> None:
        """Gives the file back; what was written stays."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd, self._writable = -1, False


class _Both:
    """What is on disk, then what is not yet."""

    def __init__(self, lines: Lines, unsaved: list[Entry]) -> None:
        self._lines, self._unsaved = lines, unsaved

    def __iter__(self) -> Iterator[Entry]:
        yield from self._lines
        yield from tuple(self._unsaved)


_LINE_BYTES = 4 * 2**10
"""A longer body is a file of its own (the design of the journal)."""

_HEAD_CHARACTERS = 400


def _ends(text: str) -> str:
    left_out = len(text) - 2 * _HEAD_CHARACTERS
    return f"{text[:_HEAD_CHARACTERS]}\n[... {left_out:,} characters that are no longer here ...]\n{text[-_HEAD_CHARACTERS:]}"


def _names(entry: Entry) -> dict[str, str]:
    """The names of an entry's bodies, by what they are the text of."""
    bodies = entry.body.get("bodies")
    if not isinstance(bodies, dict):
        return {}
    return {place: name for place, each in bodies.items() if isinstance(name := _hash(each), str)}


def _hash(body: object) -> object:
    return body.get("hash") if isinstance(body, dict) else None


def _whole(entry: Entry) -> str | None:
    text = entry.body.get("whole")
    return text if isinstance(text, str) else None


_LINE = msgspec.json.Decoder[Any]()


def _decoded(line: bytes) -> Entry:
    """The entry of a line; what the quick decoder does not take (a lone surrogate, NaN) the standard one may."""
    try:
        return entry_of(_LINE.decode(line))
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        return decode(line.decode())


def _check_header(line: bytes, path: Path) -> None:
    try:
        check_header(line.decode("utf-8", "replace"))
    except JournalDamaged as error:
        raise JournalDamaged(f"{path} line 1: {error}; restore it, or start a new session") from error


def _damaged(path: Path, line: int, what: str, last: int) -> JournalDamaged:
    keep = f"keep what is before it: localctx sessions fork {path.parent.name} --through {last}"
    return JournalDamaged(f"{path} line {line} {what}; restore the line, or {keep}")


def _end_of_last_line(fd: int) -> int:
    """The bytes of a file up to its last line end."""
    size = at = os.fstat(fd).st_size
    while at > 0:
        at = max(at - _BLOCK, 0)
        block = os.pread(fd, min(_BLOCK, size - at), at)
        if (found := block.rfind(b"\n")) >= 0:
            return at + found + 1
    return 0


_BLOCK = 64 * 2**10


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds")


def lock(fd: int, path: Path) -> None:
    """Takes a session for this program alone. Raises `StoreUnusable` where another one has it."""
    try:
        import fcntl  # noqa: PLC0415  POSIX only; elsewhere there is no lock
    except ImportError:
        return
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno not in {errno.EAGAIN, errno.EACCES}:
            return  # a file system without locks; the session is used without one
        raise StoreUnusable(
            f"session {path.parent.name} is open in another program; end it, or start a new one"
        ) from error


def unusable(place: Path, error: OSError) -> StoreUnusable:
    """What a person is told of a place that cannot be used."""
    return StoreUnusable(
        f"cannot use {place} ({error.strerror or error}); set LOCALCTX_HOME to a folder that you can write, or pass --ephemeral"
    )
