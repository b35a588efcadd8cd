"""Prose of many languages: runs of sentences from the passages in `prose/`.

A file holds one sentence a line, and an empty line between passages. All of it was written for this corpus.
"""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from random import Random

__all__ = ["LANGUAGES", "prose_piece"]

_PROSE = Path(__file__).parent / "prose"

LANGUAGES = tuple(sorted(path.stem for path in _PROSE.glob("*.txt")))
"""The languages of the corpus, and with them `emoji` (a chat) and `symbols` (mathematics and box drawing)."""

_UNSPACED = frozenset({"chinese-simplified", "chinese-traditional", "japanese"})
"""Written without a space between sentences."""

_LINED = frozenset({"emoji", "symbols"})
"""Made of lines, not of paragraphs."""


@lru_cache
def _passages(language: str) -> tuple[tuple[str, ...], ...]:
    text = (_PROSE / f"{language}.txt").read_text(encoding="utf-8")
    return tuple(tuple(passage.splitlines()) for passage in text.strip("\n").split("\n\n"))


def prose_piece(language: str, rng: Random) -> str:
    """A paragraph: from two to six sentences that follow each other, of a passage chosen by its length."""
    passages = _passages(language)
    passage = rng.choices(passages, [len(passage) for passage in passages])[0]
    start = rng.randrange(len(passage))
    run = passage[start : start + rng.randint(2, 6)]
    return _joint(language, rng).join(run) + "\n\n"


def _joint(language: str, rng: Random) -> str:
    if language in _LINED or rng.random() < 0.2:  # noqa: PLR2004  now and then a sentence a line, as in chats and notes
        return "\n"
    return "" if language in _UNSPACED else " "
