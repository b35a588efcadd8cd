"""The benchmarks of counters and of probing, with parts that need no model."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest

from localctx.app.bench import probe
from localctx.app.bench.pace import Pace
from localctx.app.bench.tables import Sheet
from localctx.app.bench.tokenizer import Candidate, measured, texts
from localctx.core.accounting import Count
from localctx.runtimes.detect import Detector
from localctx.wiring.bench.addresses import answering_address
from localctx.wiring.bench.counters import candidates
from localctx.wiring.places import settings
from tests.fakes.llama_server import Fake, running

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


async def unknown() -> None:
    return None


async def loaded() -> tuple[float, int]:
    return 0.5, 2_000_000


async def by_words(text: str) -> Count | None:
    return Count(len(text.split()), 0, "words")


async def by_nobody(_text: str) -> Count | None:
    return None


HALF = Candidate("half", lambda: lambda text: len(text.split()) // 2, loaded)
WORDS = Candidate("words", lambda: lambda text: len(text.split()), unknown, library="raw words")
RAW = Candidate("raw words", lambda: lambda text: len(text.split()), unknown)


def rows(sheet: Sheet, title: str) -> list[dict[str, object]]:
    (found,) = (table.rows for table in sheet.tables if table.title.startswith(title))
    return found


async def test_a_counter_is_exact_where_it_counts_every_text_as_the_server_does() -> None:
    sheet = Sheet()
    await measured([HALF, WORDS, RAW], texts(5_000), by_words, Pace(60), sheet, rounds=1)
    exact = {row["counter"]: row for row in rows(sheet, "Count")}
    assert {name: row["exact"] for name, row in exact.items()} == {"half": False, "words": True}
    assert exact["half"]["prose"] == pytest.approx(0.5, abs=0.01)
    assert [row["counter"] for row in rows(sheet, "Tokens a second")] == [
        "the server's own",
        "half",
        "words",
        "raw words",
    ]
    assert rows(sheet, "Loading") == [{"counter": "half", "seconds": 0.5, "memory, MB": 2.0}]
    (beside,) = rows(sheet, "Speed beside")
    assert beside["counter"] == "words"
    assert float(str(beside["all"])) > 0


async def test_a_counter_and_its_library_take_turns_round_by_round() -> None:
    turns = list[str]()

    def noted(candidate: Candidate) -> Candidate:
        def start() -> Callable[[str], int]:
            turns.append(candidate.name)
            return candidate.start()

        return replace(candidate, start=start)

    given = {name: text for name, text in texts(1_000).items() if name in {"prose", "code"}}
    sheet = Sheet()
    await measured([noted(each) for each in (HALF, WORDS, RAW)], given, by_words, Pace(60), sheet, rounds=2)
    assert turns == ["half"] * 4 + ["words", "raw words"] * 4


async def test_without_a_server_that_counts_nothing_is_said_of_exactness() -> None:
    sheet = Sheet()
    await measured([WORDS], texts(1_000), by_nobody, Pace(60), sheet, rounds=1)
    assert rows(sheet, "Count") == []
    assert sheet.notes == ["no server counts texts here: nothing is said of exactness"]


def test_the_texts_are_the_same_in_every_run_and_of_five_kinds() -> None:
    assert [*texts(100)] == ["prose", "code", "JSON", "Chinese", "logs"]
    assert texts(100) == texts(100)
    assert {len(text) for text in texts(1_000).values()} == {1_000}


async def test_the_estimate_and_the_seed_are_always_there_and_can_be_loaded_alone() -> None:
    estimate, seed, *_ = candidates(None)
    assert (estimate.name, seed.name) == ("estimate", "characters a token (seed)")
    took = await estimate.loaded()
    assert took is not None
    assert took[0] > 0
    assert estimate.start()("some words") > 0


async def test_an_address_that_was_missed_in_any_round_is_not_found_up() -> None:
    rounds = iter(["http://127.0.0.1:9", ""])
    sheet = Sheet()
    with running(Fake()) as server:

        @asynccontextmanager
        async def opened(_addresses: probe.Addresses) -> AsyncIterator[list[Detector]]:
            asking = Detector(next(rounds) or server.url)
            yield [asking]
            await asking.close()

        await probe.measured(opened, Pace(60), sheet, rounds=2, given=[probe.Addresses(1)])
    assert [row["found up"] for row in rows(sheet, "Probing")] == [0]


async def test_every_address_is_asked_at_once_and_those_that_answer_are_found() -> None:
    sheet = Sheet()
    with running(Fake()) as server:
        given = settings({"url": server.url})
        async with answering_address(given, lambda _event: None, lambda _done, _all: None) as (opened, report):
            asked = (probe.Addresses(1), probe.Addresses(1, 49), probe.Addresses(1, 3, 1))
            await probe.measured(opened, Pace(60), sheet, rounds=1, given=asked)
        assert server.chats == []
    assert report.runtime == "llama-server"
    found = rows(sheet, "Probing")
    assert [row["addresses"] for row in found] == [
        "1 (1 answer)",
        "50 (1 answer, 49 refuse)",
        "5 (1 answer, 3 refuse, 1 hang)",
    ]
    assert [row["found up"] for row in found] == [1, 1, 1]
