"""Where the rates of the estimate come from: `python -m benchmarks.fit_rates [--gguf FILE]...`.

Fits, for each vocabulary at hand, the rates of all classes to samples of the corpus (least squares of the relative errors,
none below nought), and prints them beside what the estimate believes: its rate should be near the dearest, and its spread
reach the cheapest. The published rates were rounded from such tables of generated and of real texts.
"""

from __future__ import annotations

import argparse
import statistics
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.vocabularies import vocabularies
from localctx.app.bench.corpus import KINDS, sample
from localctx.tokenizers.estimate import RATES, classes

if TYPE_CHECKING:
    from collections.abc import Sequence

    from localctx.ports import Tokenizer

_SIZE, _SEEDS = 2_000, range(8)
_ROUNDS = 2_000


def main() -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.fit_rates", description=__doc__)
    parser.add_argument("--gguf", type=Path, action="append", default=[], help="a model to fit to; may be given again")
    truths = vocabularies(parser.parse_args().gguf)
    texts = [sample(kind, _SIZE, seed) for kind in KINDS for seed in _SEEDS]
    makeups = [classes(text) for text in texts]
    fits = {name: _fit(makeups, [truth.size(text) for text in texts]) for name, truth in truths.items()}
    _print("class", "believed", *truths)
    for place, (name, rate) in enumerate(RATES.items()):
        _print(name, f"{rate.tokens:.2f}+-{rate.spread:.2f}", *(f"{fit[place]:.2f}" for fit in fits.values()))
    errors = [_error(makeups, texts, truth, fits[name]) for name, truth in truths.items()]
    _print("median error", "", *(f"{error:.1%}" for error in errors))


def _print(*cells: str) -> None:
    print("".join(f"{cell:<16}" for cell in cells))  # noqa: T201  a program's output


def _fit(makeups: Sequence[Sequence[float]], tokens: Sequence[int]) -> list[float]:
    """The rates that fit best, by descent along one class after the other."""
    rows = [[units / truth for units in makeup] for makeup, truth in zip(makeups, tokens, strict=True)]
    size = range(len(rows[0]))
    square = [[sum(row[i] * row[j] for row in rows) for j in size] for i in size]
    right = [sum(row[i] for row in rows) for i in size]
    rates = [0.0] * len(size)
    for _ in range(_ROUNDS):
        for i in size:
            if square[i][i] > 0:
                pull = right[i] - sum(square[i][j] * rates[j] for j in size)
                rates[i] = max(rates[i] + pull / square[i][i], 0.0)
    return rates


def _error(makeups: Sequence[Sequence[float]], texts: Sequence[str], truth: Tokenizer, rates: Sequence[float]) -> float:
    """The median share by which the fitted rates miss the texts that they were fitted to."""
    return statistics.median(
        abs(sum(rate * units for rate, units in zip(rates, makeup, strict=True)) / truth.size(text) - 1)
        for makeup, text in zip(makeups, texts, strict=True)
    )


if __name__ == "__main__":
    main()
