"""What a summary costs that is asked for in place, beside one apart; and the request after a compaction, warmed and cold.

Measured on real servers in this process, by their own reports. A summary is cut off at 64 tokens, so that both write as
much.
"""

from __future__ import annotations

from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from itertools import count
from typing import TYPE_CHECKING

import anyio

from localctx.app.bench.asking import Watched, asked
from localctx.app.bench.corpus import sample
from localctx.app.chat import Chat, Wishes
from localctx.app.summary import Summarizer
from localctx.core import journal as lines
from localctx.core.checkpoint import summary_cap
from localctx.core.ladder import POLICIES
from localctx.core.outgoing import outgoing
from localctx.hardware.machine import worker_threads
from localctx.runtimes import embedded
from localctx.runtimes.llama_server import LlamaServer
from localctx.stores.journal import MemoryJournal
from localctx.tokenizers.estimate import ClassEstimate

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator, Iterator, Mapping
    from pathlib import Path

    from localctx.app.bench.asking import Took
    from localctx.core.messages import History
    from localctx.core.outgoing import WireMessage
    from localctx.ports import Piece, Request, Runtime

__all__ = ["placed"]

_SHARE, _WRITTEN = 0.73, 64
"""How much of the window the history takes: 6,000 tokens of 8,192, too few for a compaction to be due."""


class _Brief(Watched):
    """A server whose replies are cut off at 64 tokens, and the newest request to it."""

    sent: Request

    def chat(self, request: Request) -> AsyncGenerator[Piece, None]:
        """Streams a reply, and keeps what it took."""
        self.sent = replace(request, max_tokens=min(request.max_tokens, _WRITTEN))
        return super().chat(self.sent)


def placed(given: Mapping[str, Path], *, window: int = 8_192) -> Iterator[dict[str, object]]:
    """For each model the four requests about one history, and what they take beside the dearer one of its pair."""
    for name, path in given.items():
        found = anyio.run(_measured, path, window)
        for request, beside in (("in place", "apart"), ("apart", "apart"), ("warmed", "cold"), ("cold", "cold")):
            yield {"model": name, "request": request, **_row(found[request], found[beside].took)}


@dataclass(frozen=True, slots=True)
class _Asked:
    """What a request took, and how many of its tokens the server cannot have seen before."""

    took: Took
    new: int


def _row(request: _Asked, beside: Took) -> dict[str, object]:
    took = request.took
    return {
        "prompt": took.usage.prompt,
        "not seen before": request.new,
        "prefilled": took.prefilled,
        "share": f"{(took.prefilled or 0) / (beside.prefilled or 1):.1%}",
        "prefill, s": took.reading,
        "share of it": f"{took.reading / beside.reading:.1%}",
        "written": took.usage.completion,
        "in all, s": took.seconds,
        "share of all": f"{took.seconds / beside.seconds:.1%}",
    }


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
        warmed, again = server.took[-1], server.sent
        found["warmed"] = _Asked(warmed, (warmed.usage.prompt or 0) - prefix)
        found["apart"] = await _summed(server, summarizer, history, None, 0)
        found["cold"] = _Asked(await asked(other, again), warmed.usage.prompt or 0)
        return found


@asynccontextmanager
async def _serving(path: Path, window: int) -> AsyncIterator[_Brief]:
    started = await embedded.start(path, name=path.stem, window=window, threads=worker_threads())
    server = _Brief(LlamaServer(started.url, key=started.key))
    try:
        yield server
    finally:
        await server.close()
        started.stop()


async def _long(server: Runtime, tokens: int) -> Chat:
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
    server: Watched, summarizer: Summarizer, history: History, source: History | None, seen: int
) -> _Asked:
    """What one summary took, of whose prompt the server has seen so many tokens."""
    before = len(server.took)
    await summarizer.notes(history, source)
    took = server.took[before]  # what is cut off is asked for once more
    return _Asked(took, (took.usage.prompt or 0) - seen)


async def _counted(server: Runtime, messages: list[WireMessage]) -> int:
    counted = await server.count(messages)
    return counted.tokens if counted else 0
