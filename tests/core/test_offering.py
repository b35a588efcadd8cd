from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from localctx.core.offering import MOST_NOW, MOST_OF_WINDOW, Plan, planned

SIZES = {"read": 100, "edit": 100, "grep": 100, "state": 300}


def test_all_are_offered_where_there_is_room_from_the_start() -> None:
    assert planned(SIZES, 4_000, 80) == Plan(("read", "edit", "grep", "state"))


def test_the_most_useful_are_offered_and_the_others_wait() -> None:
    assert planned(SIZES, 2_000, 80) == Plan(("read", "edit"), ("grep",))
    assert planned(SIZES, 2_400, 80) == Plan(("read", "edit"), ("grep", "state"))


def test_a_window_that_is_too_small_for_one_has_none() -> None:
    assert planned(SIZES, 1_000, 80) == Plan(())


def test_who_insists_has_none_left_out() -> None:
    assert planned(SIZES, 2_400, 80, insisted=True) == Plan(tuple(SIZES))
    assert planned(SIZES, 1_000, 80, insisted=True) == Plan(("read",), ("edit", "grep", "state"))


def test_nothing_is_planned_for_nothing() -> None:
    assert planned({}, 1_000, 80) == planned({}, 1_000, 80, insisted=True) == Plan(())


@given(st.dictionaries(st.text(max_size=3), st.integers(1, 500), max_size=12), st.integers(1, 20_000), st.booleans())
def test_no_tool_has_two_places_and_the_shares_are_kept(sizes: dict[str, int], window: int, insisted: bool) -> None:  # noqa: FBT001  a test
    plan = planned(sizes, window, 80, insisted=insisted)
    placed = plan.now + plan.deferred
    assert len(set(placed)) == len(placed)
    assert set(placed) <= set(sizes)
    taken = sum(sizes[name] for name in plan.now)
    if insisted:
        assert set(placed) == set(sizes)
        assert taken <= window * MOST_OF_WINDOW or len(plan.now) == 1
    else:
        assert taken <= window * MOST_NOW
        assert all(taken + 80 + sizes[name] <= window * MOST_OF_WINDOW for name in plan.deferred)
