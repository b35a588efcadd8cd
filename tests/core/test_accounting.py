from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from localctx.core.accounting import Count, Ledger, Usage, head_and_tail, truncated
from tests.cases import case, joined

if TYPE_CHECKING:
    from collections.abc import Callable


def test_a_count_is_right_within_its_bound() -> None:
    count = Count(100, 8, "estimate")
    assert (count.lower, count.upper) == (92, 108)
    assert Count(3, 8, "estimate").lower == 0


@pytest.mark.parametrize("prompt", [None, 0, -1])
def test_a_report_without_a_prompt_teaches_nothing(prompt: int | None) -> None:
    ledger = Ledger(500, 9)
    assert ledger.measured(Usage(prompt=prompt, completion=7), 12) == ledger


def test_a_count_is_the_last_report_and_what_is_new() -> None:
    assert Ledger().count(Count(50, 4, "estimate")).tokens == 50
    ledger = Ledger().measured(Usage(prompt=1_000), 12)
    assert ledger.through == 12
    assert ledger.count(Count(50, 4, "estimate")) == Count(1_050, 4, "last usage and estimate of what is new")


@pytest.mark.parametrize(
    ("expected", "reported", "alarm"),
    [
        pytest.param(Count(1_000, 0, "exact"), 970, False, id="as counted"),
        pytest.param(Count(1_000, 0, "exact"), 969, True, id="an exact count is proof"),
        pytest.param(Count(1_000, 0, "exact"), 1_200, False, id="more than was sent"),
        pytest.param(Count(1_000, 0, "exact"), 0, False, id="no report"),
        pytest.param(Count(9_000, 900, "estimate"), 5_000, False, id="an estimate may be far off"),
        pytest.param(Count(9_000, 900, "estimate"), 4_096, True, id="cut to the window"),
        pytest.param(Count(9_000, 900, "estimate"), 2_050, True, id="cut to half behind the kept head"),
        pytest.param(Count(9_000, 900, "estimate"), 2_052, True, id="and the first token"),
        pytest.param(Count(9_000, 900, "estimate"), 2_053, False, id="beside the half"),
        pytest.param(Count(9_000, 900, "estimate"), 4_099, False, id="beside the window"),
        pytest.param(Count(4_500, 900, "estimate"), 4_096, False, id="within the bound"),
    ],
)
def test_a_report_far_below_what_was_sent_raises_the_alarm(expected: Count, reported: int, *, alarm: bool) -> None:
    assert truncated(expected, reported, window=4_096) is alarm


@pytest.mark.parametrize("bound", [0, 300])
@pytest.mark.parametrize(
    ("run", "check"), joined(case(11)["given"]["runs"], case(11)["checks"]["runs"]), ids=lambda row: row.get("name", "")
)
def test_case_silent_truncation(run: dict[str, Any], check: dict[str, Any], bound: int) -> None:
    flagged = [
        index
        for index, turn in enumerate(run["turns"])
        if truncated(Count(turn["estimate"], bound, "estimate"), turn["reported_prompt"], run["window"])
    ]
    assert flagged == check["flagged_turns"]


@given(st.text("ab c語", max_size=2_000), st.integers(0, 300))
def test_a_shortened_text_keeps_its_head_and_tail_within_its_share(
    size: Callable[[str], int], text: str, tokens: int
) -> None:
    short = head_and_tail(text, tokens, size, " ... ")
    if size(text) <= tokens:
        assert short == text
        return
    head, _, tail = short.partition(" ... ")
    assert head
    assert text.startswith(head)
    assert text.endswith(tail)
    assert size(short) <= max(tokens, size("x ... x"))
