"""The journal on disk: append-only JSON lines, private, written by one program at a time and read by any number.

The text of a tool's result over 4 KiB is a file beside the journal (`localctx.stores.results`). Its line holds the
text's head and tail; where that file is gone, head and tail are what is left.
"""

from __future__ import annotations

import errno
import os
from contextlib import suppress
from datetime import UTC, datetime
from itertools import chain
from shutil import rmtree
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from localctx.core.journal import Entry, check_header, decode, encode, entry_of, header, open_begins
from localctx.errors import JournalDamaged, StoreUnusable
from localctx.stores.files import lock, open_file, private_folder, sync_folder, unusable
from localctx.stores.results import Results, names

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

__all__ = ["FileJournal", "Glance", "Lines", "MemoryJournal", "in_file"]


class MemoryJournal:
    """A journal that is gone with the program: `--ephemeral`, or nothing can be written (`trouble` says why).

    Long results of tools are files in `folder` until `leave`, where there is one; else all is in memory.
    """

    name: str | None = None
    """It has none: nobody can go on with it."""

    def __init__(self, trouble: str = "", folder: Path | None = None) -> None:
        self.trouble, self._folder = trouble, folder
        self._results = Results(folder) if folder else None
        self._entries: list[Entry] = []

    @property
    def last_seq(self) -> int:
        """The number of the last entry; 0 before the first."""
        return len(self._entries)

    def entries(self) -> Sequence[Entry]:
        """All entries so far, in order."""
        return tuple(map(self._results.filled, self._entries) if self._results else self._entries)

    def append(self, kind: str, body: Mapping[str, object], *, sync: bool = False) -> Entry:  # noqa: ARG002  the port's signature
        """Keeps one entry."""
        entry = decode(encode(Entry(len(self._entries) + 1, _now(), kind, body)))  # nobody else's objects
        self._entries.append(self._results.lean(entry) if self._results else entry)
        return entry

    def whole(self, entry: Entry) -> str | None:
        """What a tool returned, where the message of its result holds less."""
        return (self._results and self._results.body(entry, "whole")) or _whole(entry)

    def shrink(self, pointed_at: Iterable[int]) -> int:  # noqa: ARG002  the port's signature
        """Nothing that is on disk stays there."""
        return 0

    def leave(self) -> None:
        """Nothing is kept."""
        if self._folder is not None:
            rmtree(self._folder, ignore_errors=True)


class Lines:
    """The entries of a journal file, in order, as often as they are asked for; a line is in memory only while it is read.

    A last line without its end was torn by a crash, or is being written, and is none. Raises `StoreUnusable` where the
    file cannot be read, `JournalDamaged` for a line that is no entry, or not the one whose turn it is.
    """

    def __init__(self, path: Path) -> None:
        self.path, self._results = path, Results(path.parent / "results")

    def __iter__(self) -> Iterator[Entry]:
        """Reads them."""
        return map(self._results.filled, self.bare())

    def bare(self) -> Iterator[Entry]:
        """The entries as their lines hold them: long results by head and tail."""
        return (entry for _, entry in self._numbered(_decoded))

    def raw(self) -> Iterator[tuple[bytes, Glance]]:
        """Each line as it stands, with what a glance at it tells, for a quarter of the time of reading it."""
        return self._numbered(_glanced)

    def _numbered(self, read: Callable[[bytes], _Numbered]) -> Iterator[tuple[bytes, _Numbered]]:
        for number, line in enumerate(self._complete()):
            if number == 0:
                _check_header(line, self.path)
                continue
            try:
                entry = read(line)
            except (JournalDamaged, UnicodeDecodeError) as error:
                raise _damaged(self.path, number, "is no journal entry") from error
            if entry.seq != number:
                raise _damaged(self.path, number, f"has seq {entry.seq} where {number} is due")
            yield line, entry

    def _complete(self) -> Iterator[bytes]:
        try:
            with os.fdopen(open_file(self.path), "rb") as file:
                for line in file:
                    if not line.endswith(b"\n"):
                        return
                    yield line
        except OSError as error:
            raise unusable(self.path, error) from error

    def whole(self, entry: Entry) -> str | None:
        """What a tool returned, where the message of its result holds less; None as well where that is gone."""
        return self._results.body(entry, "whole") or _whole(entry)


class FileJournal:
    """`journal.jsonl` of one session, locked while it is open.

    A last line that was torn by a crash is cut off before the next is written; begins that were never committed are closed
    as aborted. What cannot be written is kept in memory, `trouble` says why, and the next append tries again; where the
    file can only be read, all goes on in memory. Raises `StoreUnusable` where another program writes the session, or where
    it can neither be made nor read, `JournalDamaged` for a line within it that is no entry; then nothing is changed.
    """

    def __init__(self, path: Path) -> None:
        self.path, self.name = path, path.parent.name
        self.trouble, self._writable, self.last_seq = "", True, 0
        self._lines, self._results = Lines(path), Results(path.parent / "results")
        self._unsaved, self._said, self._owed = list[str](), False, False
        self._fd = self._opened()
        try:
            self._begin()
        except BaseException:
            self.close()
            raise

    def _opened(self) -> int:
        try:
            private_folder(self.path.parent)
            return open_file(self.path, os.O_RDWR | os.O_CREAT | os.O_APPEND)
        except OSError as error:
            self.trouble, self._writable = str(unusable(self.path.parent, error)), False
            with suppress(OSError):
                return open_file(self.path)
            raise StoreUnusable(self.trouble) from error

    def _begin(self) -> None:
        lock(self._fd, self.path)
        self._size, self._end = os.fstat(self._fd).st_size, _end_of_last_line(self._fd)
        for left in open_begins(self._seen()):
            self.append("abort", {"begin": left}, sync=True)
        if self._end == 0 and self._writable:
            self._save(sync=True)

    def _seen(self) -> Iterator[Entry]:
        """Goes through the lines once; of their entries, those that `open_begins` needs."""
        for _, seen in self._lines.raw():
            self.last_seq, self._said = seen.seq, self._said or seen.type == "message"
            if seen.type in {"begin", "commit", "abort"}:
                yield Entry(seen.seq, seen.at, seen.type, {"begin": seen.begin})

    def entries(self) -> Iterable[Entry]:
        """All entries so far, in order; to be gone through as often as wanted."""
        return _Both(self._lines, self._unsaved, self._results)

    def append(self, kind: str, body: Mapping[str, object], *, sync: bool = False) -> Entry:
        """Writes one entry before it counts; `sync` waits until it would survive a power failure."""
        entry = Entry(self.last_seq + 1, _now(), kind, body)
        self._unsaved.append(encode(self._results.lean(entry)))
        self.last_seq, self._said = entry.seq, self._said or kind == "message"
        if self._writable:
            self._save(sync=sync)
        return entry

    def _save(self, *, sync: bool) -> None:
        """Writes what is not on disk yet, oldest first, and waits for the disk where that is due."""
        self._owed = self._owed or sync
        try:
            if self._end == 0:
                self._write(header(self.name, _now()))
                sync_folder(self.path.parent)
            while self._unsaved:
                self._write(self._unsaved[0])
                del self._unsaved[0]
            if self._owed:
                os.fsync(self._fd)
            self.trouble, self._owed = "", False
        except OSError as error:
            self.trouble = str(unusable(self.path, error))

    def _write(self, line: str) -> None:
        """Writes a line whole; what a failed attempt left is cut off before the next one, and nothing else ever is."""
        found = os.fstat(self._fd)
        if found.st_nlink == 0 or found.st_size != self._size:
            raise OSError(errno.ESTALE, "another program removed it or wrote to it")
        raw, written = line.encode() + b"\n", 0
        try:
            if self._size != self._end:
                os.ftruncate(self._fd, self._end)
            while written < len(raw):
                written += os.write(self._fd, memoryview(raw)[written:])
            self._end += len(raw)
        finally:
            self._size = os.fstat(self._fd).st_size

    def whole(self, entry: Entry) -> str | None:
        """What a tool returned, where the message of its result holds less; None as well where that is gone."""
        return self._lines.whole(entry)

    def shrink(self, pointed_at: Iterable[int]) -> int:
        """Removes the oldest bodies where they take more than they may; how many went.

        Never one of the lines in `pointed_at`, and none where the journal cannot be read.
        """
        if not self._results.too_large:
            return 0
        lines, named, kept = set(pointed_at), list[str](), set[str]()
        with suppress(JournalDamaged, StoreUnusable):
            for entry in chain(self._lines.bare(), map(decode, self._unsaved)):
                found = names(entry)
                named += found
                kept |= found if entry.seq in lines else set()
            return self._results.shrink(named, frozenset(kept))
        return 0

    def leave(self) -> None:
        """Closes a session, after a last attempt to write all; one in which nothing was said is no session, and goes."""
        if self._writable and self._unsaved:
            self._save(sync=True)
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

    def __init__(self, lines: Lines, unsaved: list[str], results: Results) -> None:
        self._lines, self._unsaved, self._results = lines, unsaved, results

    def __iter__(self) -> Iterator[Entry]:
        yield from self._lines
        yield from map(self._results.filled, map(decode, tuple(self._unsaved)))


def _whole(entry: Entry) -> str | None:
    text = entry.body.get("whole")
    return text if isinstance(text, str) else None


class Glance(msgspec.Struct):
    """What of an entry is enough to number it, and to find the begins that were left open."""

    seq: int
    at: str
    type: str
    begin: Any = None


_Numbered = TypeVar("_Numbered", Entry, Glance)
_GLANCE, _LINE = msgspec.json.Decoder(Glance), msgspec.json.Decoder[Any]()


def _glanced(line: bytes) -> Glance:
    """A glance at the entry of a line; what is no entry to `_decoded` is none here either."""
    try:
        if not line.isascii():
            line.decode()  # the decoder does not look into texts that nobody asked for
        return _GLANCE.decode(line)
    except (msgspec.DecodeError, RecursionError):
        entry = decode(line.decode())
        return Glance(entry.seq, entry.at, entry.type, entry.body.get("begin"))


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


def in_file(path: Path, error: JournalDamaged) -> JournalDamaged:
    """What a person is told of damage that was found in the entries of a file, with its line and what can be done."""
    return error if error.seq is None else _damaged(path, error.seq, f"is damaged ({error})")


def _damaged(path: Path, seq: int, what: str) -> JournalDamaged:
    """What a person is told of the line that should hold entry `seq`; the header is line 1 of the file."""
    keep = f"keep what is before it: localctx sessions fork {path.parent.name} --through {seq - 1}"
    return JournalDamaged(
        f"{path} line {seq + 1} {what}; restore the line, or {keep if seq > 1 else 'start a new session'}"
    )


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
