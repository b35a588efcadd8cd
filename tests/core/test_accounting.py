from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from localctx.core.accounting import Count, Ledger, Sight, head_and_tail, plausible, sight
from localctx.runtimes import ollama
from tests.cases import case, joined

if TYPE_CHECKING:
    from collections.abc import Callable


def test_a_count_is_right_within_its_bound() -> None:
    count = Count(100, 8, "estimate")
    assert (count.lower, count.upper) == (92, 108)
    assert Count(3, 8, "estimate").lower == 0


def test_a_ledger_is_the_last_measure_and_the_makeup_of_what_is_new() -> None:
    assert Ledger().plus((1.0, 2.0), 4) == Ledger(0, 4, (1.0, 2.0))
    ledger = Ledger(1_000, 12).plus((1.0, 2.0), 13).plus((0.0, 0.5), 15)
    assert ledger == Ledger(1_000, 15, (1.0, 2.5))


@pytest.mark.parametrize(
    ("reported", "believed"),
    [
        pytest.param(1_000, True, id="as counted"),
        pytest.param(1_900, True, id="a server may add words of its own"),
        pytest.param(898, True, id="just under the bound"),
        pytest.param(897, False, id="below the bound"),
        pytest.param(800, False, id="stale, cut, or of uncached tokens only"),
        pytest.param(0, False, id="no report"),
        pytest.param(-5, False, id="nonsense"),
    ],
)
def test_a_report_that_is_too_low_is_of_something_else(reported: int, *, believed: bool) -> None:
    assert plausible(Count(1_000, 100, "estimate"), reported) is believed


HALF = 4_096 - (4_096 - 4) // 2


WHOLE, DOUBTFUL, CUT = Sight.WHOLE, Sight.DOUBTFUL, Sight.CUT


@pytest.mark.parametrize(
    ("expected", "reported", "seen"),
    [
        pytest.param(Count(1_000, 0, "exact"), 970, WHOLE, id="as counted"),
        pytest.param(Count(1_000, 0, "exact"), 969, DOUBTFUL, id="less than an exact count"),
        pytest.param(Count(70, 0, "exact"), 62, WHOLE, id="a few tokens less: counts and chats differ"),
        pytest.param(Count(70, 0, "exact"), 61, DOUBTFUL, id="more than a few less"),
        pytest.param(Count(1_000, 0, "exact"), 1_200, WHOLE, id="more than was sent"),
        pytest.param(Count(1_000, 0, "exact"), 0, WHOLE, id="no report"),
        pytest.param(Count(9_000, 900, "estimate"), 5_000, DOUBTFUL, id="an estimate may be far off"),
        pytest.param(Count(9_000, 900, "estimate"), 4_096, CUT, id="cut to the window"),
        pytest.param(Count(9_000, 900, "estimate"), 2_050, CUT, id="cut to half behind the kept head"),
        pytest.param(Count(9_000, 900, "estimate"), 2_052, CUT, id="and the first token"),
        pytest.param(Count(9_000, 900, "estimate"), 2_053, DOUBTFUL, id="beside the half"),
        pytest.param(Count(9_000, 900, "estimate"), 4_099, DOUBTFUL, id="beside the window"),
        pytest.param(Count(4_500, 900, "estimate"), 4_096, WHOLE, id="within the bound"),
        pytest.param(Count(4_200, 20, "estimate"), 4_096, CUT, id="a window that was just passed"),
    ],
)
def test_what_a_report_far_below_what_was_sent_says(expected: Count, reported: int, seen: Sight) -> None:
    assert sight(expected, reported, (4_096, HALF)) is seen


def test_no_window_is_as_small_as_what_turns_without_their_cached_part_report() -> None:
    assert sight(Count(9_000, 900, "estimate"), 73, (4_096, HALF), 73) is DOUBTFUL


@pytest.mark.parametrize(("before", "seen"), [(0, DOUBTFUL), (3_000, CUT), (2_998, CUT), (2_900, DOUBTFUL)])
def test_the_same_report_again_is_a_plateau_wherever_it_sits(before: int, seen: Sight) -> None:
    assert sight(Count(9_000, 0, "exact"), 3_000, (4_096, HALF), before) is seen


def cut_points(run: dict[str, Any]) -> tuple[int, ...]:
    assert run.get("num_keep", 4) == 4, "what Ollama keeps"
    return ollama.cut_points(run["window"])


@pytest.mark.parametrize("bound", [0, 300])
@pytest.mark.parametrize(
    ("run", "check"), joined(case(11)["given"]["runs"], case(11)["checks"]["runs"]), ids=lambda row: row.get("name", "")
)
def test_case_silent_truncation(run: dict[str, Any], check: dict[str, Any], bound: int) -> None:
    flagged = [
        index
        for index, turn in enumerate(run["turns"])
        if sight(Count(turn["estimate"], bound, "estimate"), turn["reported_prompt"], cut_points(run)) is CUT
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
