"""What every runtime promises of its counts, of tools, and of the places where it cuts in silence."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from contextlib import aclosing
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import httpx
import pytest

from localctx.core.accounting import Count
from localctx.errors import LocalctxError
from localctx.ports import Request, Runtime
from localctx.runtimes import lmstudio, openai, sglang, vllm
from localctx.runtimes.llama_server import LlamaServer
from localctx.runtimes.ollama_chat import OllamaServer
from localctx.runtimes.openai_chat import OpenAIServer
from tests.recordings import body, load, transport
from tests.runtimes.raw import Heard

if TYPE_CHECKING:
    from localctx.core.outgoing import WireMessage

pytestmark = pytest.mark.anyio

LLAMA, OLLAMA, VLLM, SGLANG = "llama-server-b11434", "ollama-0.33.0-rc2", "vllm-0.32.0", "sglang-0.5.23"


@dataclass(frozen=True)
class Words:
    """A vocabulary of words, marks and line ends."""

    how: str = "words"

    def size(self, text: str) -> int:
        return len(re.findall(r"\w+|[^\w\s]", text))

    def rendered(self, prompt: str) -> int:
        return len(re.findall(r"<\|\w+\|>|\w+|[^\w\s]|\n", prompt))


def llama_server(transport: httpx.AsyncBaseTransport) -> Runtime:
    return LlamaServer("http://recorded", transport=transport)


def embedded(transport: httpx.AsyncBaseTransport) -> Runtime:
    return LlamaServer("http://recorded", kind="embedded", transport=transport)


def ollama(transport: httpx.AsyncBaseTransport) -> Runtime:
    server = OllamaServer("http://recorded", tokenizer=Words(), transport=transport)
    server.model = "smollm2"
    return server


def other(kind: str, model: str = "smol") -> Callable[[httpx.AsyncBaseTransport], Runtime]:
    reader = {"vllm": vllm.read, "sglang": sglang.read, "lmstudio": lmstudio.read, "openai": openai.read}[kind]

    def make(transport: httpx.AsyncBaseTransport) -> Runtime:
        server = OpenAIServer("http://recorded", reader, kind=kind, transport=transport)
        server.model = model
        return server

    return make


@dataclass(frozen=True, kw_only=True)
class Known:
    """How a runtime is made, and recordings of what it counted: a chat, one with tools, a text, each with its size.

    An Ollama only renders; its sizes are those by `Words`.
    """

    make: Callable[[httpx.AsyncBaseTransport], Runtime]
    about: tuple[str, ...] = ()
    chat: tuple[str, int] | None = None
    tools: tuple[str, int] | None = None
    text: tuple[str, int] | None = None
    path: str = "/v1/chat/completions"

    async def asked(self, name: str) -> tuple[Runtime, Heard]:
        heard = Heard(transport(*self.about, name))
        return self.make(heard), heard


_RESIDENT = tuple(f"{OLLAMA}/{name}" for name in ("01-version", "11-tags", "12-show", "21-ps-default"))

RUNTIMES = {
    "llama-server": Known(
        make=llama_server,
        chat=(f"{LLAMA}/13-input-tokens-chat", 22),
        tools=(f"{LLAMA}/13b-input-tokens-chat-tools", 34),
        text=(f"{LLAMA}/08-tokenize", 2),
    ),
    "embedded": Known(
        make=embedded,
        chat=(f"{LLAMA}/13-input-tokens-chat", 22),
        tools=(f"{LLAMA}/13b-input-tokens-chat-tools", 34),
        text=(f"{LLAMA}/08-tokenize", 2),
    ),
    "ollama": Known(
        make=ollama,
        about=_RESIDENT,
        chat=(f"{OLLAMA}/28-chat-debug-render", 15),
        tools=(f"{OLLAMA}/147b-tools-result-debug", 111),
        path="/api/chat",
    ),
    "ollama, rendered by llama-server": Known(
        make=ollama, about=_RESIDENT, chat=(f"{OLLAMA}/135-native-debug-render", 33), path="/api/chat"
    ),
    "vllm": Known(
        make=other("vllm"),
        chat=(f"{VLLM}/05-tokenize-messages", 37),
        tools=(f"{VLLM}/23b-tokenize-tools", 191),
        text=(f"{VLLM}/04-tokenize-text", 16),
    ),
    "vllm-router": Known(make=other("vllm"), chat=("routers/vllm-router-0.1.17/03-tokenize", 37)),
    "sglang": Known(
        make=other("sglang"),
        chat=(f"{SGLANG}/07b-tokenize-messages", 37),
        tools=(f"{SGLANG}/07c-tokenize-messages-tools", 199),
        text=(f"{SGLANG}/07-tokenize-text", 16),
    ),
    "sglang, whose tokenizer states 131,072": Known(
        make=other("sglang"), chat=(f"{SGLANG}/43-tokenize-pool-smaller", 37)
    ),
    "lmstudio": Known(make=other("lmstudio")),
    "openai": Known(make=other("openai")),
}
COUNTING = [name for name, known in RUNTIMES.items() if known.chat]
WITH_TOOLS = [name for name, known in RUNTIMES.items() if known.tools]
SIZING = [name for name, known in RUNTIMES.items() if known.text]
SILENT = ["lmstudio", "openai"]

every = pytest.mark.parametrize("name", RUNTIMES)
counting = pytest.mark.parametrize("name", COUNTING)


def said_to(name: str) -> Any:  # noqa: ANN401  JSON
    return load(name)["request"]["body"]


def questions(heard: Heard) -> list[Any]:
    """What was asked about a conversation or a text, after what had to be found out first."""
    paths = {"/api/chat", "/tokenize", "/v1/chat/completions/input_tokens"}
    sent = [json.loads(request.content) for request in heard.requests if request.url.path in paths]
    return [asked for asked in sent if asked.get("messages") != [{"role": "user", "content": "Hello"}]]


@counting
async def test_a_count_is_the_servers_own_and_exact(name: str) -> None:
    known = RUNTIMES[name]
    assert known.chat
    recorded, tokens = known.chat
    runtime, heard = await known.asked(recorded)
    messages = said_to(recorded)["messages"]
    count = await runtime.count(messages)
    assert count is not None
    assert (count.tokens, count.bound) == (tokens, 0)
    (asked,) = questions(heard)
    assert asked["messages"] == messages
    assert "tools" not in asked


@pytest.mark.parametrize("name", WITH_TOOLS)
async def test_tools_are_counted_with_the_conversation(name: str) -> None:
    known = RUNTIMES[name]
    assert known.tools
    recorded, tokens = known.tools
    runtime, heard = await known.asked(recorded)
    given = said_to(recorded)
    count = await runtime.count(given["messages"][:1], given["tools"])
    assert count is not None
    assert (count.tokens, count.bound) == (tokens, 0)
    (asked,) = questions(heard)
    assert asked["tools"] == given["tools"]


@pytest.mark.parametrize("name", SIZING)
async def test_a_size_is_that_of_the_text_alone(name: str) -> None:
    known = RUNTIMES[name]
    assert known.text
    recorded, tokens = known.text
    runtime, heard = await known.asked(recorded)
    said = said_to(recorded)
    text = said.get("content", said.get("prompt"))
    size = await runtime.size(text)
    assert size is not None
    assert (size.tokens, size.bound) == (tokens, 0)
    (asked,) = questions(heard)
    assert asked.get("content", asked.get("prompt")) == text
    assert {asked.get("add_special", False), asked.get("parse_special", False)} == {False}
    assert asked.get("add_special_tokens", False) is False


async def test_a_size_on_ollama_is_the_vocabularys() -> None:
    heard = Heard(transport(*_RESIDENT))
    runtime = ollama(heard)
    assert await runtime.size("one two three") == Count(3, 0, "words")
    assert heard.requests == []


@pytest.mark.parametrize("name", SILENT)
async def test_who_cannot_count_is_not_asked(name: str) -> None:
    heard = Heard(transport("routers/litellm-1.108.7/01-models"))
    runtime = RUNTIMES[name].make(heard)
    assert await runtime.count([{"role": "user", "content": "x"}], [{"type": "function"}]) is None
    assert await runtime.size("x") is None
    assert heard.requests == []


ODD: list[object] = [
    *([], {}, None, "text", {"count": True, "input_tokens": True}, {"count": -1, "input_tokens": -1}),
    {"count": 2**31, "input_tokens": 2**31},
    {"count": None, "input_tokens": None},
    {"count": 1.5, "input_tokens": 1.5},
    {"count": {}, "input_tokens": [], "tokens": 7, "prompt": ["x"], "_debug_info": {"rendered_template": 7}},
    {"_debug_info": None},
    {"error": {"message": "no"}},
]


@every
@pytest.mark.parametrize("status", [200, 400, 401, 404, 405, 429, 500, 501, 503])
async def test_an_odd_answer_is_no_count(name: str, status: int) -> None:
    known = RUNTIMES[name]
    for said in ODD:

        def answer(request: httpx.Request, said: object = said) -> httpx.Response:
            about = {load(each)["request"]["path"]: each for each in known.about}
            if request.url.path in about:
                return httpx.Response(200, json=body(about[request.url.path]))
            return httpx.Response(status, json=said)

        runtime = known.make(httpx.MockTransport(answer))
        assert [await runtime.count([{"role": "user", "content": "x"}]) for _ in range(2)] == [None, None]
        assert name.startswith("ollama") or await runtime.size("x") is None
        await runtime.close()


@counting
@pytest.mark.parametrize(("status", "again"), [(404, False), (405, False), (501, False), (400, True), (503, True)])
async def test_a_missing_path_is_asked_once_and_one_refusal_ends_nothing(name: str, status: int, again: bool) -> None:  # noqa: FBT001
    known = RUNTIMES[name]
    about = {load(each)["request"]["path"]: each for each in known.about}

    def answer(request: httpx.Request) -> httpx.Response:
        path = request.url.path
        return httpx.Response(200, json=body(about[path])) if path in about else httpx.Response(status, json={})

    heard = Heard(httpx.MockTransport(answer))
    runtime = known.make(heard)
    if isinstance(runtime, OllamaServer):
        pytest.skip("where there is no model, there is no path either; see its own tests")
    for _ in range(3):
        assert await runtime.count([{"role": "user", "content": "x"}]) is None
    paths = [request.url.path for request in heard.requests]
    assert len(paths) == (3 if again else len(set(paths)))


IMAGE = {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw0KGgo="}}
PICTURE: list[WireMessage] = [{"role": "user", "content": [{"type": "text", "text": "What is it?"}, IMAGE]}]


@pytest.mark.parametrize("name", ["vllm", "sglang", "lmstudio", "openai"])
async def test_images_are_counted_by_no_tokenizer(name: str) -> None:
    heard = Heard(httpx.MockTransport(lambda _: httpx.Response(200, json={"count": 9})))
    assert await RUNTIMES[name].make(heard).count(PICTURE) is None
    assert heard.requests == []


# Tools on the wire.

TOOLS: list[WireMessage] = [
    {"type": "function", "function": {"name": "look", "description": "looks", "parameters": {"type": "object"}}}
]


async def sent(name: str, request: Request) -> Any:  # noqa: ANN401  JSON
    """The body of a chat, which the server then refuses."""
    known = RUNTIMES[name]
    about = {load(each)["request"]["path"]: each for each in known.about}

    def answer(request: httpx.Request) -> httpx.Response:
        path = request.url.path
        return httpx.Response(200, json=body(about[path])) if path in about else httpx.Response(500, json={})

    heard = Heard(httpx.MockTransport(answer))
    runtime = known.make(heard)
    async with aclosing(runtime.chat(request)) as pieces:
        with pytest.raises(LocalctxError):
            await anext(pieces)
    (chat,) = [json.loads(each.content) for each in heard.requests if each.url.path == known.path]
    return chat


@every
async def test_tools_go_on_the_wire_where_there_are_any(name: str) -> None:
    messages: list[WireMessage] = [{"role": "user", "content": "Look."}]
    plain = await sent(name, Request(messages, 8))
    with_tools = await sent(name, Request(messages, 8, TOOLS))
    assert "tools" not in plain
    assert with_tools == plain | {"tools": TOOLS}
    assert with_tools["messages"] == messages


# Where prompts are cut.

CUTS: dict[str, dict[int, tuple[int, ...]]] = {
    "llama-server": {512: (), 4096: ()},
    "embedded": {512: (), 8192: ()},
    "vllm": {2048: ()},
    "vllm-router": {2048: ()},
    "sglang": {299: (294,), 2047: (2042,)},
    "ollama": {
        512: (258, 259, 512),
        1000: (502, 503, 1000),
        4096: (2050, 2051, 4096),
        65_536: (32_770, 32_771, 65_536),
    },
    "lmstudio": {4096: (2050, 2051, 4096)},
    "openai": {4096: (2050, 2051, 4096)},
}


@pytest.mark.parametrize("name", CUTS)
async def test_it_is_known_where_a_server_cuts(name: str) -> None:
    runtime = RUNTIMES[name].make(transport("40-404"))
    assert {window: runtime.cut_points(window) for window in CUTS[name]} == CUTS[name]


@pytest.mark.parametrize(
    ("name", "window", "recorded"),
    [
        ("ollama", 512, f"{OLLAMA}/66-chat-one-long-message"),
        ("openai", 4096, f"{OLLAMA}/106-v1-long"),
        ("sglang", 299, f"{SGLANG}/61-chat-prompt-500-autotruncate"),
    ],
)
async def test_what_real_servers_cut_to_is_a_cut_point(name: str, window: int, recorded: str) -> None:
    said = body(recorded)
    left = said["prompt_eval_count"] if "prompt_eval_count" in said else said["usage"]["prompt_tokens"]
    assert left in RUNTIMES[name].make(transport("40-404")).cut_points(window)


@every
@pytest.mark.parametrize("window", [1, 2, 4, 5, 6, 511, 8191, 1_048_576])
async def test_a_cut_point_is_a_size_that_a_prompt_can_have(name: str, window: int) -> None:
    cuts = RUNTIMES[name].make(transport("40-404")).cut_points(window)
    assert all(1 <= cut <= window for cut in cuts)
    assert all(one < other for one, other in pairwise(cuts))
