from __future__ import annotations

from localctx.core.lesson import Compacted, Plan, replay
from localctx.core.lesson_script import FACTS, GOES_ON, LABELS, POLICIES, READ_AGAIN, RECORDED, TASK, TITLES, title

MESSAGES = {row.name: row.tokens for row in (*TASK, *GOES_ON) if not row.note}


def test_every_message_has_a_title_and_a_line() -> None:
    assert MESSAGES.keys() == LABELS.keys() == TITLES.keys() - {"system", "memory"}


def test_every_fact_is_said_in_some_message() -> None:
    assert all(said and MESSAGES.keys() >= set(said) for _, said in FACTS.values())


def test_what_was_recorded_is_what_the_lesson_s_own_policies_summarize() -> None:
    slices = {event.slice for plan in POLICIES.values() for event in replay(plan, TASK) if isinstance(event, Compacted)}
    assert slices - RECORDED.keys() == {("user", "asst", "call_read")}, "the first of two, of which nothing is said"
    assert slices >= RECORDED.keys()


def test_no_recording_keeps_what_it_dropped() -> None:
    assert all(not each.kept & each.dropped and each.kept | each.dropped <= FACTS.keys() for each in RECORDED.values())


def test_reading_again_takes_the_call_and_the_file() -> None:
    assert MESSAGES["call_read"] + MESSAGES["res_read"] == READ_AGAIN


def test_the_policies_are_told_by_their_names() -> None:
    assert POLICIES["92%, memory"] == Plan()
    assert all(("no memory" not in name) == plan.memory for name, plan in POLICIES.items())


def test_a_title_is_a_message_s_a_summary_s_or_the_name_itself() -> None:
    assert [title(name) for name in ("diag", "summary12", "summary of it")] == [
        "diagnosis",
        "summary 12",
        "summary of it",
    ]
