"""Figures in tables."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["Sheet", "Table", "cells", "markdown", "shown"]


@dataclass(frozen=True, slots=True)
class Table:
    """Figures in rows that have the same columns. A cell that is None could not be measured."""

    title: str
    rows: list[dict[str, object]] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Sheet:
    """What a benchmark has found so far: a table grows by a row as soon as that is measured; notes are sentences."""

    tables: list[Table] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def table(self, title: str) -> list[dict[str, object]]:
        """Begins a table; its rows, to be added to."""
        self.tables.append(Table(title))
        return self.tables[-1].rows


def cells(table: Table) -> list[list[str]]:
    """The heads of the columns, and each row, as text."""
    return [list(table.rows[0]) if table.rows else [], *([*map(shown, row.values())] for row in table.rows)]


def markdown(table: Table) -> Iterator[str]:
    """The lines of the table as Markdown."""
    heads, *rows = cells(table)
    yield f"### {table.title}\n"
    yield "| " + " | ".join(heads) + " |"
    yield "|" + " --- |" * len(heads)
    for row in rows:
        yield "| " + " | ".join(row) + " |"
    yield ""


def shown(value: object) -> str:
    """One cell for people: three digits are enough, and what could not be measured is a dash."""
    match value:
        case None:
            return "-"
        case bool():
            return "yes" if value else "no"
        case int():
            return f"{value:,}"
        case float():
            return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"  # noqa: PLR2004  whole from a thousand on
    return str(value)
