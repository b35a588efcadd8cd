from __future__ import annotations

import asyncio
from typing import Any

import pytest

from localctx.core.events import Notice, RungTaken
from localctx.core.messages import History
from tests.app.conftest import NOTES, Start, Talk, answering
from tests.fakes.llama_server import Fake

pytestmark = pytest.mark.anyio


async def until(it: Talk, share: float) -> None:
    """Talks until this share of the window is used, and no compaction was needed."""
    while it.chat.last_used < share * it.fake.n_ctx:
        await it.chat.ask("Go on. " + "sand " * 40)
    assert it.of(RungTaken) == []


def summaries(it: Talk) -> list[dict[str, Any]]:
    return [body for body in it.fake.chats if "grammar" in body]


async def test_a_summary_is_prepared_while_nobody_waits_and_counts_once_it_is_due(talk: Start) -> None:
    async with talk(Fake(n_ctx=2048, reply=answering("Noted. " * 30))) as it:
        await until(it, 0.72)
        before = it.chat.session.history
        await it.chat.idle()
        assert len(summaries(it)) == 1
        assert it.chat.session.history == before, "it is prepared, not committed"
        await it.chat.idle()
        assert len(summaries(it)) == 1, "once"
        while not it.of(RungTaken):
            await it.chat.ask("Go on. " + "sand " * 40)
        assert [(event.rung, event.how) for event in it.of(RungTaken)] == [("compact", "prepared")]
        assert len(summaries(it)) == 1
        it.check()


async def test_what_was_prepared_for_another_history_is_not_used(talk: Start) -> None:
    async with talk(Fake(n_ctx=2048, reply=answering("Noted. " * 30))) as it:
        await until(it, 0.72)
        await it.chat.idle()
        while it.chat.session.history.turns:
            it.chat.undo()
        while not it.of(RungTaken):
            await it.chat.ask("Something else. " + "wood " * 40)
        assert it.of(RungTaken)[0].how == "model"
        it.check()


async def test_what_is_due_is_done_and_its_prefix_warmed(talk: Start) -> None:
    async with talk(Fake(n_ctx=2048, reply=answering("Noted. " * 30))) as it:
        await until(it, 0.70)
        it.chat.session.add({"role": "user", "content": "sand " * 180})
        it.chat.session.add({"role": "assistant", "content": "Noted."})
        await it.chat.idle()
        assert [event.rung for event in it.of(RungTaken)] == ["compact"]
        warming = it.fake.chats[-1]
        assert warming["max_tokens"] == 1
        asked = len(it.fake.chats)
        await it.chat.idle()
        assert len(it.fake.chats) == asked, "once"
        await it.chat.ask("And now?")
        assert it.fake.chats[-1]["messages"][: len(warming["messages"])] == warming["messages"]
        assert it.fake.prefilled[-1] < 40, "only what is new"
        it.check()


async def test_it_can_be_stopped_at_any_time(talk: Start) -> None:
    async with talk(Fake(n_ctx=2048, reply=answering("Noted. " * 30), delay=0.02)) as it:
        it.fake.delay = 0
        await until(it, 0.72)
        it.fake.delay = 0.05
        before = it.chat.session.history
        working = asyncio.create_task(it.chat.idle())
        await asyncio.sleep(0.2)
        working.cancel()
        await asyncio.gather(working, return_exceptions=True)
        it.fake.delay = 0
        assert it.chat.session.history == before != History()
        await it.chat.ask("Are you there?")
        it.check()


async def test_far_from_the_threshold_nothing_is_done(talk: Start) -> None:
    async with talk(Fake(n_ctx=2048, reply=answering("Noted."))) as it:
        await it.chat.ask("Hi.")
        await it.chat.idle()
        assert len(it.fake.chats) == 1


async def test_a_server_that_fails_meanwhile_is_no_news(talk: Start) -> None:
    async with talk(Fake(n_ctx=2048, reply=answering("Noted. " * 30, NOTES))) as it:
        await until(it, 0.72)
        it.fake.fault = "die_mid_stream"
        await it.chat.idle()
        it.fake.fault = None
        assert it.of(Notice) == []
        while not it.of(RungTaken):
            await it.chat.ask("Go on. " + "sand " * 40)
        assert it.of(RungTaken)[0].how == "model", "it is asked again when it is due"
        it.check()
