"""Talking to Ollama: what real ones answered, and what each call must carry."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from time import monotonic
from typing import Any

import httpx
import pytest

from localctx.core.accounting import Count
from localctx.core.messages import ToolCall
from localctx.core.window import Reading, Source
from localctx.errors import PromptRefused, ServerFailed, ToolsRefused
from localctx.ports import Delta, Finished, Piece, Request
from localctx.runtimes.ollama_chat import OllamaServer
from localctx.runtimes.server import Pins
from tests.fakes.llama_server import Calls, tokenize, tokenize_prompt
from tests.fakes.ollama import Fake, Model, running
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


async def test_a_model_is_told_not_to_think_where_it_should_not() -> None:
    for thinks, think in ((None, None), (False, False), (True, True)):
        transport = Ollama(recorded("23-chat-stream"))
        await said(transport, request=Request([{"role": "user", "content": "Hi."}], 8, thinks=thinks))
        (chat,) = transport.calls("/api/chat")
        assert chat.get("think") is think


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
            "tool_calls": [{"id": "a", "function": {"name": "read", "arguments": {"path": "a.txt"}}}],
            "thinking": "hm",
        },
        {"role": "tool", "tool_call_id": "a", "tool_name": "read", "content": "alpha"},
    ]


async def test_a_result_goes_as_a_real_one_took_it() -> None:
    taken = load(PREFIX + "147-tools-result-turn")["request"]["body"]
    (question, asked, result) = taken["messages"]
    (call,) = asked["tool_calls"]
    function = {"name": "get_weather", "arguments": json.dumps(call["function"]["arguments"])}
    messages = [
        question,
        asked | {"tool_calls": [{"id": call["id"], "type": "function", "function": function}]},
        {key: value for key, value in result.items() if key != "tool_name"},
    ]
    transport = Ollama(recorded("23-chat-stream"))
    await said(transport, request=Request(messages, 8, taken["tools"]))
    (chat,) = transport.calls("/api/chat")
    assert (chat["messages"], chat["tools"]) == (taken["messages"], taken["tools"])


@pytest.mark.parametrize(
    ("text", "arguments"),
    [
        ("", {}),
        ("{}", {}),
        ('{"a": {"b": [1.5, null]}}', {"a": {"b": [1.5, None]}}),
        ('{"cut": "', {"text": '{"cut": "'}),
        ("[1]", {"text": "[1]"}),
        ("null", {"text": "null"}),
        ('{"a": NaN}', {"text": '{"a": NaN}'}),
        ('{"a": "\ud800"}', {"text": '{"a": "\ud800"}'}),
    ],
)
async def test_the_arguments_of_former_calls_go_as_objects(text: str, arguments: object) -> None:
    transport = Ollama(recorded("23-chat-stream"))
    await said(transport, request=Request(called(text), 8))
    (chat,) = transport.calls("/api/chat")
    (call,) = chat["messages"][1]["tool_calls"]
    assert call["function"]["arguments"] == json.loads(json.dumps(arguments).replace("\\ud800", "?"))


@pytest.mark.parametrize("depth", range(900, 1000, 4))
async def test_however_deep_the_arguments_are_nested_they_go(depth: int) -> None:
    transport = Ollama(recorded("23-chat-stream"))
    await said(transport, request=Request(called('{"x":' * depth + "1" + "}" * depth), 8))
    assert transport.calls("/api/chat")


@pytest.mark.parametrize("text", ['\\"', "{", "\\", '"', "a", '"{'])
async def test_a_model_that_got_stuck_in_its_arguments_costs_little(text: str) -> None:
    transport, began = Ollama(recorded("23-chat-stream")), monotonic()
    await said(transport, request=Request(called('{"a": "' + text * 500_000), 8))
    assert monotonic() - began < 10


def called(arguments: str) -> list[dict[str, object]]:
    """A history with one call."""
    call = {"id": "a", "type": "function", "function": {"name": "read", "arguments": arguments}}
    return [
        {"role": "user", "content": "Read it."},
        {"role": "assistant", "content": "", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "a", "content": "alpha"},
    ]


async def test_results_are_named_after_the_calls_they_answer() -> None:
    """An id that comes again means the newer call, and a result without a call has no name."""
    transport = Ollama(recorded("23-chat-stream"))
    again: list[dict[str, Any]] = json.loads(json.dumps(called("{}")).replace("read", "write"))
    stray: dict[str, object] = {"role": "tool", "tool_call_id": "z", "content": "?"}
    await said(transport, request=Request([*called("{}"), *again, stray], 8))
    (chat,) = transport.calls("/api/chat")
    results = [message for message in chat["messages"] if message["role"] == "tool"]
    assert [result.get("tool_name") for result in results] == ["read", "write", None]


# Calls.


async def test_a_recorded_call_is_read() -> None:
    *pieces, end = await said(Ollama(recorded("144-tools-stream")))
    assert pieces == []
    assert isinstance(end, Finished)
    assert (end.reason, end.called_tools) == ("stop", True)
    assert end.calls == (ToolCall("call_68are7rt", "get_weather", '{"city":"Oslo"}'),)


def line(*calls: object, done: bool = False) -> dict[str, object]:
    return {"message": {"content": "", "tool_calls": list(calls)}, "done": done}


async def test_calls_come_in_one_line_or_in_several_with_an_id_or_without() -> None:
    """An older Ollama gives neither ids nor more than one index; text that is not ASCII stays as it is."""
    calls: list[dict[str, object]] = [
        {"id": "call_1", "function": {"index": 0, "name": "look", "arguments": {"at": "é 漢", "n": [1, None]}}},
        {"function": {"index": 0, "name": "look", "arguments": {}}},
        {"function": {"name": "look", "arguments": None}},
        {"function": {"name": "look"}},
    ]
    *_, end = await said(Ollama(streamed(line(*calls[:2]), line(calls[2]), line(calls[3], done=True))))
    assert isinstance(end, Finished)
    assert [call.arguments for call in end.calls] == ['{"at":"é 漢","n":[1,null]}', "{}", "{}", "{}"]
    assert len({call.id for call in end.calls}) == 4
    assert end.calls[0].id == "call_1"


@pytest.mark.parametrize(
    ("calls", "why"),
    [
        ([{"function": {"name": "look"}}] * 129, "more than 128 calls"),
        ([{"function": {"name": "look", "arguments": {"at": "x" * 2**20}}}], "1,048,576 bytes"),
        ([{"function": {"name": "x" * 2000}}], "1,024 characters"),
    ],
)
async def test_calls_that_no_model_makes_fail_the_reply(calls: list[object], why: str) -> None:
    with pytest.raises(ServerFailed, match=why):
        await said(Ollama(streamed(line(*calls), line(done=True))))


@pytest.mark.parametrize("calls", [[None], [7, []], [{}], [{"function": {"name": {}}}]])
async def test_calls_that_cannot_be_read_are_told_of(calls: list[object]) -> None:
    *_, end = await said(Ollama(streamed(line(*calls), line(done=True))))
    assert isinstance(end, Finished)
    assert (end.called_tools, end.calls) == (True, ())


async def test_a_model_without_tools_refuses_them_and_goes_on_without() -> None:
    refusal = httpx.Response(400, json=body(PREFIX + "98-tools-unsupported"))
    with pytest.raises(
        ToolsRefused, match=r"HTTP 400: .*does not support tools\); serve a model whose template has tools"
    ):
        await said(Ollama(refusal), request=Request(HELLO.messages, 8, LOOK))
    async with talking(Fake(models=[Model(name="smollm2:latest", tools=False)])) as server:
        with pytest.raises(ToolsRefused):
            assert [piece async for piece in server.chat(Request(TERSE, 5, LOOK))]
        assert [piece async for piece in server.chat(Request(TERSE, 5))]


async def test_a_whole_round_of_calls_and_results() -> None:
    def reply(body: dict[str, Any]) -> Calls | str:
        if body["messages"][-1]["role"] == "tool":
            return f"It says {body['messages'][-1]['content']}."
        return Calls("Let me see.", [("look", '{"at": "a"}'), ("look", '{"at": "b"}')])

    async with talking(Fake(reply=reply)) as server:
        *pieces, end = [piece async for piece in server.chat(Request(TERSE, 5, LOOK))]
        assert pieces == [Delta("Let me see.")]
        assert isinstance(end, Finished)
        asked: dict[str, object] = {
            "role": "assistant",
            "content": "Let me see.",
            "tool_calls": [
                {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}
                for call in end.calls
            ],
        }
        results: list[dict[str, object]] = [
            {"role": "tool", "tool_call_id": call.id, "content": call.arguments} for call in end.calls
        ]
        count = await server.count([*TERSE, asked, *results], LOOK)
        *pieces, end = [piece async for piece in server.chat(Request([*TERSE, asked, *results], 5, LOOK))]
    assert pieces == [Delta('It says {"at":"b"}.')]
    assert isinstance(end, Finished)
    assert count is not None
    assert (end.called_tools, end.usage.prompt) == (False, count.tokens)


# Counting.


@dataclass(frozen=True)
class Words:
    """A vocabulary of words and marks, which is the fake server's own."""

    how: str = "words"

    def size(self, text: str) -> int:
        return len(tokenize(text))

    def rendered(self, prompt: str) -> int:
        return len(tokenize_prompt(prompt))


TERSE: list[dict[str, object]] = [
    {"role": "system", "content": "You are terse."},
    {"role": "user", "content": "Say hello."},
]
LOOK: list[dict[str, object]] = [{"type": "function", "function": {"name": "look"}}]


@asynccontextmanager
async def talking(
    fake: Fake, *, pin: int | None = None, tokenizer: Words | None = Words()
) -> AsyncIterator[OllamaServer]:
    pins = Pins(Reading(Source.PINNED, pin, "--num-ctx") if pin else None)
    with running(fake):
        server = OllamaServer(fake.url, pins=pins, tokenizer=tokenizer)
        server.model = "smollm2"
        try:
            yield server
        finally:
            await server.close()


def chats(fake: Fake) -> list[Any]:
    return [body for line, body in fake.requests if line == "POST /api/chat"]


@pytest.mark.parametrize("tools", [[], LOOK], ids=["no tools", "tools"])
async def test_a_count_is_what_the_reply_will_be_billed_for(tools: list[dict[str, object]]) -> None:
    async with talking(Fake(), pin=2048) as server:
        count = await server.count(TERSE, tools)
        (*_, end) = [piece async for piece in server.chat(Request(TERSE, 5, tools))]
    assert count is not None
    assert isinstance(end, Finished)
    assert count == Count(end.usage.prompt or 0, 0, "Ollama's rendered prompt and words")


async def test_counting_neither_generates_nor_loads_another_way_than_a_chat() -> None:
    fake = Fake()
    async with talking(fake, pin=3000) as server:
        for _ in range(3):
            assert await server.count(TERSE, LOOK)
        assert fake.prefilled == []
        assert [piece async for piece in server.chat(Request(TERSE, 5, LOOK))]
    assert fake.loads == [("smollm2:latest", 2816)]
    trial, *counts, chat = chats(fake)
    assert trial["messages"] == [{"role": "user", "content": "Hello"}]
    assert len(counts) == 3
    for asked in (trial, *counts):
        assert asked["options"] == {"num_ctx": 2816, "num_predict": 1}
        assert (asked["_debug_render_only"], asked["stream"]) == (True, False)
    own = {"stream", "options", "_debug_render_only"}
    assert {key: value for key, value in counts[0].items() if key not in own} == {
        key: value for key, value in chat.items() if key not in own
    }


async def test_what_is_too_long_is_counted_whole() -> None:
    long: list[dict[str, object]] = [*TERSE, {"role": "user", "content": "word " * 3000}]
    async with talking(Fake(), pin=512) as server:
        count = await server.count(long)
    assert count is not None
    assert count.tokens > 3000


async def test_a_refusal_states_the_size_of_the_prompt() -> None:
    """Of an Ollama that would not render what is too long."""
    transport = Ollama(httpx.Response(200, json=body(PREFIX + "28-chat-debug-render")))
    server = OllamaServer("http://127.0.0.1:11434", transport=transport, tokenizer=Words())
    server.model = "smollm2"
    assert await server.count(TERSE)
    for name, tokens in (("65-chat-history-truncate-false-stream", 824), ("67-chat-one-long-truncate-false", 850)):
        transport.chat = httpx.Response(400, json=body(PREFIX + name))
        assert await server.count(TERSE) == Count(tokens, 0, "Ollama's refusal")
    transport.chat = httpx.Response(400, json=body(PREFIX + "98-tools-unsupported"))
    assert await server.count(TERSE, LOOK) is None
    transport.chat = httpx.Response(200, json=body(PREFIX + "28-chat-debug-render"))
    assert await server.count(TERSE), "one refusal ends nothing"
    await server.close()


async def test_one_that_generates_instead_does_so_for_a_word_and_once() -> None:
    fake = Fake(fault="generates")
    async with talking(fake) as server:
        assert [await server.count([*TERSE, {"role": "user", "content": "word " * 999}]) for _ in range(3)] == [
            None
        ] * 3
    (asked,) = chats(fake)
    assert fake.prefilled == [8]
    assert asked["options"]["num_predict"] == 1


async def test_one_that_stops_rendering_is_asked_no_more() -> None:
    fake = Fake()
    async with talking(fake) as server:
        assert await server.count(TERSE)
        fake.fault = "generates"
        assert [await server.count(TERSE) for _ in range(3)] == [None] * 3
    assert len(fake.prefilled) == 1


@pytest.mark.parametrize(
    ("version", "counts"),
    [
        ("0.12.5", False),
        ("0.11.10-rc1", False),
        ("0.9.0", False),
        ("0.12.6", True),
        ("0.12.6-rc0", True),
        ("1.0.0", True),
        ("0.0.0", True),
        ("new", False),
        ("0.12." + "9" * 5000, True),
    ],
    ids=lambda value: str(value)[:12],
)
async def test_a_release_that_cuts_before_it_renders_is_not_believed(version: str, counts: bool) -> None:  # noqa: FBT001
    long: list[dict[str, object]] = [{"role": "user", "content": "word " * 600}]
    fake = Fake(version=version)
    async with talking(fake, pin=512) as server:
        assert (await server.count(long) is not None) == counts
    assert (len(chats(fake)) > 0) == counts, "an old one is not even tried"


async def test_a_model_that_takes_no_tools_is_counted_without() -> None:
    async with talking(Fake(models=[Model(name="smollm2:latest", tools=False)])) as server:
        assert await server.count(TERSE, LOOK) is None
        assert await server.count(TERSE)


async def test_without_a_vocabulary_nothing_is_counted_or_asked() -> None:
    fake = Fake()
    async with talking(fake, tokenizer=None) as server:
        assert await server.count(TERSE) is None
        assert await server.size("one two") is None
        assert fake.requests == []
        server.tokenizer = Words()
        assert await server.size("one two") == Count(2, 0, "words")
        assert await server.count(TERSE)
        assert await server.count([]) is None


async def test_images_are_counted_by_no_vocabulary() -> None:
    part = {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw0KGgo="}}
    async with talking(Fake()) as server:
        assert await server.count([{"role": "user", "content": [part]}]) is None
        assert await server.count(TERSE)


# The vocabulary.


async def test_the_whole_vocabulary_is_asked_for_without_loading() -> None:
    fake = Fake()
    async with talking(fake) as server:
        info = await server.vocabulary()
    assert info is not None
    assert info["tokenizer.ggml.tokens"] == ["<|im_start|>", "<|im_end|>", "Hel", "lo"]
    assert info["general.architecture"] == "llama"
    assert fake.requests == [("POST /api/show", {"model": "smollm2", "verbose": True})]
    assert fake.loads == []


@pytest.mark.parametrize(("tokens", "comes"), [(400_000, True), (3_000_000, False)])
async def test_a_vocabulary_may_be_larger_than_other_answers(tokens: int, comes: bool) -> None:  # noqa: FBT001
    said = json.dumps({"model_info": {"tokenizer.ggml.tokens": ["0123456789ab"] * tokens}}).encode()
    answer = httpx.MockTransport(lambda _: httpx.Response(200, stream=httpx.ByteStream(said)))
    info = await OllamaServer("http://x", transport=answer).vocabulary()
    assert (info is not None) == comes


@pytest.mark.parametrize("said", [None, [], {}, {"model_info": None}, {"model_info": ["x"]}, {"error": "no"}])
@pytest.mark.parametrize("status", [200, 404, 500])
async def test_an_odd_answer_is_no_vocabulary(status: int, said: object) -> None:
    answer = httpx.MockTransport(lambda _: httpx.Response(status, json=said))
    assert await OllamaServer("http://x", transport=answer).vocabulary() is None


async def test_nobody_there_is_no_vocabulary() -> None:
    assert await OllamaServer("http://127.0.0.1:41299").vocabulary() is None


# What it reports, and images.


@pytest.mark.parametrize("odd", [None, 0, -1, "16", 2**40, 16.5, True, []])
async def test_a_prompt_that_cannot_be_is_not_reported(odd: object) -> None:
    *_, end = await said(Ollama(streamed({"done": True, "prompt_eval_count": odd, "eval_duration": odd})))
    assert isinstance(end, Finished)
    assert end.usage.prompt is None


@pytest.mark.parametrize(
    ("url", "content", "images"),
    [
        ("data:image/png;base64,iVBORw0KGgo=", "What is it?", ["iVBORw0KGgo="]),
        ("https://example.org/cat.png", "What is it?\n[image]", None),
        ("data:image/png;base64,", "What is it?\n[image]", None),
        ("data:image/svg+xml,<svg/>", "What is it?\n[image]", None),
    ],
)
@pytest.mark.parametrize("nested", [True, False])
async def test_images_go_beside_the_text(url: str, content: str, images: list[str] | None, nested: bool) -> None:  # noqa: FBT001
    part = {"type": "image_url", "image_url": {"url": url} if nested else url}
    transport = Ollama(recorded("23-chat-stream"))
    text = {"type": "text", "text": "What is it?"}
    await said(transport, request=Request([{"role": "user", "content": [text, part, {"type": "audio"}, 7]}], 8))
    ((message,),) = [chat["messages"] for chat in transport.calls("/api/chat")]
    assert message == {"role": "user", "content": content} | ({"images": images} if images else {})
