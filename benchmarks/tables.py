"""Figures in tables: shown as Markdown, kept as JSON."""

from __future__ import annotations

import json
import platform
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

__all__ = ["Table", "told"]


@dataclass(frozen=True, slots=True)
class Table:
    """Figures in rows that have the same columns."""

    title: str
    rows: list[dict[str, object]] = field(default_factory=list)

    def lines(self) -> Iterable[str]:
        """The table as Markdown."""
        columns = list(self.rows[0]) if self.rows else []
        yield f"### {self.title}\n"
        yield "| " + " | ".join(columns) + " |"
        yield "|" + " --- |" * len(columns)
        for row in self.rows:
            yield "| " + " | ".join(_shown(value) for value in row.values()) + " |"
        yield ""


def _shown(value: object) -> str:
    return f"{value:.3g}" if isinstance(value, float) else str(value)


def told(tables: Iterable[Table], kept: Path | None, *, quick: bool) -> None:
    """Prints each table as it is made, and keeps all of them in a file, where one is named."""
    made = list[Table]()
    for table in tables:
        print("\n".join(table.lines()), flush=True)  # noqa: T201  a program's output
        made.append(table)
    if kept is not None:
        machine = f"{platform.machine()}, Python {platform.python_version()}"
        document = {"schema": 1, "machine": machine, "quick": quick, "tables": [asdict(table) for table in made]}
        kept.write_text(json.dumps(document, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
