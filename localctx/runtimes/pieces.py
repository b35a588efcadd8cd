"""A long text in pieces that a tokenizer takes one by one, so that their tokens add up to those of the whole."""

from __future__ import annotations

import re

__all__ = ["guard", "pieces"]

_PIECE = 16_384
"""The characters of a piece. The time that llama.cpp takes for a SentencePiece vocabulary grows faster than the text (Gemma 3,
406 kB of indented JSON: 46 s at once, 1.2 s in pieces), and a request costs a few milliseconds."""

_LONGEST = 131_072
"""The characters of a piece that has no place to cut at: a few seconds at worst, and an answer of at most 4 MB."""

_PLACES = (
    re.compile(r"(?<=\S\n)(?=[^\W_])"),
    re.compile(r"(?<=[A-Za-z])(?= [A-Za-z])"),
    re.compile(r"(?<=[\w:,])(?= \S)"),
)
"""Where no token reaches across, the better kinds first: behind a single newline and before a letter or a digit; before the
single space between two words of ASCII letters; before a single space behind a word, a colon or a comma, as in JSON.

llama.cpp's pre-tokenizers (b11549) all split there but two: EXAONE MoE's keeps words together and splits at newlines, and
SuperBPE's splits at neither. The tokens of SentencePiece vocabularies have their space in front (of the 326,912 of Gemma 3
and two of Mistral's, one has not: `>`, space, `</`).
"""


def pieces(text: str) -> tuple[str, ...] | None:
    """The text in pieces, which joined give it again; None where a piece would be too long for want of a place to cut."""
    cuts = [0]
    while len(text) - cuts[-1] > _PIECE:
        cut = _place(text, cuts[-1])
        if cut is None:
            break
        cuts.append(cut)
    if len(text) - cuts[-1] > _LONGEST:
        return None
    return tuple(text[start:end] for start, end in zip(cuts, [*cuts[1:], len(text)], strict=True))


def _place(text: str, start: int) -> int | None:
    """The next place to cut at: in the second half of a piece, or the first one behind that."""
    half, whole = start + _PIECE // 2, start + _PIECE
    found = [place.search(text, half, end) for end in (whole, start + _LONGEST) for place in _PLACES]
    return next((match.start() for match in found if match), None)


def guard(piece: str) -> str:
    """What to put before a piece that is not the first, and to take off its count again.

    Vocabularies such as Llama 2's put a space before every text: here it comes before the guard, whose own tokens are known.
    """
    return "a" if piece.startswith(" ") else "a\n"
