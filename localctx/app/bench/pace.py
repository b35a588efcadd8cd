"""How far a benchmark is, and which of its steps there is still time for."""

from __future__ import annotations

from contextlib import contextmanager
from time import monotonic
from typing import TYPE_CHECKING

import anyio

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

__all__ = ["Pace"]


class Pace:
    """Work in units that take about the same time (tokens), done within `seconds`: from `within`, or from when it is first expected.

    `told` is given the work that is done, all of it, and what is done now. Steps that would end too late, at the speed so
    far, are left out; `left_out` names them.
    """

    def __init__(
        self, seconds: float, told: Callable[[float, float, str], None] = lambda _done, _all, _what: None
    ) -> None:
        self._seconds, self._told = seconds, told
        self._until: float | None = None
        self._done = self._all = self._spent = 0.0
        self.left_out = list[str]()

    @contextmanager
    def within(self) -> Iterator[None]:
        """The time begins; what is not done when it is over is cancelled."""
        self._until = monotonic() + self._seconds
        with anyio.move_on_after(self._seconds):
            yield

    def expect(self, work: float) -> None:
        """Adds to the work that there is; the time begins with the first."""
        self._until = self._until or monotonic() + self._seconds
        self._all += work

    @property
    def left(self) -> float:
        """The seconds that are left, never below 0."""
        return max(self._until - monotonic(), 0.0) if self._until else self._seconds

    def begin(self, work: float, what: str) -> bool:
        """Whether there is time for a step; it is announced, or left out."""
        if self.left <= 0 or (self._done and self._spent / self._done * work > self.left):
            self.left_out.append(what)
            self._all -= work
            return False
        self._told(self._done, self._all, what)
        return True

    def end(self, work: float, seconds: float) -> None:
        """Notes what a step took that was begun."""
        self._done += work
        self._spent += seconds
        self._told(self._done, self._all, "")
