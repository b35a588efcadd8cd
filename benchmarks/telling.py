"""Tables of a proof: shown as Markdown, kept as JSON."""

from __future__ import annotations

import json
import platform
from dataclasses import asdict
from typing import TYPE_CHECKING

from localctx.app.bench.tables import Table, markdown

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

__all__ = ["told"]


def told(tables: Iterable[Table], kept: Path | None, *, quick: bool) -> None:
    """Prints each table as it is made, and keeps all of them in a file, where one is named."""
    made = list[Table]()
    for table in tables:
        print("\n".join(markdown(table)), flush=True)  # noqa: T201  a program's output
        made.append(table)
    if kept is not None:
        machine = f"{platform.machine()}, Python {platform.python_version()}"
        document = {"schema": 1, "machine": machine, "quick": quick, "tables": [asdict(table) for table in made]}
        kept.write_text(json.dumps(document, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
