"""An agent loop of one's own, which asks the model itself, with the engine in it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import httpx
import pytest

import localctx
from localctx.app.tools.record import Retrieve
from localctx.core.events import RungTaken
from localctx.core.outgoing import NO_RESULT, defects
from localctx.errors import DoesNotFit, Misuse
from tests.app.conftest import answering
from tests.fakes.llama_server import Calls, Fake

if TYPE_CHECKING:
    from localctx.ports import Request
    from tests.app.conftest import Start, Talk

pytestmark = pytest.mark.anyio

TOOLS: list[dict[str, object]] = [
    {"type": "function", "function": {"name": "read_file", "parameters": {"type": "object", "properties": {}}}}
]


async def asked(it: Talk, request: Request) -> dict[str, Any]:
    """What the server answers to a request that the loop sends itself."""
    body = {"messages": request.messages, "tools": request.tools, "max_tokens": request.max_tokens}
    async with httpx.AsyncClient() as http:
        answer = await http.post(f"{it.fake.url}/v1/chat/completions", json=body)
    answer.raise_for_status()
    said: dict[str, Any] = answer.json()
    return said


class Reader:
    """A model that reads one page after the other, and then says so."""

    def __init__(self, pages: int) -> None:
        self.left = pages

    def __call__(self, body: dict[str, Any]) -> str | Calls:
        if "grammar" in body:
            return str(answering("")(body))
        self.left -= 1
        return Calls("", [("read_file", f'{{"path": "{self.left}.txt"}}')]) if self.left >= 0 else "All is read."


async def test_a_long_loop_stays_inside_and_loses_nothing(talk: Start) -> None:
    async with talk(Fake(n_ctx=2048, tools=True, reply=Reader(30))) as it:
        chat = it.chat
        chat.add({"role": "user", "content": "Read all pages. Never skip one."})
        while True:
            request = await chat.settle(TOOLS)
            said = await asked(it, request)
            message = said["choices"][0]["message"]
            chat.add(message, prompt_tokens=said["usage"]["prompt_tokens"])
            if not message.get("tool_calls"):
                break
            for call in message["tool_calls"]:
                page = f"{call['function']['arguments']}: " + "a line of the page\n" * 200
                chat.add({"role": "tool", "tool_call_id": call["id"], "content": page})
            assert "Never skip one." in str(request.messages[0]["content"])
        assert len(it.of(RungTaken)) > 1
        it.check()
        results = [entry for entry in it.journal.entries() if entry.body.get("tool") == "read_file"]
        assert len(results) == 30
        whole = await Retrieve(chat.session, lambda text: text).run({"id": str(results[0].seq)})
        assert whole.text.startswith('{"path": "29.txt"}: a line')


async def test_results_of_one_cycle_share_its_room_in_any_order(talk: Start) -> None:
    async with talk(Fake(n_ctx=2048, tools=True)) as it:
        calls = [{"id": str(n), "type": "function", "function": {"name": "read", "arguments": "{}"}} for n in range(3)]
        it.chat.add({"role": "user", "content": "Read three."})
        it.chat.add({"role": "assistant", "content": None, "tool_calls": calls})
        for number in (2, 0, 1):
            it.chat.add({"role": "tool", "tool_call_id": str(number), "content": "word " * 2_000})
        request = await it.chat.settle(TOOLS)
        sizes = [it.chat.meter.size(str(each["content"])) for each in request.messages if each["role"] == "tool"]
        assert len(sizes) == 3
        assert max(sizes) <= min(sizes) + 20
        assert sum(sizes) <= it.chat.engine.budget.prompt * 0.4 + 60


async def test_a_call_that_nobody_answered_is_answered_before_the_next_request(talk: Start) -> None:
    async with talk(Fake(tools=True)) as it:
        call = {"id": "a", "type": "function", "function": {"name": "read", "arguments": "{}"}}
        it.chat.add({"role": "user", "content": "Read."})
        it.chat.add({"role": "assistant", "content": "", "tool_calls": [call]})
        request = await it.chat.settle()
        assert request.messages[-1]["content"] == NO_RESULT


async def test_what_a_server_reports_counts_from_then_on(talk: Start) -> None:
    async with talk(Fake(fault="no_input_tokens")) as it:
        it.chat.add({"role": "user", "content": "Say something of some length, please."})
        request = await it.chat.settle()
        said = await asked(it, request)
        it.chat.add(said["choices"][0]["message"], prompt_tokens=said["usage"]["prompt_tokens"])
        assert it.chat.meter.rough(it.chat.session.history).how.startswith("last measure")
        it.chat.add({"role": "assistant", "content": "more"}, prompt_tokens=10**9)
        assert it.chat.meter.rough(it.chat.session.history).tokens < 1_000, "a report that cannot be is none"


async def test_one_list_is_settled_at_once() -> None:
    wire: list[dict[str, object]] = [{"role": "user", "content": "The task: never skip a page."}]
    for number in range(30):
        wire += [
            {"role": "assistant", "content": f"page {number} " * 40},
            {"role": "user", "content": f"and {number}?"},
        ]
    settled = await localctx.settle(wire, window=2048)
    assert settled.fits
    assert defects(settled.messages) == []
    assert len(settled.messages) < len(wire)
    assert "The task: never skip a page." in str(settled.messages[0]["content"])
    assert (await localctx.settle(wire, window=100_000)).messages == tuple(wire)
    with pytest.raises(Misuse, match="known: ladder"):
        await localctx.settle(wire, window=2048, policy="hoard")


async def test_what_cannot_be_made_to_fit_is_refused_with_the_numbers(talk: Start) -> None:
    async with talk(Fake(n_ctx=2048)) as it:
        it.chat.add({"role": "user", "content": "word " * 4_000})
        with pytest.raises(DoesNotFit, match="2,048"):
            await it.chat.settle()
