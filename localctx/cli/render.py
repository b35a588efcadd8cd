"""The only place that prints. People read stdout and stderr; with `--json`, stdout is for programs alone."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import re
import shutil
import sys
from dataclasses import asdict
from datetime import UTC, datetime
from time import monotonic
from typing import TYPE_CHECKING, Any, TextIO

from localctx.cli.progress import Waiting, drafting, reading, reading_on
from localctx.cli.wording import told, wrapped
from localctx.core import events as e
from localctx.errors import LocalctxError, StoreUnusable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from pathlib import Path

    from localctx.cli.markdown import MarkdownStream
    from localctx.core.window import EffectiveWindow

__all__ = [
    "Renderer",
    "begin_log",
    "columns",
    "complain",
    "note",
    "out",
    "paint",
    "printable",
    "question",
    "room",
    "say",
    "window_json",
]

_log = logging.getLogger("localctx")
_as_json = False
_verbose = False

_STEERING = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
"""Control characters but for tab and line end, and those that turn the direction of writing."""


def begin_log(path: Path | None, *, verbose: bool) -> None:
    """Sends decisions to a file, and with `verbose` to stderr as well."""
    global _verbose  # noqa: PLW0603  it is said once, before all else
    _verbose = verbose
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
        print(printable(text, sys.stdout.encoding), end=end, flush=True)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise SystemExit(0) from None


def note(text: str) -> None:
    """Prints something beside it, to stderr; on a terminal wrapped between words."""
    if sys.stderr is not None:
        line = printable(text, sys.stderr.encoding)
        shown = wrapped(line, _size(sys.stderr)[0]) if sys.stderr.isatty() else line
        print(_dim(shown), file=sys.stderr, flush=True)


def complain(text: str, code: int) -> None:
    """Prints why the program ends: one line, or an `error` event."""
    line = " ".join(text.split())
    _log.error("error exit_code=%d", code)
    if _as_json:
        out(json.dumps(_event("error", message=line, exit_code=code)))
    elif sys.stderr is not None:
        print(printable(f"localctx: {line}", sys.stderr.encoding), file=sys.stderr, flush=True)


_COLOURS = {"+": "32", "-": "31", "@": "36"}


def question(lines: Sequence[str]) -> None:
    """Prints what a person is to decide about, to stderr: the lines of a diff, behind their `| `, in its colours."""
    for line in lines if sys.stderr is not None else ():
        text, colour = printable(line, sys.stderr.encoding), _COLOURS.get(line.removeprefix("| ")[:1])
        print(f"\x1b[{colour}m{text}\x1b[0m" if colour and _draws(sys.stderr) else text, file=sys.stderr, flush=True)


def printable(text: str, encoding: str | None) -> str:
    """The text without what would steer the terminal, in characters that it can show."""
    safe = _STEERING.sub("\ufffd", text.replace("\r\n", "\n"))
    return safe.encode(encoding or "utf-8", "replace").decode(encoding or "utf-8", "replace")


def _draws(stream: TextIO | None) -> bool:
    """Whether a stream is a terminal that can be drawn on, and its user wants that."""
    plain = "NO_COLOR" in os.environ or os.environ.get("TERM") == "dumb"
    return stream is not None and stream.isatty() and not plain and stream.encoding.lower() == "utf-8"


def _size(stream: TextIO) -> tuple[int, int]:
    """The columns and lines of a terminal now."""
    size = os.get_terminal_size(stream.fileno())
    return size.columns or _COLUMNS, size.lines or _LINES


_COLUMNS, _LINES = 80, 24
"""What is taken of a terminal that does not know its size."""


def columns() -> int:
    """The columns that there are for what is printed."""
    return _size(sys.stdout)[0] if sys.stdout.isatty() else max(shutil.get_terminal_size().columns, _NARROW)


_NARROW = 40


def room() -> tuple[int, int]:
    """The columns and lines of the terminal that questions are put on."""
    return _size(sys.stderr) if sys.stderr.isatty() else (_COLUMNS, _LINES)


def _draw(text: str, stream: TextIO) -> None:
    """Writes what may steer the terminal: of ours, never of a model's."""
    stream.write(text)
    stream.flush()


def _on_one_line(text: str) -> None:
    """Draws a line in place of the one before, or takes that away."""
    from rich.cells import set_cell_size

    room = _size(sys.stderr)[0] - 1
    line = printable(text, sys.stderr.encoding)
    _draw(f"\r\x1b[K{_dim(set_cell_size(line, min(room, len(line))))}" if line else "\r\x1b[K", sys.stderr)


def paint(pieces: Iterable[tuple[str, str]]) -> None:
    """Prints a line of styled pieces, without the styles where there is no colour."""
    line = list(pieces)
    if not _draws(sys.stdout):
        out(wrapped("".join(text for _, text in line), columns()))
        return
    from rich.console import Console
    from rich.text import Text

    styled = Text.assemble(*((printable(text, sys.stdout.encoding), style) for style, text in line))
    Console(highlight=False, width=columns()).print(styled)


def _aside(text: str) -> None:
    if sys.stderr is not None:
        _draw(_dim(printable(text, sys.stderr.encoding)), sys.stderr)


def _dim(text: str) -> str:
    return f"\x1b[2m{text}\x1b[0m" if _draws(sys.stderr) else text


# --- events -------------------------------------------------------------------------------------------------------


class Renderer:
    """Renders events as they come: for people, or as JSON lines.

    On a terminal the reply is Markdown that is rendered as it streams, and a line tells what is waited for.
    """

    def __init__(self, *, as_json: bool) -> None:
        global _as_json  # noqa: PLW0603  an error that ends the program is rendered in the same form
        _as_json = as_json
        self._json = as_json
        self._reply = _Page() if _draws(sys.stdout) else _Raw()
        self._aside = False
        self._thinks = False
        self._waiting = Waiting(_on_one_line)
        self.waits = _draws(sys.stderr)
        """Whether a line may tell what is waited for: not while the user types."""

    def __call__(self, event: e.Event) -> None:
        """Renders one event."""
        if _verbose and not isinstance(event, _PIECES):
            self.end_line()
        _log_event(event)
        if self._json:
            out(json.dumps(_as_object(event), ensure_ascii=False))
        elif isinstance(event, e.Text):
            self._end_wait()
            self._reply.add(event.text)
        elif isinstance(event, e.Thinking):
            self._think(event.text)
        elif isinstance(event, e.RequestSent):
            self._wait("reading", reading(event))
        elif isinstance(event, e.Prefilling):
            self._wait("reading", reading_on(event, self._waiting.seconds))
        elif isinstance(event, e.Drafting):
            self._wait("drafting", drafting(event))
        else:
            self._tell(event)

    def _tell(self, event: e.Event) -> None:
        self._end_wait()
        if line := told(event):
            self.end_line()
            note(line)
        if isinstance(event, e.RungBegun):
            self._wait("compacting", lambda seconds: f"compacting ... {seconds:.0f} s")

    def _think(self, text: str) -> None:
        """Thinking is one line that tells how long it takes; with `--verbose` it is shown beside the answer, on stderr."""
        if _verbose:
            self._waiting.end()
            self._aside = not text.endswith("\n")
            _aside(text)
        else:
            self._thinks = True
            self._wait("thinking", lambda seconds: f"thinking ... {seconds:.0f} s")

    def _wait(self, what: str, told: Callable[[float], str]) -> None:
        if self._thinks and what != "thinking":
            self._end_wait()
        if self.waits and not self._json:
            self._reply.end()
            self._waiting.begin(what, told)

    def _end_wait(self) -> None:
        seconds = self._waiting.end()
        if self._aside:
            _aside("\n")
        if self._thinks and seconds >= 1:
            note(f"thought for {seconds:.0f} s")
        self._thinks = self._aside = False

    def end_line(self) -> None:
        """Ends what is open: a line of text, a block of Markdown, a line that tells of waiting."""
        self._end_wait()
        self._reply.end()

    def end(self, finish: str, session: str | None, totals: Callable[[], Mapping[str, float]]) -> None:
        """The end of a run; `totals` are worked out only for those who are told them."""
        self.end_line()
        if self._json:
            out(json.dumps(_event("end", finish=finish, session=session, totals=totals())))


class _Raw:
    """A reply as the text that the model wrote, but for what would steer a terminal."""

    def __init__(self) -> None:
        self._midline = False

    def add(self, text: str) -> None:
        """Prints a piece."""
        out(text, end="")
        self._midline = not text.endswith("\n")

    def end(self) -> None:
        """Ends a line that is open."""
        if self._midline:
            out("")
            self._midline = False


class _Page:
    """A reply as Markdown on a terminal, drawn anew some times a second, and never for more than a tenth of the time."""

    def __init__(self) -> None:
        self._stream: MarkdownStream | None = None
        self._due: asyncio.TimerHandle | None = None
        self._pause = 0.0

    def add(self, text: str) -> None:
        """Takes a piece, which is soon drawn."""
        from localctx.cli.markdown import MarkdownStream

        self._stream = self._stream or MarkdownStream()
        self._stream.feed(printable(text, sys.stdout.encoding))
        if self._due is None:
            self._due = asyncio.get_running_loop().call_later(self._pause, self._draw)

    def _draw(self) -> None:
        self._due, began = None, monotonic()
        if self._stream:
            _draw(self._stream.draw(*_size(sys.stdout)), sys.stdout)
        self._pause = max(_FRAME, _IDLE * (monotonic() - began))

    def end(self) -> None:
        """Ends the block that is open."""
        if self._due:
            self._due.cancel()
        if self._stream:
            _draw(self._stream.end(*_size(sys.stdout)), sys.stdout)
        self._stream, self._due, self._pause = None, None, 0.0


_FRAME, _IDLE = 0.06, 9
"""The seconds from one drawing to the next, and how many times as long as a drawing took."""


def say(event: e.Event) -> None:
    """Tells a person of an event on stderr: what a command without a chat has to say of its progress."""
    if line := told(event):
        note(line)


def _log_event(event: e.Event) -> None:
    if not isinstance(event, _PIECES):
        told = {key: value for key, value in _as_object(event).items() if key not in _NOT_LOGGED}
        _log.info("%s", json.dumps(told))


_PIECES = (e.Text, e.Thinking, e.Drafting)
"""What comes in pieces, too many to be told one by one."""

_NOT_LOGGED = {"at", "arguments", "shown", "text"}
"""When it was, which the log has, and text of the conversation, which a notice may quote."""


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
            return _event("window", runtime=runtime, url=url, model=model, **window_json(window))
        case e.UsageReported(usage, expected):
            return _event("usage", **asdict(usage), expected=asdict(expected))
    return _event(_TYPES.get(type(event)) or type(event).__name__.lower(), **asdict(event))


def window_json(window: EffectiveWindow) -> dict[str, Any]:
    """A window for programs."""
    return {
        "effective": window.tokens,
        "confidence": window.confidence,
        "max_prompt": window.max_prompt,
        "ceiling": window.ceiling,
        "decided_by": asdict(window.decided_by) if window.decided_by else None,
        "readings": [asdict(reading) for reading in window.readings],
    }
