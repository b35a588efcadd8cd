"""Conversations from a script: a model in this process says its lines, and what it was sent is kept and counted exactly."""

from __future__ import annotations

import re
from collections import deque
from contextlib import aclosing
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import count, takewhile
from json import dumps
from typing import TYPE_CHECKING

from localctx.app.bench.script import Reply
from localctx.app.chat import Chat
from localctx.app.tools.record import Recall, Retrieve, UpdateWorkState
from localctx.core.accounting import Count, Usage
from localctx.core.messages import ToolCall
from localctx.core.portions import portions, schema_text
from localctx.core.window import ModelReport, Reading, ServerReport, Source, Status, reconcile
from localctx.errors import DoesNotFit, MissingExtra, PromptRefused
from localctx.ports import Delta, Finished, Outcome, Request
from localctx.stores.journal import MemoryJournal
from localctx.stores.recall import RecallIndex
from localctx.tokenizers import tiktoken
from localctx.tokenizers.estimate import ClassEstimate

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Mapping, Sequence

    from localctx.app.bench.script import Turn
    from localctx.core.events import Event
    from localctx.core.ladder import Policy
    from localctx.core.outgoing import WireMessage
    from localctx.ports import Piece, Runtime, Tool

__all__ = ["TOOLS", "Play", "Script", "Sent", "staged", "tokens"]


@dataclass(frozen=True, slots=True)
class Sent:
    """A request, the tokens of its prompt, and how many of those did not begin the request before as well."""

    request: Request
    prompt: int
    prefilled: int


class Script:
    """A runtime with a window and a prefix cache for one request, which refuses a prompt that is too long.

    Summaries come from `writer`, which then counts as well, or are made of sentences of the conversation.
    """

    kind, url = "script", "in this process"

    def __init__(self, window: int, writer: Runtime | None = None) -> None:
        self.window, self.lines, self.results, self.sent = window, deque[Reply](), deque[str](), list[Sent]()
        self._writer, self._before, self._numbers = writer, list[int](), count(1)

    @property
    def model(self) -> ModelReport:
        """What it serves."""
        window = reconcile([Reading(Source.SERVED, self.window, "the script")])
        return ModelReport("script", loaded=True, window=window, calls_tools=True)

    async def probe(self) -> ServerReport:
        """What it serves, as a server says it."""
        return ServerReport(self.kind, self.url, Status.UP, models=(self.model,))

    async def count(self, messages: Sequence[WireMessage], tools: Sequence[WireMessage] = ()) -> Count:
        """The tokens of a request."""
        counted = await self._writer.count(messages, tools) if self._writer else None
        return counted or Count(len(tokens(messages, tools)), 0, "script")

    async def size(self, text: str) -> Count:
        """The tokens of a text."""
        return Count(len(_ids(text)), 0, "script")

    def cut_points(self, window: int) -> tuple[int, ...]:  # noqa: ARG002  the port's signature
        """None: it refuses."""
        return ()

    async def chat(self, request: Request) -> AsyncGenerator[Piece, None]:
        """Says the next line, or writes notes where an outline asks for them."""
        sent = await self._taken(request)
        if sent.prompt >= self.window:
            raise PromptRefused(f"{sent.prompt:,} tokens exceed {self.window:,}", self.window, sent.prompt)
        if request.outline is not None and self._writer:
            async with aclosing(self._writer.chat(request)) as pieces:
                async for piece in pieces:
                    yield piece
            return
        reply = Reply(_notes(request)) if request.outline is not None else self.lines.popleft()
        self.results.extend(call.result for call in reply.calls)
        calls = tuple(ToolCall(f"call_{next(self._numbers)}", c.tool, _json(c.arguments)) for c in reply.calls)
        written = len(_ids(reply.text)) + sum(len(_ids(call.arguments)) for call in calls)
        yield Delta(reply.text)
        yield Finished("tool_calls" if calls else "stop", Usage(sent.prompt, written), bool(calls), calls)

    async def _taken(self, request: Request) -> Sent:
        prompt = tokens(request.messages, request.tools)
        pairs = zip(prompt, self._before, strict=False)
        shared = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))
        self._before = prompt
        counted = await self.count(request.messages, request.tools)
        self.sent.append(Sent(request, counted.tokens, len(prompt) - shared))
        return self.sent[-1]

    async def close(self) -> None:
        """Nothing is open."""


def tokens(messages: Sequence[WireMessage], tools: Sequence[WireMessage] = ()) -> list[int]:
    """A prompt: the tools, each message between marks, and the mark that asks for the answer; in cl100k."""
    prompt = [token for tool in tools for token in _ids(schema_text(tool))]
    for message in messages:
        body = " ".join(portion.text for portion in portions(message))
        prompt += (_BEGIN, *_ids(str(message["role"])), *_ids(body), _END)
    return [*prompt, _BEGIN, *_ids("assistant")]


_BEGIN, _END = -1, -2


@lru_cache(maxsize=65_536)
def _ids(text: str) -> tuple[int, ...]:
    encoding = tiktoken.encoding("cl100k_base")
    if encoding is None:
        raise MissingExtra("bench", "'localctx[bench]'", "this benchmark")
    return tuple(encoding._encoding.encode_ordinary(text))  # noqa: SLF001  what begins a prompt can only be seen in its ids


def _json(value: object) -> str:
    return dumps(value, ensure_ascii=False)


_SENTENCE = re.compile(r"\b[A-Z][a-z ,]+ [^.!?\n]{10,140}[.!?](?=\s)")
_RULE = re.compile(r"\b(?:never|always|must|from now on)\b", re.IGNORECASE)


def _notes(request: Request) -> str:
    """The goal, the rules and the newest of what else was said, as a model writes them that copies whole sentences."""
    said = "\n".join(str(message.get("content") or "") for message in request.messages if message["role"] != "tool")
    found = list(dict.fromkeys(_SENTENCE.findall(said.rpartition("Before we go on")[0] + "\n")))
    rules = [each for each in found if _RULE.search(each)]
    others = [each for each in found[1:] if each not in rules]
    sections = {"Goal": found[:1], "Constraints & Preferences": rules, "Done": others[-6:-1], "Next Steps": others[-1:]}
    return "\n".join(f"## {title}\n" + "".join(f"- {each}\n" for each in items) for title, items in sections.items())


@dataclass(slots=True)
class Play:
    """A chat with a script, its journal, and what happened; `refused` are the turns that did not fit the window."""

    server: Script
    chat: Chat
    journal: MemoryJournal
    recall: Recall
    events: list[Event] = field(default_factory=list)
    refused: int = 0

    async def turn(self, turn: Turn) -> None:
        """Plays one turn."""
        self.server.lines, self.server.results = deque(turn.replies), deque()
        try:
            await self.chat.ask(turn.asked)
        except DoesNotFit:
            self.refused += 1


def staged(server: Script, policy: Policy, *, alone: bool, system: str) -> Play:
    """A chat with the script, offered the session's tools and those of `TOOLS`; `alone` asks no model for summaries."""
    journal = MemoryJournal()
    events: list[Event] = []
    chat = Chat(
        server, server.model, journal=journal, counter=ClassEstimate(), policy=policy, emit=events.append, system=system
    )
    if alone:
        chat.engine.runtime = None
    session = chat.session
    recall = Recall(session, RecallIndex(None), chat.fit)
    own: list[Tool] = [Retrieve(session, chat.fit), recall, UpdateWorkState(session)]
    chat.offer([*own, *(_Scripted(name, server) for name in TOOLS)])
    return Play(server, chat, journal, recall, events)


TOOLS: Mapping[str, tuple[str, ...]] = {
    "read_file": ("path",),
    "write_file": ("path", "content"),
    "bash": ("command",),
    "query": ("table",),
}
"""The tools of the scripts, with their parameters."""


@dataclass(frozen=True, slots=True)
class _Scripted:
    """A tool that returns what the script says."""

    name: str
    server: Script

    @property
    def schema(self) -> WireMessage:
        parameters = {"type": "object", "properties": {name: {"type": "string"} for name in TOOLS[self.name]}}
        return {"type": "function", "function": {"name": self.name, "parameters": parameters}}

    async def run(self, arguments: Mapping[str, object]) -> Outcome:  # noqa: ARG002  the script knows them
        return Outcome(self.server.results.popleft())
