"""A session: a journal and the history that it adds up to, changed only by writing entries."""

from __future__ import annotations

from math import ceil
from typing import TYPE_CHECKING

from localctx.core import journal as lines
from localctx.core.accounting import Count, Ledger
from localctx.core.ladder import Effect, Withdrawn, history_size
from localctx.core.messages import History, ToolCycle, end_of
from localctx.core.outgoing import outgoing
from localctx.core.transcript import write

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from localctx.core.accounting import Usage
    from localctx.core.journal import Entry
    from localctx.core.outgoing import WireMessage
    from localctx.ports import Estimator, Journal, Runtime

__all__ = ["Meter", "Session"]


class Session:
    """The live history of a journal; what is not written did not happen."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self.history: History = lines.project(journal.entries())

    def add(self, message: WireMessage, *, complete: bool = True, sync: bool = False) -> Entry:
        """Adds a wire message."""
        return self._write(*lines.message(message, complete=complete), sync=sync)

    def begin(self, rung: str) -> Entry:
        """Notes that a rung begins: until its commit it is without effect."""
        return self._write(*lines.begin(rung))

    def commit(self, effect: Effect, begun: Entry | None = None) -> None:
        """Makes an effect count."""
        self._write(*lines.commit(effect, begun.seq if begun else None), sync=True)

    def abort(self, begun: Entry, reason: str) -> None:
        """Closes a begin without effect."""
        self._write("abort", {"begin": begun.seq, "reason": reason})

    def note(self, kind: str, **body: object) -> None:
        """Keeps something that the history does not hold: usage, the window, a notice."""
        self._write(kind, body)

    def withdraw(self, since: Entry) -> None:
        """Takes back an entry and what came after it; the journal keeps them."""
        self.commit(Withdrawn(since.seq))

    def _write(self, kind: str, body: lines.Body, *, sync: bool = False) -> Entry:
        entry = self._journal.append(kind, body, sync=sync)
        self.history = lines.advance(self.history, entry)
        return entry


class Meter:
    """Counts the prompt that a history makes: roughly where that is enough, by the server where it matters.

    What servers report also corrects the estimate, for texts like those of this session; that survives a rewrite of the
    history, which voids the ledger.
    """

    def __init__(self, runtime: Runtime, estimator: Estimator) -> None:
        self._runtime, self._estimator = runtime, estimator
        self._ledger = Ledger()
        self._ratio: float | None = None

    async def measure(self, history: History, *, enough_below: int) -> Count:
        """The prompt of a history; what was reported and an estimate of what is new will do below `enough_below`."""
        if self._ledger.through >= 0:
            rough = self._ledger.count(self._corrected(self._estimator.request(self._since(history))))
            if rough.upper < enough_below:
                return rough
        return await self.exact(outgoing(history))

    async def at_least(self, messages: list[WireMessage], *, enough_below: int) -> Count:
        """The tokens of a list on its own; an estimate will do while it cannot reach `enough_below`."""
        rough = self._estimator.request(messages)
        return rough if rough.upper < enough_below else await self.exact(messages)

    async def exact(self, messages: list[WireMessage]) -> Count:
        """The server's own count, or the corrected estimate where it has none."""
        return await self._runtime.count(messages) or self._corrected(self._estimator.request(messages))

    def sizer(self, history: History, used: Count) -> Callable[[str], int]:
        """The size of a text in tokens, scaled so that the sizes of a history add up to its count."""
        scale = used.tokens / max(history_size(history, self._estimator.size), 1)
        return lambda text: ceil(self._estimator.size(text) * scale)

    def learn(self, usage: Usage, messages: Sequence[WireMessage], through: int) -> None:
        """Anchors the next counts to what the server reported of a prompt that ended at line `through`."""
        self._ledger = self._ledger.measured(usage, through)
        if usage.prompt:
            self.correct(messages, usage.prompt)

    def correct(self, messages: Sequence[WireMessage], tokens: int) -> None:
        """Corrects the estimate by what a server says a list of messages is."""
        self._ratio = tokens / max(self._estimator.request(messages).tokens, 1)

    def void(self) -> None:
        """Forgets what was reported of the history: it was rewritten."""
        self._ledger = Ledger()

    def _corrected(self, rough: Count) -> Count:
        if self._ratio is None:
            return rough
        tokens = ceil(rough.tokens * self._ratio)
        return Count(tokens, ceil(min(rough.bound, tokens * _LEARNT_ERROR)), "corrected estimate")

    def _since(self, history: History) -> list[WireMessage]:
        new = [unit for _, unit in history.units() if end_of(unit) > self._ledger.through]
        wire = [write(part) for unit in new for part in (unit, *(unit.results if isinstance(unit, ToolCycle) else ()))]
        return [message for message in wire if isinstance(message, dict)]


_LEARNT_ERROR = 0.25
"""The share by which an estimate may still be off when it was corrected by a report of the same session."""
