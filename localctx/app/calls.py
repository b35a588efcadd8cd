"""Calling the tools that a reply asks for, and shaping what they return for the model."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING

from localctx.app.tools.toolbox import Toolbox
from localctx.core.events import ToolAnswered, ToolCalled
from localctx.core.results import shown

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from localctx.app.session import Session
    from localctx.core.events import Event
    from localctx.core.messages import ToolCall

__all__ = ["Caller"]

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
            body, origin = outcome.text, outcome.provenance
            text = shown(call.name, body, room, self.size, seq=self.session.next_seq, provenance=origin)
            self.session.answer(
                call,
                text,
                size=len(body),
                whole=None if body in text else body,
                provenance=origin and asdict(origin),
            )
            self.emit(ToolAnswered(call.id, call.name, len(body), text))
