"""The figures are of llama.cpp on a CPU: SmolLM2-135M, a conversation of 6,060 tokens, a summary of 64."""

from __future__ import annotations

from dataclasses import replace
from math import inf, nan
from typing import TYPE_CHECKING, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from localctx.core.accounting import Usage
from localctx.core.cost import Asked, Price, Speeds, explained, learned, pays, price, silence_within, tail_within

if TYPE_CHECKING:
    from collections.abc import Callable

COLD = Usage(prompt=6_032, completion=64, cached=0, prefill_seconds=45.0, decode_seconds=3.7)
MEASURED = learned(Speeds(), COLD, None)
NO_CACHE = replace(MEASURED, reuses=0.0)
BEFORE = 6_060


def in_place(speeds: Speeds) -> Price:
    return price(speeds, before=BEFORE, after=1_652, first_changed=809, summary=Asked(6_079, 6_046, 64))


def batch(speeds: Speeds) -> Price:
    return price(speeds, before=BEFORE, after=4_883, first_changed=923)


def one_a_turn(speeds: Speeds) -> Price:
    """The same four results, one in each of four turns. Of what each moves only the sum was measured."""
    sizes, stubs = [BEFORE, 5_792, 5_489, 5_186, 4_883], [923, 1_118, 1_314, 1_510]
    each = [
        price(speeds, before=before, after=after, first_changed=stub)
        for before, after, stub in zip(sizes, sizes[1:], stubs, strict=False)
    ]
    seconds = None if speeds.prefill is None else sum(cost.seconds or 0.0 for cost in each)
    return Price(seconds, 0.0, sum(cost.freed for cost in each), sum(cost.prefilled for cost in each), 0)


# --- predicting ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("rung", "prefilled", "seconds"),
    [
        pytest.param(in_place, 33 + 843, 10.1, id="summarize in place and rewrite"),
        pytest.param(batch, 3_960, 32.0, id="clear the four oldest in one batch"),
        pytest.param(one_a_turn, 16_485, 137.0, id="clear one a turn"),
    ],
)
def test_one_cold_request_predicts_what_was_measured(
    rung: Callable[[Speeds], Price], prefilled: int, seconds: float
) -> None:
    cost = rung(MEASURED)
    assert cost.prefilled == prefilled
    assert cost.seconds == pytest.approx(seconds, rel=0.15)


def test_apart_all_pieces_are_read() -> None:
    apart = price(MEASURED, before=BEFORE, after=1_652, first_changed=809, summary=Asked(5_132, 0, 64))
    assert apart.prefilled == 5_132 + 843
    assert apart.seconds == pytest.approx(45 * (5_132 + 843) / 6_032 + 3.7)


def test_the_machine_alone_and_trimming_only_move_the_prefix() -> None:
    alone = price(MEASURED, before=BEFORE, after=1_652, first_changed=809)
    assert (alone.freed, alone.prefilled, alone.written) == (BEFORE - 1_652, 843, 0)


def test_a_model_that_cannot_go_back_reads_all_again() -> None:
    assert batch(replace(MEASURED, rewinds=0.0)).prefilled == 4_883


def test_without_a_prefix_cache_nothing_moves_and_every_later_request_is_shorter() -> None:
    clearing, compaction = batch(NO_CACHE), in_place(NO_CACHE)
    assert (clearing.seconds, clearing.prefilled) == (0.0, 0)
    assert clearing.saved == pytest.approx((BEFORE - 4_883) * 45 / 6_032)
    assert compaction.prefilled == 6_079
    assert batch(MEASURED).saved == 0.0


def test_seconds_need_only_the_speeds_that_count() -> None:
    assert batch(Speeds()).seconds is None
    assert batch(Speeds(prefill=100.0)).seconds == pytest.approx(39.6)
    assert in_place(Speeds(prefill=100.0)).seconds is None
    assert in_place(Speeds(decode=10.0)).seconds is None
    assert price(Speeds(), before=500, after=500, first_changed=500).seconds == 0.0


# --- deciding -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("speeds", [MEASURED, Speeds(), replace(MEASURED, rewinds=0.0)], ids=["measured", "not", "swa"])
def test_with_a_prefix_cache_the_compaction_is_cheaper_than_clearing(speeds: Speeds) -> None:
    assert not pays(batch(speeds), in_place(speeds))
    assert not pays(one_a_turn(speeds), in_place(speeds))
    assert one_a_turn(speeds).prefilled > 3 * batch(speeds).prefilled


@pytest.mark.parametrize("speeds", [NO_CACHE, Speeds(reuses=0.0)], ids=["measured", "not"])
def test_without_a_prefix_cache_clearing_pays_at_once(speeds: Speeds) -> None:
    assert pays(batch(speeds), in_place(speeds))
    alone = price(speeds, before=BEFORE, after=1_652, first_changed=809)
    assert pays(batch(speeds), alone)


def test_clearing_pays_where_a_token_is_freed_for_no_more_seconds() -> None:
    compaction = Price(10.0, 0.0, freed=4_000, prefilled=800, written=60)
    assert pays(Price(5.0, 0.0, freed=2_000, prefilled=600, written=0), compaction)
    assert not pays(Price(5.1, 0.0, freed=2_000, prefilled=600, written=0), compaction)


def test_where_a_speed_is_missing_a_written_token_counts_as_one_that_is_read() -> None:
    compaction = Price(None, 0.0, freed=4_000, prefilled=800, written=200)
    assert pays(Price(5.0, 0.0, freed=2_000, prefilled=500, written=0), compaction)
    assert not pays(Price(0.1, 0.0, freed=2_000, prefilled=501, written=0), compaction)


def test_what_frees_nothing_never_pays_and_a_compaction_that_frees_nothing_is_not_waited_for() -> None:
    useless = price(MEASURED, before=1_000, after=1_200, first_changed=500)
    assert useless.freed == 0
    assert not pays(useless, in_place(MEASURED))
    assert not pays(replace(useless, seconds=0.0, prefilled=0), in_place(MEASURED))
    assert pays(batch(MEASURED), useless)


def test_a_server_that_seldom_finds_the_prefix_is_cleared_as_one_that_has_none() -> None:
    assert pays(batch(replace(MEASURED, reuses=0.1)), in_place(replace(MEASURED, reuses=0.1)))
    assert not pays(batch(replace(MEASURED, reuses=0.9)), in_place(replace(MEASURED, reuses=0.9)))


# --- the tail -----------------------------------------------------------------------------------------------------


def test_the_tail_is_what_is_read_again_within_the_patience() -> None:
    assert tail_within(20.0, Speeds(prefill=100.0), 8_000) == 2_000
    assert tail_within(20.0, Speeds(prefill=1_000.0), 8_000) == 8_000
    assert tail_within(20.0, Speeds(decode=9.0), 8_000) == 8_000
    assert tail_within(0.0, Speeds(prefill=100.0), 8_000) == 0
    assert tail_within(inf, Speeds(prefill=100.0), 8_000) == 8_000


def test_a_slow_server_may_be_silent_for_longer() -> None:
    assert silence_within(0, Speeds()) == 120.0
    assert silence_within(6_000, Speeds(prefill=100.0)) == 120.0 + 3 * 60.0
    assert silence_within(6_000, Speeds()) > silence_within(6_000, Speeds(prefill=100.0)), (
        "nothing is known: be patient"
    )


# --- learning -----------------------------------------------------------------------------------------------------


def report(new: int, cached: int | None, seconds: float | None, *, prompt: int | None = None) -> Usage:
    return Usage(new + (cached or 0) if prompt is None else prompt, 1, cached, seconds, 1e-6)


def test_a_first_report_is_the_speed() -> None:
    assert MEASURED.prefill == pytest.approx(6_032 / 45)
    assert MEASURED.decode == pytest.approx(64 / 3.7)
    assert (MEASURED.reuses, MEASURED.rewinds) == (1.0, 1.0)


def test_later_reports_move_it_in_proportion_so_that_one_outlier_does_little() -> None:
    known = Speeds(prefill=100.0)
    slow = learned(known, report(1_000, 0, 1_000.0), None).prefill
    fast = learned(known, report(1_000, 0, 0.1), None).prefill
    assert slow == pytest.approx(100 / 10**0.5)
    assert fast == pytest.approx(100 * 10**0.5)


def test_a_machine_that_is_slower_now_is_soon_believed() -> None:
    speeds = Speeds(prefill=100.0)
    for _ in range(8):
        speeds = learned(speeds, report(500, 5_000, 10.0), 5_000)
    assert speeds.prefill == pytest.approx(50, rel=0.1)


@pytest.mark.parametrize(
    "usage",
    [
        pytest.param(Usage(), id="nothing"),
        pytest.param(report(63, 400, 1.0), id="too little that was not cached"),
        pytest.param(report(500, 0, 0.0), id="no time"),
        pytest.param(report(500, 0, -1.0), id="negative time"),
        pytest.param(report(500, 0, None), id="time unknown"),
        pytest.param(report(500, 0, nan), id="no number"),
        pytest.param(report(500, 0, inf), id="endless"),
        pytest.param(report(500, 0, 1e-9), id="faster than any machine"),
        pytest.param(report(500, 0, 1e-308), id="too fast for a number"),
        pytest.param(report(0, 600, 1.0, prompt=500), id="more cached than there was"),
        pytest.param(report(0, -1, 1.0, prompt=500), id="less than nothing cached"),
        pytest.param(report(0, 100, 1.0, prompt=-500), id="less than nothing sent"),
        pytest.param(report(500, None, 5.0), id="nobody knows what was cached"),
        pytest.param(Usage(completion=15, decode_seconds=1.0), id="a short reply"),
        pytest.param(Usage(completion=500, decode_seconds=0.0), id="a reply in no time"),
    ],
)
def test_what_is_too_small_to_tell_or_absurd_teaches_nothing(usage: Usage) -> None:
    for speeds in (Speeds(), MEASURED):
        assert learned(speeds, usage, None) == speeds


def test_a_few_more_tokens_do_teach() -> None:
    assert learned(Speeds(), report(64, 400, 1.0), None).prefill == 64
    assert learned(Speeds(), Usage(completion=16, decode_seconds=2.0), None).decode == 8


def test_a_server_that_lost_the_prefix_once_is_still_believed_to_keep_it() -> None:
    speeds = learned(MEASURED, report(6_000, 0, 45.0), 5_900)
    assert speeds.reuses == 0.75
    assert learned(speeds, report(100, 5_900, 1.0), 5_900).reuses > 0.8
    for _ in range(5):
        speeds = learned(speeds, report(6_000, 0, 45.0), 5_900)
    assert pays(batch(speeds), in_place(speeds))


@pytest.mark.parametrize(("cached", "share"), [(2_950, 1.0), (2_949, 0.75)])
def test_a_prefix_is_found_where_half_of_it_is(cached: int, share: float) -> None:
    assert learned(Speeds(), report(6_000 - cached, cached, None), 5_900).reuses == share


def test_after_a_rewrite_a_report_says_whether_the_server_can_go_back() -> None:
    middle = learned(MEASURED, report(5_456, 804, 14.0), 3_512, rewritten=True)
    assert (middle.reuses, middle.rewinds) == (1.0, 0.75)
    front = learned(replace(MEASURED, rewinds=0.5), report(929, 804, 2.3), 804, rewritten=True)
    assert (front.reuses, front.rewinds) == (1.0, 0.625)


@pytest.mark.parametrize("shared", [None, 0, 255, -5, 601])
def test_what_was_hardly_shared_or_cannot_be_says_nothing_about_the_cache(shared: int | None) -> None:
    assert learned(Speeds(), report(600, 0, 5.0), shared).reuses == 1.0


# --- servers that do not say what was cached ------------------------------------------------------------------------


def test_where_the_server_does_not_say_what_was_cached_what_was_new_is_the_measure() -> None:
    assert learned(Speeds(), report(0, None, 3.0, prompt=6_200), 5_900).prefill == 100


def test_once_the_speed_is_known_the_time_tells_whether_the_prefix_was_found() -> None:
    known = Speeds(prefill=100.0, reuses=0.5)
    found = learned(known, report(0, None, 4.0, prompt=6_200), 5_900)
    assert found.reuses > known.reuses
    assert found.prefill == pytest.approx(100**0.75 * 75**0.25)
    lost = learned(known, report(0, None, 50.0, prompt=6_200), 5_900)
    assert lost.reuses < known.reuses
    assert lost.prefill == pytest.approx(100**0.75 * 124**0.25)


def test_the_same_prompt_again_is_found_and_teaches_no_speed() -> None:
    known = Speeds(prefill=100.0, reuses=0.5)
    again = learned(known, report(0, None, 0.07, prompt=6_000), 6_000)
    assert again == replace(known, reuses=0.625)


@pytest.mark.parametrize("took", [0.0, -1.0, nan, inf, None])
def test_an_absurd_time_tells_nothing_about_the_cache(took: float | None) -> None:
    known = Speeds(prefill=100.0, reuses=0.5)
    after = learned(known, report(0, None, took, prompt=6_000), 5_900)
    assert after.prefill == 100.0
    assert after.reuses == 0.5


def test_more_cached_than_there_was_tells_nothing_about_the_cache() -> None:
    known = Speeds(reuses=0.5)
    assert learned(known, report(0, 601, 1.0, prompt=600), 500) == known
    assert learned(known, report(0, 600, 1.0, prompt=600), 500).reuses == 0.625


# --- explaining ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("cost", "until", "line"),
    [
        pytest.param(
            Price(31.2, 0.0, 9_120, 4_000, 0),
            0.74,
            "clearing now frees 9.1k tokens and costs 31 s of prefill; waiting is cheaper until 74%",
            id="of prefill",
        ),
        pytest.param(
            Price(9.96, 0.0, 4_408, 876, 64),
            None,
            "clearing now frees 4.4k tokens and costs 10 s of prefill and writing",
            id="of a summary",
        ),
        pytest.param(
            Price(0.0, 9.44, 950, 0, 0),
            None,
            "clearing now frees 950 tokens; each request after it takes 9.4 s less",
            id="without a prefix cache",
        ),
        pytest.param(
            Price(None, 0.0, 4_408, 876, 400),
            0.8,
            "clearing now frees 4.4k tokens, with 876 to prefill and 400 to write; waiting is cheaper until 80%",
            id="nothing measured",
        ),
        pytest.param(
            Price(None, None, 1_234_500, 3_960, 0),
            None,
            "clearing now frees 1.2M tokens, with 4.0k to prefill",
            id="nothing measured, nothing written",
        ),
        pytest.param(Price(0.0, None, 1_000, 0, 0), None, "clearing now frees 1.0k tokens", id="no cache, no speed"),
    ],
)
def test_one_line_for_a_person(cost: Price, until: float | None, line: str) -> None:
    assert explained("clearing", cost, until=until) == line


# --- over everything ------------------------------------------------------------------------------------------------

tokens = st.integers(0, 2_000_000)
shares = st.floats(0, 1)
rates = st.none() | st.floats(1e-3, 1e6)
known_speeds = st.builds(Speeds, rates, rates, shares, shares)
asked = st.builds(Asked, tokens, tokens, tokens)
reported = st.none() | st.integers(-5, 2**31)
times = st.none() | st.floats()


@given(st.lists(st.tuples(st.builds(Usage, reported, reported, reported, times, times), reported, st.booleans())))
def test_whatever_is_reported_speeds_stay_what_they_can_be(reports: list[tuple[Usage, int | None, bool]]) -> None:
    speeds = Speeds()
    for usage, shared, rewritten in reports:
        speeds = learned(speeds, usage, shared, rewritten=rewritten)
    assert all(rate is None or 0 < rate < inf for rate in (speeds.prefill, speeds.decode))
    assert 0 <= speeds.reuses <= 1
    assert 0 <= speeds.rewinds <= 1
    assert in_place(speeds).prefilled >= 0


class Change(NamedTuple):
    before: int
    after: int
    first: int
    summary: Asked

    def price(self, speeds: Speeds) -> Price:
        return price(speeds, before=self.before, after=self.after, first_changed=self.first, summary=self.summary)


changes = st.builds(Change, tokens, tokens, tokens, asked)


@given(known_speeds, changes, tokens)
def test_more_to_read_or_to_write_never_costs_less(speeds: Speeds, change: Change, more: int) -> None:
    one, summary = change.price(speeds), change.summary
    assert one.freed == max(change.before - change.after, 0)
    assert one.prefilled >= 0
    dearer = [
        change._replace(after=change.after + more).price(speeds),
        change._replace(first=max(change.first - more, 0)).price(speeds),
        change._replace(summary=replace(summary, prompt=summary.prompt + more)).price(speeds),
        change._replace(summary=replace(summary, seen=max(summary.seen - more, 0))).price(speeds),
        change._replace(summary=replace(summary, written=summary.written + more)).price(speeds),
        change.price(replace(speeds, prefill=speeds.prefill and speeds.prefill / 2)),
        change.price(replace(speeds, rewinds=speeds.rewinds / 2)),
    ]
    for other in dearer:
        assert other.prefilled >= one.prefilled
        assert other.seconds is None or one.seconds is None or other.seconds >= one.seconds >= 0


@given(known_speeds, changes, changes, shares)
def test_a_price_can_always_be_judged_and_said(speeds: Speeds, now: Change, later: Change, until: float) -> None:
    clearing, compaction = now.price(speeds), later.price(speeds)
    assert (" costs " in explained("clearing", clearing, until=until)) == bool(clearing.seconds)
    assert not pays(replace(clearing, freed=0), compaction)
    if pays(clearing, compaction):
        assert pays(replace(clearing, freed=clearing.freed + 1), compaction)


@given(changes, changes, rates, rates)
def test_without_a_prefix_cache_any_clearing_that_frees_pays(
    now: Change, later: Change, prefill: float | None, decode: float | None
) -> None:
    speeds = Speeds(prefill, decode, reuses=0.0)
    clearing = now._replace(summary=Asked()).price(speeds)
    assert pays(clearing, later.price(speeds)) == (clearing.freed > 0)


@given(st.floats(), known_speeds, tokens, tokens)
def test_a_tail_is_never_longer_than_wanted_and_grows_with_the_patience(
    patience: float, speeds: Speeds, wanted: int, more: int
) -> None:
    tail = tail_within(patience, speeds, wanted)
    assert 0 <= tail <= wanted
    assert tail <= tail_within(patience, speeds, wanted + more)
    if speeds.prefill is not None and patience > 0:
        assert tail <= tail_within(patience, replace(speeds, prefill=speeds.prefill * 2), wanted)
        assert tail / speeds.prefill <= patience


@given(known_speeds)
def test_speeds_that_were_kept_come_back(speeds: Speeds) -> None:
    assert Speeds.restored(speeds.kept()) == speeds


@pytest.mark.parametrize(
    "text",
    [
        *("", "[]", "null", "{}", "[" * 100_000),
        '{"prefill": -1, "decode": null, "reuses": 1, "rewinds": 1}',
        '{"prefill": 1e9, "decode": null, "reuses": 1, "rewinds": 1}',
        '{"prefill": NaN, "decode": null, "reuses": 1, "rewinds": 1}',
        '{"prefill": null, "decode": "fast", "reuses": 1, "rewinds": 1}',
        '{"prefill": null, "decode": null, "reuses": 2, "rewinds": 1}',
        '{"prefill": null, "decode": null, "reuses": 1, "rewinds": NaN}',
        '{"prefill": null, "decode": null, "reuses": 1}',
    ],
)
def test_speeds_that_no_server_has_are_not_restored(text: str) -> None:
    assert Speeds.restored(text) is None
