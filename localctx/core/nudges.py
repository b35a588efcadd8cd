"""What an agent is told beside the conversation: how full the window is, that it was compacted, what it has done already.

Nudges stand at the end of one request and are never stored.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from localctx.core.facts import FACT_TITLES, learnt
from localctx.core.messages import Facts, ToolCycle
from localctx.core.steps import percent

if TYPE_CHECKING:
    from localctx.core.messages import History

__all__ = ["CRITICAL", "WARNING", "pressure", "progress", "resumed"]

WARNING, CRITICAL = 0.70, 0.90
"""The shares of the window from which an agent is warned (seed)."""


def pressure(used: int, window: int, compact_at: float, *, warning: float = WARNING, critical: float = CRITICAL) -> str:
    """The warning that is due where `used` tokens of a window are taken; empty below the first share, and of no window."""
    if window <= 0 or used < warning * window:
        return ""
    said = f"{percent(used, window)}% of the {window:,}-token context budget used"
    if used >= critical * window:
        return f"[CONTEXT CRITICAL: {said}. Write down NOW what must not be lost, and finish the step at hand.]"
    return f"[CONTEXT WARNING: {said}. Older messages are summarized automatically at {compact_at:.0%}; keep results short.]"


def resumed(used: int, window: int, history: History, *, critical: float = CRITICAL) -> str:
    """What an agent is told with the first request after a compaction, instead of a warning.

    What the last calls did is not told: their results stand right above.
    """
    still = (
        f" The context is still {percent(used, window)}% of {window:,} tokens." if used >= critical * window > 0 else ""
    )
    said = "older messages are now the notes at the beginning. Go on with the task from there."
    return "\n".join(filter(None, [f"[CONTEXT COMPACTED: {said}{still}]", progress(_out_of_sight(history))]))


def _out_of_sight(history: History) -> History:
    """The history without the calls whose results a request ends with: they stand right above what is told."""
    newest = next(history.newest_first(), None)
    return history.before(newest.seq) if isinstance(newest, ToolCycle) else history


def progress(history: History) -> str:
    """What the calls in the history have done already, a list a line; empty where there is nothing (seed)."""
    facts = learnt(Facts(), [unit for _, unit in history.units() if isinstance(unit, ToolCycle)])
    lists = {title: getattr(facts, name) for name, title in FACT_TITLES.items()}
    lines = [f"{title}: {_listed(items)}" for title, items in lists.items() if items]
    lines += [f"Most recent action: {facts.last_action}"] if facts.last_action else []
    return "\n".join(["Done already, do not redo it:", *lines]) if lines else ""


_MOST = 15


def _listed(items: tuple[str, ...]) -> str:
    more = f"; +{len(items) - _MOST} more" if len(items) > _MOST else ""
    return "; ".join(items[:_MOST]) + more
