"""What reading a saved conversation gives: wire messages, tool schemas, and what was left out and why.

Files come from anywhere, so every reader takes its values from a `Draft`, which passes on objects of a bounded depth and
counts the rest.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from localctx.core.outgoing import WireMessage

__all__ = [
    "DEEPEST",
    "UNRECORDED",
    "Conversation",
    "Draft",
    "Entry",
    "Format",
    "LeftOut",
    "Why",
    "objects",
    "spelled",
    "text_of",
]

Entry: TypeAlias = "Mapping[str, object]"

DEEPEST = 64
"""How many lists and objects may stand inside each other; what is deeper would break the recursion of a JSON writer."""


_KIND = re.compile(r"[A-Za-z0-9_./ -]{1,40}")
_MOST_KINDS = 60


class Format(StrEnum):
    """The formats that are known, by the name that people use."""

    OPENAI = "openai"
    ANTHROPIC = "anthropic"
    CLAUDE_CODE = "claude-code"
    CODEX = "codex"
    PI = "pi"
    SHAREGPT = "sharegpt"
    SWE_AGENT = "swe-agent"
    LOCALCTX = "localctx"


UNRECORDED: Mapping[Format, str] = {
    Format.CLAUDE_CODE: "the system prompt and the tools",
    Format.CODEX: "Codex' own tools",
    Format.PI: "the system prompt and the tools",
    Format.LOCALCTX: "the tools",
}
"""What a request of these programs also holds and their files never do: a count of the messages leaves it out."""


class Why(StrEnum):
    """Why something in a file is no message of the conversation, put so that it ends a sentence."""

    REPLACED = "replaced by a compaction"
    CLEARED = "replaced by stubs"
    WITHDRAWN = "taken back"
    BRANCH = "on another branch"
    SUBAGENT = "of a subagent"
    DOUBLED = "written more than once"
    UNSENT = "not sent to a model"
    SEALED = "whose text is not in the file"
    UNKNOWN = "of an unknown kind"
    DAMAGED = "that cannot be read"


@dataclass(frozen=True, slots=True)
class LeftOut:
    """How many of what were left out, and why."""

    count: int
    what: str
    why: Why

    def __str__(self) -> str:
        return f"{self.count:,} {self.what} {self.why}"


@dataclass(frozen=True, slots=True)
class Conversation:
    """What a model would read next: messages in the OpenAI chat dialect, the tools that the file holds, and the rest."""

    format: Format
    messages: tuple[WireMessage, ...]
    tools: tuple[WireMessage, ...] = ()
    left_out: tuple[LeftOut, ...] = ()

    @property
    def unrecorded(self) -> str | None:
        """What files of this format leave out of every request, and so out of any count; None where nothing is known of that."""
        return UNRECORDED.get(self.format)


@dataclass(slots=True)
class Draft:
    """A conversation while it is read. `opened` are the ids of calls that were made up here and have no result yet."""

    format: Format
    messages: list[WireMessage] = field(default_factory=list)
    tools: list[WireMessage] = field(default_factory=list)
    opened: list[str] = field(default_factory=list)
    _calls: int = 0
    _gone: dict[tuple[str, Why], int] = field(default_factory=dict)

    def leave(self, what: str, why: Why, count: int = 1) -> None:
        """Counts what is left out."""
        if count > 0:
            self._gone[what, why] = self._gone.get((what, why), 0) + count

    def leave_kind(self, kind: object, noun: str, why: Why) -> None:
        """Counts what is left out under the kind that the file gives it; strange kinds, and too many, go as `other`."""
        known = isinstance(kind, str) and _KIND.fullmatch(kind) is not None
        what = f"{kind} {noun}" if known else f"other {noun}"
        self.leave(what if len(self._gone) < _MOST_KINDS or (what, why) in self._gone else f"other {noun}", why)

    def objects(self, values: object, what: str = "entries") -> list[Entry]:
        """The objects of a list that are not nested too deeply; anything else in it is counted."""
        kept = [each for each in objects(values) if _shallow(each, DEEPEST)]
        given = len(values) if isinstance(values, list) else int(values is not None)
        self.leave(what, Why.DAMAGED, given - len(kept))
        return kept

    def new_call(self) -> str:
        """An id for a call that has none; it waits for a result."""
        self._calls += 1
        self.opened.append(f"call_{self._calls}")
        return self.opened[-1]

    def answered(self) -> str | None:
        """The oldest id that was made up and has no result; None where there is none."""
        return self.opened.pop(0) if self.opened else None

    def done(self) -> Conversation:
        """The conversation."""
        left_out = tuple(LeftOut(count, what, why) for (what, why), count in self._gone.items())
        return Conversation(self.format, tuple(self.messages), tuple(self.tools), left_out)


def objects(values: object) -> Iterator[Entry]:
    """The objects of a list; none where it is no list."""
    return (each for each in values if isinstance(each, dict)) if isinstance(values, list) else iter(())


def _shallow(value: object, room: int) -> bool:
    inner: Iterable[object] = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return room > 0 and all(_shallow(each, room - 1) for each in inner if isinstance(each, (dict, list)))


def text_of(value: object) -> str:
    """The value if it is text, else nothing."""
    return value if isinstance(value, str) else ""


def spelled(value: object) -> str:
    """A value as JSON text, as a model reads it; text stays as it is."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
