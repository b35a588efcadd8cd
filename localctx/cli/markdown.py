"""Markdown as it streams: what is finished is written once and stays; what is not is drawn anew in a few rows below it.

The rows that are drawn anew are at most `_MOST_ROWS` and never wrap, so that it is always known what to erase. Where the
window became too narrow for them they stay as they are: a line may then break early, but none is lost or shown twice.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections import deque
from dataclasses import dataclass
from io import StringIO
from typing import TYPE_CHECKING, NamedTuple

from markdown_it import MarkdownIt
from rich import markdown
from rich.console import Console
from rich.segment import Segment, Segments
from rich.syntax import Syntax
from rich.text import Text

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from markdown_it.token import Token
    from rich.console import ConsoleOptions, RenderableType, RenderResult

__all__ = ["MarkdownStream"]

_MOST_ROWS = 8

_BARE_MARK = re.compile(r"(?:^|(?<=\n))[ \t]*(?:[-=*_#>|+`~]+|\d+[.)]?)[ \t]*\Z")
"""A last line that could still begin anything."""

_BREAKS = re.compile(r"\s+|(?<=[\u2e80-\uffef])(?=\S)")
"""Where a paragraph may be cut: at white space, and behind a character of a script that has none."""

_LINES = re.compile(r"[^\n]*\n|[^\n]+")


class MarkdownStream:
    """A text that comes in pieces, as what is to be written to a terminal of so many columns and lines.

    What is fed must hold nothing that steers a terminal.
    """

    def __init__(self) -> None:
        self._source, self._drawing = "", _Drawing()
        self._code: _Code | None = None
        self._begun = False

    def feed(self, text: str) -> None:
        """Takes a piece of the text; the next `draw` shows it."""
        self._source += text

    def draw(self, columns: int, lines: int) -> str:
        """What to write to bring the terminal up to date; then the cursor is behind the text."""
        before = self._cleared(columns, lines)
        room = max(min(_MOST_ROWS, lines // 2), 1)
        done = [*self._finished(columns, last=False), *self._overflow(columns, room)]
        shown = self._source if self._code else _BARE_MARK.sub("", self._source)
        rows = self._unfinished(shown, columns)
        self._drawing = _Drawing(tuple(rows[-room:]), len(shown), whole=len(rows) <= room)
        return before + _written(done) + self._drawing.written

    def end(self, columns: int, lines: int) -> str:
        """What to write to show everything for good; then the cursor is on a line of its own, and a new text can begin."""
        ended = self._cleared(columns, lines) + _written(self._finished(columns, last=True))
        self._source, self._code, self._begun = "", None, False
        return ended

    def _cleared(self, columns: int, lines: int) -> str:
        """Erases what was drawn; leaves it where it no longer fits, and may have been wrapped or scrolled away."""
        drawing, self._drawing = self._drawing, _Drawing()
        if drawing.cells <= columns and len(drawing.rows) <= lines:
            return drawing.erased
        if drawing.whole:
            self._source = self._source[drawing.shown :].lstrip(" ")
        return "\n"

    def _finished(self, columns: int, *, last: bool) -> Iterator[_Row]:
        """The rows of what more text cannot change any more, or, at the `last`, of everything; it is no longer pending then."""
        while True:
            if self._code:
                yield from self._lines_of_code(self._code, last=last)
            if self._code:
                return
            pending = self._source if last else self._source[: self._source.rfind("\n") + 1]
            lines, taken = _LINES.findall(pending), 0
            for block in _final(_blocks(pending), len(lines), last=last):
                if block.start > taken:
                    yield from self._gap()
                self._begun = True
                if block.kind == "fence":
                    self._code, taken = _Code(lines[block.start]), block.start + 1
                    yield self._code.row(lines[block.start])
                    break
                yield from _rendered("".join(lines[block.start : block.end]), columns)
                taken = block.end
            self._source = self._source[sum(map(len, lines[:taken])) :]
            if not self._code:
                return

    def _gap(self) -> list[_Row]:
        """The empty row between two blocks, none before the first."""
        return [_EMPTY] if self._begun else []

    def _lines_of_code(self, code: _Code, *, last: bool) -> Iterator[_Row]:
        for line in _LINES.findall(self._source):
            if not (last or line.endswith("\n")):
                return
            self._source = self._source[len(line) :]
            yield code.row(line)
            if code.closed:
                self._code = None
                return

    def _unfinished(self, source: str, columns: int) -> list[_Row]:
        if self._code:
            return _rows(self._code.text(source), columns) if source else []
        lines, rows, taken = _LINES.findall(source), list[_Row](), 0
        for block in _blocks(source):
            if block.start > taken:
                rows += [_EMPTY] if rows else self._gap()
            rows += _rendered("".join(lines[block.start : block.end]), columns)
            taken = block.end
        return rows

    def _overflow(self, columns: int, room: int) -> list[_Row]:
        """Of a paragraph that needs more rows than there is room for, those that are full: they are finished as well.

        It is not cut within an emphasis or its like, unless that goes on for very long.
        """
        blocks = [] if self._code else _blocks(self._source)
        if [block.kind for block in blocks] != ["paragraph"] or blocks[0].start:
            return []
        whole = _rendered(self._source, columns)
        if len(whole) <= room:
            return []
        full, endless = len(whole) - room // 2, len(whole) > _LONG * room
        breaks = [found.start() for found in _BREAKS.finditer(self._source)]
        ends = range(1, len(self._source)) if endless else breaks
        at = bisect_right(ends, full, key=lambda end: len(_rendered(self._source[:end], columns))) - 1
        if at < 0 or not self._source[: ends[at]].strip():
            return []
        rows, rest = _rendered(self._source[: ends[at]], columns), self._source[ends[at] :].lstrip()
        if not endless and _letters([*rows, *_rendered(rest, columns)]) != _letters(whole):
            return []
        self._source, self._begun = rest, True
        return rows


_LONG = 3
"""How many times more rows than there is room for a paragraph may have without being cut."""


# --- rows ---------------------------------------------------------------------------------------------------------


class _Row(NamedTuple):
    """A row of the terminal: what is written, and what is read."""

    written: str
    text: str


_EMPTY = _Row("", "")


@dataclass(frozen=True, slots=True)
class _Drawing:
    """What stands on the terminal for the first `shown` characters that are not finished; `whole`: all of it does."""

    rows: tuple[_Row, ...] = ()
    shown: int = 0
    whole: bool = True

    @property
    def cells(self) -> int:
        """The columns that its widest row takes."""
        return max((Text(row.text).cell_len for row in self.rows), default=0)

    @property
    def written(self) -> str:
        """The rows without a line end, drawn while nothing wraps: a terminal may find an emoji wider than we do."""
        rows = "\n".join(row.written for row in self.rows)
        return f"\x1b[?7l{rows}\x1b[?7h" if self.rows else ""

    @property
    def erased(self) -> str:
        """What erases them, with the cursor behind the last."""
        up = f"\x1b[{len(self.rows) - 1}A" if len(self.rows) > 1 else ""
        return f"\r{up}\x1b[J" if self.rows else ""


def _written(rows: Iterable[_Row]) -> str:
    return "".join(f"{row.written}\n" for row in rows)


def _letters(rows: Sequence[_Row]) -> str:
    return "".join("".join(row.text for row in rows).split())


def _rows(thing: RenderableType, columns: int) -> list[_Row]:
    """Something as rows that are no wider than the terminal, without empty ones around them."""
    console = _console(columns)
    rows = [_row(console, line) for line in console.render_lines(thing, pad=False)]
    filled = [at for at, row in enumerate(rows) if row.text]
    return rows[filled[0] : filled[-1] + 1] if filled else []


def _row(console: Console, segments: Iterable[Segment]) -> _Row:
    kept = list(segments)
    while kept and not kept[-1].text.rstrip():
        kept.pop()
    if kept:
        kept[-1] = Segment(kept[-1].text.rstrip(), kept[-1].style)
    with console.capture() as written:
        console.print(Segments(kept), end="", soft_wrap=True)
    return _Row(written.get(), "".join(segment.text for segment in kept))


def _console(columns: int) -> Console:
    return Console(
        file=StringIO(), width=max(columns, 1), force_terminal=True, markup=False, emoji=False, highlight=False
    )


# --- blocks -------------------------------------------------------------------------------------------------------

_parser = MarkdownIt().enable(["strikethrough", "table"])
_parser.disable(["html_block", "html_inline", "reference", "image", "entity"])
"""Nothing that a model writes is taken for what is not shown: tags, link targets and entities stand as they are."""


class _Block(NamedTuple):
    """A block of a source, or an item of a list in it: its lines from `start` to before `end`."""

    kind: str
    start: int
    end: int


def _blocks(source: str) -> list[_Block]:
    """The blocks of a source, in order, without the blank lines behind them."""
    lines, found = _LINES.findall(source), list[_Block]()
    for token in _parser.parse(source):
        is_item = token.level == 1 and token.type == "list_item_open"
        if token.map and (is_item or (token.level == 0 and not token.type.endswith("_list_open"))):
            start, end = token.map
            written = [at for at, line in enumerate(lines[start:end], start + 1) if line.strip()]
            found.append(_Block(token.type.removesuffix("_open"), start, written[-1] if written else end))
    return found


def _final(blocks: Sequence[_Block], lines: int, *, last: bool) -> Iterator[_Block]:
    """The blocks that no further line can change, at the `last` all; a fence is taken line by line, as far as it is."""
    for at, block in enumerate(blocks):
        followed, at_blank = at + 1 < len(blocks), block.end < lines
        at_once = block.kind in {"heading", "hr", "fence"}
        if last or followed or at_once or (at_blank and block.kind in {"paragraph", "table", "blockquote"}):
            yield block
        else:
            return


def _rendered(source: str, columns: int) -> list[_Row]:
    """The rows of some Markdown; of what would not be seen in it (nested too deep, empty) its source."""
    rows = _rows(_Markdown(source), columns)
    seen, written = len(_letters(rows)), len("".join(source.split()))
    return rows if seen * _MOST_HIDDEN >= written else _rows(Text(source), columns)


_MOST_HIDDEN = 4
"""How many times longer than what is seen of it a source may be: its marks take room, and an empty table's most."""


_THEME = "ansi_dark"
"""The terminal's own colours."""


class _Heading(markdown.Heading):
    """A heading at the left, as it is in a terminal with little room."""

    LEVEL_ALIGN = {}  # noqa: RUF012  the base class's annotation stands


class _CodeBlock(markdown.CodeBlock):
    """Code on the terminal's own background, so that what is copied has no blanks behind it."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Renders it, wrapped."""
        yield Syntax(str(self.text).rstrip(), self.lexer_name, theme=_THEME, word_wrap=True)


class _ListItem(markdown.ListItem):
    """An item whose number has the point that its writer gave it."""

    def render_number(self, console: Console, options: ConsoleOptions, number: int, last_number: int) -> RenderResult:
        """Renders it behind its number."""
        width = len(str(last_number)) + 3
        for at, line in enumerate(console.render_lines(self.elements, options.update(width=options.max_width - width))):
            yield Segment(f"{f'{number}.'.rjust(width - 1)} " if at == 0 else " " * width)
            yield from line
            yield Segment("\n")


class _Markdown(markdown.Markdown):
    """Markdown whose line ends are line ends, as people write in a chat."""

    elements = markdown.Markdown.elements | {
        "heading_open": _Heading,
        "fence": _CodeBlock,
        "code_block": _CodeBlock,
        "list_item_open": _ListItem,
    }

    def __init__(self, source: str) -> None:
        super().__init__("", code_theme=_THEME, hyperlinks=False)
        self.parsed = list(_with_breaks(_parser.parse(source)))


def _with_breaks(tokens: Sequence[Token]) -> Iterator[Token]:
    for token in tokens:
        for child in token.children or ():
            child.type = "hardbreak" if child.type == "softbreak" else child.type
        yield token


class _Code:
    """A fenced block of code, coloured line by line."""

    _FENCE = re.compile(r"\s*(`{3,}|~{3,})\s*(\S*)")
    _ABOVE = 50

    def __init__(self, opening: str) -> None:
        found = self._FENCE.match(opening)
        self._mark, language = found.groups() if found else ("```", "")
        self._syntax = Syntax("", language or "text", theme=_THEME)
        self._above = deque[str](maxlen=self._ABOVE)
        self._opened = self.closed = False

    def row(self, line: str) -> _Row:
        """The next line, as it is: however long, the terminal wraps it, and what is copied has no other line ends."""
        text = line.removesuffix("\n")
        bare = text.strip()
        if not self._opened:
            shown, self._opened = Text(text, "dim"), True
        elif len(bare) >= len(self._mark) and set(bare) == {self._mark[0]} and not text.startswith("    "):
            shown, self.closed = Text(text, "dim"), True
        else:
            shown = self.text(text)
            self._above.append(text)
        return _row(_console(max(shown.cell_len, 1)), shown.render(_console(80)))

    def text(self, line: str) -> Text:
        """A line in its colours, which may depend on some lines above it."""
        above = len(self._above)
        coloured = self._syntax.highlight("\n".join([*self._above, line])).split("\n", allow_blank=True)
        return coloured[above] if above < len(coloured) else Text(line)
