"""What of a wire message goes on the wire, portion by portion: what has to be counted, and nothing twice."""

from __future__ import annotations

import json
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

__all__ = ["MEDIA_TOKENS", "Kind", "Portion", "medium", "portions", "schema_text"]


class Kind(StrEnum):
    """What a portion is. Media have no text that is sent: their price does not follow their bytes."""

    TEXT = "text"
    CALL = "call"
    REASONING = "reasoning"
    IMAGE = "image"
    AUDIO = "audio"
    FILE = "file"


MEDIA_TOKENS = {Kind.IMAGE: 1100, Kind.AUDIO: 1000, Kind.FILE: 2000}
"""What a medium takes, whatever its bytes, before any report: the middle of what current models take."""


@dataclass(frozen=True, slots=True)
class Portion:
    """A piece of a message, and the text in it; for a call its name and arguments."""

    kind: Kind
    text: str = ""


def portions(message: Mapping[str, object]) -> Iterator[Portion]:
    """All that a message brings to a prompt beside its role. Any JSON value has its portions."""
    for key, value in message.items():
        match key, value:
            case ("role", _) | (_, None):
                continue
            case "content", list():
                yield from map(_part, value)
            case "tool_calls", list():
                yield from map(_call, value)
            case (("reasoning_content" | "reasoning" | "thinking"), str()):
                yield Portion(Kind.REASONING, value)
            case _:
                yield Portion(Kind.TEXT, _plain(value))


def _plain(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _call(call: object) -> Portion:
    match call:
        case {"function": {"name": str(name), "arguments": arguments}}:
            return Portion(Kind.CALL, f"{name} {_plain(arguments)}")
    return Portion(Kind.CALL, _plain(call))


_MEDIA = {"image": Kind.IMAGE, "audio": Kind.AUDIO, "video": Kind.FILE, "file": Kind.FILE, "document": Kind.FILE}


def _part(part: object) -> Portion:
    """A typed part; one that nobody knows and that is no text is taken for a file, so that its bytes are not counted."""
    match part:
        case {"text": str(text)}:
            return Portion(Kind.TEXT, text)
        case {"type": str(kind)}:
            return Portion(medium(kind))
    return Portion(Kind.TEXT, _plain(part))


def medium(kind: str) -> Kind:
    """What a typed part without text is."""
    return next((found for name, found in _MEDIA.items() if name in kind), Kind.FILE)


def schema_text(tool: Mapping[str, object]) -> str:
    """A tool's schema as templates write it."""
    return json.dumps(tool, ensure_ascii=False)
