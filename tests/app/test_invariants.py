"""The invariants of the engine, each over random runs: any window, any talk, counters that are wrong by their bound."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from math import ceil
from zlib import crc32

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.vendor.pretty import RepresentationPrinter

from localctx.app.chat import Chat, Wishes
from localctx.app.tools.record import Retrieve
from localctx.core.accounting import Count, Makeup, Usage
from localctx.core.calibration import Calibration, Rate
from localctx.core.events import Event, RungTaken
from localctx.core.journal import living, project
from localctx.core.ladder import POLICIES, Rung
from localctx.core.messages import ToolCall, ToolCycle
from localctx.core.outgoing import NO_RESULT, WireMessage, defects
from localctx.core.window import Budget, ModelReport, Reading, ServerReport, Source, Status, reconcile
from localctx.errors import DoesNotFit, ServerFailed
from localctx.ports import Delta, Finished, Outcome, Piece, Request
from localctx.stores.journal import MemoryJournal

NOTES = "## Goal\n- The task goes on.\n## Covered So Far\n- Some parts were covered.\n"
BAD = "I would rather not."


def size(messages: Sequence[WireMessage], tools: Sequence[WireMessage] = ()) -> int:
    """The truth: a token for three characters of what is sent, and some for each message."""
    return sum(_characters(each) // 3 + 4 for each in (*messages, *tools)) + 3


def _characters(value: object) -> int:
    match value:
        case dict():
            return sum(len(key) + _characters(each) for key, each in value.items())
        case list() | tuple():
            return sum(map(_characters, value))
    return len(str(value))


@dataclass
class Toy:
    """A server with a window, whose own count (where it has one) is off by less than its bound."""

    window: int
    counts: bool
    off: float
    notes: str
    replies: list[tuple[str, int | None]]
    """Texts, each with the calls that follow it; None: the server breaks off."""
    kind: str = "toy"
    url: str = "http://toy"
    requests: list[Request] = field(default_factory=list)
    windows: list[int] = field(default_factory=list)
    """The window that was served with each request."""
    refused: list[int] = field(default_factory=list)

    def report(self) -> ModelReport:
        return ModelReport("toy", loaded=True, window=reconcile([Reading(Source.SERVED, self.window, "toy")]))

    async def probe(self) -> ServerReport:
        return ServerReport("toy", self.url, Status.UP, models=(self.report(),))

    async def count(self, messages: Sequence[WireMessage], tools: Sequence[WireMessage] = ()) -> Count | None:
        if not self.counts:
            return None
        true = size(messages, tools)
        bound = int(true * abs(self.off)) + 1
        return Count(max(int(true * (1 + self.off)), 1), bound, "toy")

    async def size(self, _text: str) -> Count | None:
        return None

    def cut_points(self, _window: int) -> tuple[int, ...]:
        return ()

    async def chat(self, request: Request) -> AsyncGenerator[Piece, None]:
        self.requests.append(request)
        self.windows.append(self.window)
        text, calls = (self.notes, 0) if request.outline else self._next()
        if calls is None:
            yield Delta(text[:9] or "So")
            raise ServerFailed("it broke off")
        said = text[: request.max_tokens * 3]
        if said:
            yield Delta(said)
        number = len(self.requests)
        made = tuple(
            ToolCall(f"c{number}_{each}", "read_file", json.dumps({"path": f"/{number}"})) for each in range(calls)
        )
        end = "tool_calls" if made else "stop" if len(said) == len(text) else "length"
        yield Finished(end, Usage(size(request.messages, request.tools), len(said) // 3 + 1), bool(made), made)

    def _next(self) -> tuple[str, int | None]:
        return self.replies.pop(0) if self.replies else ("Fine.", 0)

    async def close(self) -> None:
        return None


_NOISE = 0.06


@dataclass(frozen=True)
class Rough:
    """A counter that is wrong about every text, by less than its bound: its rate is off, and each text differs from it."""

    rate: float
    how: str = "rough"

    @property
    def prior(self) -> Calibration:
        return Calibration.of([Rate(1.0, 0.25, _NOISE)])

    def size(self, text: str) -> int:
        return ceil(self.text(text)[0])

    def text(self, text: str) -> Makeup:
        return (self._units(text, len(text) // 3 + 1),)

    def message(self, message: Mapping[str, object]) -> Makeup:
        return (self._units(json.dumps(message, ensure_ascii=False), size([dict(message)]) - 3),)

    def frame(self, tools: Sequence[Mapping[str, object]] = ()) -> Makeup:
        return (self._units("", size([], [dict(tool) for tool in tools])),)

    def _units(self, text: str, true: int) -> float:
        return true * (1 + (crc32(text.encode()) % 101 - 50) / 50 * _NOISE * 0.7) / self.rate


class Interrupted(BaseException):
    """The user has stopped a tool."""


@dataclass(frozen=True)
class ReadFile:
    """A tool with results of all sizes; None: it is stopped."""

    texts: list[str | None]
    name: str = "read_file"

    @property
    def schema(self) -> WireMessage:
        return {"type": "function", "function": {"name": self.name, "parameters": {"type": "object", "properties": {}}}}

    async def run(self, _arguments: Mapping[str, object]) -> Outcome:
        text = self.texts.pop(0) if self.texts else "nothing"
        if text is None:
            raise Interrupted
        return Outcome(text)


@dataclass
class Run:
    """What was asked of a chat, and what came of it."""

    toy: Toy
    journal: MemoryJournal = field(default_factory=MemoryJournal)
    events: list[Event] = field(default_factory=list)
    commits: list[int] = field(default_factory=list)
    """After how many requests the prefix was moved: by a commit of the engine, an undo, or a new start."""
    moves: list[int] = field(default_factory=list)
    """After how many requests the window changed."""
    chat: Chat = field(init=False)

    @property
    def talk(self) -> list[Request]:
        return [each for each in self.toy.requests if not each.outline]

    def _repr_pretty_(self, printer: RepresentationPrinter, _cycle: object) -> None:
        """For an example that failed: all of it is too long to be shown."""
        toy = self.toy
        printer.text(f"<{toy.windows=}, {toy.counts=}, {toy.off=}, {toy.refused=}, {self.commits=}, {self.moves=}>")


_words = st.builds(
    lambda word, times: word * times,
    st.sampled_from(["sand ", "für ", "0x1f3a;", "語彙", '{"a": 1}, ', "def f(x):\n    return x\n"]),
    st.integers(0, 400),
)
_long = _words.map(lambda text: text * 3)
_quiet: st.SearchStrategy[list[tuple[str, int | None]]] = st.lists(
    st.tuples(_words, st.sampled_from([0, 0, 0, 1, 1, 3, None])), max_size=14
)
_busy: st.SearchStrategy[list[tuple[str, int | None]]] = st.lists(
    st.tuples(st.just(""), st.sampled_from([0, 1, 1, 1, 1, 2])), min_size=12, max_size=24
)
_results = st.lists(st.one_of(_long, _words, st.none()), max_size=10)
_many_results = st.lists(st.one_of(_long, _words), min_size=12, max_size=24)
_windows = st.sampled_from([2_048, 2_049, 3_000, 4_096, 8_192, 32_768, 131_072, 1_048_576])
_policies = st.sampled_from([policy for name, policy in POLICIES.items() if name != "none"])
_deeds = st.sampled_from(["ask"] * 8 + ["undo", "compact", "resume", "idle", "work", "forget", "window"])


@st.composite
def runs(draw: st.DrawFn) -> Run:
    """A run to its end; what cannot be made to fit is refused, and the run goes on."""
    window, counts, off, notes = draw(_windows), draw(st.booleans()), draw(st.floats(-0.1, 0.1)), [NOTES, BAD]
    busy = draw(st.booleans())
    run = Run(Toy(window, counts, off, draw(st.sampled_from(notes)), draw(_busy if busy else _quiet)))
    tools = [ReadFile(draw(_many_results if busy else _results))] if busy or draw(st.booleans()) else []
    system, policies = draw(_words)[:300], draw(st.lists(_policies, min_size=1, max_size=3))
    windows = draw(st.lists(_windows, min_size=1, max_size=3))
    deeds = [("ask", draw(_words)), *draw(st.lists(st.tuples(_deeds, _words), max_size=14))]

    def opened() -> Chat:
        chat = Chat(
            run.toy,
            run.toy.report(),
            journal=run.journal,
            counter=Rough(1 + off * 2),
            policy=policies[len(run.events) % len(policies)],
            emit=lambda event: _emit(run, event),
            system=system,
            wishes=Wishes(max_steps=8),
        )
        if tools:
            chat.offer(tools)
        return chat

    asyncio.run(_done(run, opened, deeds, windows))
    return run


def _emit(run: Run, event: Event) -> None:
    run.events.append(event)
    if isinstance(event, RungTaken):
        run.commits.append(len(run.toy.requests))


async def _done(run: Run, opened: Callable[[], Chat], deeds: Sequence[tuple[str, str]], windows: Sequence[int]) -> None:
    run.chat = opened()
    for number, (deed, text) in enumerate(deeds):
        if deed in {"undo", "forget", "resume"}:
            run.commits.append(len(run.toy.requests))
        if deed == "resume":
            run.chat = opened()
        elif deed == "window":
            run.toy.window = windows[number % len(windows)]
            run.moves.append(len(run.toy.requests))
        else:
            try:
                await _did(run.chat, deed, f"Part {number}: {text}")
            except DoesNotFit:
                run.toy.refused.append(len(run.toy.requests))
            except (Interrupted, ServerFailed):
                pass


async def _did(chat: Chat, deed: str, text: str) -> None:
    match deed:
        case "ask":
            await chat.ask(text)
        case "compact":
            await chat.compact()
        case "idle":
            await chat.idle()
        case "work":
            chat.session.work({"goal": text[:40], "todos": [{"text": text[:80]}]})
        case "forget":
            chat.clear_work()
        case _:
            chat.undo()


def invariant_1_every_request_fits(run: Run) -> None:
    for request, window in zip(run.toy.requests, run.toy.windows, strict=True):
        prompt = size(request.messages, request.tools)
        assert request.max_tokens >= 1
        assert prompt + request.max_tokens <= window


def invariant_2_every_result_is_behind_its_call_and_every_call_has_one(run: Run) -> None:
    for request in run.toy.requests:
        assert defects(request.messages) == []
        roles = [message["role"] for message in request.messages]
        assert roles.count("system") <= 1
        assert "user" in roles


def invariant_3_nothing_vanishes(run: Run) -> None:
    history = run.chat.session.history
    kept = {leaf.seq for leaf in history.since(0)} | {message.seq for message in history.system}
    through = history.checkpoint.through if history.checkpoint else 0
    for entry in living(run.journal.entries()):
        if entry.type == "message" and _stays(run, entry.seq):
            assert entry.seq in kept or entry.seq <= through
    retrieve = Retrieve(run.chat.session, lambda text: text)
    for entry in living(run.journal.entries()):
        if entry.type == "message" and _stays(run, entry.seq):
            asyncio.run(retrieve.run({"id": str(entry.seq)}))


def invariant_4_the_person_s_words_survive(run: Run) -> None:
    history = run.chat.session.history
    if history.checkpoint is None or not run.talk:
        return
    words = history.checkpoint.words
    assert words
    first = next(iter(_said_by_user(run)))
    assert words[0].text == first or (
        words[0].text.startswith(first[:1]) and f"message #{words[0].seq}" in words[0].text
    ), "the first task that was taken always, by head and tail where it is long"
    sent = str(run.talk[-1].messages[0 if run.talk[-1].messages[0]["role"] == "user" else 1]["content"])
    if not run.commits or run.commits[-1] < len(run.toy.requests):
        assert all(each.text in sent for each in words)
    said = [message.seq for _, message in history.units() if getattr(message, "role", "") == "user"]
    assert len(words) + history.checkpoint.unsaid + len(said) == len(_said_by_user(run))


def _said_by_user(run: Run) -> list[str]:
    """The words that were not taken back, in order."""
    messages = [(entry.seq, entry.body.get("message")) for entry in living(run.journal.entries())]
    return [
        str(message["content"])
        for seq, message in messages
        if isinstance(message, dict) and message.get("role") == "user" and _stays(run, seq)
    ]


def _stays(run: Run, seq: int) -> bool:
    """Whether a message was not taken back."""
    for entry in living(run.journal.entries()):
        match entry.body:
            case {"effect": {"kind": "withdrawn", "since": int(since)}} if since <= seq < entry.seq:
                return False
    return True


def invariant_5_a_pass_ends_and_a_rung_is_worth_it(run: Run) -> None:
    least = Budget.of(min(run.toy.windows, default=0)).prompt * run.chat.engine.policy.compact_gain
    for event in run.events:
        if isinstance(event, RungTaken):
            assert event.tokens_after < event.tokens_before
            if event.rung is Rung.COMPACT:
                assert event.tokens_before - event.tokens_after >= least * 0.9
    summaries = [request.outline is not None for request in run.toy.requests]
    longest = max((len(each) for each in "".join("s" if each else "-" for each in summaries).split("-")), default=0)
    assert longest <= 60, "no summary for ever"


def invariant_6_a_replay_is_the_live_history(run: Run) -> None:
    assert project(run.journal.entries()) == run.chat.session.history


def invariant_7_between_commits_a_request_begins_as_the_one_before(run: Run) -> None:
    requests = list(enumerate(run.toy.requests, 1))
    for (one, before), (other, after) in pairwise(requests):
        moved = any(one <= at < other for at in (*run.commits, *run.toy.refused, *run.moves))
        if before.outline or after.outline or moved:
            continue
        shared = before.messages[:-1]
        assert list(after.messages[: len(shared)]) == list(shared)
        last, now = before.messages[-1], after.messages[len(shared)]
        assert last["role"] == now["role"]
        assert str(last["content"]).startswith(str(now["content"])) or str(now["content"]).startswith(
            str(last["content"])
        )


def invariant_8_usage_of_before_a_commit_never_judges_the_history_after_it(run: Run) -> None:
    if run.toy.counts or not run.commits or run.commits[-1] != len(run.toy.requests):
        return  # it was counted anew, or a reply has reported since
    used = run.chat.meter.rough(run.chat.session.history)
    assert "last measure" not in used.how


INVARIANTS: list[Callable[[Run], None]] = [
    invariant_1_every_request_fits,
    invariant_2_every_result_is_behind_its_call_and_every_call_has_one,
    invariant_3_nothing_vanishes,
    invariant_4_the_person_s_words_survive,
    invariant_5_a_pass_ends_and_a_rung_is_worth_it,
    invariant_6_a_replay_is_the_live_history,
    invariant_7_between_commits_a_request_begins_as_the_one_before,
    invariant_8_usage_of_before_a_commit_never_judges_the_history_after_it,
]


def taken(rung: Rung) -> Callable[[Run], bool]:
    return lambda run: any(isinstance(each, RungTaken) and each.rung is rung for each in run.events)


REACHED: dict[str, Callable[[Run], bool]] = {
    "a compaction": taken(Rung.COMPACT),
    "a clearing": taken(Rung.CLEAR),
    "a trim": taken(Rung.TRIM),
    "a refusal": lambda run: bool(run.toy.refused),
    "an undo": lambda run: any(entry.type == "undo" for entry in run.journal.entries()),
    "a stopped call": lambda run: NO_RESULT in str(run.chat.session.history),
    "a cycle": lambda run: any(isinstance(unit, ToolCycle) for _, unit in run.chat.session.history.units()),
    "long words": lambda run: "shortened" in str(run.chat.session.history.checkpoint),
}


def holds(examples: int, *rare: str) -> None:
    seen = dict.fromkeys(REACHED, 0)

    @settings(max_examples=examples, deadline=None, suppress_health_check=list(HealthCheck))
    @given(runs())
    def check(run: Run) -> None:
        for invariant in INVARIANTS:
            invariant(run)
        for what, reached in REACHED.items():
            seen[what] += reached(run)

    check()
    assert all(seen[what] for what in REACHED if what not in rare), f"the runs never reach something: {seen}"


def test_the_invariants_hold_over_random_runs() -> None:
    holds(300, "a trim")


@pytest.mark.slow
def test_the_invariants_hold_over_many_random_runs() -> None:
    holds(2_000)
