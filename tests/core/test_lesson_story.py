from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from localctx.core.lesson import Appended, Compacted, Plan, replay
from localctx.core.lesson_script import GOES_ON, TASK
from localctx.core.lesson_story import Step, Story, compared, tell

shares = st.none() | st.integers(1, 1_000).map(lambda mille: mille / 1_000)
plans = st.builds(Plan, gate=shares, memory=st.booleans(), limit=st.integers(1, 120_000))


def outcomes(plan: Plan) -> list[str]:
    return [probe.outcome for probe in tell(plan).probes]


def totals(story: Story) -> list[int]:
    return [step.total for step in story.steps]


def only(story: Story, event: str) -> Step:
    (step,) = [step for step in story.steps if step.event == event]
    return step


# --- the lesson's runs ------------------------------------------------------------------------------------------------

TO_THE_LOG = [4_000, 4_500, 5_300, 5_300, 5_600, 24_600, 25_500, 25_800, 47_900]


def test_the_default_run_is_the_lesson_s_row_by_row() -> None:
    story = tell(Plan())
    assert totals(story) == [*TO_THE_LOG, 27_200, 27_200, 27_200, 0, 4_100, 4_100]
    assert (story.peak, story.trips, story.summarized, story.left, story.rejected) == (47_900, 1, 21_500, 27_200, None)


def test_without_compaction_the_run_hits_the_wall_and_the_file_is_there_all_the_same() -> None:
    story = tell(Plan(gate=None))
    assert totals(story)[9:14] == [48_500, 49_000, 49_300, 53_500, 53_500]
    assert (story.trips, story.rejected) == (0, 53_500)
    assert [probe.outcome for probe in story.probes] == ["unanswered", "unanswered", "found"]
    assert any("own run stops" in remark for remark in story.steps[-2].remarks)


def test_the_summary_helps_until_the_session_ends_and_only_the_file_helps_after_it() -> None:
    assert outcomes(Plan()) == ["lost", "found", "found"]
    assert outcomes(Plan(memory=False)) == ["lost", "found", "lost"]
    assert "npm install lodash" in tell(Plan(memory=False)).probes[-1].answer
    assert "pnpm add date-fns" in tell(Plan()).probes[-1].answer


def test_at_half_a_summary_of_a_summary_kept_the_todo() -> None:
    story = tell(Plan(gate=0.5))
    assert story.trips == 2
    assert (story.probes[0].outcome, story.probes[0].where) == ("found", ("summary2",))
    guard = next(each for each in story.survival if each.fact == "guard")
    assert (guard.first, guard.first_where) == ("unknown", ("summary2",)), "of the guard the lesson says nothing there"


def test_a_line_for_the_file_moves_nothing_and_the_copy_is_as_it_was() -> None:
    step = only(tell(Plan()), "memory_write")
    assert (step.tokens, step.desk["memory"], step.file) == (0, 1_000, ("Always pnpm, never npm.",))


def test_what_was_lost_can_be_read_again_for_a_price() -> None:
    probe = tell(Plan()).probes[0]
    assert (probe.again, "46,500 in all, over the gate again" in probe.answer) == (19_300, True)
    assert tell(Plan(memory=False)).probes[0].answer.endswith("45,500 in all.")
    assert "over the window" in tell(Plan(limit=46_400)).probes[0].answer


def test_the_lifetimes_are_told_with_what_had_them() -> None:
    old, newest, summaries, lines = (each.items for each in tell(Plan(gate=0.5)).lifetimes)
    assert old == ("user", "asst", "call_read", "res_read", "diag")
    assert newest == ("call_test", "res_test")
    assert summaries == ("summary1", "summary2")
    assert lines == ("Always pnpm, never npm.",)
    assert tell(Plan(memory=False)).lifetimes[-1].items == ()


def test_a_recording_is_told_as_one() -> None:
    (said,) = only(tell(Plan()), "compact").remarks
    assert said.startswith("Recorded in the lesson's run, not computed: it kept the pnpm rule, the bug")
    assert said.endswith("It dropped the guard MAX_DEPTH, the unicode TODO.")


# --- other windows and gates -----------------------------------------------------------------------------------------


def test_a_message_larger_than_the_window_ends_the_run() -> None:
    story = tell(Plan(limit=18_000))
    step = next(step for step in story.steps if step.event == "rejected")
    assert step.remarks[-1] == "src/parser.ts alone (19,000) is more than the window: no compaction helps."
    unanswered, rule = story.probes[0], story.probes[-1]
    assert (unanswered.outcome, rule.outcome) == ("unanswered", "found")


def test_a_head_larger_than_the_window_ends_both_sessions() -> None:
    story = tell(Plan(limit=3_500))
    assert [step.event for step in story.steps].count("rejected") == 2
    assert [probe.outcome for probe in story.probes] == ["unanswered"] * 3
    assert {each.first for each in story.survival} == {"found", "unseen"}
    assert story.lifetimes[-1].items == (), "the line was never written"


def test_what_stays_can_be_more_than_the_window_though_no_message_is() -> None:
    step = next(step for step in tell(Plan(limit=23_000)).steps if step.event == "rejected")
    assert step.total == 24_100
    assert (
        step.remarks[-1]
        == "The head, the summary and the newest two are more than the window: no compaction frees enough."
    )


def test_messages_too_new_to_be_swept_can_be_more_than_the_window() -> None:
    step = next(step for step in tell(Plan(limit=5_000)).steps if step.event == "rejected")
    assert (step.total, step.remarks[-1].startswith("The head and the newest messages are more")) == (5_300, True)


def test_a_summary_larger_than_what_it_replaces_is_called_no_progress() -> None:
    step = next(step for step in tell(Plan(gate=0.1)).steps if step.compaction)
    assert (step.compaction and step.compaction.slice, step.tokens) == (("user",), 300)
    assert any(remark.startswith("No progress") for remark in step.remarks)


def test_a_gate_that_is_still_passed_says_what_the_next_message_would_sweep() -> None:
    story = tell(Plan(gate=0.5))
    last = [step for step in story.steps if step.compaction][-1]
    assert any("for 1,100 tokens to sweep" in remark for remark in last.remarks)


def test_of_a_next_message_nothing_is_said_where_the_session_ends() -> None:
    step = next(step for step in tell(Plan(limit=20_000)).steps if step.compaction)
    assert step.compaction
    assert step.compaction.still_over
    assert not any("next message" in remark for remark in step.remarks)


def test_two_messages_over_the_gate_are_too_new_to_be_swept() -> None:
    step = tell(Plan(gate=0.1)).steps[2]
    assert (step.over_gate, step.compaction) == (True, None)
    assert step.remarks == ("Over the gate of 5,000, but nothing is older than the newest two.",)


def test_of_a_summary_that_nobody_recorded_nothing_is_claimed() -> None:
    story = tell(Plan(gate=0.1))
    assert [probe.outcome for probe in story.probes] == ["unknown", "unknown", "found"]
    assert "may hold it or not" in story.probes[0].answer
    assert {each.first for each in story.survival} == {"unknown"}


def test_a_large_window_keeps_everything_until_the_session_ends() -> None:
    story = tell(Plan(limit=200_000))
    assert (story.trips, story.left) == (0, 53_500)
    assert [probe.where for probe in story.probes] == [("res_read",), ("user",), ("memory",)]
    assert {each.first for each in story.survival} == {"found"}


def test_the_policies_are_compared_in_one_window() -> None:
    stories = compared(tell(Plan()))
    assert [(story.peak, story.trips, story.left) for story in stories.values()] == [
        (53_500, 0, 53_500),
        (46_900, 1, 26_200),
        (47_900, 1, 27_200),
        (47_100, 2, 27_200),
        (46_900, 1, 26_200),
    ]


def test_a_run_that_is_none_of_the_policies_is_compared_with_them() -> None:
    story = tell(Plan(gate=0.7, limit=60_000))
    assert compared(story)["this run"] == story
    assert {each.plan.limit for each in compared(story).values()} == {60_000}


# --- whatever the window and the gate --------------------------------------------------------------------------------


@given(plans)
def test_every_step_s_total_is_what_lies_on_the_desk(plan: Plan) -> None:
    story = tell(plan)
    assert story.steps[0].total == story.steps[0].tokens == plan.head
    for before, step in pairwise(story.steps):
        assert step.total == before.total + step.tokens == sum(step.desk.values()) >= 0
        assert step.over_gate == (plan.gate_tokens is not None and step.total > plan.gate_tokens)
    assert story.peak == max(totals(story))
    assert [step.step for step in story.steps] == list(range(1, len(story.steps) + 1))


@given(plans)
def test_the_first_session_is_the_replay(plan: Plan) -> None:
    story = tell(plan)
    events = replay(plan, TASK)
    if not any(isinstance(event, Compacted) for event in events):
        events = replay(plan, [*TASK, *GOES_ON])
    told = [(step.total, step.compaction) for step in story.steps if step.session == 1][: len(events)]
    assert told == [(event.after, event) if isinstance(event, Compacted) else (event.total, None) for event in events]


@given(plans)
def test_the_newest_two_messages_are_on_the_desk_whatever_was_compacted(plan: Plan) -> None:
    story = tell(plan)
    arrived = list[str]()
    for step in story.steps:
        arrived += [step.msg] if step.msg else []
        if step.session == 1 and step.event != "end":
            assert [name for name in step.desk if name in arrived][-2:] == arrived[-2:]


@given(plans)
def test_an_answer_is_found_only_where_it_lies_on_the_desk(plan: Plan) -> None:
    story = tell(plan)
    for step in story.steps:
        if step.probe:
            assert set(step.probe.where) <= step.desk.keys()
            assert bool(step.probe.where) == (step.probe.outcome in {"found", "unknown"})
    assert story.probes[-1].outcome in ({"found", "unanswered", "lost"} if plan.memory else {"lost", "unanswered"})
    if story.steps[-1].file and story.probes[-1].outcome != "unanswered":
        assert story.probes[-1].outcome == "found"


@given(plans)
def test_nothing_of_the_first_session_but_the_file_reaches_the_second(plan: Plan) -> None:
    story = tell(plan)
    second = [step for step in story.steps if step.session == 2]
    assert all(step.desk.keys() <= {"system", "memory"} for step in second)
    assert all(each.second in {"lost", "unseen"} for each in story.survival if each.fact != "rule")
    appended = [event for event in replay(plan, TASK) if isinstance(event, Appended)]
    assert story.steps[-1].file == (("Always pnpm, never npm.",) if plan.memory and len(appended) > 2 else ())
