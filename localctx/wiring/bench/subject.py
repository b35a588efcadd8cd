"""The server that is measured: as `run` would find it, with the model that it would talk to."""

from __future__ import annotations

import os
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from msgspec import structs

from localctx.core.events import Notice, WindowProbed
from localctx.core.window import ASSUMED_TOKENS
from localctx.runtimes.ollama_chat import OllamaServer
from localctx.wiring.chatting import connection
from localctx.wiring.inside import started
from localctx.wiring.places import pins
from localctx.wiring.speeds import speeds_key
from localctx.wiring.vocabularies import ollama_tokenizer

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from contextlib import AbstractAsyncContextManager

    from localctx.config import Settings
    from localctx.core.events import Event
    from localctx.core.window import ModelReport
    from localctx.ports import Runtime
    from localctx.wiring.probing import Talking

__all__ = ["Subject", "another_window", "subject"]


@dataclass(frozen=True, slots=True)
class Subject:
    """A server, the model on it, and the server's build."""

    runtime: Talking
    model: ModelReport
    version: str | None

    @property
    def window(self) -> int:
        """The window that it serves, or the one that is assumed."""
        return self.model.window.tokens or ASSUMED_TOKENS

    @property
    def speeds_key(self) -> str:
        """What its speeds are kept by."""
        return speeds_key(self.runtime, self.model, self.version)

    def told(self) -> dict[str, object]:
        """What a results file says of it; no address, which is nobody's business."""
        named = {"runtime": self.runtime.kind, "version": self.version, "model": self.model.id}
        return named | {"window": self.model.window.tokens, "confidence": self.model.window.confidence}


@asynccontextmanager
async def subject(
    given: Settings, emit: Callable[[Event], None], fetched: Callable[[int, int], None]
) -> AsyncIterator[Subject]:
    """The server that the settings name, the first that answers, or the embedded runtime; says which. Raises what `run` raises."""
    async with connection(given, emit, fetched) as (runtime, model, version):
        emit(WindowProbed(model.window, runtime.kind, runtime.url, model.id))
        if isinstance(runtime, OllamaServer):
            runtime.tokenizer = await ollama_tokenizer(runtime, model)
        if model.window.tokens is None:
            emit(Notice("assumed", f"nobody states the window: assuming {ASSUMED_TOKENS:,} tokens; --num-ctx says it"))
        yield Subject(runtime, model, version)


def another_window(given: Settings, found: Subject) -> Callable[[int], AbstractAsyncContextManager[Runtime]] | str:
    """What serves the same model with another window, or why nothing does."""

    def pinned(tokens: int) -> Settings:
        return structs.replace(given, num_ctx=tokens, origins={**given.origins, "num_ctx": "the benchmark"})

    if found.runtime.kind == "embedded":
        return lambda tokens: started(pinned(tokens), lambda _done, _total: None)
    if isinstance(found.runtime, OllamaServer):
        ollama = found.runtime
        return lambda tokens: _reloaded(pinned(tokens), ollama)
    return f"{found.runtime.kind} sets it when it starts, and is not restarted for this"


@asynccontextmanager
async def _reloaded(given: Settings, server: OllamaServer) -> AsyncIterator[Runtime]:
    """An Ollama that is sent another `num_ctx`, and loads the model again for it."""
    changed = OllamaServer(server.url, key=given.key(os.environ), pins=pins(given))
    changed.model = server.model
    try:
        await changed.settle_window()
        yield changed
    finally:
        await changed.close()
