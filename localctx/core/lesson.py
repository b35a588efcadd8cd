"""The arithmetic of the lesson on context and memory: what a gate on append makes of a window, row by row.

It is apart from the engine on purpose: it counts single messages and splits a call from its result, which no cut of
`core/ladder.py` does. It is held against the totals of the lesson; `core/lesson_story.py` tells them. All sizes
are tokens, and those of system, memory and summary are the lesson's.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["Appended", "Compacted", "Event", "Mark", "Plan", "Row", "next_boot", "replay"]

_KEPT = 2
"""The newest messages, which no compaction takes (lesson)."""


@dataclass(frozen=True, slots=True)
class Plan:
    """A window of `limit` tokens, the share past which an append compacts it (None: never), and whether notes outlive a session."""

    gate: float | None = 0.92
    memory: bool = True
    limit: int = 50_000
    system: int = 3_000
    remembered: int = 1_000
    summary: int = 800

    @property
    def head(self) -> int:
        """What a session begins with: the system's words, and a copy of the memory as it is then."""
        return self.system + self.remembered * self.memory

    @property
    def gate_tokens(self) -> int | None:
        """The most tokens that pass the gate. Decimal shares count as written: 0.29 of 100 is 29, whatever floats make of it."""
        return None if self.gate is None else math.floor(round(self.gate * self.limit, 6))


@dataclass(frozen=True, slots=True)
class Row:
    """A message; or, where there is a `note`, a line for the memory, which takes its tokens from the next session on."""

    name: str
    tokens: int
    note: str = ""


@dataclass(frozen=True, slots=True)
class Mark:
    """The total when a session began (`boot`), a line went to the memory (`memory_write`), or a request was `rejected`.

    The copy of the memory in the window stays as it was; a request above the limit ends the session.
    """

    event: str
    total: int


@dataclass(frozen=True, slots=True)
class Appended:
    """A message arrived."""

    msg: str
    tokens: int
    total: int


@dataclass(frozen=True, slots=True)
class Compacted:
    """All between the head and the newest two messages became a summary; that may still be over the gate."""

    gate: int
    before: int
    slice: tuple[str, ...]
    slice_tokens: int
    summary: int
    kept: tuple[str, ...]
    after: int
    still_over: bool


Event: TypeAlias = Mark | Appended | Compacted


def replay(plan: Plan, rows: Sequence[Row]) -> list[Event]:
    """What happens in one session, in order."""
    events, window, trips, gate = list[Event]([Mark("boot", plan.head)]), list[Row](), 0, plan.gate_tokens
    for row in rows:
        if row.note:
            events += [Mark("memory_write", _total(plan, window))] if plan.memory else []
            continue
        window.append(row)
        events.append(Appended(row.name, row.tokens, _total(plan, window)))
        if gate is not None and _total(plan, window) > gate and window[:-_KEPT]:
            trips += 1
            summed = [Row(f"summary{trips}", plan.summary), *window[-_KEPT:]]
            events.append(_compacted(plan, gate, window, summed))
            window = summed
        if _total(plan, window) > plan.limit:
            return [*events, Mark("rejected", _total(plan, window))]
    return events


def next_boot(plan: Plan, rows: Sequence[Row]) -> tuple[int, tuple[str, ...]]:
    """What the next session begins with, and the notes of this one that it can read: summaries end with their session."""
    notes = [row for row in rows if row.note and plan.memory]
    return plan.head + sum(row.tokens for row in notes), tuple(row.note for row in notes)


def _total(plan: Plan, window: Sequence[Row]) -> int:
    return plan.head + sum(row.tokens for row in window)


def _compacted(plan: Plan, gate: int, window: Sequence[Row], summed: Sequence[Row]) -> Compacted:
    before, after, old = _total(plan, window), _total(plan, summed), window[:-_KEPT]
    taken, kept = (tuple(row.name for row in rows) for rows in (old, summed[1:]))
    return Compacted(gate, before, taken, sum(row.tokens for row in old), plan.summary, kept, after, after > gate)
