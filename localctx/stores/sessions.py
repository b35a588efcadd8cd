"""The sessions in the data directory: made, found, listed, forked, removed."""

from __future__ import annotations

import json
import os
import re
import shutil
import stat
import sys
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from itertools import chain, islice
from pathlib import Path
from typing import TYPE_CHECKING

from localctx.core import journal as lines
from localctx.core.messages import Message, plain
from localctx.core.transcript import read
from localctx.core.work import WorkState, as_json
from localctx.errors import JournalDamaged, Misuse, NothingFound, StoreUnusable
from localctx.stores.files import lock, open_file, replace_file, unusable
from localctx.stores.journal import FileJournal, Lines
from localctx.stores.results import Results

if TYPE_CHECKING:
    from collections.abc import Iterator

    from localctx.core.journal import Entry
    from localctx.core.messages import Item

__all__ = ["Listed", "Sessions", "header_of", "keep_state"]

_ID = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,99}")


@dataclass(frozen=True, slots=True)
class Listed:
    """A session as a list shows it: when it was begun and last written (UTC), how much is in it, and its first words."""

    name: str
    created: str
    written: str
    size_bytes: int
    messages: int = 0
    compactions: int = 0
    model: str = ""
    first_words: str = ""
    trouble: str = ""


class Sessions:
    """The sessions under a data directory. A name that is no name raises `Misuse`, wherever it comes from."""

    def __init__(self, home: Path) -> None:
        self._root, self._works = home / "sessions", home / "work"

    def create(self, name: str | None = None) -> FileJournal:
        """A session by this name, or a new one; opened for writing."""
        return FileJournal(self._path(new_name() if name is None else name))

    def resume(self, name: str) -> FileJournal:
        """The session by this name, or whose name alone begins so. Raises `NothingFound` where there is none."""
        return FileJournal(self._path(self.find(name)))

    def newest(self) -> FileJournal:
        """The session that was written last. Raises `NothingFound` where there is none."""
        return FileJournal(self._path(self.find(None)))

    def read(self, name: str | None) -> Lines:
        """The entries of a session (the newest without a name), beside whoever writes it."""
        return Lines(self._path(self.find(name)))

    def find(self, name: str | None) -> str:
        """The whole name of a session that is there: by its beginning, or the newest. Raises `NothingFound`."""
        known = self.names()
        if name is None:
            if not known:
                raise NothingFound(f"no session to continue under {self._root}; start one with: localctx run")
            return known[0]
        path = self._path(name)
        alike = [name] if _stamp(path) is not None else [each for each in known if each.startswith(name)]
        if len(alike) == 1:
            return alike[0]
        what = "more than one session begins with" if alike else "no session"
        shown = ", ".join((alike or known)[:3]) or "none yet"
        raise NothingFound(f"{what} {name!r} under {self._root} ({'they are' if alike else 'newest'}: {shown})")

    def names(self) -> list[str]:
        """All names, the session that was written last first. Raises `StoreUnusable` where they cannot be read."""
        try:
            named = [each.name for each in self._root.iterdir() if _ID.fullmatch(each.name)]
        except FileNotFoundError:
            return []
        except OSError as error:
            raise unusable(self._root, error) from error
        found = [(stamp, each) for each in named if (stamp := _stamp(self._path(each))) is not None]
        return [each for _, each in sorted(found, reverse=True)]

    def listed(self) -> list[Listed]:
        """All sessions, the one that was written last first; `trouble` says why one cannot be read further."""
        return [self._listed(name) for name in self.names()]

    def _listed(self, name: str) -> Listed:
        path = self._path(name)
        found = Listed(name, str(header_of(path).get("created", "")), _written(path), size_bytes=_size(path.parent))
        try:
            for entry in Lines(path).bare():
                found = _with(found, entry)
        except (JournalDamaged, StoreUnusable) as error:
            return replace(found, trouble=str(error))
        return found

    def fork(self, name: str, new: str | None = None, through: int | None = None) -> str:
        """A new session with the lines of another (those up to line `through`); its name. The other stays as it is.

        Raises `Misuse` where there is a session by the new name, `JournalDamaged` for a line among those that is none;
        then there is no new one.
        """
        source = self._path(self.find(name))
        target = self._path(new if new is not None else new_name())
        if through is not None and through < 1:
            raise Misuse(f"session {source.parent.name} has no line {through}; they are counted from 1")
        head = lines.header(target.parent.name, _now(), forked_from=source.parent.name).encode() + b"\n"
        most = None if through is None else min(through, sys.maxsize)
        kept = (line for line, _ in islice(Lines(source).raw(), most))
        with _new_folder(target.parent):
            Results(source.parent / "results").share(target.parent / "results")
            replace_file(target, chain([head], kept))
        return target.parent.name

    def remove(self, name: str) -> None:
        """Removes a session and all that belongs to it. Raises `StoreUnusable` where a program has it open.

        Where a folder of it is a link, the link goes, and what it leads to stays.
        """
        folder = self._path(name).parent
        try:
            with _held(folder / "journal.jsonl"):
                _remove(folder)
            work = self.state_file(name).parent
            if os.path.lexists(work):
                _remove(work)
        except (FileNotFoundError, NotADirectoryError) as error:
            raise NothingFound(f"no session {name!r} under {self._root}") from error
        except OSError as error:
            raise unusable(folder, error) from error

    def state_file(self, name: str) -> Path:
        """Where the work state of a session can be read by people and programs."""
        return self._works / self._path(name).parent.name / "state.json"

    def folder(self, name: str) -> Path:
        """The folder of a session."""
        return self._path(name).parent

    def _path(self, name: str) -> Path:
        if not _ID.fullmatch(name):
            raise Misuse(f"session name {name!r}: use letters, digits, '.', '_' and '-', at most 100, not '.' first")
        return self._root / name / "journal.jsonl"


def keep_state(path: Path, state: WorkState) -> None:
    """Shows people and other programs where the work stands, in a file that is there while anything is recorded.

    The journal is what counts, whether this succeeds or not.
    """
    with suppress(OSError):
        if state == WorkState():
            path.unlink(missing_ok=True)
            path.parent.rmdir()
        elif _shown(path) != as_json(state):
            text = json.dumps({**as_json(state), "updated_at": _now()}, indent=2, ensure_ascii=False) + "\n"
            replace_file(path, [text.encode("utf-8", "surrogatepass")])


def _shown(path: Path) -> dict[str, object]:
    """What the file says; empty where it cannot be read."""
    with suppress(OSError, ValueError, RecursionError), os.fdopen(open_file(path), "rb") as file:
        shown = json.loads(file.read(_MOST_STATE))
        return {name: each for name, each in shown.items() if name != "updated_at"} if isinstance(shown, dict) else {}
    return {}


_MOST_STATE = 2**20


def new_name() -> str:
    """A name for a session that was given none: when it was begun, and what tells it from others."""
    return f"{datetime.now(UTC):%Y%m%d-%H%M%S}-{os.urandom(4).hex()}"


def header_of(path: Path) -> dict[str, object]:
    """The first line of a journal; empty where it cannot be read."""
    with suppress(OSError, ValueError, RecursionError), os.fdopen(open_file(path), "rb") as file:
        head = json.loads(file.readline(_MOST_HEADER))
        return head if isinstance(head, dict) else {}
    return {}


_MOST_HEADER = 64 * 2**10


def _with(found: Listed, entry: Entry) -> Listed:
    match entry.body:
        case {"message": message} if entry.type == "message":
            first = found.first_words or _first_words(read(message))
            return replace(found, messages=found.messages + 1, first_words=first)
        case {"effect": {"kind": "compacted"}}:
            return replace(found, compactions=found.compactions + 1)
        case {"model": str(model)} if entry.type == "window":
            return replace(found, model=model)
    return found


def _first_words(item: Item) -> str:
    said = plain(item.content) if isinstance(item, Message) and item.role == "user" else ""
    return " ".join(said.split())[:_FIRST_WORDS]


_FIRST_WORDS = 80


def _stamp(path: Path) -> int | None:
    """When a journal was last written, in nanoseconds; None where there is none."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_mtime_ns if stat.S_ISREG(found.st_mode) else None


def _written(path: Path) -> str:
    seconds = min((_stamp(path) or 0) // 10**9, _LAST_SECOND)
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="seconds")


_LAST_SECOND = 253_402_300_799
"""The end of the year 9999, where `datetime` ends."""


def _size(folder: Path) -> int:
    """The bytes of all files in a folder and below it."""
    size = 0
    for parent, _, files in os.walk(folder):
        for each in files:
            with suppress(OSError):
                size += Path(parent, each).lstat().st_size
    return size


@contextmanager
def _new_folder(folder: Path) -> Iterator[None]:
    """Makes the folder of a session, which goes again where filling it fails. Raises `Misuse` where it is there already."""
    try:
        folder.mkdir(mode=0o700)
    except FileExistsError as error:
        raise Misuse(f"there is a session {folder.name!r} already; name another") from error
    except OSError as error:
        raise unusable(folder, error) from error
    try:
        yield
    except BaseException as error:
        shutil.rmtree(folder, ignore_errors=True)
        if isinstance(error, OSError):
            raise unusable(folder, error) from error
        raise


@contextmanager
def _held(path: Path) -> Iterator[None]:
    """Keeps other programs from a session. Raises `StoreUnusable` where one has it; without a journal, nobody can."""
    try:
        fd = open_file(path)
    except OSError:
        fd = -1
    try:
        if fd >= 0:
            lock(fd, path)
        yield
    finally:
        if fd >= 0:
            os.close(fd)


def _remove(folder: Path) -> None:
    """Removes a folder, of a link the link alone."""
    if folder.is_symlink():
        folder.unlink()
    else:
        shutil.rmtree(folder)


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds")
