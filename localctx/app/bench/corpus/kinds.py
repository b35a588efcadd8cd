"""The kinds of text that there are, what is promised of an estimate of them, and samples of them."""

from __future__ import annotations

from functools import partial
from random import Random
from typing import TYPE_CHECKING

from localctx.app.bench.corpus.data import base64_piece, csv_piece, hex_piece, json_piece, numbers_piece
from localctx.app.bench.corpus.diffs import diff_piece
from localctx.app.bench.corpus.grammar import grammar
from localctx.app.bench.corpus.passages import LANGUAGES, prose_piece

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

__all__ = ["GROUPS", "KINDS", "sample"]

_TEMPLATES = (
    "code-c",
    "code-javascript",
    "code-python",
    "code-rust",
    "html",
    "identifiers",
    "log",
    "markdown",
    "minified",
    "paths",
    "shell",
    "sql",
    "whitespace",
    "yaml",
)


def _template_piece(kind: str, rng: Random) -> str:
    return grammar("words", kind).expand("piece", rng) + "\n"


_PIECES: Mapping[str, Callable[[Random], str]] = {
    **{language: partial(prose_piece, language) for language in LANGUAGES},
    **{kind: partial(_template_piece, kind) for kind in _TEMPLATES},
    "base64": base64_piece,
    "csv": csv_piece,
    "diff": diff_piece,
    "hex": hex_piece,
    "json": json_piece,
    "numbers": numbers_piece,
}

KINDS = tuple(sorted(_PIECES))
"""Every kind of text: the languages by name, `emoji`, `symbols`, and what programs and programmers write."""

GROUPS: Mapping[str, tuple[str, ...]] = {
    "english": ("english",),
    "code": ("code-c", "code-javascript", "code-python", "code-rust", "diff", "html", "shell", "sql"),
    "json": ("json",),
    "hex": ("hex",),
    "logs": ("log",),
    "other scripts": (
        "amharic",
        "arabic",
        "armenian",
        "bengali",
        "chinese-simplified",
        "chinese-traditional",
        "georgian",
        "greek",
        "hebrew",
        "hindi",
        "japanese",
        "korean",
        "persian",
        "russian",
        "tamil",
        "thai",
        "ukrainian",
    ),
    "other latin": (
        "czech",
        "french",
        "german",
        "indonesian",
        "polish",
        "portuguese",
        "spanish",
        "turkish",
        "vietnamese",
    ),
    "signs": ("emoji", "symbols"),
    "other formats": (
        "base64",
        "csv",
        "identifiers",
        "markdown",
        "minified",
        "numbers",
        "paths",
        "whitespace",
        "yaml",
    ),
}
"""The kinds by what is promised of an estimate of them; each kind is in one group."""


def sample(kind: str, size: int, seed: int) -> str:
    """A text of `size` characters, cut off wherever that falls; the same arguments give the same text.

    Raises:
        KeyError: there is no such kind.
    """
    piece = _PIECES[kind]
    rng = Random(f"{kind} {seed}")  # noqa: S311  chance that can be repeated, nothing secret
    parts, length = list[str](), 0
    while length < size:
        parts.append(piece(rng))
        length += len(parts[-1])
    return "".join(parts)[:size]
