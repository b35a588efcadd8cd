"""The benchmarks on the embedded server with the real default model, as little of them as shows that they work."""

from __future__ import annotations

from pathlib import Path

import pytest

from localctx.app.bench import server, tokenizer
from localctx.app.bench.pace import Pace
from localctx.app.bench.probe import Addresses
from localctx.app.bench.tables import Sheet
from localctx.core.window import Status
from localctx.runtimes.detect import Detector
from localctx.wiring.bench.addresses import answering_address
from localctx.wiring.bench.counters import candidates, weights_of
from localctx.wiring.bench.subject import another_window, subject
from localctx.wiring.places import settings

pytestmark = [pytest.mark.live, pytest.mark.anyio]


@pytest.mark.usefixtures("home")
async def test_each_address_of_the_embedded_server_is_asked_as_one_that_nobody_knows() -> None:
    given = settings({"runtime": "embedded", "num_ctx": 512})
    async with (
        answering_address(given, lambda _event: None, lambda _done, _all: None) as (opened, report),
        opened(Addresses(2)) as targets,
    ):
        found = [await target.probe() for target in targets]
    assert (report.runtime, report.status) == ("embedded", Status.UP)
    assert [type(target) for target in targets] == [Detector, Detector]
    assert targets[0] is not targets[1]
    assert [(each.status, len(each.models)) for each in found] == [(Status.UP, 1)] * 2


@pytest.mark.usefixtures("home")
async def test_the_embedded_server_and_its_counters_are_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    given = settings({"runtime": "embedded", "num_ctx": 512})
    sheet, known, plan = Sheet(), server.Known(), server.Plan((64,), 96, (100,), 1, "live", written=2)
    async with subject(given, lambda _event: None, lambda _done, _all: None) as found:
        another = another_window(given, found)
        await server.measured(found.runtime, plan, Pace(300), sheet, known, window=found.window, another=another)
        counters = [each for each in candidates(weights_of(found, None)) if each.name == "GGUF vocabulary"]
        await tokenizer.measured(counters, tokenizer.texts(2_000), found.runtime.size, Pace(300), sheet, rounds=1)
    assert known.speeds.prefill
    assert known.speeds.reuses == 1.0
    tables = {table.title: table.rows for table in sheet.tables}
    assert [row["window"] for row in tables["Another window"]] == [256, 512]
    assert any("not a reload" in note for note in sheet.notes)
    read = {row["prompt"]: row["read anew"] for row in tables["What a change of the prompt costs"]}
    assert read["the same again"] == 1
    (exact,) = tables["Count / the server's count"]
    assert exact["exact"] is True
    (loading,) = tables["Loading a counter, in a process of its own"]
    assert float(str(loading["memory, MB"])) > 1
