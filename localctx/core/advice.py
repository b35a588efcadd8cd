"""What a person is told of a window before anything is said in it, and of a request that it cannot take."""

from __future__ import annotations

from typing import TYPE_CHECKING

from localctx.core.events import Notice
from localctx.core.window import Source

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from localctx.core.accounting import Count
    from localctx.core.window import Budget, EffectiveWindow, ModelReport

__all__ = ["cannot_call", "crowded", "not_as_wished", "too_long", "waiting"]

_MUCH = 0.25
"""The share of a window that is worth a word where system prompt and tools take it."""


_ELSEWHERE = {"no-tools", "half-window"}
"""Warnings that are no news at the start of a run: what is told with the tools, and what only other clients meet with."""


def not_as_wished(window: EffectiveWindow, report: ModelReport) -> Iterator[Notice]:
    """What is not as it was asked for, what the server warns of, and what is only assumed."""
    for pin in (each for each in window.readings if each.source is Source.PINNED):
        if window.tokens is not None and pin.tokens > window.tokens:
            text = f"{pin.tokens:,} tokens were asked for ({pin.where}); {window.tokens:,} are to be had"
            yield Notice("pin-not-met", text)
    for advice in (each for each in report.warnings if each.code not in _ELSEWHERE):
        yield Notice(advice.code, f"{advice.text}; {advice.fix}")
    if window.decided_by and window.decided_by.source is Source.ASSUMED:
        text = f"nobody states the window of {report.id}: assuming {window.tokens:,} tokens; pass --num-ctx to say it"
        yield Notice("assumed", text)


def crowded(system: int, tools: int, schemas: int, window: int) -> Notice | None:
    """That the system's words and the `schemas` of so many tools, in tokens, take much of a window; None where they do not."""
    taken = system + schemas
    if taken <= window * _MUCH:
        return None
    text = f"the system prompt ({system:,}) and {tools} tools ({schemas:,}) take {taken:,} of {window:,} tokens"
    step = "a shorter --system" if system > schemas else "--tools none, or fewer of them,"
    return Notice("preflight", f"{text} before anything is said; {step} leaves more room")


def waiting(
    window: int, offered: Mapping[str, int], deferred: Mapping[str, int], left_out: Mapping[str, int]
) -> Notice | None:
    """Which tools, each with the tokens of its schema, are not in every request, or that none is; None where all are."""
    if left_out and not offered:
        takes = f"the tools would take {sum(left_out.values()):,} of {window:,} tokens"
        return Notice("no-tools", f"{takes}: going on without; --tools SET insists")
    if not deferred and not left_out:
        return None
    later = f"; offered when they are searched for: {', '.join(deferred)}" if deferred else ""
    never = f"; no room for {', '.join(left_out)}" if left_out else ""
    return Notice("tools-deferred", f"tools take {sum(offered.values()):,} of {window:,} tokens{later}{never}")


def cannot_call(model: str, *, insisted: bool) -> Notice:
    """That a model cannot call tools, and what becomes of them."""
    then = "offered all the same, as --tools asks for them" if insisted else "going on without"
    return Notice("no-tools", f"{model} cannot call tools, says its server: {then}")


def too_long(used: Count, budget: Budget, window: EffectiveWindow, *, tools: bool) -> str:
    """Why a request does not fit, by the numbers, and what would help."""
    decided = window.decided_by
    limited = window.ceiling is not None and window.ceiling == budget.window
    where = "--max-context" if limited else decided.where if decided else "nobody says it"
    step = "raise --max-context" if limited else "serve a larger window (--num-ctx, or the server's -c)"
    step += ", or pass --tools none" if tools else ""
    return (
        f"the request needs {used.tokens:,} tokens ({used.how}), the window is {budget.window:,} ({where}) "
        f"and takes a prompt of {budget.max_prompt:,}: shorten it, or {step}"
    )
