"""The README's figures, from the committed results: `python -m benchmarks.readme --write`, or `--check` (exit 1 where they differ).

A block stands between `<!-- figures: NAME -->` and `<!-- end -->`; NAME is one of `BLOCKS`.
"""

from __future__ import annotations

import argparse
import json
import math
import re
import sys
from datetime import datetime, timedelta
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from localctx.app.bench.tables import shown
from localctx.errors import LocalctxError, Misuse

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

__all__ = ["BLOCKS", "filled", "main"]

_ROOT = Path(__file__).parent.parent
_RESULTS = Path(__file__).parent / "results"
_BLOCK = re.compile(r"(<!-- figures: ([\w-]+) -->\n).*?(<!-- end -->)", re.DOTALL)

Row: TypeAlias = "dict[str, Any]"
"""A row, or a table."""

_MODELS = {"smollm2-135m": "SmolLM2-135M", "gemma-3-270m": "Gemma 3 270M", "gemma": "Gemma 3 270M"}


def main(arguments: Sequence[str]) -> int:
    """Writes the figures into the README, or says whether they are those of the results."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.readme", description=__doc__)
    parser.add_argument("--readme", type=Path, default=_ROOT / "README.md", help=argparse.SUPPRESS)
    wish = parser.add_mutually_exclusive_group(required=True)
    wish.add_argument("--write", action="store_true", help="write the figures of the results into it")
    wish.add_argument("--check", action="store_true", help="say whether it has the figures of the results")
    given = parser.parse_args(arguments)
    text = given.readme.read_text(encoding="utf-8")
    try:
        figured = filled(text)
    except LocalctxError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    if given.write:
        given.readme.write_text(figured, encoding="utf-8")
    elif figured != text:
        sys.stderr.write(
            f"{given.readme} has other figures than benchmarks/results; run: python -m benchmarks.readme --write\n"
        )
        return 1
    return 0


def filled(text: str) -> str:
    """The text with each block as the results have it.

    Raises `KeyError` for one that there is not, and `Misuse` for results that are missing or cannot stand in one table.
    """
    return _BLOCK.sub(lambda found: found[1] + BLOCKS[found[2]]() + "\n" + found[3], text)


def _document(name: str) -> Row:
    path = _RESULTS / f"{name}.json"
    try:
        document: Row = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise Misuse(
            f"no figures can be read from {path} ({error}); measure them anew, or take the committed file"
        ) from error
    return document


def _tables(name: str) -> list[Row]:
    tables: list[Row] = _document(name)["tables"]
    return tables


def _rows(name: str, number: int = 0) -> list[Row]:
    rows: list[Row] = _tables(name)[number]["rows"]
    return rows


def _titled(name: str, title: str) -> list[Row]:
    """The rows of the table whose title begins so."""
    rows: list[Row] = next(table["rows"] for table in _tables(name) if table["title"].startswith(title))
    return rows


def _table(heads: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    lines = ["| " + " | ".join(heads) + " |", "|" + "---|" * len(heads)]
    return "\n".join([*lines, *("| " + " | ".join(map(shown, row)) + " |" for row in rows)])


def _range(values: Iterable[float], digits: int = 2, unit: str = "") -> str:
    ranked = sorted(values)
    low, high = (f"{value:.{digits}f}" for value in (ranked[0], ranked[-1]))
    return f"{low}{unit}" if low == high else f"{low} to {high}{unit}"


def _percent(text: str) -> float:
    return float(text.removesuffix("%"))


# --- counting -----------------------------------------------------------------------------------------------------

_TEXTS = {
    "english": "English",
    "code": "code",
    "json": "JSON",
    "hex": "hex",
    "logs": "logs",
    "other scripts": "17 other scripts",
    "other latin": "9 more languages in Latin letters",
    "signs": "emoji and symbols",
    "other formats": "9 more formats",
}

_COUNTERS = {
    "last report and what is new": "last report and an estimate of what is new",
    "from scratch, calibrated": "the calibrated estimate alone, as after a compaction",
    "seed": "seed",
}


def _errors() -> str:
    heads = ("texts", "estimate", "truth inside its bound", "seed")
    rows = _rows("counting-errors")
    return _table(
        heads, ((_TEXTS[row["texts"]], row["estimate"], row["inside the bound"], row["seed"]) for row in rows)
    )


def _sessions() -> str:
    rows = _rows("counting-errors", 1)
    found: list[Sequence[object]] = []
    for counter, name in _COUNTERS.items():
        own = [row for row in rows if row["counter"] == counter]
        bounds = [row["inside the bound"] for row in own]
        inside = bounds[0] if not bounds[0].endswith("%") else _range(map(_percent, bounds), 1, " %")
        found.append(
            (
                name,
                _range((_percent(row["median error"]) for row in own), 2, " %"),
                _range((_percent(row["99th percentile"]) for row in own), 1, " %"),
                inside,
            )
        )
    return _table(("counter", "median error", "99th percentile", "truth inside its bound"), found)


def _exact() -> str:
    rows = _rows("counting-exact")
    prompts = {_MODELS[row["model"]]: row["prompt tokens"] for row in rows}
    wrong = {row["counter"]: 0 for row in rows}
    for row in rows:
        wrong[row["counter"]] += row["wrong"]
    tokens = ", ".join(f"{name} {count}" for name, count in prompts.items())
    own, rendered, file = wrong.values()
    return (
        f"{tokens} prompt tokens; wrong: {own} by the server's own count, {rendered} by template and `/tokenize`, {file} by "
        "the model's file alone."
    )


def _turns() -> str:
    rows = _rows("counting-cost")
    whole = _range((row["a message more, us"] / 1000 for row in rows), 2, " ms")
    beyond = _range((row["beyond tokenizing it, us"] for row in rows), 0)
    sizes = f"{', '.join(row['messages before'] for row in rows[:-1])} and {rows[-1]['messages before']}"
    return (
        f"Adding a message of 400 characters to a history of {sizes} messages costs {whole}, of which {beyond} microseconds "
        "are not tokenizing its text."
    )


# --- compaction ---------------------------------------------------------------------------------------------------

_REQUESTS = {
    "in place": "in place",
    "apart": "apart",
    "warmed": "first request after a warmed compaction",
    "cold": "the same, cold",
}


def _place() -> str:
    rows = [
        (
            _MODELS[row["model"]],
            _REQUESTS[row["request"]],
            row["prefilled"],
            f"{row['prefill, s']:.3g} s",
            f"{row['in all, s']:.3g} s",
            row["share of all"],
        )
        for row in _rows("compaction-place")
    ]
    return _table(("model", "request", "prefilled", "prefill", "in all", "of the dearer one"), rows)


def _conversation() -> str:
    rows, turns = _rows("compaction-conversation"), 60
    windows = dict.fromkeys(row["window"] for row in rows)
    found = dict[tuple[str, str], dict[str, str]]()
    for row in rows:
        found.setdefault((row["policy"], row["notes"]), {})[row["window"]] = (
            f"{row['turns refused']} of {turns} turns refused"
            if row["turns refused"]
            else f"{row['prefilled']:,}, {row['of the floor']}"
        )
    return _table(
        ("policy", "notes by", *windows), ((*of, *map(cells.__getitem__, windows)) for of, cells in found.items())
    )


_RECORDED = ("constraints", "files", "commands", "errors", "todos")


def _survival() -> str:
    heads = ("policy", "notes", "compactions", "numbers", "decisions", "kept", "kept or recalled", "invented")
    rows = ((_recorded(row), *(row[name] for name in heads[3:])) for row in _rows("compaction-survival"))
    named = ([row[name] for name in heads[:3]] for row in _rows("compaction-survival"))
    columns = (*heads[:3], "rules, files, commands, errors, todos", *heads[3:])
    return _table(columns, ([*first, *others] for first, others in zip(named, rows, strict=True)))


def _recorded(row: Row) -> str:
    """What the machine records, all kinds together."""
    kept, of = (sum(int(row[kind].split(" of ")[at]) for kind in _RECORDED) for at in (0, 1))
    return f"{kept} of {of}"


def _deciding() -> str:
    rows = _rows("compaction-deciding")
    due = [[row["clear due, ms"], row["compact due, ms"]] for row in (rows[0], rows[-1])]
    return (
        f"Deciding which rung is due (`--only deciding`): {_range(due[0], 2)} ms at {rows[0]['messages']} messages, "
        f"{_range(due[1], 1)} ms at {rows[-1]['messages']}; settling a turn in which none is due "
        f"{_range((row['quiet turn, ms'] for row in rows), 2)} ms at any of these sizes."
    )


# --- localctx bench -----------------------------------------------------------------------------------------------

_BENCHED = ("smollm2-135m", "gemma-3-270m")


def _benched(kind: str) -> Mapping[str, str]:
    """The results of a benchmark that stand in one table: the models, by name. Raises `Misuse` where they slowed each other."""
    names = {f"bench-{kind}-{model}": _MODELS[model] for model in _BENCHED}
    spans = sorted((*_span(_document(name)), name) for name in names)
    for (_, ended, one), (begun, _, other) in pairwise(spans):
        if begun < ended:
            raise Misuse(
                f"{one}.json and {other}.json in {_RESULTS} were measured at the same time and slowed each other, "
                "so they cannot stand in one table; measure one of them anew"
            )
    return names


def _span(document: Row) -> tuple[datetime, datetime]:
    """When it was begun and when it ended: where it does not say, no earlier than by the seconds that its rows took."""
    begun = datetime.fromisoformat(document["begun"])
    if "ended" in document:
        return begun, datetime.fromisoformat(document["ended"])
    cells = (cell for table in document["tables"] for row in table["rows"] for cell in row.items())
    spent = sum(value or 0.0 for name, value in cells if name == "seconds" or name.endswith(", s"))
    return begun, begun + timedelta(seconds=spent)


def _counters() -> str:
    rows = (row for name, model in _benched("tokenizer").items() for row in _of_counters(name, model))
    heads = (
        "server's model",
        "counter",
        "loading, s",
        "memory, MB",
        "count / the server's",
        "farthest off",
        "speed / the library's",
    )
    return _table(heads, rows)


def _of_counters(name: str, model: str) -> Iterable[Sequence[object]]:
    loading, beside = ({row["counter"]: row for row in _titled(name, title)} for title in ("Loading", "Speed beside"))
    for row in _titled(name, "Count"):
        took, shares = (
            loading.get(row["counter"], {}),
            {of: each for of, each in row.items() if isinstance(each, float)},
        )
        farthest = "exact" if row["exact"] else max(shares, key=lambda of: abs(math.log(shares[of])))
        speed = beside[row["counter"]]["all"] if row["counter"] in beside else None
        yield (
            *(model, row["counter"], took.get("seconds"), took.get("memory, MB")),
            *(_range(shares.values()), farthest, speed),
        )


def _counting_speed() -> str:
    """In thousands of tokens."""
    found: list[dict[str, Any]] = [
        {"server's model": model} | row
        for name, model in _benched("tokenizer").items()
        for row in _titled(name, "Tokens")
    ]
    cells = ((f"{each / 1000:,.0f}" if isinstance(each, float) else each for each in row.values()) for row in found)
    return _table([*found[0]], map(tuple, cells))


def _probe() -> str:
    rows = _rows("bench-probe")
    return _table([*rows[0]], (tuple(row.values()) for row in rows))


def _server() -> str:
    found: list[Sequence[object]] = []
    for name, model in _benched("server").items():
        for row in _titled(name, "Reading"):
            speeds = (f"{row['read, tokens/s']:.0f}, {row['read, of the first row']:.2f}", _speed(row))
            found.append((model, row["prompt"], f"{row['first token, s']:.3g} s", *speeds))
    return _table(("model", "prompt", "first token", "read, tokens/s", "written, tokens/s"), found)


def _speed(row: Row) -> str:
    if row["written, tokens/s"] is None or row["written, of the first row"] is None:
        return "-"
    return f"{row['written, tokens/s']:.0f}, {row['written, of the first row']:.2f}"


def _prefix() -> str:
    names = _benched("server")
    heads = list(dict.fromkeys(row["prompt"] for row in _titled(next(iter(names)), "What a change")))
    found: list[Sequence[object]] = []
    for name, model in names.items():
        rows = {row["prompt"]: row for row in _titled(name, "What a change")}
        found.append((model, *(f"{rows[head]['read anew'] / rows[head]['tokens']:.0%}" for head in heads)))
    return _table(("read anew", *heads), found)


_COLUMNS = {
    "notes by": "notes by",
    "freed": "tokens freed",
    "read": "read",
    "written": "written",
    "next request reads": "next request reads",
    "in all, of the first": "in all, of the first row",
    "spread": "spread",
    "facts kept": "kept",
    "kept or found": "kept or found",
}


def _compaction() -> str:
    """A table for each server, below what was compacted."""
    parts = list[str]()
    for table in (each for each in _tables("bench-compaction") if "A compaction" in each["title"]):
        rows = ((row["way"], *(row[name] for name in _COLUMNS.values())) for row in table["rows"])
        parts += [f"{re.sub(r'^[0-9]+[.] ', '', table['title'])}:", _table(("way", *_COLUMNS), rows)]
    return "\n\n".join(parts)


BLOCKS: Mapping[str, Callable[[], str]] = {
    "counting-errors": _errors,
    "counting-sessions": _sessions,
    "counting-exact": _exact,
    "counting-turns": _turns,
    "compaction-place": _place,
    "compaction-conversation": _conversation,
    "compaction-survival": _survival,
    "compaction-deciding": _deciding,
    "bench-tokenizer": _counters,
    "bench-tokenizer-speed": _counting_speed,
    "bench-server": _server,
    "bench-prefix": _prefix,
    "bench-probe": _probe,
    "bench-compaction": _compaction,
}
"""What makes each block."""


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
