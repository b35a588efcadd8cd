"""Measuring a window instead of believing it: with few requests of one output token, a refusal before anything else."""

from __future__ import annotations

from contextlib import aclosing
from dataclasses import dataclass
from time import monotonic
from typing import TYPE_CHECKING

import anyio

from localctx.core.events import Notice
from localctx.core.window import ASSUMED_TOKENS, Reading, Source
from localctx.errors import LocalctxError, PromptRefused
from localctx.ports import Delta, Finished, Request

if TYPE_CHECKING:
    from collections.abc import Callable

    from localctx.core.events import Event
    from localctx.core.outgoing import WireMessage
    from localctx.core.window import EffectiveWindow
    from localctx.ports import Runtime

__all__ = ["Verdict", "verify"]

_WORD = " go"
_BEYOND = 64
_SMALL = 128
_MOST_STEPS = 14
_ANSWER_TOKENS = 48
_CANARIES = {"beginning": "Kestrel-4417", "middle": "Marmot-2093", "end": "Otter-7758"}


@dataclass(frozen=True, slots=True)
class Verdict:
    """What the measuring found: a reading, or None where it could not tell; what was done; whether time ran out."""

    reading: Reading | None
    text: str
    partial: bool = False


@dataclass(frozen=True, slots=True)
class _Tried:
    """One request of `sent` tokens: refused (with the window that the refusal states), or taken as `reported` tokens."""

    sent: int
    refused: bool
    limit: int | None = None
    reported: int | None = None


class _OutOfTime(LocalctxError):
    pass


async def verify(
    runtime: Runtime, window: EffectiveWindow, emit: Callable[[Event], None], *, seconds: float = 60.0
) -> Verdict:
    """Finds the real window of a server by experiment.

    A prompt longer than what is claimed is sent first: a server that refuses it does so at once and says its limit; one
    that cuts it in silence reports what it kept. Then the edge is tried, if the time allows it. After `seconds` what
    was learnt until then is returned as partial.
    """
    claimed = window.tokens or ASSUMED_TOKENS
    emit(
        Notice(
            "verify-cost",
            f"verifying {claimed:,} tokens: a few requests of one output token, the largest of about {claimed + _BEYOND:,}; "
            f"at most {seconds:g} s",
        )
    )
    bench = _Bench(runtime, monotonic() + seconds)
    try:
        return await bench.run(claimed)
    except _OutOfTime:
        return bench.partial(seconds)


class _Bench:
    """The requests of one measuring, and what they have taught so far."""

    def __init__(self, runtime: Runtime, until: float) -> None:
        self._runtime, self._until = runtime, until
        self._base, self._per_word = 0, 1.0
        self._taken = 0
        self._speed = 0.0

    async def run(self, claimed: int) -> Verdict:
        await self._learn_sizes()
        over = await self._try(claimed + _BEYOND)
        if not over.refused:
            return await self._accepted(over, claimed)
        if over.limit is not None:
            return await self._stated(over, over.limit)
        return await self._searched(claimed)

    def partial(self, seconds: float) -> Verdict:
        """What is known when the time is up: no more than the longest prompt that was taken whole."""
        text = f"{seconds:g} s were not enough; a prompt of {self._taken:,} tokens was taken whole"
        return Verdict(None, text, partial=True)

    async def _learn_sizes(self) -> None:
        """How many tokens an empty prompt is, and a word more: from what the server reports of two small ones."""
        small = (await self._send(0)).reported or 0
        started = monotonic()
        large = (await self._send(_SMALL)).reported or 0
        if small <= 0 or large <= small:
            raise LocalctxError(
                f"{self._runtime.url} does not report prompt tokens that can be trusted ({small}, then {large} for "
                f"{_SMALL} words more): its window cannot be measured"
            )
        self._base, self._per_word = small, (large - small) / _SMALL
        self._speed = (large - small) / max(monotonic() - started, 1e-6)

    async def _try(self, tokens: int) -> _Tried:
        return await self._send(max(round((tokens - self._base) / self._per_word), 0))

    async def _send(self, words: int) -> _Tried:
        messages: list[WireMessage] = [{"role": "user", "content": "Go" + _WORD * words}]
        counted = await self._runtime.count(messages)
        sent = counted.tokens if counted else round(self._base + self._per_word * words)
        left = self._until - monotonic()
        with anyio.move_on_after(max(left, 0)):
            try:
                async with aclosing(self._runtime.chat(Request(messages, 1, temperature=0.0))) as pieces:
                    end = [piece async for piece in pieces if isinstance(piece, Finished)]
                reported = end[0].usage.prompt
                self._taken = max(self._taken, reported or 0)
                return _Tried(sent, refused=False, reported=reported)
            except PromptRefused as refused:
                return _Tried(sent, refused=True, limit=refused.limit)
        raise _OutOfTime("the time is up")

    async def _accepted(self, over: _Tried, claimed: int) -> Verdict:
        kept = over.reported
        if kept is None:
            return Verdict(None, "it takes more than it claims and reports no usage: its window cannot be measured")
        if kept < over.sent * 0.97:
            text = f"it cuts in silence: {kept:,} of {over.sent:,} tokens arrived, {claimed:,} are claimed"
            return Verdict(Reading(Source.MEASURED, kept, "--verify: what was kept of a longer prompt", text), text)
        seen = await self._canaries(over.sent)
        text = (
            f"it took {kept:,} tokens, more than the {claimed:,} that it claims; of the code words at the beginning, in the "
            f"middle and at the end of such a prompt it gave back: {', '.join(seen) or 'none'}"
        )
        return Verdict(None, text, partial=True)

    async def _canaries(self, tokens: int) -> list[str]:
        """Which of three code words in a long prompt come back: what a server drops, its model cannot repeat."""
        half = _WORD * max(round((tokens - self._base) / self._per_word / 2) - _BEYOND, 0)
        first, middle, last = _CANARIES.values()
        text = f"{first}.{half} {middle}.{half} {last}. Repeat the three code words that stand in this text."
        said = ""
        with anyio.move_on_after(max(self._until - monotonic(), 0)):
            request = Request([{"role": "user", "content": text}], _ANSWER_TOKENS, temperature=0.0)
            async with aclosing(self._runtime.chat(request)) as pieces:
                async for piece in pieces:
                    said += piece.text if isinstance(piece, Delta) else ""
        return [place for place, word in _CANARIES.items() if word.lower() in said.lower()]

    async def _stated(self, over: _Tried, limit: int) -> Verdict:
        """A refusal that states the limit; its edge is tried where the prefill fits into the time."""
        where = f"--verify: the refusal of {over.sent:,} tokens"
        fits = limit / max(self._speed, 1e-6) < (self._until - monotonic()) / 2
        if not fits:
            return Verdict(
                Reading(Source.MEASURED, limit, where), f"it refuses {over.sent:,} tokens and states {limit:,}"
            )
        longest = await self._edge(limit)
        if longest is None:
            return Verdict(Reading(Source.MEASURED, limit, where), f"it states {limit:,}; the edge could not be hit")
        text = f"it takes {longest:,} tokens and refuses {longest + 1:,}"
        return Verdict(Reading(Source.MEASURED, limit, where, text), text)

    async def _edge(self, limit: int) -> int | None:
        """The longest prompt that is taken, next to a stated limit; None where no prompt of that very size can be made."""
        for longest in range(limit - 1, limit - 8, -1):
            tried = await self._try(longest)
            if tried.sent != longest:
                return None
            if not tried.refused:
                beyond = await self._try(longest + 1)
                return longest if beyond.refused and beyond.sent == longest + 1 else None
        return None

    async def _searched(self, claimed: int) -> Verdict:
        """A refusal without a number: halving between what is taken and what is refused."""
        taken, refused = self._taken, claimed + _BEYOND
        for _ in range(_MOST_STEPS):
            if refused - taken <= 1:
                break
            tried = await self._try((taken + refused) // 2)
            taken, refused = (taken, tried.sent) if tried.refused else (max(tried.sent, taken + 1), refused)
        text = f"it takes {taken:,} tokens and refuses {refused:,}"
        return Verdict(
            Reading(Source.MEASURED, taken + 1, "--verify: by halving", text), text, partial=refused - taken > 1
        )
