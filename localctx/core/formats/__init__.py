"""Saved conversations, in the formats that people have on disk, as wire messages: pure, and total over JSON values.

A format is recognised by its shape, never by a file's name; what is not recognised is no conversation. A file of JSON
lines is the list of their values.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from localctx.core.formats import chat, claude_code, codex, own, pi, sharegpt
from localctx.core.formats.conversation import UNRECORDED, Conversation, Format, LeftOut, Why

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

__all__ = ["UNRECORDED", "Conversation", "Format", "LeftOut", "Why", "convert", "recognise"]

_Recognises: TypeAlias = "Callable[[object], bool]"
_Reads: TypeAlias = "Callable[[object], Iterable[Conversation]]"

_READERS: Mapping[Format, tuple[_Recognises, _Reads]] = {
    Format.LOCALCTX: (own.recognises, own.read),
    Format.CODEX: (codex.recognises, codex.read),
    Format.CLAUDE_CODE: (claude_code.recognises, claude_code.read),
    Format.PI: (pi.recognises, pi.read),
    Format.SWE_AGENT: (chat.is_swe_agent, lambda value: chat.read(value, Format.SWE_AGENT)),
    Format.SHAREGPT: (sharegpt.recognises, sharegpt.read),
    Format.ANTHROPIC: (chat.is_anthropic, lambda value: chat.read(value, Format.ANTHROPIC)),
    Format.OPENAI: (chat.is_openai, lambda value: chat.read(value, Format.OPENAI)),
}
"""The most telling shapes first."""


def recognise(value: object) -> Format | None:
    """The format of a decoded document, or of the list of a file's JSON lines; None where it is no conversation."""
    return next((form for form, (recognises, _) in _READERS.items() if recognises(value)), None)


def convert(value: object, form: Format) -> tuple[Conversation, ...]:
    """The conversations that a value of this format holds; none where it is of another.

    Each is what a model would read next: what follows the last compaction, on the branch that ends last.
    """
    return tuple(_READERS[form][1](value)) if _READERS[form][0](value) else ()
