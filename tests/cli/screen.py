"""What a person sees: a terminal that is emulated, with its scrollback."""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from time import monotonic
from typing import Self

import pexpect
import pyte

__all__ = ["Screen", "Terminal"]


_JOINERS = dict.fromkeys((0x200D, 0xFE0F))
"""What joins emoji: the emulator stops at it, and many terminals show the parts side by side, which is wider."""


class _Answering(pyte.HistoryScreen):
    answer: Callable[[str], object]

    def write_process_input(self, data: str) -> None:
        self.answer(data)


class Screen:
    """A terminal of so many columns and lines. As on a real one, a line end moves to the first column as well."""

    def __init__(
        self, columns: int = 80, lines: int = 24, answer: Callable[[str], object] = lambda _text: None
    ) -> None:
        """`answer` is given what the terminal says itself: where the cursor is."""
        self._screen = _Answering(columns, lines, history=100_000)
        self._screen.answer = answer
        self._screen.set_mode(pyte.modes.LNM)
        self._stream = pyte.Stream(self._screen)

    @property
    def columns(self) -> int:
        return int(self._screen.columns)

    @property
    def lines(self) -> int:
        return int(self._screen.lines)

    def write(self, text: str) -> None:
        self._stream.feed(text.translate(_JOINERS))

    def resize(self, columns: int, lines: int) -> None:
        """As a terminal without reflow does it: what is above the new top is scrolled away (the emulator would drop it)."""
        cursor, shorter = self._screen.cursor, self.lines - lines
        if shorter > 0:
            row, gone = cursor.y, max(cursor.y - (lines - 1), 0)
            cursor.y = self.lines - 1
            for _ in range(gone):
                self._screen.index()
            cursor.y = 0
            self._screen.insert_lines(shorter)
            cursor.y = row - gone
        self._screen.resize(lines, columns)

    @property
    def display(self) -> list[str]:
        """The rows that are in view, without blanks at their ends."""
        return [row.rstrip() for row in self._screen.display]

    @property
    def current(self) -> str:
        """The row that the cursor is in."""
        return self.display[self._screen.cursor.y]

    @property
    def everything(self) -> list[str]:
        """What has scrolled away and what is in view, without empty rows at the end."""
        above = [
            "".join(row[at].data for at in range(max(row, default=-1) + 1)).rstrip() for row in self._screen.history.top
        ]
        rows = [*above, *self.display]
        while rows and not rows[-1]:
            rows.pop()
        return rows

    def styled(self, row: int, column: int) -> pyte.screens.Char:
        """The character at a place in view, with its style."""
        return self._screen.buffer[row][column]


_NO_LINE = "\x1b[?2004l"
"""The editor asks for no more bracketed pastes: it has its line."""


class Terminal:
    """The program on a pseudo-terminal, and what a person sees of it."""

    def __init__(
        self, *arguments: str, environment: dict[str, str], folder: Path, columns: int = 100, lines: int = 30
    ) -> None:
        unset = {"NO_COLOR", "COLUMNS", "LINES"}
        self.screen = Screen(columns, lines, self.send)
        self.raw = ""
        self._child: pexpect.spawn[str] = pexpect.spawn(
            sys.executable,
            ["-m", "localctx", *arguments],
            env={name: value for name, value in environment.items() if name not in unset}
            | {"TERM": "xterm-256color"}
            | ({"NO_COLOR": "1"} if environment.get("PLAIN") else {}),
            cwd=str(folder),
            encoding="utf-8",
            codec_errors="replace",
            dimensions=(lines, columns),
        )
        self._child.delaybeforesend = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._child.close(force=True)

    def until(self, seen: str | Callable[[Screen], bool], seconds: float = 30) -> None:
        """Waits until a text is to be seen, or something else is so."""
        end = monotonic() + seconds
        while not (seen in "\n".join(self.screen.everything) if isinstance(seen, str) else seen(self.screen)):
            if monotonic() > end:
                rows = "\n".join(self.screen.everything)
                raise AssertionError(f"not seen in {seconds} s: {seen}; the terminal shows:\n{rows}")
            self._read()

    def _read(self) -> None:
        with suppress(pexpect.TIMEOUT):
            piece = self._child.read_nonblocking(65_536, timeout=0.1)
            self.raw += piece
            self.screen.write(piece)

    def ready(self, seconds: float = 30) -> None:
        """Waits until a line can be typed, and none is."""
        self.until(lambda screen: screen.current == ">" and any("% full" in row for row in screen.display), seconds)

    def type(self, text: str) -> None:
        """Types on a line that waits for it."""
        self.ready()
        self.send(text)

    def ask(self, text: str, seen: str | Callable[[Screen], bool] = "") -> None:
        """Types a line, sends it, and waits for what comes of it."""
        self.type(text)
        before = len(self.raw)
        self.send("\r")
        self.until(lambda _screen: _NO_LINE in self.raw[before:])
        self.until(seen)

    def send(self, keys: str) -> None:
        self._child.send(keys)

    def resize(self, columns: int, lines: int) -> None:
        self.screen.resize(columns, lines)
        self._child.setwinsize(lines, columns)

    def interrupt(self) -> None:
        """A Ctrl-C that is typed."""
        self.send("\x03")

    def signal(self, number: int) -> None:
        """A signal from elsewhere."""
        self._child.kill(number)

    def ended(self) -> int:
        """Waits for the end of the program; its exit code."""
        with suppress(pexpect.EOF):
            while True:
                self._read()
        self._child.wait()
        return int(self._child.exitstatus if self._child.exitstatus is not None else -(self._child.signalstatus or 0))
