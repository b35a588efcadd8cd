"""Tables drawn as SVG: for each column of figures a panel of bars, one a row. A chart of bars needs no library."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from localctx.app.bench.tables import Table

__all__ = ["svg"]

_LINE, _BAR, _CHARACTER, _PANEL, _GAP = 18, 12, 7, 170, 30
"""Pixels: a row, a bar in it, the width of a character, the widest bar, and what is between panels."""

_FONT = "DejaVu Sans, Liberation Sans, Arial, Helvetica, sans-serif"
_INK, _FILL = "#222222", "#4878a8"


def svg(title: str, tables: Sequence[Table]) -> str:
    """A picture of the tables, below each other, as a document."""
    parts, top, width = list[str](), 2 * _LINE, _CHARACTER * len(title)
    for table in tables:
        right, bottom = _extent(table, top)
        parts += _drawn(table, top)
        width, top = max(width, right), bottom
    size = f'width="{width + _GAP}" height="{top}" font-family="{_FONT}" font-size="11" fill="{_INK}"'
    begin = [f'<svg xmlns="http://www.w3.org/2000/svg" {size}>', '<rect width="100%" height="100%" fill="white"/>']
    return "\n".join([*begin, _text(10, _LINE, title, bold=True), *parts, "</svg>\n"])


def _extent(table: Table, top: int) -> tuple[int, int]:
    """How far a table reaches to the right, and where what is below it begins."""
    panels = max(len(_columns(table)), 1)
    return _label(table) + panels * (_PANEL + 3 * _GAP), top + _LINE * (len(table.rows) + 4)


def _columns(table: Table) -> list[str]:
    """The columns with figures, but for the one that names the rows."""
    names = list(table.rows[0])[1:]
    return [name for name in names if any(_figure(row.get(name)) is not None for row in table.rows)]


def _figure(value: object) -> float | None:
    return float(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else None


def _label(table: Table) -> int:
    """Where the first panel begins: behind the longest name of a row."""
    return 20 + _CHARACTER * max(len(_named(row)) for row in table.rows)


def _named(row: dict[str, object]) -> str:
    first = next(iter(row.values()))
    return f"{first:,}" if isinstance(first, int) else str(first)


def _drawn(table: Table, top: int) -> Iterator[str]:
    yield _text(10, top + _LINE, table.title, bold=True)
    begin = _label(table)
    for number, row in enumerate(table.rows):
        yield _text(10, top + _LINE * (number + 3), _named(row))
    for place, name in enumerate(_columns(table)):
        left = begin + place * (_PANEL + 3 * _GAP)
        yield _text(left, top + 2 * _LINE, name)
        yield from _panel([_figure(row.get(name)) for row in table.rows], left, top + 2 * _LINE)


def _panel(values: Sequence[float | None], left: int, top: int) -> Iterator[str]:
    most = max((abs(value) for value in values if value is not None), default=0.0)
    for number, value in enumerate(values):
        if value is None:
            continue
        long = round(_PANEL * abs(value) / most) if most else 0
        y = top + _LINE * number + (_LINE - _BAR)
        yield f'<rect x="{left}" y="{y}" width="{long}" height="{_BAR}" fill="{_FILL}"/>'
        yield _text(left + long + 4, y + _BAR - 2, f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}")  # noqa: PLR2004  three digits are enough


def _text(x: int, y: int, text: str, *, bold: bool = False) -> str:
    weight = ' font-weight="bold"' if bold else ""
    return f'<text x="{x}" y="{y}"{weight}>{escape(text)}</text>'
