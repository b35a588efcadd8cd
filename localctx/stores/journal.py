"""The journal on disk: append-only JSON lines, private, written by one program at a time."""

from __future__ import annotations

import contextlib
import errno
import os
import re
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from localctx.core.journal import Entry, check_header, decode, encode, header, open_begins
from localctx.errors import JournalDamaged, Misuse, NothingFound, StoreUnusable

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

__all__ = ["FileJournal", "MemoryJournal", "Sessions"]

_FLAGS = os.O_RDWR | os.O_CREAT | os.O_APPEND
_ID = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,99}")


class MemoryJournal:
    """A journal that is gone with the program (`--ephemeral`)."""

    name: str | None = None
    """It has none: nobody can go on with it."""

    def __init__(self) -> None:
        self._entries: list[Entry] = []

    def entries(self) -> Sequence[Entry]:
        """All entries so far, in order."""
        return tuple(self._entries)

    def leave(self) -> None:
        """Nothing is kept."""

    def append(self, kind: str, body: Mapping[str, object], *, sync: bool = False) -> Entry:  # noqa: ARG002  the port's signature
        """Keeps one entry."""
        entry = Entry(_next(self._entries), _now(), kind, body)
        self._entries.append(entry)
        return entry


class FileJournal:
    """`journal.jsonl` of one session: locked while it is open, read whole when it is opened.

    A last line that was torn by a crash is cut off; begins that were never committed are closed as aborted. Raises
    `StoreUnusable` where the file cannot be used or another program writes it, `JournalDamaged` for a line within it
    that is no entry.
    """

    def __init__(self, path: Path) -> None:
        self.path, self.name = path, path.parent.name
        try:
            _folder(path.parent)
            self._file = os.fdopen(os.open(path, _FLAGS, 0o600), "a+b", buffering=0)
        except OSError as error:
            raise _unusable(path.parent, error) from error
        try:
            self._open()
        except BaseException:
            self._file.close()
            raise

    def _open(self) -> None:
        _lock(self._file.fileno(), self.path)
        self._file.seek(0)
        lines = self._file.read().split(b"\n")
        torn = lines.pop()
        self._entries = list(_decoded(lines, self.path))
        if torn:
            self._file.truncate(self._file.seek(0, os.SEEK_END) - len(torn))
        if not lines:
            self._write(header(self.path.parent.name, _now()), sync=True)
            _sync_folder(self.path.parent)
        for begun in open_begins(self._entries):
            self.append("abort", {"begin": begun}, sync=True)

    def entries(self) -> Sequence[Entry]:
        """All entries so far, in order."""
        return tuple(self._entries)

    def append(self, kind: str, body: Mapping[str, object], *, sync: bool = False) -> Entry:
        """Writes one entry before it counts; `sync` waits until it would survive a power failure."""
        entry = Entry(_next(self._entries), _now(), kind, body)
        self._write(encode(entry), sync=sync)
        self._entries.append(entry)
        return entry

    def _write(self, line: str, *, sync: bool) -> None:
        start = self._file.seek(0, os.SEEK_END)
        rest = memoryview(line.encode() + b"\n")
        try:
            while rest:
                rest = rest[self._file.write(rest) :]
            if sync:
                os.fsync(self._file.fileno())
        except OSError as error:
            with contextlib.suppress(OSError):
                self._file.truncate(start)
            raise _unusable(self.path, error) from error

    def close(self) -> None:
        """Gives the file back; what was written stays."""
        self._file.close()

    def leave(self) -> None:
        """Closes a session; one in which nothing was said is no session, and goes."""
        if not any(entry.type == "message" for entry in self._entries):
            with contextlib.suppress(OSError):
                self.path.unlink()
                self.path.parent.rmdir()
        self.close()


class Sessions:
    """The sessions under a data directory."""

    def __init__(self, home: Path) -> None:
        self._root = home / "sessions"

    def create(self, name: str | None = None) -> FileJournal:
        """A session by this name, or a new one; opened for writing."""
        return FileJournal(
            self._path(name if name is not None else f"{datetime.now(UTC):%Y%m%d-%H%M%S}-{os.urandom(2).hex()}")
        )

    def resume(self, name: str) -> FileJournal:
        """The session by this name. Raises `NothingFound` where there is none."""
        path = self._path(name)
        if not path.is_file():
            known = ", ".join(self._names()[:3]) or "none yet"
            raise NothingFound(f"no session {name!r} under {self._root} (newest: {known})")
        return FileJournal(path)

    def newest(self) -> FileJournal:
        """The session that was written last. Raises `NothingFound` where there is none."""
        names = self._names()
        if not names:
            raise NothingFound(f"no session to continue under {self._root}; start one with: localctx run")
        return self.create(names[0])

    def _path(self, name: str) -> Path:
        if not _ID.fullmatch(name):
            raise Misuse(f"session name {name!r}: use letters, digits, '.', '_' and '-', at most 100, not '.' first")
        return self._root / name / "journal.jsonl"

    def _names(self) -> list[str]:
        try:
            found = [path for path in self._root.glob("*/journal.jsonl") if _ID.fullmatch(path.parent.name)]
            return [path.parent.name for path in sorted(found, key=lambda p: p.stat().st_mtime_ns, reverse=True)]
        except OSError as error:
            raise _unusable(self._root, error) from error


def _folder(path: Path) -> None:
    """Makes a folder and those above it that are not there yet, all of them private."""
    for folder in reversed([each for each in (path, *path.parents) if not each.exists()]):
        folder.mkdir(mode=0o700, exist_ok=True)


def _decoded(lines: list[bytes], path: Path) -> Iterator[Entry]:
    """The entries below a header that this version reads; a file without any line has none."""
    if not lines:
        return
    try:
        check_header(lines[0].decode("utf-8", "replace"))
    except JournalDamaged as error:
        raise JournalDamaged(f"{path} line 1: {error}; restore it, or start a new session") from error
    last = 0
    for number, line in enumerate(lines[1:], 2):
        try:
            entry = decode(line.decode())
        except (JournalDamaged, UnicodeDecodeError) as error:
            raise _damaged(path, number, "is no journal entry") from error
        if entry.seq <= last:
            raise _damaged(path, number, f"has seq {entry.seq} after {last}")
        last = entry.seq
        yield entry


def _damaged(path: Path, line: int, what: str) -> JournalDamaged:
    return JournalDamaged(f"{path} line {line} {what}; restore the line, or start a new session")


def _next(entries: Sequence[Entry]) -> int:
    return entries[-1].seq + 1 if entries else 1


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds")


def _lock(fd: int, path: Path) -> None:
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


def _sync_folder(folder: Path) -> None:
    """Makes a new file's name survive a power failure, where a folder can be synced at all."""
    with contextlib.suppress(OSError):
        fd = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)


def _unusable(place: Path, error: OSError) -> StoreUnusable:
    return StoreUnusable(
        f"cannot use {place} ({error.strerror or error}); set LOCALCTX_HOME to a folder that you can write, or pass --ephemeral"
    )
