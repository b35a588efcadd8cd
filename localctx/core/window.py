"""Window readings, how they are reconciled, and the budget that follows.

All sizes are tokens. A reading keeps its source for as long as the number is shown. 0, negative and absent mean
unknown, and unknown is not unlimited.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = [
    "ASSUMED_TOKENS",
    "Advice",
    "Budget",
    "Confidence",
    "EffectiveWindow",
    "ModelReport",
    "Reading",
    "ServerReport",
    "Source",
    "Status",
    "assume",
    "reconcile",
    "reread",
]

ASSUMED_TOKENS = 4096
"""What `run` and `compact` assume where nobody knows the window: the smallest default of a common server (Ollama's)."""


class Source(StrEnum):
    """Who says a number."""

    SERVED = "served"
    MEASURED = "measured"
    PINNED = "pinned"
    CONFIGURED = "configured"
    TRAINED = "trained"
    ADVERTISED = "advertised"
    ASSUMED = "assumed"


class Confidence(StrEnum):
    """How an effective window is known: the server serves it now, it is only set up or asked for, or nobody knows."""

    SERVED = "served"
    PROVISIONAL = "provisional"
    UNKNOWN = "unknown"


class Status(StrEnum):
    """What an address answered."""

    UP = "up"
    LOADING = "loading"
    UNAUTHORIZED = "unauthorized"
    DOWN = "down"
    ERROR = "error"


@dataclass(frozen=True, slots=True)
class Reading:
    """One statement about a window: who says it, how many tokens, and where it was read."""

    source: Source
    tokens: int
    where: str
    note: str | None = None


@dataclass(frozen=True, slots=True)
class EffectiveWindow:
    """The reconciled answer. `tokens` is None where nobody knows; `max_prompt` is the longest prompt that is accepted."""

    tokens: int | None
    confidence: Confidence
    max_prompt: int | None
    ceiling: int | None
    decided_by: Reading | None
    readings: tuple[Reading, ...]
    pin_reloads: bool = False


def reconcile(
    readings: Iterable[Reading], *, ceiling: int | None = None, pin_reloads: bool = False, reply_margin: int = 1
) -> EffectiveWindow:
    """The effective window that the readings add up to.

    A served window is never capped by what is trained or advertised; those cap only a pin or a setting that the server
    has not confirmed, and a catalog, whose listings are services' own, only where nobody says what is trained. A pin lowers
    a served window, and a configured one that it cannot change. Where a pin makes the server load again (`pin_reloads`, Ollama), it
    replaces the served one and stays provisional until the server confirms it. The ceiling only lowers.
    `reply_margin` is how many tokens of the window no prompt may use.
    """
    known = tuple(reading for reading in readings if reading.tokens > 0)
    decided, confidence = _decide(known, pin_reloads=pin_reloads)
    ceiling = ceiling if ceiling is not None and ceiling > 0 else None
    if decided is None:
        return EffectiveWindow(None, Confidence.UNKNOWN, None, ceiling, None, known, pin_reloads)
    tokens = decided.tokens if ceiling is None else min(decided.tokens, ceiling)
    longest = max(tokens - reply_margin, 0)
    return EffectiveWindow(tokens, confidence, longest, ceiling, decided, known, pin_reloads)


def reread(window: EffectiveWindow, *readings: Reading) -> EffectiveWindow:
    """The window with more readings: what a catalog advertises, or what a server has shown beside what it said."""
    margin = 1 if window.tokens is None or window.max_prompt is None else window.tokens - window.max_prompt
    every = (*window.readings, *readings)
    return reconcile(every, ceiling=window.ceiling, pin_reloads=window.pin_reloads, reply_margin=margin)


def assume(window: EffectiveWindow) -> EffectiveWindow:
    """The same window, or, where nobody knows it, the assumed one; still `unknown`, so that it is never shown as known."""
    if window.tokens is not None:
        return window
    guess = Reading(Source.ASSUMED, ASSUMED_TOKENS, "no source states a window")
    tokens = min(ASSUMED_TOKENS, window.ceiling or ASSUMED_TOKENS)
    return EffectiveWindow(tokens, Confidence.UNKNOWN, tokens - 1, window.ceiling, guess, (*window.readings, guess))


def _decide(known: tuple[Reading, ...], *, pin_reloads: bool) -> tuple[Reading | None, Confidence]:
    served = _least(known, Source.SERVED, Source.MEASURED)
    pinned, configured = _least(known, Source.PINNED), _least(known, Source.CONFIGURED)
    if pinned is not None and not pin_reloads:
        pinned = _lower(pinned, configured)
    if served is not None and not (pin_reloads and pinned is not None and pinned.tokens != served.tokens):
        return (_lower(served, pinned), Confidence.SERVED)
    unconfirmed = pinned or configured
    if unconfirmed is None:
        return None, Confidence.UNKNOWN
    cap = _least(known, Source.TRAINED) or (_least(known, Source.ADVERTISED) if pinned else None)
    return _lower(_lower(unconfirmed, cap), _least(known, Source.MEASURED)), Confidence.PROVISIONAL


def _least(known: tuple[Reading, ...], *sources: Source) -> Reading | None:
    return min((reading for reading in known if reading.source in sources), key=lambda r: r.tokens, default=None)


def _lower(one: Reading, other: Reading | None) -> Reading:
    return other if other is not None and other.tokens < one.tokens else one


_RESERVE_SHARE = 0.15
_RESERVE_LIMIT = 0.25


@dataclass(frozen=True, slots=True)
class Budget:
    """A window divided: `reserve` is kept for the reply, `prompt` is what a request may use.

    `tail` is the most that a compaction keeps word for word, where reading it again would try somebody's patience.
    """

    window: int
    reserve: int
    max_prompt: int
    tail: int | None = None

    @classmethod
    def of(cls, window: int, *, max_prompt: int | None = None, output_limit: int | None = None) -> Budget:
        """The budget of a window: 15 % of it for the reply, or the output limit, never above 25 %."""
        wanted = output_limit if output_limit is not None and output_limit > 0 else int(window * _RESERVE_SHARE)
        longest = window - 1 if max_prompt is None else min(max_prompt, window - 1)
        return cls(window, min(wanted, int(window * _RESERVE_LIMIT)), longest)

    @property
    def prompt(self) -> int:
        """The tokens that a request may use when the reserve is kept."""
        return min(self.window - self.reserve, self.max_prompt)

    def due(self, threshold: float) -> int:
        """The size at which a rung with this threshold is due: its share of the window, and never past the budget."""
        return min(int(self.window * threshold), self.prompt)

    def reply(self, upper: int, wanted: int | None) -> int:
        """The `max_tokens` for a prompt of at most `upper` tokens; below 1 where the prompt does not fit."""
        room = self.window - upper if upper <= self.max_prompt else 0
        return room if wanted is None else min(wanted, room)


@dataclass(frozen=True, slots=True)
class Advice:
    """A warning: a stable code, what is wrong, and what to type to fix it."""

    code: str
    text: str
    fix: str


@dataclass(frozen=True, slots=True)
class ModelReport:
    """One model of a server. `shared_pool` is the tokens that all slots share, None where they are split or unknown.

    `digest` and `template` are fingerprints of the weights and of the chat template, where the server says them.
    `calls_tools` and `sees_images` are what the model can do as this server runs it; None where the server does not say.
    """

    id: str
    loaded: bool
    window: EffectiveWindow
    trained: int | None = None
    slots: int | None = None
    shared_pool: int | None = None
    aliases: tuple[str, ...] = ()
    template: str | None = None
    digest: str | None = None
    model_bytes: int | None = None
    in_vram_bytes: int | None = None
    calls_tools: bool | None = None
    sees_images: bool | None = None
    warnings: tuple[Advice, ...] = ()


@dataclass(frozen=True, slots=True)
class ServerReport:
    """What one address answered, and the models behind it. `error` says what is wrong and what to do about it."""

    runtime: str | None
    url: str
    status: Status
    version: str | None = None
    error: str | None = None
    models: tuple[ModelReport, ...] = field(default=())
