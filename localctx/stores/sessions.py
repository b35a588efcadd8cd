"""The sessions in the data directory: made, found, listed, forked, removed."""

from __future__ import annotations

import json
import os
import re
import shutil
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from localctx.core import journal as lines
from localctx.core.messages import Message, plain
from localctx.core.transcript import read
from localctx.core.work import as_json
from localctx.errors import JournalDamaged, Misuse, NothingFound
from localctx.stores.files import private_folder, replace_file
from localctx.stores.journal import FileJournal, Lines, lock, unusable

if TYPE_CHECKING:
    from pathlib import Path

    from localctx.core.journal import Entry
    from localctx.core.messages import Item
    from localctx.core.work import WorkState

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
        alike = [name] if path.is_file() else [each for each in known if each.startswith(name)]
        if len(alike) == 1:
            return alike[0]
        what = "more than one session begins with" if alike else "no session"
        shown = ", ".join((alike or known)[:3]) or "none yet"
        raise NothingFound(f"{what} {name!r} under {self._root} ({'they are' if alike else 'newest'}: {shown})")

    def names(self) -> list[str]:
        """All names, the session that was written last first."""
        try:
            found = [path for path in self._root.glob("*/journal.jsonl") if _ID.fullmatch(path.parent.name)]
            return [path.parent.name for path in sorted(found, key=lambda p: p.stat().st_mtime_ns, reverse=True)]
        except OSError as error:
            raise unusable(self._root, error) from error

    def listed(self) -> list[Listed]:
        """All sessions, the one that was written last first."""
        return [self._listed(name) for name in self.names()]

    def _listed(self, name: str) -> Listed:
        path = self._path(name)
        found = Listed(name, str(header_of(path).get("created", "")), _written(path), size_bytes=_size(path.parent))
        try:
            for entry in Lines(path).bare():
                found = _with(found, entry)
        except JournalDamaged as error:
            return replace(found, trouble=str(error))
        return found

    def fork(self, name: str, new: str | None = None, through: int | None = None) -> str:
        """A new session with the lines of another (those up to line `through`); its name. The other stays as it is."""
        source = self._path(self.find(name))
        target = self._path(new if new is not None else new_name())
        if target.exists():
            raise Misuse(f"there is a session {target.parent.name!r} already; name another")
        kept = list[str]()
        for entry in Lines(source).bare():
            if through is not None and entry.seq > through:
                break
            kept.append(lines.encode(entry))
            if entry.seq == through:
                break
        if through is not None and not kept:
            raise Misuse(f"session {source.parent.name} has no line {through} or before it")
        head = lines.header(target.parent.name, _now(), forked_from=source.parent.name)
        try:
            _share(source.parent / "results", target.parent / "results")
            replace_file(target, "\n".join([head, *kept, ""]))
        except OSError as error:
            raise unusable(target.parent, error) from error
        return target.parent.name

    def remove(self, name: str) -> None:
        """Removes a session and all that belongs to it. Raises `StoreUnusable` where a program has it open.

        Where the session's folder is a link, the link goes, and what it leads to stays.
        """
        folder = self._path(name).parent
        if not folder.is_dir():
            raise NothingFound(f"no session {name!r} under {self._root}")
        try:
            if folder.is_symlink():
                folder.unlink()
                return
            self._remove(folder)
            work = self.state_file(name).parent
            if work.is_dir() and not work.is_symlink():
                shutil.rmtree(work)
        except OSError as error:
            raise unusable(folder, error) from error

    def _remove(self, folder: Path) -> None:
        path = folder / "journal.jsonl"
        fd = os.open(path, os.O_RDONLY) if path.exists() else -1
        try:
            if fd >= 0:
                lock(fd, path)
            shutil.rmtree(folder)
        finally:
            if fd >= 0:
                os.close(fd)

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
    """Shows people and other programs where the work stands; the journal is what counts, whether this succeeds or not."""
    shown = {**as_json(state), "updated_at": _now()}
    with suppress(OSError):
        replace_file(path, json.dumps(shown, indent=2, ensure_ascii=False) + "\n")


def new_name() -> str:
    """A name for a session that was given none: when it was begun, and what tells it from others."""
    return f"{datetime.now(UTC):%Y%m%d-%H%M%S}-{os.urandom(2).hex()}"


def header_of(path: Path) -> dict[str, object]:
    """The first line of a journal; empty where it cannot be read."""
    with suppress(OSError, ValueError, RecursionError), path.open("rb") as file:
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


def _written(path: Path) -> str:
    return datetime.fromtimestamp(path.stat().st_mtime, UTC).isoformat(timespec="seconds")


def _size(folder: Path) -> int:
    """The bytes of all files in a folder and below it."""
    return sum(each.lstat().st_size for each in folder.rglob("*") if not each.is_dir())


def _share(source: Path, target: Path) -> None:
    """Gives a fork the bodies of its origin: the same files under a second name where that can be, else copies."""
    if not source.is_dir():
        return
    private_folder(target)
    for body in source.iterdir():
        try:
            os.link(body, target / body.name, follow_symlinks=False)
        except FileExistsError:
            continue
        except OSError:
            shutil.copyfile(body, target / body.name, follow_symlinks=False)


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds")
