"""What a compaction takes and keeps on a real server: each policy in each way, beside what other programs do."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from time import perf_counter
from typing import TYPE_CHECKING

from localctx.app.bench.asking import Took, Watched, asked
from localctx.app.bench.baselines import BASELINES, Ground
from localctx.app.bench.facts import holds, plainly
from localctx.app.bench.history import grown, shows_calls
from localctx.app.compaction import Engine, Helper
from localctx.app.meter import Meter
from localctx.app.session import Session
from localctx.app.tools.record import Recall
from localctx.core.checkpoint import summary_cap
from localctx.core.events import Notice, RungTaken
from localctx.core.ladder import POLICIES, Rung, tuned
from localctx.core.outgoing import outgoing, texts
from localctx.core.window import Budget
from localctx.errors import LocalctxError
from localctx.ports import Request

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from localctx.app.bench.baselines import Baseline
    from localctx.app.bench.history import Told
    from localctx.app.bench.pace import Pace
    from localctx.app.bench.tables import Sheet
    from localctx.core.ladder import Policy
    from localctx.core.outgoing import WireMessage
    from localctx.ports import Counter, Index, Journal, Runtime

__all__ = ["Means", "measured"]

_WAYS = ("mechanical", "in place", "apart")

_WRITTEN = 16
"""Tokens of the reply to the first request after a compaction."""

_WRITING = 4
"""About how many tokens are read in the time in which one is written."""

_ROUNDS = 3
"""How often each row is measured where there is time: its figures are those of the round with the median time."""


@dataclass(frozen=True, slots=True)
class Means:
    """What a compaction is done with: the server, a window for it, and what makes counters, journals and indexes.

    `due` is the share of the window at which every policy compacts here, so that all do it to the same history. `salt`
    begins each list, so that no earlier run, and no other row, has filled the server's cache.
    """

    runtime: Runtime
    window: int
    counter: Callable[[], Counter]
    journal: Callable[[], Journal]
    index: Callable[[], Index]
    due: float
    salt: str


async def measured(means: Means, pace: Pace, sheet: Sheet, *, quick: bool) -> None:
    """Fills the sheet. Raises what the first request raises."""
    policies = [policy for name, policy in POLICIES.items() if policy.rungs and (name == "ladder" or not quick)]
    await asked(means.runtime, Request([{"role": "user", "content": "Hello"}], 1, temperature=0.0))
    tools = await shows_calls(means.runtime)
    if not tools:
        sheet.notes.append(
            "its template shows the model no calls: they are told in words, and no files or commands are recorded"
        )
    budget = Budget.of(means.window)
    meter = Meter(means.runtime, means.counter())

    async def size(messages: Sequence[WireMessage]) -> int:
        return (await meter.exact(list(messages))).tokens

    told = await grown(means.window, budget.due(means.due), size, tools=tools)
    title = f"A compaction in a window of {means.window:,}: {len(told.messages)} messages, {len(told.facts)} facts"
    bench = _Bench(means, pace, told, size, sheet.table(title), sheet.notes)
    ways = [*(bench.ours(policy, way) for policy in policies for way in _WAYS), *map(bench.theirs, BASELINES)]
    rounds = 1 if quick else _ROUNDS
    whole = sum(map(bench.cost, ways))
    pace.expect(whole * rounds)
    for number in range(rounds):
        if number and not pace.begin(whole, f"round {number + 1} of {rounds}"):
            break
        for way in ways:
            await bench.sample(way, number)


@dataclass(slots=True)
class _Outcome:
    """What one compaction left, what its requests took, its own seconds, and how many facts one search finds beside it."""

    left: list[WireMessage]
    took: list[Took] = field(default_factory=list)
    seconds: float = 0.0
    found: int | None = None
    notes_by: str | None = None


@dataclass(frozen=True, slots=True)
class _Way:
    """A row: what it does to a list, whether it asks the model, and whether it goes on from the request before."""

    name: str
    work: Callable[[list[WireMessage]], Awaitable[_Outcome]]
    asks: bool
    in_place: bool


@dataclass(frozen=True, slots=True)
class _Sample:
    """One round of a row: its figures, and the seconds of the compaction and of the first token after it."""

    figures: dict[str, object]
    seconds: float | None


@dataclass(frozen=True, slots=True)
class _Bench:
    """The rows, round by round; `size` counts a list."""

    means: Means
    pace: Pace
    told: Told
    size: Callable[[Sequence[WireMessage]], Awaitable[int]]
    rows: list[dict[str, object]]
    notes: list[str]
    samples: dict[str, list[_Sample]] = field(default_factory=dict)
    failed: set[str] = field(default_factory=set)

    def ours(self, policy: Policy, way: str) -> _Way:
        """One policy in one way."""
        return _Way(
            f"{policy.name}, {way}", partial(self._settled, policy, way), way != "mechanical", way == "in place"
        )

    def theirs(self, name: str) -> _Way:
        """A baseline."""
        baseline = BASELINES[name]
        return _Way(name, partial(self._based, name, baseline), baseline.asks, baseline.in_place)

    def cost(self, way: _Way) -> int:
        """About how many tokens are read for one round of it, those that are written among them.

        Whoever asks has the history read, and writes a summary; then half of it is read, and a reply written.
        """
        used = int(self.means.window * self.means.due)
        return (used + _WRITING * summary_cap(self.means.window)) * way.asks + used // 2 + _WRITING * _WRITTEN

    async def sample(self, way: _Way, number: int) -> None:
        """Measures a row once more, where it can be had, and shows it."""
        if way.name in self.failed or not self.pace.begin(self.cost(way), way.name):
            return
        begun, messages = perf_counter(), self.told.whole(f"{self.means.salt}{number}, {way.name}")
        try:
            if way.in_place:  # the request before, which the server then has in its cache
                await asked(self.means.runtime, Request(messages, 1, temperature=0.0))
            outcome = await way.work(messages)
        except LocalctxError as error:
            self.failed.add(way.name)
            self._note(f"{way.name}: {error}")
            return
        first = await self._first(way.name, outcome)
        self.pace.end(self.cost(way), perf_counter() - begun)
        before, after = await self.size(messages), await self.size(outcome.left)
        figures = {"tokens freed": before - after, "left": after, **_taken(outcome, first), **self._survived(outcome)}
        seconds = outcome.seconds + first.first if first and before > after else None
        self.samples.setdefault(way.name, []).append(_Sample(figures, seconds))
        self._show()

    def _show(self) -> None:
        """The rows anew: each with the figures of its median round."""
        medians = {name: _median(rounds) for name, rounds in self.samples.items()}
        first = next(iter(medians.values())).seconds
        self.rows[:] = [
            {
                "way": name,
                **medians[name].figures,
                "in all, of the first row": each / first if (each := medians[name].seconds) and first else None,
                "rounds": len(rounds),
                "spread": _spread(rounds),
            }
            for name, rounds in self.samples.items()
        ]

    def _note(self, text: str) -> None:
        if text not in self.notes:
            self.notes.append(text)

    async def _first(self, name: str, outcome: _Outcome) -> Took | None:
        """The first request after it; None where the server refuses the list that is left."""
        messages: list[WireMessage] = [*outcome.left, {"role": "user", "content": self.told.question}]
        try:
            return await asked(self.means.runtime, Request(messages, _WRITTEN, temperature=0.0))
        except LocalctxError as error:
            self._note(f"{name}: what it leaves is refused ({str(error)[:200]})")
            return None

    async def _settled(self, policy: Policy, way: str, messages: list[WireMessage]) -> _Outcome:
        """What the engine does where that policy's compaction is due."""
        watched = Watched(self.means.runtime)
        session, events = Session(self.means.journal()), list[object]()
        for message in messages:
            session.add(message)
        for patch in self.told.work:
            session.work(patch)
        meter, budget = Meter(watched, self.means.counter()), Budget.of(self.means.window)
        rules = tuned(policy, compact=self.means.due)[0]
        engine = Engine(session, None if way == "mechanical" else watched, meter, rules, budget, events.append)
        engine.summarizer = Helper(watched, meter, budget) if way == "apart" else None
        started = perf_counter()
        await engine.settle()
        seconds = perf_counter() - started
        if way == "in place" and watched.took and not _was_cached(watched.took[0]):
            why = "there was no room for it, or the server kept no prefix"
            self._note(f"{policy.name}, {way}: its summary was not read from the cache: {why}")
        for event in events:
            if isinstance(event, Notice) and event.code == "summary-refused":
                self._note(f"{policy.name}, {way}: {event.text}")
        taken = [event.how for event in events if isinstance(event, RungTaken) and event.rung is Rung.COMPACT]
        if not taken:
            self._note(f"{policy.name}, {way}: it did not compact")
        left, recall = outgoing(session.history), Recall(session, self.means.index(), lambda text: text)
        return _Outcome(left, watched.took, seconds, await self._recalled(recall, left), next(iter(taken), None))

    async def _recalled(self, recall: Recall, left: Sequence[WireMessage]) -> int:
        """How many of the facts that are not in what is left one search finds, by what they are about."""
        shown = plainly("\n".join(texts([*left])))
        lost = [fact for fact in self.told.facts if not holds(shown, fact)]
        return sum([holds(plainly((await recall.run({"query": fact.about})).text), fact) for fact in lost])

    async def _based(self, name: str, baseline: Baseline, messages: list[WireMessage]) -> _Outcome:
        took: list[Took] = []
        started, window = perf_counter(), self.means.window
        ground = Ground(
            self.means.runtime,
            window,
            summary_cap(window),
            self.size,
            took.append,
            lambda text: self._note(f"{name}: {text}"),
        )
        left = await baseline.left(ground, messages)
        return _Outcome(left, took, perf_counter() - started, notes_by="model" if baseline.asks else None)

    def _survived(self, outcome: _Outcome) -> dict[str, object]:
        """Of the facts that were in the list: those word for word in what is left, and those that one search finds beside it."""
        shown = plainly("\n".join(texts(outcome.left)))
        kept = sum(holds(shown, fact) for fact in self.told.facts)
        return {
            "notes by": outcome.notes_by,
            "facts": len(self.told.facts),
            "kept": kept,
            "kept or found": None if outcome.found is None else kept + outcome.found,
        }


def _median(rounds: Sequence[_Sample]) -> _Sample:
    """The round with the median time, the quicker of two."""
    ranked = sorted(rounds, key=lambda each: each.seconds or 0.0)
    return ranked[(len(ranked) - 1) // 2]


def _spread(rounds: Sequence[_Sample]) -> float | None:
    """How far the seconds of the rounds lie apart, as a share of their median."""
    seconds = [each.seconds for each in rounds if each.seconds]
    middle = _median(rounds).seconds
    return (max(seconds) - min(seconds)) / middle if len(seconds) > 1 and middle else None


def _taken(outcome: _Outcome, first: Took | None) -> dict[str, object]:
    """What the compaction took, and the request after it."""
    took = outcome.took
    return {
        "read": _sum([each.prefilled for each in took]),
        "cached": _sum([each.usage.cached for each in took]),
        "written": _sum([each.usage.completion for each in took]),
        "seconds": outcome.seconds,
        "next request reads": first.prefilled if first else None,
        "its first token, s": first.first if first else None,
    }


def _was_cached(took: Took) -> bool:
    """Whether most of a prompt came from the server's cache, as far as it says so."""
    cached, prompt = took.usage.cached, took.usage.prompt
    return cached is None or prompt is None or 2 * cached >= prompt


def _sum(values: Sequence[int | None]) -> int | None:
    known = [value for value in values if value is not None]
    return sum(known) if len(known) == len(values) else None
