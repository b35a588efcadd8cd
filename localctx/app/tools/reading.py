"""Reading files and folders of the working folder, however large, odd or unreadable they are."""

from __future__ import annotations

import os
import re
import stat
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any

from anyio.to_thread import run_sync

from localctx.app.tools.approval import permitted
from localctx.app.tools.place import explained, visible
from localctx.core.approval import Wish
from localctx.core.arguments import described
from localctx.core.results import PAGE_CHARACTERS, Provenance
from localctx.core.secrets import holds_secrets
from localctx.ports import Outcome

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from localctx.app.tools.place import Place
    from localctx.core.outgoing import WireMessage
    from localctx.ports import Approval

__all__ = ["ListDir", "ReadFile", "is_binary", "local"]

_CHUNK = 1 << 20
_MOST_COUNTED = 64 << 20
"""Bytes of a file whose lines are counted to say how many there are; of a larger one its bytes are said."""

_MOST_SKIPPED = 1 << 30
"""Bytes that are gone through to find a line: about a second."""

_PAGE_BYTES = 4 * PAGE_CHARACTERS
_LOOKED_AT = 8192


def local(text: str, source: str) -> Outcome:
    """What a file or a folder says, marked as such."""
    return Outcome(text, Provenance("local-file", visible(source)))


def is_binary(head: bytes) -> bool:
    """Whether the beginning of a file is no text in UTF-8: a NUL is in it, as git decides it, too."""
    return b"\0" in head[:_LOOKED_AT]


@dataclass(frozen=True, slots=True)
class ReadFile:
    """Reads a text file in pages of whole lines; `fit` gives as much of a text as one result may take."""

    place: Place
    approval: Approval
    fit: Callable[[str], str]
    name = "read_file"

    @property
    def schema(self) -> WireMessage:
        """What a request says of it."""
        fields = {
            "path": {"type": "string"},
            "line": {"type": "integer", "description": "first line"},
            "lines": {"type": "integer", "description": "how many"},
            "byte": {"type": "integer", "description": "begin there instead, for huge lines"},
        }
        return described(self.name, "Read a text file.", fields, "path")

    async def run(self, arguments: Mapping[str, Any]) -> Outcome:
        """A page of it, with what there is more. Raises `ValueError` for what cannot be read."""
        path = arguments["path"]
        line, lines, byte = (arguments.get(name) for name in ("line", "lines", "byte"))
        if (line or 1) < 1 or (lines or 1) < 1 or (byte or 0) < 0:
            raise ValueError("line and lines count from 1, byte from 0")
        shown = await run_sync(partial(_where, self.place, path), abandon_on_cancel=True)
        if holds_secrets(f"{self.place.root}/{shown}"):
            await permitted(self.approval, Wish(self.name, shown, "it may hold secrets, which the model would see"))
        wanted = _Wanted(line or 1, lines, byte)
        page = await run_sync(partial(_read, self.place, path, shown, wanted), abandon_on_cancel=True)
        return local(page.told(self.fit), shown)


@dataclass(frozen=True, slots=True)
class _Wanted:
    line: int
    lines: int | None
    byte: int | None


@dataclass(frozen=True, slots=True)
class _Page:
    """Some bytes of a file from `start` on, the number of their first line (0: unknown) and of all lines, if counted."""

    raw: bytes
    start: int
    line: int
    lines: int | None
    size: int
    total: int | None

    def told(self, fit: Callable[[str], str]) -> str:
        """The whole lines of it that fit, and where the rest begins."""
        if not self.size:
            return "[the file is empty]"
        text = self.raw.decode("utf-8", "surrogateescape")
        shown = _ODD.sub("\ufffd", text)
        body = _whole_lines(shown, self.lines, len(fit(shown[:PAGE_CHARACTERS])))
        end = self.start + len(text[: len(body)].encode("utf-8", "surrogateescape"))
        notes = [self._rest(body, end)] if self.start or end < self.size else []
        notes += ["bytes that are no UTF-8 are shown as \ufffd"] if shown != text else []
        notes += ["its lines end with CRLF"] if "\r\n" in body else []
        line_end = "" if body.endswith("\n") or not notes else "\n"
        return body.replace("\r\n", "\n") + line_end + (f"[{'; '.join(notes)}]" if notes else "")

    def _rest(self, body: str, end: int) -> str:
        """What was told, up to the byte `end`, and where to go on."""
        if self.line and (body.endswith("\n") or end >= self.size):
            last = self.line + body.count("\n") - body.endswith("\n")
            of = f" of {self.total:,}" if self.total is not None else ""
            more = f"; go on with line {last + 1}" if end < self.size else ""
            return f"lines {self.line:,}-{last:,}{of}, {self.size:,} bytes in all{more}"
        more = f"; go on with byte {end}" if end < self.size else ""
        return f"bytes {self.start:,}-{end:,} of {self.size:,}{more}"


_ODD = re.compile("[\udc80-\udcff]")
"""Bytes that are no UTF-8, as Python decodes them to be written back as they are."""


def _whole_lines(text: str, lines: int | None, most: int) -> str:
    """The first lines of a text in at most so many characters; where not even one fits, what fits of it."""
    parts = text.split("\n", lines or -1)
    wanted = text[: len(text) - len(parts[-1])] if lines and len(parts) > lines else text
    if len(wanted) <= most:
        return wanted
    end = wanted.rfind("\n", 0, most)
    return wanted[: end + 1] if end >= 0 else wanted[:most]


def _where(place: Place, path: str) -> str:
    with explained(path), place.spot(path) as spot:
        return spot.shown


def _read(place: Place, path: str, shown: str, wanted: _Wanted) -> _Page:
    with explained(path), place.spot(path) as spot:
        if spot.shown != shown:
            raise ValueError(f"{visible(path)} leads somewhere else now; try again")
        fd = spot.open_file()
        with os.fdopen(fd, "rb", buffering=0) as file:
            return _page(file, visible(shown), wanted)


def _page(file: Any, shown: str, wanted: _Wanted) -> _Page:  # noqa: ANN401  an unbuffered binary file
    size = os.fstat(file.fileno()).st_size
    head = file.read(_LOOKED_AT)
    if is_binary(head):
        raise ValueError(f"{shown} is binary ({size:,} bytes), not text")
    total = _count(file) if size <= _MOST_COUNTED else None
    if wanted.byte is not None:
        start, line = min(wanted.byte, size), 0
    else:
        start, line = _start_of(file, wanted.line), wanted.line
    if (line > 1 or wanted.byte) and start >= size:
        raise ValueError(
            f"{shown} ends before that: it has {'' if total is None else f'{total:,} lines, '}{size:,} bytes"
        )
    file.seek(start)
    raw = b"".join(iter(partial(_more, file, [_PAGE_BYTES]), b""))
    return _Page(_cut_clean(raw), start, line, wanted.lines, size, total)


def _more(file: Any, left: list[int]) -> bytes:  # noqa: ANN401  as above
    """The next bytes, until there are none left of those that are wanted."""
    piece: bytes = file.read(left[0])
    left[0] -= len(piece)
    return piece


def _cut_clean(raw: bytes) -> bytes:
    """Bytes without the beginning of a character at their end, where they are as many as a page takes."""
    if len(raw) < _PAGE_BYTES:
        return raw
    for back in range(1, 4):
        if raw[-back] & 0xC0 == 0xC0:  # noqa: PLR2004  the first byte of a character in UTF-8
            return raw[:-back]
    return raw


def _count(file: Any) -> int:  # noqa: ANN401  as above
    """The lines of a file; a last one without a line end counts."""
    file.seek(0)
    count, last = 0, b"\n"
    for piece in iter(partial(file.read, _CHUNK), b""):
        count += piece.count(b"\n")
        last = piece[-1:]
    return count + (last != b"\n")


def _start_of(file: Any, line: int) -> int:  # noqa: ANN401  as above
    """Where a line begins; the end of the file where there is none. Raises `ValueError` where that is too far off."""
    file.seek(0)
    left, at = line - 1, 0
    while left:
        piece = file.read(_CHUNK)
        if not piece:
            return at
        if at >= _MOST_SKIPPED:
            raise ValueError(f"line {line:,} is more than {_MOST_SKIPPED >> 30} GiB into the file; use byte")
        if (ends := piece.count(b"\n")) < left:
            left -= ends
            at += len(piece)
            continue
        within = -1
        for _ in range(left):
            within = piece.index(b"\n", within + 1)
        return at + within + 1
    return 0


_MOST_ENTRIES, _MOST_LOOKED_AT = 300, 200_000
"""Entries of a folder that are told, and that are looked at."""


@dataclass(frozen=True, slots=True)
class ListDir:
    """Lists a folder."""

    place: Place
    name = "list_dir"

    @property
    def schema(self) -> WireMessage:
        """What a request says of it."""
        return described(self.name, "List a folder.", {"path": {"type": "string"}})

    async def run(self, arguments: Mapping[str, Any]) -> Outcome:
        """Its folders, then its files with their sizes. Raises `ValueError` for what is no folder, or cannot be read."""
        path = arguments.get("path") or "."
        return await run_sync(partial(_listed, self.place, path), abandon_on_cancel=True)


def _listed(place: Place, path: str) -> Outcome:
    with explained(path), place.spot(path) as spot:
        folder = spot.open_folder()
        try:
            with os.scandir(folder) as entries:
                names = sorted(entry.name for entry in islice(entries, _MOST_LOOKED_AT))
            lines = [_entry(folder, name) for name in names[:_MOST_ENTRIES]]
        finally:
            os.close(folder)
    lines += (
        [f"[{len(names) - _MOST_ENTRIES:,} more of {len(names):,}; find looks for names]"]
        if names[_MOST_ENTRIES:]
        else []
    )
    return local("\n".join(lines) or "[the folder is empty]", spot.shown)


def _entry(folder: int, name: str) -> str:
    """A folder with a slash, a link with where it leads, anything else with its size or kind."""
    try:
        found = os.stat(name, dir_fd=folder, follow_symlinks=False)
        if stat.S_ISLNK(found.st_mode):
            return f"{visible(name)} -> {visible(os.readlink(name, dir_fd=folder))}"
    except OSError as error:
        return f"{visible(name)} ({error.strerror})"
    if stat.S_ISDIR(found.st_mode):
        return f"{visible(name)}/"
    return f"{visible(name)} {found.st_size:,}" if stat.S_ISREG(found.st_mode) else f"{visible(name)} (no file)"
