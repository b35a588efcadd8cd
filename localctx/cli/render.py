"""The only place that prints. People read stdout and stderr; with `--json`, stdout is for programs alone."""

from __future__ import annotations

import json
import logging
import os
import re
import shutil
import sys
import textwrap
from dataclasses import asdict
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from localctx.core import events as e
from localctx.errors import LocalctxError, StoreUnusable

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from localctx.core.window import EffectiveWindow, ModelReport, ServerReport
    from localctx.hardware.machine import Machine

__all__ = [
    "Renderer",
    "begin_log",
    "complain",
    "context_picture",
    "note",
    "out",
    "probe_json",
    "probe_table",
    "question",
    "say",
    "table_lines",
]

_log = logging.getLogger("localctx")
_as_json = False

_STEERING = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
"""Control characters but for tab and line end, and those that turn the direction of writing."""


def begin_log(path: Path | None, *, verbose: bool) -> None:
    """Sends decisions to a file, and with `verbose` to stderr as well."""
    _log.setLevel(logging.DEBUG if path or verbose else logging.CRITICAL)
    _log.propagate = False
    _log.addHandler(logging.NullHandler())
    logging.getLogger("stamina").setLevel(logging.CRITICAL)  # waiting is announced as an event
    handlers: list[logging.Handler] = [logging.StreamHandler(sys.stderr)] if verbose else []
    try:
        if path:
            os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600))
            handlers.append(logging.FileHandler(path, encoding="utf-8", delay=False))
    except OSError as error:
        raise StoreUnusable(
            f"cannot write the log {path} ({error.strerror or error}); pass another --log-file"
        ) from error
    for handler in handlers:
        handler.setFormatter(logging.Formatter("%(asctime)s %(message)s"))
        _log.addHandler(handler)


def out(text: str, *, end: str = "\n") -> None:
    """Prints what was asked for. Raises `LocalctxError` where there is nowhere to print it.

    A reader that has seen enough (`| head`) ends the program in good order.
    """
    if sys.stdout is None:
        raise LocalctxError("the standard output is closed: there is nowhere to print the answer")
    try:
        print(_printable(text, sys.stdout.encoding), end=end, flush=True)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise SystemExit(0) from None


def note(text: str) -> None:
    """Prints something beside it, to stderr."""
    if sys.stderr is not None:
        print(_dim(_printable(text, sys.stderr.encoding)), file=sys.stderr, flush=True)


def complain(text: str, code: int) -> None:
    """Prints why the program ends: one line, or an `error` event."""
    line = " ".join(text.split())
    _log.error("error exit_code=%d", code)
    if _as_json:
        out(json.dumps(_event("error", message=line, exit_code=code)))
    elif sys.stderr is not None:
        print(_printable(f"localctx: {line}", sys.stderr.encoding), file=sys.stderr, flush=True)


_COLOURS = {"+": "32", "-": "31", "@": "36"}


def question(lines: Sequence[str]) -> None:
    """Prints what a person is to decide about, to stderr: the lines of a diff in its colours."""
    for line in lines if sys.stderr is not None else ():
        text, colour = _printable(line, sys.stderr.encoding), _COLOURS.get(line[:1])
        print(f"\x1b[{colour}m{text}\x1b[0m" if colour and _coloured() else text, file=sys.stderr, flush=True)


def _printable(text: str, encoding: str | None) -> str:
    """The text without what would steer the terminal, in characters that it can show."""
    safe = _STEERING.sub("\ufffd", text.replace("\r\n", "\n"))
    return safe.encode(encoding or "utf-8", "replace").decode(encoding or "utf-8", "replace")


def _dim(text: str) -> str:
    return f"\x1b[2m{text}\x1b[0m" if _coloured() else text


def _coloured() -> bool:
    return sys.stderr.isatty() and "NO_COLOR" not in os.environ and os.environ.get("TERM") != "dumb"


# --- events -------------------------------------------------------------------------------------------------------


class Renderer:
    """Renders events as they come: for people, or as JSON lines."""

    def __init__(self, *, as_json: bool) -> None:
        global _as_json  # noqa: PLW0603  an error that ends the program is rendered in the same form
        _as_json = as_json
        self._json = as_json
        self._midline = False

    def __call__(self, event: e.Event) -> None:
        """Renders one event."""
        _log_event(event)
        if self._json:
            out(json.dumps(_as_object(event), ensure_ascii=False))
        elif isinstance(event, e.Text):
            out(event.text, end="")
            self._midline = not event.text.endswith("\n")
        elif line := _line(event):
            self.end_line()
            note(line)

    def end_line(self) -> None:
        """Ends a line of text that is open."""
        if self._midline:
            out("")
            self._midline = False

    def end(self, finish: str, session: str | None, **totals: float) -> None:
        """The end of a run."""
        self.end_line()
        if self._json:
            out(json.dumps(_event("end", finish=finish, session=session, totals=totals)))


def say(event: e.Event) -> None:
    """Tells a person of an event on stderr: what a command without a chat has to say of its progress."""
    if line := _line(event):
        note(line)


_CALL_WIDTH = 100


def _line(event: e.Event) -> str:
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
            return textwrap.shorten(f"{name} {arguments}", _CALL_WIDTH, placeholder=" ...")
        case e.ToolAnswered(_, name, _, shown) if shown.startswith("error:"):
            return textwrap.shorten(f"{name}: {shown}", _CALL_WIDTH, placeholder=" ...")
        case e.Truncated():
            return _truncated_line(event)
        case e.Notice(_, text):
            return text
    return ""


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
    return f"window {window.tokens:,} tokens, {window.confidence} ({_source(window)})"


def _source(window: EffectiveWindow) -> str:
    decided = window.decided_by
    if decided is None:
        return "nobody says it"
    if window.tokens == decided.tokens:
        return decided.where
    return f"{decided.where} says {decided.tokens:,}, --max-context lowers it"


def _log_event(event: e.Event) -> None:
    if not isinstance(event, e.Text | e.Thinking):
        told = {key: value for key, value in _as_object(event).items() if key not in _NOT_LOGGED}
        _log.info("%s", json.dumps(told))


_NOT_LOGGED = {"at", "arguments", "shown"}
"""When it was, which the log has, and text of the conversation."""


def _event(kind: str, **fields: object) -> dict[str, object]:
    return {"type": kind, "at": datetime.now(UTC).isoformat(timespec="milliseconds"), **fields}


_TYPES = {
    e.PressureRaised: "pressure",
    e.RequestSent: "request",
    e.RungTaken: "rung",
    e.RungBegun: "rung-begun",
    e.ToolCalled: "tool_call",
    e.ToolAnswered: "tool_result",
    e.TurnEnded: "turn",
}


def _as_object(event: e.Event) -> dict[str, object]:
    match event:
        case e.WindowProbed(window, runtime, url, model):
            return _event("window", runtime=runtime, url=url, model=model, **_window_json(window))
        case e.UsageReported(usage, expected):
            return _event("usage", **asdict(usage), expected=asdict(expected))
    return _event(_TYPES.get(type(event)) or type(event).__name__.lower(), **asdict(event))


# --- probe --------------------------------------------------------------------------------------------------------


def _window_json(window: EffectiveWindow) -> dict[str, Any]:
    return {
        "effective": window.tokens,
        "confidence": window.confidence,
        "max_prompt": window.max_prompt,
        "ceiling": window.ceiling,
        "decided_by": asdict(window.decided_by) if window.decided_by else None,
        "readings": [asdict(reading) for reading in window.readings],
    }


def probe_json(machine: Machine, reports: Sequence[ServerReport], took: float) -> None:
    """The probe's answer for programs; `took` is in seconds."""
    document = {
        "schema": 1,
        "took_ms": round(took * 1000),
        "machine": asdict(machine),
        "runtimes": [_report_json(report) for report in reports],
    }
    out(json.dumps(document, ensure_ascii=False, indent=1))


def _report_json(report: ServerReport) -> dict[str, object]:
    return {
        "runtime": report.runtime,
        "url": report.url,
        "version": report.version,
        "status": report.status,
        "error": report.error,
        "models": [_model_json(model) for model in report.models],
    }


def _model_json(model: ModelReport) -> dict[str, object]:
    return {
        "id": model.id,
        "loaded": model.loaded,
        "trained": model.trained,
        "slots": model.slots,
        "shared_pool": model.shared_pool,
        "template": model.template,
        "window": _window_json(model.window),
        "memory": {"model_bytes": model.model_bytes, "in_vram_bytes": model.in_vram_bytes},
        "warnings": [asdict(warning) for warning in model.warnings],
    }


def probe_table(reports: Sequence[ServerReport], *, quiet_down: bool) -> None:
    """The probe's answer for people; addresses where nothing answers are named in one line with `quiet_down`."""
    width = max(shutil.get_terminal_size().columns, _NARROW)
    for line in table_lines(reports, quiet_down=quiet_down):
        indent = " " * (len(line) - len(line.lstrip()) + 2)
        out(
            textwrap.fill(
                line,
                width,
                subsequent_indent=indent,
                break_long_words=False,
                break_on_hyphens=False,
                replace_whitespace=False,
                drop_whitespace=True,
            )
        )
    quiet = [report.url.removeprefix("http://") for report in reports if quiet_down and report.status == "down"]
    if quiet:
        note(f"nothing answers at {', '.join(quiet)}")


_NARROW = 40


def table_lines(reports: Sequence[ServerReport], *, quiet_down: bool) -> Iterator[str]:
    """The lines of the table, without the addresses where nothing answers if `quiet_down`."""
    for report in reports:
        if quiet_down and report.status == "down":
            continue
        version = f" {report.version}" if report.version else ""
        yield _printable(f"{report.runtime or 'unknown server'}{version} at {report.url}: {report.status}", None)
        if report.error:
            yield f"  ! {_printable(report.error, None)}"
        for model in report.models:
            yield from (_printable(line, None) for line in _model_lines(model))


def _model_lines(model: ModelReport) -> Iterator[str]:
    window, tokens = model.window, model.window.tokens
    yield f"  {model.id}{'' if model.loaded else ' (not loaded)'}"
    shown = "unknown" if tokens is None else f"{tokens:,}"
    sure = "" if tokens is None else f"{window.confidence}  "
    yield f"    window    {shown:>9}  {sure}({_source(window)})"
    pool = model.shared_pool
    facts: Mapping[str, object] = {
        "trained": model.trained,
        "slots": model.slots,
        "pool": pool,
        "template": model.template,
    }
    for name, value in facts.items():
        if value is not None:
            yield f"    {name:<9} {f'{value:,}' if isinstance(value, int) else value:>9}"
    for warning in model.warnings:
        yield f"    ! {warning.code}: {warning.text}"
        yield f"      fix: {warning.fix}"


_WIDTH = 40
_SIGNS = {
    "system": "S",
    "schemas": "s",
    "checkpoint": "C",
    "user": "u",
    "assistant": "a",
    "tools": "t",
    "free": ".",
    "reserve": "r",
}


def context_picture(fills: Mapping[str, int], used: int, window: int, reserve: int, source: str) -> None:
    """The meter: what fills the window, as a bar and a list."""
    parts = {name: tokens for name, tokens in fills.items() if tokens}
    kept = min(reserve, max(window - used, 0))
    parts |= {"free": max(window - used - kept, 0), "reserve": kept}
    out(f"{used:,} of {window:,} tokens used ({used * 100 // window}%); {source}")
    out("[" + "".join(_SIGNS[name] * round(tokens * _WIDTH / window) for name, tokens in parts.items()) + "]")
    for name, tokens in parts.items():
        out(f"  {_SIGNS[name]} {name:<10} {tokens:>9,}  {tokens * 100 / window:5.1f}%")
