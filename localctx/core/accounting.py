"""How full the window is: counts with their error bound, and the ledger that anchors them to what servers report."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

__all__ = [
    "Count",
    "Ledger",
    "Makeup",
    "Sight",
    "Totals",
    "Usage",
    "added",
    "head_and_tail",
    "plausible",
    "runs_on",
    "sight",
]


@dataclass(frozen=True, slots=True)
class Count:
    """Tokens, how far off that may be on either side, and how it was counted."""

    tokens: int
    bound: int
    how: str

    @property
    def upper(self) -> int:
        """The most that it can be."""
        return self.tokens + self.bound

    @property
    def lower(self) -> int:
        """The least that it can be."""
        return max(self.tokens - self.bound, 0)

    def plus(self, other: Count) -> Count:
        """Both together, counted as this one was."""
        return Count(self.tokens + other.tokens, self.bound + other.bound, self.how)


@dataclass(frozen=True, slots=True)
class Usage:
    """What a server reported of one reply: tokens, and seconds where it measures them. Absent is None."""

    prompt: int | None = None
    completion: int | None = None
    cached: int | None = None
    prefill_seconds: float | None = None
    decode_seconds: float | None = None


@dataclass(frozen=True, slots=True)
class Totals:
    """What all replies of a session took together, summaries too: requests, tokens, and seconds, as far as servers reported them.

    `cached` is of the prompts whose cached part was said, which are `cached_of` tokens together.
    """

    requests: int = 0
    prompt: int = 0
    cached: int = 0
    cached_of: int = 0
    completion: int = 0
    prefill_seconds: float = 0.0
    decode_seconds: float = 0.0

    def plus(self, usage: Usage) -> Totals:
        """These and one reply more."""
        return Totals(
            self.requests + 1,
            self.prompt + (usage.prompt or 0),
            self.cached + (usage.cached or 0),
            self.cached_of + (0 if usage.cached is None else usage.prompt or 0),
            self.completion + (usage.completion or 0),
            self.prefill_seconds + (usage.prefill_seconds or 0.0),
            self.decode_seconds + (usage.decode_seconds or 0.0),
        )


Makeup: TypeAlias = tuple[float, ...]
"""How many units of each class of a counter something is made of. Makeups of parts add up to that of the whole."""


def added(makeups: Iterable[Makeup]) -> Makeup:
    """The makeup of several things together; empty where there are none."""
    total: list[float] = []
    for makeup in makeups:
        total = [a + b for a, b in zip(total, makeup, strict=True)] if total else list(makeup)
    return tuple(total)


@dataclass(frozen=True, slots=True)
class Ledger:
    """The last prompt that a server measured, and the makeup of what was added since; `through` is the last `seq` in it.

    A commit of the engine rewrites the history; what was measured before is void, so the ledger starts empty again.
    """

    measured: int = 0
    through: int = -1
    new: Makeup = ()

    def plus(self, makeup: Makeup, through: int) -> Ledger:
        """The ledger with something more in it, up to line `through`."""
        return Ledger(self.measured, max(through, self.through), added(each for each in (self.new, makeup) if each))


_EXACT_SHARE, _EXACT_FEW = 0.97, 8
"""The share of an exact count, or the tokens below it, under which a report is of another prompt: a server's count and its
chat may differ a little (measured on vLLM and SGLang)."""

_NEAR = 2
"""How far from a cut point, or below a bound, a report may be: servers keep a first token or not."""


def plausible(expected: Count, reported: int) -> bool:
    """Whether a report can be of the whole prompt: a stale one, one of uncached tokens only or a cut one is too low."""
    exact = min(expected.tokens * _EXACT_SHARE, expected.tokens - _EXACT_FEW)
    least = expected.lower - _NEAR if expected.bound else exact
    return reported > 0 and reported >= least


_LEAST_CUT = 128
"""What is left of a prompt that is cut to half of 256 tokens; no server has a smaller window."""


class Sight(Enum):
    """What a report says of how much of a prompt the model has seen."""

    WHOLE = "whole"
    DOUBTFUL = "doubtful"
    CUT = "cut"


def sight(expected: Count, reported: int, cut_points: Iterable[int], before: int = 0) -> Sight:
    """How much of a prompt the model must have seen by the server's report.

    It was cut where less was reported than sent, and that sits on one of the server's `cut_points`, or is what was reported
    too low the time `before` already. Anything else that is too low may be of another prompt, or leave out what was cached.
    """
    if reported <= 0 or plausible(expected, reported):
        return Sight.WHOLE
    known = (*cut_points, before) if reported >= _LEAST_CUT else ()
    return Sight.CUT if any(abs(reported - cut) <= _NEAR for cut in known) else Sight.DOUBTFUL


def head(text: str, tokens: int, size: Callable[[str], int]) -> str:
    """The beginning of a text that takes at most `tokens` by `size`, one character where not even that does."""
    while len(text) > 1 and (needed := size(text)) > tokens:
        text = text[: max(min(len(text) * tokens // needed, len(text) - 1), 1)]
    return text


def head_and_tail(text: str, tokens: int, size: Callable[[str], int], note: str) -> str:
    """The text, or its head and tail around `note`, in at most about `tokens` by `size`."""
    if len(text) > (most := _LONGEST_TOKEN * max(tokens, 1)):
        text = _cut(text, most, "\n")  # of a text that is much longer, no more is looked at
    elif size(text) <= tokens:
        return text
    room = min(max(len(text) * max(tokens - size(note), 2) // max(size(text), 1), 2), len(text))
    while room > 2 and size(_cut(text, room, note)) > tokens:  # noqa: PLR2004  two characters are the least cut
        room = max(room * 9 // 10, 2)
    return _cut(text, room, note)


_LONGEST_TOKEN = 64
"""Characters that no token has on the average of a text."""


def runs_on(deltas: int, characters: int, most: int) -> bool:
    """Whether a reply has clearly passed the `most` tokens that it may have: its server does not keep to them."""
    return deltas > 2 * most + _SLACK or characters > _LONGEST_TOKEN * most + _LONGEST_TOKEN * _SLACK


_SLACK = 64


def _cut(text: str, room: int, note: str) -> str:
    head = (room + 1) // 2
    return f"{text[:head]}{note}{text[len(text) - (room - head) :]}"


def figure(tokens: int) -> str:
    """A number of tokens, short: 999, 18.0k, 1.5M."""
    if tokens < _THOUSAND:
        return str(tokens)
    return f"{tokens / 1e3:.1f}k" if tokens < _MILLION else f"{tokens / 1e6:.1f}M"


_THOUSAND, _MILLION = 1_000, 999_950
"""From the second on thousands would be rounded to 1000.0k."""
