"""One line on what is waited for, drawn in place on a terminal until something comes."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from time import monotonic
from typing import TYPE_CHECKING

from localctx.cli.wording import figure

if TYPE_CHECKING:
    from collections.abc import Callable

    from localctx.core.events import Drafting, Prefilling, RequestSent

__all__ = ["Waiting", "drafting", "reading", "reading_on"]

_PATIENCE, _TICK = 1.0, 0.25
"""The seconds before anything is shown, and those from one drawing to the next."""


class Waiting:
    """What is waited for. `show` draws a line in place of the one before, or takes that away for an empty one."""

    def __init__(self, show: Callable[[str], None]) -> None:
        self._show, self._what, self._begun = show, "", 0.0
        self._next: asyncio.TimerHandle | None = None
        self._shown = False
        self._told: Callable[[float], str] = lambda _seconds: ""

    def begin(self, what: str, told: Callable[[float], str]) -> None:
        """Waits for something; `told` is what is said of it after so many seconds. The same again goes on with its time."""
        if what != self._what:
            self.end()
            self._what, self._begun = what, monotonic()
            with suppress(RuntimeError):  # no event loop: nothing can come while it is waited for
                self._next = asyncio.get_running_loop().call_later(_PATIENCE, self._draw)
        self._told = told

    @property
    def seconds(self) -> float:
        """How long it was waited by now."""
        return monotonic() - self._begun if self._what else 0.0

    def end(self) -> float:
        """Takes the line away; how many seconds it was waited."""
        if self._next:
            self._next.cancel()
        if self._shown:
            self._show("")
        seconds = self.seconds
        self._what, self._next, self._shown = "", None, False
        return seconds

    def _draw(self) -> None:
        self._show(self._told(self.seconds))
        self._shown = True
        self._next = asyncio.get_running_loop().call_later(_TICK, self._draw)


def reading(sent: RequestSent) -> Callable[[float], str]:
    """What is told while a server reads a prompt and says nothing of it."""
    likely = f" of about {sent.seconds:.0f} s" if sent.seconds is not None and sent.seconds >= 1 else " s"
    return lambda seconds: f"reading {figure(sent.new)} of {figure(sent.prompt)} tokens ... {seconds:.0f}{likely}"


def reading_on(far: Prefilling, waited: float) -> Callable[[float], str]:
    """What is told while a server reads a prompt and says how far it is; it said so after `waited` seconds."""
    done, total = min(far.done, far.total), max(far.total, 1)
    read = done - far.cached
    whole = waited * (total - far.cached) / read if read > 0 else 0.0

    def told(seconds: float) -> str:
        more = f", about {whole - seconds:.0f} s more" if whole - seconds >= 1 else ""
        return f"reading {done * 100 // total}% of {figure(far.total)} tokens ... {seconds:.0f} s{more}"

    return told


def drafting(call: Drafting) -> Callable[[float], str]:
    """What is told while a model writes a call."""
    name = call.name[:_NAME] or "a call"
    return lambda seconds: f"writing {name}: {call.characters:,} characters ... {seconds:.0f} s"


_NAME = 40
