"""Files in a message: `@path` words become what the files hold."""

from __future__ import annotations

import base64
import os
import re
from dataclasses import dataclass
from pathlib import Path

from localctx.errors import Misuse
from localctx.stores.files import open_file

__all__ = ["Attached", "attach", "image"]

_MOST_TEXT = 2**20
"""The bytes of a text file: some 250,000 tokens, more than nearly any local window holds."""

_MOST_IMAGE = 20 * 10**6
"""The bytes of an image, which travels in the request at four thirds of its size."""

_UNREADABLE = 0.1
"""The share of characters that are no UTF-8 from which on a file is taken for binary."""

_KINDS = {
    "png": re.compile(rb"\x89PNG\r\n\x1a\n"),
    "jpeg": re.compile(rb"\xff\xd8\xff"),
    "gif": re.compile(rb"GIF8[79]a"),
    "webp": re.compile(rb"RIFF....WEBP", re.DOTALL),
}

_WORD = re.compile(r'(?<!\S)@(?:"([^"\n]+)"|([^\s"]\S*))')


@dataclass(frozen=True, slots=True)
class Attached:
    """A message with the text files that it names behind it, its images as data URLs, and a line on each `@` word."""

    text: str
    images: tuple[str, ...] = ()
    told: tuple[str, ...] = ()


def attach(line: str, folder: Path | None = None) -> Attached:
    """A line whose `@path` or `@"path with spaces"` words are files, relative to a folder (the working one).

    A word that names no file stays as it is, and is told of: `@property` is one. Raises `Misuse` for a file that cannot
    be attached.
    """
    text, images, told = [line], list[str](), list[str]()
    for name in dict.fromkeys(quoted or bare for quoted, bare in _WORD.findall(line)):
        found = _found(name, folder or Path.cwd())
        if found is None:
            told.append(f"no file is called {name}: @{name} is sent as it is written")
            continue
        called, path = found
        raw = _read(path)
        if kind := _kind(raw):
            images.append(_url(kind, raw))
            told.append(f"attached {path.name}, an image of {len(raw):,} bytes")
        else:
            held = _text(path, raw)
            text.append(_fenced(called, held))
            told.append(f"attached {path.name}, {len(held):,} characters")
    return Attached("\n\n".join(text), tuple(images), tuple(told))


def image(path: Path) -> str:
    """An image file as a data URL. Raises `Misuse` for a file that is none, is larger than 20 MB, or cannot be read."""
    raw = _read(path)
    if kind := _kind(raw):
        return _url(kind, raw)
    raise Misuse(f"{path} is no image that models take; pass a PNG, JPEG, GIF or WebP file")


def _found(name: str, folder: Path) -> tuple[str, Path] | None:
    """What a word calls a file, and the file; what a sentence puts behind it is not of its name."""
    for each in dict.fromkeys((name, name.rstrip(".,;:!?)]}'"))):
        path = folder / os.path.expanduser(each)  # noqa: PTH111  Path.expanduser raises where there is no such user
        try:
            if each and path.exists():
                return each, path
        except (OSError, ValueError):  # too long for a name, or no name at all
            continue
    return None


def _read(path: Path) -> bytes:
    if path.is_dir():
        raise Misuse(f"{path} is a folder; attach the files in it that matter, each by its name")
    try:
        with os.fdopen(open_file(path), "rb") as file:
            raw = file.read(_MOST_IMAGE + 1)
    except OSError as error:
        raise Misuse(f"cannot attach {path} ({error.strerror or error}); name a file that you can read") from error
    most = _MOST_IMAGE if _kind(raw) else _MOST_TEXT
    if len(raw) > most:
        size = f"{path.stat().st_size:,} bytes"
        raise Misuse(f"{path} has {size}, and at most {most:,} of its kind can be attached; attach a part of it")
    return raw


def _kind(raw: bytes) -> str | None:
    return next((kind for kind, magic in _KINDS.items() if magic.match(raw)), None)


def _url(kind: str, raw: bytes) -> str:
    return f"data:image/{kind};base64,{base64.b64encode(raw).decode('ascii')}"


def _text(path: Path, raw: bytes) -> str:
    text = raw.decode("utf-8-sig", "replace")
    if "\0" in text or text.count("\ufffd") > _UNREADABLE * len(text):
        raise Misuse(f"{path} is binary, which no model reads as text; attach text, or a PNG, JPEG, GIF or WebP image")
    return text


def _fenced(name: str, text: str) -> str:
    """A file for the model: its path, and its text between fences that are longer than any in it."""
    ticks = "`" * max(3, 1 + max(map(len, re.findall(r"`+", text)), default=0))
    return f"{name}:\n{ticks}{Path(name).suffix[1:]}\n{text.rstrip()}\n{ticks}"
