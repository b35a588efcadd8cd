from __future__ import annotations

import pytest

from localctx.core.steps import in_circles, nudge, warning


def test_a_person_is_told_once_at_each_of_three_shares() -> None:
    told = {step: warning(step, 100) for step in range(101) if warning(step, 100)}
    assert list(told) == [50, 70, 90]
    assert "70% used (70/100)" in told[70]
    assert "'continue'" in told[70]


@pytest.mark.parametrize("most", [1, 2, 3, 4, 5, 7, 50])
def test_no_share_is_told_twice_and_the_limit_itself_is_no_warning(most: int) -> None:
    told = [warning(step, most) for step in range(1, most + 1)]
    assert len(list(filter(None, told))) <= 3
    assert not told[-1]


def test_an_agent_is_warned_from_the_seed_s_shares_on() -> None:
    assert not nudge(69, 100)
    assert nudge(70, 100).startswith("[STEPS WARNING: 70 of 100")
    assert nudge(90, 100).startswith("[STEPS CRITICAL: 90 of 100")
    assert "WARNING: 4 of 5 steps used (80%)" in nudge(4, 5)


@pytest.mark.parametrize(
    ("calls", "distinct", "circles"), [(10, 3, True), (10, 4, False), (9, 3, False), (9, 1, False)]
)
def test_ten_calls_of_which_fewer_than_four_differ_are_circles(calls: int, distinct: int, *, circles: bool) -> None:
    made = [("grep", f'{{"pattern": "{number % distinct}"}}') for number in range(calls)]
    assert in_circles(made) is circles


def test_only_the_newest_calls_count() -> None:
    varied = [("grep", str(number)) for number in range(50)]
    assert not in_circles([("grep", "same")] * 50 + varied)
    assert in_circles(varied + [("grep", "same")] * 10)
