from __future__ import annotations

import pytest

from localctx.app.bench.asking import Watched, asked
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


async def test_a_watched_server_keeps_what_each_reply_took_and_tells_of_itself_as_before() -> None:
    with running(Fake(reply="Done.")) as fake:
        server = LlamaServer(fake.url)
        watched = Watched(server)
        await asked(watched, Request([{"role": "user", "content": "sand " * 200}], 8))
        await asked(watched, Request([{"role": "user", "content": "sand"}], 8))
        models = [(await each.probe()).models for each in (server, watched)]
        await watched.close()
    assert [took.text for took in watched.took] == ["Done.", "Done."]
    long, short = (took.usage.prompt or 0 for took in watched.took)
    assert long > short > 0
    assert models[0] == models[1]
    assert (watched.kind, watched.url) == (server.kind, server.url)
