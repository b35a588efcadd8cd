"""What was typed before, kept for the arrow keys: a private file of JSON strings, one a line, of bounded length."""

from __future__ import annotations

import json
import os
from contextlib import suppress
from typing import TYPE_CHECKING

from prompt_toolkit.history import History

from localctx.stores.files import open_file, private_folder, replace_file

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

__all__ = ["TypedLines"]

_MOST_LINES, _MOST_BYTES, _LONGEST = 1_000, 2**20, 10_000


class TypedLines(History):
    """The history of a line editor. A file that cannot be read or written is no reason to complain: then nothing is kept."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self._path = path

    def load_history_strings(self) -> Iterator[str]:
        """What was typed, the last first; cuts the file where it has grown past its bounds."""
        raw = self._read()
        lines = [line for line in raw.splitlines() if line][-_MOST_LINES:]
        if len(raw) > _MOST_BYTES // 2 or raw.count(b"\n") > 2 * _MOST_LINES:
            with suppress(OSError):
                replace_file(self._path, (line + b"\n" for line in lines))
        return reversed([text for line in lines if (text := _text(line))])

    def store_string(self, string: str) -> None:
        """Keeps a line; one that is very long is a paste, and is not."""
        if len(string) > _LONGEST:
            return
        with suppress(OSError):
            private_folder(self._path.parent)
            with os.fdopen(open_file(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW), "wb") as file:
                file.write(json.dumps(string).encode() + b"\n")

    def _read(self) -> bytes:
        with suppress(OSError), os.fdopen(open_file(self._path), "rb") as file:
            file.seek(max(os.fstat(file.fileno()).st_size - _MOST_BYTES, 0))
            return file.read(_MOST_BYTES)
        return b""


def _text(line: bytes) -> str:
    """The text of a line; empty where it is none, as the first of a file that was cut."""
    with suppress(ValueError, RecursionError):
        text = json.loads(line)
        return text if isinstance(text, str) else ""
    return ""
