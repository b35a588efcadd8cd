"""What a person sees: a terminal that is emulated, with its scrollback."""

from __future__ import annotations

import pyte

__all__ = ["Screen"]


_JOINERS = dict.fromkeys((0x200D, 0xFE0F))
"""What joins emoji: the emulator stops at it, and many terminals show the parts side by side, which is wider."""


class Screen:
    """A terminal of so many columns and lines. As on a real one, a line end moves to the first column as well."""

    def __init__(self, columns: int = 80, lines: int = 24) -> None:
        self._screen = pyte.HistoryScreen(columns, lines, history=100_000)
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
