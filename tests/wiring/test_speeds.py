"""What `localctx bench server` measured is what the next run with that model begins with, and no other."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from localctx.app.bench.pace import Pace
from localctx.core.cost import Speeds
from localctx.core.window import ModelReport, reconcile
from localctx.runtimes.llama_server import LlamaServer
from localctx.wiring.bench import Wanted, benched
from localctx.wiring.bench.running import _Part, _server
from localctx.wiring.chatting import connect
from localctx.wiring.places import settings
from localctx.wiring.speeds import keep_speeds, measured_speeds, speeds_key
from tests.fakes.llama_server import Fake, Json, running
from tests.fakes.ollama import Fake as Ollama
from tests.fakes.ollama import running as running_ollama

pytestmark = pytest.mark.anyio

WITH_THESE = "runs with this model begin with these speeds"
COUNTING = " ".join(map(str, range(1, 40)))


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(autouse=True)
def _data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOCALCTX_HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)


def wanted(name: str, url: str, **flags: object) -> Wanted:
    given = settings({"url": url, **flags})
    told, fetched = lambda _done, _all, _what: None, lambda _done, _all: None
    return Wanted(name, [given], quick=True, emit=lambda _event: None, told=told, fetched=fetched)


async def speeds_of(url: str) -> tuple[Speeds, int | None]:
    async with connect(url=url, patience=0.25) as chat:
        return chat.engine.speeds, chat.engine.budget.tail


async def test_a_run_begins_with_what_was_measured_and_its_tail_with_it() -> None:
    with running(Fake(reply=COUNTING)) as server:
        assert await speeds_of(server.url) == (Speeds(), None)
        await benched(wanted("server", server.url))
        speeds, tail = await speeds_of(server.url)
    assert speeds.prefill == pytest.approx(1_000)
    assert speeds.decode == pytest.approx(100)
    assert tail == 250, "what is read in a quarter of a second"


def breaking(how: Callable[[Fake], None]) -> Fake:
    """A server to which something happens once both prompts of a quick benchmark are measured."""

    def reply(_body: Json) -> str:
        if len(fake.chats) > 2:
            how(fake)
        return COUNTING

    fake = Fake(reply=reply)
    return fake


def dies(fake: Fake) -> None:
    fake.fault = "die_mid_stream"


def hangs(fake: Fake) -> None:
    fake.delay = 60


def heals(fake: Fake) -> None:
    fake.fault, fake.delay = None, 0


async def test_what_was_measured_is_kept_when_the_server_fails_later() -> None:
    with running(breaking(dies)) as server:
        found = await benched(wanted("server", server.url))
        assert found.missed
        heals(server)
        speeds, _ = await speeds_of(server.url)
    assert speeds.prefill == pytest.approx(1_000)
    assert speeds.decode == pytest.approx(100)


async def test_what_was_measured_is_kept_when_the_time_runs_out_later() -> None:
    with running(breaking(hangs)) as server:
        asked, part = wanted("server", server.url), _Part()
        await _server(asked, asked.given[0], Pace(3), part)
        heals(server)
        speeds, _ = await speeds_of(server.url)
    assert speeds.prefill == pytest.approx(1_000)
    assert speeds.decode == pytest.approx(100)
    assert WITH_THESE in part.sheet.notes


async def test_nothing_is_kept_of_a_benchmark_that_is_interrupted() -> None:
    def interrupt(_done: float, _all: float, what: str) -> None:
        task = asyncio.current_task()
        if what == "a new prompt" and task is not None:
            task.cancel()

    with running(Fake(reply=COUNTING)) as server:
        asked = wanted("server", server.url)
        with pytest.raises(asyncio.CancelledError):
            await asyncio.create_task(_server(asked, asked.given[0], Pace(60, interrupt), _Part()))
        assert len(server.chats) >= 2
        assert (await speeds_of(server.url))[0] == Speeds()


async def test_another_model_begins_with_nothing() -> None:
    with running(Fake(reply=COUNTING, model="one")) as server:
        await benched(wanted("server", server.url))
    with running(Fake(model="two")) as server:
        assert (await speeds_of(server.url))[0] == Speeds()


PLAIN = ModelReport("a model", loaded=True, window=reconcile([]))
HERE = "http://127.0.0.1:8080"


def key(
    model: ModelReport = PLAIN, url: str = HERE, *, kind: str = "llama-server", here: str = "a processor x 2"
) -> str:
    return speeds_key(LlamaServer(url, kind=kind), model, "1", here)


@pytest.mark.parametrize("model", [PLAIN, replace(PLAIN, template="t"), replace(PLAIN, digest="w", template="t")])
def test_speeds_are_kept_by_address_model_and_machine(model: ModelReport) -> None:
    keep_speeds(key(model), Speeds(100.0, 10.0), quick=False)
    assert measured_speeds(key(model)) == Speeds(100.0, 10.0)
    assert measured_speeds(key(model, "http://192.0.2.1:8080")) is None
    assert measured_speeds(key(model, here="a processor x 2, a GPU")) is None
    assert measured_speeds(key(model, kind="embedded")) is None
    assert measured_speeds(key(replace(model, digest="other weights"))) is None
    assert measured_speeds(key(replace(model, id="another model", digest=None))) is None


def test_speeds_of_the_embedded_runtime_are_kept_whatever_its_port() -> None:
    keep_speeds(key(url="http://127.0.0.1:40001", kind="embedded"), Speeds(100.0, 10.0), quick=False)
    assert measured_speeds(key(url="http://127.0.0.1:40002", kind="embedded")) == Speeds(100.0, 10.0)


def test_a_quick_measuring_is_kept_until_there_is_a_whole_one() -> None:
    quick, quicker, whole, newer = (Speeds(float(number), 10.0) for number in (100, 200, 300, 400))
    assert keep_speeds(key(), quick, quick=True) == keep_speeds(key(), quicker, quick=True) == WITH_THESE
    assert measured_speeds(key()) == quicker
    assert keep_speeds(key(), whole, quick=False) == WITH_THESE
    assert "not quick" in keep_speeds(key(), quick, quick=True)
    assert measured_speeds(key()) == whole
    assert keep_speeds(key(), newer, quick=False) == WITH_THESE
    assert measured_speeds(key()) == newer


def test_speeds_that_cannot_be_kept_are_said_to_be_lost(tmp_path: Path) -> None:
    (tmp_path / "localctx.db").mkdir()
    assert keep_speeds(key(), Speeds(100.0), quick=False) == "these speeds could not be kept for runs to begin with"
    assert measured_speeds(key()) is None


async def test_an_ollama_is_loaded_with_another_window_and_with_its_own_again() -> None:
    with running_ollama(Ollama()) as server:
        found = await benched(wanted("server", server.url, num_ctx=4_096))
    assert [tokens for _, tokens in server.loads] == [4_096, 2_048, 4_096]
    (table,) = [table for table in found.sheet.tables if table.title == "Another window"]
    assert [row["window"] for row in table.rows] == [2_048, 4_096]


async def test_a_document_names_machine_versions_and_server_but_no_address() -> None:
    with running(Fake(reply=COUNTING)) as server:
        found = await benched(wanted("server", server.url))
        assert server.url not in str(found.document)
        assert str(server.url.rpartition(":")[2]) not in str(found.document["tables"])
    servers, machine, versions = (found.document[name] for name in ("servers", "machine", "versions"))
    assert isinstance(servers, list)
    assert isinstance(machine, dict)
    assert isinstance(versions, dict)
    told = [(each["runtime"], each["model"], each["window"]) for each in servers]
    assert told == [("llama-server", "fake-model", 4_096)]
    assert {"cpu", "cores", "memory_bytes", "gpus", "system", "load_before", "load_after"} == set(machine)
    assert {"localctx", "python"} <= set(versions)
