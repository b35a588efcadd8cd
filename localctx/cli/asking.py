"""Asking a person on the terminal whether a tool may do what the model wishes."""

from __future__ import annotations

import re
import signal
import sys
import unicodedata
from contextlib import suppress
from typing import TYPE_CHECKING

from localctx.app.tools.approval import Answer, Reply
from localctx.cli.render import Renderer, question

if TYPE_CHECKING:
    from localctx.core.approval import Wish

__all__ = ["Asking", "answered", "can_ask", "plainly"]

_MOST_LINES, _MOST_WIDTH = 60, 500
"""Lines and characters of a line that are shown before the person wants to see all."""

_HIDING = {"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"}
"""Characters that are not seen, or that move others: escapes, carriage returns, directions, joiners, ends of lines."""


def can_ask(*, as_json: bool) -> bool:
    """Whether there is a person to ask: both ends of the question are a terminal."""
    return not as_json and all(stream is not None and stream.isatty() for stream in (sys.stdin, sys.stderr))


def plainly(text: str) -> str:
    r"""A text of a stranger as it is: what would not be seen is written as `\uXXXX`."""
    return "".join(
        each if each in "\n\t" or unicodedata.category(each) not in _HIDING else f"\\u{ord(each):04x}" for each in text
    )


class Asking:
    """Asks, in the chat as between the words of one answer."""

    def __init__(self, render: Renderer) -> None:
        self._render = render

    async def __call__(self, wish: Wish) -> Answer:
        """What the person says. Ctrl-C there is Ctrl-C: it stops the turn."""
        self._render.end_line()
        text = f"{wish.tool}: {wish.subject}" + (f"\n{wish.details}" if wish.details else "")
        whole = plainly(text).split("\n")
        shown = [line[:_MOST_WIDTH] + (" [...]" if len(line) > _MOST_WIDTH else "") for line in whole[:_MOST_LINES]]
        question(shown)
        more = shown != whole
        if more:
            question([f"[not all is shown: {len(whole):,} lines, {sum(map(len, whole)):,} characters]"])
        while True:
            prompt = f"allow? yes, no [reason], always this same one{', view all' if more else ''}: "
            answer = answered(await _line(prompt))
            if answer is not None:
                return answer
            if more:
                question(whole)


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
