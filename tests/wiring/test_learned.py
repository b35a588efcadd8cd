"""What was learned of a model is kept for the next run with it, and for no other."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from localctx.stores.calibration import Calibrations
from localctx.tokenizers.estimate import ClassEstimate
from localctx.wiring.chatting import connect
from tests.fakes.llama_server import Fake, running

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("LOCALCTX_HOME", str(tmp_path))
    return tmp_path


async def reports_of(fake: Fake) -> tuple[int, int]:
    """How many reports the counter of a chat has learned from, before and after one turn."""
    with running(fake) as server:
        async with connect(url=server.url) as chat:
            before = chat.meter.calibration.reports
            await chat.ask("Some words to count.")
            return before, chat.meter.calibration.reports


async def test_the_next_run_goes_on_from_what_this_one_learned(data: Path) -> None:
    first, second = await reports_of(Fake()), await reports_of(Fake())
    assert first[0] == 0 < first[1] == second[0] < second[1]
    assert (data / "localctx.db").stat().st_mode & 0o077 == 0


@pytest.mark.usefixtures("data")
async def test_another_model_begins_anew() -> None:
    await reports_of(Fake(model="one"))
    assert (await reports_of(Fake(model="two")))[0] == 0
    assert (await reports_of(Fake(model="one")))[0] > 0


@pytest.mark.parametrize("text", ["", "[]", '{"rates": [1]}', "x" * 10_000])
async def test_what_was_kept_and_cannot_be_read_is_learned_again(data: Path, text: str) -> None:
    await reports_of(Fake())
    store = Calibrations(data / "localctx.db")
    (key,) = keys(data)
    assert store.save(key, text)
    store.close()
    assert (await reports_of(Fake()))[0] == 0
    assert key.startswith(ClassEstimate().how)


async def test_a_store_that_is_damaged_is_set_aside(data: Path) -> None:
    (data / "localctx.db").write_bytes(b"no database" * 1_000)
    before, after = await reports_of(Fake())
    assert before == 0 < after
    assert {"localctx.db", "localctx.db.damaged-1"} <= set(os.listdir(data))  # noqa: PTH208  a name is all
    assert (await reports_of(Fake()))[0] == after


def keys(data: Path) -> list[str]:
    import sqlite3  # noqa: PLC0415  only here

    with sqlite3.connect(data / "localctx.db") as database:
        return [key for (key,) in database.execute("select key from calibration")]
