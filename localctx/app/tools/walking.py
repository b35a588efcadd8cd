"""Going through the working folder for names and for lines: a program of its own, since patterns come from strangers.

A model's expression, or one in a project's `.gitignore`, can take for ever; whoever starts this program ends it then, and
has what was found until then. It reads its wishes as JSON from its standard input and writes what it finds, a line each.
"""

from __future__ import annotations

import json
import os
import re
import stat
import sys
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from localctx.app.tools.place import Place, Spot, explained, is_without_disk, visible
from localctx.app.tools.reading import is_binary
from localctx.core.secrets import holds_secrets

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from pathspec import GitIgnoreSpec

__all__ = ["DONE", "Passed", "Search", "found"]

DONE = "\x1e"
"""What the last line begins with, behind which it says what was passed over."""

_MOST_MEMORY = 1 << 30
_MOST_VISITED, _MOST_DEPTH = 200_000, 48
_MOST_IGNORE_BYTES = 1 << 16
_MOST_FILE, _MOST_LINE = 64 << 20, 10_000
"""What one search may take: bytes of memory; entries and depth; bytes of an ignore file; bytes of a file and of a line looked at."""

_SHOWN = 200
"""The characters that are shown of a line."""


@dataclass(frozen=True, slots=True)
class Search:
    """Where to look (a path in `root`), for files of which names, and for lines that match which expression, if any.

    `most` bounds what is told; `known` is what the place knows `root` by.
    """

    root: str
    path: str
    files: str | None
    pattern: str | None
    most: int
    known: tuple[int, int] | None = None


@dataclass(slots=True)
class Passed:
    """What was not looked at."""

    visited: int = 0
    counts: dict[str, int] = field(default_factory=dict)

    def by(self, why: str) -> None:
        """Counts one that was passed over, and why."""
        self.counts[why] = self.counts.get(why, 0) + 1

    def told(self) -> str:
        """How many were passed over, each why once; empty for none."""
        return "; ".join(f"{why}: {count:,}" for why, count in self.counts.items())


_Ignored: TypeAlias = "tuple[tuple[str, GitIgnoreSpec], ...]"
"""Folders, each as the beginning of the paths in it, and what is ignored there."""


def found(search: Search, passed: Passed) -> Iterator[str]:
    """What is there, a line each. Raises `ValueError`, worded for a model."""
    wanted = _globs([search.files]) if search.files else None
    expression = _compiled(search.pattern) if search.pattern is not None else None
    place = Place(Path(search.root), search.known and (search.known[0], search.known[1]))
    with explained(search.path), place.spot(search.path) as spot:
        start = spot.look()
        if start is None:
            raise FileNotFoundError
        for each in _files(spot, passed) if stat.S_ISDIR(start.st_mode) else [spot]:
            if wanted is not None and not wanted.match_file(each.shown):
                continue
            if expression is None:
                yield visible(each.shown)
            else:
                yield from _lines(each, expression, passed, search.root)


def _globs(lines: Iterable[str]) -> GitIgnoreSpec:
    """What matches names as git does. Raises `ValueError`."""
    from pathspec import GitIgnoreSpec  # noqa: PLC0415  only the program needs it, not who starts it

    return GitIgnoreSpec.from_lines(lines)


def _compiled(pattern: str) -> re.Pattern[str]:
    try:
        return re.compile(pattern)
    except (re.error, RecursionError, OverflowError) as error:
        raise ValueError(
            f"{pattern[:60]!r} is no regular expression ({error}); escape what is meant as it stands"
        ) from None


def _files(spot: Spot, passed: Passed) -> Iterator[Spot]:
    """The files in a folder and below that nobody ignores, in the order of their names."""
    folder = spot.open_folder()
    try:
        yield from _below(folder, "" if spot.shown == "." else f"{spot.shown}/", (), passed)
    finally:
        os.close(folder)


def _below(folder: int, prefix: str, ignored: _Ignored, passed: Passed) -> Iterator[Spot]:
    ignored = (*ignored, *_ignored(folder, prefix))
    folders = list[str]()
    for name in _names(folder, passed):
        shown = f"{prefix}{name}"
        try:
            found = os.stat(name, dir_fd=folder, follow_symlinks=False)
        except OSError:
            continue
        mode = found.st_mode
        if name.casefold() == ".git" or _is_ignored(shown, ignored, folder=stat.S_ISDIR(mode)):
            continue
        if stat.S_ISDIR(mode):
            if not is_without_disk(found):
                folders.append(name)
        elif stat.S_ISREG(mode):
            yield Spot(folder, name, shown)
    for name in folders:
        yield from _inside(folder, prefix, name, ignored, passed)


def _inside(folder: int, prefix: str, name: str, ignored: _Ignored, passed: Passed) -> Iterator[Spot]:
    if prefix.count("/") >= _MOST_DEPTH:
        passed.by(f"folders more than {_MOST_DEPTH} deep, not searched")
        return
    try:
        inner = Spot(folder, name, "").open_folder()
    except OSError:
        passed.by("folders that cannot be read")
        return
    try:
        yield from _below(inner, f"{prefix}{name}/", ignored, passed)
    finally:
        os.close(inner)


def _names(folder: int, passed: Passed) -> list[str]:
    names = list[str]()
    with suppress(OSError), os.scandir(folder) as entries:
        for entry in entries:
            passed.visited += 1
            if passed.visited > _MOST_VISITED:
                passed.counts.setdefault("entries are as many as are looked at (name a smaller folder)", _MOST_VISITED)
                break
            names.append(entry.name)
    return sorted(names)


def _ignored(folder: int, prefix: str) -> _Ignored:
    """What the ignore file of a folder says, if it has one that can be read."""
    with suppress(OSError, ValueError):
        fd = Spot(folder, ".gitignore", ".gitignore").open_file()
        with os.fdopen(fd, "rb") as file:
            lines = file.read(_MOST_IGNORE_BYTES).decode("utf-8", "replace").split("\n")
        return ((prefix, _globs(lines)),)
    return ()


def _is_ignored(shown: str, ignored: _Ignored, *, folder: bool) -> bool:
    """Whether the nearest ignore file that says anything of it says so."""
    for prefix, spec in reversed(ignored):
        verdict = spec.check_file(shown[len(prefix) :] + ("/" if folder else "")).include
        if verdict is not None:
            return verdict
    return False


def _lines(spot: Spot, expression: re.Pattern[str], passed: Passed, root: str) -> Iterator[str]:
    """The lines of a file that match, with their numbers."""
    if holds_secrets(f"{root}/{spot.shown}"):
        passed.by("files that may hold secrets, not searched")
        return
    try:
        fd = spot.open_file()
    except (OSError, ValueError):
        passed.by("files that cannot be read")
        return
    with os.fdopen(fd, "rb") as file:
        if is_binary(file.peek(8192)):
            passed.by("binary files, not searched")
            return
        for number, raw in enumerate(iter(partial(file.readline, _MOST_LINE), b""), 1):
            if file.tell() > _MOST_FILE:
                passed.by(f"files searched in their first {_MOST_FILE >> 20} MiB alone")
                return
            text = raw.decode("utf-8", "replace").rstrip("\r\n")
            if match := expression.search(text):
                yield f"{visible(spot.shown)}:{number}:{_around(text, match.start())}"


def _around(text: str, at: int) -> str:
    """A line, or of a long one what is around the match."""
    start = 0 if len(text) <= _SHOWN else max(min(at - _SHOWN // 2, len(text) - _SHOWN), 0)
    return f"{'...' if start else ''}{text[start : start + _SHOWN]}{'...' if start + _SHOWN < len(text) else ''}"


def _serve() -> None:
    with suppress(ImportError, ValueError, OSError):  # where there are no limits, there is the deadline
        import resource  # noqa: PLC0415  not on Windows

        resource.setrlimit(resource.RLIMIT_AS, (_MOST_MEMORY, _MOST_MEMORY))
    search, passed = Search(**json.load(sys.stdin.buffer)), Passed()
    told, more = 0, ""
    try:
        for line in found(search, passed):
            if told == search.most:
                more = f"there are more than {told:,}: narrow it down"
                break
            sys.stdout.buffer.write(f"{line.replace(DONE, ' ')}\n".encode("utf-8", "replace"))
            sys.stdout.buffer.flush()
            told += 1
    except ValueError as error:
        more = f"error: {error}"
    notes = "; ".join(filter(None, (more, passed.told())))
    sys.stdout.buffer.write(f"{DONE}{notes}\n".encode("utf-8", "replace"))


if __name__ == "__main__":
    _serve()
