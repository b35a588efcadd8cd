"""What stands where an old body was: how it reads, and what can still be read from it."""

from __future__ import annotations

import re

__all__ = ["argument_stub", "dropped_stub", "first_and_last", "named_by", "result_stub", "what_it_was"]

_SHOWN = 60
"""The characters of a body's beginning, and of its last line, that a stub shows."""


def what_it_was(tool: str, tokens: int) -> str:
    """A body, as every stub of it begins."""
    return f"result of {tool}, ~{tokens:,} tokens"


def result_stub(tool: str, tokens: int, text: str, seq: int) -> str:
    """What stands for a result: the tool, its size, how it begins and its last line, and the line that has it whole."""
    head, last = " ".join(text[:_SHOWN].split()), (text.strip().splitlines() or [""])[-1]
    tail = " ".join(last[-_SHOWN:].split())
    return f"[cleared: {what_it_was(tool, tokens)}, begins {head!r}, ends {tail!r}; message #{seq}]"


def dropped_stub(tool: str, tokens: int, seq: int) -> str:
    """What stands for a result of which nothing is to be shown."""
    return f"[cleared: {what_it_was(tool, tokens)}; message #{seq}]"


def argument_stub(tokens: int, seq: int) -> str:
    """What stands for a long text in the arguments of a call."""
    return f"[cleared: ~{tokens:,} tokens, message #{seq}]"


_ANY = re.compile(r"\[cleared: (?:result of [^\n]{1,400}?|~[\d,]+ tokens)[;,] message #(\d+)\]")
_RESULT = re.compile(
    r"\[cleared: result of .*?, begins (['\"])(?P<head>.*?)\1, ends (['\"])(?P<tail>.*?)\3; message #\d+\]", re.DOTALL
)


def named_by(text: str) -> int | None:
    """The line that a stub in a text names; None where there is no stub in it."""
    found = _ANY.search(text)
    return int(found[1]) if found else None


def first_and_last(text: str) -> str:
    """A result as far as its stub still shows it: its beginning and its last line; a text that is no stub as it is."""
    found = _RESULT.fullmatch(text)
    return f"{found['head']}\n{found['tail']}" if found else text
