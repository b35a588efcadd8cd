from __future__ import annotations

import socket
import time
from contextlib import ExitStack, contextmanager
from json import dumps
from time import monotonic
from typing import TYPE_CHECKING

import pytest

from localctx.app.probe import probe
from localctx.core.window import ServerReport, Status
from localctx.errors import ModelMissing
from localctx.runtimes.llama_server import LlamaServer
from tests.fakes.llama_server import Fake, running
from tests.recordings import load
from tests.runtimes.raw import json, saying

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.anyio

BODIES = {
    "/props": dumps(load("03-props-smol-c4096-np1")["response"]["json"]).encode(),
    "/v1/models": dumps(load("04-v1-models-smol-c4096")["response"]["json"]).encode(),
}


def slowly(path: str) -> Iterator[bytes]:
    time.sleep(0.4)
    yield json(BODIES[path])


@contextmanager
def black_hole() -> Iterator[str]:
    """An address that lets connections wait: its queue is full."""
    with ExitStack() as stack:
        listening = stack.enter_context(socket.socket())
        listening.bind(("127.0.0.1", 0))
        listening.listen(0)
        for _ in range(3):
            waiting = stack.enter_context(socket.socket())
            waiting.settimeout(0)
            waiting.connect_ex(listening.getsockname())
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"


async def test_many_slow_servers_take_as_long_as_one() -> None:
    with ExitStack() as stack:
        urls = [stack.enter_context(saying(slowly)).url for _ in range(4)]
        began = monotonic()
        reports = await probe([LlamaServer(url) for url in urls])
        took = monotonic() - began
    assert [(report.url, report.status) for report in reports] == [(url, Status.UP) for url in urls]
    assert 0.8 <= took < 2.4  # two questions each; one after the other would take 3.2 s


async def test_the_order_is_the_one_asked_in_whoever_answers_first() -> None:
    with running(Fake()) as quick, saying(slowly) as slow, running(Fake(fault="unauthorized")) as locked:
        urls = [slow.url, "http://127.0.0.1:1", quick.url, locked.url, slow.url]
        reports = await probe([LlamaServer(url) for url in urls])
    assert [report.url for report in reports] == urls
    assert [report.status for report in reports] == [
        Status.UP,
        Status.DOWN,
        Status.UP,
        Status.UNAUTHORIZED,
        Status.UP,
    ]


async def test_one_that_hangs_is_an_error_at_the_deadline_and_keeps_nobody_else() -> None:
    with running(Fake(fault="hang")) as hanging, running(Fake()) as fine:
        began = monotonic()
        reports = await probe([LlamaServer(hanging.url), LlamaServer(fine.url)], seconds=0.3)
        assert monotonic() - began < 2
    assert [report.status for report in reports] == [Status.ERROR, Status.UP]
    assert reports[0].error == f"{hanging.url} gave no whole answer within 0.3 s; it may be busy or hung: try again"


async def test_dead_addresses_cost_one_connect_timeout_in_all() -> None:
    with ExitStack() as stack:
        holes = [stack.enter_context(black_hole()) for _ in range(4)]
        began = monotonic()
        reports = await probe([LlamaServer(url) for url in [*holes, "http://127.0.0.1:1"]])
        took = monotonic() - began
    assert [report.status for report in reports] == [Status.DOWN] * 5
    assert 0.9 < took < 2.5  # four in turn would take 4 s


async def test_a_target_that_fails_is_reported_and_keeps_nobody_else() -> None:
    class Failing:
        url = "in-process"

        async def probe(self) -> ServerReport:
            raise ModelMissing("no such model; see: localctx models list")

    with running(Fake()) as fine:
        reports = await probe([Failing(), LlamaServer(fine.url)])
    assert [report.status for report in reports] == [Status.ERROR, Status.UP]
    assert reports[0].error == "no such model; see: localctx models list"


async def test_nobody_to_ask() -> None:
    assert await probe([]) == []
