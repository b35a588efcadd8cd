"""Counts and sizes against real servers: what is counted in one way, in another, and billed, is the same number."""

from __future__ import annotations

import json
import random
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

import pytest

from localctx.ports import Finished, Request
from localctx.runtimes import embedded, llama_server
from localctx.runtimes.llama_server import LlamaServer
from localctx.runtimes.pieces import pieces
from localctx.stores.models import DEFAULT, ModelStore
from tests.live.test_fit import OUTSIDE, attention, common, write

if TYPE_CHECKING:
    from localctx.core.outgoing import WireMessage

pytestmark = [pytest.mark.live, pytest.mark.anyio]

SERVER = """
import sys, time, xllamacpp
params = xllamacpp.CommonParams()
params.model.path, params.n_ctx, params.n_parallel, params.fit_params = sys.argv[1], 4096, 1, False
params.chat_template, params.use_jinja, params.verbosity = sys.argv[2], True, 0
params.hostnames, params.port, params.cpuparams.n_threads = ["127.0.0.1"], 0, 1
server = xllamacpp.Server(params)
print(server.listening_address, flush=True)
time.sleep(300)
"""

TEMPLATE = """
{%- if tools %}{{ '<|im_start|>system\\n' }}{% for tool in tools %}{{ tool | tojson }}{{ '\\n' }}{% endfor %}{{ '<|im_end|>\\n' }}{% endif %}
{%- for message in messages %}{{ '<|im_start|>' + message.role + '\\n' }}
{%- if message.content %}{{ message.content }}{% endif %}
{%- for call in message.tool_calls or [] %}{{ call | tojson }}{% endfor %}{{ '<|im_end|>\\n' }}{% endfor %}
{%- if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"""
"""The template of the default model drops tools; this one does not."""


@contextmanager
def serving(path: Path, template: str = "") -> Iterator[str]:
    with subprocess.Popen(
        [sys.executable, "-c", SERVER, str(path), template], stdout=subprocess.PIPE, text=True
    ) as server:
        assert server.stdout is not None
        try:
            yield server.stdout.readline().strip()
        finally:
            server.kill()


@asynccontextmanager
async def talking(url: str, key: str | None = None, *, old: bool = False) -> AsyncIterator[LlamaServer]:
    server = LlamaServer(url, key=key)
    if old:
        server._missing.add(llama_server._COUNT)
    try:
        yield server
    finally:
        await server.close()


# Conversations.

TOOLS: list[WireMessage] = [
    {
        "type": "function",
        "function": {
            "name": "read_file",
            "description": 'Reads a file; "start" and "end" are lines.\nReturns its text.',
            "parameters": {
                "type": "object",
                "properties": {"path": {"type": "string"}, "start": {"type": "integer"}, "end": {"type": "integer"}},
                "required": ["path"],
            },
        },
    },
    {"type": "function", "function": {"name": "now", "description": "Zeit ⏱", "parameters": {"type": "object"}}},
]
CALLS = [
    {
        "id": f"call_{path}",
        "type": "function",
        "function": {"name": "read_file", "arguments": json.dumps({"path": path})},
    }
    for path in ("a.txt", "b.py")
]


def user(text: object) -> WireMessage:
    return {"role": "user", "content": text}


Conversation: TypeAlias = "tuple[list[WireMessage], list[WireMessage]]"

CONVERSATIONS: dict[str, Conversation] = {
    "a greeting": ([user("Say hello.")], []),
    "a system prompt": ([{"role": "system", "content": "You are terse."}, user("Say hello.")], []),
    "tools": ([user("What is in a.txt?")], TOOLS),
    "tools and a system prompt": ([{"role": "system", "content": "Be brief."}, user("Which time is it?")], TOOLS),
    "parallel calls and their results": (
        [
            user("Compare them."),
            {"role": "assistant", "content": "", "tool_calls": CALLS},
            {"role": "tool", "tool_call_id": "call_a.txt", "content": '{"text": "alpha\\nbeta"}'},
            {"role": "tool", "tool_call_id": "call_b.py", "content": "def f(x):\n\treturn x  # ß"},
            {"role": "assistant", "content": "They differ."},
            user("How?"),
        ],
        TOOLS,
    ),
    "many turns": (
        [
            {"role": ("user", "assistant")[turn % 2], "content": f"Turn {turn}: {turn * turn} and no more."}
            for turn in range(31)
        ],
        [],
    ),
    "other scripts": ([user("Ünïcödé, 日本語、中文。 عربى हिन्दी 🙂🙂\u200d👩\u200d🔬 e\u0301")], TOOLS),
    "what looks like special tokens": ([user("<|im_end|>\n<|im_start|>system\nhi <s></s> <bos> [INST]")], []),
    "content in parts": ([user([{"type": "text", "text": "one "}, {"type": "text", "text": "two"}])], []),
    "spaces": ([user("  a  b\n\n\n\tc   \r\n d \n")], []),
    "code": ([user("```python\n" + "for i in range(10):\n    print(i, end='')\n" * 40 + "```")], TOOLS),
    "json": ([user(json.dumps(TOOLS, indent=2) * 3)], TOOLS),
    "nothing": ([user("")], []),
}


@pytest.fixture(scope="module")
def url(home: Path) -> Iterator[str]:
    with serving(ModelStore(home).path(DEFAULT), TEMPLATE) as address:
        yield address


async def billed(server: LlamaServer, conversation: Conversation) -> int | None:
    messages, tools = conversation
    (*_, end) = [piece async for piece in server.chat(Request(messages, 1, tools))]
    assert isinstance(end, Finished)
    return end.usage.prompt


@pytest.mark.parametrize("name", CONVERSATIONS)
async def test_a_count_is_the_same_whoever_makes_it(url: str, name: str) -> None:
    messages, tools = CONVERSATIONS[name]
    async with talking(url) as server, talking(url, old=True) as older:
        asked, rendered = await server.count(messages, tools), await older.count(messages, tools)
        assert asked is not None
        assert rendered is not None
        assert asked.how != rendered.how
        assert asked.tokens == rendered.tokens == await billed(server, CONVERSATIONS[name])
        if tools:
            without = await server.count(messages)
            assert without is not None
            assert without.tokens < asked.tokens


async def test_a_prompt_of_many_pieces_counts_the_same(url: str) -> None:
    messages = [user(f"{number}. " + TEXTS["prose"][:7000]) for number in range(6)]
    async with talking(url) as server, talking(url, old=True) as older:
        asked, rendered = await server.count(messages, TOOLS), await older.count(messages, TOOLS)
    assert asked is not None
    assert rendered is not None
    assert asked.tokens == rendered.tokens > 4096, "what is too long is counted as well"


async def test_the_embedded_server_counts_what_it_bills(home: Path) -> None:
    inside = await embedded.start(ModelStore(home).path(DEFAULT), name="small", window=2048, threads=1)
    try:
        async with talking(inside.url, inside.key) as server, talking(inside.url, inside.key, old=True) as older:
            for name in ("a greeting", "tools", "other scripts"):
                asked, rendered = await server.count(*CONVERSATIONS[name]), await older.count(*CONVERSATIONS[name])
                assert asked is not None
                assert rendered is not None
                assert asked.tokens == rendered.tokens == await billed(server, CONVERSATIONS[name])
    finally:
        inside.stop()


# Sizes.


def made(*snippets: str, length: int = 90_000) -> str:
    choice, found = random.Random(7), ""  # noqa: S311  a text, no secret
    while len(found) < length:
        found += "".join(choice.choices(snippets, k=500))
    return found


WORDS = ("the", " river", " and", " a", " Stone", "wall", ", ", ". ", "\n", " don't", " 1984", " naïve", " of")
TEXTS = {
    "prose": made(*WORDS),
    "code": made(
        "def f", "(x):", "\n    ", "return", " x", " + ", "1", "\n\n", "# ", "note ", "self", ".", "_y", "\t", "//\n"
    ),
    "json": json.dumps(
        [{"id": number, "name": f"thing {number}", "ok": number % 3 == 0} for number in range(2000)], indent=1
    ),
    "log": "\n".join(
        f"2026-11-30 08:{number % 60:02} INFO [w{number % 7}] took {number * 7} ms" for number in range(2000)
    ),
    "numbers": made("1", "23", "456", ",", "\n"),
    "no spaces": made("的", "一", "是", "在", "不", "了", "、", "。", "。\n", "人"),
    "anything": made(
        *WORDS, "日本", "🙂", "\r\n", "  ", "\n\n", "</td>", "<|im_end|>", "'s", "e\u0301", "\u00a0", "{", '"'
    ),
}


async def same(server: LlamaServer, text: str) -> None:
    size = await server.size(text)
    assert size is not None
    assert size.tokens == await server._tokenize(text, special=False)
    assert len(pieces(text) or ()) > 3, "it was counted in pieces"


@pytest.mark.parametrize("name", TEXTS)
async def test_the_pieces_of_a_text_add_up(url: str, name: str) -> None:
    async with talking(url) as server:
        await same(server, TEXTS[name])
        short = await server.size("<|im_start|>Hello")
        assert short is not None
        assert short.tokens == 8, "what looks like a special token is text"
        assert await server.size("x" * 200_000) is None


async def test_a_vocabulary_that_puts_a_space_in_front_adds_up(tmp_path: Path) -> None:
    """A model of zeros whose tokens are bytes: a space is three of them, and every text begins with one."""
    shapes = OUTSIDE | common(0) | attention(0, 2)
    path = write(tmp_path / "made.gguf", "llama", {"block_count": 1, "attention.head_count_kv": 2}, shapes)
    with serving(path) as address:
        async with talking(address) as server:
            assert await server._tokenize("a", special=False) == 4
            for text in TEXTS.values():
                await same(server, text[:60_000])
