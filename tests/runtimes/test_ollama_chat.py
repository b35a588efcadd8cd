"""Talking to Ollama: what real ones answered, and what each call must carry."""

from __future__ import annotations

import json
from typing import Any

import httpx
import pytest

from localctx.core.window import Reading, Source
from localctx.errors import PromptRefused, ServerFailed
from localctx.ports import Delta, Finished, Piece, Request
from localctx.runtimes.ollama_chat import OllamaServer
from localctx.runtimes.server import Pins
from tests.recordings import body, load

pytestmark = pytest.mark.anyio

PREFIX = "ollama-0.33.0-rc2/"
HELLO = Request([{"role": "user", "content": "Say hello."}], 8)


class Ollama(httpx.AsyncBaseTransport):
    """Replays what a real one said, with one model of which the tests say whether it is resident."""

    def __init__(self, chat: httpx.Response | None = None, *, resident: bool = True) -> None:
        self.chat, self.resident = chat, resident
        self.sent: list[tuple[str, Any]] = []

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        asked = json.loads(request.content) if request.content else None
        self.sent.append((request.url.path, asked))
        if request.url.path == "/api/chat":
            assert self.chat is not None
            return self.chat
        said = {
            "/api/version": "01-version",
            "/api/ps": "21-ps-default" if self.resident else "04-ps-empty",
            "/api/tags": "11-tags",
            "/api/show": "12-show",
            "/api/generate": "26-generate-load-only",
        }
        self.resident = self.resident or request.url.path == "/api/generate"
        return httpx.Response(200, json=body(PREFIX + said[request.url.path]))

    def calls(self, path: str) -> list[Any]:
        return [asked for sent, asked in self.sent if sent == path]


def streamed(*lines: object) -> httpx.Response:
    text = "".join(json.dumps(line) + "\n" for line in lines)
    return httpx.Response(200, headers={"content-type": "application/x-ndjson"}, stream=httpx.ByteStream(text.encode()))


def recorded(name: str) -> httpx.Response:
    return streamed(*load(PREFIX + name)["response"]["body"]["ndjson"])


async def said(transport: Ollama, pins: Pins | None = None, request: Request = HELLO) -> list[Piece]:
    server = OllamaServer("http://127.0.0.1:11434", transport=transport, pins=pins)
    server.model = "smollm2"
    try:
        return [piece async for piece in server.chat(request)]
    finally:
        await server.close()


async def test_a_recorded_reply_is_read_with_its_counts() -> None:
    *pieces, end = await said(Ollama(recorded("23-chat-stream")))
    text = "".join(piece.text for piece in pieces if isinstance(piece, Delta))
    assert text.startswith("I'm so glad you")
    assert isinstance(end, Finished)
    assert (end.reason, end.usage.prompt, end.usage.completion) == ("length", 16, 8)
    assert end.usage.prefill_seconds is not None


async def test_reasoning_and_calls_are_told_apart() -> None:
    *pieces, _ = await said(Ollama(recorded("151-think-stream")))
    assert any(isinstance(piece, Delta) and piece.thinking for piece in pieces)
    *_, end = await said(Ollama(recorded("144-tools-stream")))
    assert isinstance(end, Finished)
    assert end.called_tools


@pytest.mark.parametrize(
    ("resident", "pin", "num_ctx", "loads"), [(True, None, 4096, 0), (False, None, 4096, 1), (False, 3000, 2816, 0)]
)
async def test_every_call_carries_one_num_ctx_and_nothing_is_cut(
    resident: bool,  # noqa: FBT001  a column of the table
    pin: int | None,
    num_ctx: int,
    loads: int,
) -> None:
    transport = Ollama(recorded("23-chat-stream"), resident=resident)
    pins = Pins(Reading(Source.PINNED, pin, "--num-ctx") if pin else None)
    await said(transport, pins)
    (chat,) = transport.calls("/api/chat")
    assert chat["options"] == {"num_ctx": num_ctx, "num_predict": 8}
    assert (chat["truncate"], chat["shift"], chat["stream"]) == (False, False, True)
    assert len(transport.calls("/api/generate")) == loads, "loaded once where nobody says what it would get"


async def test_a_prompt_that_is_too_long_is_refused_with_the_numbers() -> None:
    refusal = httpx.Response(400, json=body(PREFIX + "65-chat-history-truncate-false-stream"))
    with pytest.raises(PromptRefused) as caught:
        await said(Ollama(refusal))
    assert (caught.value.limit, caught.value.prompt) == (512, 824)


@pytest.mark.parametrize(
    ("lines", "why"),
    [
        ([{"message": {"content": "Hel"}, "done": False}], "without saying done"),
        ([{"message": {"content": "Hel"}, "done": False}, {"error": "unexpected EOF"}], "unexpected EOF"),
        (["no object"], "no chat answer"),
    ],
)
async def test_a_stream_that_does_not_end_well_is_a_failure(lines: list[object], why: str) -> None:
    with pytest.raises(ServerFailed, match=why):
        await said(Ollama(streamed(*lines)))


async def test_messages_go_in_the_native_form() -> None:
    transport = Ollama(recorded("23-chat-stream"))
    call = {"id": "a", "type": "function", "function": {"name": "read", "arguments": '{"path": "a.txt"}'}}
    messages: list[dict[str, object]] = [
        {"role": "user", "content": [{"type": "text", "text": "one"}, {"type": "text", "text": "two"}]},
        {"role": "assistant", "content": "", "tool_calls": [call], "reasoning_content": "hm"},
        {"role": "tool", "tool_call_id": "a", "content": "alpha"},
    ]
    await said(transport, request=Request(messages, 8))
    (chat,) = transport.calls("/api/chat")
    assert chat["messages"] == [
        {"role": "user", "content": "one\ntwo"},
        {
            "role": "assistant",
            "content": "",
            "tool_calls": [{"function": {"name": "read", "arguments": {"path": "a.txt"}}}],
            "thinking": "hm",
        },
        {"role": "tool", "content": "alpha"},
    ]
