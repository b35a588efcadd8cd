"""`localctx work`: where the work of a session stands, as the model recorded it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer

from localctx.cli.options import AsJson
from localctx.cli.render import out
from localctx.cli.sessions import Name, counted, spelled, when

if TYPE_CHECKING:
    from collections.abc import Sequence

    from localctx.core.messages import History
    from localctx.core.record import Compaction

__all__ = ["app"]

app = typer.Typer(name="work", help="Where the work of a session stands.", no_args_is_help=True)


@app.command()
def show(session: Name = None, as_json: AsJson = False) -> None:
    """Show what the model recorded, and the latest checkpoint."""
    from localctx.core.journal import project
    from localctx.core.record import compactions
    from localctx.wiring import record

    kept = record.read(session)
    history, made = project(kept.entries), [each for each in compactions(kept.entries) if not each.undone]
    out(spelled(_fields(kept.name, history, made)) if as_json else "\n".join(_told(kept.name, history, made)))
    if kept.damage:
        raise kept.damage


@app.command()
def clear(session: Name = None) -> None:
    """Forget it; what was said stays."""
    from localctx.wiring import record

    out(f"the work state of session {record.clear_work(session)} is empty")


def _fields(name: str, history: History, made: Sequence[Compaction]) -> dict[str, object]:
    from localctx.core.work import as_json

    return {
        "schema": 1,
        "session": name,
        "work": as_json(history.work),
        "compactions": len(made),
        "latest": made[-1].entry.at if made else None,
        "checkpoint": _checkpoint(history) or None,
    }


def _told(name: str, history: History, made: Sequence[Compaction]) -> list[str]:
    from localctx.core.work import lines

    state = list(lines(history.work)) or ["No task state recorded yet."]
    if not made:
        return [*state, f"No compaction has happened in session {name}."]
    text = _checkpoint(history)
    summary = text if len(text) <= _SHOWN else text[:_SHOWN] + "…"
    return [*state, "", f"{counted(len(made), 'compaction')}, the latest {when(made[-1].entry.at)}:", summary]


_SHOWN = 500
"""The characters of a checkpoint that are shown (seed)."""


def _checkpoint(history: History) -> str:
    from localctx.core.checkpoint import render

    return render(history.checkpoint) if history.checkpoint else ""
