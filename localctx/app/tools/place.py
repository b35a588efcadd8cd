"""The folder that the tools work in. Whatever a model writes as a path, it reaches nothing outside.

A path is walked one name at a time, each from the descriptor of the folder before it and never through a link that the
system would follow: links are read here, and what they say is walked in the same way. So it does not matter what
is swapped for what meanwhile: everything is done relative to a descriptor that was reached inside. `..` goes back to the
folder that was come from.
"""

from __future__ import annotations

import errno
import os
import stat
from collections import deque
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

__all__ = ["Place", "Spot", "can_confine", "explained", "is_without_disk", "visible"]

_MOST_DEPTH, _MOST_LINKS, _MOST_PATH = 64, 40, 4096
"""Folders one in another (each takes a descriptor), links on one way (as Linux has it), characters of a path."""

_FOLDER = os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC if hasattr(os, "O_NOFOLLOW") else 0
_PASSING = _FOLDER | getattr(os, "O_PATH", os.O_RDONLY)
"""How a folder is opened on the way: without the right to read it, where the system knows that."""

_WITHOUT_DISK = ("/proc", "/sys", "/dev")
"""Where files are no files, and reading one may do something."""


def can_confine() -> bool:
    """Whether this system can open a file relative to a folder's descriptor."""
    return os.open in os.supports_dir_fd and hasattr(os, "O_NOFOLLOW")


def _identity(found: os.stat_result) -> tuple[int, int]:
    return found.st_dev, found.st_ino


def is_without_disk(found: os.stat_result) -> bool:
    """Whether a folder is one whose files are no files."""
    return _identity(found) in _without_disk()


@cache
def _without_disk() -> set[tuple[int, int]]:
    found = set[tuple[int, int]]()
    for place in _WITHOUT_DISK:
        with suppress(OSError):
            found.add(_identity(os.stat(place)))  # noqa: PTH116  as everything here
    return found


@dataclass(frozen=True, slots=True)
class Spot:
    """Where a path leads: a `name` in an open `folder`, which is no link, and may not be there. `shown` is the path to it.

    The name `.` is the folder itself.
    """

    folder: int
    name: str
    shown: str

    def look(self) -> os.stat_result | None:
        """What is there now; None for nothing. Raises `OSError`."""
        try:
            return os.stat(self.name, dir_fd=self.folder, follow_symlinks=False)
        except FileNotFoundError:
            return None

    def open_file(self) -> int:
        """Opens it to read: a file, and nothing that could wait or act. Raises `ValueError` and `OSError`."""
        found = self.look()
        if found is None:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))
        _demand_file(found.st_mode, self.shown)
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
        fd = os.open(self.name, flags, dir_fd=self.folder)
        try:
            _demand_file(os.fstat(fd).st_mode, self.shown)
        except ValueError:
            os.close(fd)
            raise
        return fd

    def open_folder(self) -> int:
        """Opens it to list. Raises `OSError`."""
        return os.open(self.name, _FOLDER | os.O_RDONLY, dir_fd=self.folder)


class Place:
    """A folder, by its real path."""

    def __init__(self, root: Path, known: tuple[int, int] | None = None) -> None:
        """The folder at a path; `known`, as `Place.known` gives it, where it was looked at before."""
        self.root, self.known = root.resolve(), known
        with suppress(OSError):
            self.known = known or _identity(os.stat(self.root))  # noqa: PTH116  as everything here

    def open(self) -> int:
        """Opens the folder itself. Raises `ValueError`, worded for a model, where it is gone, and `OSError`."""
        try:
            fd = os.open(self.root, _PASSING)
        except (FileNotFoundError, NotADirectoryError):
            raise ValueError(f"the working folder {self.root} is gone") from None
        if self.known not in {None, _identity(os.fstat(fd))}:
            os.close(fd)
            raise ValueError(f"the working folder {self.root} is gone; another one is in its place")
        return fd

    def demand_there(self) -> None:
        """Raises as `open` does."""
        os.close(self.open())

    @contextmanager
    def spot(self, path: str, *, make: bool = False) -> Iterator[Spot]:
        """Where a path leads; its folder is open meanwhile. `make` makes the folders that are not there yet.

        Raises `ValueError`, worded for a model, for what is outside, and `OSError`.
        """
        way = _Way(self.root, self.open())
        try:
            yield way.walk(_usable(path), make=make)
        finally:
            way.leave()


class _Way:
    """The folders that were come through, each open."""

    def __init__(self, root: Path, fd: int) -> None:
        self._root, self._names, self._links = root, list[str](), 0
        self._folders = [fd]

    def leave(self) -> None:
        for folder in self._folders:
            os.close(folder)

    def walk(self, path: str, *, make: bool) -> Spot:
        """Raises `ValueError` and `OSError`."""
        left = deque(self._parts(path))
        while left:
            part = left.popleft()
            if part == "..":
                self._back(path)
            elif (target := self._link(part)) is not None:
                left.extendleft(reversed(self._parts(target)))
            elif left:
                self._enter(part, make=make)
            else:
                return self._at(part)
        return self._at(".")

    def _at(self, name: str) -> Spot:
        shown = "/".join([*self._names, *([] if name == "." else [name])]) or "."
        if f"{self._root / shown}/".startswith(tuple(f"{place}/" for place in _WITHOUT_DISK)):
            raise ValueError(f"{visible(shown)} is no file of a disk; it is not for these tools")
        return Spot(self._folders[-1], name, shown)

    def _parts(self, path: str) -> list[str]:
        """The names of a path that is relative to where we are, or to the root for an absolute one inside it."""
        if path.startswith("/"):
            path = self._relative(path)
            self._back_to_root()
        return [part for part in path.split("/") if part not in {"", "."}]

    def _relative(self, path: str) -> str:
        """An absolute path from the root on: what follows the last folder in it that is the root, however that is spelt."""
        root = os.fstat(self._folders[0])
        for end in [len(path), *(at for at in reversed(range(len(path))) if path[at] == "/")]:
            with suppress(OSError):
                if os.path.samestat(os.stat(path[:end] or "/"), root):  # noqa: PTH116  a text, not a path
                    return path[end:]
        raise ValueError(f"{visible(path)} is outside of the working folder {self._root}; use a path relative to it")

    def _back(self, path: str) -> None:
        if not self._names:
            raise ValueError(f"{visible(path)} is outside of the working folder {self._root}; stay in it")
        self._names.pop()
        os.close(self._folders.pop())

    def _back_to_root(self) -> None:
        while self._names:
            self._back("")

    def _link(self, part: str) -> str | None:
        """Where a link leads; None where the name is none, or is not there."""
        try:
            if not stat.S_ISLNK(os.stat(part, dir_fd=self._folders[-1], follow_symlinks=False).st_mode):
                return None
            target = os.readlink(part, dir_fd=self._folders[-1])
        except FileNotFoundError:
            return None
        self._links += 1
        if self._links > _MOST_LINKS:
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))
        return target

    def _enter(self, part: str, *, make: bool) -> None:
        if len(self._folders) > _MOST_DEPTH:
            raise ValueError(f"the path is more than {_MOST_DEPTH} folders deep")
        if make:
            with suppress(FileExistsError):
                os.mkdir(part, dir_fd=self._folders[-1])
        self._folders.append(os.open(part, _PASSING, dir_fd=self._folders[-1]))
        self._names.append(part)


def _usable(path: str) -> str:
    """A path as the system takes it. Raises `ValueError`, worded for a model."""
    if not path or "\0" in path or len(path) > _MOST_PATH:
        raise ValueError(f"{visible(path[:60])!r} is no path; it has {len(path):,} characters, or a NUL in it")
    try:
        os.fsencode(path)
    except UnicodeEncodeError:
        raise ValueError(f"{visible(path[:60])!r} is no path: it holds half of a character") from None
    return os.path.expanduser(path) if path == "~" or path.startswith("~/") else path  # noqa: PTH111  a text, not a path


def _demand_file(mode: int, shown: str) -> None:
    if not stat.S_ISREG(mode):
        raise ValueError(f"{visible(shown)} is {_kind(mode)}, not a file")


def _kind(mode: int) -> str:
    kinds = {
        stat.S_IFDIR: "a folder",
        stat.S_IFLNK: "a link that was just put there",
        stat.S_IFIFO: "a pipe",
        stat.S_IFSOCK: "a socket",
    }
    return kinds.get(stat.S_IFMT(mode), "a device")


def visible(name: str) -> str:
    r"""A name as text: bytes that are no UTF-8 as `\udcXX`, which JSON reads back as the same byte; control characters escaped."""
    text = name.encode("utf-8", "backslashreplace").decode()
    return "".join(each if each.isprintable() else each.encode("unicode_escape").decode() for each in text)


@contextmanager
def explained(path: str) -> Iterator[None]:
    """Turns the system's errors into such as a model reads: `ValueError` that names the path."""
    try:
        yield
    except FileNotFoundError:
        raise ValueError(f"there is no {visible(path)}; list_dir shows what there is") from None
    except NotADirectoryError:
        raise ValueError(f"{visible(path)} goes through something that is no folder") from None
    except OSError as error:
        raise ValueError(f"{visible(path)[:200]}: {error.strerror or error}") from None
