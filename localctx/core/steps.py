"""How far a turn is with its steps, and whether it goes in circles: what a person and an agent are told of it.

A step is one request of a turn. The figures are the seed's.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["CIRCLES", "WATCHED", "in_circles", "nudge", "percent", "warning"]

_SHARES = (50, 70, 90)
_WARNING, _CRITICAL = 70, 90
"""The per cent of its steps at which a person is told, and from which an agent is."""

WATCHED = 10
"""How many of the newest calls are looked at."""

_LEAST_DISTINCT = 0.4
"""The share of them that must differ from each other."""


def warning(step: int, most: int) -> str:
    """What a person is told after so many of at most `most` steps: once at 50, 70 and 90 %; empty otherwise."""
    if step >= most or not any((step - 1) * 100 < share * most <= step * 100 for share in _SHARES):
        return ""
    return f"step budget {percent(step, most)}% used ({step}/{most}): the turn stops at the limit, 'continue' goes on"


def nudge(step: int, most: int) -> str:
    """What an agent is told of its steps with a request, from 70 % on; empty before."""
    if step * 100 < _WARNING * most:
        return ""
    said = f"{step} of {most} steps used ({percent(step, most)}%)"
    if step * 100 >= _CRITICAL * most:
        return f"[STEPS CRITICAL: {said}. Stop calling tools and give your answer NOW.]"
    return f"[STEPS WARNING: {said}. Do what matters most, and leave room for the answer.]"


CIRCLES = (
    "[REPETITION: your last calls repeat each other. Their results will not change: do something else, or answer.]"
)


def in_circles(calls: Sequence[tuple[str, str]]) -> bool:
    """Whether too few of the newest calls, each a name and its arguments, differ from each other."""
    newest = calls[-WATCHED:]
    return len(newest) == WATCHED and len(set(newest)) < WATCHED * _LEAST_DISTINCT


def percent(part: int, whole: int) -> int:
    """A share in per cent, rounded half up as the seed does."""
    return (200 * part + whole) // (2 * whole)
