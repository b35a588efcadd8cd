"""The lesson as a table for people: its steps with their figures, what survives, and the policies side by side."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence

from localctx.core.lesson import Plan
from localctx.core.lesson_script import RUNS, title
from localctx.core.lesson_story import Step, Story, compared

__all__ = ["lines"]

_NARROW, _WIDE, _WIDEST = 40, 72, 110


def lines(story: Story, columns: int) -> Iterator[str]:
    """The lines for a terminal of so many columns (40 at least); whatever finds no room is wrapped."""
    width = min(max(columns, _NARROW), _WIDEST)
    yield from _wrapped(_heading(story.plan), width)
    for session in (1, 2):
        yield from ("", f"SESSION {session}")
        yield from (line for step in story.steps if step.session == session for line in _step(step, width))
    yield from ("", "WHAT SURVIVES", *_survival(story, width))
    yield from ("", "HOW LONG A THING LIVES", *_lifetimes(story, width))
    yield from ("", "WHAT SUMMARIES KEPT", *_recorded(width))
    yield from ("", "THE POLICIES SIDE BY SIDE", *_comparison(story, width))


def _heading(plan: Plan) -> str:
    gate = "no gate: never compact"
    if plan.gate is not None:
        gate = f"gate at {plan.gate * 100:.10g}%: compact above {plan.gate_tokens:,}"
    memory = "a memory file" if plan.memory else "no memory file"
    return f"A window of {plan.limit:,} tokens; {gate}; {memory}. The tokens are the lesson's; none is counted."


def _step(step: Step, width: int) -> Iterator[str]:
    """A step: its text beside its figures or, in a narrow terminal, above them; and under it what is to be said of it."""
    changed = "" if step.probe else f"{step.tokens:+,}"
    figures = f"{changed:>8}{step.total:>8,}{step.pressure:>9.1%} {_bar(step.pressure)}"
    column = width if width < _WIDE else width - len(figures) - 1
    first, *rest = _wrapped(step.text, column, f"{step.step:>2} ", "   ")
    yield first if width < _WIDE else f"{first:<{column}} {figures}"
    yield from rest
    if width < _WIDE:
        yield f"  {figures}"
    for remark in step.remarks:
        yield from _wrapped(remark, width, "   > ", "     ")


def _wrapped(text: str, width: int, first: str = "", rest: str = "") -> list[str]:
    return textwrap.wrap(text, width, initial_indent=first, subsequent_indent=rest, break_on_hyphens=False)


_CELLS = 10


def _bar(pressure: float) -> str:
    filled = min(int(pressure * _CELLS), _CELLS)
    return "#" * filled + "." * (_CELLS - filled)


def _survival(story: Story, width: int) -> list[str]:
    head = ("", "end of session 1", "session 2")
    fates = [(_fate(each.first, each.first_where), _fate(each.second, each.second_where)) for each in story.survival]
    return _table([head, *((each.text, *fate) for each, fate in zip(story.survival, fates, strict=True))], width)


def _fate(outcome: str, where: Sequence[str]) -> str:
    return f"{outcome}: {', '.join(map(title, where))}" if where else outcome


def _lifetimes(story: Story, width: int) -> Iterator[str]:
    for each in story.lifetimes:
        yield from _wrapped(f"{each.kind}: {each.until}", width, rest="  ")
        yield from _wrapped(", ".join(map(title, each.items)) or "none here", width, "  ", "  ")


def _recorded(width: int) -> Iterator[str]:
    yield from _wrapped("Recorded in the lesson from runs of a model; no arithmetic says it.", width)
    for text, runs, of in RUNS:
        yield from _wrapped(f"{text}, in {runs} of {of} runs", width, "  ", "    ")


def _comparison(story: Story, width: int) -> Iterator[str]:
    yield from _wrapped(_COLUMNS, width)
    head = ("", "peak", "trips", "left", "TODO?", "pnpm?", "next day?")
    rows = [_row(name, each, chosen=each == story) for name, each in compared(story).items()]
    yield from _table([head, *rows], width)


_COLUMNS = (
    "peak: the most tokens; trips: compactions; left: tokens at the end of session 1; then what became of the questions. "
    "> is this run."
)


def _row(name: str, story: Story, *, chosen: bool) -> tuple[str, ...]:
    left = f"{story.left:,}" if story.rejected is None else "rejected"
    answers = ("no answer" if probe.outcome == "unanswered" else probe.outcome for probe in story.probes)
    return (f"{'>' if chosen else ' '} {name}", f"{story.peak:,}", f"{story.trips}", left, *answers)


def _table(rows: Sequence[Sequence[str]], width: int) -> list[str]:
    """Columns where they find room; else each row as a name, and its other cells under it with the heads of their columns."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    if sum(widths) + 2 * len(widths) - 2 <= width:
        return ["  ".join(cell.ljust(size) for cell, size in zip(row, widths, strict=True)).rstrip() for row in rows]
    head, *rest = rows
    lines = list[str]()
    for name, *cells in rest:
        told = (
            f"{label}{'' if label.endswith('?') else ':'} {cell}" for label, cell in zip(head[1:], cells, strict=True)
        )
        lines += [*_wrapped(name, width), *_wrapped("; ".join(told), width, "    ", "    ")]
    return lines
