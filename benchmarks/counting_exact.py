"""Whether exact counters are exact: against the prompt tokens that a real server reports of the same conversations."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import anyio

from localctx.app.bench.asking import asked
from localctx.app.bench.corpus import conversations
from localctx.errors import LocalctxError
from localctx.hardware import gguf as files
from localctx.hardware.machine import worker_threads
from localctx.ports import Request
from localctx.runtimes import embedded
from localctx.runtimes.llama_server import LlamaServer
from localctx.tokenizers import gguf
from localctx.tokenizers.chat_template import render

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from localctx.app.bench.corpus import Conversation
    from localctx.core.vocabulary import Vocabulary
    from localctx.ports import Tokenizer

__all__ = ["conversations_of"]

_WINDOW = 8_192
_MOST = 1_500
"""Prompts that are longer are left out: each is prefilled, and that takes minutes on a CPU."""


def conversations_of(given: Mapping[str, Path], *, count: int) -> Iterator[dict[str, object]]:
    """For each model how many conversations were sent, and how many each counter gave exactly as they were reported."""
    for name, path in given.items():
        yield from anyio.run(_compared, name, path, count)


async def _compared(name: str, path: Path, count: int) -> list[dict[str, object]]:
    server = await embedded.start(path, name=name, window=_WINDOW, threads=worker_threads())
    new, old = (LlamaServer(server.url, key=server.key) for _ in range(2))
    old._missing.add("/v1/chat/completions/input_tokens")  # noqa: SLF001  as an older server
    vocabulary = files.vocabulary(path)
    here = gguf.tokenizer(vocabulary) if vocabulary else None
    found: dict[str, list[int]] = {"server's count": [], "template and /tokenize": [], "GGUF vocabulary": []}
    sent, tokens = 0, 0
    try:
        for conversation in _varied():
            if sent == count:
                break
            messages, tools = list(conversation.messages), list(conversation.tools)
            counted = await new.count(messages, tools)
            if counted is None or counted.tokens > _MOST or not await _takes(new, conversation):
                continue
            reported = await _reported(new, conversation)
            sent, tokens = sent + 1, tokens + reported
            if sent % 20 == 0:
                print(f"{name}: {sent} of {count} conversations", file=sys.stderr, flush=True)  # noqa: T201  progress
            found["server's count"].append(counted.tokens - reported)
            rendered = await old.count(messages, tools)
            found["template and /tokenize"].append(rendered.tokens - reported if rendered else reported)
            local = _local(vocabulary, here, conversation)
            if local is not None:
                found["GGUF vocabulary"].append(local - reported)
    finally:
        await new.close()
        await old.close()
        server.stop()
    return [_row(name, counter, errors, tokens) for counter, errors in found.items()]


def _varied() -> Iterator[Conversation]:
    """Lists of all kinds, in turn with such as any template takes."""
    free, strict = conversations(1_000, 1), conversations(1_000, 2, strict=True)
    for pair in zip(free, strict, strict=True):
        yield from pair


def _row(name: str, counter: str, errors: list[int], tokens: int) -> dict[str, object]:
    return {
        "model": name,
        "counter": counter,
        "conversations": len(errors),
        "prompt tokens": f"{tokens:,}",
        "wrong": sum(error != 0 for error in errors),
        "largest error": max(map(abs, errors), default=0),
    }


async def _takes(server: LlamaServer, conversation: Conversation) -> bool:
    """Whether the template takes the list at all."""
    try:
        await _reported(server, conversation)
    except LocalctxError:
        return False
    return True


async def _reported(server: LlamaServer, conversation: Conversation) -> int:
    """The prompt tokens of a reply of one token."""
    request = Request(list(conversation.messages), 1, list(conversation.tools), temperature=0.0)
    return (await asked(server, request)).usage.prompt or 0


def _local(vocabulary: Vocabulary | None, tokenizer: Tokenizer | None, conversation: Conversation) -> int | None:
    """The tokens by the file alone."""
    if vocabulary is None or tokenizer is None:
        return None
    template = vocabulary.chat_template(tools=bool(conversation.tools))
    prompt = render(template, conversation.messages, conversation.tools, bos=vocabulary.bos, eos=vocabulary.eos)
    return None if prompt is None else tokenizer.rendered(prompt)
