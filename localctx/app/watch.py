"""Watching over a turn, so that it ends: at its step limit, in circles, or where calls cannot be read."""

from __future__ import annotations

from typing import TYPE_CHECKING

from localctx.core import steps
from localctx.core.events import Notice

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from localctx.core.messages import ToolCall

__all__ = ["Watch"]


class Watch:
    """One turn of at most `most` steps. `over` once it must end; `nudge` is what the next request says of it."""

    def __init__(self, most: int) -> None:
        self._most, self._step = most, 0
        self._made = list[tuple[str, str]]()
        self._pointed_out = self._unread = self.over = False
        self.nudge = ""

    def took(self, calls: Sequence[ToolCall], *, readable: bool) -> Iterator[Notice]:
        """What a person is told after a step with these calls; `readable` where the arguments of one of them could be read."""
        self._step += 1
        self._made += [(call.name, call.arguments) for call in calls]
        self.nudge = steps.nudge(self._step, self._most)
        circles = steps.in_circles(self._made)
        if not readable and self._unread:
            yield self._end("malformed-calls", "the model's calls cannot be read, twice in a row: stopped; ask again")
        elif circles and self._pointed_out:
            text = "the model repeats the same calls: stopped; say what it should do instead"
            yield self._end("in-circles", text)
        elif self._step == self._most:
            text = f"step limit reached ({self._most}): say 'continue' to go on, or pass a larger --max-steps"
            yield self._end("step-limit", text)
        elif said := steps.warning(self._step, self._most):
            yield Notice("steps", said)
        if circles:
            self._pointed_out, self._made = True, []
            self.nudge = f"{self.nudge}\n\n{steps.CIRCLES}".strip()
        self._unread = not readable

    def _end(self, code: str, text: str) -> Notice:
        self.over = True
        return Notice(code, text)
