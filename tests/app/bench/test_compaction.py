"""The benchmark of compaction on a fake server: the history, the baselines, and the rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from localctx.app.bench.asking import Took
from localctx.app.bench.baselines import BASELINES, Ground
from localctx.app.bench.compaction import Means, _median, _Sample, _spread, measured
from localctx.app.bench.facts import FACTS, holds, one_by_one, plainly
from localctx.app.bench.history import grown, shows_calls
from localctx.app.bench.pace import Pace
from localctx.app.bench.tables import Sheet
from localctx.core.outgoing import WireMessage, defects, texts
from localctx.runtimes.llama_server import LlamaServer
from localctx.stores.journal import MemoryJournal
from localctx.stores.recall import RecallIndex
from localctx.tokenizers.estimate import ClassEstimate
from tests.app.bench.conftest import Serving
from tests.app.conftest import NOTES, answering
from tests.fakes.llama_server import Fake, render

pytestmark = pytest.mark.anyio


async def size(messages: Sequence[WireMessage]) -> int:
    return sum(len(str(message.get("content"))) // 4 + 4 for message in messages)


def text_of(messages: Sequence[WireMessage]) -> str:
    return plainly("\n".join(texts([*messages])))


def without_calls(body: dict[str, Any]) -> int:
    """The tokens of a prompt by a template that leaves calls out in silence."""
    said = [{name: value for name, value in each.items() if name != "tool_calls"} for each in body["messages"]]
    return len(render({**body, "messages": said}))


# --- the history ----------------------------------------------------------------------------------------------------


def test_every_fact_is_in_the_turn_that_plants_it() -> None:
    found = [*one_by_one(0.05)]
    assert {fact for _, fact in found} == set(FACTS)
    for turn, fact in found:
        said = [turn.asked, *(reply.text for reply in turn.replies)]
        called = [f"{call.arguments} {call.result}" for reply in turn.replies for call in reply.calls]
        assert holds(plainly("\n".join([*said, *called])), fact), fact


async def test_neither_lists_nor_transcripts_of_two_salts_begin_alike() -> None:
    told = await grown(1_000, 500, size, tools=True)
    one, other = told.whole("one"), told.whole("other")
    assert all(str(a["content"])[:5] != str(b["content"])[:5] for a, b in zip(one[:2], other[:2], strict=True))
    assert one[2:] == other[2:] == [*told.messages[1:]]


@pytest.mark.parametrize("tools", [True, False])
@pytest.mark.parametrize("window", [768, 4_096])
async def test_a_history_is_just_long_enough_and_holds_its_facts(window: int, *, tools: bool) -> None:
    told = await grown(window, window // 2, size, tools=tools)
    whole = told.whole("salt")
    assert window // 2 < await size(told.messages) < window * 0.7
    assert defects([*whole, {"role": "user", "content": told.question}]) == []
    assert len(told.facts) >= 3
    assert all(holds(text_of(whole), fact) for fact in told.facts)
    roles = [message["role"] for message in told.messages]
    assert ("tool" in roles) is tools
    if not tools:
        assert roles == ["user", "assistant"] * (len(roles) // 2)


async def test_whether_a_model_is_shown_calls_is_tried(serving: Serving) -> None:
    async with serving(Fake(tools=True)) as runtime:
        assert await shows_calls(runtime)
    for other in (Fake(fault="die_mid_stream"), Fake(prompt_tokens=without_calls)):
        async with serving(other) as runtime:
            assert not await shows_calls(runtime)


# --- the baselines --------------------------------------------------------------------------------------------------


async def left(
    name: str, runtime: LlamaServer, window: int = 1_000
) -> tuple[list[WireMessage], list[WireMessage], list[Took]]:
    told = await grown(window, int(window * 0.8), size, tools=True)
    whole: list[WireMessage] = told.whole("salt")
    took: list[Took] = []
    return (
        whole,
        await BASELINES[name].left(Ground(runtime, window, 200, size, took.append, lambda _text: None), whole),
        took,
    )


async def test_dropping_the_oldest_keeps_the_system_and_the_end_within_half(serving: Serving) -> None:
    async with serving(Fake()) as runtime:
        whole, kept, took = await left("drop the oldest", runtime)
    assert kept[0] == whole[0]
    assert kept[1:] == whole[-len(kept) + 1 :]
    assert await size(kept) <= 500
    assert kept[1]["role"] != "tool"
    assert took == []


async def test_a_naive_summary_is_all_that_is_left(serving: Serving) -> None:
    async with serving(Fake(reply="All went well.")) as runtime:
        whole, kept, took = await left("naive summary", runtime)
    assert [message["role"] for message in kept] == ["system", "user"]
    assert "All went well." in str(kept[1]["content"])
    assert [each.text for each in took] == ["All went well."]
    assert kept[0] == whole[0]


async def test_codex_keeps_the_newest_words_of_the_user_before_the_note(serving: Serving) -> None:
    async with serving(Fake(reply="Note.")) as runtime:
        whole, kept, _ = await left("replacement (Codex)", runtime)
    words = [message for message in whole if message["role"] == "user"]
    assert kept[1:-1] == words[-len(kept) + 2 :]
    assert await size(kept[1:-1]) <= 500
    assert str(kept[-1]["content"]).endswith("Note.")


async def test_the_seed_keeps_the_task_a_summary_and_a_tail_of_a_quarter(serving: Serving) -> None:
    async with serving(Fake(reply="Summary.")) as runtime:
        whole, kept, took = await left("Jazz's rules (seed)", runtime)
    assert kept[:2] == whole[:2]
    assert (kept[2]["role"], kept[2]["content"]) == ("assistant", "Summary.")
    assert str(kept[3]["content"]).startswith("Continue the task")
    assert kept[4:] == whole[-len(kept) + 4 :]
    assert await size(kept[4:]) <= 250
    assert len(took) == 2, "pieces of 60 % of the window"


async def test_the_seed_refuses_a_summary_that_was_cut_off_and_trims(serving: Serving) -> None:
    async with serving(Fake(reply="so it goes " * 500)) as runtime:
        whole, kept, took = await left("Jazz's rules (seed)", runtime)
    assert [each.reason for each in took] == ["length"]
    assert took[0].usage.completion is not None
    assert took[0].usage.completion > 200, "the seed sets no cap: what the window has room for"
    assert kept[1:] == whole[-len(kept) + 1 :]
    assert 0.6 * 1_000 < await size(kept) <= 800


# --- the rows -------------------------------------------------------------------------------------------------------


async def rows(
    serving: Serving, fake: Fake, *, quick: bool = True, seconds: float = 300
) -> tuple[list[dict[str, object]], Sheet]:
    sheet = Sheet()
    async with serving(fake) as runtime:
        means = Means(runtime, 2_048, ClassEstimate, MemoryJournal, lambda: RecallIndex(None), 0.6, "salt")
        await measured(means, Pace(seconds), sheet, quick=quick)
    (table,) = sheet.tables
    return table.rows, sheet


async def test_each_way_and_each_baseline_has_a_row(serving: Serving) -> None:
    found, sheet = await rows(serving, Fake(tools=True, reply=answering("Done.", NOTES)))
    ours = ["ladder, mechanical", "ladder, in place", "ladder, apart"]
    assert [row["way"] for row in found] == [*ours, *BASELINES]
    assert sheet.notes == []
    by_name = {str(row["way"]): row for row in found}
    alone, place, apart = (by_name[name] for name in ours)
    assert [row["notes by"] for row in (alone, place, apart)] == ["machine", "model", "model"]
    assert int(str(place["cached"])) > 10 * int(str(place["read"])) > 0
    assert int(str(apart["read"])) > 5 * int(str(place["read"]))
    assert (alone["read"], alone["written"]) == (0, 0)
    assert all(int(str(row["tokens freed"])) > 0 for row in found)
    assert alone["in all, of the first row"] == 1.0
    assert {row["rounds"] for row in found} == {1}


async def test_a_summary_that_was_refused_is_said_with_the_reason(serving: Serving) -> None:
    found, sheet = await rows(serving, Fake(tools=True, reply=answering("Done.", "I would rather not.")))
    assert found[1]["notes by"] == "machine"
    assert (
        "ladder, in place: the model's summary was refused (its headings are missing); using the record alone"
        in sheet.notes
    )


async def test_what_the_engine_keeps_is_more_than_what_dropping_keeps(serving: Serving) -> None:
    found, _ = await rows(serving, Fake(tools=True, reply=answering("Done.", NOTES)))
    kept = {str(row["way"]): int(str(row["kept"])) for row in found}
    assert kept["ladder, mechanical"] > kept["drop the oldest"]
    assert kept["naive summary"] == 0
    ours = next(row for row in found if row["way"] == "ladder, mechanical")
    assert int(str(ours["facts"])) >= int(str(ours["kept or found"])) >= kept["ladder, mechanical"]


async def test_what_the_model_is_not_shown_is_told_in_words(serving: Serving) -> None:
    fake = Fake(reply=answering("Done.", NOTES), prompt_tokens=without_calls)
    found, sheet = await rows(serving, fake)
    assert any("they are told in words" in note for note in sheet.notes)
    assert not any("tool_calls" in str(body["messages"]) for body in fake.chats[-3:])
    assert all(row["kept"] is not None for row in found)


async def test_rounds_are_measured_in_turn_and_the_median_one_is_shown(serving: Serving) -> None:
    fake = Fake(tools=True, reply=answering("Done.", NOTES))
    found, _ = await rows(serving, fake, quick=False)
    assert len(found) == 4 * 3 + len(BASELINES)
    assert {row["rounds"] for row in found} == {3}
    assert all(isinstance(row["spread"], float) for row in found)
    begun = [str(body["messages"][0]["content"])[:5] for body in fake.chats if body["messages"][0]["role"] == "system"]
    assert begun.index("salt1") > begun.index("salt0")
    assert begun == sorted(begun)


def test_of_rounds_the_one_with_the_median_time_counts_and_the_spread_is_a_share_of_it() -> None:
    rounds = [_Sample({"n": number}, seconds) for number, seconds in enumerate((4.0, 1.0, 2.0))]
    assert _median(rounds).figures == {"n": 2}
    assert _median(rounds[:2]).figures == {"n": 1}
    assert _spread(rounds) == 1.5
    assert _spread(rounds[:1]) is None


async def test_a_baseline_that_frees_nothing_has_no_share_and_says_why(serving: Serving) -> None:
    endless = "so it goes " * 500
    found, sheet = await rows(serving, Fake(tools=True, reply=answering(endless, NOTES)))
    seed = next(row for row in found if row["way"] == "Jazz's rules (seed)")
    assert (seed["tokens freed"], seed["in all, of the first row"]) == (0, None)
    assert any(note.startswith("Jazz's rules (seed): its summary was cut off") for note in sheet.notes)


async def test_without_time_there_is_no_row(serving: Serving) -> None:
    found, _ = await rows(serving, Fake(reply=answering("Done.", NOTES)), seconds=0)
    assert found == []
