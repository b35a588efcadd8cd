from __future__ import annotations

import json
from dataclasses import asdict, replace
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from localctx.core.lesson import Appended, Compacted, Event, Mark, Plan, Row, next_boot, replay

TRACES = Path(__file__).parents[3] / "shared" / "spec" / "lesson_trace.json"
RULE = Row("memory line", 100, "Always pnpm, never npm.")
READ = [
    Row("user", 500),
    Row("asst", 800),
    RULE,
    Row("call_read", 300),
    Row("res_read", 19_000),
    Row("diag", 900),
    Row("call_test", 300),
    Row("res_test", 22_100),
]
MORE = [Row("reply", 600), Row("user2", 500), Row("call_changelog", 300), Row("res_changelog", 4_200)]
DEFAULT = Plan()

BOOT = Mark("boot", 4_000)
TO_THE_DIAGNOSIS: list[Event] = [
    BOOT,
    Appended("user", 500, 4_500),
    Appended("asst", 800, 5_300),
    Mark("memory_write", 5_300),
    Appended("call_read", 300, 5_600),
    Appended("res_read", 19_000, 24_600),
    Appended("diag", 900, 25_500),
]
TO_THE_LOG = [*TO_THE_DIAGNOSIS, Appended("call_test", 300, 25_800), Appended("res_test", 22_100, 47_900)]
WITHOUT_MEMORY: list[Event] = [
    Mark("boot", 3_000),
    Appended("user", 500, 3_500),
    Appended("asst", 800, 4_300),
    Appended("call_read", 300, 4_600),
    Appended("res_read", 19_000, 23_600),
    Appended("diag", 900, 24_500),
    Appended("call_test", 300, 24_800),
    Appended("res_test", 22_100, 46_900),
]
OLD, LAST = ("user", "asst", "call_read", "res_read", "diag"), ("call_test", "res_test")


# C1
def test_a_gate_at_92_percent_trips_once() -> None:
    trip = Compacted(46_000, 47_900, OLD, 21_500, 800, LAST, 27_200, still_over=False)
    assert replay(DEFAULT, READ) == [*TO_THE_LOG, trip]


# C2
def test_without_a_gate_the_request_is_rejected() -> None:
    assert replay(Plan(gate=None), [*READ, *MORE]) == [
        *TO_THE_LOG,
        Appended("reply", 600, 48_500),
        Appended("user2", 500, 49_000),
        Appended("call_changelog", 300, 49_300),
        Appended("res_changelog", 4_200, 53_500),
        Mark("rejected", 53_500),
    ]


# C3
def test_without_memory_the_head_is_smaller_and_nothing_is_written() -> None:
    trip = Compacted(46_000, 46_900, OLD, 21_500, 800, LAST, 26_200, still_over=False)
    assert replay(Plan(memory=False), READ) == [*WITHOUT_MEMORY, trip]


# C4
def test_a_gate_at_half_trips_twice_and_is_still_passed() -> None:
    first = Compacted(25_000, 25_500, OLD[:3], 1_600, 800, OLD[3:], 24_700, still_over=False)
    second = Compacted(25_000, 47_100, ("summary1", *OLD[3:]), 20_700, 800, LAST, 27_200, still_over=True)
    log = [Appended("call_test", 300, 25_000), Appended("res_test", 22_100, 47_100)]
    assert replay(Plan(gate=0.5), READ) == [*TO_THE_DIAGNOSIS, first, *log, second]


# C5
def test_a_gate_at_half_without_memory_trips_once() -> None:
    trip = Compacted(25_000, 46_900, OLD, 21_500, 800, LAST, 26_200, still_over=True)
    assert replay(Plan(gate=0.5, memory=False), READ) == [*WITHOUT_MEMORY, trip]


@pytest.mark.parametrize(("summary", "trips"), [(800, 2), (801, 3)])
def test_a_token_more_in_the_summary_trips_a_strict_gate_once_more(summary: int, trips: int) -> None:
    events = replay(replace(Plan(gate=0.5), summary=summary), READ)
    assert sum(isinstance(event, Compacted) for event in events) == trips


# C6
def test_a_line_in_the_memory_moves_no_meter_until_the_next_session() -> None:
    events = replay(DEFAULT, READ)
    at = events.index(Mark("memory_write", 5_300))
    assert asdict(events[at - 1])["total"] == asdict(events[at])["total"]
    (trip,) = [event for event in events if isinstance(event, Compacted)]
    assert trip.after - trip.summary - 300 - 22_100 == 3_000 + 1_000
    assert next_boot(DEFAULT, READ)[0] == 3_000 + 1_100


# C7
@pytest.mark.parametrize(("memory", "boots", "known"), [(True, 4_100, (RULE.note,)), (False, 3_000, ())])
def test_the_next_session_knows_only_what_the_memory_holds(memory: bool, boots: int, known: tuple[str, ...]) -> None:  # noqa: FBT001  a parameter of the test
    assert next_boot(Plan(memory=memory), READ) == (boots, known)


def test_two_messages_that_pass_the_gate_have_nothing_to_give() -> None:
    rows = [Row("user", 40_000), Row("asst", 9_000)]
    assert replay(DEFAULT, rows) == [
        BOOT,
        Appended("user", 40_000, 44_000),
        Appended("asst", 9_000, 53_000),
        Mark("rejected", 53_000),
    ]


@pytest.mark.skipif(not TRACES.exists(), reason="the lesson's traces are not beside this checkout")
@pytest.mark.parametrize(
    ("name", "plan"),
    [
        ("default_92_memory", DEFAULT),
        ("no_compaction", Plan(gate=None)),
        ("no_memory_92", Plan(memory=False)),
        ("p50_memory", Plan(gate=0.5)),
        ("p50_no_memory", Plan(gate=0.5, memory=False)),
    ],
)
def test_every_trace_of_the_lesson_is_replayed_event_for_event(name: str, plan: Plan) -> None:
    rows = READ if plan.gate else [*READ, *MORE]
    traced = json.loads(TRACES.read_text(encoding="utf-8"))[name]
    assert json.loads(json.dumps([traced_form(event) for event in replay(plan, rows)])) == traced


def traced_form(event: Event) -> dict[str, object]:
    kinds: dict[type, str] = {Appended: "append", Compacted: "compact"}
    if type(event) in kinds:
        return {"event": kinds[type(event)], **asdict(event)}
    rejected = {"error": "context_length_exceeded"} if event == Mark("rejected", reached(event)) else {}
    return asdict(event) | rejected


@pytest.mark.parametrize(
    ("gate", "limit", "passes"), [(0.29, 100, 29), (0.92, 50_001, 46_000), (1.0, 7, 7), (0.1, 1, 0)]
)
def test_the_gate_lets_pass_what_is_not_above_its_share(gate: float, limit: int, passes: int) -> None:
    assert Plan(gate=gate, limit=limit).gate_tokens == passes


# --- whatever the window, the gate and the messages -----------------------------------------------------------------

shares = st.none() | st.integers(1, 1_000).map(lambda mille: mille / 1_000)
plans = st.builds(Plan, gate=shares, memory=st.booleans(), limit=st.integers(1, 80_000), summary=st.integers(1, 3_000))
conversations = st.lists(st.integers(1, 30_000), max_size=12).map(
    lambda sizes: [Row(f"m{number}", tokens) for number, tokens in enumerate(sizes)]
)


def reached(event: Event) -> int:
    return event.after if isinstance(event, Compacted) else event.total


@given(plans, conversations)
def test_every_total_follows_from_the_one_before(plan: Plan, rows: list[Row]) -> None:
    for before, event in pairwise(replay(plan, rows)):
        assert reached(event) >= plan.head
        match event:
            case Appended(_, tokens, total):
                assert total == reached(before) + tokens
            case Compacted():
                assert event.before == reached(before)
                assert event.after == event.before - event.slice_tokens + plan.summary
            case Mark():
                assert event.total == reached(before)


@given(plans, conversations)
def test_a_compaction_takes_each_message_once_and_never_the_newest_two(plan: Plan, rows: list[Row]) -> None:
    arrived, swept, trips = list[str](), list[str](), 0
    for event in replay(plan, rows):
        if isinstance(event, Appended):
            arrived.append(event.msg)
        elif isinstance(event, Compacted):
            trips += 1
            assert event.kept == tuple(arrived[-2:])
            assert [name for name in event.slice if name.startswith("summary")] == [f"summary{trips - 1}"] * (trips > 1)
            swept += [name for name in event.slice if not name.startswith("summary")]
            assert swept == arrived[:-2]


@given(plans, conversations)
def test_it_is_compacted_exactly_where_the_gate_is_passed_and_something_is_old(plan: Plan, rows: list[Row]) -> None:
    events = replay(plan, rows)
    messages = 0
    for event, after in zip(events, [*events[1:], None], strict=True):
        if isinstance(event, Appended):
            messages += 1
            over = plan.gate_tokens is not None and event.total > plan.gate_tokens
            assert isinstance(after, Compacted) == (over and messages > 2)
        elif isinstance(event, Compacted):
            messages = 3


@given(plans, conversations)
def test_a_session_ends_at_the_first_request_above_the_window(plan: Plan, rows: list[Row]) -> None:
    *before, last = replay(plan, rows)
    rejected = isinstance(last, Mark) and last.event == "rejected"
    assert rejected == (reached(last) > plan.limit and bool(before))
    assert all(
        reached(event) <= plan.limit or isinstance(after, Compacted | Mark) for event, after in pairwise(before[1:])
    )
