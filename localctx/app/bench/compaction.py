"""What a compaction takes and keeps on a real server: each policy in each way, beside what other programs do."""

from __future__ import annotations

from dataclasses import dataclass, field
from time import perf_counter
from typing import TYPE_CHECKING

from localctx.app.bench.asking import Took, asked, timed
from localctx.app.bench.baselines import BASELINES, Ground
from localctx.app.bench.facts import holds, plainly
from localctx.app.bench.history import grown, takes_tools
from localctx.app.compaction import Engine, Helper
from localctx.app.meter import Meter
from localctx.app.session import Session
from localctx.app.tools.record import Recall
from localctx.core.checkpoint import summary_cap
from localctx.core.events import Notice, RungTaken
from localctx.core.ladder import POLICIES, tuned
from localctx.core.outgoing import outgoing, texts
from localctx.core.window import Budget
from localctx.errors import LocalctxError
from localctx.ports import Request

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence

    from localctx.app.bench.baselines import Baseline
    from localctx.app.bench.history import Told
    from localctx.app.bench.pace import Pace
    from localctx.app.bench.tables import Sheet
    from localctx.core.ladder import Policy
    from localctx.core.outgoing import WireMessage
    from localctx.ports import Counter, Index, Journal, Piece, Runtime

__all__ = ["Means", "measured"]

_WAYS = ("in place", "mechanical", "apart")

_WRITTEN = 16
"""Tokens of the reply to the first request after a compaction."""

_WRITING = 4
"""About how many tokens are read in the time in which one is written."""


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
    tools = await takes_tools(means.runtime)
    if not tools:
        sheet.notes.append(
            "its template takes no calls and results: they are told in words, and no files or commands are recorded"
        )
    budget = Budget.of(means.window)
    meter = Meter(means.runtime, means.counter())

    async def size(messages: Sequence[WireMessage]) -> int:
        return (await meter.exact(list(messages))).tokens

    told = await grown(means.window, budget.due(means.due), size, tools=tools)
    title = f"A compaction in a window of {means.window:,}: {len(told.messages)} messages, {len(told.facts)} facts"
    bench = _Bench(means, pace, told, size, sheet.table(title), sheet.notes)
    pace.expect(bench.work(policies))
    for policy in policies:
        for way in _WAYS:
            await bench.ours(policy, way)
    for name in BASELINES:
        await bench.theirs(name)


class _Watched:
    """A runtime that keeps what its replies took."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime, self.kind, self.url, self.took = runtime, runtime.kind, runtime.url, list[Took]()
        self.probe, self.count, self.size = runtime.probe, runtime.count, runtime.size
        self.cut_points, self.close = runtime.cut_points, runtime.close

    def chat(self, request: Request) -> AsyncGenerator[Piece, None]:
        """Streams a reply, and notes what it took."""
        return timed(self._runtime, request, self.took.append)


@dataclass(slots=True)
class _Outcome:
    """What one compaction left, what its requests took, its own seconds, and how many facts one search finds beside it."""

    left: list[WireMessage]
    took: list[Took] = field(default_factory=list)
    seconds: float = 0.0
    recalled: int | None = None
    how: str = ""


@dataclass(frozen=True, slots=True)
class _Bench:
    """The rows, one after the other; `size` counts a list."""

    means: Means
    pace: Pace
    told: Told
    size: Callable[[Sequence[WireMessage]], Awaitable[int]]
    rows: list[dict[str, object]]
    notes: list[str]

    def work(self, policies: Sequence[Policy]) -> int:
        """About how many tokens are read for all of it, those that are written among them."""
        ways = len(policies) * sum(self._cost(asks=way != "mechanical") for way in _WAYS)
        return ways + sum(self._cost(asks=each.asks) for each in BASELINES.values())

    def _cost(self, *, asks: bool) -> int:
        """Of one row: whoever asks has the history read, and writes a summary; then half of it is read, and a reply written."""
        used = int(self.means.window * self.means.due)
        return (used + _WRITING * summary_cap(self.means.window)) * asks + used // 2 + _WRITING * _WRITTEN

    async def ours(self, policy: Policy, way: str) -> None:
        """A row: one policy in one way."""
        asks, in_place = way != "mechanical", way == "in place"

        async def work(whole: list[WireMessage]) -> _Outcome:
            return await self._settled(policy, way, whole)

        await self._row(f"{policy.name}, {way}", work, asks=asks, in_place=in_place)

    async def theirs(self, name: str) -> None:
        """A row: a baseline."""
        baseline = BASELINES[name]

        async def work(whole: list[WireMessage]) -> _Outcome:
            return await self._based(baseline, whole)

        await self._row(name, work, asks=baseline.asks, in_place=baseline.in_place)

    async def _row(
        self, name: str, work: Callable[[list[WireMessage]], Awaitable[_Outcome]], *, asks: bool, in_place: bool
    ) -> None:
        if not self.pace.begin(self._cost(asks=asks), name):
            return
        begun, messages = perf_counter(), self.told.whole(f"{self.means.salt}, {name}")
        try:
            if in_place:  # the request before, which the server then has in its cache
                await asked(self.means.runtime, Request(messages, 1, temperature=0.0))
            outcome = await work(messages)
        except LocalctxError as error:
            self.notes.append(f"{name}: {error}")
            return
        first = await self._first(name, outcome)
        self.pace.end(self._cost(asks=asks), perf_counter() - begun)
        before, after = await self.size(messages), await self.size(outcome.left)
        row = {"way": name, "tokens freed": before - after, "left": after, **_taken(outcome, first)}
        row["in all, of the first row"] = _ratio(row, (self.rows or [row])[0])
        self.rows.append(row | self._survived(outcome))

    async def _first(self, name: str, outcome: _Outcome) -> Took | None:
        """The first request after it; None where the server refuses the list that is left."""
        messages: list[WireMessage] = [*outcome.left, {"role": "user", "content": self.told.question}]
        try:
            return await asked(self.means.runtime, Request(messages, _WRITTEN, temperature=0.0))
        except LocalctxError as error:
            self.notes.append(f"{name}: what it leaves is refused ({str(error)[:200]})")
            return None

    async def _settled(self, policy: Policy, way: str, messages: list[WireMessage]) -> _Outcome:
        """What the engine does where that policy's compaction is due."""
        watched = _Watched(self.means.runtime)
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
            self.notes.append(f"{policy.name}, {way}: its summary was not read from the cache: {why}")
        refused = [event.text for event in events if isinstance(event, Notice) and event.code == "summary-refused"]
        self.notes.extend(f"{policy.name}, {way}: {text}" for text in refused)
        rungs = [f"{event.rung} ({event.how})" for event in events if isinstance(event, RungTaken)]
        left, recall = outgoing(session.history), Recall(session, self.means.index(), lambda text: text)
        return _Outcome(left, watched.took, seconds, await self._recalled(recall, left), ", ".join(rungs) or "nothing")

    async def _recalled(self, recall: Recall, left: Sequence[WireMessage]) -> int:
        """How many of the facts that are not in what is left one search finds, by what they are about."""
        shown = plainly("\n".join(texts([*left])))
        lost = [fact for fact in self.told.facts if not holds(shown, fact)]
        return sum([holds(plainly((await recall.run({"query": fact.about})).text), fact) for fact in lost])

    async def _based(self, baseline: Baseline, messages: list[WireMessage]) -> _Outcome:
        took: list[Took] = []
        started, window = perf_counter(), self.means.window
        ground = Ground(self.means.runtime, window, summary_cap(window), self.size, took.append)
        left = await baseline.left(ground, messages)
        return _Outcome(left, took, perf_counter() - started)

    def _survived(self, outcome: _Outcome) -> dict[str, object]:
        shown = plainly("\n".join(texts(outcome.left)))
        kept, of = sum(holds(shown, fact) for fact in self.told.facts), len(self.told.facts)
        either = None if outcome.recalled is None else f"{kept + outcome.recalled} of {of}"
        return {"facts kept": f"{kept} of {of}", "kept or found": either, "rungs": outcome.how or None}


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


def _ratio(row: Mapping[str, object], first: Mapping[str, object]) -> float | None:
    """The seconds of a compaction and of the request after it, as a share of the first row's."""
    here, there = _seconds(row), _seconds(first)
    return here / there if here and there else None


def _seconds(row: Mapping[str, object]) -> float | None:
    seconds, first = row["seconds"], row["its first token, s"]
    return seconds + first if isinstance(seconds, float) and isinstance(first, float) else None
