"""How far a server's word is gone by: the window that it states, and how much of each prompt it says that it saw."""

from __future__ import annotations

from dataclasses import replace
from itertools import takewhile
from typing import TYPE_CHECKING

from localctx.core.accounting import Sight, plausible, sight
from localctx.core.events import Notice, Truncated, UsageReported
from localctx.core.sizes import unseen
from localctx.core.window import Budget, EffectiveWindow, ModelReport, Reading, Source, assume, reread

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from localctx.app.compaction import Engine
    from localctx.core.accounting import Count
    from localctx.core.events import Event
    from localctx.core.outgoing import WireMessage
    from localctx.errors import PromptRefused
    from localctx.ports import Finished, Request, Runtime

__all__ = ["Trust"]

_FULL_ENOUGH = 0.5
"""The share of the window from which a refusal without a number is taken to be about the length."""

_LIKELY = 0.5
"""How often a server must have found a prefix for it to be expected to again."""

_REFUSED_SHARE = 0.7
"""What is assumed of a prompt that was refused without a number (seed)."""


class Trust:
    """Judges what one server says, and keeps the budget of `engine` to what may be believed of it.

    `longest` is the longest reply that the user wants, in tokens; None leaves it open.
    """

    def __init__(
        self,
        runtime: Runtime,
        report: ModelReport,
        engine: Engine,
        emit: Callable[[Event], None],
        longest: int | None = None,
    ) -> None:
        self.runtime, self.engine, self._emit, self._longest = runtime, engine, emit, longest
        self.model, self._stated = report.id, report.window.tokens
        self.last_used = self._whole = self._low = 0
        self._doubted = self._guessed = False
        self._before: Sequence[WireMessage] = ()
        self._held = 0
        """The tokens of the last request and its reply, as the server may have them in its cache; 0: unknown."""
        self.window: EffectiveWindow = assume(report.window)
        self._go_by(self.window)

    def _go_by(self, window: EffectiveWindow) -> None:
        self.window = window
        fresh = Budget.of(window.tokens or 0, max_prompt=window.max_prompt, output_limit=self._longest)
        self.engine.budget = replace(fresh, tail=self.engine.budget.tail)

    async def look_again(self) -> None:
        """Asks the server for its window again: it may have been restarted, or have loaded the model anew."""
        report = await self.runtime.probe()
        fresh = next((model.window for model in report.models if model.id == self.model), None)
        if fresh is None or fresh.tokens is None:
            return
        if fresh.tokens == self._stated and self._guessed:
            self._guessed = False
            self._go_by(fresh)
            return
        if fresh.tokens == self._stated:
            self.window = fresh if self.window.tokens == fresh.tokens else self.window  # perhaps confirmed by now
            return
        before, self._stated = self.window.tokens, fresh.tokens
        self._go_by(fresh)
        self.engine.restart()
        self._whole = 0
        self._emit(Notice("window-changed", f"the window was {before:,} tokens and is {fresh.tokens:,} now"))

    def believe(self, refused: PromptRefused, used: Count) -> bool:
        """Goes by the limit that a refusal states; False where it states none, and the prompt was far from filling the window.

        Without a limit it goes by a share of what was refused, or by what was taken whole, until the next turn.
        """
        if not refused.limit and used.upper < self.engine.budget.window * _FULL_ENOUGH:
            return False
        self._guessed = not refused.limit
        guess = max(int(used.tokens * _REFUSED_SHARE), self._whole)
        why = f"{_REFUSED_SHARE:.0%} of {used.tokens:,} tokens, which {self.runtime.url} refused without a number"
        self._adopt(refused.limit or guess, str(refused) if refused.limit else why)
        return True

    def _adopt(self, limit: int, why: str) -> None:
        """Goes by what the server has shown, where that is less than what it said."""
        self._go_by(reread(self.window, Reading(Source.MEASURED, limit, why)))

    async def judge(
        self, request: Request, expected: Count, end: Finished, through: int, beside: int, *, again: bool
    ) -> Sight:
        """How much of the prompt the model saw, as far as the report tells; only a report of all of it teaches anything.

        The history that was sent ends at line `through`; `beside` is what of the prompt was no part of it. `again`: the
        request can be sent once more.
        """
        self._emit(UsageReported(end.usage, expected))
        self.engine.session.spent(end.usage)
        shared, rewritten = self._shared(request)
        self._before = request.messages
        self.engine.learn(end.usage, shared, rewritten=rewritten)
        reported = end.usage.prompt or 0
        if reported and not plausible(expected, reported):
            expected = await self.runtime.count(request.messages, request.tools) or expected
        before = self._low if self._low >= self._whole else 0  # what was once taken whole is not where it cuts
        believed = expected.tokens
        seen = sight(expected, reported, self.runtime.cut_points(self.engine.budget.window), before)
        if seen is Sight.CUT:
            await self._alarm(expected, reported, again=again)
        elif seen is Sight.DOUBTFUL or self._is_too_much(expected, reported):
            seen = self._doubt(expected, reported)
        elif reported:
            self._whole = max(self._whole, reported)
            believed = reported
            self.engine.meter.measured(max(reported - beside, 1), through)
        self.last_used = self._held = believed + min(end.usage.completion or 0, request.max_tokens)
        return seen

    def take(self, expected: Count, reported: int, through: int, beside: int) -> None:
        """Takes what somebody else's request was reported to be, where that can be true."""
        if plausible(expected, reported) and not self._is_too_much(expected, reported):
            self.engine.meter.measured(max(reported - beside, 1), through)

    def _is_too_much(self, expected: Count, reported: int) -> bool:
        return reported > max(self.engine.budget.window, expected.upper)

    def reads(self, request: Request, prompt: int) -> tuple[int, float | None]:
        """How many of a request's `prompt` tokens the server is likely to read anew, and in how many seconds; None: no speed known."""
        speeds = self.engine.speeds
        shared, rewritten = self._shared(request)
        kept = min(shared or 0, prompt) if (speeds.rewinds if rewritten else speeds.reuses) > _LIKELY else 0
        new = prompt - kept
        return new, new / speeds.prefill if speeds.prefill else None

    def _shared(self, request: Request) -> tuple[int | None, bool]:
        """The tokens of a prompt that began the request before as well (None: unknown), and whether that went on otherwise."""
        before = self._before
        alike = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(before, request.messages, strict=False)))
        if not before or not self._held:
            return None, False
        if alike == len(before):
            return self._held, False
        return self.engine.meter.alone(request.messages[:alike]).tokens if alike else 0, True

    def _doubt(self, expected: Count, reported: int) -> Sight:
        """Says once that a report cannot be of what was sent; neither it nor what was measured before is gone by."""
        first, self._doubted = not self._doubted, True
        low = reported < expected.tokens
        self._low = reported if low else self._low
        self.engine.meter.distrust(reported)
        if first:
            sent = f"the server reports {reported:,} prompt tokens where about {expected.tokens:,} were sent"
            why = "it dropped context, or counts otherwise" if low else "it cannot have taken so many"
            self._emit(Notice("odd-report", f"{sent} ({expected.how}): {why}; going by what was sent"))
        return Sight.DOUBTFUL if first and low and expected.bound == 0 else Sight.WHOLE

    async def _alarm(self, expected: Count, reported: int, *, again: bool) -> None:
        """Says what the model did not see, and goes by the most that the server has taken whole."""
        history = self.engine.session.history
        missed = unseen(history, reported, self.engine.meter.sizer(history, expected))
        self._emit(Truncated(expected, reported, missed, again))
        self.engine.meter.void()
        await self.look_again()
        limit = max(reported, self._whole) if again and not self._low else reported
        if limit < self.engine.budget.window:
            self._adopt(limit, f"{self.runtime.url} kept {reported:,} tokens of a longer prompt")
