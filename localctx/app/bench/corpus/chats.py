"""Conversations in the OpenAI dialect, varied enough to find where a renderer or a counter is not exact."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING, TypeAlias

from localctx.app.bench.corpus.kinds import KINDS, sample
from localctx.app.bench.corpus.passages import LANGUAGES
from localctx.app.bench.corpus.toolbox import TOOLS, Tool, arguments, result, schema

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

__all__ = ["Conversation", "Message", "conversations"]

Message: TypeAlias = "dict[str, object]"

_KINDS = (*("english",) * 30, *LANGUAGES, *("code-python", "json", "markdown", "log", "chinese-simplified") * 4, *KINDS)
"""What messages are about: English first, then code and CJK, and something of everything."""

_FENCES = {"code-python": "python", "code-c": "c", "code-javascript": "js", "code-rust": "rust", "json": "json"}


@dataclass(frozen=True, slots=True)
class Conversation:
    """Messages and tools of one request, as they go on the wire."""

    messages: tuple[Message, ...]
    tools: tuple[Message, ...]


def conversations(count: int, seed: int, *, strict: bool = False) -> list[Conversation]:
    """So many conversations, no two the same; the first ones do not depend on how many are asked for.

    Each is one that strict servers take: roles in order, every call answered. With `strict` there are no tools and no
    tool results either, and user and assistant alternate behind an optional system message, for templates that refuse
    anything else.
    """
    sources = (Random(f"conversation {seed} {index} {strict}") for index in range(count))  # noqa: S311  as in sample
    return [_conversation(rng, strict=strict) for rng in sources]


def _conversation(rng: Random, *, strict: bool) -> Conversation:
    tools = () if strict or rng.random() < 0.4 else tuple(rng.sample(TOOLS, rng.randint(1, len(TOOLS))))  # noqa: PLR2004
    messages = [*_system(rng)]
    turns = rng.choice((1, 1, 1, 2, 2, 3, 4, 7, 15))
    for turn in range(turns):
        messages.append({"role": "user", "content": _content(rng)})
        messages += _answer(rng, tools, last=turn == turns - 1)
    return Conversation(tuple(messages), tuple(schema(tool) for tool in tools))


def _system(rng: Random) -> Iterator[Message]:
    if rng.random() < 0.5:  # noqa: PLR2004  half of them have one
        yield {"role": "system", "content": _text(rng, rng.choice((40, 200, 1500)))}


def _content(rng: Random) -> object:
    """What a user says: text, parts of text (an image told in words among them), or nothing."""
    form = rng.choice((*("text",) * 12, "parts", "parts", "empty"))
    if form == "empty":
        return ""
    if form == "text":
        return _text(rng)
    parts = [_text(rng) for _ in range(rng.randint(1, 2))]
    parts.insert(rng.randint(0, 1), f"[image: {_text(rng, 40)}]")
    return [{"type": "text", "text": part} for part in parts]


def _text(rng: Random, size: int = 0) -> str:
    """Text of a kind by chance, mostly short, code between fences now and then, spaces at its ends as they fall."""
    kind = rng.choice(_KINDS)
    about = size or rng.choice((8, 30, 30, 80, 80, 200, 200, 600, 2000))
    text = sample(kind, rng.randint(about // 2, about + about // 2), rng.getrandbits(32))
    if kind in _FENCES and rng.choice((True, False)):
        return f"{sample('english', 60, rng.getrandbits(32))}\n\n```{_FENCES[kind]}\n{text}\n```"
    return text if rng.choice((True, False)) else text.strip()


def _answer(rng: Random, tools: Sequence[Tool], *, last: bool) -> list[Message]:
    """What follows a user's message: rounds of calls and results, and what is said in the end, if not cut off there."""
    rounds = rng.choice((0, 1, 1, 2, 3, 6)) if tools else 0
    messages = [message for _ in range(rounds) for message in _round(rng, tools)]
    if last and rng.random() < 0.7:  # noqa: PLR2004  most requests end with what a model has to answer
        return messages
    return [*messages, {"role": "assistant", "content": _text(rng), **_reasoning(rng)}]


def _round(rng: Random, tools: Sequence[Tool]) -> Iterator[Message]:
    called = [rng.choice(tools) for _ in range(rng.choice((1, 1, 1, 2, 3)))]
    ids = [_call_id(rng) for _ in called]
    calls = [_call(name, tool, rng) for name, tool in zip(ids, called, strict=True)]
    content = rng.choice((None, None, "", _text(rng, 60)))
    yield {"role": "assistant", "content": content, **_reasoning(rng), "tool_calls": calls}
    for name, tool in zip(ids, called, strict=True):
        yield {"role": "tool", "tool_call_id": name, "content": result(tool, rng)}


def _call(name: str, tool: Tool, rng: Random) -> Message:
    return {"id": name, "type": "function", "function": {"name": tool.name, "arguments": arguments(tool, rng)}}


def _call_id(rng: Random) -> str:
    """An id as servers make them up: with a prefix, nine letters and digits, or a plain hexadecimal one."""
    bits = f"{rng.getrandbits(128):032x}"
    return rng.choice((f"call_{bits[:24]}", f"chatcmpl-tool-{bits}", bits[:9], bits))


def _reasoning(rng: Random) -> Message:
    return {"reasoning_content": _text(rng, 120)} if rng.random() < 0.2 else {}  # noqa: PLR2004  a share of the replies
