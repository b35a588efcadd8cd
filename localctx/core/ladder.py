"""The ladder: which rung is due, and what each rung would do to a history. Nothing here asks anybody anything."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from enum import StrEnum
from itertools import islice, takewhile
from typing import TYPE_CHECKING

from localctx.core.accounting import head_and_tail
from localctx.core.checkpoint import capped, machine_half, summary_cap, words_budget
from localctx.core.effects import Cleared, Compacted, Effect, Stub, apply, stubbed
from localctx.core.messages import (
    Checkpoint,
    History,
    Message,
    ToolCall,
    ToolCycle,
    end_of,
    plain,
)
from localctx.core.results import unframed
from localctx.core.sizes import Sizer, history_size, unit_size
from localctx.core.stubs import argument_stub, dropped_stub, result_stub, what_it_was
from localctx.errors import Misuse

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from localctx.core.window import Budget

__all__ = [
    "POLICIES",
    "Decision",
    "OldResult",
    "Policy",
    "Rung",
    "Standing",
    "checkpoint_at",
    "choose_cut",
    "clear",
    "clear_gain",
    "clearable",
    "compaction_cut",
    "freed",
    "kept_tail",
    "least",
    "next_rung",
    "standing",
    "system_size",
    "tail_tokens",
    "trim",
    "tuned",
    "untouched",
]


class Rung(StrEnum):
    """The rungs, cheapest first."""

    CLEAR = "clear"
    WARN = "warn"
    COMPACT = "compact"
    TRIM = "trim"


@dataclass(frozen=True, slots=True)
class Policy:
    """When each rung is due, as shares of the window (defaults: the seed's), and what is protected.

    `rungs` are those that the policy takes at all. `arguments`: whether long arguments are cleared as results are. A
    compaction keeps the newest `keeps` units whatever their size, and further ones in a tail where there is a `tail`; with
    `keeps` 0 it keeps nothing but what nobody has answered yet. Raises `Misuse` where the thresholds are out of order.
    """

    name: str = "ladder"
    rungs: frozenset[Rung] = frozenset(Rung)
    clear: float = 0.50
    warn: float = 0.70
    compact: float = 0.80
    trim: float = 0.95
    trim_to: float = 0.50
    protected_cycles: int = 5
    protected_share: float = 0.40
    clearable_tokens: int = 256
    clear_gain: float = 0.20
    compact_gain: float = 0.10
    arguments: bool = True
    keeps: int = 1
    tail: bool = True

    def __post_init__(self) -> None:
        """Checks the order: 0 < clear <= warn <= compact <= trim < 1."""
        if not 0 < self.clear <= self.warn <= self.compact <= self.trim < 1:
            shown = ", ".join(f"{rung} {self.threshold(rung):g}" for rung in Rung)
            raise Misuse(f"thresholds are shares, such as 0.7, that rise from 0 to 1: these do not ({shown})")

    def threshold(self, rung: Rung) -> float:
        """The share of the window at which a rung is due."""
        return float(getattr(self, rung.value))


_WITHOUT_CLEAR = frozenset(Rung) - {Rung.CLEAR}

POLICIES: Mapping[str, Policy] = {
    "ladder": Policy(),
    "replace": Policy("replace", _WITHOUT_CLEAR, keeps=0, tail=False),
    "micro": Policy("micro", compact=0.92, clear_gain=0.0, arguments=False),
    "gate": Policy("gate", _WITHOUT_CLEAR, compact=0.92, keeps=2, tail=False),
    "none": Policy("none", frozenset()),
}
"""`ladder` is ours. `replace` keeps system, summary and the user's words; `micro` clears old results whenever it can, and
compacts late; `gate` compacts late, down to the last two units; `none` does nothing."""


def tuned(policy: Policy, **wanted: float | None) -> tuple[Policy, tuple[str, ...]]:
    """The policy with the thresholds that were set, by the names of their rungs, and what is said of those that are of no use (seed).

    Such a value falls back to the policy's own. A lowered threshold pulls those below it down that were not set.
    """
    said, chosen = list[str](), dict[str, float]()
    limit, above = 1.0, "1"
    for rung in reversed(Rung):
        value, own = wanted.get(rung), min(policy.threshold(rung), limit)
        fits = value is None or 0 < value < limit
        if not fits:
            said.append(f"threshold {rung} {value:g} is not between 0 and {above} ({limit:g}); using {own:g}")
        chosen[rung] = own if value is None or not fits else value
        limit, above = chosen[rung], rung.value
    clear, warn, compact, trim = (chosen[rung] for rung in Rung)
    return replace(policy, clear=clear, warn=warn, compact=compact, trim=trim), tuple(said)


# --- deciding -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Standing:
    """Where a history stands: tokens used, and what clearing and compacting would free."""

    used: int
    clearable: int = 0
    compactable: int = 0


def next_rung(at: Standing, budget: Budget, policy: Policy, taken: frozenset[Rung]) -> Rung | None:
    """The cheapest rung that is due, worth its price and not yet taken in this pass; None where the request may go.

    Clearing must free a fifth of the window, since each rewrite costs a new prefill; compaction a tenth of the budget.
    Trimming is the floor: it is due past its threshold whatever it frees.
    """
    gains = {
        Rung.CLEAR: at.clearable >= max(budget.window * policy.clear_gain, 1),
        Rung.COMPACT: at.compactable >= budget.prompt * policy.compact_gain,
        Rung.TRIM: True,
    }
    for rung, pays in gains.items():
        if rung not in policy.rungs or rung in taken or not pays:
            continue
        if at.used > budget.due(policy.threshold(rung)) - (rung is Rung.CLEAR):
            return rung
    return None


def standing(
    history: History, used: int, budget: Budget, policy: Policy, size: Callable[[str], int], *, force: bool = False
) -> Standing:
    """What the rungs that are due could free now, by `size`, which is to agree with the count `used`.

    With `force`, what a compaction could free is worked out whether it is due or not.
    """
    may_clear = Rung.CLEAR in policy.rungs and used >= budget.due(policy.clear)
    may_compact = force or (Rung.COMPACT in policy.rungs and used > budget.due(policy.compact))
    return Standing(
        used,
        clear_gain(history, budget, policy, size) if may_clear else 0,
        _compact_gain(history, used, budget, policy, size) if may_compact else 0,
    )


def clear_gain(history: History, budget: Budget, policy: Policy, size: Callable[[str], int]) -> int:
    """The tokens that clearing would free."""
    return sum(map(_gain(policy, size), _unprotected(history, budget, policy, size)))


def _gain(policy: Policy, size: Callable[[str], int]) -> Callable[[ToolCycle], int]:
    """What says how many tokens clearing a cycle would free."""

    def work(cycle: ToolCycle, base: Callable[[str], int]) -> int:
        return _cycle_gain(cycle, policy, base)

    what = f"gain {policy.name}"
    return lambda cycle: size.of(cycle, what, work) if isinstance(size, Sizer) else work(cycle, size)


def _cycle_gain(cycle: ToolCycle, policy: Policy, size: Callable[[str], int]) -> int:
    stubs = _cycle_stubs(cycle, policy, size, {})
    texts = {(stub.seq, stub.call_id): stub.text for stub in stubs}
    return unit_size(cycle, size) - unit_size(stubbed(cycle, texts), size) if stubs else 0


def _compact_gain(history: History, used: int, budget: Budget, policy: Policy, size: Callable[[str], int]) -> int:
    """The tokens that a compaction would free: at least so many where that is enough, exactly where it may not be."""
    cut = compaction_cut(history, budget, policy, size)
    if cut is None:
        return 0
    tail = takewhile(lambda unit: end_of(unit) > cut, history.newest_first())
    room = _room(history, budget, size)
    older = used - (budget.window - room) - sum(unit_size(unit, size) for unit in tail)
    sure = older - summary_cap(budget.window) - words_budget(room) - _HEADINGS
    if sure >= budget.prompt * policy.compact_gain:
        return sure
    return freed(history, Compacted(checkpoint_at(history, cut, budget, size)), size)


_HEADINGS = 100
"""More tokens than a checkpoint's own words take beside notes and the user's words."""


def freed(history: History, effect: Effect, size: Callable[[str], int]) -> int:
    """The tokens that an effect would free."""
    return history_size(history, size) - history_size(apply(history, effect), size)


def checkpoint_at(history: History, cut: int, budget: Budget, size: Callable[[str], int]) -> Checkpoint:
    """The machine's checkpoint of what ends at or before `cut`, within its caps."""
    whole = machine_half(history.split(cut)[0], cut, _room(history, budget, size), size)
    return capped(whole, summary_cap(budget.window), size)


def _room(history: History, budget: Budget, size: Callable[[str], int]) -> int:
    """The window less what the system's words take of it: shares are of this, or a long system prompt leaves nothing."""
    return max(budget.window - system_size(history, size), 0)


def system_size(history: History, size: Callable[[str], int]) -> int:
    """The tokens of the system's words."""
    return sum(unit_size(message, size) for message in history.system)


# --- rungs --------------------------------------------------------------------------------------------------------

_TAIL_SHARE, _TAIL_LEAST, _TAIL_MOST = 0.20, 8_000, 40_000


def tail_tokens(room: int) -> int:
    """The tokens that a compaction keeps word for word: a fifth of the window, 8k to 40k, a quarter below 32k (seed)."""
    return min(max(int(room * _TAIL_SHARE), min(_TAIL_LEAST, room // 4)), _TAIL_MOST)


def compaction_cut(history: History, budget: Budget, policy: Policy, size: Callable[[str], int]) -> int | None:
    """The line up to which a compaction covers a history; None where nothing is old enough.

    The tail is what `kept_tail` allows.
    """
    return choose_cut(history, kept_tail(history, budget, policy, size), size, policy.keeps)


def kept_tail(history: History, budget: Budget, policy: Policy, size: Callable[[str], int]) -> int:
    """The tokens that a compaction keeps word for word: as `tail_tokens` allows, within the budget's own limit.

    Never more than a third of what lies between the part that stands before it and the compaction's threshold: what is
    kept is read again, and brings the next compaction nearer. So at least twice as much is freed as is kept.
    """
    most = tail_tokens(_room(history, budget, size))
    most = most if budget.tail is None else min(most, budget.tail)
    free = max(budget.due(policy.compact) - _lead(history, budget, size), 0)
    return min(most, free // _FREE_FOR_TAIL) if policy.tail else 0


_FREE_FOR_TAIL = 3
"""How many times the longest tail the room is that it takes its place in."""


def _lead(history: History, budget: Budget, size: Callable[[str], int]) -> int:
    """The most that stands before the tail after a compaction: the system's words, the user's, and the notes."""
    room = _room(history, budget, size)
    return (budget.window - room) + words_budget(room) + summary_cap(budget.window)


def choose_cut(history: History, room: int, size: Callable[[str], int], keeps: int = 1) -> int | None:
    """The line up to which a history is covered, so that the newest units within `room` stay; None: nothing is older.

    The newest `keeps` units stay whatever their size, and in any case what nobody has answered yet.
    """
    for at, unit in enumerate(history.newest_first()):
        unanswered = at == 0 and isinstance(unit, (Message, ToolCycle))
        room -= unit_size(unit, size)
        if at >= keeps and not unanswered and room < 0:
            return end_of(unit)
    return None


class Decision(StrEnum):
    """What becomes of an old result: it stays, keeps its head and tail, or all but a word of it goes."""

    KEEP = "keep"
    TRUNCATE = "truncate"
    DROP = "drop"


@dataclass(frozen=True, slots=True)
class OldResult:
    """A result that may be cleared: the line it is on, its tool, its size in tokens and its text."""

    seq: int
    tool: str
    tokens: int
    text: str


def clear(
    history: History,
    budget: Budget,
    policy: Policy,
    size: Callable[[str], int],
    decided: Mapping[int, Decision] | None = None,
) -> Cleared:
    """Stubs for every large body outside the protected cycles: results, and long arguments of old calls.

    `decided` says by its line what becomes of a result, where somebody has decided it.
    """
    cycles = _unprotected(history, budget, policy, size)
    return Cleared(tuple(stub for cycle in cycles for stub in _cycle_stubs(cycle, policy, size, decided or {})))


def untouched(history: History, budget: Budget, policy: Policy, size: Callable[[str], int]) -> int:
    """The tokens in front of the first unit that `clear` would change."""
    old = {id(cycle) for cycle in _unprotected(history, budget, policy, size)}
    before, gain = history_size(replace(history, turns=()), size), _gain(policy, size)
    for _, unit in history.units():
        if isinstance(unit, ToolCycle) and id(unit) in old and gain(unit) > 0:
            break
        before += unit_size(unit, size)
    return before


def clearable(history: History, budget: Budget, policy: Policy, size: Callable[[str], int]) -> list[OldResult]:
    """The results that `clear` would replace."""
    cycles = _unprotected(history, budget, policy, size)
    return [old for cycle in cycles for old in _old_results(cycle, policy.clearable_tokens, size)]


def _unprotected(history: History, budget: Budget, policy: Policy, size: Callable[[str], int]) -> list[ToolCycle]:
    """All cycles but the newest, as many of those as the policy protects."""
    cycles = [unit for _, unit in history.units() if isinstance(unit, ToolCycle)]
    room, protected = int(budget.prompt * policy.protected_share), 0
    for cycle in islice(reversed(cycles), policy.protected_cycles):
        room -= unit_size(cycle, size)
        if room < 0 and protected:
            break
        protected += 1
    return cycles[: len(cycles) - protected]


def _old_results(cycle: ToolCycle, least: int, size: Callable[[str], int]) -> Iterator[OldResult]:
    names = {call.id: call.name for call in cycle.calls}
    for result in (each for each in cycle.results if not each.cleared):
        text = plain(result.content)
        if _unscaled(size)(text) >= least:
            yield OldResult(result.seq, names.get(result.call_id, "tool"), size(text), text)


def _unscaled(size: Callable[[str], int]) -> Callable[[str], int]:
    """The size by which it is decided what is long: the same however a history is scaled, as its units' gains are kept."""
    return size.base if isinstance(size, Sizer) else size


def _cycle_stubs(
    cycle: ToolCycle, policy: Policy, size: Callable[[str], int], decided: Mapping[int, Decision]
) -> list[Stub]:
    results = _result_stubs(cycle, policy.clearable_tokens, size, decided)
    return results + (_argument_stubs(cycle, policy.clearable_tokens, size) if policy.arguments else [])


def _result_stubs(
    cycle: ToolCycle, least: int, size: Callable[[str], int], decided: Mapping[int, Decision]
) -> list[Stub]:
    return [
        Stub(old.seq, _result_stub(old, decided.get(old.seq), size))
        for old in _old_results(cycle, least, size)
        if decided.get(old.seq) is not Decision.KEEP
    ]


def _argument_stubs(cycle: ToolCycle, least: int, size: Callable[[str], int]) -> list[Stub]:
    return [
        Stub(cycle.seq, text, call.id) for call in cycle.calls if (text := _argument_stub(call, cycle.seq, least, size))
    ]


def _result_stub(old: OldResult, decision: Decision | None, size: Callable[[str], int]) -> str:
    if decision is Decision.DROP:
        return dropped_stub(old.tool, old.tokens, old.seq)
    if decision is Decision.TRUNCATE:
        note = f"\n[... {what_it_was(old.tool, old.tokens)}; all of it: message #{old.seq} ...]\n"
        return head_and_tail(old.text, old.tokens // 4, size, note)
    return result_stub(old.tool, old.tokens, unframed(old.text), old.seq)


def _argument_stub(call: ToolCall, seq: int, least: int, size: Callable[[str], int]) -> str | None:
    """The call's arguments with each long text replaced; a JSON object still, with all its keys."""
    try:
        arguments = json.loads(call.arguments)
    except (ValueError, RecursionError):
        return None
    if not isinstance(arguments, dict):
        return None
    short = {
        key: argument_stub(size(value), seq) if isinstance(value, str) and _unscaled(size)(value) >= least else value
        for key, value in arguments.items()
    }
    return json.dumps(short, ensure_ascii=False) if short != arguments else None


def trim(history: History, budget: Budget, policy: Policy, size: Callable[[str], int]) -> Compacted | None:
    """Drops the oldest units unread, down to about half of the window, behind a checkpoint that the machine wrote.

    None where nothing is older than what must stay, or where the checkpoint would be no smaller than what it replaces.
    """
    room = int(budget.window * policy.trim_to) - _lead(history, budget, size)
    return _trimmed(history, max(room, 0), budget, size)


def _trimmed(history: History, tail: int, budget: Budget, size: Callable[[str], int]) -> Compacted | None:
    """All but a tail behind the machine's checkpoint; where nothing is old, the checkpoint that stands is made to fit."""
    cut = choose_cut(history, tail, size)
    if cut is None and history.checkpoint is not None:
        cut = history.checkpoint.through
    if cut is None:
        return None
    effect = Compacted(checkpoint_at(history, cut, budget, size))
    return effect if freed(history, effect, size) > 0 else None


def least(history: History, budget: Budget, size: Callable[[str], int]) -> History:
    """The smallest that a history can be made without losing its newest unit: for asking whether that fits at all."""
    effect = _trimmed(history, 0, budget, size)
    return history if effect is None else apply(history, effect)
