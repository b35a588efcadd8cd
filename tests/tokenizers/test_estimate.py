from __future__ import annotations

import json
from time import perf_counter
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from localctx.core.accounting import Count, added
from localctx.core.portions import Kind, portions
from localctx.tokenizers.estimate import ClassEstimate, SeedCounter, SeedRatio, classes
from tests.cases import case

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

COUNTED = case(15)
ROWS: list[dict[str, Any]] = COUNTED["given"]["rows"]
PIXEL = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}


def request(messages: Sequence[Mapping[str, object]], tools: Sequence[Mapping[str, object]] = ()) -> Count:
    counter = ClassEstimate()
    return counter.prior.count(added([counter.frame(tools), *map(counter.message, messages)]), counter.how)


def of_text(text: str) -> Count:
    counter = ClassEstimate()
    return counter.prior.count(counter.text(text), counter.how)


def counted(row: dict[str, Any]) -> Count:
    if "message" in row:
        counter = ClassEstimate()
        return counter.prior.count(counter.message(row["message"]), counter.how)
    asked = row["request"]
    system = {"role": "system", "content": asked["system"]}
    return request([system, *asked["messages"]], asked["tools"])


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row["name"])
def test_all_that_goes_on_the_wire_is_counted_about_right(row: dict[str, Any]) -> None:
    count, reference = counted(row), row["reference_tokens"]
    assert COUNTED["checks"]["min_ratio"] <= count.tokens / reference <= COUNTED["checks"]["max_ratio"]
    assert count.lower <= reference <= count.upper
    assert count.how == "estimate"


@pytest.mark.parametrize("name", COUNTED["checks"]["chars_div_4_for_comparison"])
def test_a_quarter_of_the_characters_would_not_do(name: str) -> None:
    row = next(row for row in ROWS if row["name"] == name)
    assert len(row["message"]["content"]) // 4 < COUNTED["checks"]["min_ratio"] * row["reference_tokens"]


TEXT = "Some more words for the model to read, and a number: 12345."


@pytest.mark.parametrize(
    "more",
    [
        {"content": f"hi {TEXT}"},
        {"content": [{"type": "text", "text": f"hi {TEXT}"}]},
        {"reasoning_content": TEXT},
        {
            "tool_calls": [
                {"id": "1", "type": "function", "function": {"name": "f", "arguments": json.dumps({"x": TEXT})}}
            ]
        },
        {"name": TEXT},
    ],
    ids="-".join,
)
def test_no_part_of_a_message_is_free(more: dict[str, object]) -> None:
    message: dict[str, object] = {"role": "assistant", "content": "hi"}
    added = request([message | more]).tokens - request([message]).tokens
    assert added >= ClassEstimate().size(TEXT)


def test_tools_and_messages_have_a_price_of_their_own() -> None:
    empty: dict[str, object] = {"role": "user", "content": ""}
    none, one, two = (request([empty] * number).tokens for number in range(3))
    assert 0 < one - none <= 10
    assert two - one == one - none
    tool = {"type": "function", "function": {"name": "f", "description": TEXT}}
    assert request([], [tool]).tokens > none + ClassEstimate().size(TEXT)


@pytest.mark.parametrize("kind", [Kind.IMAGE, Kind.AUDIO, Kind.FILE])
def test_media_cost_the_same_whatever_their_bytes(kind: Kind) -> None:
    def part(size: int) -> dict[str, object]:
        return {"type": f"input_{kind}", kind: {"data": "A" * size}}

    small, large = ([{"role": "user", "content": [part(size)]}] for size in (4, 5_000_000))
    assert next(portions(small[0])).kind is kind
    assert request(small) == request(large)
    assert 100 < request(small).tokens < 3000
    assert request(small).lower < 200, "a template may drop it"
    both = request([{"role": "user", "content": [part(4), part(9), {"type": "text", "text": TEXT}]}])
    alone = request(small).tokens - request([{"role": "user", "content": []}]).tokens
    assert both.tokens == pytest.approx(2 * alone + request([{"role": "user", "content": TEXT}]).tokens, abs=2)


def test_an_empty_text_is_nothing() -> None:
    assert of_text("") == Count(0, 0, "estimate")
    assert ClassEstimate().size("") == 0


@given(st.text(st.characters(exclude_categories=()), min_size=1))
def test_any_text_has_a_size(text: str) -> None:
    count = of_text(text)
    assert 0 <= count.tokens <= 4 * len(text) + 2
    assert count.tokens > 0 or text.isspace()
    assert ClassEstimate().size(text) == count.tokens
    assert request([{"role": "user", "content": text}]).lower >= 0


def test_texts_are_classified_once() -> None:
    counter, text = ClassEstimate(), "a text that is asked for again and again"
    assert counter.text(text) == counter.text(text)
    assert counter.message({"role": "user", "content": text})[: len(classes(text))] == classes(text)
    assert counter._classes.cache_info().misses == 1


def test_the_seed_can_be_had_where_a_counter_is_wanted() -> None:
    counter = SeedCounter(SeedRatio("qwen3"))
    message = {"role": "user", "content": "x" * 70}
    assert counter.size("x" * 70) == 20
    makeup = added([counter.frame([{"name": "not counted"}]), counter.message(message), counter.text("y" * 35)])
    assert counter.prior.count(makeup, counter.how) == Count(34, 0, "seed ratio")
    assert counter.prior.learned(makeup, 1_000) == counter.prior


@pytest.mark.parametrize(
    "text",
    [
        lambda size: "a" * size,
        lambda size: " " * size,
        lambda size: "a1" * (size // 2),
        lambda size: "aA" * (size // 2),
        lambda size: "+" * size,
        lambda size: "a\u00e9\u6f22\x80\n{" * (size // 6),
        lambda size: "\x80" * size,
    ],
    ids=["one word", "spaces", "word and digit", "cases", "marks", "all classes", "controls"],
)
def test_the_time_grows_with_the_text_and_no_faster(text: Callable[[int], str]) -> None:
    def seconds(size: int) -> float:
        given, began = text(size), perf_counter()
        classes(given)
        return perf_counter() - began

    large, small = seconds(1_000_000), max(seconds(125_000) for _ in range(2))
    assert large < 8 * 4 * small + 0.01  # were it quadratic: 64 times
