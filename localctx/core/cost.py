"""What a rung costs on this machine, and what it saves later: predicted from the speeds that servers report.

On a server that keeps the request before, a rung moves the prefix: from its first change on all is prefilled again. On one
that keeps none nothing moves, and what a rung frees is saved in every request. How often the prefix is found covers both.

A speed is a plain rate, although prefill slows down with depth: from 512 tokens to 8k by 1.7 (135M) and 1.4 (270M), measured
on llama.cpp and a CPU, and less the wider a model is. Other work on the machine moves equal prompts by 2.6, so a second
unknown would be fitted to noise.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, replace
from math import inf
from typing import TYPE_CHECKING

from localctx.core.accounting import figure

if TYPE_CHECKING:
    from localctx.core.accounting import Usage

__all__ = ["Asked", "Price", "Speeds", "explained", "learned", "pays", "price", "silence_within", "tail_within"]


@dataclass(frozen=True, slots=True)
class Speeds:
    """What a server does: tokens a second, above 0 or not measured, and how often, from 0 to 1, it finds a prefix.

    `reuses` is of requests that go on from the one before; `rewinds` of those that only begin like it: hybrid, recurrent and
    sliding-window models often cannot go back, and read all again. Both are believed until reports say otherwise.
    """

    prefill: float | None = None
    decode: float | None = None
    reuses: float = 1.0
    rewinds: float = 1.0

    def kept(self) -> str:
        """As JSON text."""
        return json.dumps(asdict(self))

    @classmethod
    def restored(cls, text: str) -> Speeds | None:
        """What `kept` gave; None where the text is anything else, or says what no server does."""
        try:
            read = json.loads(text)
            prefill, decode = (None if read[name] is None else float(read[name]) for name in ("prefill", "decode"))
            speeds = cls(prefill, decode, float(read["reuses"]), float(read["rewinds"]))
        except (ValueError, TypeError, KeyError, RecursionError, OverflowError):
            return None
        rates = all(rate is None or 0 < rate < _FASTEST for rate in (prefill, decode))
        return speeds if rates and 0 <= speeds.reuses <= 1 and 0 <= speeds.rewinds <= 1 else None


@dataclass(frozen=True, slots=True)
class Asked:
    """A summary's requests: the tokens of their prompts, how many the server has `seen` as the request before, and its cap."""

    prompt: int = 0
    seen: int = 0
    written: int = 0


@dataclass(frozen=True, slots=True)
class Price:
    """What a rung costs now and frees, in tokens and in seconds: None where a speed that counts was never measured.

    `prefilled` is all that is read for it: what it moves, and a summary's prompt. `saved` is of every later request.
    """

    seconds: float | None
    saved: float | None
    freed: int
    prefilled: int
    written: int


_LEAST_READ, _LEAST_WRITTEN = 64, 16
"""Fewer say nothing about speed: one token is read three times as slowly as 25, and 25 as fast as 800 (llama.cpp on a CPU; a GPU
needs more); the first one written costs no step."""

_FASTEST = 1e6
"""More tokens a second than any machine reads or writes: servers report a microsecond for nothing."""

_TELLING = 256
"""A shared beginning from which one can see whether it was kept: twice the largest block of a cache (vLLM on a CPU)."""

_NEWEST = 0.25
"""The weight of the newest report: three say more than all before them, and one alone is not believed."""


def learned(speeds: Speeds, usage: Usage, shared: int | None, *, rewritten: bool = False) -> Speeds:
    """The speeds after a report; what is too small to tell, or absurd, teaches nothing.

    `shared` is how many tokens of this prompt began the request before as well, None where that is unknown, as for a first
    request. `rewritten`: behind those the request before went on otherwise.
    """
    speeds = replace(speeds, decode=_speed(speeds.decode, usage.completion, usage.decode_seconds, _LEAST_WRITTEN))
    had, prompt = _had(speeds, usage, shared), usage.prompt
    if had is None or prompt is None or not 0 <= had <= prompt:
        return speeds
    speeds = replace(speeds, prefill=_speed(speeds.prefill, prompt - had, usage.prefill_seconds, _LEAST_READ))
    if shared is None or not _TELLING <= shared <= prompt:
        return speeds
    found = _NEWEST * (2 * had >= shared)
    if rewritten:
        return replace(speeds, rewinds=speeds.rewinds * (1 - _NEWEST) + found)
    return replace(speeds, reuses=speeds.reuses * (1 - _NEWEST) + found)


def _speed(known: float | None, tokens: int | None, seconds: float | None, least: int) -> float | None:
    """A rate after one more sample, smoothed in proportions: ten times as slow moves it as far as ten times as fast."""
    if tokens is None or seconds is None or tokens < least or seconds <= 0:
        return known
    new = tokens / seconds
    if not 0 < new < _FASTEST:
        return known
    return known ** (1 - _NEWEST) * new**_NEWEST if known else new


def _had(speeds: Speeds, usage: Usage, shared: int | None) -> int | None:
    """How much of a prompt the server did not have to read; None where that cannot be told.

    Where it does not say so (Ollama) it is all of `shared` or nothing, whichever is nearer, at the known speed, to the time taken.
    """
    took, prompt = usage.prefill_seconds, usage.prompt
    if usage.cached is not None or prompt is None or shared is None or took is None or not 0 < took < inf:
        return usage.cached
    read = 0 if speeds.prefill is None else took * speeds.prefill
    return shared if read * read <= max(prompt - shared, 1) * prompt else 0


def price(speeds: Speeds, *, before: int, after: int, first_changed: int, summary: Asked = Asked()) -> Price:
    """What a rung costs that makes a request of `before` tokens one of `after`, alike in the first `first_changed`."""
    moved = speeds.reuses * (after - speeds.rewinds * min(first_changed, after))
    asked = summary.prompt - speeds.reuses * min(summary.seen, summary.prompt)
    prefilled, freed = round(moved + asked), max(before - after, 0)
    reading, writing = _seconds(prefilled, speeds.prefill), _seconds(summary.written, speeds.decode)
    seconds = None if reading is None or writing is None else reading + writing
    saved = _seconds(round((1 - speeds.reuses) * freed), speeds.prefill)
    return Price(seconds, saved, freed, prefilled, summary.written)


def _seconds(tokens: int, speed: float | None) -> float | None:
    return (tokens / speed if speed else None) if tokens else 0.0


def pays(clearing: Price, compaction: Price) -> bool:
    """Whether clearing now is cheaper than waiting for `compaction`, priced as when it will be due.

    Clearing spares no compaction, it puts one off, by the turns that fill what it frees. It pays if those turns, bought by the
    compaction, would cost as much: if it frees a token for no more seconds. Without a prefix cache it moves nothing, and always
    pays. Where a speed is missing, a token written counts as one read, the least that it costs.
    """
    now, later = clearing.seconds, compaction.seconds
    if now is None or later is None:
        now, later = clearing.prefilled + clearing.written, compaction.prefilled + compaction.written
    return clearing.freed > 0 and now * compaction.freed <= later * clearing.freed


def tail_within(patience: float, speeds: Speeds, wanted: int) -> int:
    """The tail that is prefilled again within `patience` seconds, never more than `wanted`; that, if nothing was measured."""
    return wanted if speeds.prefill is None else int(min(wanted, max(patience * speeds.prefill, 0)))


def silence_within(new: int, speeds: Speeds) -> float:
    """The seconds for which a server may be silent while it reads `new` tokens: three times what that takes, as far as is known."""
    return _LEAST_SILENCE + _DOUBT * new / (speeds.prefill or _SLOWEST)


_LEAST_SILENCE, _DOUBT, _SLOWEST = 120.0, 3.0, 20.0
"""Seconds that loading and queues may take; how much slower than measured other work may make a server; and the tokens a second
of a model of 7B on two cores, where nothing was measured."""


def explained(doing: str, cost: Price, *, due: float | None = None, until: float | None = None) -> str:
    """One line for a person: "clearing now frees 9.1k tokens and costs 31 s of prefill; waiting is cheaper until 74%".

    `due` is the share of the window at which the rung will be, None where it is now. `until` is the share at which what is
    cheaper will be due, None where nothing is. Seconds only where measured.
    """
    line = f"{doing} {'now frees' if due is None else f'is due at {due:.0%}: it frees'} {figure(cost.freed)} tokens"
    if cost.seconds is None:
        work = {"prefill": cost.prefilled, "write": cost.written}
        line += f", with {' and '.join(f'{figure(tokens)} to {verb}' for verb, tokens in work.items() if tokens)}"
    elif cost.seconds:
        line += f" and costs {_span(cost.seconds)} of prefill{' and writing' if cost.written else ''}"
    if cost.saved:
        line += f"; each request after it takes {_span(cost.saved)} less"
    return line if until is None else f"{line}; waiting is cheaper until {until:.0%}"


def _span(seconds: float) -> str:
    return f"{seconds:.2g} s" if seconds < 10 else f"{seconds:,.0f} s"  # noqa: PLR2004  two digits are enough
