"""The window as a picture, the bar below the line that is typed, and what a session took: lines for people, nothing printed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from localctx.cli.wording import clipped, figure

if TYPE_CHECKING:
    from collections.abc import Iterator

    from localctx.core.accounting import Totals
    from localctx.core.filling import Filling
    from localctx.core.window import Budget

__all__ = ["Standing", "bar", "costs", "picture", "shares"]

Styled = list[tuple[str, str]]
"""Pieces of one line, each with its style: as rich calls it in a picture, as prompt_toolkit does in the bar."""


# --- /context -----------------------------------------------------------------------------------------------------

_SIGNS = {
    "system": ("S", "cyan"),
    "schemas": ("s", "blue"),
    "checkpoint": ("C", "magenta"),
    "user": ("u", "green"),
    "assistant": ("a", "yellow"),
    "tools": ("t", "red"),
    "other": ("o", ""),
    "free": (".", ""),
    "reserve": ("r", ""),
}
_NAMES = {"schemas": "tool schemas", "tools": "tool results", "other": "template", "reserve": "for the reply"}
_WIDEST, _BIGGEST = 60, 3


def picture(filling: Filling, budget: Budget, columns: int) -> Iterator[Styled]:
    """What fills the window, as a bar and a list that read without colour, and the tools that take most of it."""
    parts = {name: tokens for name, tokens in _parts(filling, budget).items() if tokens}
    cells = shares(list(parts.values()), min(columns - 2, _WIDEST))
    signs = [(_SIGNS[name][1], _SIGNS[name][0] * count) for name, count in zip(parts, cells, strict=True)]
    yield [("", "["), *signs, ("", "]")]
    for name, tokens in parts.items():
        sign, style = _SIGNS[name]
        label = f" {_NAMES.get(name, name):<14}{figure(tokens):>7}  {tokens * 100 / budget.window:5.1f}%"
        yield [("", "  "), (style, sign), ("", label)]
    yield from ([("", line)] for line in _biggest(filling))


def _parts(filling: Filling, budget: Budget) -> dict[str, int]:
    """The window divided; its parts add up to it, unless more is in it than it holds."""
    parts = dict(filling.parts)
    known = {name: parts.get(name, 0) for name in _SIGNS if name in parts}
    kept = min(budget.reserve, max(budget.window - filling.used, 0))
    free = max(budget.window - filling.used - kept, 0)
    return known | {"other": max(filling.used - sum(known.values()), 0), "free": free, "reserve": kept}


def shares(parts: list[int], cells: int) -> list[int]:
    """So many cells divided as the parts are; a part has at least one as long as there are enough."""
    whole = max(sum(parts), 1)
    least = [1 if part and len(parts) <= cells else 0 for part in parts]
    left = max(cells - sum(least), 0)
    exact = [part * left / whole for part in parts]
    given = [int(each) for each in exact]
    by_rest = sorted(range(len(parts)), key=lambda at: given[at] - exact[at])
    for at in by_rest[: left - sum(given)]:
        given[at] += 1
    return [one + more for one, more in zip(least, given, strict=True)]


def _biggest(filling: Filling) -> Iterator[str]:
    """The tools that take most, a line each."""
    of = {
        name: (filling.results.get(name, 0), filling.schemas.get(name, 0))
        for name in {**filling.results, **filling.schemas}
    }
    for name, (results, schema) in sorted(of.items(), key=lambda each: (-sum(each[1]), each[0]))[:_BIGGEST]:
        taken = [f"results {figure(results)}"] if results else []
        taken += [f"schema {figure(schema)}"] if schema else []
        yield f"    {name}: {', '.join(taken) or 'nothing'}"


# --- the bottom bar -----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Standing:
    """How a chat stands: sizes in tokens, `warn` and `compact` as shares of the window."""

    model: str
    session: str | None
    source: str
    used: int
    window: int
    warn: float
    compact: float


_SCALE = 10


def bar(standing: Standing, columns: int) -> Styled:
    """One line that fits: the pressure first, the window and its source, the model, a scale, the session; the last goes first."""
    full = standing.used / max(standing.window, 1)
    style, mark = _pressure(full, standing)
    pressure = f"{int(full * 100)}% full{mark}"
    source = f"{figure(standing.window)} {standing.source}"
    filled = min(round(full * _SCALE), _SCALE)
    scale = f"[{'#' * filled}{'.' * (_SCALE - filled)}]"
    parts = [("", source), (style, pressure)]
    room = columns - 2 - _width(parts)
    if room >= _SHORT_NAME + len(_BETWEEN):
        name = clipped(standing.model, min(room - len(_BETWEEN), max(columns // 3, _SHORT_NAME)))
        parts.insert(0, ("bold", name))
    for place, text in ((len(parts), scale), (len(parts) + 1, standing.session or "")):
        if text and _width([*parts, ("", text)]) <= columns - 2:
            parts.insert(place, ("", text))
    line: Styled = [("", " ")]
    for at, part in enumerate(parts):
        line += [("", _BETWEEN), part] if at else [part]
    return line


_BETWEEN, _SHORT_NAME = " | ", 6


def _pressure(full: float, standing: Standing) -> tuple[str, str]:
    """The style of a pressure, and what says the same without colour."""
    if full >= standing.compact:
        return "bold ansired", " !!"
    return ("bold ansiyellow", " !") if full >= standing.warn else ("", "")


def _width(parts: Styled) -> int:
    from rich.cells import cell_len

    return sum(cell_len(text) for _, text in parts) + len(_BETWEEN) * (len(parts) - 1)


# --- /cost --------------------------------------------------------------------------------------------------------


def costs(totals: Totals) -> Iterator[str]:
    """What all replies of a session took, a line each; what no server reported is said to be unknown."""
    if not totals.requests:
        yield "nothing was asked yet"
        return
    yield f"requests  {totals.requests:,}"
    yield f"prompts   {_reported(totals.prompt)}{_cached(totals)}"
    yield f"replies   {_reported(totals.completion)}"
    read = totals.prompt - totals.cached if totals.cached_of == totals.prompt else 0
    yield f"reading   {_time(totals.prefill_seconds, read)}"
    yield f"writing   {_time(totals.decode_seconds, totals.completion)}"


def _reported(tokens: int) -> str:
    return f"{figure(tokens)} tokens" if tokens else "no server reported it"


def _cached(totals: Totals) -> str:
    if not totals.cached_of:
        return "; no server said how many came from its cache"
    of = "" if totals.cached_of == totals.prompt else f" of {figure(totals.cached_of)}"
    return f", {totals.cached * 100 // totals.cached_of}%{of} from the cache"


def _time(seconds: float, tokens: int) -> str:
    if not seconds:
        return "no server reported it"
    return f"{seconds:,.1f} s" + (f", {tokens / seconds:,.0f} tokens/s" if tokens else "")
