"""The same conversation under each policy: what of it is sent, and that it can be."""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass
from functools import cache

import pytest

from localctx.app.tools.record import Retrieve
from localctx.core.events import RungTaken
from localctx.core.journal import project
from localctx.core.ladder import POLICIES, Rung, Standing, next_rung
from localctx.core.messages import Message, ToolCycle, end_of, plain
from localctx.core.notes import HEADINGS
from localctx.core.outgoing import WireMessage, defects
from localctx.core.window import Budget
from tests.app.test_seed_engine import Stage, asked, cycle, said, size, staged

WINDOW = 8_192
TASK = "The first task: read the parts one by one. Never mention Perl."
PARTS = 12


def script() -> list[WireMessage]:
    """The system, a task, and parts of it: a call, sometimes with a long argument, a long result, a reply, the next words."""
    wire: list[WireMessage] = [{"role": "system", "content": "Be brief."}, asked(TASK)]
    for number in range(PARTS):
        note = "n o t e " * 150 if number % 3 == 0 else "short"
        wire += [
            *cycle(number, 420, note=note),
            said(f"Part {number} was read. " * 10),
            asked(f"Read part {number + 1}."),
        ]
    return wire


@dataclass(frozen=True)
class Played:
    """What was sent at each step, and how long the conversation was then."""

    stage: Stage
    sent: list[list[WireMessage]]
    after_compaction: list[WireMessage]


@cache
def played(name: str) -> Played:
    """The script under a policy, settled before each request as a run does; the model's next line follows it."""
    return asyncio.run(_played(name))


async def _played(name: str) -> Played:
    stage, sent, first = staged([], WINDOW, policy=POLICIES[name]), list[list[WireMessage]](), None
    for each in script():
        if each["role"] == "assistant":
            await stage.engine.settle()
            sent.append(stage.sent())
            if first is None and stage.engine.session.history.checkpoint:
                first = sent[-1]
        stage.engine.session.add(each)
    return Played(stage, sent, first or [])


def taken(name: str) -> list[RungTaken]:
    return [event for event in played(name).stage.events if isinstance(event, RungTaken)]


def bodies(messages: list[WireMessage]) -> tuple[list[int], list[int]]:
    """The parts whose results stand there whole, and those that are cleared."""
    texts = [str(each["content"]) for each in messages if each["role"] == "tool"]
    whole = [int(text.split()[1]) for text in texts if text.startswith("body ")]
    return whole, [int(text.split("'body ")[1].split()[0]) for text in texts if text.startswith("[cleared: ")]


@pytest.mark.parametrize("name", sorted(set(POLICIES) - {"none"}))
def test_every_list_is_valid_fits_and_begins_with_the_task(name: str) -> None:
    budget = Budget.of(WINDOW)
    for messages in played(name).sent:
        assert defects(messages) == []
        assert size(messages) <= budget.prompt
        assert TASK in str(messages[1]["content"])
        assert messages[0]["content"] == "Be brief."


@pytest.mark.parametrize("name", sorted(POLICIES))
def test_the_newest_message_is_always_sent_as_it_was(name: str) -> None:
    wire = script()
    ends = [wire[index - 1] for index, each in enumerate(wire) if each["role"] == "assistant"]
    shown = played(name).sent
    compactions = sum(event.rung is Rung.COMPACT for event in taken(name))
    whole = [str(last[-1]["content"]).endswith(str(end["content"])) for last, end in zip(shown, ends, strict=True)]
    assert whole.count(False) <= (compactions if name == "replace" else 0)


@pytest.mark.parametrize("name", sorted(POLICIES))
def test_nothing_is_lost_from_the_record_and_a_replay_is_the_same(name: str) -> None:
    session = played(name).stage.engine.session
    assert [entry.body["message"] for entry in session.journal.entries() if entry.type == "message"] == script()
    assert project(session.journal.entries()) == session.history
    retrieve = Retrieve(session, lambda text: text)
    for number in range(PARTS):
        (_, result) = cycle(number, 420)
        assert asyncio.run(retrieve.run({"id": f"c{number}"})).text == result["content"]


# T8.1, T8.2: a quarter of a small window, whole cycles
def test_the_ladder_summarizes_and_keeps_a_tail_word_for_word() -> None:
    (event,) = taken("ladder")
    assert (event.rung, event.how) == (Rung.COMPACT, "model")
    assert event.tokens_before > 0.8 * WINDOW
    messages = played("ladder").after_compaction
    whole, cleared = bodies(messages)
    assert 2 <= len(whole) <= 4
    assert whole == list(range(whole[0], whole[-1] + 1)), "the newest, without a gap"
    assert cleared == []
    assert size(messages[2:]) <= WINDOW // 4


# B2, B3: system, summary, and the user's words in it; no orphan of a call
def test_replace_keeps_the_system_the_summary_the_user_s_words_and_what_nobody_has_read() -> None:
    (event,) = taken("replace")
    assert (event.rung, event.how) == (Rung.COMPACT, "model")
    system, user, call, result = played("replace").after_compaction
    assert (call["role"], result["role"]) == ("assistant", "tool"), "the model has not read it yet"
    text = str(user["content"])
    assert (system["role"], user["role"]) == ("system", "user")
    assert text.index(TASK) < text.index("Read part 2.") < text.index("Read part 9.") < text.index("## Goal")
    assert "Part 3 was read." not in text.split("## Goal", maxsplit=1)[0]
    assert "- The manual is to be read." in text


# B3: newest first, within 15 % of the window where the chapter has 20,000 characters; the first task stays as well
def test_replace_keeps_the_newest_words_within_their_share() -> None:
    wire = [asked(TASK)]
    for number in range(12):
        wire += [said("Yes. " * 20), asked(f"word {number}: " + "sand " * 180)]
    stage = staged([*wire, said("Yes.")], 4_096, policy=POLICIES["replace"])
    assert 0.8 < asyncio.run(stage.engine.measure()).tokens / 4_096 < 0.83
    asyncio.run(stage.engine.settle())
    assert stage.rungs == [("compact", "model")]
    (only,) = stage.sent()
    text = str(only["content"])
    assert TASK in text
    kept = [number for number in range(12) if f"word {number}: " in text]
    assert kept == list(range(kept[0], 12))
    assert 1 <= len(kept) <= 4
    assert f"(+{12 - len(kept)} more messages of the user" in text


# micro: results alone, whenever there are any, and nine sections at 92 %, which is the budget here
def test_micro_clears_results_alone_and_keeps_every_other_word() -> None:
    rungs = taken("micro")
    assert {event.rung for event in rungs} == {Rung.CLEAR}
    assert all(event.tokens_before >= 0.5 * WINDOW for event in rungs)
    last = played("micro").sent[-1]
    whole, cleared = bodies(last)
    assert cleared == list(range(PARTS - len(whole)))
    assert 1 <= len(whole) <= 7
    assert json.dumps(last).count("n o t e " * 149) == PARTS // 3, "arguments stay, long and old ones too"
    assert all(f"Part {number} was read." in str(last) for number in range(PARTS - 1))


def test_micro_summarizes_late_under_nine_headings() -> None:
    wire = [message for number in range(30) for message in (asked(f"Read part {number}."), said("manual " * 180))]
    stage = staged([], WINDOW, policy=POLICIES["micro"])
    for each in wire:
        if each["role"] == "assistant":
            before = asyncio.run(stage.engine.settle())
            assert before.tokens <= Budget.of(WINDOW).prompt
        stage.engine.session.add(each)
    compactions = [event for event in stage.events if isinstance(event, RungTaken) and event.rung is Rung.COMPACT]
    assert compactions
    assert all(event.tokens_before > 0.85 * WINDOW - 1 for event in compactions)
    (request, *_) = stage.scribe.summaries
    assert request.outline is not None
    assert len(request.outline.headings) == len(HEADINGS) == 9


def test_micro_begins_no_clearing_that_has_nothing_to_clear() -> None:
    assert next_rung(Standing(6_000), Budget.of(10_000), POLICIES["micro"], frozenset()) is None


# gate: the lesson's shape; the cut never splits a call from its result, as the lesson's does
def test_gate_keeps_the_last_two_and_never_clears() -> None:
    (event,) = taken("gate")
    assert event.rung is Rung.COMPACT
    assert event.tokens_before > 0.85 * WINDOW - 1
    messages = played("gate").after_compaction
    assert [message["role"] for message in messages] == ["system", "user", "assistant", "tool"]
    ((newest,), cleared) = bodies(messages)
    assert str(messages[1]["content"]).endswith(f"Read part {newest}.")
    assert cleared == []


def test_gate_keeps_whole_cycles_whatever_their_size() -> None:
    wire = [asked(TASK), *cycle(0, 2_900), said("read"), asked("Next."), *cycle(1, 3_200), *cycle(2, 900)]
    stage = staged(wire, WINDOW, policy=POLICIES["gate"])
    before = stage.engine.session.history
    asyncio.run(stage.engine.settle())
    kept = [unit for _, unit in stage.engine.session.history.units()]
    assert kept == [unit for _, unit in before.units()][-2:]
    assert all(isinstance(unit, ToolCycle) and not unit.pending for unit in kept)


def test_none_sends_all_of_it_and_is_the_only_one_that_outgrows_the_window() -> None:
    assert taken("none") == []
    played_out = played("none")
    assert played_out.stage.scribe.requests == []
    wire, steps = script(), [index for index, each in enumerate(script()) if each["role"] == "assistant"]
    for messages, index in zip(played_out.sent, steps, strict=True):
        assert [(each["role"], each.get("content")) for each in messages] == [
            (each["role"], each.get("content")) for each in wire[:index]
        ]
    assert size(played_out.sent[-1]) > Budget.of(WINDOW).prompt


def test_how_much_each_policy_sends_at_the_end() -> None:
    last = {name: size(played(name).sent[-1]) for name in POLICIES}
    assert last["none"] > last["micro"] > last["ladder"]
    whole = {name: bodies(played(name).sent[-1])[0] for name in POLICIES}
    assert whole["none"] == list(range(PARTS))
    assert all(parts == list(range(parts[0], PARTS)) for parts in whole.values()), "the newest ones"
    words = [unit for _, unit in played("micro").stage.engine.session.history.units() if isinstance(unit, Message)]
    assert [plain(each.content) for each in words] == [each["content"] for each in script() if each["role"] == "user"]
    through = played("ladder").stage.engine.session.history.checkpoint
    assert through is not None
    assert through.through < end_of(next(played("ladder").stage.engine.session.history.newest_first()))
