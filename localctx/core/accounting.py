"""How full the window is: counts with their error bound, and the ledger that anchors them to what servers report."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["Count", "Ledger", "Usage", "head_and_tail", "truncated"]


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


@dataclass(frozen=True, slots=True)
class Usage:
    """What a server reported of one reply: tokens, and seconds where it measures them. Absent is None."""

    prompt: int | None = None
    completion: int | None = None
    cached: int | None = None
    prefill_seconds: float | None = None
    decode_seconds: float | None = None


@dataclass(frozen=True, slots=True)
class Ledger:
    """The last prompt that a server measured and the last `seq` in it. Empty, it judges nothing.

    A commit of the engine rewrites the history; usage from before it is void, so the ledger starts empty again.
    """

    tokens: int = 0
    through: int = -1

    def measured(self, usage: Usage, through: int) -> Ledger:
        """The ledger after a reply; a report without a positive prompt teaches nothing."""
        if usage.prompt is None or usage.prompt <= 0:
            return self
        return Ledger(usage.prompt, through)

    def count(self, since: Count) -> Count:
        """The prompt now: the measured part, and what is new `since` then."""
        return Count(self.tokens + since.tokens, since.bound, f"last usage and {since.how} of what is new")


_FAR_BELOW = 0.97
"""A report this share under the expected lower bound means that the server dropped context, not that we miscounted."""

_KEPT = 4
"""Tokens at the head of a prompt that a server keeps when it cuts to half (Ollama's `num_keep`)."""

_NEAR = 2


def truncated(expected: Count, reported: int, window: int) -> bool:
    """Whether a server must have cut a prompt in silence: it reports far less than was sent.

    An exact count is proof. An estimate may be wrong by more than it says, so it needs a report that sits where servers
    cut: at the window, or at the half of it that stays behind the kept head.
    """
    if not 0 < reported < expected.lower * _FAR_BELOW:
        return False
    cuts = (window, window - (window - _KEPT) // 2)
    return expected.bound == 0 or any(abs(reported - cut) <= _NEAR for cut in cuts)


def head_and_tail(text: str, tokens: int, size: Callable[[str], int], note: str) -> str:
    """The text, or its head and tail around `note`, in at most about `tokens` by `size`."""
    if size(text) <= tokens:
        return text
    room = max(len(text) * max(tokens - size(note), 2) // max(size(text), 1), 2)
    while room > 2 and size(_cut(text, room, note)) > tokens:  # noqa: PLR2004  two characters are the least cut
        room = max(room * 9 // 10, 2)
    return _cut(text, room, note)


def _cut(text: str, room: int, note: str) -> str:
    head = (room + 1) // 2
    return f"{text[:head]}{note}{text[len(text) - (room - head) :]}"
