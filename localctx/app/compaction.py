"""Settling: walking the ladder until the next request fits. The one entry for every shell."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, replace
from time import monotonic
from typing import TYPE_CHECKING, TypeAlias

import anyio

from localctx.app.summary import Summarizer
from localctx.core.checkpoint import summary_cap, with_notes
from localctx.core.cost import Speeds, learned, tail_within
from localctx.core.effects import Compacted, Effect, apply
from localctx.core.events import Notice, PressureRaised, RungBegun, RungTaken
from localctx.core.ladder import (
    Decision,
    Rung,
    checkpoint_at,
    clear,
    clearable,
    compaction_cut,
    freed,
    next_rung,
    standing,
    trim,
)
from localctx.core.notes import Refused
from localctx.core.outlook import Outlook
from localctx.core.sizes import history_size

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence

    from localctx.app.meter import Meter
    from localctx.app.session import Session
    from localctx.core.accounting import Count, Usage
    from localctx.core.events import Event
    from localctx.core.ladder import OldResult, Policy
    from localctx.core.messages import Checkpoint, History
    from localctx.core.window import Budget
    from localctx.ports import Runtime

__all__ = ["PATIENCE_SECONDS", "ClearDecider", "Engine", "Helper"]

_LATCH = 2
"""Refused summaries in a row after which no model is asked any more."""

PATIENCE_SECONDS = 20.0
"""How long the first request after a compaction may take to prefill, at the measured speed (design)."""

_ASKED = "it was asked for"

_DECIDER_SECONDS = 10
"""How long a hook may take to decide about old results."""


def _untold(_event: Event) -> None:
    """Work of idle time is no news."""


ClearDecider: TypeAlias = "Callable[[Sequence[OldResult]], Awaitable[Mapping[int, Decision]]]"
"""Says by its line what becomes of an old result; those that it does not name are cleared as usual."""


@dataclass(frozen=True, slots=True)
class Helper:
    """Another model that writes the summaries, with its own window and its own counting."""

    runtime: Runtime
    meter: Meter
    budget: Budget


@dataclass(slots=True)
class Engine:
    """Keeps one session inside one budget. `emit` is told what happens, as it happens.

    `runtime` writes the summaries; without one the machine's half stands alone. A `summarizer` writes them instead, in
    its own window. `clear_decider` may say what becomes of old results; what it does not say is decided here.
    """

    session: Session
    runtime: Runtime | None
    meter: Meter
    policy: Policy
    budget: Budget
    emit: Callable[[Event], None]
    summarizer: Helper | None = None
    clear_decider: ClearDecider | None = None
    speeds: Speeds = field(default_factory=Speeds)
    patience: float = PATIENCE_SECONDS
    _failures: int = 0
    _stuck_at: int = 0
    _hint: str = ""
    _warned: bool = False
    _prepared: tuple[History, Checkpoint] | None = None
    compacted: bool = False
    """Whether older turns were given up since the last reply."""
    wanted: str | None = None
    """What a summary is to note above all that the model wishes for; None where it wishes for none."""

    async def settle(self, used: Count | None = None, *, force: bool = False) -> Count:
        """Takes the rungs that are due, cheapest first, each at most once; returns the count of what is left.

        `used` is the count of the history, where it is known already.
        `force` compacts, or trims, whether that is due or not: a server has refused what we thought would fit.
        """
        taken = frozenset[Rung]()
        if (wanted := self.wanted) is not None:
            self.wanted, used = None, None
            await self._compact(wanted)
        used = used or await self.measure()
        while (rung := self._due(used, taken, force=force and not taken)) is not None:
            why = "the server refused the request" if force and not taken else self._why(rung, used)
            taken |= {rung}
            if await self._take(rung, used, why):
                used = await self.measure()
        self._warn(used)
        return used

    async def compact(self, hint: str = "") -> bool:
        """Compacts now, due or not; False where nothing is old enough to be worth it.

        Whoever decides about old results is asked first; what that frees counts as well. `hint` says what a summary is to
        note above all.
        """
        self._failures, self._stuck_at = 0, 0
        cleared = self.clear_decider is not None and await self._take(Rung.CLEAR, await self.measure(), _ASKED)
        return await self._compact(hint) or cleared

    async def _compact(self, hint: str) -> bool:
        self._hint = hint
        try:
            return await self._take(Rung.COMPACT, await self.measure(), _ASKED)
        finally:
            self._hint = ""

    def learn(self, usage: Usage, shared: int | None, *, rewritten: bool = False) -> None:
        """Takes what a server reported of its speed; `shared` and `rewritten` are as in `cost.learned`."""
        self.start_from(learned(self.speeds, usage, shared, rewritten=rewritten))

    def start_from(self, speeds: Speeds) -> None:
        """Goes by these speeds from now on."""
        self.speeds = speeds
        tail = tail_within(self.patience, self.speeds, self.budget.window)
        self.budget = replace(self.budget, tail=tail if tail < self.budget.window else None)

    def restart(self) -> None:
        """Forgets what was found out about a history, or a budget, that is no more."""
        self.compacted, self._stuck_at = False, 0

    def outlook(self, used: Count) -> Outlook:
        """What the rungs would cost and do now."""
        history = self.session.history
        size = self.meter.sizer(history, used)
        return Outlook(history, used.tokens, self.budget, self.policy, size, self.speeds, self._asks)

    async def measure(self) -> Count:
        """The prompt that the history makes now."""
        return await self.meter.measure(self.session.history, enough_below=self.budget.due(self.policy.clear))

    def _due(self, used: Count, taken: frozenset[Rung], *, force: bool) -> Rung | None:
        """The next rung; a count whose bound passes the budget is taken at its worst."""
        tokens = used.upper if used.upper > self.budget.prompt else used.tokens
        size = self.meter.sizer(self.session.history, used)
        history, budget = self.session.history, self.budget
        at = standing(history, tokens, budget, self.policy, size, force=force)
        seen = Outlook(history, tokens, budget, self.policy, size, self.speeds, self._asks)
        if at.clearable and not seen.clearing_pays:
            at = replace(at, clearable=0)
        if tokens < self._stuck_at:
            at = replace(at, compactable=0)
        if force:
            forced = Rung.COMPACT if at.compactable >= self._least_gain() else Rung.TRIM
            return forced if forced in self.policy.rungs else None
        return next_rung(at, self.budget, self.policy, taken)

    def _why(self, rung: Rung, used: Count) -> str:
        share = used.tokens * 100 // self.budget.window
        return f"{share}% of {self.budget.window:,} tokens were used; due at {self.policy.threshold(rung):.0%}"

    def _warn(self, used: Count) -> None:
        due = used.tokens > self.budget.due(self.policy.warn) and Rung.WARN in self.policy.rungs
        if due and not self._warned:
            self.emit(PressureRaised(used.tokens, self.budget.window))
        self._warned = due

    async def _take(self, rung: Rung, used: Count, why: str) -> bool:
        """Takes one rung from begin to commit; False where it would change nothing worth it."""
        before, started = self.session.history, monotonic()
        size = self.meter.sizer(before, used)
        predicted = self.outlook(used).predicted(rung)
        begun = self.session.begin(rung)
        try:
            effect, how = await self._effect(rung, used, size, asked=why == _ASKED)
        except BaseException:
            self.session.abort(begun, "interrupted")
            raise
        after = before if effect is None else apply(before, effect)
        sizes = used.tokens, history_size(after, size), before.messages(), after.messages()
        if effect is None or sizes[1] >= sizes[0]:
            self.session.abort(begun, how if effect is None else "nothing would be freed")
            return False
        taken = RungTaken(rung, how, *sizes, monotonic() - started, predicted)
        self.session.commit(effect, begun, {**asdict(taken), "why": why})
        self.meter.void()
        self._stuck_at = 0
        if isinstance(effect, Compacted):
            self.compacted, self._prepared = True, None
        self.emit(taken)
        return True

    async def _effect(
        self, rung: Rung, used: Count, size: Callable[[str], int], *, asked: bool
    ) -> tuple[Effect | None, str]:
        history = self.session.history
        if rung is Rung.CLEAR:
            decided = await self._decided(clearable(history, self.budget, self.policy, size))
            cleared = clear(history, self.budget, self.policy, size, decided)
            if decided and freed(history, cleared, size) < self.budget.window * self.policy.clear_gain * (not asked):
                return None, "too little would be freed"
            return (cleared if cleared.stubs else None), "stubs"
        if rung is Rung.TRIM:
            return trim(history, self.budget, self.policy, size), "machine"
        return await self._compacted(history, used, size)

    async def _decided(self, old: Sequence[OldResult]) -> Mapping[int, Decision]:
        """What becomes of old results by the hook; nothing where there is none, or where it fails or takes too long."""
        if self.clear_decider is None or not old:
            return {}
        try:
            with anyio.fail_after(_DECIDER_SECONDS):
                said = await self.clear_decider(old)
            return {seq: Decision(decision) for seq, decision in said.items()}
        except Exception as error:  # noqa: BLE001  the hook is somebody else's: whatever it does, the run goes on
            text = f"the clear decider failed ({type(error).__name__}: {error}); deciding without it"
            self.emit(Notice("clear-decider", text))
            return {}

    async def _compacted(self, history: History, used: Count, size: Callable[[str], int]) -> tuple[Effect | None, str]:
        if not self._hint and (ready := self._ready(history, size)) is not None:
            return Compacted(ready), "prepared" if ready.author == "model" else ready.author
        cut = compaction_cut(history, self.budget, self.policy, size)
        if cut is None:
            return None, "nothing is old enough"
        machine = checkpoint_at(history, cut, self.budget, size)
        if not self._pays(history, machine, size):
            self._stuck_at = used.tokens + self._least_gain()
            return None, "too little would be freed"
        asked = self._summarizer(size)
        if self._failures >= _LATCH or asked is None:
            return Compacted(machine), "machine"
        self.emit(RungBegun(Rung.COMPACT, used.tokens, self.budget.window))
        summed = await self._summed(history, machine, asked, size)
        if isinstance(summed, Refused):
            self._refused(summed)
            return Compacted(machine), "machine"
        self._failures = 0
        return Compacted(summed), summed.author

    async def _summed(
        self, history: History, machine: Checkpoint, asked: Summarizer, size: Callable[[str], int]
    ) -> Checkpoint | Refused:
        """The checkpoint with a model's notes, or the machine's half alone where those free too little."""
        source = None if self.summarizer else await asked.in_place(history)
        if source is not None and source.last_seq < machine.through:
            less = checkpoint_at(history, source.last_seq, self.budget, size)
            source, machine = (source, less) if self._suffices(history, less, size) else (None, machine)
        notes = await asked.notes(history.split(machine.through)[0], source, self._hint)
        if isinstance(notes, Refused):
            return notes
        summed = with_notes(machine, notes, summary_cap(self.budget.window), size, history.work)
        return summed if self._pays(history, summed, size) else machine

    async def idle(self) -> None:
        """Uses time in which nobody waits: compacts where that is due, or prepares the summary that soon will be.

        To be cancelled at any time: what was prepared counts only once it is committed.
        """
        used = await self.measure()
        if Rung.COMPACT not in self.policy.rungs or used.tokens <= self.budget.due(self.policy.warn):
            return
        if used.tokens > self.budget.due(self.policy.compact):
            await self.settle(used)
        else:
            await self._prepare(used)

    async def _prepare(self, used: Count) -> None:
        history, size = self.session.history, self.meter.sizer(self.session.history, used)
        cut, asked = compaction_cut(history, self.budget, self.policy, size), self._summarizer(size)
        if cut is None or asked is None or self._failures >= _LATCH or self._ready(history, size) is not None:
            return
        machine = checkpoint_at(history, cut, self.budget, size)
        if self._pays(history, machine, size):
            made = await self._summed(history, machine, replace(asked, emit=_untold), size)
            if isinstance(made, Refused):
                self._failures += 1
                return
            self._failures, self._prepared = 0, (history.split(made.through)[0], made)

    def _ready(self, history: History, size: Callable[[str], int]) -> Checkpoint | None:
        """The checkpoint that was prepared, where what it stands for is unchanged and it is still enough."""
        if self._prepared is None:
            return None
        covered, made = self._prepared
        fits = replace(history.split(made.through)[0], work=covered.work) == covered
        now = replace(made, work=checkpoint_at(history, made.through, self.budget, size).work)
        return now if fits and self._suffices(history, now, size) else None

    @property
    def _asks(self) -> bool:
        """Whether a compaction would ask a model for a summary."""
        return self._failures < _LATCH and (self.summarizer or self.runtime) is not None

    def _summarizer(self, size: Callable[[str], int]) -> Summarizer | None:
        """Whoever writes the summary, in its own window."""
        if self.summarizer is not None:
            helper = self.summarizer
            cap = min(summary_cap(helper.budget.window), summary_cap(self.budget.window))
            return Summarizer(
                helper.runtime, helper.meter, helper.budget, helper.meter.size, self.emit, cap, self.session.spent
            )
        if self.runtime is None:
            return None
        cap = summary_cap(self.budget.window)
        return Summarizer(self.runtime, self.meter, self.budget, size, self.emit, cap, self.session.spent)

    def _refused(self, refused: Refused) -> None:
        self._failures += 1
        text = f"the model's summary was refused ({refused.reason}); using the record alone"
        self.emit(Notice("summary-refused", text))
        if self._failures == _LATCH:
            text = "two summaries in a row were refused; no more are asked for until /compact"
            self.emit(Notice("summaries-off", text))

    def _least_gain(self) -> int:
        return int(self.budget.prompt * self.policy.compact_gain)

    def _pays(self, history: History, checkpoint: Checkpoint, size: Callable[[str], int]) -> bool:
        """Whether a checkpoint frees enough to be worth moving the prefix."""
        return freed(history, Compacted(checkpoint), size) >= self._least_gain()

    def _suffices(self, history: History, checkpoint: Checkpoint, size: Callable[[str], int]) -> bool:
        """Whether a checkpoint of less than was planned frees enough to be the only rung of this pass."""
        left = history_size(apply(history, Compacted(checkpoint)), size)
        return self._pays(history, checkpoint, size) and left <= self.budget.due(self.policy.compact)
