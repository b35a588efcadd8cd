"""Counting texts and conversations: each as exactly as what is at hand allows."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from localctx.core.accounting import added
from localctx.core.portions import portions, schema_text

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Sequence

    from localctx.core.accounting import Count
    from localctx.core.outgoing import WireMessage
    from localctx.ports import Counter

__all__ = ["Means", "Tally", "tally_messages", "tally_text"]


async def _ready(_texts: Iterable[str]) -> bool:
    """What counts in this process needs no preparation."""
    return True


async def _not_known(_messages: Sequence[WireMessage], _tools: Sequence[WireMessage]) -> None:
    """Nobody here knows how the model's template renders a request."""


@dataclass(frozen=True, slots=True)
class Means:
    """What there is to count with.

    `counter` counts texts once they are `prepare`d; where one cannot be, `otherwise` counts. `whole` gives a request as the
    model's template renders it, or None.
    """

    counter: Counter
    prepare: Callable[[Iterable[str]], Awaitable[bool]] = _ready
    whole: Callable[[Sequence[WireMessage], Sequence[WireMessage]], Awaitable[Count | None]] = _not_known
    otherwise: Counter | None = None

    async def counter_of(self, texts: Iterable[str]) -> Counter:
        """What counts these texts."""
        return self.counter if await self.prepare(texts) or self.otherwise is None else self.otherwise


@dataclass(frozen=True, slots=True)
class Tally:
    """A count of a conversation, what each of its messages takes of it, and what is beside them: schemas, the template."""

    whole: Count
    messages: tuple[Count, ...]
    beside: Count


async def tally_text(means: Means, text: str) -> Count:
    """The tokens of a text on its own."""
    counter = await means.counter_of([text])
    return counter.prior.count(counter.text(text), counter.how)


async def tally_messages(means: Means, messages: Sequence[WireMessage], tools: Sequence[WireMessage]) -> Tally:
    """The tokens of a request with these messages and tools, and where they go.

    Where the whole is known, what the template adds to each message is learned from it, and what no message accounts for
    is beside them.
    """
    spoken = {portion.text for message in messages for portion in portions(message)}
    counter = await means.counter_of(sorted(spoken | {schema_text(tool) for tool in tools}))
    frame, makeups = counter.frame(tools), [counter.message(message) for message in messages]
    makeup = added([frame, *makeups])
    whole = await means.whole(messages, tools)
    calibration = counter.prior.learned(makeup, whole.tokens) if whole else counter.prior
    parts = tuple(calibration.count(each, counter.how) for each in makeups)
    beside = calibration.count(frame, counter.how)
    if whole:
        beside = replace(beside, tokens=max(whole.tokens - sum(part.tokens for part in parts), 0))
    return Tally(whole or calibration.count(makeup, counter.how), parts, beside)
