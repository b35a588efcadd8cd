"""Tokens of a text without a tokenizer: a class of characters at a time, with an honest error bound."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from localctx.core.calibration import Calibration, Rate
from localctx.tokenizers.counting import RequestCounter
from localctx.tokenizers.seed import SeedRatio

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from localctx.core.accounting import Makeup

__all__ = ["RATES", "ClassEstimate", "SeedCounter", "SeedRatio", "classes"]

_CLASSES = re.compile(
    r"(?P<hex>(?=[A-Fa-f]{0,40}[0-9])(?=[0-9]{0,40}[A-Fa-f])[0-9A-Fa-f]{2,})"
    r"|(?P<dense>(?=[A-Za-z+/]{0,40}[0-9+])[A-Za-z0-9+/=]{24,})"
    r"|(?P<accented>[A-Za-z]{0,20}[\u00c0-\u024f\u1e00-\u1eff][A-Za-z\u00c0-\u024f\u1e00-\u1eff]*)"
    r"|(?P<word>[A-Z]*[a-z]+|[A-Z]+)|(?P<gap> (?=[0-9]))|(?P<digit>[0-9]+)|(?P<line>[^\S\n]*\n\s*)|(?P<space>\s+)"
    r"|(?P<mark>[!-/:-@\[-`{-~]+)|(?P<greek>[\u0370-\u03ff\u1f00-\u1fff]+)|(?P<cyrillic>[\u0400-\u052f]+)"
    r"|(?P<semitic>[\u0590-\u06ff\u0750-\u077f]+)|(?P<indic>[\u0900-\u0dff]+)|(?P<thai>[\u0e00-\u0fff]+)"
    r"|(?P<rare>[\u0530-\u058f\u1000-\u10ff\u1200-\u13ff\u1780-\u17ff]+)|(?P<hangul>[\u1100-\u11ff\uac00-\ud7ff]+)"
    r"|(?P<kana>[\u3040-\u30ff]+)|(?P<han>[\u2e80-\u303f\u3400-\u9fff\uf900-\ufaff\uff00-\uffef]+)"
    r"|(?P<symbol>[\u0080-\u00bf\u2000-\u2bff]+)|(?P<other>[^\x00-\x7f]+)|(?P<control>.)"
)

_SHARED = 0.8
"""The share of a spread that goes with all others: a vocabulary that is dear for one kind of text is so for most."""

_LONG = 6
"""Letters that a common word has at most; each one more costs a share of a token."""

RATES = {
    "word": Rate(1.0, 0.27, 0.14, _SHARED),
    "long": Rate(0.2, 0.16, 0.14, _SHARED),
    "caps": Rate(0.44, 0.27, 0.08, _SHARED),
    "foreign": Rate(0.35, 0.22, 0.11, _SHARED),
    "accented": Rate(0.95, 0.7, 0.21, _SHARED),
    "gap": Rate(1.05, 0.32, 0.07, _SHARED),
    "digit": Rate(0.9, 0.7, 0.11, _SHARED),
    "number": Rate(0.35, 0.54, 0.14, 0.0),
    "hex": Rate(0.81, 0.48, 0.08, _SHARED),
    "dense": Rate(0.78, 0.24, 0.08, _SHARED),
    "line": Rate(1.5, 0.86, 0.42, 0.0),
    "space": Rate(1.1, 0.65, 0.42, 0.0),
    "mark": Rate(0.17, 0.14, 0.11, _SHARED),
    "marks": Rate(0.96, 0.54, 0.17, _SHARED),
    "greek": Rate(1.0, 0.81, 0.08, _SHARED),
    "cyrillic": Rate(0.9, 0.81, 0.11, _SHARED),
    "semitic": Rate(1.24, 1.08, 0.14, _SHARED),
    "indic": Rate(2.05, 2.05, 0.14, _SHARED),
    "thai": Rate(1.9, 1.78, 0.14, _SHARED),
    "rare": Rate(2.85, 2.75, 0.21, _SHARED),
    "hangul": Rate(2.75, 2.43, 0.14, _SHARED),
    "kana": Rate(1.7, 1.62, 0.11, _SHARED),
    "han": Rate(1.92, 1.4, 0.14, _SHARED),
    "symbol": Rate(1.35, 1.08, 0.42, _SHARED),
    "other": Rate(3.5, 3.02, 0.7, _SHARED),
    "control": Rate(1.0, 1.08, 0.28, _SHARED),
}
"""Tokens a unit: of characters, but for words (their number, and their letters past `_LONG`), numbers and lines (their
number), `gap` (a space before a number) and marks (their number and, as `marks`, that of their runs). Measured on the
vocabularies of SmolLM2, Gemma 3, o200k and cl100k; the mean is near the dearest of them and the spread reaches the
cheapest, so that a prompt is rather taken for too long. They differ least on English and code, and most on other scripts."""

_ENGLISH = frozenset(  # a word a line would be no easier to read
    [
        "the",
        "of",
        "and",
        "to",
        "a",
        "in",
        "is",
        "that",
        "for",
        "it",
        "as",
        "was",
        "with",
        "be",
        "by",
        "on",
        "not",
        "are",
        "this",
        "or",
        "at",
        "from",
        "you",
        "have",
        "an",
        "they",
        "which",
        "if",
        "but",
        "we",
        "all",
        "can",
        "has",
        "will",
        "one",
        "your",
        "there",
        "when",
        "no",
        "more",
        "so",
        "what",
    ]
)
"""Words that no English prose does without."""


def classes(text: str) -> Makeup:
    """The units of each class in a text."""
    found, stretch = dict.fromkeys(RATES, 0.0), _Stretch()
    for match in _CLASSES.finditer(text):
        kind, length = match.lastgroup or "control", match.end() - match.start()
        match kind:
            case "word":
                stretch.add(match[0], length)
                if stretch.words == _STRETCH:
                    stretch.close(found)
                    stretch = _Stretch()
            case "line":
                found["line"] += 1
            case "space":
                found["space"] += length > 1
            case "mark" | "digit":
                found[kind] += length
                found[_RUNS[kind]] += 1
                stretch.breaks += 1
            case _:
                found[kind] += length
    stretch.close(found)
    return tuple(found.values())


_RUNS = {"mark": "marks", "digit": "number"}

_STRETCH = 40
"""Words after which it is decided anew what language they are."""


class _Stretch:
    """Words in a row, of which it is not known yet whether they are English, or names in code, or another language."""

    def __init__(self) -> None:
        self.words = self.letters = self.beyond = self.caps = self.shouted = self.english = self.breaks = 0

    def add(self, word: str, length: int) -> None:
        self.words += 1
        self.letters += length
        if length > 1 and word.isupper():
            self.caps += length
            self.shouted += 1
            return
        self.beyond += max(length - _LONG, 0)
        self.english += word.lower() in _ENGLISH

    def close(self, found: dict[str, float]) -> None:
        """Counts the words as what they are. Prose has few marks and numbers, and English prose its small words."""
        prose = self.words >= _FEW_WORDS and self.breaks < self.words * _MOST_BREAKS
        if prose and self.english < self.words * _LEAST_ENGLISH:
            found["foreign"] += self.letters
            return
        found["word"] += self.words - self.shouted
        found["long"] += self.beyond
        found["caps"] += self.caps


_FEW_WORDS, _LEAST_ENGLISH, _MOST_BREAKS = 8, 0.12, 0.4


class ClassEstimate(RequestCounter):
    """The estimate as the engine asks for it."""

    def __init__(self) -> None:
        super().__init__("estimate", classes, tuple(RATES.values()))


class SeedCounter:
    """The seed's counter as the engine asks for one, so that the two can be compared; reports teach it nothing here."""

    how = "seed ratio"
    prior = Calibration.of((Rate(1.0, 0.0, 0.0),))

    def __init__(self, ratio: SeedRatio | None = None) -> None:
        self._ratio = ratio or SeedRatio()

    def size(self, text: str) -> int:
        """The tokens of a text by its characters."""
        return self._ratio.size(text)

    def text(self, text: str) -> Makeup:
        """The tokens of a text."""
        return (float(self._ratio.size(text)),)

    def message(self, message: Mapping[str, object]) -> Makeup:
        """The tokens of a message."""
        return (float(self._ratio.message(message)),)

    def frame(self, tools: Sequence[Mapping[str, object]] = ()) -> Makeup:  # noqa: ARG002  the seed leaves schemas out
        """Nothing: the seed does not count what is beside the messages before a server has reported it."""
        return (0.0,)
