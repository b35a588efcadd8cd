from __future__ import annotations

import pytest

from localctx.app.bench.asking import asked
from localctx.ports import Request
from localctx.runtimes.llama_server import LlamaServer
from tests.fakes.llama_server import Fake, running

pytestmark = pytest.mark.anyio


async def test_a_server_that_tells_of_its_progress_has_not_begun_its_reply() -> None:
    with running(Fake(batch=32, batch_delay=0.05)) as fake:
        server = LlamaServer(fake.url)
        took = await asked(server, Request([{"role": "user", "content": "sand " * 200}], 8))
        await server.close()
    batches = -(-(took.usage.prompt or 0) // fake.batch)
    assert batches > 5
    assert took.first >= batches * fake.batch_delay, "the fake sleeps that long before it says a word"
    assert took.seconds >= took.first
