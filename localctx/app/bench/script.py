"""What a scripted conversation is made of: turns, the replies in them, and the calls that those make."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["Call", "Reply", "Turn"]


@dataclass(frozen=True, slots=True)
class Call:
    """A call that the model makes, and what its tool returns; a tool of the session itself answers what it finds."""

    tool: str
    arguments: Mapping[str, object]
    result: str = ""


@dataclass(frozen=True, slots=True)
class Reply:
    """A line of the model's."""

    text: str
    calls: tuple[Call, ...] = ()


@dataclass(frozen=True, slots=True)
class Turn:
    """What the user says and what the model answers, step by step.

    `standing` is what of the user's words has to be in every request from then on.
    """

    asked: str
    replies: tuple[Reply, ...]
    standing: tuple[str, ...] = ()
