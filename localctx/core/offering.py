"""Which tools a request offers: schemas are in every prompt, so they are weighed against the window."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["MOST_NOW", "MOST_OF_WINDOW", "Plan", "planned"]

MOST_NOW, MOST_OF_WINDOW = 0.15, 0.25
"""The shares of a window that schemas take from the start, and in the end. A reply may take a quarter, the results of one
reply 40 % of the rest: with a quarter for schemas a conversation still has some 20 %, and with 15 % it begins with 30 %."""


@dataclass(frozen=True, slots=True)
class Plan:
    """The names of the tools that are offered from the start, and of those that are once they are asked for; the others never are."""

    now: tuple[str, ...]
    deferred: tuple[str, ...] = ()


def planned(sizes: Mapping[str, int], window: int, search: int, *, insisted: bool = False) -> Plan:
    """The plan for tools of these sizes, the most useful first, beside a search of `search` tokens for the deferred ones.

    All sizes are tokens. From the start as many are offered as have room then, in order; the others are deferred. Left out
    are those that would find no room later either, unless the user `insisted` on them, and all where no single one has room.
    Who insists gets all of them from the start where they have room in the end.
    """
    most = window * MOST_OF_WINDOW
    if sum(sizes.values()) <= (window * MOST_NOW if not insisted else most):
        return Plan(tuple(sizes))
    now, taken = list[str](), search
    for name, size in sizes.items():
        if taken + size <= window * MOST_NOW:
            now.append(name)
            taken += size
    if not now and insisted:
        now = list(sizes)[:1]
    if not now:
        return Plan(())
    later = (name for name in sizes if name not in now)
    return Plan(tuple(now), tuple(name for name in later if insisted or taken + sizes[name] <= most))
