"""`localctx simulate`: the lesson on context and memory, step by step; as a table, as JSON, and as a page that plays it."""

from __future__ import annotations

import re
import shutil
import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Annotated, Any

import typer

from localctx.cli.options import AsJson
from localctx.cli.render import Renderer, note, out
from localctx.cli.sessions import spelled
from localctx.core.lesson import Plan
from localctx.core.lesson_script import RUNS, title
from localctx.core.lesson_story import Step, Story, compared, tell
from localctx.errors import Misuse

__all__ = ["command"]

_LARGEST = 2**31 - 1
_THRESHOLD = "Compact above this share of the window: 92%, 92 or 0.92 (up to 1 a share, above 1 per cent); or none."


def command(
    window: Annotated[int, typer.Option("--window", help="The window, in tokens.")] = 50_000,
    threshold: Annotated[str, typer.Option("--threshold", metavar="P|none", help=_THRESHOLD)] = "92%",
    memory: Annotated[bool, typer.Option("--memory/--no-memory", help="A file that the next session reads.")] = True,
    page: Annotated[Path | None, typer.Option("--html", help="Write a page that plays it to this new file.")] = None,
    as_json: AsJson = False,
) -> None:
    """Play the lesson on context and memory: what a compaction costs, and what survives it.

    One coding session and the day after it. Its tokens are the lesson's, so no model is asked, and nothing is counted.
    """
    Renderer(as_json=as_json)
    plan = Plan(gate=_share(threshold), memory=memory, limit=_window(window))
    if page is not None:
        from localctx.wiring.compacting import check_new

        check_new(page)
    story = tell(plan)
    out(spelled(_document(story)) if as_json else "\n".join(_lines(story, shutil.get_terminal_size().columns)))
    Renderer(as_json=False)  # the document is out: what is wrong from here on is said on stderr
    if page is not None:
        _write(page, story)
        note(f"wrote {page}; open it in a browser")


def _write(page: Path, story: Story) -> None:
    from localctx.cli.lesson_page import rendered
    from localctx.wiring.record import save

    save(page, rendered(_document(story), [_told(each) for each in _settings(story.plan)]))


def _window(tokens: int) -> int:
    if not 1 <= tokens <= _LARGEST:
        raise Misuse(f"--window {tokens:,} is no window; pass a number of tokens from 1 to {_LARGEST:,}, such as 50000")
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


# --- for programs -------------------------------------------------------------------------------------------------

_NOTCHES = (*(tenth / 10 for tenth in range(1, 10)), 0.92, 1.0)


def _settings(plan: Plan) -> Iterator[Story]:
    """What the page's knob and switch can choose in this window; the gate that was asked for is among them."""
    gates = sorted({*_NOTCHES, *([plan.gate] if plan.gate else [])})
    for gate in [*gates, None]:
        yield from (tell(replace(plan, gate=gate, memory=memory)) for memory in (True, False))


def _document(story: Story) -> dict[str, Any]:
    """The story, what the lesson recorded, and its policies in the same window."""
    return {
        "schema": 1,
        **_told(story),
        "recorded": [{"text": text, "runs": runs, "of": of} for text, runs, of in RUNS],
        "comparison": [_compared(name, each) for name, each in _policies(story).items()],
    }


def _told(story: Story) -> dict[str, Any]:
    plan = story.plan
    sizes = {name: getattr(plan, name) for name in ("system", "remembered", "summary")}
    told = {name: value for name, value in asdict(story).items() if name != "plan"}
    setting = {"window": plan.limit, "threshold": plan.gate, "gate": plan.gate_tokens, "memory": plan.memory}
    return {**setting, "sizes": sizes, **told}


def _compared(name: str, story: Story) -> dict[str, Any]:
    told = {key: getattr(story, key) for key in ("peak", "trips", "summarized", "left", "rejected")}
    setting = {"threshold": story.plan.gate, "memory": story.plan.memory}
    return {"name": name, **setting, **told, "probes": [probe.outcome for probe in story.probes]}


def _policies(story: Story) -> dict[str, Story]:
    """The lesson's policies in this window, and what was asked for if it is none of them."""
    stories = compared(story.plan.limit)
    return stories if story in stories.values() else {**stories, "this run": story}


# --- for people ---------------------------------------------------------------------------------------------------

_NARROW, _WIDE, _WIDEST = 40, 72, 110


def _lines(story: Story, columns: int) -> Iterator[str]:
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
    gate = "never compacted" if plan.gate is None else f"compacted above {_per_cent(plan.gate)} ({plan.gate_tokens:,})"
    memory = "with" if plan.memory else "without"
    return f"A window of {plan.limit:,} tokens, {gate}, {memory} a memory file. The tokens are the lesson's; none is counted."


def _step(step: Step, width: int) -> Iterator[str]:
    """A step: its text beside its figures or, in a narrow terminal, above them; and under it what is to be said of it."""
    changed = "" if step.probe else f"{step.tokens:+,}"
    figures = f"{changed:>8}{step.total:>8,}{_per_cent(step.pressure):>9} {_bar(step.pressure)}"
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


def _per_cent(share: float) -> str:
    return f"{share * 100:,.4g}%" if share < 1 else f"{share * 100:,.0f}%"


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
    rows = [_row(name, each, chosen=each == story) for name, each in _policies(story).items()]
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
