"""A session: a journal and the history that it adds up to, changed only by writing entries."""

from __future__ import annotations

from typing import TYPE_CHECKING

from localctx.core import journal as lines
from localctx.core.ladder import Effect, Withdrawn

if TYPE_CHECKING:
    from localctx.core.journal import Entry
    from localctx.core.messages import History
    from localctx.core.outgoing import WireMessage
    from localctx.ports import Journal

__all__ = ["Session"]


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
