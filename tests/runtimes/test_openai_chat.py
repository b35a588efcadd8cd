from __future__ import annotations

import json
import tracemalloc
from dataclasses import astuple, replace
from time import monotonic
from typing import TYPE_CHECKING

import anyio
import httpx
import pytest

from localctx.core.accounting import Usage
from localctx.core.messages import ToolCall
from localctx.errors import (
    LocalctxError,
    ModelMissing,
    NotARuntime,
    PromptRefused,
    RequestRefused,
    ServerFailed,
    ServerLoading,
    ToolsRefused,
    Unauthorized,
    Unreachable,
)
from localctx.ports import Delta, Finished, Piece, Prefilled, Request, Runtime
from localctx.runtimes.detect import READERS
from localctx.runtimes.llama_server import LlamaServer
from localctx.runtimes.ollama_chat import OllamaServer
from localctx.runtimes.openai_chat import OpenAIServer
from tests.fakes.llama_server import Calls, Fake, running
from tests.recordings import load, transport
from tests.runtimes.raw import events, http, saying

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

pytestmark = pytest.mark.anyio

HELLO = Request([{"role": "user", "content": "Say hello."}], 50)
LOOK = replace(HELLO, tools=[{"type": "function", "function": {"name": "look", "parameters": {"type": "object"}}}])
TEXT = '{"choices":[{"delta":{"content":"a"}}]}'
STOP = '{"choices":[{"delta":{},"finish_reason":"stop"}]}'


async def heard(server: Runtime, into: list[Piece] | None = None, request: Request = HELLO) -> list[Piece]:
    pieces = [] if into is None else into
    async for piece in server.chat(request):
        pieces.append(piece)
    return pieces


def text(pieces: list[Piece]) -> str:
    return "".join(piece.text for piece in pieces if isinstance(piece, Delta))


@pytest.mark.parametrize(
    ("name", "said", "usage"),
    [
        ("11-chat-stream-usage", "I'm glad you're here", Usage(22, 6, 21, 0.044853, 0.234879)),
        ("11b-chat-stream-nousage", "I'm glad you", Usage()),
        ("11c-chat-stream-timings-progress", "The number of", Usage(2723, 3, 5, 98.955587, 0.250881)),
        (
            "21c-end-of-window-stream",
            "assistant\nuser\nuser\nYou are a helpful AI. I'm here. I",
            Usage(491, 21, 464, 0.427883, 0.739211),
        ),
    ],
)
async def test_a_recorded_stream_gives_its_text_and_its_usage(name: str, said: str, usage: Usage) -> None:
    pieces: list[Piece] = [
        piece
        for piece in await heard(LlamaServer("http://recorded", transport=transport(name)))
        if not isinstance(piece, Prefilled)
    ]
    assert all(isinstance(piece, Delta) and piece.text and not piece.thinking for piece in pieces[:-1])
    assert text(pieces) == said
    end = pieces[-1]
    assert isinstance(end, Finished)
    assert (end.reason, end.called_tools) == ("length", False)
    assert astuple(end.usage) == pytest.approx(astuple(usage))


async def test_a_recorded_prefill_says_how_far_it_is() -> None:
    said = await heard(LlamaServer("http://recorded", transport=transport("11c-chat-stream-timings-progress")))
    steps = [piece for piece in said if isinstance(piece, Prefilled)]
    assert steps == [Prefilled(5, 2723, 5), Prefilled(2053, 2723, 5), Prefilled(2723, 2723, 5)]
    assert said[: len(steps)] == steps, "all of it is read before anything is said"


@pytest.mark.parametrize(
    "progress", ["7", "[]", '{"processed":9,"total":5,"cache":0}', '{"processed":1,"total":5,"cache":2}', '{"total":5}']
)
async def test_progress_that_cannot_be_is_left_out(progress: str) -> None:
    chunk = f'{{"choices":[{{"delta":{{"content":"a"}}}}],"prompt_progress":{progress}}}'
    with saying(lambda _: [events(chunk, STOP, "[DONE]")]) as raw:
        *pieces, _ = await heard(LlamaServer(raw.url))
    assert pieces == [Delta("a")]


async def test_thinking_goes_by_one_of_two_names() -> None:
    """vLLM and Ollama call it `reasoning` in this dialect, llama-server `reasoning_content`."""
    thoughts = [
        '{"reasoning":"one "}',
        '{"reasoning_content":"two","reasoning":null}',
        '{"content":"a","reasoning":[7]}',
    ]
    chunks = [f'{{"choices":[{{"delta":{delta}}}]}}' for delta in thoughts]
    with saying(lambda _: [events(*chunks, STOP, "[DONE]")]) as raw:
        *pieces, _ = await heard(LlamaServer(raw.url))
    assert pieces == [Delta("", "one "), Delta("", "two"), Delta("a")]


@pytest.mark.parametrize(("kind", "told"), [("vllm", True), ("sglang", True), ("lmstudio", False), ("openai", False)])
async def test_only_servers_that_pass_it_to_a_template_are_told_not_to_think(kind: str, told: object) -> None:
    with running(Fake()) as fake:
        server = OpenAIServer(fake.url, READERS[kind], kind=kind)
        assert [piece async for piece in server.chat(replace(HELLO, thinks=False))]
    assert ("chat_template_kwargs" in fake.chats[0]) is told


@pytest.mark.parametrize(
    ("name", "usage"),
    [
        ("vllm-0.32.0/09b-chat-stream-usage", (37, None)),
        ("vllm-0.32.0/24c-chat-prefix-cache-stream", (781, 768)),
        ("sglang-0.5.23/09b-chat-stream-usage", (37, 36)),
        ("llama-server-b11434/11-chat-stream-usage", (22, 21)),
    ],
)
async def test_what_was_cached_is_part_of_the_prompt(name: str, usage: tuple[int, int | None]) -> None:
    *_, end = await heard(LlamaServer("http://recorded", transport=transport(name)))
    assert isinstance(end, Finished)
    assert (end.usage.prompt, end.usage.cached) == usage


@pytest.mark.parametrize(
    ("said", "prompt"),
    [
        ('{"prompt_tokens":37,"prompt_tokens_details":{"cached_tokens":36}}', 37),
        ('{"prompt_tokens":1,"prompt_tokens_details":{"cached_tokens":36}}', None),
        ('{"prompt_tokens":37,"prompt_tokens_details":null}', 37),
        ('{"prompt_tokens":37,"prompt_tokens_details":[]}', 37),
        ('{"prompt_tokens":37,"completion_tokens":"many"}', 37),
        *(
            (f'{{"prompt_tokens":{odd}}}', None)
            for odd in ("0", "-1", '"37"', "37.5", "true", "[]", "1e300", "2147483648")
        ),
        *((odd, None) for odd in ("null", "[]", '"none"', "7")),
    ],
)
async def test_a_usage_that_cannot_be_is_no_usage_and_no_failure(said: str, prompt: int | None) -> None:
    last = f'{{"choices":[],"usage":{said},"timings":{{"prompt_ms":"fast","predicted_ms":-1}}}}'
    with saying(lambda _: [events(TEXT, STOP, last, "[DONE]")]) as raw:
        *_, end = await heard(LlamaServer(raw.url))
    assert isinstance(end, Finished)
    assert (end.usage.prompt, end.usage.prefill_seconds, end.usage.decode_seconds) == (prompt, None, None)


async def test_thinking_comes_apart_from_the_text() -> None:
    with running(Fake(reply="The answer.", reply_thinking="Hm, let me see.")) as fake:
        pieces = await heard(LlamaServer(fake.url))
    deltas = [piece for piece in pieces if isinstance(piece, Delta)]
    assert "".join(delta.thinking for delta in deltas) == "Hm, let me see."
    assert text(pieces) == "The answer."
    assert not any(delta.thinking and delta.text for delta in deltas)


@pytest.mark.parametrize(("reply", "reason"), [("Done.", "stop"), ("word " * 100, "length"), ("", "stop")])
async def test_the_end_says_why_and_what_it_cost(reply: str, reason: str) -> None:
    with running(Fake(reply=reply, prompt_tokens=lambda _: 11)) as fake:
        end = (await heard(LlamaServer(fake.url)))[-1]
    assert isinstance(end, Finished)
    assert (end.reason, end.usage.prompt, end.called_tools) == (reason, 11, False)
    assert end.usage.prefill_seconds == 0.011


async def test_done_alone_is_no_end() -> None:
    with running(Fake(fault="no_finish", reply="a b c")) as fake:
        pieces: list[Piece] = []
        with pytest.raises(ServerFailed, match="without a finish reason"):
            await heard(LlamaServer(fake.url), pieces)
    assert text(pieces) == "a b c"


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        ("die_mid_stream", "look at its log"),
        ("error_mid_stream", r"Context size has been exceeded.*-np 1"),
        ("truncated_json", "without a finish reason|no chat chunk"),
    ],
)
async def test_what_was_said_before_a_stream_broke_has_arrived(fault: str, message: str) -> None:
    with running(Fake(fault=fault, reply="one two three four")) as fake:
        pieces: list[Piece] = []
        with pytest.raises(ServerFailed, match=message) as failed:
            await heard(LlamaServer(fake.url), pieces)
    assert text(pieces) == "one two"
    assert not isinstance(failed.value, (ServerLoading, PromptRefused))


@pytest.mark.parametrize(
    ("name", "limit"),
    [("20b-exceed-chat-stream", 4096), ("77b-router-exceed", 2048), ("23c-ctxshift-prompt-too-long", 512)],
)
async def test_a_prompt_that_is_too_long_comes_back_with_the_window(name: str, limit: int) -> None:
    with pytest.raises(PromptRefused, match=f"{limit}") as refused:
        await heard(LlamaServer("http://recorded", transport=transport(name)))
    assert refused.value.limit == limit


@pytest.mark.parametrize(
    ("name", "error", "message"),
    [
        ("01e-chat-loading", ServerLoading, "wait until the model is loaded"),
        ("60f-key-chat-nokey", Unauthorized, "LOCALCTX_API_KEY"),
        ("73-router-chat-unknown-model", ModelMissing, "localctx probe"),
        ("73b-router-chat-nomodel", RequestRefused, "model name is missing"),
        ("24-kvunified-pool-overflow-0", ServerFailed, "-np 1"),
        ("40b-bad-json", RequestRefused, "parse error"),
    ],
)
async def test_a_refusal_becomes_the_error_that_it_means(name: str, error: type[LocalctxError], message: str) -> None:
    with pytest.raises(error, match=message) as refused:
        await heard(LlamaServer("http://recorded", transport=transport(name)))
    assert type(refused.value) is error
    assert "\n" not in str(refused.value)


async def test_nobody_there() -> None:
    with running(Fake()) as fake:
        url = fake.url
    with pytest.raises(Unreachable, match=r"nothing answers at .*--url"):
        await heard(LlamaServer(url))


async def test_a_server_that_falls_silent_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("localctx.runtimes.http.SILENCE_SECONDS", 0.2)
    with running(Fake(fault="hang")) as fake, pytest.raises(ServerFailed, match="silent"):
        await heard(LlamaServer(fake.url))


# Calls.


async def ended(server: LlamaServer, request: Request = LOOK) -> Finished:
    *_, end = await heard(server, request=request)
    assert isinstance(end, Finished)
    return end


async def test_a_recorded_call_is_read() -> None:
    end = await ended(LlamaServer("http://recorded", transport=transport("vllm-0.32.0/23g-chat-tool-named-stream")))
    (call,) = end.calls
    assert (end.reason, end.called_tools) == ("stop", True)
    assert (call.id, call.name) == ("chatcmpl-tool-9f7cae23f46f8df8", "get_weather")
    assert json.loads(call.arguments) == {"city": {"type": "string", "description": "City name"}}


async def test_a_recorded_call_that_comes_in_one_piece_is_read() -> None:
    lines = load("ollama-0.33.0-rc2/146-tools-v1-stream")["response"]["body"]["sse"]
    answer = httpx.Response(200, headers={"content-type": "text/event-stream"}, text="\n".join(lines))
    end = await ended(LlamaServer("http://recorded", transport=httpx.MockTransport(lambda _: answer)))
    assert end.reason == "tool_calls"
    assert end.calls == (ToolCall("call_qh00imww", "get_weather", '{"city":"Oslo"}'),)


async def test_calls_come_behind_the_text_in_order_and_whole() -> None:
    calls = [("look", '{"at": "é 漢", "deep": {"x": [1, "}"]}}'), ("look", "{}"), ("list_all", "")]
    with running(Fake(tools=True, reply=lambda _: Calls("Let me see.", calls))) as fake:
        pieces = await heard(LlamaServer(fake.url), request=LOOK)
    assert text(pieces) == "Let me see."
    end = pieces[-1]
    assert isinstance(end, Finished)
    assert (end.reason, end.called_tools) == ("tool_calls", True)
    assert [(call.name, call.arguments) for call in end.calls] == [*calls[:2], ("list_all", "{}")]
    assert len({call.id for call in end.calls}) == 3


async def test_a_call_that_is_cut_off_comes_as_far_as_it_was_written() -> None:
    with running(Fake(tools=True, reply=lambda _: Calls("Now.", [("write", '{"text": "one two three"}')]))) as fake:
        end = await ended(LlamaServer(fake.url), replace(LOOK, max_tokens=8))
    assert end.reason == "length"
    assert [(call.name, call.arguments) for call in end.calls] == [("write", '{"text":')]


async def test_a_reply_without_calls_has_none() -> None:
    with running(Fake(tools=True, reply=lambda _: Calls("No need."))) as fake:
        end = await ended(LlamaServer(fake.url))
    assert (end.reason, end.called_tools, end.calls) == ("stop", False, ())


def chunk(calls: str, reason: str = "null") -> str:
    return f'{{"choices":[{{"delta":{{"tool_calls":{calls}}},"finish_reason":{reason}}}]}}'


@pytest.mark.parametrize("reason", ["tool_calls", "stop", "length", "function_call"])
async def test_the_reason_is_left_as_the_server_says_it(reason: str) -> None:
    call = '[{"id":"x","function":{"name":"look","arguments":{"at":"it"}}}]'
    with saying(lambda _: [events(chunk(call, f'"{reason}"'), "[DONE]")]) as raw:
        end = await ended(LlamaServer(raw.url))
    assert (end.reason, end.calls) == (reason, (ToolCall("x", "look", '{"at":"it"}'),))


@pytest.mark.parametrize(
    ("calls", "called"),
    [
        ("null", False),
        ("[]", False),
        ("[null]", True),
        ("[[], 7, true]", True),
        ('[{"function":[]}]', True),
        ('[{"index":-1,"id":[],"function":{"name":{},"arguments":[]}}]', True),
        ('[{"index":1e300,"function":{"arguments":"{"}}]', True),
    ],
)
async def test_calls_that_cannot_be_read_are_told_of(calls: str, called: bool) -> None:  # noqa: FBT001
    with saying(lambda _: [events(chunk(calls), STOP, "[DONE]")]) as raw:
        end = await ended(LlamaServer(raw.url))
    assert (end.called_tools, end.calls) == (called, ())


@pytest.mark.parametrize(
    "calls",
    [
        "{}",
        "7",
        '"look"',
        '[{"function":{"name":"look","arguments":"' + "x" * (2**20 + 1) + '"}}]',
        '[{"function":{"name":"' + "x" * 2000 + '"}}]',
        "[" + ",".join(['{"function":{"name":"look"}}'] * 129) + "]",
        '[{"function":{"name":"look","arguments":' + "[" * 50_000 + "]" * 50_000 + "}}]",
    ],
    ids=lambda calls: calls[:24],
)
async def test_calls_that_no_model_makes_fail_the_reply(calls: str) -> None:
    with saying(lambda _: [events(TEXT, chunk(calls), STOP, "[DONE]")]) as raw:
        pieces: list[Piece] = []
        with pytest.raises(ServerFailed) as failed:
            await heard(LlamaServer(raw.url), pieces, LOOK)
    assert text(pieces) == "a"
    assert len(str(failed.value)) < 500
    assert "\n" not in str(failed.value)


@pytest.mark.parametrize("depth", range(900, 1000, 4))
async def test_arguments_that_are_nested_deeply_are_read_or_fail_the_reply(depth: int) -> None:
    """Where the one turns into the other depends on how deep the stack is already."""
    arguments = '{"x":' * depth + "1" + "}" * depth
    call = f'[{{"function":{{"name":"look","arguments":{arguments}}}}}]'
    with saying(lambda _: [events(chunk(call, '"stop"'), "[DONE]")]) as raw:
        try:
            end = await ended(LlamaServer(raw.url))
        except ServerFailed as failed:
            assert len(str(failed)) < 500  # noqa: PT017  either is right
        else:
            assert end.calls[0].arguments == arguments


# Tools that are refused.


@pytest.mark.parametrize(
    ("name", "step"),
    [
        ("ollama-0.33.0-rc2/99-tools-unsupported-v1", "serve a model whose template has tools"),
        ("vllm-0.32.0/10-chat-tools-not-enabled", "start vLLM with --enable-auto-tool-choice"),
    ],
)
async def test_a_recorded_refusal_of_tools_is_told_apart(name: str, step: str) -> None:
    with pytest.raises(ToolsRefused, match=f"takes no tools .HTTP 400: .*; {step}"):
        await ended(LlamaServer("http://recorded", transport=transport(name)))
    with pytest.raises(ServerFailed) as failed:
        await ended(LlamaServer("http://recorded", transport=transport(name)), HELLO)
    assert type(failed.value) is RequestRefused, "a request without tools was refused for something else"


@pytest.mark.parametrize("tools", [True, False], ids=["template with tools", "without"])
async def test_a_llama_server_without_jinja_refuses_tools_and_goes_on_without(tools: bool) -> None:  # noqa: FBT001
    with running(Fake(fault="no_tools", tools=tools)) as fake:
        server = LlamaServer(fake.url)
        with pytest.raises(ToolsRefused, match=r"HTTP 500: tools param requires --jinja flag\); start .* with --jinja"):
            await ended(server)
        assert await server.count(LOOK.messages, LOOK.tools) is None
        assert text(await heard(server)) == "Done."


@pytest.mark.parametrize(
    "message",
    [
        "Unsupported param: tools",
        "litellm.UnsupportedParamsError: ollama does not support parameters: ['tools'], for model=m.",
        "litellm.UnsupportedParamsError: x does not support parameters: ['frequency_penalty', 'tools'], for model=m",
    ],
)
@pytest.mark.parametrize("inside", [True, False], ids=["in the stream", "at once"])
async def test_other_servers_refuse_tools_in_other_words(message: str, inside: bool) -> None:  # noqa: FBT001
    body = json.dumps({"error": {"message": message, "type": "server_error", "code": 500}})
    plain = http("Content-Type: application/json", f"Content-Length: {len(body)}", status="500 No", body=body.encode())
    with saying(lambda _: [events(body) if inside else plain]) as raw, pytest.raises(ToolsRefused) as refused:
        await ended(LlamaServer(raw.url))
    assert len(str(refused.value)) < 500


@pytest.mark.parametrize(
    "message",
    [
        "does not support parameters: ['temperature'], for model=m. Among others, 'tools' are",
        "Cannot use custom grammar constraints with tools.",
        "the tools are hot",
    ],
)
async def test_an_error_about_something_else_is_no_refusal_of_tools(message: str) -> None:
    body = json.dumps({"error": {"message": message}}).encode()
    answer = http("Content-Type: application/json", f"Content-Length: {len(body)}", status="400 No", body=body)
    with saying(lambda _: [answer]) as raw, pytest.raises(ServerFailed) as failed:
        await ended(LlamaServer(raw.url))
    assert type(failed.value) is RequestRefused


async def abandoned(fake: Fake) -> None:
    with anyio.fail_after(3):
        while not fake.requests[0].aborted:  # noqa: ASYNC110 - the server is a thread
            await anyio.sleep(0.01)


async def test_a_reader_that_leaves_stops_the_server() -> None:
    with running(Fake(reply="word " * 200, delay=0.01)) as fake:
        async for _ in LlamaServer(fake.url).chat(HELLO):
            break
        await abandoned(fake)


async def test_a_reader_that_is_interrupted_stops_the_server() -> None:
    with running(Fake(reply="word " * 200, delay=0.01)) as fake:
        server = LlamaServer(fake.url)
        with anyio.move_on_after(0.3):
            await heard(server)
        await abandoned(fake)
        fake.reply, fake.delay = "Fine.", 0
        assert text(await heard(server)) == "Fine."


# What a stream may hold.


@pytest.mark.parametrize("charset", ["undefined", "hex", "idna", "utf-16", "no-such"])
async def test_an_event_stream_is_utf8_whatever_its_header_says(charset: str) -> None:
    piece = '{"choices":[{"delta":{"content":"\u00e9\u6f22"}}]}'
    with saying(lambda _: [events(piece, STOP, "[DONE]", more=f"; charset={charset}")]) as raw:
        assert text(await heard(LlamaServer(raw.url))) == "\u00e9\u6f22"


async def test_done_ends_a_reply_though_the_connection_stays_open() -> None:
    with running(Fake(fault="hang")) as fake:  # its stop event is what the held connection waits for

        def say(_: str) -> Iterator[bytes]:
            yield events(TEXT, STOP, "[DONE]")
            while fake.fault:
                yield b": still here\n\n"

        with saying(say) as raw:
            try:
                with anyio.fail_after(3):
                    assert text(await heard(LlamaServer(raw.url))) == "a"
            finally:
                fake.fault = None


@pytest.mark.parametrize(
    "data",
    [
        "not json",
        "[1]",
        '"text"',
        '{"choices": 5}',
        '{"choices":[{"delta":{"content":7}}]}',
        '{"error":' + "[" * 50_000 + "]" * 50_000 + "}",
        '{"x":' * 50_000,
        '{"usage":{"prompt_tokens":' + "9" * 5000 + "}}",
    ],
    ids=lambda data: data[:24],
)
async def test_a_piece_that_is_no_chunk_fails_the_reply(data: str) -> None:
    with saying(lambda _: [events(TEXT, data, STOP, "[DONE]")]) as raw:
        pieces: list[Piece] = []
        with pytest.raises(ServerFailed) as failed:
            await heard(LlamaServer(raw.url), pieces)
    assert text(pieces) == "a"
    assert len(str(failed.value)) < 500
    assert "\n" not in str(failed.value)


async def test_broken_utf8_and_unknown_fields_are_read_over() -> None:
    data = b'data: {"choices":[{"delta":{"content":"a\xff","new":{"x":[1]}},"new":1}],"new":null}\n\n'
    body = events(": a comment", STOP, "[DONE]").replace(b"data: : a comment\n\n", b": a comment\n\n" + data)
    with saying(lambda _: [body]) as raw:
        assert text(await heard(LlamaServer(raw.url))) == "a\ufffd"


@pytest.mark.parametrize("error", ['{"message":"boom"}', '"boom"', '{"code":1,"message":"boom","type":"server_error"}'])
async def test_an_error_inside_a_stream_is_raised(error: str) -> None:
    body = events(TEXT, f'{{"error":{error}}}', STOP, "[DONE]")
    with saying(lambda _: [body]) as raw, pytest.raises(ServerFailed, match="boom"):
        await heard(LlamaServer(raw.url))


@pytest.mark.parametrize(
    "body",
    [b'{"a":' * 50_000, b'{"error":{"message":"' + b'{\\"a\\":' * 50_000 + b'"}}', b"\xff" * 100, b""],
    ids=["nested", "nested in its message", "bytes", "empty"],
)
async def test_an_error_body_of_any_kind_is_one_line(body: bytes) -> None:
    answer = http("Content-Type: application/json", f"Content-Length: {len(body)}", status="500 No", body=body)
    with saying(lambda _: [answer]) as raw, pytest.raises(ServerFailed, match="HTTP 500") as failed:
        await heard(LlamaServer(raw.url))
    assert len(str(failed.value)) < 500
    assert "\n" not in str(failed.value)


async def test_a_line_without_end_is_cut_off() -> None:
    def say(_: str) -> Iterator[bytes]:
        yield events()
        yield b"data: "
        while True:
            yield b"x" * 65536

    with saying(say) as raw:
        tracemalloc.start()
        began = monotonic()
        try:
            with pytest.raises(NotARuntime, match="larger than any"):
                await heard(LlamaServer(raw.url))
            assert tracemalloc.get_traced_memory()[1] < 160 * 2**20
        finally:
            tracemalloc.stop()
        assert monotonic() - began < 10


@pytest.mark.parametrize(("silence", "seconds"), [(None, 120.0), (5.0, 120.0), (600.0, 600.0)])
@pytest.mark.parametrize("server", ["llama-server", "vllm", "ollama"])
async def test_a_request_may_wait_as_long_as_it_says(server: str, silence: float | None, seconds: float) -> None:
    waited: list[float] = []

    def silent(request: httpx.Request) -> httpx.Response:
        if "chat" in request.url.path:
            waited.append(request.extensions["timeout"]["read"])
            raise httpx.ReadTimeout("", request=request)
        return httpx.Response(404)

    quiet = httpx.MockTransport(silent)
    starts: dict[str, Callable[[], Runtime]] = {
        "llama-server": lambda: LlamaServer("http://silent", transport=quiet),
        "vllm": lambda: OpenAIServer("http://silent", READERS["vllm"], kind="vllm", transport=quiet),
        "ollama": lambda: resident(OllamaServer("http://silent", transport=quiet)),
    }
    with pytest.raises(ServerFailed, match=f"was silent for {seconds:,.0f} s"):
        await heard(starts[server](), request=replace(HELLO, silence=silence))
    assert waited == [seconds]


def resident(server: OllamaServer) -> OllamaServer:
    server._num_ctx = 4096
    return server
