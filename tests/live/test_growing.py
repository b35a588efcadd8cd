"""The proof on real input: a text of several windows, turn by turn, through a real model with a small window."""

from __future__ import annotations

import json
from contextlib import closing
from pathlib import Path
from pydoc_data import topics
from typing import Any

import httpx
import pytest

from localctx.app.chat import Chat, Wishes
from localctx.core.events import Event, RungTaken, Truncated, TurnEnded, UsageReported
from localctx.core.journal import project
from localctx.core.ladder import POLICIES, Rung
from localctx.core.outgoing import defects
from localctx.hardware.machine import worker_threads
from localctx.runtimes import embedded
from localctx.runtimes.llama_server import LlamaServer
from localctx.stores.journal import FileJournal
from localctx.stores.models import DEFAULT, ModelStore
from localctx.tokenizers.estimate import ClassEstimate

WINDOW = 2048
WINDOWS = 3
TASK = "I will paste a manual in pieces. Answer each in one short sentence. Never mention Perl."

pytestmark = [pytest.mark.live, pytest.mark.anyio, pytest.mark.slow]


class Recorder(httpx.AsyncHTTPTransport):
    """The real transport, which notes what went over it."""

    def __init__(self) -> None:
        super().__init__()
        self.chats: list[tuple[dict[str, Any], int]] = []

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        response = await super().handle_async_request(request)
        if request.url.path == "/v1/chat/completions":
            self.chats.append((json.loads(request.content), response.status_code))
        return response


def pieces(tokens: int) -> list[str]:
    """English prose with code in it, from the manual that every Python brings; about 4 characters a token."""
    text = "\n".join(topics.topics[name] for name in ("for", "assert", "comparisons", "exceptions", "operator-summary"))
    return [text[start : start + 1600] for start in range(0, tokens * 4, 1600)]


async def test_a_conversation_of_several_windows_keeps_going(home: Path, tmp_path: Path) -> None:
    server = await embedded.start(ModelStore(home).path(DEFAULT), name=DEFAULT, window=WINDOW, threads=worker_threads())
    recorder, events = Recorder(), list[Event]()
    try:
        runtime = LlamaServer(server.url, key=server.key, kind="embedded", transport=recorder)
        (model,) = (await runtime.probe()).models
        assert model.window.tokens == WINDOW
        journal = FileJournal(tmp_path / "session" / "journal.jsonl")
        chat = Chat(
            runtime,
            model,
            journal=journal,
            counter=ClassEstimate(),
            policy=POLICIES["ladder"],
            emit=events.append,
            system="You are a helpful assistant.",
            wishes=Wishes(max_tokens=32, temperature=0.0),
        )
        await chat.ask(TASK)
        text = pieces(WINDOW * WINDOWS)
        for number, piece in enumerate(text):
            await chat.ask(f"Piece {number}:\n{piece}")

        assert len([event for event in events if isinstance(event, TurnEnded)]) == len(text) + 1
        assert {status for _, status in recorder.chats} == {200}, "no request was refused"
        for usage in [event for event in events if isinstance(event, UsageReported)]:
            assert usage.expected.lower <= (usage.usage.prompt or 0) <= usage.expected.upper, (
                "nothing was cut in silence"
            )
        assert not [event for event in events if isinstance(event, Truncated)]
        for body, _ in recorder.chats:
            assert defects(body["messages"]) == []
            counted = await runtime.count(body["messages"])
            assert counted is not None
            assert counted.tokens + body["max_tokens"] <= WINDOW
        turns = [body for body, _ in recorder.chats if "grammar" not in body]
        assert all(TASK in body["messages"][1]["content"] for body in turns), "the first words are in every request"
        compactions = [event for event in events if isinstance(event, RungTaken) and event.rung is Rung.COMPACT]
        assert len(compactions) >= 2
        assert any(event.how == "model" for event in compactions), "at least one summary is the model's own"
        journal.close()
        with closing(FileJournal(journal.path)) as again:
            assert project(again.entries()) == chat.session.history
        await runtime.close()
    finally:
        server.stop()
