"""A real vLLM, with a window of 2,048 tokens, at the address that VLLM_URL names."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import aclosing

import httpx
import pytest

from localctx.core.notes import HEADINGS, INSTRUCTION, LOOP_PENALTY, Outline, outline
from localctx.core.window import Confidence, Reading, Source, Status
from localctx.ports import Delta, Finished, Request
from localctx.runtimes.detect import READERS, Detector
from localctx.runtimes.openai_chat import OpenAIServer
from localctx.runtimes.pieces import pieces
from localctx.runtimes.server import Pins
from tests.runtimes.raw import Heard

URL = os.environ.get("VLLM_URL", "")
WINDOW = 2048

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.live_vllm,
    pytest.mark.skipif(not URL, reason="VLLM_URL names no vLLM to talk to, such as http://127.0.0.1:8000"),
]


@pytest.fixture
async def http() -> AsyncIterator[httpx.AsyncClient]:
    async with httpx.AsyncClient(base_url=URL, timeout=120, trust_env=False) as opened:
        yield opened


@pytest.mark.parametrize("pin", [None, 512, 4096])
async def test_it_is_read_as_it_is_served(pin: int | None) -> None:
    detector = Detector(URL, pins=Pins(Reading(Source.PINNED, pin, "--num-ctx") if pin else None))
    try:
        report = await detector.probe()
    finally:
        await detector.close()
    assert (report.runtime, report.status, report.error) == ("vllm", Status.UP, None)
    assert report.version
    for model in report.models:
        window = model.window
        tokens = min(pin or WINDOW, WINDOW)
        assert (window.tokens, window.max_prompt, window.confidence) == (tokens, tokens - 1, Confidence.SERVED)
        assert Reading(Source.SERVED, WINDOW, "vllm /v1/models max_model_len") in window.readings
        assert model.loaded
        assert model.shared_pool is not None
        assert model.shared_pool >= WINDOW
        assert ("clamped" in {advice.code for advice in model.warnings}) == ((pin or 0) > WINDOW)


async def test_the_pool_is_what_the_server_counts_in(http: httpx.AsyncClient) -> None:
    """Blocks that requests can have are one fewer than there are."""
    metrics = (await http.get("/metrics")).text
    (line,) = [line for line in metrics.splitlines() if line.startswith("vllm:cache_config_info{")]
    labels = dict(
        part.split("=", 1) for part in line[line.index("{") + 1 : line.rindex("}")].split('",') if "=" in part
    )
    blocks, size = (int(labels[name].strip('"')) for name in ("num_gpu_blocks", "block_size"))
    report = await Detector(URL).probe()
    assert {model.shared_pool for model in report.models} == {(blocks - 1) * size}


@pytest.mark.parametrize(("more", "status"), [(0, 200), (1, 400)])
async def test_the_longest_prompt_is_the_longest(http: httpx.AsyncClient, more: int, status: int) -> None:
    (model, *_) = (await Detector(URL).probe()).models
    assert model.window.max_prompt is not None
    prompt = [1 + number % 1000 for number in range(model.window.max_prompt + more)]
    said = await http.post("/v1/completions", json={"model": model.id, "prompt": prompt, "max_tokens": 1})
    assert said.status_code == status, said.text


CALL = {"id": "call_1", "type": "function", "function": {"name": "read", "arguments": '{"path": "notes.txt"}'}}
READ: dict[str, object] = {
    "type": "function",
    "function": {
        "name": "read",
        "description": "Reads a file.",
        "parameters": {"type": "object", "properties": {"path": {"type": "string"}}},
    },
}
CONVERSATIONS: list[tuple[list[dict[str, object]], list[dict[str, object]]]] = [
    ([{"role": "user", "content": "Hello."}], []),
    ([{"role": "system", "content": "数えてください。"}, {"role": "user", "content": "x = {'a': [1, 2.5]} 🎉"}], []),
    ([{"role": "user", "content": "Read the notes."}], [READ]),
    (
        [
            {"role": "user", "content": "Read the notes."},
            {"role": "assistant", "content": "", "tool_calls": [CALL]},
            {"role": "tool", "tool_call_id": "call_1", "content": "Ten words, more or less."},
        ],
        [READ],
    ),
]


@pytest.fixture
async def runtime() -> AsyncIterator[OpenAIServer]:
    opened = OpenAIServer(URL, READERS["vllm"], kind="vllm")
    (model, *_) = (await opened.probe()).models
    opened.model = model.id
    yield opened
    await opened.close()


@pytest.mark.parametrize(("messages", "tools"), CONVERSATIONS)
async def test_its_count_is_what_it_reports_of_a_reply(
    runtime: OpenAIServer, messages: list[dict[str, object]], tools: list[dict[str, object]]
) -> None:
    counted = await runtime.count(messages, tools)
    async with aclosing(runtime.chat(Request(messages, 16, tools))) as answer:
        (end,) = [piece async for piece in answer if isinstance(piece, Finished)]
    assert counted is not None
    assert (counted.tokens, counted.bound) == (end.usage.prompt, 0)


async def test_a_long_text_counts_the_same_in_pieces(runtime: OpenAIServer, http: httpx.AsyncClient) -> None:
    text = "".join(f"Line {number} says: some words, a number {number * 37}, and なにか.\n" for number in range(900))
    assert len(pieces(text) or ()) > 1
    asked = {"model": runtime.model, "prompt": text, "add_special_tokens": False}
    whole = (await http.post("/tokenize", json=asked)).json()["count"]
    counted = await runtime.size(text)
    assert counted is not None
    assert counted.tokens == whole


NOTES: list[dict[str, object]] = [
    {"role": "user", "content": "Read notes.txt and logs/today.txt. Never delete anything."},
    {"role": "assistant", "content": "I have read both: the log has two errors, at 09:15 and at 17:40."},
    {"role": "user", "content": INSTRUCTION},
]


@pytest.mark.parametrize("tools", [[], [READ]], ids=["alone", "with a tool"])
async def test_notes_under_an_outline_have_every_heading_in_order_and_call_nothing(
    runtime: OpenAIServer, tools: list[dict[str, object]]
) -> None:
    counted = await runtime.count(NOTES, tools)
    request = Request(NOTES, 450, tools, 0.0, LOOP_PENALTY, outline(450, 4.0))
    async with aclosing(runtime.chat(request)) as answer:
        *pieces, end = [piece async for piece in answer]
    text = "".join(piece.text for piece in pieces if isinstance(piece, Delta))
    assert [line[3:] for line in text.splitlines() if line.startswith("## ")] == list(HEADINGS.values())
    assert isinstance(end, Finished)
    assert (end.reason, end.called_tools) == ("stop", False)
    assert counted is not None
    assert end.usage.prompt == counted.tokens, "the prompt is the same to the last token"


async def test_a_grammar_that_it_cannot_read_costs_one_request_and_not_the_reply(runtime: OpenAIServer) -> None:
    kept = Heard(httpx.AsyncHTTPTransport())
    server = OpenAIServer(URL, READERS["vllm"], kind="vllm", transport=kept)
    server.model = runtime.model
    request = Request(NOTES, 16, outline=Outline(('a quotation mark: "',), 1, 30))
    for _ in range(2):
        async with aclosing(server.chat(request)) as answer:
            *_, end = [piece async for piece in answer]
        assert isinstance(end, Finished)
    await server.close()
    assert [b"structured_outputs" in asked.content for asked in kept.requests] == [True, False, False]
