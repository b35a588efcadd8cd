from __future__ import annotations

import json
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from localctx.core.accounting import Count, Makeup, added
from localctx.core.calibration import Calibration, Rate

RATES = (Rate(12, 45, 2), Rate(5, 5, 1), Rate(1.0, 0.4, 0.05), Rate(0.9, 0.8, 0.05))
PRIOR = Calibration.of(RATES)


def test_makeups_of_parts_add_up_to_that_of_the_whole() -> None:
    assert added([(1.0, 2.0), (3.0, 0.0), (0.5, 0.5)]) == (4.5, 2.5)
    assert added([]) == ()


def test_before_any_report_the_rates_are_what_is_believed() -> None:
    assert PRIOR.count((), "estimate") == Count(0, 0, "estimate")
    assert PRIOR.count((0, 0, 100, 0), "estimate").tokens == 100
    assert PRIOR.count((0, 0, 100, 0), "estimate").bound == pytest.approx(40, abs=1)
    assert PRIOR.reports == 0


def test_doubts_about_different_classes_do_not_add_up_but_those_about_one_do() -> None:
    one, two = PRIOR.count((0, 0, 100, 0), ""), PRIOR.count((0, 0, 200, 0), "")
    assert two.bound == pytest.approx(2 * one.bound, abs=1)
    both = PRIOR.count((0, 0, 100, 50), "")
    assert max(one.bound, 40) < both.bound < one.bound + 41


def test_one_report_takes_most_of_the_error_away_and_narrows_the_bound() -> None:
    makeup: Makeup = (1, 3, 1_000, 0)
    after = PRIOR.learned(makeup, 1_300)
    assert after.reports == 1
    assert after.count(makeup, "").tokens == pytest.approx(1_300, rel=0.03)
    assert after.count(makeup, "").bound < PRIOR.count(makeup, "").bound / 3


def test_what_was_never_seen_stays_as_it_was_believed() -> None:
    after = PRIOR.learned((1, 3, 1_000, 0), 1_300)
    assert after.count((0, 0, 0, 100), "") == PRIOR.count((0, 0, 0, 100), "")


def test_the_overhead_of_a_request_is_learned_apart_from_the_rate_of_its_text() -> None:
    calibration = PRIOR
    for words in (20, 400, 1_500):
        calibration = calibration.learned((1, 2, words, 0), 60 + 2 * 7 + int(words * 1.2))
    small, large = calibration.count((1, 2, 0, 0), ""), calibration.count((0, 0, 10_000, 0), "")
    assert small.tokens == pytest.approx(74, abs=12)
    assert large.tokens == pytest.approx(12_000, rel=0.03)


def test_truth_stays_within_the_bound_when_rates_and_texts_vary_as_they_are_said_to() -> None:
    random, missed = Random(7), 0  # noqa: S311  a sample, no secret
    for _ in range(100):
        truth = [max(rate.tokens + rate.spread * random.uniform(-0.8, 0.8), 0) for rate in RATES]
        calibration = PRIOR
        for _ in range(30):
            makeup = (1.0, float(random.randrange(1, 9)), float(random.randrange(2_000)), float(random.randrange(300)))
            rates = [mean + rate.noise * random.gauss(0, 0.4) for mean, rate in zip(truth, RATES, strict=True)]
            tokens = round(sum(rate * units for rate, units in zip(rates, makeup, strict=True)))
            count = calibration.count(makeup, "")
            missed += not count.lower <= tokens <= count.upper
            calibration = calibration.learned(makeup, tokens)
    assert 0 < missed < 0.02 * 100 * 30


@given(st.lists(st.tuples(st.lists(st.floats(0, 1e6), min_size=4, max_size=4), st.integers(0, 2**31)), max_size=8))
def test_no_report_makes_it_lose_its_senses(reports: list[tuple[list[float], int]]) -> None:
    calibration = PRIOR
    for makeup, tokens in reports:
        calibration = calibration.learned(tuple(makeup), tokens)
        count = calibration.count(tuple(makeup), "")
        assert count.tokens >= 0
        assert count.bound >= 0
    restored = PRIOR.restored(calibration.kept())
    assert restored is None or restored.rates == pytest.approx(calibration.rates, rel=1e-8)


def test_a_measure_far_beyond_the_bound_teaches_next_to_nothing() -> None:
    makeup = (1, 3, 1_000, 0)
    near, far = PRIOR.learned(makeup, 1_400), PRIOR.learned(makeup, 100_000)
    assert near.count(makeup, "").tokens > 1_350
    assert far.count(makeup, "").tokens < PRIOR.count(makeup, "").tokens + 10


def test_what_a_server_adds_of_its_own_burdens_the_frame_alone_and_can_be_unlearned() -> None:
    burdened = PRIOR.burdened((1, 0, 0, 0), 3_000)
    assert burdened.count((0, 3, 1_000, 0), "") == PRIOR.count((0, 3, 1_000, 0), "")
    count = burdened.count((1, 3, 1_000, 0), "")
    assert count.tokens == PRIOR.count((1, 3, 1_000, 0), "").tokens + 3_000
    assert count.lower < 1_100, "it may not be there the next time"
    after = burdened.learned((1, 3, 1_000, 0), 1_030)
    assert after.count((1, 3, 1_000, 0), "").tokens == pytest.approx(1_030, rel=0.05)


def test_a_report_of_nothing_teaches_nothing() -> None:
    assert PRIOR.learned((), 100) == PRIOR
    assert PRIOR.learned((0, 0, 0, 0), 100) == PRIOR


def test_what_was_learned_can_be_kept() -> None:
    after = PRIOR.learned((1, 3, 1_000, 0), 1_300)
    kept = PRIOR.restored(after.kept())
    assert kept is not None
    assert kept.count((1, 3, 1_000, 50), "") == after.count((1, 3, 1_000, 50), "")
    assert kept.reports == 1
    assert PRIOR.restored(kept.kept()) == kept


@pytest.mark.parametrize(
    "text",
    [
        "",
        "no json",
        "[]",
        "{}",
        "[" * 100_000,
        json.dumps({"rates": [1, 2], "covariance": [[1], [0, 1]], "reports": 3}),
        json.dumps({"rates": [1, 2, 3, "4"], "covariance": [[1], [0, 1], [0, 0, 1], [0, 0, 0, 1]], "reports": 3}),
        json.dumps(
            {"rates": [1, 2, 3, float("nan")], "covariance": [[1], [0, 1], [0, 0, 1], [0, 0, 0, 1]], "reports": 3}
        ),
        json.dumps({"rates": [1, 2, 3, -4], "covariance": [[1], [0, 1], [0, 0, 1], [0, 0, 0, 1]], "reports": 3}),
        json.dumps({"rates": [1, 2, 3, 4], "covariance": [[1], [0, 1], [0, 0, 1], [0, 0, 0]], "reports": 3}),
        json.dumps({"rates": [1, 2, 3, 4], "covariance": [[1], [0, 1], [0, 0, 1], [0, 0, 0, -1]], "reports": 3}),
        json.dumps({"rates": [1, 2, 3, 4], "covariance": [[1], [0, 1], [0, 0, 1], [0, 0, 0, 1]], "reports": "three"}),
        json.dumps({"rates": [1, 2, 3, 10**400], "covariance": [[1], [0, 1], [0, 0, 1], [0, 0, 0, 1]], "reports": 3}),
    ],
)
def test_anything_else_that_was_kept_is_not_believed(text: str) -> None:
    assert PRIOR.restored(text) is None
