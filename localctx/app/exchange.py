"""One request and its reply, as it comes."""

from __future__ import annotations

from contextlib import aclosing
from typing import TYPE_CHECKING

from localctx.app.patience import while_loading
from localctx.core.accounting import Usage, runs_on
from localctx.core.events import Drafting, Prefilling, Text, Thinking
from localctx.errors import ServerFailed, ServerLoading
from localctx.ports import Delta, Drafted, Finished, Prefilled

if TYPE_CHECKING:
    from collections.abc import Callable

    from localctx.core.events import Event
    from localctx.ports import Request, Runtime

__all__ = ["Exchange"]

AWAY_SECONDS = 30.0
"""How long a server that was there is waited for, as while it restarts."""


class Exchange:
    """The reply to one request, told to `emit` as it comes; `said` and `thought` hold what came, whatever happens."""

    def __init__(self, runtime: Runtime, emit: Callable[[Event], None]) -> None:
        self._runtime, self._emit = runtime, emit
        self._said, self._thought, self._deltas = list[str](), list[str](), 0

    @property
    def said(self) -> str:
        """The text so far."""
        return "".join(self._said)

    @property
    def thought(self) -> str:
        """The reasoning so far."""
        return "".join(self._thought)

    async def end(self, request: Request) -> Finished:
        """The end of the reply; waits for a model that is loading, but never repeats a stream that has begun.

        A reply that passes what it may take is ended here. Raises what `Runtime.chat` raises.
        """
        async for attempt in while_loading(self._runtime.url, self._emit, away_seconds=AWAY_SECONDS):
            with attempt:
                try:
                    return await self._once(request)
                except ServerLoading as error:
                    if self._deltas:
                        raise ServerFailed(f"{error} (in the middle of its reply, which is kept)") from error
                    raise
        raise AssertionError("the last attempt raises")

    async def _once(self, request: Request) -> Finished:
        end, length = Finished("length", Usage()), 0
        async with aclosing(self._runtime.chat(request)) as pieces:
            async for piece in pieces:
                match piece:
                    case Finished():
                        end = piece
                    case Prefilled():
                        self._emit(Prefilling(piece.done, piece.total, piece.cached))
                    case Drafted():
                        self._emit(Drafting(piece.name, piece.characters))
                    case Delta():
                        self._take(piece)
                        length += len(piece.text) + len(piece.thinking)
                if runs_on(self._deltas, length, request.max_tokens):
                    break
        return end

    def _take(self, piece: Delta) -> None:
        self._deltas += 1
        if piece.thinking:
            self._thought.append(piece.thinking)
            self._emit(Thinking(piece.thinking))
        if piece.text:
            self._said.append(piece.text)
            self._emit(Text(piece.text))
