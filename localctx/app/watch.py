"""Watching over a turn, so that it ends: at its step limit, in circles, or where calls cannot be read."""

from __future__ import annotations

from typing import TYPE_CHECKING

from localctx.core import steps
from localctx.core.events import Notice

if TYPE_CHECKING:
    from collections.abc import Sequence

    from localctx.core.messages import ToolCall

__all__ = ["Watch"]


class Watch:
    """One turn of at most `most` steps. `over` says why it must end; `nudge` is what the next request says of it."""

    def __init__(self, most: int) -> None:
        self._most, self._step = most, 0
        self._made = list[tuple[str, str]]()
        self._pointed_out = self._unread = False
        self.over = self.nudge = ""

    def took(self, calls: Sequence[ToolCall], *, readable: bool) -> Notice | None:
        """What a person is told after a step with these calls; `readable` where the arguments of one of them could be read."""
        self._step += 1
        self._made += [(call.name, call.arguments) for call in calls]
        self.nudge = steps.nudge(self._step, self._most)
        circles, unread = steps.in_circles(self._made), not readable
        if unread and self._unread:
            return self._end("malformed-calls", "the model's calls cannot be read, twice in a row: stopped; ask again")
        if circles and self._pointed_out:
            text = "the model repeats the same calls: stopped; say what it should do instead"
            return self._end("in-circles", text)
        if self._step == self._most:
            text = f"step limit reached ({self._most}): say 'continue' to go on, or pass a larger --max-steps"
            return self._end("step-limit", text)
        self._unread = unread
        if circles:
            self._pointed_out, self._made = True, []
            self.nudge = f"{self.nudge}\n\n{steps.CIRCLES}".strip()
            return Notice("repeats", "the model repeats the same calls: it is told so, and stopped if it goes on")
        said = steps.warning(self._step, self._most)
        return Notice("steps", said) if said else None

    def _end(self, code: str, text: str) -> Notice:
        self.over = code
        return Notice(code, text)
