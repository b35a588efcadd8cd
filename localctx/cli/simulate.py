"""`localctx simulate`: the lesson on context and memory, step by step; as a table, as JSON, and as a page that plays it."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated

import typer

from localctx.cli.options import AsJson
from localctx.cli.render import Renderer, columns, note, out
from localctx.cli.sessions import spelled
from localctx.errors import Misuse

__all__ = ["command"]

_THRESHOLD = "Compact above this share of the window: 92%, 92 or 0.92 (up to 1 a share, above 1 per cent); or none."


def command(
    window: Annotated[int, typer.Option("--window", help="The window, in tokens.")] = 50_000,
    threshold: Annotated[str, typer.Option("--threshold", metavar="P|none", help=_THRESHOLD)] = "92%",
    memory: Annotated[bool, typer.Option("--memory/--no-memory", help="A file that the next session reads.")] = True,
    new: Annotated[Path | None, typer.Option("--html", help="Write a page that plays it to this new file.")] = None,
    as_json: AsJson = False,
) -> None:
    """Play the lesson on context and memory: what a compaction costs, and what survives it.

    One coding session and the day after it. Its tokens are the lesson's, so no model is asked, and nothing is counted.
    """
    from localctx.cli.lesson_page import document, page
    from localctx.cli.lesson_table import lines
    from localctx.core.lesson import Plan
    from localctx.core.lesson_story import tell

    Renderer(as_json=as_json)
    plan = Plan(gate=_share(threshold), memory=memory, limit=_window(window))
    story = tell(plan)
    if new is not None:
        from localctx.wiring.record import save

        save(new, page(story))
        note(f"wrote {new}; open it in a browser")
    out(spelled(document(story)) if as_json else "\n".join(lines(story, columns())))


def _window(tokens: int) -> int:
    from localctx.config import MOST_TOKENS

    if not 1 <= tokens <= MOST_TOKENS:
        raise Misuse(
            f"--window {tokens:,} is no window; pass a number of tokens from 1 to {MOST_TOKENS:,}, such as 50000"
        )
    return tokens


_NUMBER = re.compile(r"([0-9]{1,9}(?:\.[0-9]{0,20})?|\.[0-9]{1,20}) ?(%?)")
_SHOWN = 40


def _share(text: str) -> float | None:
    """A share of the window, None for `none`. Raises `Misuse` for what is neither that nor above 0 and at most 100 %."""
    if text.strip().lower() == "none":
        return None
    matched = _NUMBER.fullmatch(text.strip())
    number = float(matched[1]) if matched else 0.0
    share = number / 100 if matched and (matched[2] or number > 1) else number
    if not 0 < share <= 1:
        shown = text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."
        raise Misuse(
            f"--threshold {shown!r} is no share of the window above 0 and up to 100%; pass one like 92%, 92 or 0.92, or none"
        )
    return share
