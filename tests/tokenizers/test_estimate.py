from __future__ import annotations

import json
from time import perf_counter
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from localctx.core.accounting import Count
from localctx.tokenizers.estimate import ClassEstimate, estimate
from tests.cases import case

if TYPE_CHECKING:
    from collections.abc import Callable

COUNTED = case(15)
ROWS: list[dict[str, Any]] = COUNTED["given"]["rows"]
PIXEL = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}


def counted(row: dict[str, Any]) -> Count:
    if "message" in row:
        return ClassEstimate().request([row["message"]])
    request = row["request"]
    system = {"role": "system", "content": request["system"]}
    return ClassEstimate().request([system, *request["messages"]], request["tools"])


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
    added = ClassEstimate().request([message | more]).tokens - ClassEstimate().request([message]).tokens
    assert added >= estimate(TEXT).tokens


def test_tools_and_messages_have_a_price_of_their_own() -> None:
    empty: dict[str, object] = {"role": "user", "content": ""}
    none, one, two = (ClassEstimate().request([empty] * number) for number in range(3))
    assert none == Count(0, 0, "estimate")
    assert 0 < one.tokens <= 10
    assert (two.tokens, two.bound) == (2 * one.tokens, 2 * one.bound)
    tool = {"type": "function", "function": {"name": "f", "description": TEXT}}
    assert ClassEstimate().request([], [tool]).tokens > estimate(TEXT).tokens


def test_an_image_costs_the_same_whatever_its_bytes() -> None:
    large = {"type": "image_url", "image_url": {"url": "data:image/png;base64," + "A" * 5_000_000}}
    costs = [ClassEstimate().request([{"role": "user", "content": [part]}]) for part in (PIXEL, large)]
    assert costs[0] == costs[1]
    assert 100 < costs[0].tokens < 3000
    both = ClassEstimate().request([{"role": "user", "content": [PIXEL, large, {"type": "text", "text": TEXT}]}])
    assert both.tokens == 2 * costs[0].tokens - 5 + estimate(TEXT).tokens


def test_an_empty_text_is_nothing() -> None:
    assert estimate("") == (0, 0)
    assert ClassEstimate().size("") == 0


@given(st.text(st.characters(exclude_categories=()), min_size=1))
def test_any_text_has_a_size(text: str) -> None:
    tokens, bound = estimate(text)
    assert bound >= 0
    assert tokens <= len(text) + 1
    assert tokens > 0 or text.isspace()
    assert ClassEstimate().size(text) == tokens
    assert ClassEstimate().request([{"role": "user", "content": text}]).lower >= 0


def test_only_what_is_new_costs_time() -> None:
    history = [{"role": "user", "content": f"message {number} of this test"} for number in range(300)]
    once = ClassEstimate().request(history)
    before = estimate.cache_info().misses
    assert ClassEstimate().request(json.loads(json.dumps(history))) == once
    assert estimate.cache_info().misses == before
    ClassEstimate().request([*history, {"role": "user", "content": "one more message of this test"}])
    assert estimate.cache_info().misses == before + 1


@pytest.mark.parametrize(
    "text",
    [
        lambda size: "a" * size,
        lambda size: " " * size,
        lambda size: "a1" * (size // 2),
        lambda size: "a\u00e9\u6f22\x80\n{" * (size // 6),
        lambda size: "\x80" * size,
    ],
    ids=["one word", "spaces", "word and digit", "all classes", "controls"],
)
def test_the_time_grows_with_the_text_and_no_faster(text: Callable[[int], str]) -> None:
    def seconds(size: int) -> float:
        given, began = text(size), perf_counter()
        estimate.__wrapped__(given)
        return perf_counter() - began

    large, small = seconds(1_000_000), max(seconds(125_000) for _ in range(2))
    assert large < 8 * 4 * small + 0.01  # were it quadratic: 64 times
