"""What happens, as values: what shells render and scripts read. Sizes are tokens, times are seconds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from localctx.core.accounting import Count, Usage
    from localctx.core.ladder import Rung
    from localctx.core.window import EffectiveWindow

__all__ = [
    "Drafting",
    "Event",
    "Notice",
    "Prefilling",
    "PressureRaised",
    "RequestSent",
    "RungBegun",
    "RungTaken",
    "Text",
    "Thinking",
    "ToolAnswered",
    "ToolCalled",
    "Truncated",
    "TurnEnded",
    "UsageReported",
    "WindowProbed",
]


@dataclass(frozen=True, slots=True)
class WindowProbed:
    """The window that the run goes by, and whose it is."""

    window: EffectiveWindow
    runtime: str
    url: str
    model: str


@dataclass(frozen=True, slots=True)
class RequestSent:
    """A request goes out: the tokens of its prompt, how many of them are likely to be read anew, and the seconds that this takes.

    `seconds` is None where no speed was measured yet.
    """

    prompt: int
    new: int
    seconds: float | None


@dataclass(frozen=True, slots=True)
class Prefilling:
    """The server says how far it is with the prompt: tokens `done` of `total`, `cached` of which it had already."""

    done: int
    total: int
    cached: int


@dataclass(frozen=True, slots=True)
class Text:
    """A piece of the reply."""

    text: str


@dataclass(frozen=True, slots=True)
class Thinking:
    """A piece of the model's reasoning."""

    text: str


@dataclass(frozen=True, slots=True)
class Drafting:
    """The model is writing a call: its tool, as far as it is named, and the characters of its arguments so far."""

    name: str
    characters: int


@dataclass(frozen=True, slots=True)
class ToolCalled:
    """The model calls a tool; `arguments` is JSON text as it wrote it, perhaps malformed."""

    id: str
    name: str
    arguments: str


@dataclass(frozen=True, slots=True)
class ToolAnswered:
    """What a call came to: the `size` of it all in characters, and what the model is shown."""

    id: str
    name: str
    size: int
    shown: str


@dataclass(frozen=True, slots=True)
class UsageReported:
    """What the server reported of a reply, and what was expected of its prompt."""

    usage: Usage
    expected: Count


@dataclass(frozen=True, slots=True)
class PressureRaised:
    """The window fills: past the warning threshold, said once until the next compaction."""

    used: int
    window: int


@dataclass(frozen=True, slots=True)
class RungBegun:
    """A rung that takes a while has begun."""

    rung: Rung
    used: int
    window: int


@dataclass(frozen=True, slots=True)
class RungTaken:
    """A rung was taken: sizes before and after, how (`model`, `machine`, `prepared`, `stubs`), and the seconds that it took.

    `predicted` are the seconds that it was likely to cost with the next request's prefill; None where no speed is known.
    """

    rung: Rung
    how: str
    tokens_before: int
    tokens_after: int
    messages_before: int
    messages_after: int
    seconds: float
    predicted: float | None = None


@dataclass(frozen=True, slots=True)
class Notice:
    """Something that a person should know; `code` is stable."""

    code: str
    text: str


@dataclass(frozen=True, slots=True)
class Truncated:
    """The silent truncation alarm: the server reports fewer prompt tokens than were sent.

    About `unseen` messages did not reach the model. `again`: room is made, and the request is sent once more.
    """

    expected: Count
    reported: int
    unseen: int
    again: bool


@dataclass(frozen=True, slots=True)
class TurnEnded:
    """A reply is over. `finish` is the server's reason, as `stop` or `length`."""

    finish: str
    used: int
    window: int


Event: TypeAlias = (
    WindowProbed
    | RequestSent
    | Prefilling
    | Text
    | Thinking
    | Drafting
    | ToolCalled
    | ToolAnswered
    | UsageReported
    | PressureRaised
    | RungBegun
    | RungTaken
    | Notice
    | Truncated
    | TurnEnded
)
