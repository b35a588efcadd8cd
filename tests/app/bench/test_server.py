"""The server's benchmark on a fake that keeps the longest prefix it has seen, and takes a millisecond a token."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager, aclosing, asynccontextmanager
from dataclasses import replace

import pytest

from localctx.app.bench.asking import Took
from localctx.app.bench.pace import Pace
from localctx.app.bench.server import Known, Plan, _writing, measured
from localctx.app.bench.tables import Sheet
from localctx.core.accounting import Count, Usage
from localctx.core.cost import Speeds
from localctx.core.outgoing import WireMessage
from localctx.errors import ServerFailed
from localctx.ports import Finished, Piece, Request, Runtime
from localctx.runtimes.llama_server import LlamaServer
from tests.app.bench.conftest import Serving
from tests.fakes.llama_server import Fake

pytestmark = pytest.mark.anyio

PLAN = Plan((128, 256), 200, (100, 1_000), 2, "salt")
COUNTING = " ".join(map(str, range(1, 40)))


async def bench(runtime: LlamaServer, sheet: Sheet, plan: Plan = PLAN, seconds: float = 60) -> Speeds:
    known = Known()
    await measured(runtime, plan, Pace(seconds), sheet, known, window=4_096, another="it is fixed")
    return known.speeds


def rows(sheet: Sheet, title: str) -> list[dict[str, object]]:
    (found,) = (table.rows for table in sheet.tables if table.title.startswith(title))
    return found


async def test_speeds_are_what_the_server_reports(serving: Serving) -> None:
    sheet = Sheet()
    async with serving(Fake(reply=COUNTING)) as runtime:
        speeds = await bench(runtime, sheet)
    assert speeds.prefill == pytest.approx(1_000)
    assert speeds.decode == pytest.approx(100)
    assert (speeds.reuses, speeds.rewinds) == (1.0, 1.0)
    small, large = rows(sheet, "Reading")
    assert 100 <= int(str(small["prompt"])) <= 170
    assert 200 <= int(str(large["prompt"])) <= 300
    assert (small["read, of the first row"], large["read, of the first row"]) == (1.0, pytest.approx(1.0))


@pytest.mark.parametrize(("told", "depth"), [(300, 256), (200, 128)])
async def test_both_speeds_are_of_the_largest_prompt_that_told_both(serving: Serving, told: int, depth: int) -> None:
    sheet = Sheet()
    async with serving(Fake(reply=COUNTING)) as runtime:
        speeds = await bench(_SlowerInDepth(runtime, told), sheet)
    row = rows(sheet, "Reading")[PLAN.sizes.index(depth)]
    assert (speeds.prefill, speeds.decode) == (row["read, tokens/s"], row["written, tokens/s"])
    assert speeds.prefill == pytest.approx(100_000 / int(str(row["prompt"])), rel=0.05)
    assert speeds.decode == pytest.approx(10_000 / int(str(row["prompt"])), rel=0.05)


class _SlowerInDepth(LlamaServer):
    """A client whose server takes longer for each token the more there are before it, and says `told` tokens deep how long."""

    def __init__(self, other: LlamaServer, told: int) -> None:
        super().__init__(other.url)
        self._told = told

    async def chat(self, request: Request) -> AsyncGenerator[Piece, None]:
        async with aclosing(super().chat(request)) as pieces:
            async for piece in pieces:
                yield replace(piece, usage=self._slow(piece.usage)) if isinstance(piece, Finished) else piece

    def _slow(self, usage: Usage) -> Usage:
        depth, written = usage.prompt or 0, usage.completion or 0
        read = depth - (usage.cached or 0)
        slow = replace(usage, prefill_seconds=read * depth / 100_000, decode_seconds=written * depth / 10_000)
        return slow if depth < self._told else replace(slow, completion=3)


def test_without_a_reported_time_the_first_token_is_in_no_interval() -> None:
    assert _writing(Took("", Usage(100, 21), first=1.0, seconds=3.0)) == 10.0
    assert _writing(Took("", Usage(100, 20, decode_seconds=2.0), first=1.0, seconds=9.0)) == 10.0


def test_a_long_prompt_is_sent_twice_unless_it_is_quick() -> None:
    whole, quick = (Plan.of(8_192, "salt", quick=quick) for quick in (False, True))
    assert [whole.times(size) for size in whole.sizes] == [3, 3, 2, 2]
    assert {quick.times(size) for size in (*quick.sizes, 4_096)} == {1}


async def test_a_change_costs_what_stands_behind_it(serving: Serving) -> None:
    sheet = Sheet()
    async with serving(Fake(reply=COUNTING)) as runtime:
        await bench(runtime, sheet)
    read = {
        str(row["prompt"]): (int(str(row["tokens"])), int(str(row["read anew"])))
        for row in rows(sheet, "What a change")
    }
    assert [*read] == ["new", "the same again", "a message more", "changed in the middle", "changed at the beginning"]
    whole = read["new"][0]
    assert read["the same again"][1] == 1
    assert read["a message more"][1] < whole / 4
    assert whole * 0.3 < read["changed in the middle"][1] < whole * 0.7
    assert read["changed at the beginning"][1] > whole * 0.9


async def test_a_server_that_keeps_no_prefix_is_found_out(serving: Serving) -> None:
    async with serving(Fake(reply=COUNTING)) as runtime:
        speeds = await bench(_Forgetful(runtime), Sheet())
    assert (speeds.reuses, speeds.rewinds) == (0.0, 0.0)


class _Forgetful(LlamaServer):
    """A client whose requests forbid the server to use its cache."""

    def __init__(self, other: LlamaServer) -> None:
        super().__init__(other.url)

    def _body(self, messages: Sequence[WireMessage], tools: Sequence[WireMessage]) -> dict[str, object]:
        return super()._body(messages, tools) | {"cache_prompt": False}


async def test_a_count_that_was_not_made_is_stated_in_no_row(serving: Serving) -> None:
    sheet = Sheet()
    async with serving(Fake(reply=COUNTING)) as runtime:
        await bench(_CountsShortTexts(runtime), sheet)
    first, second = rows(sheet, "Counting")
    assert isinstance(first["tokens"], int)
    assert (second["characters"], second["tokens"], second["a text, ms"]) == (1_000, None, None)
    assert not any("counts no texts" in note for note in sheet.notes)


class _CountsShortTexts(LlamaServer):
    """A client whose server counts nothing long."""

    def __init__(self, other: LlamaServer) -> None:
        super().__init__(other.url)

    async def size(self, text: str) -> Count | None:
        return await super().size(text) if len(text) < 500 else None


async def test_what_was_measured_is_known_when_the_server_fails_later(serving: Serving) -> None:
    known = Known()
    fake = Fake(reply=COUNTING)

    def another(_tokens: int) -> AbstractAsyncContextManager[Runtime]:
        raise RuntimeError("the program ends here")

    async with serving(fake) as runtime:
        with pytest.raises(RuntimeError):
            await measured(runtime, PLAN, Pace(60), Sheet(), known, window=4_096, another=another)
    assert known.speeds.prefill == pytest.approx(1_000)


async def test_each_prompt_is_known_before_the_next_is_sent(serving: Serving) -> None:
    known = Known()
    seen = list[float | None]()
    async with serving(Fake(reply=COUNTING)) as runtime:
        pace = Pace(60, lambda _done, _all, what: seen.append(known.speeds.prefill) if what else None)
        await measured(runtime, PLAN, pace, Sheet(), known, window=4_096, another="")
    assert seen[: PLAN.rounds] == [None] * PLAN.rounds
    assert seen[PLAN.rounds] == pytest.approx(1_000)


async def test_another_window_is_timed_and_put_back(serving: Serving) -> None:
    sheet, opened = Sheet(), list[int]()
    async with serving(Fake(reply=COUNTING)) as runtime:

        def another(tokens: int) -> AbstractAsyncContextManager[Runtime]:
            @asynccontextmanager
            async def changed() -> AsyncIterator[Runtime]:
                opened.append(tokens)
                yield runtime

            return changed()

        await measured(runtime, PLAN, Pace(60), sheet, Known(), window=4_096, another=another)
    assert opened == [2_048, 4_096]
    assert [row["window"] for row in rows(sheet, "Another window")] == [2_048, 4_096]
    assert sheet.notes == []


async def test_another_window_of_a_second_server_is_said_to_be_no_reload(serving: Serving) -> None:
    sheet = Sheet()
    async with serving(Fake(reply=COUNTING)) as runtime:
        await measured(runtime, PLAN, Pace(60), sheet, Known(), window=4_096, another=lambda _: serving(Fake()))
    (note,) = sheet.notes
    assert note.endswith("a start with warm files, not a reload")


async def test_why_there_is_no_other_window_is_said(serving: Serving) -> None:
    sheet = Sheet()
    async with serving(Fake(reply=COUNTING)) as runtime:
        await bench(runtime, sheet)
    assert sheet.notes == ["another window: it is fixed"]


async def test_without_time_nothing_is_sent(serving: Serving) -> None:
    fake, sheet = Fake(reply=COUNTING), Sheet()
    async with serving(fake) as runtime:
        speeds = await bench(runtime, sheet, seconds=0)
    assert fake.chats == []
    assert speeds == Speeds()


async def test_a_server_that_fails_is_told(serving: Serving) -> None:
    async with serving(Fake(fault="die_mid_stream")) as runtime:
        with pytest.raises(ServerFailed):
            await bench(runtime, Sheet())


@pytest.mark.parametrize(
    ("window", "quick"), [(256, True), (512, False), (2_048, True), (8_192, False), (131_072, False)]
)
def test_every_prompt_of_a_plan_fits_the_window(window: int, *, quick: bool) -> None:
    plan = Plan.of(window, "salt", quick=quick)
    assert plan.sizes
    assert max(*plan.sizes, plan.prefix) <= window * 0.75
    assert plan.work > 0
