"""What the seeds say of the rungs, as far as no other test says it already: those name no ids.

T8.2, T8.3, T9.1 and the most of T4.1 and T8.1 are in test_ladder.py, test_checkpoint.py and test_nudges.py.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from localctx.core.effects import Cleared, Compacted, apply
from localctx.core.ladder import (
    POLICIES,
    Decision,
    Policy,
    Rung,
    Standing,
    checkpoint_at,
    choose_cut,
    clear,
    clear_gain,
    clearable,
    compaction_cut,
    next_rung,
    standing,
    trim,
    tuned,
)
from localctx.core.messages import History, Message, Step, ToolCycle, end_of
from localctx.core.nudges import progress
from localctx.core.outgoing import defects, outgoing
from localctx.core.sizes import history_size
from localctx.core.transcript import flatten, parse
from localctx.core.window import Budget
from tests.core.strategies import Wire, sessions

Size = Callable[[str], int]

LADDER = POLICIES["ladder"]
TEN_K = Budget.of(10_000)


def call(name: str, *ids: str, **arguments: object) -> Wire:
    function = {"name": name, "arguments": json.dumps(arguments)}
    return {
        "role": "assistant",
        "content": None,
        "tool_calls": [{"id": each, "type": "function", "function": function} for each in ids],
    }


def result(of: str, text: str = "done") -> Wire:
    return {"role": "tool", "tool_call_id": of, "content": text}


def ten_cycles(characters: int = 20_000) -> History:
    """T5.1: the system, and ten times a question, a call and a result."""
    wire: list[object] = [{"role": "system", "content": "be kind"}]
    for number in range(10):
        name = f"call_{number}"
        wire += [{"role": "user", "content": "?"}, call("read_file", name), result(name, "x" * characters)]
    return parse(wire).history


def cycles(history: History) -> list[ToolCycle]:
    return [unit for _, unit in history.units() if isinstance(unit, ToolCycle)]


def units(history: History) -> list[Message | Step]:
    return [unit for _, unit in history.units()]


# --- thresholds -----------------------------------------------------------------------------------------------------


# T4.1
@pytest.mark.parametrize("warn", [0.0, 1.0, 1.5, -0.2, float("nan"), 0.8, 0.85])
def test_a_warning_that_is_no_share_below_compaction_falls_back_and_is_told(warn: float) -> None:
    policy, (told,) = tuned(LADDER, warn=warn)
    assert (policy.warn, policy.compact) == (0.7, 0.8)
    assert f"warn {warn:g} " in told
    assert "using 0.7" in told


# T4.1
def test_what_is_of_no_use_is_told_for_each_and_does_not_spoil_the_others() -> None:
    policy, told = tuned(LADDER, compact=0.95, warn=0.6, clear=2.0)
    assert (policy.clear, policy.warn, policy.compact) == (0.5, 0.6, 0.8)
    assert [line.split()[1] for line in told] == ["compact", "clear"]


# T4.1: clear and trim can be set here, in the seed they cannot; a trim is still last
def test_all_four_thresholds_can_be_set_in_order() -> None:
    wanted = {"clear": 0.4, "warn": 0.5, "compact": 0.6, "trim": 0.7}
    policy, told = tuned(LADDER, **wanted)
    assert ({rung.value: policy.threshold(rung) for rung in Rung}, told) == (wanted, ())
    _, (told_of,) = tuned(LADDER, trim=0.6, compact=0.6)
    assert "compact" in told_of


# T4.2: trim is due at the budget, 85 % of the window, where the seed has 95 % (3,891 of 4,096 and so on): it keeps nothing
# for the reply
@pytest.mark.parametrize(
    ("window", "due"),
    [
        (4_096, (2_048, 2_867, 3_276, 3_482)),
        (8_192, (4_096, 5_734, 6_553, 6_964)),
        (16_384, (8_192, 11_468, 13_107, 13_927)),
        (32_768, (16_384, 22_937, 26_214, 27_853)),
        (131_072, (65_536, 91_750, 104_857, 111_412)),
        (262_144, (131_072, 183_500, 209_715, 222_823)),
    ],
)
def test_the_sizes_at_which_the_rungs_are_due(window: int, due: tuple[int, ...]) -> None:
    budget = Budget.of(window)
    assert tuple(budget.due(LADDER.threshold(rung)) for rung in Rung) == due
    free = window - budget.due(LADDER.compact)
    assert free >= window // 5, "what the seed has free for the reply when it compacts"


# T4.2
@pytest.mark.parametrize(("messages", "warned", "compacted"), [(60, False, False), (75, True, False), (85, True, True)])
def test_at_a_hundred_tokens_a_message(messages: int, *, warned: bool, compacted: bool) -> None:
    used = messages * 100
    assert (used > TEN_K.due(LADDER.warn)) is warned
    rung = next_rung(Standing(used, compactable=used), TEN_K, LADDER, frozenset())
    assert rung is (Rung.COMPACT if compacted else None)


# T2.2: what is counted is the request, its overhead included
def test_an_overhead_alone_can_make_a_compaction_due() -> None:
    budget = Budget.of(1_000)
    due = [next_rung(Standing(100 + over, compactable=850), budget, LADDER, frozenset()) for over in (0, 650, 750)]
    assert due == [None, None, Rung.COMPACT]


# --- clearing -------------------------------------------------------------------------------------------------------


# T5.1
def test_call_0_to_4_are_cleared_and_all_stays_in_its_place(size: Size) -> None:
    history, budget = ten_cycles(), Budget.of(128_000)
    after = apply(history, clear(history, budget, LADDER, size))
    assert [cycle.results[0].cleared for cycle in cycles(after)] == [True] * 5 + [False] * 5
    assert units(after)[10:] == units(history)[10:], "all from the assistant message at 17 on, and its question"
    before, now = outgoing(history), outgoing(after)
    assert [(each["role"], each.get("tool_call_id")) for each in now] == [
        (each["role"], each.get("tool_call_id")) for each in before
    ]


# T5.1: the seed takes 24,885 tokens back with a stub that says nothing of what stood there; ours shows its ends
def test_what_clearing_takes_back(size: Size) -> None:
    history, budget = ten_cycles(), Budget.of(128_000)
    gain = clear_gain(history, budget, LADDER, size)
    assert gain == history_size(history, size) - history_size(
        apply(history, clear(history, budget, LADDER, size)), size
    )
    assert 24_885 - 5 * 40 <= gain <= 24_885


# T5.1: the seed clears whatever there is; ours only what frees a fifth of the window, since each rewrite is prefilled again
@pytest.mark.parametrize(("window", "rung"), [(130_000, None), (120_000, Rung.CLEAR)])
def test_a_batch_that_frees_less_than_a_fifth_waits(size: Size, window: int, rung: Rung | None) -> None:
    history, budget = ten_cycles(), Budget.of(window)
    at = standing(history, budget.due(0.5), budget, LADDER, size)
    assert at.clearable > 24_000
    assert next_rung(at, budget, LADDER, frozenset()) is rung


# T5.1: five cycles are protected, but no more than 40 % of the budget: on a small window the seed's five are all of it
def test_on_a_small_window_fewer_cycles_are_protected(size: Size) -> None:
    history = ten_cycles()
    cleared = [
        len(clear(history, Budget.of(window), LADDER, size).stubs) for window in (128_000, 64_000, 32_000, 8_000)
    ]
    assert cleared == [5, 6, 8, 9]


# T5.1: D0's gate and S0's are not ours: one text after a cycle does not make it old
def test_a_later_text_leaves_the_newest_cycles_protected(size: Size) -> None:
    history = parse([*flatten(ten_cycles()), {"role": "assistant", "content": "all read"}]).history
    assert len(clear(history, Budget.of(128_000), LADDER, size).stubs) == 5


# T5.2: no stub says "re-run": every body is in the journal, and the line is what `retrieve_tool_result` takes
def test_every_stub_names_its_line_and_none_asks_to_run_a_tool_again(size: Size) -> None:
    history = ten_cycles()
    for stub in clear(history, Budget.of(128_000), LADDER, size).stubs:
        assert f"message #{stub.seq}]" in stub.text
        assert "read_file, ~5,001 tokens" in stub.text
        assert "run" not in stub.text.replace("read_file", "").lower()


# T5.3
@pytest.mark.parametrize(("tokens", "cleared"), [(255, 0), (256, 5)])
def test_a_result_of_256_tokens_is_the_least_that_is_cleared(size: Size, tokens: int, cleared: int) -> None:
    history = ten_cycles((tokens - 1) * 4)
    assert {size(str(cycle.results[0].content)) for cycle in cycles(history)} == {tokens}
    effect = clear(history, Budget.of(128_000), LADDER, size)
    assert len(effect.stubs) == cleared
    assert (apply(history, effect) == history) is not cleared


# T5.3
def test_clearing_runs_at_half_and_not_before(size: Size) -> None:
    history = ten_cycles()
    found = [standing(history, used, Budget.of(100_000), LADDER, size).clearable for used in (49_900, 49_999, 50_000)]
    assert [bool(each) for each in found] == [False, False, True]


# T5.1
def test_what_somebody_decided_of_an_old_result(size: Size) -> None:
    history, budget = ten_cycles(), Budget.of(128_000)
    old = clearable(history, budget, LADDER, size)
    said = [Decision.KEEP, Decision.TRUNCATE, Decision.DROP]
    after = apply(
        history, clear(history, budget, LADDER, size, {each.seq: what for each, what in zip(old, said, strict=False)})
    )
    sizes = [size(str(cycle.results[0].content)) for cycle in cycles(after)[:4]]
    assert sizes[0] == 5_001
    assert 1_000 < sizes[1] <= 1_250
    assert sizes[2] < sizes[3] < 100
    assert clear(after, budget, LADDER, size).stubs == tuple(
        stub for stub in clear(history, budget, LADDER, size).stubs if stub.seq == old[0].seq
    ), "none is touched twice"


# --- trimming -------------------------------------------------------------------------------------------------------


def hundreds(*kinds: str) -> History:
    """Messages of a hundred tokens each, by `len`: s, u, a, or calls (`a+b`: two of them), whose results follow."""
    wire, number = list[object](), 0
    for kind in kinds:
        if kind in {"s", "u", "a"}:
            role = {"s": "system", "u": "user", "a": "assistant"}[kind]
            wire.append({"role": role, "content": "x" * 95})
            continue
        ids = [f"{number}{each}" for each in kind.split("+")]
        number += 1
        asked: dict[str, Any] = call("t", *ids)
        asked["content"] = "x" * (95 - 3 * len(ids))  # a call is its name and {}
        wire += [asked, *(result(each, "x" * 95) for each in ids)]
    return parse(wire).history


NINE = ("s", "u", "t1", "u", "t2", "u", "a")


# T7.1: whole cycles within what is left, oldest first, as the seed; but no turns are protected, which makes (500, 2 turns) and
# (800, 3 turns) 600 and 900 tokens, over budget: the person's words are kept in the checkpoint instead
@pytest.mark.parametrize(
    ("budget", "kept"), [(900, 8), (800, 7), (700, 5), (600, 5), (500, 4), (400, 2), (100, 1), (0, 1)]
)
def test_nine_messages_trimmed(budget: int, kept: int) -> None:
    history = hundreds(*NINE)
    assert history_size(history, len) == 900
    cut = choose_cut(history, budget - 100, len)
    tail = history if cut is None else history.split(cut)[1]
    assert flatten(tail) == [flatten(history)[0], *flatten(history)[-kept:]]


# T7.2
def test_the_results_of_a_call_go_with_it() -> None:
    history = hundreds("s", "u", "a+b", "u", "a", "a")
    cut = choose_cut(history, 500, len)
    assert cut == 5
    assert flatten(history.split(cut)[1]) == [flatten(history)[index] for index in (0, 5, 6, 7)]


# T7.1: the seed sends [system, assistant, ...] after its trim, which templates that alternate refuse
@pytest.mark.parametrize("window", [2_048, 4_096, 8_192])
def test_a_trimmed_list_begins_with_the_user_s_words(size: Size, window: int) -> None:
    wire: list[object] = [{"role": "system", "content": "be kind"}, {"role": "user", "content": "the task"}]
    for number in range(60):
        wire += [call("read_file", f"c{number}", path=f"{number}.txt"), result(f"c{number}", "x" * 800)]
    history, budget = parse(wire).history, Budget.of(window)
    effect = trim(history, budget, LADDER, size)
    assert effect is not None
    sent = outgoing(apply(history, effect))
    assert defects(sent) == []
    assert [message["role"] for message in sent[:2]] == ["system", "user"]
    assert "the task" in str(sent[1]["content"])
    assert "dropped without a summary by a model" in str(sent[1]["content"])


# T7.1: down to about half of the window, not to just below 95 % as the seed: sliding is prefilled at every request
def test_a_trim_is_not_due_again_at_the_next_message(size: Size) -> None:
    turn: list[object] = [{"role": "user", "content": "u" * 360}, {"role": "assistant", "content": "a" * 360}]
    history = parse(turn * 50).history
    effect = trim(history, TEN_K, LADDER, size)
    assert effect is not None
    assert history_size(apply(history, effect), size) < TEN_K.due(LADDER.warn)


# --- what a compaction covers ---------------------------------------------------------------------------------------


# T8.1: D1's tail is a quarter of a small window (125, 36 and 2 tokens), S0's a fifth (100: 3 kept); ours no more than a third of
# what the words and notes of a checkpoint leave below the threshold (66 of 500: 2 kept)
@pytest.mark.parametrize(("window", "covered"), [(500, 8), (145, 9), (10, 9), (5_000, None)])
def test_ten_messages_of_29_tokens(size: Size, window: int, covered: int | None) -> None:
    history = parse([{"role": "assistant", "content": "x" * 92}] * 10).history
    assert compaction_cut(history, Budget.of(window), LADDER, size) == covered


# T8.3: the seed loses the results that it takes out of its tail; with every policy, and with the pieces of calls
@given(sessions(), st.sampled_from(sorted(POLICIES)), st.sampled_from([512, 2_048, 8_192, 128_000]))
def test_nothing_is_missing_from_what_is_covered_and_what_is_kept(
    size: Size, wire: list[Wire], name: str, window: int
) -> None:
    history, budget = parse(wire).history, Budget.of(window)
    cut = compaction_cut(history, budget, POLICIES[name], size)
    if cut is None:
        return
    covered, kept = history.split(cut)
    assert [*units(covered), *units(kept)] == units(history)
    assert units(covered)
    effect = Compacted(checkpoint_at(history, cut, budget, size))
    after = apply(history, effect)
    assert (after.turns, after.system) == (kept.turns, history.system)
    said = [unit.seq for unit in units(covered) if isinstance(unit, Message) and unit.role == "user"]
    words = effect.checkpoint.words
    assert len(words) + effect.checkpoint.unsaid == len(said)
    assert [each.seq for each in words[:1]] == said[:1]
    last = units(history)[-1]
    if isinstance(last, Message) or (isinstance(last, ToolCycle) and last.pending):
        assert units(kept)[-1] == last, "nobody has answered it"


# T8.3: a tail that the seed begins inside of a cycle
@pytest.mark.parametrize("room", range(0, 120, 10))
def test_a_tail_begins_at_a_whole_cycle(size: Size, room: int) -> None:
    wire = [{"role": "user", "content": "ask"}, call("read", "a", "b"), result("a", "x" * 40), result("b", "x" * 40)]
    history = parse([*wire, {"role": "assistant", "content": "done"}]).history
    cut = choose_cut(history, room, size)
    assert cut in {4, 1, None}
    assert cut is None or cut in {end_of(unit) for unit in units(history)}


# --- the progress note ----------------------------------------------------------------------------------------------


def worked(*calls: tuple[str, object, str | None]) -> History:
    """A history of calls with what they returned; None: they never did."""
    wire = list[object]()
    for number, (name, arguments, answer) in enumerate(calls):
        asked: dict[str, Any] = call(name, f"c{number}")
        text = arguments if isinstance(arguments, str) else json.dumps(arguments)
        asked["tool_calls"][0]["function"] = {"name": name, "arguments": text}
        wire += [asked, *([] if answer is None else [result(f"c{number}", answer)])]
    return parse(wire).history


# T8.8
@pytest.mark.parametrize("tool", ["write_file", "edit_file", "mv", "cp", "rm", "mkdir"])
def test_a_tool_that_changes_files(tool: str) -> None:
    told = progress(worked((tool, {"path": "/f/0.txt", "dest_path": "/g"}, "ok")))
    assert "Files modified: /f/0.txt; /g\n" in told
    assert "Looked at" not in told


# T8.8
def test_arguments_that_cannot_be_read_are_passed_over_and_a_missing_result_is_not() -> None:
    told = progress(worked(("read_file", '{"path": "/a', "ok"), ("edit_file", {"path": "/b"}, None)))
    assert told.splitlines() == [
        "Done already, do not redo it:",
        "Files modified: /b",
        "Most recent action: edit_file(/b)",
    ]


# T8.8: ours says what a command came to as well, since that is what one would run it again for
def test_only_commands() -> None:
    told = progress(worked(("execute_command", {"command": "pytest " + "x" * 200}, "1\n2 passed")))
    assert "Files" not in told
    line = next(line for line in told.splitlines() if line.startswith("Commands run: "))
    assert line == f"Commands run: pytest {'x' * 72}… -> 2 passed"
    assert told.endswith(f"Most recent action: execute_command(pytest {'x' * 72}…)")


# T8.8: the seed passes a failed call over; ours lists it as an open error
@pytest.mark.parametrize("answer", ["error: no such file", "Error: no such file"])
def test_a_call_that_failed_is_an_open_error(answer: str) -> None:
    told = progress(worked(("edit_file", {"path": "/a"}, answer)))
    assert "Files modified" not in told
    assert f"Open errors: edit_file(/a): {answer}\n" in told


# --- the order ------------------------------------------------------------------------------------------------------


# T10.1: the seed's order, where no prefix is kept; with one, test_seed_engine.py
def test_where_clearing_is_enough_nothing_is_compacted(size: Size) -> None:
    wire: list[object] = [{"role": "user", "content": "read it all"}]
    for number in range(8):
        wire += [call("read_file", f"c{number}"), result(f"c{number}", "x" * 4_072)]
    history, budget = parse(wire).history, TEN_K
    used = history_size(history, size)
    assert 0.80 < used / budget.window < 0.84
    rung = next_rung(standing(history, used, budget, LADDER, size), budget, LADDER, frozenset())
    assert rung is Rung.CLEAR
    after = apply(history, clear(history, budget, LADDER, size))
    left = history_size(after, size)
    assert left < 0.6 * budget.window
    taken = frozenset({Rung.CLEAR})
    assert next_rung(standing(after, left, budget, LADDER, size), budget, LADDER, taken) is None


# T10.2: the seed sends what it cannot trim; ours is refused before it is sent (test_seed_engine.py)
def test_one_recent_result_can_be_neither_cleared_nor_summarized_nor_trimmed(size: Size) -> None:
    history = parse([{"role": "user", "content": "read it"}, call("read_file", "a"), result("a", "x" * 38_700)]).history
    used = history_size(history, size)
    assert 0.96 < used / TEN_K.window < 0.98
    at = standing(history, used, TEN_K, LADDER, size)
    assert at.clearable == 0
    assert at.compactable <= 0
    assert clear(history, TEN_K, LADDER, size) == Cleared(())
    assert trim(history, TEN_K, LADDER, size) is None


# T10.1: each at most once, whatever the policy, so that a pass ends
@pytest.mark.parametrize("name", sorted(POLICIES))
def test_the_order_of_a_pass_that_nothing_helps(name: str) -> None:
    taken = list[Rung]()
    while rung := next_rung(Standing(9_900, 9_000, 9_000), TEN_K, POLICIES[name], frozenset(taken)):
        taken.append(rung)
    expected: dict[str, list[Rung]] = {
        "ladder": [Rung.CLEAR, Rung.COMPACT, Rung.TRIM],
        "micro": [Rung.CLEAR, Rung.COMPACT, Rung.TRIM],
        "replace": [Rung.COMPACT, Rung.TRIM],
        "gate": [Rung.COMPACT, Rung.TRIM],
        "none": [],
    }
    assert taken == expected[name]


# T4.2: the late policies are due at the budget where that is below their 92 %
@pytest.mark.parametrize("name", ["micro", "gate"])
def test_a_late_compaction_is_due_before_the_reserve_is_touched(name: str) -> None:
    at = [Standing(used, compactable=used) for used in (8_500, 8_501)]
    late: list[Rung | None] = [next_rung(each, TEN_K, POLICIES[name], frozenset({Rung.CLEAR})) for each in at]
    assert late == [None, Rung.COMPACT]
    small = Budget.of(10_000, output_limit=100)
    assert small.due(Policy(compact=0.92).compact) == 9_200
