"""A turn as a person and an agent live through it: steps, circles, another try, images, a look at the window."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from localctx.app.chat import Chat, Wishes
from localctx.app.tools.context import ContextInfo, SummarizeContext
from localctx.core.events import Drafting, Event, Notice, Prefilling, RequestSent, RungTaken, UsageReported
from localctx.core.ladder import POLICIES
from localctx.core.messages import Message
from localctx.core.outgoing import outgoing
from localctx.errors import Misuse
from localctx.runtimes.llama_server import LlamaServer
from localctx.stores.journal import MemoryJournal
from localctx.tokenizers.estimate import ClassEstimate
from tests.app.conftest import NOTES, Start, answering
from tests.app.test_calls import Reads, offer, results, scripted
from tests.fakes.llama_server import Calls, Fake, running

pytestmark = pytest.mark.anyio

READ = Calls("", [("read_file", '{"path": "/a"}')])


def last_words(body: dict[str, Any]) -> str:
    return str(body["messages"][-1]["content"])


def codes(events: list[Notice]) -> list[str]:
    return [event.code for event in events]


# --- steps ----------------------------------------------------------------------------------------------------------


async def test_steps_are_warned_of_and_the_warnings_are_not_kept(talk: Start) -> None:
    varied = [Calls("", [("read_file", f'{{"path": "/{step}"}}')]) for step in range(20)]
    async with talk(Fake(tools=True, reply=scripted(*varied)), wishes=Wishes(max_steps=10)) as it:
        offer(it.chat, Reads("x = 1"))
        await it.chat.ask("Read all.")
        assert codes(it.of(Notice)) == ["steps", "steps", "steps", "step-limit"]
        told = [last_words(body) for body in it.turns]
        assert ["STEPS WARNING" in each for each in told] == [False] * 7 + [True, True, False]
        assert "STEPS CRITICAL: 9 of 10" in told[9]
        assert "STEPS" not in str([entry.body for entry in it.journal.entries() if entry.type == "message"])
        await it.chat.ask("continue")
        assert "STEPS" not in last_words(it.turns[10]), "a new turn begins anew"
        it.check()


async def test_calls_in_circles_are_pointed_out_once_and_then_stopped(talk: Start) -> None:
    async with talk(Fake(tools=True, n_ctx=16_384, reply=scripted(READ))) as it:
        offer(it.chat, Reads("x = 1"))
        await it.chat.ask("Read a.")
        pointed_out = [number for number, body in enumerate(it.turns) if "[REPETITION" in last_words(body)]
        assert pointed_out == [10]
        assert len(it.turns) == 20
        assert codes(it.of(Notice))[-1] == "in-circles"
        assert it.chat.session.pending == ()
        it.check()


async def test_a_model_that_heeds_the_word_goes_on(talk: Start) -> None:
    replies = scripted(*[READ] * 10, "Enough.")
    async with talk(Fake(tools=True, n_ctx=16_384, reply=replies)) as it:
        offer(it.chat, Reads("x = 1"))
        await it.chat.ask("Read a.")
        assert "in-circles" not in codes(it.of(Notice))
        assert it.turns[-1]["messages"][-1]["role"] == "tool"


BROKEN = Calls("", [("read_file", '{"path": ')])


async def test_calls_that_cannot_be_read_get_one_more_try(talk: Start) -> None:
    async with talk(Fake(tools=True, reply=scripted(BROKEN, READ, BROKEN, "Well.")), wishes=Wishes(max_steps=50)) as it:
        offer(it.chat, Reads("x = 1"))
        await it.chat.ask("Read a.")
        assert it.of(Notice) == []
        first, second = results(it.turns[2])[:2]
        assert first.startswith("error: the arguments are no JSON")
        assert second == "x = 1"
        it.check()


async def test_a_model_that_cannot_write_a_call_is_stopped(talk: Start) -> None:
    async with talk(Fake(tools=True, reply=scripted(BROKEN))) as it:
        offer(it.chat, Reads("x = 1"))
        await it.chat.ask("Read a.")
        assert len(it.turns) == 2
        assert codes(it.of(Notice)) == ["malformed-calls"]
        it.check()


# --- again ----------------------------------------------------------------------------------------------------------


async def test_a_retry_takes_the_turn_back_and_asks_the_same(talk: Start) -> None:
    async with talk(Fake(reply=scripted("Blue.", "Green."))) as it:
        await it.chat.ask("A colour?")
        assert await it.chat.retry() == "A colour?"
        assert it.turns[1]["messages"] == it.turns[0]["messages"]
        sent = outgoing(it.chat.session.history)
        assert [message["content"] for message in sent if message["role"] == "assistant"] == ["Green."]
        it.check()


async def test_a_retry_before_anything_was_said_asks_nothing(talk: Start) -> None:
    async with talk(Fake()) as it:
        assert await it.chat.retry() is None
        assert it.fake.chats == []


async def test_a_retry_sends_the_images_again(talk: Start) -> None:
    async with talk(Fake(vision=True)) as it:
        await it.chat.ask("What is it?", images=[PIXEL])
        await it.chat.retry()
        assert it.turns[1]["messages"] == it.turns[0]["messages"]
        assert PIXEL in str(it.turns[1]["messages"])


PIXEL = "data:image/png;base64,iVBORw0KGgo="


async def test_an_image_goes_along_and_is_kept(talk: Start) -> None:
    async with talk(Fake(vision=True)) as it:
        await it.chat.ask("What is it?", images=[PIXEL])
        (message,) = it.turns[0]["messages"]
        assert message["content"] == [
            {"type": "text", "text": "What is it?"},
            {"type": "image_url", "image_url": {"url": PIXEL}},
        ]
        await it.chat.ask("And now?")
        assert it.turns[1]["messages"][0] == message


async def test_an_image_for_a_model_that_cannot_see_is_refused_before_anything_is_kept() -> None:
    with running(Fake()) as fake:
        runtime = LlamaServer(fake.url)
        (model,) = (await runtime.probe()).models
        blind, journal = replace(model, sees_images=False), MemoryJournal()
        chat = Chat(
            runtime,
            blind,
            journal=journal,
            counter=ClassEstimate(),
            policy=POLICIES["ladder"],
            emit=lambda _event: None,
        )
        with pytest.raises(Misuse, match="cannot see images"):
            await chat.ask("What is it?", images=[PIXEL])
        await runtime.close()
        assert fake.chats == []
        assert not [entry for entry in journal.entries() if entry.type == "message"]


# --- the window -----------------------------------------------------------------------------------------------------


async def test_a_model_may_look_at_its_window(talk: Start) -> None:
    replies = scripted(Calls("", [("context_info", "{}")]), "Plenty.")
    async with talk(Fake(tools=True, reply=replies)) as it:
        it.chat.offer([ContextInfo(it.chat.engine)])
        await it.chat.ask("How full is it?")
        (told,) = results(it.turns[1])
        used = it.fake.prompt_tokens(it.turns[0])
        assert f"of {it.fake.n_ctx:,} tokens used" in told
        assert abs(int(told.split()[0].replace(",", "")) - used) < 100
        assert "there is room" in told
        it.check()


async def test_a_model_may_have_its_context_summarized(talk: Start) -> None:
    sand = "The sand runs on and on, grain by grain. " * 12
    replies = scripted(*["Noted. " * 20] * 6, Calls("", [("summarize_context", '{"keep": "the colour"}')]), "Done.")
    async with talk(Fake(tools=True, reply=replies)) as it:
        it.chat.offer([SummarizeContext(it.chat.engine)])
        for turn in range(6):
            await it.chat.ask(f"Part {turn}: {sand * 2}")
        before = len(it.turns)
        await it.chat.ask("Now tidy up.")
        assert it.chat.session.history.checkpoint is not None
        assert it.of(RungTaken)[-1].tokens_after < it.of(RungTaken)[-1].tokens_before
        asked = [body for body in it.fake.chats if "grammar" in body]
        assert "Note above all: the colour" in str(asked[0]["messages"][-1])
        assert "summarized before your next step" in str(it.turns[before + 1]["messages"]), "its answer is seen"
        assert it.chat.engine.wanted is None
        it.check()


async def test_what_fills_the_window_adds_up_and_names_tools(talk: Start) -> None:
    calls = Calls("", [("read_file", '{"path": "/a"}'), ("recall", '{"query": "sand"}')])
    async with talk(Fake(tools=True, reply=scripted(calls, "Read.")), system="You read files.") as it:
        offer(it.chat, Reads("one line of a file\n" * 60))
        await it.chat.ask("Read a.")
        filling = await it.chat.filling()
        assert list(filling.results) == ["read_file", "recall"], "the most first"
        assert sum(filling.results.values()) <= filling.parts["tools"]
        assert sum(filling.schemas.values()) == filling.parts["schemas"]
        assert set(filling.schemas) == {"retrieve_tool_result", "recall", "update_work_state", "read_file"}
        assert sum(filling.parts.values()) == pytest.approx(filling.used, rel=0.05)


async def test_an_empty_window_is_filled_by_its_tools_alone(talk: Start) -> None:
    async with talk(Fake(tools=True)) as it:
        assert (await it.chat.filling()).used == 0
        offer(it.chat)
        assert sum((await it.chat.filling()).schemas.values()) > 0


async def test_much_that_is_taken_before_anything_is_said_is_told(talk: Start) -> None:
    async with talk(Fake(n_ctx=1024), system="Be brief, and never guess. " * 60) as it:
        it.chat.preflight()
        (notice,) = [event for event in it.of(Notice) if event.code == "preflight"]
        assert "of 1,024 tokens" in notice.text
        assert "--system" in notice.text
    async with talk(Fake(n_ctx=16_384), system="Be brief.") as it:
        it.chat.preflight()
        assert "preflight" not in codes(it.of(Notice))


# --- what is told while it works ----------------------------------------------------------------------------------


async def test_each_request_says_what_is_likely_to_be_read_anew(talk: Start) -> None:
    async with talk(Fake(n_ctx=16_384, reply="Yes. " * 40)) as it:
        await it.chat.ask("Read this. " + "The sand runs on. " * 200)
        await it.chat.ask("And now?")
        first, second = it.of(RequestSent)
        assert (first.new, first.seconds) == (first.prompt, None), "nothing is known before the first report"
        assert second.prompt > first.prompt
        assert second.new < second.prompt / 4, "the rest is in the server's cache"
        assert second.seconds is not None
        assert second.seconds < (it.of(UsageReported)[0].usage.prefill_seconds or 0)


async def test_what_a_session_took_counts_summaries_and_what_was_taken_back(talk: Start) -> None:
    async with talk(Fake(n_ctx=2048, reply=answering("Understood. " * 20))) as it:
        for turn in range(12):
            await it.chat.ask(f"Part {turn}: " + "sand " * 120)
        assert it.of(RungTaken)
        it.chat.undo()
        totals = it.chat.totals
        assert totals.requests == len(it.fake.chats) > len(it.turns)
        assert totals.prompt == sum(map(it.fake.prompt_tokens, it.fake.chats))
        assert totals.prompt - totals.cached == sum(it.fake.prefilled)
        assert totals.cached_of == totals.prompt
        assert totals.completion > 0
        assert totals.prefill_seconds > 0


async def test_progress_of_the_server_is_passed_on(talk: Start) -> None:
    async with talk(Fake(reply=answering("Yes.", NOTES))) as it:
        await it.chat.ask("Read this. " + "sand " * 600)
        steps = it.of(Prefilling)
        assert steps
        assert steps[-1].done == steps[-1].total == it.fake.prompt_tokens(it.turns[0])


async def test_a_call_is_told_of_while_it_is_written(talk: Start) -> None:
    arguments = '{"path": "' + "so/it/goes/" * 20 + '"}'
    async with talk(Fake(tools=True, reply=scripted(Calls("", [("read_file", arguments)]), "I see."))) as it:
        offer(it.chat, Reads("x = 1"))
        await it.chat.ask("Read it.")
        drafts = it.of(Drafting)
        assert {each.name for each in drafts} == {"read_file"}
        lengths = [each.characters for each in drafts]
        assert lengths == sorted(set(lengths))
        assert lengths[-1] == len(arguments)
        assert len(lengths) > 10


# --- a server that restarts ---------------------------------------------------------------------------------------


async def test_a_server_that_comes_back_is_waited_for_and_its_new_window_is_gone_by() -> None:
    waiting = asyncio.Event()

    def emit(event: Event) -> None:
        if isinstance(event, Notice) and event.code == "loading":
            waiting.set()

    with running(Fake(n_ctx=4096)) as fake:
        port = int(fake.url.rpartition(":")[2])
        runtime = LlamaServer(fake.url)
        (model,) = (await runtime.probe()).models
        chat = Chat(
            runtime,
            model,
            journal=MemoryJournal(),
            counter=ClassEstimate(),
            policy=POLICIES["ladder"],
            emit=emit,
        )
        await chat.ask("Hello?")
    asking = asyncio.create_task(chat.ask("Still there?"))
    await waiting.wait()
    with running(Fake(n_ctx=2048), port) as again:
        await asking
        await chat.ask("And now?")
        assert len(again.chats) == 2
        assert chat.engine.budget.window == 2048
    await runtime.close()
    assert [message["content"] for message in again.chats[0]["messages"]][-1] == "Still there?"


async def test_a_compaction_by_hand_goes_by_the_window_that_is_served_now(talk: Start) -> None:
    async with talk(Fake(n_ctx=8192, reply=answering("Understood. " * 20))) as it:
        for turn in range(14):
            await it.chat.ask(f"Part {turn}: " + "sand " * 160)
        it.fake.n_ctx = 2048
        assert await it.chat.compact()
        summaries = [body for body in it.fake.chats if "grammar" in body]
        assert summaries
        assert all(it.fake.prompt_tokens(body) + body["max_tokens"] <= 2048 for body in summaries)


async def test_a_nudge_weighs_all_that_it_adds_to_a_request(talk: Start) -> None:
    async with talk(Fake(tools=True)) as it:
        history = it.chat.session.history.add(Message("user", "Go on.", seq=1))
        (plainly,), (nudged,) = outgoing(history), outgoing(history, nudge="[STEPS WARNING]")
        added = str(nudged["content"]).removeprefix(str(plainly["content"]))
        assert added.endswith("[STEPS WARNING]")
        assert it.chat._nudges.weight("[STEPS WARNING]") == it.chat.meter.text(added)
