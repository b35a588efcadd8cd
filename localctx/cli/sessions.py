"""`localctx sessions`: what was said in saved sessions, and what can be done with them."""

from __future__ import annotations

import json
import re
import shutil
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from localctx.cli.options import AsJson
from localctx.cli.render import note, out
from localctx.errors import Misuse

if TYPE_CHECKING:
    from localctx.core.journal import Entry
    from localctx.core.record import Compaction
    from localctx.stores.sessions import Listed
    from localctx.wiring.record import Kept

__all__ = ["Name", "app", "counted", "spelled", "when"]

app = typer.Typer(name="sessions", help="Saved sessions: look, export, fork, undo, remove.", no_args_is_help=True)

Name = Annotated[
    str | None, typer.Argument(metavar="[ID]", help="A session, or a beginning of its name; else the newest.")
]


@app.command("list")
def list_sessions(as_json: AsJson = False) -> None:
    """List the sessions, the one that was written last first."""
    from localctx.wiring import record

    found = record.sessions().listed()
    if as_json:
        rows = [{name: None if value == "" else value for name, value in asdict(each).items()} for each in found]
        out(spelled({"schema": 1, "sessions": rows}))
    else:
        column = min(max((len(each.name) for each in found), default=0), _LONG_NAME)
        lines = "\n".join(line for each in found for line in _listed(each, column))
        out(lines or "No session yet; begin one with: localctx run")
    for each in found:
        if each.trouble:
            note(each.trouble)


_NARROW, _LONG_NAME = 40, 24


def _listed(one: Listed, column: int) -> Iterator[str]:
    """A session in two lines: its name and first words, then its figures; in three where something is wrong with it."""
    width, name = max(shutil.get_terminal_size().columns, _NARROW), one.name.ljust(column)
    yield f"{name}  {_clipped(one.first_words or '(nothing was said)', width - len(name) - 2)}".rstrip()
    figures = [when(one.written), counted(one.messages, "message"), counted(one.compactions, "compaction")]
    yield "  " + _clipped(", ".join([*figures, f"{-(-one.size_bytes // 1000):,} kB", one.model or "no model"]), width - 2)
    if one.trouble:
        yield "  ! damaged: what is behind the damage is not counted"


def _clipped(text: str, cells: int) -> str:
    """A text in one line, and as much of it as finds room in so many columns of a terminal."""
    from rich.cells import cell_len, set_cell_size

    line = " ".join(text.split())
    return line if cell_len(line) <= cells else set_cell_size(line, cells - 1).rstrip() + "…" if cells > 1 else ""


@app.command()
def show(
    session: Name = None,
    compactions: Annotated[bool, typer.Option("--compactions", help="Each compaction, with its summary.")] = False,
    message: Annotated[int | None, typer.Option("--message", help="The message on this journal line, whole.")] = None,
    as_json: AsJson = False,
) -> None:
    """Show a session in figures, its compactions, or one of its messages."""
    from localctx.core.record import compactions as compactions_of
    from localctx.wiring import record

    if compactions and message is not None:
        raise Misuse("--compactions and --message exclude each other; pass one")
    kept = record.read(session, texts=message is not None)
    if message is not None:
        fields, text = _message(kept, message)
    elif compactions:
        rows = [_compaction(each) for each in compactions_of(kept.entries)]
        none = f"No compaction has happened in session {kept.name}."
        fields, text = {"compactions": rows}, "\n\n".join(map(_told, rows)) or none
    else:
        fields = _figures(kept)
        text = _told({"session": kept.name, **fields})
    out(spelled({"schema": 1, "session": kept.name, **fields}) if as_json else text)
    if kept.damage:
        raise kept.damage


def _figures(kept: Kept) -> dict[str, object]:
    from localctx.core.record import overview
    from localctx.core.work import as_json

    seen = overview(kept.entries)
    figures = {name: getattr(seen, name) for name in ("messages", "taken_back", "compactions", "compactions_undone")}
    return {
        "created": kept.header.get("created"),
        "forked_from": kept.header.get("forked_from"),
        "written": kept.written,
        "model": seen.window.get("model"),
        "window": seen.window.get("tokens"),
        "confidence": seen.window.get("confidence"),
        **figures,
        "undone_lines": seen.undone,
        "bytes": kept.size_bytes,
        "folder": str(kept.folder),
        "tools": [asdict(each) for each in seen.tools],
        "work": as_json(seen.work),
        "trouble": str(kept.damage) if kept.damage else None,
    }
