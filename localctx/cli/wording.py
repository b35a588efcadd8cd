"""What a person is told of an event, in one line, and how figures and texts are shortened for that."""

from __future__ import annotations

import json
import textwrap
from typing import TYPE_CHECKING

from localctx.core import events as e
from localctx.core.accounting import figure
from localctx.core.approval import COMMAND, WRITERS
from localctx.core.results import unframed

if TYPE_CHECKING:
    from localctx.core.window import EffectiveWindow

__all__ = ["clipped", "figure", "source_text", "told", "window_text", "wrapped"]


def clipped(text: str, cells: int) -> str:
    """A text in one line, and as much of it as finds room in so many columns of a terminal."""
    from rich.cells import cell_len, set_cell_size

    line = " ".join(text.split())
    return line if cell_len(line) <= cells else set_cell_size(line, cells - 1).rstrip() + "…" if cells > 1 else ""


def wrapped(text: str, columns: int) -> str:
    """Lines that are broken between words where they are wider than a terminal, with what is broken off set in."""
    return "\n".join(
        textwrap.fill(
            line,
            max(columns, _NARROWEST),
            subsequent_indent=" " * (len(line) - len(line.lstrip()) + 2),
            break_long_words=False,
            break_on_hyphens=False,
            replace_whitespace=False,
        )
        for line in text.split("\n")
    )


_NARROWEST = 20


_CALL_WIDTH = 100


def told(event: e.Event) -> str:
    """What a person is told of an event, or nothing."""
    match event:
        case e.WindowProbed(window, runtime, url, model):
            return f"{model} on {runtime} at {url}: {window_text(window)}"
        case e.PressureRaised(used, window):
            return f"context {used * 100 // window}% full of {window:,} tokens: will auto-compact soon"
        case e.RungBegun(_, used, window):
            return f"context window {used * 100 // window}% full ({used:,} of {window:,} tokens): compacting"
        case e.RungTaken():
            return _rung_line(event)
        case e.ToolCalled(_, name, arguments):
            return textwrap.shorten(f"* {name} {_main_argument(arguments)}", _CALL_WIDTH, placeholder=" ...")
        case e.ToolAnswered(_, name, size, shown):
            return "  " + textwrap.shorten(f"{name}: {_came(name, size, shown)}", _CALL_WIDTH, placeholder=" ...")
        case e.Truncated():
            return _truncated_line(event)
        case e.Notice(_, text):
            return text
    return ""


def _came(name: str, size: int, shown: str) -> str:
    """What came of a call: of what changed something, its own words; of what was read, how much it is."""
    if shown.startswith("error:"):
        return shown
    lines = [line for line in unframed(shown).splitlines() if line.strip()]
    if name == COMMAND and lines:
        return " | ".join(lines[-_LAST_LINES:])
    return lines[0] if name in WRITERS and len(lines) == 1 else f"{size:,} characters"


_LAST_LINES = 3
"""The lines of a command's output that are shown: how it ended, and what it said last."""


def _main_argument(arguments: str) -> str:
    """The first argument of a call that is a text, else all of them as the model wrote them."""
    try:
        given = json.loads(arguments)
    except (ValueError, RecursionError):
        return arguments
    texts = [each for each in given.values() if isinstance(each, str)] if isinstance(given, dict) else []
    return texts[0] if texts else arguments if given else ""


def _truncated_line(event: e.Truncated) -> str:
    arrived = f"{event.reported:,} of {event.expected.tokens:,} prompt tokens arrived ({event.expected.how})"
    missed = f"about {event.unseen} message{'' if event.unseen == 1 else 's'} did not reach the model"
    then = "making room and asking again" if event.again else "its answer was made without them"
    return f"the server dropped context in silence: {arrived}; {missed}: {then}"


def _rung_line(event: e.RungTaken) -> str:
    saved = event.tokens_before - event.tokens_after
    shrunk = f"{event.messages_before} -> {event.messages_after} messages (saved about {saved:,} tokens, {event.seconds:.1f} s)"
    match event.rung.value:
        case "compact":
            return f"compacted {shrunk}, {_AUTHORS.get(event.how, event.how)}"
        case "trim":
            return f"still over budget: dropped the oldest without summarizing them, {shrunk}; they stay in the journal"
        case _:
            return f"cleared old tool results, {shrunk}"


_AUTHORS = {
    "model": "a summary by the model",
    "prepared": "a summary that the model wrote while nobody waited",
    "machine": "the record alone, no summary by the model",
}


def window_text(window: EffectiveWindow) -> str:
    """A window with its source, for people."""
    if window.tokens is None or window.decided_by is None:
        return "window unknown"
    return f"window {window.tokens:,} tokens, {window.confidence} ({source_text(window)})"


def source_text(window: EffectiveWindow) -> str:
    """Who says a window, for people."""
    decided = window.decided_by
    if decided is None:
        return "nobody says it"
    if window.tokens == decided.tokens:
        return decided.where
    return f"{decided.where} says {decided.tokens:,}, --max-context lowers it"
