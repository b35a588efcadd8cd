"""A session: a journal and the history that it adds up to, changed only by writing entries."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

from localctx.core import journal as lines
from localctx.core.effects import Effect, Withdrawn
from localctx.core.events import Notice
from localctx.core.messages import ToolCycle
from localctx.core.outgoing import NO_RESULT
from localctx.core.record import spent
from localctx.core.work import patched

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from localctx.core.accounting import Totals, Usage
    from localctx.core.events import Event
    from localctx.core.journal import Entry
    from localctx.core.messages import History, ToolCall
    from localctx.core.outgoing import WireMessage
    from localctx.core.work import WorkState
    from localctx.ports import Journal

__all__ = ["Session"]


class Session:
    """The live history of a journal; what is not written did not happen.

    `emit` is told when the journal can keep nothing more, and when it can again; `on_work` of the work state, now and
    each time that it changes.
    """

    def __init__(
        self,
        journal: Journal,
        emit: Callable[[Event], None] = lambda _event: None,
        on_work: Callable[[WorkState], None] = lambda _state: None,
    ) -> None:
        self.journal, self._emit, self._on_work = journal, emit, on_work
        self._trouble = ""
        self.history: History = lines.project(journal.entries())
        self._on_work(self.history.work)
        self._look_for_trouble()

    @property
    def next_seq(self) -> int:
        """The line that the next entry will be on."""
        return self.journal.last_seq + 1

    def add(self, message: WireMessage, *, complete: bool = True, sync: bool = False) -> Entry:
        """Adds a wire message."""
        return self._write(*lines.message(message, complete=complete), sync=sync)

    def answer(self, call: ToolCall, shown: str, **about: object) -> Entry:
        """Adds the result of a call as the model reads it; `about` is what else is kept of it (see the journal)."""
        kind, body = lines.message({"role": "tool", "tool_call_id": call.id, "content": shown})
        kept = {name: each for name, each in about.items() if each is not None}
        entry = self._write(kind, {**body, "tool": call.name, **kept})
        self.journal.shrink(self._results())
        return entry

    def answer_pending(self) -> None:
        """Notes of each call that was interrupted that it has no result, before anything else is said."""
        for call in self.pending:
            self.answer(call, NO_RESULT)

    @property
    def pending(self) -> tuple[ToolCall, ...]:
        """The calls of the newest step that have no result yet."""
        return self.cycle.pending if self.cycle else ()

    @property
    def cycle(self) -> ToolCycle | None:
        """The newest step, where it is one of calls."""
        newest = self.history.turns[-1].steps[-1:] if self.history.turns else ()
        return newest[0] if newest and isinstance(newest[0], ToolCycle) else None

    def begin(self, rung: str) -> Entry:
        """Notes that a rung begins: until its commit it is without effect."""
        return self._write(*lines.begin(rung))

    def commit(self, effect: Effect, begun: Entry | None = None, taken: Mapping[str, object] | None = None) -> None:
        """Makes an effect count; `taken` is what a person may want to know of it."""
        self._write(*lines.commit(effect, begun.seq if begun else None, taken), sync=True)

    def abort(self, begun: Entry, reason: str) -> None:
        """Closes a begin without effect."""
        self._write("abort", {"begin": begun.seq, "reason": reason})

    def note(self, kind: str, **body: object) -> None:
        """Keeps something that the history does not hold: usage, the window, a notice."""
        self._write(kind, body)

    def withdraw(self, since: Entry) -> None:
        """Takes back an entry and what came after it; the journal keeps them."""
        self.commit(Withdrawn(since.seq))

    def spent(self, usage: Usage) -> None:
        """Notes what a reply took, whatever it was for."""
        self.note("usage", **asdict(usage))

    @property
    def totals(self) -> Totals:
        """What all replies of the session took so far; gone through anew each time."""
        return spent(self.journal.entries())

    def undo(self) -> WireMessage | None:
        """Takes back the last thing that the user said and all that came of it, compactions as well.

        What it was; None where nothing was said. The journal keeps it, and an undo of this undo brings it back.
        """
        asked = lines.last_asked(self.journal.entries())
        if asked is None:
            return None
        self._write(*lines.undo(asked.seq), sync=True)
        self.history = lines.project(self.journal.entries())
        self._on_work(self.history.work)
        said = asked.body.get("message")
        return said if isinstance(said, dict) else {"role": "user", "content": ""}

    def work(self, patch: Mapping[str, object] | None) -> None:
        """Patches the work state, or clears it. Raises `ValueError`, worded for a model, for a patch that says nothing usable."""
        if patch is not None:
            patched(self.history.work, patch)
        self._write(*lines.work(patch), sync=True)
        self._on_work(self.history.work)

    def _results(self) -> Iterator[int]:
        """The lines of the results that the history holds or points at."""
        for _, unit in self.history.units():
            if isinstance(unit, ToolCycle):
                yield from (result.seq for result in unit.results)

    def _write(self, kind: str, body: lines.Body, *, sync: bool = False) -> Entry:
        entry = self.journal.append(kind, body, sync=sync)
        if kind != "undo":
            self.history = lines.advance(self.history, entry)
        self._look_for_trouble()
        return entry

    def _look_for_trouble(self) -> None:
        before, self._trouble = self._trouble, self.journal.trouble
        if self._trouble and not before:
            text = f"{self._trouble}; this goes on in memory, and what cannot be written before the end is lost"
            self._emit(Notice("not-kept", text))
        elif before and not self._trouble:
            self._emit(Notice("kept-again", "all that could not be written before is on disk now"))
