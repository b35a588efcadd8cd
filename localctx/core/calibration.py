"""What servers' reports teach a counter: how many tokens a unit of each class is, and how sure that is.

A counter says of what classes a request is made up, and what it believes of each before anybody has reported anything.
Each report is one equation in the rates of those classes; the belief that fits it best, weighed by how sure each rate was,
is the next one (recursive least squares). So the overhead of a template and the rates of a vocabulary are learned apart.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from math import ceil, isfinite, sqrt
from typing import TYPE_CHECKING

from localctx.core.accounting import Count

if TYPE_CHECKING:
    from collections.abc import Sequence

    from localctx.core.accounting import Makeup

__all__ = ["Calibration", "Rate"]


@dataclass(frozen=True, slots=True)
class Rate:
    """Tokens of one unit of a class, before any report.

    `spread` is how far that may be off for a model (vocabularies and templates differ), `noise` how far for one long text
    of a model whose rate is known (ten times as far for a single unit); both in tokens a unit, and so far that nearly
    nothing lies beyond. `shared` is the share of the spread that goes the same way for all classes.
    """

    tokens: float
    spread: float
    noise: float
    shared: float = 0.0


@dataclass(frozen=True, slots=True)
class Calibration:
    """The rates of a counter's classes, how they may be off together, and the noise that stays.

    `reports` is how many reports of servers it has learned from.
    """

    rates: tuple[float, ...]
    covariance: tuple[tuple[float, ...], ...]
    noise: tuple[float, ...]
    reports: int = 0

    @classmethod
    def of(cls, rates: Sequence[Rate]) -> Calibration:
        """What is believed before any report."""
        common = [rate.spread * rate.shared for rate in rates]
        covariance = tuple(
            tuple(rate.spread**2 if i == j else common[i] * common[j] for j in range(len(rates)))
            for i, rate in enumerate(rates)
        )
        return cls(tuple(rate.tokens for rate in rates), covariance, tuple(rate.noise for rate in rates))

    def count(self, makeup: Makeup, how: str) -> Count:
        """The tokens of what is made up so, and their bound."""
        used = [(index, units) for index, units in enumerate(makeup) if units]
        tokens = sum(self.rates[index] * units for index, units in used)
        doubt = sum(units * self._pull(index, used) for index, units in used) + self._unrest(used)
        return Count(ceil(tokens), ceil(sqrt(max(doubt, 0.0))), how)

    def learned(self, makeup: Makeup, tokens: int) -> Calibration:
        """The calibration after a server has measured what is made up so; nothing is learned of nothing.

        The further a measure lies beyond the bound, the less it teaches.
        """
        used = [(index, units) for index, units in enumerate(makeup) if units]
        pull = [self._pull(index, used) for index in range(len(self.rates))]
        surprise = tokens - sum(self.rates[index] * units for index, units in used)
        doubt = sum(units * pull[index] for index, units in used) + self._unrest(used)
        if doubt <= 0:
            return self
        doubt = max(doubt, surprise**2)
        rates = tuple(max(rate + share * surprise / doubt, 0.0) for rate, share in zip(self.rates, pull, strict=True))
        covariance = tuple(
            tuple(value - mine * other / doubt for value, other in zip(row, pull, strict=True))
            for row, mine in zip(self.covariance, pull, strict=True)
        )
        return Calibration(rates, covariance, self.noise, self.reports + 1)

    def burdened(self, frame: Makeup, tokens: int) -> Calibration:
        """With so many tokens more in each `frame`: what a server adds that nobody sent. As unsure as it is large."""
        more = [tokens / units if units else 0.0 for units in frame]
        rates = tuple(rate + each for rate, each in zip(self.rates, more, strict=True))
        covariance = tuple(
            tuple(value + each**2 * (i == j) for j, value in enumerate(row))
            for i, (row, each) in enumerate(zip(self.covariance, more, strict=True))
        )
        return Calibration(rates, covariance, self.noise, self.reports)

    def widened(self) -> Calibration:
        """Half as sure of everything: a measure has shown that it was too sure."""
        covariance = tuple(tuple(4 * value for value in row) for row in self.covariance)
        return Calibration(self.rates, covariance, self.noise, self.reports)

    def kept(self) -> str:
        """As JSON text, to nine digits."""
        rows = [[_short(value) for value in row[: index + 1]] for index, row in enumerate(self.covariance)]
        return json.dumps({"rates": [*map(_short, self.rates)], "covariance": rows, "reports": self.reports})

    def restored(self, text: str) -> Calibration | None:
        """What `kept` gave for a counter of the same classes; None where the text is anything else."""
        try:
            read = json.loads(text)
            rates, rows, reports = read["rates"], read["covariance"], read["reports"]
            fits = [len(rates), *map(len, rows)] == [len(self.rates), *range(1, len(self.rates) + 1)]
            if not fits or not all(isfinite(value) for row in (rates, *rows) for value in row) or int(reports) < 0:
                return None
        except (ValueError, TypeError, KeyError, RecursionError, OverflowError):
            return None
        return self._sane(tuple(map(float, rates)), rows, int(reports))

    def _sane(self, rates: tuple[float, ...], rows: Sequence[Sequence[float]], reports: int) -> Calibration | None:
        """A calibration of rates not too far from these, and of doubts that can be; None where they are not."""
        size = range(len(rows))
        spreads = [_FURTHEST * sqrt(self.covariance[i][i]) for i in size]
        near = all(0 <= rates[i] <= self.rates[i] + spreads[i] and 0 <= rows[i][i] <= spreads[i] ** 2 for i in size)
        if not near or any(rows[i][j] ** 2 > 1.001 * rows[i][i] * rows[j][j] for i in size for j in range(i)):
            return None
        covariance = tuple(tuple(float(rows[max(i, j)][min(i, j)]) for j in size) for i in size)
        return Calibration(rates, covariance, self.noise, reports)

    def _pull(self, index: int, used: Sequence[tuple[int, float]]) -> float:
        """How far a surprise moves one rate: its covariance with the whole."""
        row = self.covariance[index]
        return sum(row[other] * units for other, units in used)

    def _unrest(self, used: Sequence[tuple[int, float]]) -> float:
        """The noise of a text whose rates are known; a short one varies more."""
        return sum(self.noise[index] ** 2 * units * (units + _SHORT) for index, units in used)


_SHORT = 100
"""Units from which on texts of one kind are much alike (measured on chunks of many kinds of text)."""


_FURTHEST = 100
"""How many spreads from what was believed at first a rate may be to be restored: what is further was a mistake."""


def _short(value: float) -> float:
    return float(f"{value:.9g}")
