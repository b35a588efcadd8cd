"""One request to a server, and what it took."""

from __future__ import annotations

from contextlib import aclosing
from dataclasses import dataclass
from time import perf_counter
from typing import TYPE_CHECKING

from localctx.ports import Delta, Finished

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable

    from localctx.core.accounting import Usage
    from localctx.ports import Piece, Request, Runtime

__all__ = ["Took", "Watched", "asked"]


@dataclass(frozen=True, slots=True)
class Took:
    """What was written, what the server reported of it, and seconds on this side: to the first of it, and to the end.

    `reason` is the server's: `stop`, or `length` where it was cut off.
    """

    text: str
    usage: Usage
    first: float
    seconds: float
    reason: str = "stop"

    @property
    def prefilled(self) -> int | None:
        """The tokens of the prompt that were read for it; None where the server does not say."""
        prompt, cached = self.usage.prompt, self.usage.cached
        return None if prompt is None or cached is None else prompt - cached

    @property
    def reading(self) -> float:
        """The seconds of reading the prompt: as reported, else until the first of the reply came."""
        return self.usage.prefill_seconds or self.first


class Watched:
    """A runtime that keeps what its replies took."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime, self.kind, self.url, self.took = runtime, runtime.kind, runtime.url, list[Took]()
        self.probe, self.count, self.size = runtime.probe, runtime.count, runtime.size
        self.cut_points, self.close = runtime.cut_points, runtime.close

    def chat(self, request: Request) -> AsyncGenerator[Piece, None]:
        """Streams a reply, and notes what it took."""
        return _timed(self._runtime, request, self.took.append)


async def _timed(runtime: Runtime, request: Request, took: Callable[[Took], None]) -> AsyncGenerator[Piece, None]:
    """A reply as it comes; `took` is told of it before its last piece. Raises what `Runtime.chat` raises."""
    started, first, text = perf_counter(), 0.0, list[str]()
    async with aclosing(runtime.chat(request)) as pieces:
        async for piece in pieces:
            passed = perf_counter() - started
            match piece:
                case Delta():
                    first = first or passed
                    text.append(piece.text)
                case Finished(reason, usage):
                    took(Took("".join(text), usage, first or passed, passed, reason))
            yield piece


async def asked(runtime: Runtime, request: Request) -> Took:
    """Sends one request and waits for its end. Raises what `Runtime.chat` raises."""
    found = list[Took]()
    async with aclosing(_timed(runtime, request, found.append)) as pieces:
        async for _ in pieces:
            pass
    return found[0]
