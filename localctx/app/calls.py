"""Calling the tools that a reply asks for, and shaping what they return for the model."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING

from localctx.app.tools.toolbox import Toolbox
from localctx.core.accounting import head_and_tail
from localctx.core.events import ToolAnswered, ToolCalled
from localctx.core.results import RETRIEVE, framed
from localctx.core.shaping import shaped

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from localctx.app.session import Session
    from localctx.core.events import Event
    from localctx.core.messages import ToolCall
    from localctx.ports import Outcome

__all__ = ["RESULTS_SHARE", "Caller"]

RESULTS_SHARE = 0.40
"""What a cycle, its calls and results together, may take of the budget (design: shaped on arrival)."""

_LEAST_TOKENS = 32


@dataclass(slots=True)
class Caller:
    """Runs the calls that wait for results. `room` is what one cycle may take, `size` what a text takes, in tokens."""

    session: Session
    room: Callable[[], int]
    size: Callable[[str], int]
    emit: Callable[[Event], None]
    tools: Toolbox = field(default_factory=Toolbox)

    async def answer(self, calls: Sequence[ToolCall]) -> None:
        """Adds the result of each call, whole in the record, and for the model as much as there is room for."""
        asked = sum(self.size(call.arguments) for call in calls)
        room = max((self.room() - asked) // len(calls), _LEAST_TOKENS)
        for call in calls:
            self.emit(ToolCalled(call.id, call.name, call.arguments))
            outcome = await self.tools.run(call)
            shown = self._shown(call.name, outcome, room)
            self.session.answer(
                call,
                shown,
                size=len(outcome.text),
                whole=None if outcome.text in shown else outcome.text,
                provenance=outcome.provenance and asdict(outcome.provenance),
            )
            self.emit(ToolAnswered(call.id, call.name, len(outcome.text), shown))

    def _shown(self, name: str, outcome: Outcome, room: int) -> str:
        """A result as the model reads it: without noise, within the room, with the way to the rest of it."""
        pointer = f"[all {len(outcome.text):,} characters: {RETRIEVE} {self.session.next_seq}]"
        text = shaped(name, outcome.text)
        left = room - self.size(framed("", outcome.provenance))
        if self.size(text) > left:
            text = head_and_tail(outcome.text, left, self.size, f"\n{pointer}\n")
        elif len(text) < len(outcome.text):
            text = f"{text}\n{pointer}"
        return framed(text, outcome.provenance)
