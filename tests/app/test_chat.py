from __future__ import annotations

import anyio
import pytest

from localctx.app.chat import Wishes
from localctx.core.events import (
    Event,
    Notice,
    PressureRaised,
    RungTaken,
    Text,
    Thinking,
    Truncated,
    TurnEnded,
    UsageReported,
    WindowProbed,
)
from localctx.core.journal import project
from localctx.core.ladder import POLICIES, Rung
from localctx.core.messages import Message, Said
from localctx.errors import DoesNotFit, LocalctxError, ServerFailed, Unreachable
from localctx.runtimes.llama_server import LlamaServer
from localctx.stores.journal import MemoryJournal
from tests.app.conftest import NOTES, Start, answering
from tests.fakes.llama_server import Fake

pytestmark = pytest.mark.anyio

TASK = "Read the manual that I paste. Never mention Perl."
WORDS = [
    "the",
    "meter",
    "shows",
    "how",
    "full",
    "the",
    "window",
    "is",
    "before",
    "each",
    "request",
    "goes",
    "to",
    "the",
    "server",
    "that",
    "holds",
    "it",
]


def piece(number: int, words: int = 150) -> str:
    return f"Piece {number}: " + " ".join(WORDS[(number + i) % len(WORDS)] for i in range(words)) + f" end {number}"


async def test_a_turn_streams_the_reply_and_reports_what_it_took(talk: Start) -> None:
    async with talk(Fake(reply="Hello there.", reply_thinking="Hm."), system="Be brief.") as it:
        await it.chat.ask("Say hello.")
        assert "".join(event.text for event in it.of(Text)) == "Hello there."
        assert "".join(event.text for event in it.of(Thinking)) == "Hm."
        (usage,) = it.of(UsageReported)
        assert usage.usage.prompt == usage.expected.tokens
        assert it.of(WindowProbed)[0].window.tokens == 4096
        assert it.of(TurnEnded)[0].finish == "stop"
        it.check()


async def test_a_conversation_of_many_windows_goes_on(talk: Start) -> None:
    async with talk(Fake(n_ctx=2048, reply=answering("Understood.")), system="Be brief.") as it:
        await it.chat.ask(TASK)
        for number in range(40):
            await it.chat.ask(piece(number))
        it.check()
        rungs = it.of(RungTaken)
        assert sum(r.rung is Rung.COMPACT and r.how == "model" for r in rungs) >= 4
        assert all(r.tokens_after < r.tokens_before for r in rungs)
        assert it.of(PressureRaised)
        assert it.of(Truncated) == []
        assert all(TASK in body["messages"][1]["content"] for body in it.turns)
        assert "The user wants the manual read." in it.turns[-1]["messages"][1]["content"]


async def test_requests_extend_the_one_before_except_where_a_rung_was_taken(talk: Start) -> None:
    async with talk(Fake(n_ctx=4096, reply=answering("Understood."))) as it:
        for number in range(30):
            await it.chat.ask(piece(number))
        moved = sum(
            after["messages"][: len(before["messages"])] != before["messages"]
            for before, after in zip(it.turns, it.turns[1:], strict=False)
        )
        assert moved == len(it.of(RungTaken)) > 0


async def test_a_summary_is_asked_in_place_so_that_little_is_prefilled(talk: Start) -> None:
    async with talk(Fake(n_ctx=4096, reply=answering("Understood."))) as it:
        for number in range(30):
            await it.chat.ask(piece(number))
        asked = [i for i, body in enumerate(it.fake.chats) if "grammar" in body]
        assert asked
        for index in asked:
            assert it.fake.prefilled[index] < 0.1 * it.fake.prompt_tokens(it.fake.chats[index])


async def test_a_refused_summary_is_asked_once_more_and_then_the_record_serves(talk: Start) -> None:
    async with talk(Fake(n_ctx=2048, reply=answering("Understood.", notes="I will now go on."))) as it:
        await it.chat.ask(TASK)
        for number in range(30):
            await it.chat.ask(piece(number))
        it.check()
        asked = [body for body in it.fake.chats if "grammar" in body]
        assert len(asked) == 4, "two compactions with one retry each, then no model is asked any more"
        assert "its headings are missing" in asked[1]["messages"][-1]["content"]
        codes = [event.code for event in it.of(Notice)]
        assert codes.count("summary-refused") == 2
        assert codes.count("summaries-off") == 1
        assert {r.how for r in it.of(RungTaken)} == {"machine"}
        assert TASK in it.turns[-1]["messages"][0]["content"]
        assert await it.chat.engine.compact() in {True, False}


async def test_a_message_larger_than_the_window_is_refused_and_withdrawn(talk: Start) -> None:
    async with talk(Fake(n_ctx=1024)) as it:
        await it.chat.ask("First.")
        with pytest.raises(DoesNotFit, match=r"needs [\d,]+ tokens .*window is 1,024 .*n_ctx") as caught:
            await it.chat.ask(piece(0, 2000))
        assert caught.value.exit_code == 4
        assert len(it.turns) == 1, "nothing was sent, nothing was compacted for it"
        await it.chat.ask("Second.")
        it.check()
        assert [m["content"] for m in it.turns[-1]["messages"]] == ["First.", "Done.", "Second."]
        assert any("end 0" in str(entry.body) for entry in it.journal.entries()), "the journal keeps it"


@pytest.mark.parametrize("window", [256, 512])
async def test_tiny_windows_answer_or_say_why_not(talk: Start, window: int) -> None:
    async with talk(Fake(n_ctx=window, reply=answering("Yes."))) as it:
        refusals = list[str]()
        for number in range(12):
            try:
                await it.chat.ask(piece(number, 15))
            except DoesNotFit as error:
                refusals.append(str(error))
        it.check()
        assert all(f"window is {window}" in refusal for refusal in refusals)
        assert len(it.of(TurnEnded)) + len(refusals) == 12


async def test_a_server_that_serves_less_than_it_says_is_believed_when_it_refuses(talk: Start) -> None:
    async with talk(Fake(n_ctx=2048, fault="lying", reply=answering("Understood."))) as it:
        assert it.chat.window.tokens == 4096
        for number in range(20):
            await it.chat.ask(piece(number))
        assert it.chat.window.tokens == 2048
        assert [event.code for event in it.of(Notice)].count("refused") == 1
        assert len(it.of(TurnEnded)) == 20
        refused = [body for body in it.fake.chats if it.fake.prompt_tokens(body) >= 2048]
        assert len(refused) == 1, "one refusal teaches the window"


async def test_after_a_silent_cut_room_is_made_and_the_request_is_sent_once_more(talk: Start) -> None:
    async with talk(Fake(n_ctx=8192, fault="cut_silently", keep=2048, reply=answering("Understood."))) as it:
        await it.chat.ask(TASK)
        for number in range(40):
            await it.chat.ask(piece(number, 60))
            if it.of(Truncated):
                break
        (alarm,) = it.of(Truncated)
        assert alarm.reported == 2048 < alarm.expected.lower
        assert alarm.again
        assert 0 < alarm.unseen < 2 * len(it.of(UsageReported))
        assert it.chat.engine.budget.window == 2048
        assert it.of(RungTaken)
        first, same, second = it.turns[-3:]
        assert same["messages"] == first["messages"], "a server that cuts does so again"
        assert it.fake.prompt_tokens(second) < 2048 < it.fake.prompt_tokens(first)
        assert second["messages"][-1] == first["messages"][-1], "the same words are asked again"
        assert len(it.of(TurnEnded)) == len(it.turns) - 2, "the answer that nobody should trust is taken back"
        *_, words, answer = it.chat.session.history.units()
        assert isinstance(words[1], Message)
        assert words[1].content == piece(number, 60)
        assert isinstance(answer[1], Said)
        assert project(it.journal.entries()) == it.chat.session.history


async def test_without_rungs_a_silent_cut_is_told_and_the_answer_kept(talk: Start) -> None:
    fake = Fake(n_ctx=8192, fault="cut_silently", keep=300, reply=answering("Understood."))
    async with talk(fake, policy=POLICIES["none"]) as it:
        await it.chat.ask(piece(0, 500))
        assert it.of(TurnEnded)
        assert [event.code for event in it.of(Notice)] == ["odd-report"]
        await it.chat.ask(piece(1, 500))
        (alarm,) = it.of(Truncated)
        assert not alarm.again
        assert it.chat.engine.budget.window == 300
        assert len(it.turns) == 2


async def test_a_report_of_more_than_the_window_holds_spoils_nothing(talk: Start) -> None:
    async with talk(Fake(n_ctx=4096, reply=answering("Understood."))) as it:
        await it.chat.ask(piece(0))
        known = it.chat.meter.calibration
        it.fake.fault = "boasts"
        await it.chat.ask(piece(1))
        assert [event.code for event in it.of(Notice)] == ["odd-report"]
        assert it.chat.meter.calibration.rates == known.rates, "it teaches nothing"
        assert it.chat.last_used < 1_000
        it.fake.fault = None
        await it.chat.ask(piece(2))
        assert it.of(UsageReported)[-1].expected.tokens < 1_000
        assert it.of(Truncated) == []
        assert len(it.turns) == 3, "nothing was asked twice"
        assert it.chat.engine.budget.window == 4096


async def test_a_stream_that_dies_keeps_what_was_said_as_interrupted(talk: Start) -> None:
    async with talk(Fake(reply="one two three four five six seven", fault="die_mid_stream")) as it:
        with pytest.raises(LocalctxError, match="log"):
            await it.chat.ask("Count.")
        (said,) = [unit for _, unit in it.chat.session.history.units() if isinstance(unit, Said)]
        assert not said.complete
        assert str(said.content).startswith("one")
        it.fake.fault = None
        await it.chat.ask("Go on.")
        it.check()


@pytest.mark.parametrize("fault", ["no_finish", "error_mid_stream"])
async def test_an_end_without_a_finish_reason_is_a_failure(talk: Start, fault: str) -> None:
    async with talk(Fake(reply="one two three", fault=fault)) as it:
        with pytest.raises(ServerFailed):
            await it.chat.ask("Count.")
        assert it.of(TurnEnded) == []
        assert it.of(RungTaken) == [], "a full pool is no reason to compact"


async def test_a_model_that_is_loading_is_waited_for(talk: Start) -> None:
    async with talk(Fake()) as it:
        it.fake.loading_for = 1e9

        async def loaded_at_last() -> None:
            await anyio.sleep(0.8)
            it.fake.loading_for = 0.0

        async with anyio.create_task_group() as group:
            group.start_soon(loaded_at_last)
            await it.chat.ask("Hello?")
        assert it.of(TurnEnded)
        assert [event.code for event in it.of(Notice)] == ["loading"]


async def test_a_server_that_is_gone_loses_nothing_from_the_journal(
    talk: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("localctx.app.exchange.AWAY_SECONDS", 1.0)
    journal = MemoryJournal()
    async with talk(Fake(), journal=journal) as it:
        await it.chat.ask("First.")
        it.chat.runtime = LlamaServer("http://127.0.0.1:9")
        with pytest.raises(Unreachable, match="nothing answers"):
            await it.chat.ask("Second.")
    texts = [entry.body["message"] for entry in journal.entries() if entry.type == "message"]
    assert texts == [
        {"role": "user", "content": "First."},
        {"role": "assistant", "content": "Done."},
        {"role": "user", "content": "Second."},
    ]


async def test_resuming_in_a_smaller_window_compacts_in_pieces_and_goes_on(talk: Start) -> None:
    journal = MemoryJournal()
    async with talk(Fake(n_ctx=16384, reply="Understood."), journal=journal, system="Be brief.") as it:
        await it.chat.ask(TASK)
        for number in range(30):
            await it.chat.ask(piece(number))
        before = it.chat.session.history
    async with talk(Fake(n_ctx=2048, reply=answering("Still here.")), journal=journal, system="Be brief.") as it:
        assert it.chat.session.history == before
        await it.chat.ask("Where were we?")
        it.check()
        assert it.of(RungTaken)[0].how == "model"
        assert len([body for body in it.fake.chats if "grammar" in body]) > 1, "the transcript did not fit in one piece"
        assert TASK in it.turns[-1]["messages"][1]["content"]


async def test_a_server_that_cannot_count_is_estimated_and_never_overrun(talk: Start) -> None:
    async with talk(Fake(n_ctx=2048, fault="no_input_tokens", reply=answering("Understood."))) as it:
        await it.chat.ask(TASK)
        for number in range(40):
            await it.chat.ask(piece(number, 60))
        it.check()
        assert it.of(RungTaken)
        counted = [r for r in it.fake.requests if r.path.endswith("input_tokens")]
        assert len(counted) == 1, "an endpoint that is not there is asked for once"


async def test_the_policy_none_never_rewrites(talk: Start) -> None:
    async with talk(Fake(n_ctx=1024, reply="Understood."), policy=POLICIES["none"]) as it:
        for number in range(5):
            await it.chat.ask(piece(number))
        with pytest.raises(DoesNotFit):
            await it.chat.ask(piece(5, 400))
        assert it.of(RungTaken) == []


async def test_a_ceiling_and_a_pin_lower_the_window(talk: Start) -> None:
    async with talk(Fake(n_ctx=4096, reply=answering("Understood.")), pin=1024) as it:
        assert it.chat.window.tokens == 1024
        for number in range(6):
            await it.chat.ask(piece(number, 60))
        assert max(it.fake.prompt_tokens(body) for body in it.fake.chats) < 1024


async def test_the_longest_reply_is_what_was_asked_for_or_what_is_left(talk: Start) -> None:
    async with talk(Fake(n_ctx=512), wishes=Wishes(max_tokens=64)) as it:
        await it.chat.ask("Short?")
        await it.chat.ask("so " * 430)
        assert it.turns[0]["max_tokens"] == 64
        assert it.turns[1]["max_tokens"] < 64
        assert [event.code for event in it.of(Notice)] == ["little-room"]


async def test_manual_compaction_needs_something_old(talk: Start) -> None:
    async with talk(Fake(n_ctx=4096, reply=answering("Understood."))) as it:
        await it.chat.ask("Only this.")
        assert not await it.chat.engine.compact()
        for number in range(12):
            await it.chat.ask(piece(number))
        assert await it.chat.engine.compact()
        assert it.of(RungTaken)[0].how == "model"


# --- what a sceptic found -----------------------------------------------------------------------------------------


async def test_half_a_surrogate_pair_does_not_end_a_session(talk: Start) -> None:
    async with talk(Fake()) as it:
        await it.chat.ask("\udcff hi")
        await it.chat.ask("fine?")
        assert len(it.of(TurnEnded)) == 2


async def test_a_script_that_the_estimate_knows_badly_goes_on_all_the_same(talk: Start) -> None:
    dense = Fake(n_ctx=4096, reply=answering("好。"))
    dense.prompt_tokens = lambda body: sum(3 * len(str(message["content"])) for message in body["messages"]) + 20
    async with talk(dense) as it:
        for number in range(40):
            await it.chat.ask(f"{number} " + "今天天气很好我们去公园散步" * 6)
        it.check()
        assert len(it.of(TurnEnded)) == 40
        assert all(rung.tokens_after < rung.tokens_before for rung in it.of(RungTaken))


async def test_a_server_that_cannot_count_teaches_by_its_usage(talk: Start) -> None:
    dense = Fake(n_ctx=4096, fault="no_input_tokens", reply=answering("好。"))
    dense.prompt_tokens = lambda body: sum(2 * len(str(message["content"])) for message in body["messages"]) + 20
    async with talk(dense) as it:
        for number in range(40):
            await it.chat.ask(f"{number} " + "今天天气很好我们去公园散步" * 6)
        assert len(it.of(TurnEnded)) == 40


async def test_a_message_that_cannot_fit_does_not_cost_the_history(talk: Start) -> None:
    async with talk(Fake(n_ctx=2048, reply=answering("Understood."))) as it:
        for number in range(6):
            await it.chat.ask(piece(number))
        before = it.chat.session.history
        with pytest.raises(DoesNotFit):
            await it.chat.ask(piece(9, 2000))
        assert it.chat.session.history == before
        assert it.of(RungTaken) == []


async def test_a_server_that_is_away_for_a_moment_does_not_cost_the_summary(talk: Start) -> None:
    fake = Fake(n_ctx=2048, reply=answering("Understood."))
    async with talk(fake) as it:
        await it.chat.ask(TASK)
        number = 0
        while it.of(RungTaken) == []:
            await it.chat.ask(piece(number))
            number += 1
        taken = len(it.of(RungTaken))
        while it.chat.last_used < 1500:
            await it.chat.ask(piece(number))
            number += 1
        it.fake.reply = lambda body: NOTES if "grammar" in body else "Understood."
        fake.loading_for = 1e9

        async def loaded_at_last() -> None:
            await anyio.sleep(1.2)
            fake.loading_for = 0.0

        async with anyio.create_task_group() as group:
            group.start_soon(loaded_at_last)
            await it.chat.ask(piece(number, 250))
        assert [rung.how for rung in it.of(RungTaken)[taken:]] == ["model"]


async def test_a_reply_that_the_shell_cannot_show_is_kept(talk: Start) -> None:
    async with talk(Fake(reply="one two three four")) as it:
        shown = it.chat._emit

        def broken(event: Event) -> None:
            shown(event)
            if isinstance(event, Text) and event.text.strip() == "two":
                raise BrokenPipeError

        it.chat._emit = broken
        with pytest.raises(BrokenPipeError):
            await it.chat.ask("Count.")
        (said,) = [unit for _, unit in it.chat.session.history.units() if isinstance(unit, Said)]
        assert (said.content, said.complete) == ("one two", False)


async def test_a_resumed_session_keeps_its_system_prompt_and_says_so_once(talk: Start) -> None:
    journal = MemoryJournal()
    async with talk(Fake(), journal=journal) as it:
        await it.chat.ask("First.")
    for _ in range(2):
        async with talk(Fake(), journal=journal, system="Be brief.") as it:
            assert [event.code for event in it.of(Notice)] == ["continued", "system-kept"]
            assert it.chat.session.history.messages() == 2


async def test_a_window_that_changes_while_one_talks_is_said(talk: Start) -> None:
    async with talk(Fake(n_ctx=4096)) as it:
        await it.chat.ask("First.")
        it.fake.n_ctx = 1024
        await it.chat.ask("Second.")
        (said,) = [event.text for event in it.of(Notice) if event.code == "window-changed"]
        assert said == "the window was 4,096 tokens and is 1,024 now"
        assert it.chat.engine.budget.window == 1024


async def test_words_that_were_stopped_before_any_answer_are_taken_back(talk: Start) -> None:
    async with talk(Fake()) as it:
        await it.chat.ask("First.")
        before = it.chat.session.history
        it.fake.loading_for = 1e9
        with anyio.move_on_after(0.5):
            await it.chat.ask("Second.")
        it.fake.loading_for = 0.0
        assert it.chat.session.history == before
        assert any("Second." in str(entry.body) for entry in it.journal.entries()), "the journal keeps them"
        it.check()
