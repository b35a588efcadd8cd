"""What the seeds say of a pass of the ladder, of summaries and of refusals, as far as no other test says it already.

T9.2 is in test_calls.py; that two refused summaries end the asking in a conversation, in test_chat.py.
"""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import cast

import anyio
import pytest

from localctx.app import compaction
from localctx.app.chat import Chat
from localctx.app.compaction import ClearDecider, Engine, Helper
from localctx.app.meter import Meter
from localctx.app.session import Session
from localctx.app.tools.record import Retrieve
from localctx.core.accounting import Count, Usage
from localctx.core.cost import Speeds
from localctx.core.events import Event, Notice, PressureRaised, RungBegun, RungTaken, TurnEnded
from localctx.core.journal import message, open_begins, project
from localctx.core.ladder import POLICIES, Decision, OldResult, Policy, Rung
from localctx.core.messages import ToolCall, ToolCycle, plain
from localctx.core.outgoing import WireMessage, defects, outgoing
from localctx.core.window import Budget, ModelReport, Reading, ServerReport, Source, Status, reconcile
from localctx.errors import DoesNotFit, PromptRefused, ServerFailed
from localctx.ports import Delta, Finished, Journal, Outcome, Piece, Request
from localctx.stores.journal import FileJournal, MemoryJournal
from localctx.tokenizers.estimate import ClassEstimate

pytestmark = pytest.mark.anyio

GOOD = "## Goal\n- The manual is to be read.\n## Covered So Far\n- Part one was read.\n"
NO_CACHE = Speeds(prefill=1_000.0, decode=50.0, reuses=0.0, rewinds=0.0)
"""A server that keeps no request before: there the seed's order stands."""

Notes = Callable[[Request, int], "tuple[str, str] | BaseException"]
"""What the model writes where notes are asked for, and its finish reason; the number of the request, from 1."""


def size(messages: Sequence[WireMessage], tools: Sequence[WireMessage] = ()) -> int:
    """The truth: a token for four characters of what is sent, and four for each message."""
    return sum(len(json.dumps(each)) // 4 + 4 for each in (*messages, *tools))


def always(text: str, finish: str = "stop") -> Notes:
    return lambda _request, _number: (text, finish)


@dataclass
class Scribe:
    """A model in this process: it counts exactly, refuses what is too long, writes notes, and else says its lines."""

    window: int
    notes: Notes = field(default_factory=lambda: always(GOOD))
    lines: list[str | tuple[ToolCall, ...]] = field(default_factory=list)
    refuses: list[int | None] = field(default_factory=list)
    """The next requests of the conversation are refused so: with this limit, or with none stated."""
    kind: str = "scribe"
    url: str = "http://scribe"
    requests: list[Request] = field(default_factory=list)
    refused: int = 0

    @property
    def summaries(self) -> list[Request]:
        return [each for each in self.requests if each.outline]

    @property
    def talk(self) -> list[Request]:
        return [each for each in self.requests if not each.outline]

    def report(self) -> ModelReport:
        return ModelReport("scribe", loaded=True, window=reconcile([Reading(Source.SERVED, self.window, "scribe")]))

    async def probe(self) -> ServerReport:
        return ServerReport("scribe", self.url, Status.UP, models=(self.report(),))

    async def count(self, messages: Sequence[WireMessage], tools: Sequence[WireMessage] = ()) -> Count | None:
        return Count(size(messages, tools), 0, "scribe")

    async def size(self, _text: str) -> Count | None:
        return None

    def cut_points(self, _window: int) -> tuple[int, ...]:
        return ()

    async def chat(self, request: Request) -> AsyncGenerator[Piece, None]:
        self.requests.append(request)
        prompt = size(request.messages, request.tools)
        if prompt + request.max_tokens > self.window:
            self.refused += 1
            raise PromptRefused("the prompt is too long", prompt=prompt, limit=self.window)
        if self.refuses and not request.outline:
            raise PromptRefused("the prompt is too long", limit=self.refuses.pop(0))
        text, end, calls = self._answer(request)
        yield Delta(text)
        yield Finished(end, Usage(prompt, len(text) // 4 + 1), bool(calls), calls)

    def _answer(self, request: Request) -> tuple[str, str, tuple[ToolCall, ...]]:
        if request.outline:
            said = self.notes(request, len(self.summaries))
            if isinstance(said, BaseException):
                raise said
            return (*said, ())
        line = self.lines.pop(0) if self.lines else "Fine."
        return (line, "stop", ()) if isinstance(line, str) else ("", "tool_calls", line)

    async def close(self) -> None:
        return None


@dataclass
class Stage:
    """An engine with a session, and all that happened."""

    scribe: Scribe
    engine: Engine
    events: list[Event]

    @property
    def rungs(self) -> list[tuple[str, str]]:
        return [(event.rung.value, event.how) for event in self.events if isinstance(event, RungTaken)]

    @property
    def codes(self) -> list[str]:
        return [event.code for event in self.events if isinstance(event, Notice)]

    def sent(self) -> list[WireMessage]:
        """What the next request would be; it is valid."""
        messages = outgoing(self.engine.session.history)
        assert defects(messages) == []
        return messages


def staged(
    wire: Sequence[WireMessage],
    window: int,
    *,
    notes: Notes | None = None,
    policy: Policy = POLICIES["ladder"],
    decider: ClearDecider | None = None,
    helper: Scribe | None = None,
    speeds: Speeds | None = None,
    journal: Journal | None = None,
    scribe: Scribe | None = None,
) -> Stage:
    kept, events = journal or MemoryJournal(), list[Event]()
    for each in wire:
        kept.append(*message(each))
    scribe = scribe or Scribe(window, notes or always(GOOD))
    engine = Engine(
        Session(kept, events.append),
        scribe,
        Meter(scribe, ClassEstimate()),
        policy,
        Budget.of(window),
        events.append,
        Helper(helper, Meter(helper, ClassEstimate()), Budget.of(helper.window)) if helper else None,
        decider,
        speeds or Speeds(),
    )
    return Stage(scribe, engine, events)


@dataclass
class Conversation:
    """A chat with a scribe, and what happened."""

    chat: Chat
    scribe: Scribe
    journal: MemoryJournal
    events: list[Event]

    @property
    def of_rungs(self) -> list[RungTaken]:
        return [event for event in self.events if isinstance(event, RungTaken)]

    @property
    def codes(self) -> list[str]:
        return [event.code for event in self.events if isinstance(event, Notice)]


def chatting(
    scribe: Scribe,
    wire: Sequence[WireMessage] = (),
    *,
    policy: Policy = POLICIES["ladder"],
    tools: bool = False,
    journal: MemoryJournal | None = None,
) -> Conversation:
    """A chat that goes on with what was said."""
    journal, events = journal or MemoryJournal(), list[Event]()
    for each in wire:
        journal.append(*message(each))
    chat = Chat(scribe, scribe.report(), journal=journal, counter=ClassEstimate(), policy=policy, emit=events.append)
    if tools:
        chat.offer([Retrieve(chat.session, chat.fit)])
    return Conversation(chat, scribe, journal, events)


def asked(text: str) -> WireMessage:
    return {"role": "user", "content": text}


def said(text: str) -> WireMessage:
    return {"role": "assistant", "content": text}


def spoken(turns: int, tokens: int, word: str = "part one of the manual is to be read. ") -> list[WireMessage]:
    """The system, a task, and so many turns of about this many tokens each."""
    text = word * (tokens * 2 // len(word) + 1)
    wire: list[WireMessage] = [
        {"role": "system", "content": "Be brief."},
        asked("Read the manual. Never mention Perl."),
    ]
    for number in range(turns):
        wire += [said(f"{number} {text}"[: tokens * 2]), asked(f"{number} {text}"[: tokens * 2])]
    return [*wire, said("done")]


def cycle(number: int, tokens: int, **arguments: object) -> list[WireMessage]:
    function = {"name": "read_file", "arguments": json.dumps({"path": f"/{number}.txt", **arguments})}
    call = {"id": f"c{number}", "type": "function", "function": function}
    body = f"body {number} " + "x y " * tokens
    return [
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": f"c{number}", "content": body[: tokens * 4]},
    ]


def reading(cycles: int, tokens: int) -> list[WireMessage]:
    """A task and so many results of this many tokens."""
    return [asked("Read it all."), *(each for number in range(cycles) for each in cycle(number, tokens))]


def results(stage: Stage) -> list[str]:
    units = [unit for _, unit in stage.engine.session.history.units()]
    return [plain(each.content) for unit in units if isinstance(unit, ToolCycle) for each in unit.results]


# --- the order of a pass --------------------------------------------------------------------------------------------


# T10.1
async def test_where_clearing_is_enough_no_summary_is_asked_for() -> None:
    stage = staged(reading(8, 990), 10_000, speeds=NO_CACHE)
    before = (await stage.engine.measure()).tokens
    assert 0.8 < before / 10_000 < 0.85
    after = await stage.engine.settle()
    assert after.tokens < 6_000
    assert stage.rungs == [("clear", "stubs")]
    assert stage.scribe.requests == []


# T10.1: with a prefix cache a batch of old results is cleared only where that is the cheaper rung, which the seed does not ask
@pytest.mark.parametrize(("speeds", "rung"), [(NO_CACHE, "clear"), (Speeds(prefill=100.0, decode=100.0), "compact")])
async def test_with_a_prefix_cache_what_is_cheaper_is_done(speeds: Speeds, rung: str) -> None:
    small = [each for number in range(2, 7) for each in cycle(number, 80)]
    wire = [*reading(2, 1_500), *small, *spoken(8, 520)[1:]]
    stage = staged(wire, 10_000, speeds=speeds)
    used = await stage.engine.measure()
    assert 8_000 < used.tokens < 8_500
    assert stage.engine.outlook(used).clearing_pays is (rung == "clear")
    await stage.engine.settle(used)
    assert [taken for taken, _ in stage.rungs] == [rung]


# T10.1: all rungs that are due in one pass, each once; the person is warned of what is left, not of what was
async def test_clear_comes_before_compact_and_compact_before_the_warning() -> None:
    wire = [*reading(7, 500), *spoken(20, 450)[1:]]
    stage = staged(wire, 12_000, speeds=NO_CACHE, policy=Policy(clear_gain=0.05))
    await stage.engine.settle()
    kinds = [type(event) for event in stage.events]
    assert stage.rungs == [("clear", "stubs"), ("compact", "model")]
    assert kinds == [RungTaken, RungBegun, RungTaken]


# T4.2, section 9: said once while it stays above 70 %, and again after it was below
async def test_a_person_is_warned_once() -> None:
    stage = staged(spoken(15, 500), 10_000)
    for _ in range(3):
        used = await stage.engine.settle()
        assert 7_000 < used.tokens < 8_000
    assert [type(event) for event in stage.events] == [PressureRaised]
    await stage.engine.compact()
    await stage.engine.settle()
    stage.engine.session.add(asked("sand " * 3_500))
    stage.engine.session.add(said("done"))
    await stage.engine.settle()
    assert [type(event) for event in stage.events].count(PressureRaised) == 2


# T10.2: the seed sends what it cannot trim; here nothing is asked and nothing sent, and the arithmetic is told
async def test_one_recent_result_that_fills_the_window_is_refused_before_it_is_sent() -> None:
    wire = [asked("Read it."), *cycle(0, 9_550)]
    stage = staged(wire, 10_000)
    used = await stage.engine.settle()
    assert 0.96 < used.tokens / 10_000 < 0.98
    assert (stage.rungs, stage.scribe.requests) == ([], [])
    assert open_begins(stage.engine.session.journal.entries()) == ()


# T10.2: asked again, the result is old enough, and the conversation goes on
async def test_what_filled_the_window_is_summarized_once_something_follows_it() -> None:
    it = chatting(Scribe(10_000), [asked("Read it."), *cycle(0, 9_300)])
    await it.chat.ask("What does it say?")
    assert [(event.rung, event.how) for event in it.of_rungs] == [("compact", "model")]
    assert it.scribe.refused == 0
    assert "Read it." in str(it.scribe.talk[-1].messages)


# T8.1, T8.6: stuck is no reason to ask; what is left past 95 % is trimmed
async def test_what_frees_too_little_is_not_compacted_but_trimmed_past_the_budget() -> None:
    wire = [asked("Task."), said("yes"), *cycle(0, 8_600)]
    stage = staged([asked("old " * 400), said("yes " * 300), *wire], 10_000, policy=Policy(compact_gain=0.9))
    await stage.engine.settle()
    assert [type(event) for event in stage.events] == [RungTaken, PressureRaised], "no summary was begun"
    assert stage.rungs == [("trim", "machine")]
    assert stage.scribe.requests == []


# B4
async def test_one_summary_request_and_the_next_request_is_shorter() -> None:
    stage = staged(spoken(8, 1_100), 10_000)
    before = stage.sent()
    await stage.engine.settle()
    assert len(stage.scribe.requests) == len(stage.scribe.summaries) == 1
    after = stage.sent()
    assert len(after) < len(before)
    assert size(after) < size(before) / 2


# B1: a count alone compacts nothing
async def test_one_item_is_never_compacted_whatever_it_takes() -> None:
    stage = staged([asked("x y " * 12_000)], 10_000)
    await stage.engine.settle(Count(50_000, 0, "reported"))
    assert (stage.rungs, stage.scribe.requests) == ([], [])
    assert not await stage.engine.compact()


# B1: exactly at the threshold; the seed of the chapter compacts there, Jazz past it, and so do we
@pytest.mark.parametrize(("used", "rungs"), [(8_000, []), (8_001, [("compact", "model")])])
async def test_compaction_is_past_its_share(used: int, rungs: list[tuple[str, str]]) -> None:
    stage = staged(spoken(8, 900), 10_000)
    await stage.engine.settle(Count(used, 0, "reported"))
    assert stage.rungs == rungs


# B5
async def test_a_resumed_session_is_the_live_one_item_for_item(tmp_path: Path) -> None:
    journal = FileJournal(tmp_path / "a.jsonl")
    stage = staged([*reading(8, 600), *spoken(9, 500)[1:]], 8_192, journal=journal, policy=Policy(clear_gain=0.05))
    stage.engine.speeds = NO_CACHE
    await stage.engine.settle()
    assert {rung for rung, _ in stage.rungs} == {"clear", "compact"}
    live, lines = stage.engine.session.history, (tmp_path / "a.jsonl").read_text().count("\n")
    journal.close()
    again = FileJournal(tmp_path / "a.jsonl")
    assert Session(again).history == live
    again.close()
    assert (tmp_path / "a.jsonl").read_text().count("\n") == lines


# --- summaries ------------------------------------------------------------------------------------------------------

NUMBERS = ("nobody", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")


def counted(_request: Request, number: int) -> tuple[str, str]:
    return f"## Goal\n- The manual is to be read.\n## Covered So Far\n- Part {NUMBERS[number]}.\n", "stop"


# T8.5: each call after the first holds the notes so far; nothing of the manual is in two of them
async def test_pieces_are_folded_into_one_summary() -> None:
    wire = spoken(8, 1_100)
    stage = staged(wire, 10_000, helper=Scribe(3_000, counted))
    assert await stage.engine.compact()
    assert stage.engine.summarizer is not None
    helper = stage.engine.summarizer.runtime
    assert isinstance(helper, Scribe)
    texts = [str(request.messages[0]["content"]) for request in helper.summaries]
    assert len(texts) >= 4
    for number, text in enumerate(texts[1:], 1):
        assert f"- Part {NUMBERS[number]}." in text
    checkpoint = stage.engine.session.history.checkpoint
    assert checkpoint is not None
    covered = dict(checkpoint.sections)["covered"]
    assert covered == tuple(f"Part {NUMBERS[number + 1]}." for number in range(len(texts)))
    for number in range(5):
        assert sum(f"[assistant]\n{number} part" in text for text in texts) == 1
    assert stage.scribe.requests == [], "another model was named for it"


# T8.5: a prior summary is read by the next, which takes its place
async def test_an_earlier_checkpoint_is_merged_and_never_nested() -> None:
    stage = staged(spoken(8, 1_100), 10_000)
    await stage.engine.settle()
    for each in spoken(8, 1_100)[2:]:
        stage.engine.session.add(each)
    await stage.engine.settle()
    first, second = (str(request.messages) for request in stage.scribe.summaries)
    assert "- Part one was read." not in first
    assert second.count("- Part one was read.") == 1
    sent = stage.sent()
    assert str(sent).count("notes on the earlier part of this conversation") == 1
    assert str(sent).count("Never mention Perl.") == 1
    assert [message["role"] for message in sent[:2]] == ["system", "user"]


# T8.6: the seed keeps the list as it is and trims it to 80 %; here the record stands for it, which is as small and loses less
@pytest.mark.parametrize(
    "notes",
    [
        pytest.param(always("  "), id="empty"),
        pytest.param(always(GOOD, "length"), id="cut off"),
        pytest.param(lambda _request, _number: ServerFailed("out of memory"), id="failed"),
        pytest.param(always("I shall go on."), id="no summary"),
    ],
)
async def test_a_bad_summary_never_replaces_history(notes: Notes) -> None:
    stage = staged(spoken(8, 1_100), 10_000, notes=notes)
    used = await stage.engine.settle()
    assert stage.rungs == [("compact", "machine")]
    assert stage.codes == ["summary-refused"]
    assert len(stage.scribe.summaries) == 2, "asked once more"
    assert used.tokens < 8_000
    assert "Never mention Perl." in str(stage.sent())
    assert "I shall go on." not in str(stage.sent())


# T8.7
async def test_a_short_history_is_left_alone() -> None:
    stage = staged([{"role": "system", "content": "Be brief."}, asked("Hi."), said("Hello.")], 128_000)
    before = stage.engine.session.history
    await stage.engine.settle()
    assert not await stage.engine.compact()
    assert stage.engine.session.history is before
    assert (stage.events, stage.scribe.requests) == ([], []), "nobody is told of a summary that is not made"


# T8.7
async def test_what_a_compaction_keeps_is_the_same_and_its_notes_are_in_the_journal() -> None:
    stage = staged(spoken(8, 1_100), 10_000)
    before = stage.engine.session.history
    await stage.engine.settle()
    after = stage.engine.session.history
    assert after.system[0] is before.system[0]
    assert next(after.newest_first()) is next(before.newest_first())
    (taken,) = [event for event in stage.events if isinstance(event, RungTaken)]
    assert taken.tokens_after < taken.tokens_before
    assert taken.messages_after < taken.messages_before
    commit = [entry for entry in stage.engine.session.journal.entries() if entry.type == "commit"][-1]
    assert "Part one was read." in json.dumps(commit.body["effect"])
    assert project(stage.engine.session.journal.entries()) == after


# section 8.1
async def test_a_summary_that_is_stopped_changes_nothing_and_its_begin_is_closed() -> None:
    class Stop(BaseException):
        pass

    stage = staged(spoken(8, 1_100), 10_000, notes=lambda _request, _number: Stop())
    before = stage.engine.session.history
    with pytest.raises(Stop):
        await stage.engine.settle()
    assert stage.engine.session.history == before
    entries = [*stage.engine.session.journal.entries()]
    assert entries[-1].type == "abort"
    assert open_begins(entries) == ()


# section 8.3: no model at all
async def test_without_a_model_the_record_stands_alone() -> None:
    stage = staged([*reading(8, 300), *spoken(8, 1_100)[1:]], 10_000)
    stage.engine.runtime = None
    used = await stage.engine.settle()
    assert stage.rungs == [("compact", "machine")]
    assert used.tokens < 8_000
    assert stage.codes == [], "that is no failure"
    assert "Looked at: /0.txt; /1.txt" in str(stage.sent())


# --- another model for the summaries --------------------------------------------------------------------------------


@pytest.mark.parametrize("window", [1_024, 2_048, 4_096, 32_768])
async def test_each_request_of_another_summarizer_fits_its_own_window(window: int) -> None:
    helper = Scribe(window)
    stage = staged(spoken(10, 2_700)[2:], 32_768, helper=helper)
    await stage.engine.settle()
    assert stage.rungs == [("compact", "model")]
    assert stage.scribe.requests == []
    assert helper.refused == 0
    for request in helper.requests:
        assert size(request.messages) + request.max_tokens <= window
        assert request.tools == ()


async def test_a_short_message_before_a_long_one_is_a_piece_like_others() -> None:
    helper = Scribe(2_048)
    stage = staged(spoken(10, 2_700), 32_768, helper=helper)
    await stage.engine.settle()
    assert stage.rungs == [("compact", "model")]


async def fill(stage: Stage) -> None:
    """Goes on until a compaction is due, and settles."""
    for each in spoken(8, 1_100)[2:]:
        stage.engine.session.add(each)
    await stage.engine.settle()


async def test_another_summarizer_that_is_refused_twice_is_asked_no_more_until_compact() -> None:
    helper = Scribe(4_096, always("I shall go on."))
    stage = staged([], 10_000, helper=helper)
    await fill(stage)
    await fill(stage)
    told = [code for code in stage.codes if code != "summarizing"]
    assert told == ["summary-refused", "summary-refused", "summaries-off"]
    asked_for = len(helper.requests)
    await fill(stage)
    assert len(helper.requests) == asked_for
    assert stage.codes[-1] == "summaries-off"
    assert stage.rungs == [("compact", "machine")] * 3

    helper.notes = always(GOOD)
    for each in spoken(4, 1_100)[2:]:
        stage.engine.session.add(each)
    assert await stage.engine.compact()
    assert stage.rungs[-1] == ("compact", "model")
    await fill(stage)
    assert stage.rungs[-1] == ("compact", "model")


async def test_a_success_between_two_refusals_keeps_the_model_asked() -> None:
    bad, good = "I shall go on.", GOOD
    written = iter([bad, bad, good, bad, bad, good])
    stage = staged([], 10_000, notes=lambda _request, _number: (next(written), "stop"))
    for _ in range(4):
        await fill(stage)
    assert [how for _, how in stage.rungs] == ["machine", "model", "machine", "model"]
    assert "summaries-off" not in stage.codes


# --- who decides about old results ----------------------------------------------------------------------------------


def deciding(*decisions: Decision) -> tuple[ClearDecider, list[OldResult]]:
    """A hook that decides about the first results so, and the results that it was asked about."""
    seen = list[OldResult]()

    async def decide(old: Sequence[OldResult]) -> Mapping[int, Decision]:
        seen.extend(old)
        return {each.seq: decision for each, decision in zip(old, decisions, strict=False)}

    return decide, seen


async def test_a_hook_keeps_truncates_and_drops_and_the_rest_is_cleared_as_usual() -> None:
    decide, seen = deciding(Decision.KEEP, Decision.TRUNCATE, Decision.DROP)
    stage = staged(reading(10, 1_000), 15_000, decider=decide, speeds=NO_CACHE)
    whole = results(stage)
    await stage.engine.settle()
    assert stage.rungs == [("clear", "stubs")]
    kept, truncated, dropped, usual, *_ = results(stage)
    assert kept == whole[0]
    assert truncated.startswith("body 1 x y")
    assert "all of it: message #5" in truncated
    assert len(kept) > len(truncated) > len(usual) > len(dropped)
    assert dropped.startswith("[cleared: result of read_file")
    assert "x y" not in dropped
    assert "begins 'body 3 x y" in usual
    assert [(each.seq, each.tool, each.text) for each in seen[:2]] == [
        (3, "read_file", whole[0]),
        (5, "read_file", whole[1]),
    ]


async def failing(_old: Sequence[OldResult]) -> Mapping[int, Decision]:
    raise ZeroDivisionError


async def sleeping(_old: Sequence[OldResult]) -> Mapping[int, Decision]:
    await anyio.sleep(60)
    return {}


async def babbling(old: Sequence[OldResult]) -> Mapping[int, Decision]:
    return dict.fromkeys((each.seq for each in old), cast("Decision", "perhaps"))


@pytest.mark.parametrize("decider", [failing, sleeping, babbling])
async def test_a_hook_that_is_of_no_use_is_told_of_and_done_without(
    monkeypatch: pytest.MonkeyPatch, decider: ClearDecider
) -> None:
    monkeypatch.setattr(compaction, "_DECIDER_SECONDS", 0.02)
    stage, without = (staged(reading(10, 1_000), 15_000, decider=each, speeds=NO_CACHE) for each in (decider, None))
    await stage.engine.settle()
    await without.engine.settle()
    assert stage.codes == ["clear-decider"]
    assert stage.engine.session.history == without.engine.session.history
    assert stage.rungs == [("clear", "stubs")]


async def test_a_hook_that_abstains_changes_nothing() -> None:
    decide, seen = deciding()
    stage, without = (staged(reading(10, 1_000), 15_000, decider=each, speeds=NO_CACHE) for each in (decide, None))
    await stage.engine.settle()
    await without.engine.settle()
    assert seen
    assert (stage.codes, stage.engine.session.history) == ([], without.engine.session.history)


async def test_a_hook_that_keeps_all_leaves_the_history_to_the_next_rung() -> None:
    decide, _ = deciding(*[Decision.KEEP] * 10)
    stage = staged(reading(8, 1_000), 10_000, decider=decide, speeds=NO_CACHE)
    await stage.engine.settle()
    assert stage.rungs == [("compact", "model")]
    assert open_begins(stage.engine.session.journal.entries()) == ()


async def test_the_hook_is_asked_before_a_manual_compaction_as_well() -> None:
    decide, seen = deciding(*[Decision.DROP] * 10)
    stage = staged([*reading(10, 1_000), *spoken(8, 1_100)[1:]], 24_000, decider=decide)
    assert await stage.engine.compact()
    assert seen
    assert [rung for rung, _ in stage.rungs] == ["clear", "compact"]


@pytest.mark.parametrize("asks", [True, False])
async def test_where_nothing_is_old_enough_what_the_hook_frees_is_the_result(*, asks: bool) -> None:
    decide, _ = deciding(*[Decision.DROP] * 10)
    stage = staged(reading(9, 1_000), 100_000, decider=decide if asks else None)
    assert await stage.engine.compact() is asks
    assert stage.rungs == ([("clear", "stubs")] if asks else [])
    assert stage.scribe.requests == []


# T5.2, T6.1: the seed's stub of what could not be kept says to run the tool again; here all of it can be read
async def test_what_a_stub_names_can_be_read_whole() -> None:
    stage = staged(reading(10, 1_000), 15_000, speeds=NO_CACHE)
    whole = results(stage)
    await stage.engine.settle()
    cleared = [each for each in results(stage) if each.startswith("[cleared")]
    retrieve = Retrieve(stage.engine.session, lambda text: text)
    assert len(cleared) >= 5
    for index, stub in enumerate(cleared):
        line = stub.rpartition("#")[2].rstrip("]")
        outcome: Outcome = await retrieve.run({"id": line})
        assert outcome.text == whole[index]
        assert outcome == await retrieve.run({"id": f"c{index}"})


# --- what a server refuses ------------------------------------------------------------------------------------------


# T8.9
@pytest.mark.parametrize(("stated", "window"), [(6_000, 6_000), (None, 4_900)])
async def test_a_refused_request_is_compacted_for_and_sent_once_more(stated: int | None, window: int) -> None:
    it = chatting(Scribe(10_000, refuses=[stated]), spoken(6, 1_100))
    await it.chat.ask("What was that?")
    assert len(it.scribe.talk) == 2
    before, after = (size(request.messages) for request in it.scribe.talk)
    assert abs(it.chat.engine.budget.window - window) <= (0 if stated else 0.05 * window)
    assert after <= 0.7 * before
    assert [event.rung for event in it.of_rungs] == ["compact"]
    assert it.of_rungs[0].tokens_before < 8_000, "regardless of what is due"
    assert [type(event) for event in it.events].count(TurnEnded) == 1


# T8.9
async def test_a_second_refusal_fails_the_run_with_the_arithmetic() -> None:
    it = chatting(Scribe(10_000, refuses=[None, None]), spoken(6, 1_100))
    with pytest.raises(DoesNotFit, match=r"refused again at [\d,]+ tokens"):
        await it.chat.ask("What was that?")
    assert len(it.scribe.talk) == 2


# T8.9: a success between them
async def test_after_a_success_a_refusal_is_met_again() -> None:
    it = chatting(Scribe(10_000, refuses=[8_000]), spoken(4, 1_100))
    await it.chat.ask("One.")
    it.scribe.refuses = [6_000]
    await it.chat.ask("Two.")
    assert it.codes.count("refused") == 2
    assert it.chat.engine.budget.window == 6_000
    assert len(it.scribe.talk) == 4


# T8.9: 70 % of an estimate of 10,000
async def test_a_refused_request_that_cannot_shrink_is_not_sent_again() -> None:
    it = chatting(Scribe(20_000, refuses=[None]))
    text = "x y " * 10_000
    with pytest.raises(DoesNotFit, match=r"window is 7,0\d\d"):
        await it.chat.ask(text)
    assert len(it.scribe.talk) == 1
    assert it.of_rungs == []
    assert it.chat.session.history.turns == (), "the words are taken back"


@pytest.mark.parametrize("name", [name for name in POLICIES if name != "none"])
async def test_forced_a_pass_makes_room_whether_that_is_due_or_not(name: str) -> None:
    stage = staged(spoken(13, 1_000), 20_000, policy=POLICIES[name])
    before = await stage.engine.settle()
    assert stage.rungs == []
    after = await stage.engine.settle(force=True)
    assert [rung for rung, _ in stage.rungs] == [Rung.COMPACT]
    assert after.tokens < before.tokens - stage.engine.budget.prompt * 0.1


async def test_forced_a_pass_that_can_free_nothing_asks_nobody_and_ends() -> None:
    stage = staged([asked("Task."), *cycle(0, 4_500)], 10_000)
    before = stage.engine.session.history
    await stage.engine.settle(force=True)
    assert stage.engine.session.history == before
    assert (stage.events, stage.scribe.requests) == ([], [])
    assert open_begins(stage.engine.session.journal.entries()) == ()


async def test_forced_a_pass_trims_where_a_compaction_frees_too_little() -> None:
    turns = [each for _ in range(4) for each in (said("yes " * 150), asked("on"))]
    stage = staged([asked("Task. " * 20), *turns, *cycle(0, 4_500)], 10_000)
    before = await stage.engine.measure()
    after = await stage.engine.settle(force=True)
    assert stage.rungs == [("trim", "machine")]
    assert after.tokens < before.tokens


async def test_the_policy_none_rewrites_nothing_for_a_refusal_either() -> None:
    it = chatting(Scribe(10_000, refuses=[6_000]), spoken(6, 1_100), policy=POLICIES["none"])
    with pytest.raises(DoesNotFit):
        await it.chat.ask("What was that?")
    assert it.of_rungs == []


# --- nudges ---------------------------------------------------------------------------------------------------------


# T9.2, section 8.5
async def test_the_note_after_a_compaction_is_in_one_request_and_in_no_journal() -> None:
    it = chatting(Scribe(10_000), [*spoken(7, 1_100)[:-1], *cycle(0, 300), said("read")], tools=True)
    await it.chat.ask("x y " * 700)
    await it.chat.ask("And now?")
    assert len(it.of_rungs) == 1
    noted = ["[CONTEXT COMPACTED: " in str(request.messages) for request in it.scribe.talk]
    assert noted == [True, False]
    first = str(it.scribe.talk[0].messages[-1]["content"])
    assert "CONTEXT WARNING" not in first
    assert "[CONTEXT" not in json.dumps([entry.body for entry in it.journal.entries()])


# T10.3: the seed lets a nudge's tokens land in the overhead; here they are taken off again
async def test_a_nudge_teaches_nothing_about_the_history() -> None:
    it = chatting(Scribe(10_000), spoken(7, 1_000), tools=True)
    await it.chat.ask("Go on.")
    sent = it.scribe.talk[-1]
    assert "[CONTEXT WARNING: " in str(sent.messages[-1]["content"])
    history = it.chat.session.history
    nudge = size(sent.messages) - size(outgoing(history)[: len(sent.messages)])
    assert nudge > 30
    off = it.chat.meter.rough(history).tokens - size(outgoing(history), it.chat.meter.tools)
    assert abs(off) < nudge / 2
