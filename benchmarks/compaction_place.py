"""What a summary costs that is asked for in place, beside one apart; and the request after a compaction, warmed and cold.

Measured on real servers in this process, by their own reports. A summary is cut off at 64 tokens, so that both write as
much.
"""

from __future__ import annotations

from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass, replace
from itertools import count
from time import perf_counter
from typing import TYPE_CHECKING

import anyio

from localctx.app.bench.corpus import sample
from localctx.app.chat import Chat, Wishes
from localctx.app.summary import Summarizer
from localctx.core import journal as lines
from localctx.core.checkpoint import summary_cap
from localctx.core.ladder import POLICIES
from localctx.core.outgoing import outgoing
from localctx.hardware.machine import worker_threads
from localctx.ports import Finished
from localctx.runtimes import embedded
from localctx.runtimes.llama_server import LlamaServer
from localctx.stores.journal import MemoryJournal
from localctx.tokenizers.estimate import ClassEstimate

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator, Iterator, Mapping
    from pathlib import Path

    from localctx.core.accounting import Usage
    from localctx.core.messages import History
    from localctx.core.outgoing import WireMessage
    from localctx.ports import Piece, Request

__all__ = ["placed"]

_SHARE, _WRITTEN = 0.73, 64
"""How much of the window the history takes: 6,000 tokens of 8,192, too few for a compaction to be due."""


@dataclass(frozen=True, slots=True)
class _Took:
    """A request, what the server reported of it, and the seconds until its end."""

    request: Request
    usage: Usage
    seconds: float


class _Watched(LlamaServer):
    """A server whose replies are cut off at 64 tokens, and what each of them took."""

    def __init__(self, url: str, key: str) -> None:
        super().__init__(url, key=key)
        self.took = list[_Took]()

    async def chat(self, request: Request) -> AsyncGenerator[Piece, None]:
        """Streams a reply, and keeps what it took."""
        sent, started = replace(request, max_tokens=min(request.max_tokens, _WRITTEN)), perf_counter()
        async with aclosing(super().chat(sent)) as pieces:
            async for piece in pieces:
                if isinstance(piece, Finished):
                    self.took.append(_Took(sent, piece.usage, perf_counter() - started))
                yield piece


def placed(given: Mapping[str, Path], *, window: int = 8_192) -> Iterator[dict[str, object]]:
    """For each model the four requests about one history, and what they take beside the dearer one of its pair."""
    for name, path in given.items():
        found = anyio.run(_measured, path, window)
        for request, beside in (("in place", "apart"), ("apart", "apart"), ("warmed", "cold"), ("cold", "cold")):
            yield {"model": name, "request": request, **_row(found[request], found[beside].took)}


@dataclass(frozen=True, slots=True)
class _Asked:
    """What a request took, and how many of its tokens the server cannot have seen before."""

    took: _Took
    new: int


def _row(asked: _Asked, beside: _Took) -> dict[str, object]:
    usage, seconds = asked.took.usage, asked.took.usage.prefill_seconds or 0.0
    return {
        "prompt": usage.prompt,
        "not seen before": asked.new,
        "prefilled": _prefilled(usage),
        "share": f"{_prefilled(usage) / _prefilled(beside.usage):.1%}",
        "prefill, s": seconds,
        "share of it": f"{seconds / (beside.usage.prefill_seconds or seconds):.1%}",
        "written": usage.completion,
        "in all, s": asked.took.seconds,
        "share of all": f"{asked.took.seconds / beside.seconds:.1%}",
    }


def _prefilled(usage: Usage) -> int:
    return (usage.prompt or 0) - (usage.cached or 0)


async def _measured(path: Path, window: int) -> dict[str, _Asked]:
    """The requests, by name. The notes that are cut off are refused, so that the compaction goes by the record alone."""
    async with _serving(path, window) as server, _serving(path, window) as other:
        chat = await _long(server, int(window * _SHARE))
        await chat.ask("How did the story go on after that?")
        history, seen = chat.session.history, await _counted(server, outgoing(chat.session.history))
        budget = chat.engine.budget
        cap = summary_cap(budget.window)
        summarizer = Summarizer(
            server, chat.meter, budget, chat.meter.size, lambda _event: None, cap, chat.session.spent
        )
        found = {"in place": await _summed(server, summarizer, history, await summarizer.in_place(history), seen)}
        if not await chat.engine.compact():
            raise AssertionError("a history of this size can be compacted")
        await chat.idle()
        prefix = await _counted(server, outgoing(chat.session.history))
        await chat.ask("What was the weather like at the end of it?")
        warmed = server.took[-1]
        found["warmed"] = _Asked(warmed, (warmed.usage.prompt or 0) - prefix)
        found["apart"] = await _summed(server, summarizer, history, None, 0)
        async with aclosing(other.chat(warmed.request)) as pieces:
            async for _piece in pieces:
                pass
        found["cold"] = _Asked(other.took[-1], warmed.usage.prompt or 0)
        return found


@asynccontextmanager
async def _serving(path: Path, window: int) -> AsyncIterator[_Watched]:
    started = await embedded.start(path, name=path.stem, window=window, threads=worker_threads())
    server = _Watched(started.url, started.key)
    try:
        yield server
    finally:
        await server.close()
        started.stop()


async def _long(server: LlamaServer, tokens: int) -> Chat:
    """A chat with so many tokens behind it, of which the server has seen nothing."""
    journal, turns = MemoryJournal(), count()
    messages: list[WireMessage] = []
    while not messages or await _counted(server, messages) < tokens:
        turn = next(turns)
        asked = f"Tell me part {turn} of the story. {sample('english', 100, turn)}"
        for message in (
            {"role": "user", "content": asked},
            {"role": "assistant", "content": sample("english", 400, turn)},
        ):
            messages.append(dict(message))
            journal.append(*lines.message(messages[-1]))
    report = (await server.probe()).models[0]
    return Chat(
        server,
        report,
        journal=journal,
        counter=ClassEstimate(),
        policy=POLICIES["ladder"],
        emit=lambda _event: None,
        wishes=Wishes(max_tokens=_WRITTEN, temperature=0.0),
    )


async def _summed(
    server: _Watched, summarizer: Summarizer, history: History, source: History | None, seen: int
) -> _Asked:
    """What one summary took, of whose prompt the server has seen so many tokens."""
    before = len(server.took)
    await summarizer.notes(history, source)
    took = server.took[before]  # what is cut off is asked for once more
    return _Asked(took, (took.usage.prompt or 0) - seen)


async def _counted(server: LlamaServer, messages: list[WireMessage]) -> int:
    counted = await server.count(messages)
    return counted.tokens if counted else 0
