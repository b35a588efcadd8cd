"""Asking a person on the terminal whether a tool may do what the model wishes."""

from __future__ import annotations

import re
import signal
import sys
import unicodedata
from contextlib import suppress
from itertools import islice
from typing import TYPE_CHECKING

from localctx.app.tools.approval import Answer, Reply
from localctx.cli.render import Renderer, question, room
from localctx.core.approval import WRITERS

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from localctx.core.approval import Wish

__all__ = ["Asking", "answered", "asked", "behind_bars", "can_ask", "plainly", "told"]

_MOST_LINES, _MOST_WIDTH = 60, 500
"""Lines of a terminal, and characters of a line, that are shown before the person wants to see all."""

_BESIDE = 4
"""The lines of a terminal that are left to the question itself."""

_HIDING = {"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"}
"""Characters that are not seen, or that move others: escapes, carriage returns, directions, joiners, ends of lines."""

_BLANK = re.compile("[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u2800\u3164\ufe00-\ufe0f\uffa0\U000e0100-\U000e01ef]")
"""Letters, signs and marks that are not seen either: fillers, an empty pattern of dots, what chooses a glyph."""


def can_ask(*, as_json: bool) -> bool:
    """Whether there is a person to ask: both ends of the question are a terminal."""
    return not as_json and all(stream is not None and stream.isatty() for stream in (sys.stdin, sys.stderr))


def plainly(text: str) -> str:
    r"""A text of a stranger as it is: what would not be seen is written as `\uXXXX`."""
    return "".join(f"\\u{ord(each):04x}" if _is_hidden(each) else each for each in text)


def _is_hidden(each: str) -> bool:
    return each not in "\n\t" and (unicodedata.category(each) in _HIDING or bool(_BLANK.match(each)))


class Asking:
    """Asks, in the chat as between the words of one answer."""

    def __init__(self, render: Renderer) -> None:
        self._render = render

    async def __call__(self, wish: Wish) -> Answer:
        """What the person says. Ctrl-C there is Ctrl-C: it stops the turn."""
        self._render.end_line()
        columns, height = room()
        whole, most = told(wish), min(_MOST_LINES, max(height - _BESIDE, 1))
        cut = (line if len(line) <= _MOST_WIDTH else f"{line[:_MOST_WIDTH]} [...]" for line in whole)
        shown = list(islice(behind_bars(cut, columns), most + 1))
        more = len(shown) > most or any(len(line) > _MOST_WIDTH for line in whole)
        question(shown[:most])
        if more:
            question([f"[not all is shown: {len(whole):,} lines, {sum(map(len, whole)):,} characters]"])
        while True:
            answer = answered(await _line(asked(wish, view=more)))
            if answer is not None:
                return answer
            if more:
                question(list(behind_bars(whole, columns)))


def told(wish: Wish) -> list[str]:
    """What a model wishes to do, on one line as that has it, and the lines of the details."""
    subject = plainly(wish.subject).replace("\n", "\\n").replace("\t", "\\t")
    return [f"{wish.tool}: {subject}", *(plainly(wish.details).split("\n") if wish.details else [])]


def behind_bars(lines: Iterable[str], columns: int) -> Iterator[str]:
    """Lines as a terminal of so many columns has them, each behind a bar: so nothing in them can be taken for a question."""
    for line in lines:
        bar = "| "
        for part in _parts(line.expandtabs(4), max(columns - 3, 8)):
            yield bar + part
            bar = "|>"


def _parts(line: str, width: int) -> Iterator[str]:
    """A line in parts that are no wider; what may take two columns is taken to do so."""
    start, taken = 0, 0
    for at, each in enumerate(line):
        wide = 1 + (unicodedata.east_asian_width(each) in "WFA")
        if taken + wide > width:
            yield line[start:at]
            start, taken = at, 0
        taken += wide
    yield line[start:]


def asked(wish: Wish, *, view: bool) -> str:
    """The question: which tool would do what of how many lines, and what each answer grants."""
    lines = wish.subject.count("\n") + 1 + (wish.details.count("\n") + 1 if wish.details else 0)
    said = {
        "fetch_url": f"yes (any page of {_short(wish.subject)} in this run), no [reason]",
        "read_file": "yes, no [reason], always this file",
        **dict.fromkeys(WRITERS, "yes, no [reason], always (this file, whatever is written)"),
    }
    answers = said.get(wish.tool, "yes, no [reason], always this same one")
    return (
        f"{wish.tool}, {lines:,} {'line' if lines == 1 else 'lines'}: allow? {answers}{', view all' if view else ''}: "
    )


def _short(host: str) -> str:
    return plainly(host) if len(host) <= _MOST_HOST else "this host"


_MOST_HOST = 60


def answered(line: str) -> Answer | None:
    """What a typed line answers: a yes and an always in one word, everything else a no with the line as its reason.

    None for nothing, and for the wish to see all.
    """
    word, reason = line.strip().lower(), re.sub(r"^(no?\b)[\s,.:;!-]*", "", line.strip(), flags=re.IGNORECASE)
    if word in {"", "v", "view", "view all", "?"}:
        return None
    if word in {"y", "yes"}:
        return Answer(Reply.YES)
    return Answer(Reply.ALWAYS) if word in {"a", "always"} else Answer(Reply.NO, reason)


async def _line(prompt: str) -> str:
    """A line that the person types after it was asked for; the end of the input is a no."""
    import anyio
    from prompt_toolkit import PromptSession
    from prompt_toolkit.output import create_output

    _forget_what_was_typed()
    session: PromptSession[str] = PromptSession(output=create_output(stdout=sys.stderr))
    try:
        return await session.prompt_async(prompt, handle_sigint=False)  # else it takes away whose signal it is
    except EOFError:
        return "no"
    except KeyboardInterrupt:
        signal.raise_signal(signal.SIGINT)  # to whoever takes it here
        await anyio.sleep_forever()
        raise


def _forget_what_was_typed() -> None:
    """What was typed before the question is no answer to it."""
    with suppress(ImportError, OSError, ValueError):
        import termios

        termios.tcflush(sys.stdin.fileno(), termios.TCIFLUSH)
    from prompt_toolkit.application import get_app_session
    from prompt_toolkit.input.typeahead import clear_typeahead

    clear_typeahead(get_app_session().input)
