"""Saved conversations on disk: JSON or JSON lines, told apart by content, in any format that `core.formats` knows."""

from __future__ import annotations

import codecs
import json
import stat
from dataclasses import replace
from tempfile import TemporaryFile
from typing import IO, TYPE_CHECKING

import msgspec

from localctx.core.formats import Conversation, LeftOut, Why, convert, recognise
from localctx.errors import Misuse

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

__all__ = ["MOST_BYTES", "load", "piped"]

MOST_BYTES = 256 * 2**20
"""The largest file that is read; decoded, it takes a few times its size in memory."""

_TRIED_LINES = 20
_SAMPLED_LINES = 1000
_HEAD = 64 * 2**10


def load(path: Path) -> tuple[Conversation, ...] | str:
    """The conversations in a file, or its text where it holds text, code or other JSON.

    Lines that cannot be decoded, and a last one that was torn, are counted in `left_out` of the first conversation.
    Raises `Misuse` where the file is missing, cannot be read, is too large or is no text.
    """
    try:
        _check_kind(path)
        with path.open("rb") as file:
            return _read(file, str(path))
    except FileNotFoundError as error:
        raise Misuse(f"there is no file {path}; check the path") from error
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise Misuse(f"cannot read {path} ({reason}); check its name and its permissions") from error


def piped(stream: IO[bytes]) -> tuple[Conversation, ...] | str:
    """The conversations or the text that a pipe brings, as `load` finds them in a file."""
    with TemporaryFile() as file:
        while (got := stream.read(_HEAD)) and file.tell() <= MOST_BYTES:
            file.write(got)
        if file.tell() > MOST_BYTES:
            raise Misuse(f"standard input has more than the {MOST_BYTES >> 20} MiB that are read; send less")
        file.seek(0)
        return _read(file, "standard input")


def _read(file: IO[bytes], name: str) -> tuple[Conversation, ...] | str:
    found = _document(file) or _lines(file)
    if found is not None:
        return found
    _check_text(file, name)
    file.seek(0)
    return file.read().removeprefix(codecs.BOM_UTF8).decode("utf-8", "replace")


def _check_kind(path: Path) -> None:
    found = path.stat()
    if stat.S_ISDIR(found.st_mode):
        raise Misuse(f"{path} is a folder; name a file in it")
    if not stat.S_ISREG(found.st_mode):
        raise Misuse(f"{path} is no regular file; save what it gives to a file first")
    if found.st_size > MOST_BYTES:
        raise Misuse(
            f"{path} has {found.st_size / 2**20:,.0f} MiB, more than the {MOST_BYTES >> 20} MiB that are read; "
            "split it, or keep only the lines you need"
        )


def _check_text(file: IO[bytes], path: str) -> None:
    file.seek(0)
    head = file.read(_HEAD)
    if b"\0" in head:
        raise Misuse(f"{path} is binary (byte {head.index(0):,} is zero); unpack it, or name a file of text")
    try:
        codecs.getincrementaldecoder("utf-8")().decode(head)
    except UnicodeDecodeError as error:
        raise Misuse(f"{path} is not UTF-8 text (byte {error.start:,}); unpack or convert it first") from error


# --- JSON, one document or many -----------------------------------------------------------------------------------


def _document(file: IO[bytes]) -> tuple[Conversation, ...] | None:
    """The conversations of one document; None where the file is none, or none that is known."""
    first = next(_raw_lines(file), b"")
    file.seek(0)
    if not first.startswith((b"{", b"[")):
        return None
    try:
        _decoded(first)
    except ValueError:  # a document goes on where its first line ends
        pass
    else:
        return None
    try:
        value = _decoded(file.read(MOST_BYTES).removeprefix(codecs.BOM_UTF8))
    except ValueError:
        return None
    return _converted(value)


def _lines(file: IO[bytes]) -> tuple[Conversation, ...] | None:
    """The conversations of JSON lines; None where they are none. One line alone may be a whole document."""
    file.seek(0)
    values, damaged, torn = list[object](), 0, False
    for raw in _raw_lines(file):
        try:
            values.append(_decoded(raw))
        except ValueError:
            damaged, torn = damaged + 1, not raw.endswith(b"\n")
        tried = len(values) + damaged
        if (tried == _TRIED_LINES and not values) or (tried == _SAMPLED_LINES and recognise(values) is None):
            return None
    found = (_converted(values[0]) if len(values) == 1 else None) or _converted(values)
    return found and _with_losses(found, damaged - torn, torn=torn)


def _raw_lines(file: IO[bytes]) -> Iterator[bytes]:
    """The lines that are not blank, within the bound, without the mark that some editors put before the first."""
    room = MOST_BYTES
    while line := file.readline(room):
        start = room == MOST_BYTES
        room -= len(line)
        if (kept := line.removeprefix(codecs.BOM_UTF8) if start else line).strip():
            yield kept.lstrip()


def _decoded(raw: bytes) -> object:
    """The value of JSON text. Raises `ValueError` where it is none, or nested too deeply to be read.

    What msgspec refuses is tried again: half a character, as programs leave it that cut texts, is valid JSON.
    """
    try:
        return msgspec.json.decode(raw)
    except (msgspec.DecodeError, RecursionError):
        try:
            return json.loads(raw.decode())
        except RecursionError as error:
            raise ValueError("nested too deeply") from error


def _converted(value: object) -> tuple[Conversation, ...] | None:
    form = recognise(value)
    return convert(value, form) if form else None


def _with_losses(found: tuple[Conversation, ...], damaged: int, *, torn: bool) -> tuple[Conversation, ...]:
    losses = (LeftOut(damaged, "lines", Why.DAMAGED), LeftOut(int(torn), "torn last lines", Why.DAMAGED))
    known = tuple(each for each in losses if each.count)
    return (replace(found[0], left_out=(*found[0].left_out, *known)), *found[1:])
