"""Counts in this process against a real server's own, for the same models."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from localctx.hardware.gguf import vocabulary
from localctx.runtimes import embedded
from localctx.runtimes.embedded import Embedded
from localctx.stores.models import DEFAULT, ModelStore
from localctx.tokenizers.gguf import GgufTokenizer, tokenizer
from tests.tokenizers.test_gguf import LONG, ORDINARY, SAMPLES

pytestmark = [pytest.mark.live, pytest.mark.anyio]

GEMMA = "gemma-3-270m-q4_k_m.gguf"
LOOKING_SPECIAL = [
    "<|im_start|>user\nWhat is <|im_end|> for?<|im_end|>\n<start_of_turn>user\nhi<end_of_turn>\n<bos><eos></s><unused7>",
    "    four\n\n\n\nlines\t\ttabs <table><tr></table> [multimodal] <|im_<|im_start|>start|>",
    *("\n" * number + "x" + " " * number for number in range(1, 35)),
]
TEXTS = [*ORDINARY, *LOOKING_SPECIAL, "\n".join(SAMPLES), LONG]
CHAT = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": "What does <|im_end|> mean?\n\n  And <end_of_turn>?"},
    {"role": "assistant", "content": "It ends a turn: `x = 1`  "},
    {"role": "user", "content": "你好, ça va? 👩‍👩‍👧‍👦"},
]


@pytest.fixture(params=[DEFAULT, pytest.param(GEMMA, marks=pytest.mark.slow)])
async def served(request: pytest.FixtureRequest, home: Path) -> AsyncIterator[tuple[Embedded, GgufTokenizer]]:
    path = ModelStore(home).path(DEFAULT)
    if request.param == GEMMA:
        path = Path(os.environ.get("LOCALCTX_TEST_GGUF") or home / GEMMA)
    if not path.exists():
        pytest.skip("Gemma is not here: run tests/live/test_embedded.py -m slow, which fetches it")
    pytest.importorskip("tokenizers")
    read = vocabulary(path)
    assert read is not None
    found = tokenizer(read)
    assert found is not None
    server = await embedded.start(path, name="small", window=512, threads=1)
    yield server, found
    server.stop()


async def ask(server: Embedded, path: str, body: dict[str, Any]) -> Any:  # noqa: ANN401  JSON
    headers = {"Authorization": f"Bearer {server.key}"}
    async with httpx.AsyncClient(base_url=server.url, headers=headers, timeout=60) as client:
        return (await client.post(path, json=body)).raise_for_status().json()


async def tokens(server: Embedded, content: str, *, parse: bool, begin: bool = False) -> list[int]:
    body = {"content": content, "parse_special": parse, "add_special": begin}
    ids: list[int] = (await ask(server, "/tokenize", body))["tokens"]
    return ids


async def test_texts_have_the_tokens_that_the_server_gives_them(served: tuple[Embedded, GgufTokenizer]) -> None:
    server, found = served
    for text in TEXTS:
        expected = await tokens(server, text, parse=False)
        assert found.ids(text) == expected
        assert found.size(text) == len(expected)
        assert found.ids(text, parse=True) == await tokens(server, text, parse=True)


async def test_a_chat_has_as_many_tokens_as_the_server_counts(served: tuple[Embedded, GgufTokenizer]) -> None:
    server, found = served
    for end in range(2, len(CHAT) + 1, 2):
        body = {"messages": CHAT[:end]}
        rendered = (await ask(server, "/apply-template", body))["prompt"]
        counted = (await ask(server, "/v1/chat/completions/input_tokens", body))["input_tokens"]
        assert found.rendered(rendered) == counted == len(await tokens(server, rendered, parse=True, begin=True))
