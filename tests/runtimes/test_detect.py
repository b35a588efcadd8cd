from __future__ import annotations

import anyio
import httpx
import pytest

from localctx.core.window import Status
from localctx.runtimes.detect import READERS, Detector
from localctx.wiring.probing import DEFAULT_ADDRESSES
from tests.fakes.llama_server import Fake as FakeLlama
from tests.fakes.llama_server import running as running_llama
from tests.fakes.ollama import Fake, running
from tests.runtimes.raw import Heard

pytestmark = pytest.mark.anyio


async def test_a_server_is_known_by_its_answers_and_not_by_its_port() -> None:
    with running(Fake()) as ollama, running_llama(FakeLlama()) as llama:
        reports = [await Detector(fake.url).probe() for fake in (ollama, llama)]
    assert [report.runtime for report in reports] == ["ollama", "llama-server"]
    assert not {report.url for report in reports} & {*DEFAULT_ADDRESSES}


async def test_who_is_asked_for_alone_is_asked_alone() -> None:
    with running(Fake()) as fake:
        report = await Detector(fake.url, kind="vllm").probe()
        assert (report.runtime, report.status) == (None, Status.ERROR)
        assert report.error
        assert "is no vllm" in report.error
        assert [line for line, _ in fake.requests] == ["GET /v1/models"]


async def test_nothing_there_is_asked_nothing_more() -> None:
    def gone(_: httpx.Request) -> httpx.Response:
        raise httpx.ConnectError("All connection attempts failed")

    heard = Heard(httpx.MockTransport(gone))
    report = await Detector("http://x", transport=heard).probe()
    assert report.status is Status.DOWN
    assert sorted(heard.asked) == ["GET /api/version", "GET /props", "GET /v1/models"]


async def test_first_questions_are_asked_at_once() -> None:
    asking: list[int] = [0]
    most: list[int] = []

    async def slow(_: httpx.Request) -> httpx.Response:
        asking[0] += 1
        most.append(asking[0])
        await anyio.sleep(0.05)
        asking[0] -= 1
        return httpx.Response(200, json={"data": [{"id": "m", "owned_by": "vllm", "max_model_len": 512}]})

    report = await Detector("http://x", transport=httpx.MockTransport(slow)).probe()
    assert report.runtime == "vllm"
    assert most == [1, 2, 3, 1, 1], "three at once, then one question after the other"


async def test_a_load_is_only_for_those_that_can() -> None:
    with running_llama(FakeLlama(fault="router")) as fake:
        report = await Detector(fake.url, load="fake-model").probe()
        assert report.runtime == "llama-server"
        assert not fake.loaded
        assert {request.method for request in fake.requests} == {"GET"}


async def test_asking_twice_asks_anew() -> None:
    with running(Fake()) as fake:
        detector = Detector(fake.url)
        before = (await detector.probe()).models[0].loaded
        fake.use(fake.models[0], {})
        after = (await detector.probe()).models[0].loaded
        await detector.close()
    assert (before, after) == (False, True)


def test_the_general_reader_is_asked_last() -> None:
    assert list(READERS)[-1] == "openai"
    assert list(READERS).index("ollama") < list(READERS).index("sglang")
