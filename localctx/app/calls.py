"""Calling the tools that a reply asks for, and shaping what they return for the model."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING

from localctx.app.tools.toolbox import Toolbox
from localctx.core.events import Notice, ToolAnswered, ToolCalled
from localctx.core.results import share, shown
from localctx.ports import Outcome

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from localctx.app.session import Session
    from localctx.core.events import Event
    from localctx.core.messages import ToolCall

__all__ = ["Caller"]


@dataclass(slots=True)
class Caller:
    """Runs the calls that wait for results. `room` is what one cycle may take, `size` what a text takes, in tokens."""

    session: Session
    room: Callable[[], int]
    size: Callable[[str], int]
    emit: Callable[[Event], None]
    tools: Toolbox = field(default_factory=Toolbox)

    def few_enough(self, calls: Sequence[ToolCall]) -> Sequence[ToolCall]:
        """As many of a reply's calls as there is room for with the shortest of results; one at least."""
        room, most = self.room(), 0
        for call in calls:
            room -= self.size(f"{call.name} {call.arguments}") + _CALL_TOKENS
            most += room >= 0
        if (left := len(calls) - max(most, 1)) > 0:
            text = f"{len(calls)} calls at once are too many for this window; the last {left} were left out"
            self.emit(Notice("calls-left-out", text))
        return calls[: max(most, 1)]

    async def answer(self, calls: Sequence[ToolCall]) -> bool:
        """Adds the result of each call, whole in the record, and for the model as much as there is room for.

        Whether the arguments of any could be read.
        """
        room, readable = self._share(calls), False
        for call in calls:
            self.emit(ToolCalled(call.id, call.name, call.arguments))
            outcome = await self.tools.run(call)
            readable |= not outcome.malformed
            self._keep(call, outcome, room)
        return readable

    def take(self, call: ToolCall, text: str) -> None:
        """Adds a result that somebody else got, as if a tool here had returned it."""
        self._keep(call, Outcome(text), self._share(self.session.cycle.calls if self.session.cycle else (call,)))

    def _share(self, calls: Sequence[ToolCall]) -> int:
        return share(self.room(), [call.arguments for call in calls], self.size)

    def _keep(self, call: ToolCall, outcome: Outcome, room: int) -> None:
        body, origin = outcome.text, outcome.provenance
        text = shown(call.name, body, room, self.size, seq=self.session.next_seq, provenance=origin)
        whole = None if body in text else body
        self.session.answer(call, text, size=len(body), whole=whole, provenance=origin and asdict(origin))
        self.emit(ToolAnswered(call.id, call.name, len(body), text))


_CALL_TOKENS = 64
"""What a call takes beside its name and arguments: the least of a result, and the words of the template around both."""
