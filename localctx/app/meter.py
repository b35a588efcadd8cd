"""How full the window is: what was measured, what is new since, and what measures have taught."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import TYPE_CHECKING

from localctx.core.accounting import Ledger, added, plausible
from localctx.core.outgoing import outgoing
from localctx.core.sizes import Sizer, history_size
from localctx.core.transcript import write

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from localctx.core.accounting import Count, Makeup
    from localctx.core.calibration import Calibration
    from localctx.core.messages import History, Leaf
    from localctx.core.outgoing import WireMessage
    from localctx.ports import Counter, ServerCounter

__all__ = ["Meter"]


class Meter:
    """Counts the prompt that a history makes: roughly where that is enough, by the server where it matters.

    Each measure of a server, whether its count or its report of a reply, also teaches the counter; what was learned
    survives a rewrite of the history, which voids the ledger.
    """

    def __init__(
        self,
        runtime: ServerCounter,
        counter: Counter,
        calibration: Calibration | None = None,
        tools: Sequence[WireMessage] = (),
    ) -> None:
        self._runtime, self._counter, self.tools = runtime, counter, tools
        self.calibration = calibration or counter.prior
        self._ledger, self._source = Ledger(), ""
        self._known: dict[tuple[str, int], tuple[object, int]] = {}

    async def measure(self, history: History, *, enough_below: int) -> Count:
        """The prompt of a history; once something was measured, that and what is new will do below `enough_below`."""
        rough = self.rough(history)
        if self._ledger.measured and rough.upper < enough_below:
            return rough
        exact = await self._runtime.count(outgoing(history), self.tools)
        if exact is None:
            return rough
        self.measured(exact.tokens, history.last_seq, "count")
        return exact

    def rough(self, history: History) -> Count:
        """The prompt of a history by what is known here; costs what is new in it since it was last asked."""
        if self._ledger.through < 0:
            self._ledger = Ledger().plus(self._makeup(outgoing(history)), history.last_seq)
        for leaf in history.since(self._ledger.through):
            self._ledger = self._ledger.plus(self._counter.message(_wire(leaf)), leaf.seq)
        new = self.calibration.count(self._ledger.new, self._how)
        if self._ledger.measured:
            new = replace(new, how=f"last measure and {new.how}")
        return replace(new, tokens=new.tokens + self._ledger.measured)

    async def exact(self, messages: list[WireMessage], *, offered: bool = True) -> Count:
        """The server's own count of a list on its own, or the calibrated one where it has none.

        `offered`: with the tools that the conversation offers.
        """
        tools = self.tools if offered else ()
        return await self._runtime.count(messages, tools) or self.alone(messages)

    def alone(self, messages: Iterable[WireMessage]) -> Count:
        """The tokens of a list on its own by what was learned so far, whatever was measured of this history."""
        return self.calibration.count(self._makeup(messages), self._how)

    def sizer(self, history: History, used: Count) -> Callable[[str], int]:
        """The size of a text in tokens, scaled so that the sizes of a history add up to its count."""
        size = self._counter.size

        @cache
        def scale() -> float:
            return used.tokens / max(history_size(history, Sizer(size, lambda: 1.0, self._known)), 1)

        return Sizer(size, scale, self._known)

    def text(self, text: str) -> Count:
        """The tokens of a text on its own, by what was learned so far."""
        return self.calibration.count(self._counter.text(text), self._how)

    def size(self, text: str) -> int:
        """About how many tokens a text takes."""
        return self.text(text).tokens

    def measured(self, tokens: int, through: int, source: str = "report") -> None:
        """Takes what a server says the prompt is that ends at line `through`; it must be known to be of all of it.

        Of a whole prompt, what no class accounts for is taken for the server's own words. What was added since the last
        measure teaches only where that is of the same `source`, and where it is not less than was added.
        """
        if through == self._ledger.through and (not self._ledger.measured or source == self._source):
            self._learn(self._ledger.new, tokens - self._ledger.measured, whole=not self._ledger.measured)
        self._ledger, self._source = Ledger(tokens, through), source

    def _learn(self, makeup: Makeup, tokens: int, *, whole: bool) -> None:
        known = self.calibration.count(makeup, "")
        if not plausible(known, tokens):
            return
        if tokens > known.upper and whole:
            self.calibration = self.calibration.burdened(self._counter.frame(), tokens - known.upper)
        elif tokens > known.upper:
            self._be_less_sure(makeup)
        self.calibration = self.calibration.learned(makeup, tokens)

    def _be_less_sure(self, makeup: Makeup) -> None:
        """A measure has shown that the bound is too narrow; it never gets much wider than it was at first."""
        now, first = (each.count(makeup, "").bound for each in (self.calibration, self._counter.prior))
        if 0 < now <= _MOST_UNSURE * first:
            self.calibration = self.calibration.widened()

    def distrust(self, reported: int) -> None:
        """Takes note of a report that cannot be of what was sent: what was measured is void.

        Where it could be of another vocabulary, what was learned is less sure than it seemed.
        """
        sent = self._ledger.measured + self.calibration.count(self._ledger.new, "").tokens
        if reported * _MOST_CHEAPER >= sent:
            self._be_less_sure(self._ledger.new)
        self.void()

    def replied(self, text: str, tokens: int, seq: int) -> None:
        """Takes the reply on line `seq` for as long as the server says, where that is likely for its text."""
        likely = self.calibration.count(self._counter.text(text), self._how)
        just_measured = self._ledger.measured and not self._ledger.new
        if just_measured and abs(tokens - likely.tokens) <= likely.bound:
            framing = self._counter.message({"role": "assistant", "content": ""})
            self._ledger = Ledger(self._ledger.measured + tokens, seq).plus(framing, seq)

    def learn(self, messages: list[WireMessage], tokens: int) -> None:
        """Takes what a server says a list of messages on its own is."""
        self.calibration = self.calibration.learned(self._makeup(messages), tokens)

    def void(self) -> None:
        """Forgets what was measured of the history: it was rewritten."""
        self._ledger = Ledger()
        self._known.clear()

    @property
    def _how(self) -> str:
        return f"calibrated {self._counter.how}" if self.calibration.reports else self._counter.how

    def _makeup(self, messages: Iterable[WireMessage]) -> Makeup:
        return added((self._counter.frame(self.tools), *map(self._counter.message, messages)))


def _wire(leaf: Leaf) -> WireMessage:
    message = write(leaf)
    return message if isinstance(message, dict) else {"role": "user", "content": str(message)}


_MOST_UNSURE = 2
"""How many times as unsure as before any report it may become."""

_MOST_CHEAPER = 2.5
"""How many times the tokens of one vocabulary another may need for the same prompt (CJK apart, which starts at the dear end)."""
