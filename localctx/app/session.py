"""A session: a journal and the history that it adds up to, changed only by writing entries."""

from __future__ import annotations

from typing import TYPE_CHECKING

from localctx.core import journal as lines
from localctx.core.accounting import Count, Ledger
from localctx.core.ladder import Effect, Withdrawn
from localctx.core.messages import History, end_of
from localctx.core.outgoing import outgoing
from localctx.core.transcript import write

if TYPE_CHECKING:
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
    """Counts the prompt that a history makes: roughly where that is enough, by the server where it matters."""

    def __init__(self, runtime: Runtime, estimator: Estimator) -> None:
        self._runtime, self._estimator = runtime, estimator
        self._ledger = Ledger()
        self.size = estimator.size

    async def measure(self, history: History, *, enough_below: int) -> Count:
        """The prompt of a history; what was reported and an estimate of what is new will do below `enough_below`."""
        if self._ledger.through >= 0:
            rough = self._ledger.count(self._since(history))
            if rough.upper < enough_below:
                return rough
        return await self.exact(outgoing(history))

    async def at_least(self, messages: list[WireMessage], *, enough_below: int) -> Count:
        """The tokens of a list on its own; an estimate will do while it cannot reach `enough_below`."""
        rough = self._estimator.request(messages)
        return rough if rough.upper < enough_below else await self.exact(messages)

    async def exact(self, messages: list[WireMessage]) -> Count:
        """The server's own count, or the estimate where it has none."""
        return await self._runtime.count(messages) or self._estimator.request(messages)

    def learn(self, usage: Usage, through: int) -> None:
        """Anchors the next counts to what the server reported of a prompt that ended at line `through`."""
        self._ledger = self._ledger.measured(usage, through)

    def void(self) -> None:
        """Forgets what was reported: the history was rewritten."""
        self._ledger = Ledger()

    def _since(self, history: History) -> Count:
        new = [write(unit) for _, unit in history.units() if end_of(unit) > self._ledger.through]
        return self._estimator.request([message for message in new if isinstance(message, dict)])
