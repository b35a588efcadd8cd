"""How long probing takes with many addresses, dead ones among them: about as long as the slowest answer."""

from __future__ import annotations

from dataclasses import dataclass
from statistics import median
from time import perf_counter
from typing import TYPE_CHECKING

from localctx.app.probe import probe
from localctx.core.window import Status

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from contextlib import AbstractAsyncContextManager

    from localctx.app.bench.pace import Pace
    from localctx.app.bench.tables import Sheet
    from localctx.ports import Prober

__all__ = ["ASKED", "Addresses", "measured"]


@dataclass(frozen=True, slots=True)
class Addresses:
    """How many addresses there are: where a server answers, where nothing listens, and where something never answers."""

    answer: int
    refuse: int = 0
    hang: int = 0

    def __str__(self) -> str:
        """Their number, and what they do."""
        counts = {"answer": self.answer, "refuse": self.refuse, "hang": self.hang}
        does = ", ".join(f"{count} {verb}" for verb, count in counts.items() if count)
        return f"{sum(counts.values())} ({does})"


ASKED = (Addresses(1), Addresses(1, 4), Addresses(1, 49), Addresses(1, 3, 1), Addresses(1, 44, 5))


async def measured(
    opened: Callable[[Addresses], AbstractAsyncContextManager[Sequence[Prober]]],
    pace: Pace,
    sheet: Sheet,
    *,
    rounds: int,
    given: Sequence[Addresses] = ASKED,
) -> None:
    """Fills the sheet; `opened` opens so many addresses to ask, for each of `given`. Of those found up it states the least."""
    rows = sheet.table("Probing all addresses at once")
    pace.expect(len(given) * rounds)
    for addresses in given:
        took, up = list[float](), list[int]()
        for _ in range(rounds):
            async with opened(addresses) as targets:
                if not pace.begin(1, f"addresses: {addresses}"):
                    break
                started = perf_counter()
                up.append(sum(report.status is Status.UP for report in await probe(targets)))
                took.append(perf_counter() - started)
                pace.end(1, took[-1])
        if not took:
            continue
        first = rows[0]["seconds"] if rows else median(took)
        rows.append(
            {
                "addresses": str(addresses),
                "found up": min(up),
                "seconds": median(took),
                "of the first row": median(took) / first if isinstance(first, float) and first else None,
            }
        )
