from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager

import pytest

from localctx.runtimes.llama_server import LlamaServer
from tests.fakes.llama_server import Fake, running

Serving = Callable[[Fake], AbstractAsyncContextManager[LlamaServer]]


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
def serving() -> Serving:
    """Opens a client of a fake server."""

    @asynccontextmanager
    async def opened(fake: Fake) -> AsyncIterator[LlamaServer]:
        with running(fake) as server:
            runtime = LlamaServer(server.url)
            try:
                yield runtime
            finally:
                await runtime.close()

    return opened
