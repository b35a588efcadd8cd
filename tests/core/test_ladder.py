from __future__ import annotations

import json
from itertools import count
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from localctx.core.effects import Cleared, Compacted, Stub, Withdrawn, apply
from localctx.core.filling import fills
from localctx.core.journal import project
from localctx.core.ladder import (
    POLICIES,
    Policy,
    Rung,
    Standing,
    checkpoint_at,
    choose_cut,
    clear,
    compaction_cut,
    freed,
    least,
    next_rung,
    standing,
    tail_tokens,
    trim,
    tuned,
)
from localctx.core.messages import History, Said, ToolCycle, ToolResult, end_of
from localctx.core.outgoing import outgoing, texts
from localctx.core.sizes import history_size, unit_size
from localctx.core.transcript import flatten, parse, read
from localctx.core.window import ASSUMED_TOKENS, Budget
from localctx.errors import Misuse
from tests.cases import case
from tests.core.strategies import WINDOW, Move, Wire, lives, play, sessions

if TYPE_CHECKING:
    from collections.abc import Callable

    from localctx.core.messages import Message, Step

    Size = Callable[[str], int]

BUDGET = Budget.of(10_000)
LADDER = POLICIES["ladder"]


def asked(text: str = "?") -> Wire:
    return {"role": "user", "content": text}


def test_an_image_weighs_what_the_counter_takes_it_for() -> None:
    image = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}
    with_image, without = (
        parse([{"role": "user", "content": [{"type": "text", "text": "look"}, *more]}]).history
        for more in ([image], [])
    )
    assert 1_100 <= history_size(with_image, len) - history_size(without, len) < 1_120


def said(text: str = "hm") -> Wire:
    return {"role": "assistant", "content": text}


def call(name: str, *ids: str, **arguments: object) -> Wire:
    function = {"name": name, "arguments": json.dumps(arguments)}
    calls = [{"id": each, "type": "function", "function": function} for each in ids]
    return {"role": "assistant", "content": None, "tool_calls": calls}


def result(of: str, text: str = "done") -> Wire:
    return {"role": "tool", "tool_call_id": of, "content": text}


def read_files(characters: int, files: int = 10) -> History:
    """So many times a question, a call, and a result of this length."""
    wire: list[object] = [{"role": "system", "content": "be kind"}]
    for number in range(files):
        name = f"call_{number}"
        wire += [asked(), call("read_file", name, path=f"{number}.txt"), result(name, "x" * characters)]
    return parse(wire).history


# --- policies -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "thresholds",
    [
        {"clear": 0.0},
        {"clear": -0.2},
        {"clear": 0.71},
        {"warn": 0.85},
        {"compact": 0.6},
        {"compact": 0.96},
        {"compact": float("nan")},
        {"trim": 0.79},
        {"trim": 1.0},
        {"trim": 1.5},
    ],
    ids=str,
)
def test_thresholds_out_of_order_are_refused(thresholds: dict[str, Any]) -> None:
    with pytest.raises(Misuse, match="these do not"):
        Policy(**thresholds)


@pytest.mark.parametrize(
    ("wanted", "warn", "compact", "warnings"),
    [
        ({}, 0.7, 0.8, 0),
        ({"compact": 0.9}, 0.7, 0.9, 0),
        ({"compact": 0.6}, 0.6, 0.6, 0),
        ({"compact": 0.4}, 0.4, 0.4, 0),
        ({"compact": 0.95}, 0.7, 0.8, 1),
        ({"warn": 0.85, "compact": 0.8}, 0.7, 0.8, 1),
        ({"warn": 0.5, "compact": 0.6}, 0.5, 0.6, 0),
        *[({"compact": value}, 0.7, 0.8, 1) for value in (0.0, 1.0, 1.5, -0.2, float("nan"))],
    ],
    ids=str,
)
def test_thresholds_that_are_of_no_use_fall_back(
    wanted: dict[str, float], warn: float, compact: float, warnings: int
) -> None:
    policy, told = tuned(POLICIES["ladder"], **wanted)
    assert (policy.warn, policy.compact, len(told)) == (warn, compact, warnings)
    assert policy.clear <= policy.warn


@given(st.dictionaries(st.sampled_from(["clear", "warn", "compact", "trim"]), st.floats(-0.5, 1.5)))
def test_whatever_was_set_a_policy_comes_of_it(wanted: dict[str, float]) -> None:
    policy, told = tuned(POLICIES["ladder"], **wanted)
    kept = [name for name, value in wanted.items() if getattr(policy, name) == value]
    assert len(kept) + len(told) >= len(wanted)


def test_a_refused_policy_shows_its_numbers() -> None:
    with pytest.raises(Misuse, match=r"these do not \(clear 0\.5, warn 0\.7, compact 0\.6, trim 0\.95\)"):
        Policy(compact=0.6)


# --- which rung is due ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("at", "taken", "rung"),
    [
        pytest.param(Standing(4_999, 9_000, 9_000), "", None, id="nothing below the first"),
        pytest.param(Standing(5_000, 2_000, 9_000), "", Rung.CLEAR, id="clear when it frees a fifth"),
        pytest.param(Standing(5_000, 1_999, 9_000), "", None, id="not for less"),
        pytest.param(Standing(8_000, 1_999, 9_000), "", None, id="compact past its share, not at it"),
        pytest.param(Standing(8_001, 1_999, 850), "", Rung.COMPACT, id="compact when it frees a tenth"),
        pytest.param(Standing(8_001, 1_999, 849), "", None, id="not for less either"),
        pytest.param(Standing(8_001, 2_000, 9_000), "", Rung.CLEAR, id="the cheapest first"),
        pytest.param(Standing(8_501), "", Rung.TRIM, id="trim past the budget, whatever it frees"),
        pytest.param(Standing(9_999, 9_000, 9_000), "clear", Rung.COMPACT, id="one rung after the other"),
        pytest.param(Standing(9_999, 9_000, 9_000), "clear compact", Rung.TRIM, id="down to the floor"),
        pytest.param(Standing(9_999, 9_000, 9_000), "clear compact trim", None, id="and no further"),
    ],
)
def test_the_rung_that_is_due(at: Standing, taken: str, rung: Rung | None) -> None:
    assert next_rung(at, BUDGET, LADDER, frozenset(map(Rung, taken.split()))) is rung


standings = st.builds(Standing, st.integers(0, 12_000), st.integers(0, 12_000), st.integers(0, 12_000))


@given(st.lists(standings, min_size=9, max_size=9), st.sets(st.sampled_from(Rung)))
def test_a_pass_ends_and_takes_a_rung_once(course: list[Standing], rungs: set[Rung]) -> None:
    policy, taken = Policy(rungs=frozenset(rungs)), list[Rung]()
    for at in course:
        rung = next_rung(at, BUDGET, policy, frozenset(taken))
        if rung is None:
            continue
        assert rung in rungs - {Rung.WARN, *taken}
        assert at.used >= BUDGET.due(policy.threshold(rung))
        taken.append(rung)
    assert next_rung(Standing(12_000), BUDGET, POLICIES["none"], frozenset()) is None


@pytest.mark.parametrize("index", range(4))
def test_case_a_small_window_without_an_output_limit(index: int) -> None:
    session, checks = case(12)["given"]["sessions"][index], case(12)["checks"]
    catalog = session["catalog"] or {}
    budget = Budget.of(session["window"] or ASSUMED_TOKENS, output_limit=catalog.get("output"))
    due = [
        step
        for step, used in enumerate(session["prompt_tokens_per_step"])
        if next_rung(Standing(used, compactable=used), budget, LADDER, frozenset()) is Rung.COMPACT
    ]
    assert due[:1] == [step for step in [checks["first_compaction_step"][index]] if step is not None]
    assert len(due) == checks["compactions"][index]
    assert budget.prompt > 0
    assert budget.reserve <= budget.window * checks["reserve_max_share"]


# --- sizes ----------------------------------------------------------------------------------------------------------


@given(lives())
def test_what_fills_a_window_adds_up_to_its_history(size: Size, moves: list[Move]) -> None:
    history = project(play(moves, size))
    assert sum(fills(history, size).values()) == history_size(history, size)


def test_what_each_kind_of_content_takes(size: Size) -> None:
    history = parse([{"role": "system", "content": "s" * 400}, asked("u" * 800)]).history
    history = history.add(Said("t" * 1_200, thinking="h" * 400, seq=3))
    history = history.add(parse([call("f" * 80, "a", k="v")]).history.turns[0].steps[0])
    history = history.add(ToolResult("a", "r" * 2_000, seq=5))
    assert fills(history, size) == {"system": 106, "checkpoint": 0, "user": 206, "assistant": 407, "tools": 535}


def test_nothing_is_worked_out_before_the_first_rung_is_due() -> None:
    def never(_text: str) -> int:
        raise AssertionError

    assert standing(read_files(400), 4_999, BUDGET, LADDER, never) == Standing(4_999)


def test_a_standing_says_what_the_rungs_would_free(size: Size) -> None:
    history, budget = read_files(20_000), Budget.of(64_000)
    used = history_size(history, size)
    at = standing(history, used, budget, LADDER, size)
    assert at == Standing(used, clearable=freed(history, clear(history, budget, LADDER, size), size)), (
        "none but the due"
    )
    at = standing(history, used, budget, LADDER, size, force=True)
    assert at.compactable > budget.prompt * LADDER.compact_gain


def test_one_message_frees_nothing(size: Size) -> None:
    history = parse([asked("x" * 40_000)]).history
    assert standing(history, 9_999, BUDGET, LADDER, size) == Standing(9_999)


# --- cuts -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("window", "tail"),
    [
        (2_048, 512),
        (4_096, 1_024),
        (8_192, 2_048),
        (16_384, 4_096),
        (32_000, 8_000),
        (32_768, 8_000),
        (65_536, 13_107),
        (131_072, 26_214),
        (200_000, 40_000),
        (1_000_000, 40_000),
    ],
)
def test_the_tail_is_a_share_of_the_window(window: int, tail: int) -> None:
    assert tail_tokens(window) == tail


@pytest.mark.parametrize(
    ("messages", "room", "kept"), [(10, 100, 3), (10, 29, 1), (10, 2, 1), (10, 289, 9), (10, 290, 10), (10, 5_000, 10)]
)
def test_as_much_is_kept_as_fits(size: Size, messages: int, room: int, kept: int) -> None:
    history = parse([said("x" * 92) for _ in range(messages)]).history
    assert {unit_size(unit, size) for _, unit in history.units()} == {29}
    assert choose_cut(history, room, size) == (messages - kept or None)


def test_a_tail_at_a_window_of_32_000(size: Size) -> None:
    history = parse([said("x" * 3_976) for _ in range(30)]).history
    assert choose_cut(history, tail_tokens(32_000), size) == 30 - 8


def test_a_cut_falls_behind_the_results_of_a_call(size: Size) -> None:
    wire = [asked(), call("read", "a", "b"), result("a"), result("b"), said()]
    history = parse(wire).history
    cut = choose_cut(history, 10, size)
    assert cut == 4
    covered, tail = history.split(cut)
    assert (flatten(covered), flatten(tail)) == (wire[:4], wire[4:])


def test_only_the_newest_of_what_nobody_has_answered_must_stay(size: Size) -> None:
    history = parse([asked("x" * 400), said(), asked("y" * 4_000), asked("z" * 4_000)]).history
    cut = choose_cut(history, 0, size)
    assert cut == 3
    words = checkpoint_at(history, cut, Budget.of(32_768), size).words
    assert [each.seq for each in words] == [1, 3], "the words of the others are kept in the checkpoint"


@given(sessions(), st.integers(0, 3_000))
def test_every_message_is_covered_or_kept_and_no_pair_is_split(size: Size, wire: list[Wire], room: int) -> None:
    history = parse(wire).history
    cut = choose_cut(history, room, size)
    covered, kept = map(units, history.split(cut)) if cut is not None else ([], units(history))
    assert [*covered, *kept] == units(history)

    always = units(history)[-1:]
    assert kept[-len(always) :] == always

    taken = sum(unit_size(unit, size) for unit in kept)
    assert taken <= room or kept == always
    assert not covered or taken + unit_size(covered[-1], size) > room


@given(sessions(), st.sampled_from([2_048, WINDOW, 32_768]))
def test_a_compaction_gets_below_its_threshold_where_the_newest_unit_lets_it(
    size: Size, wire: list[Wire], window: int
) -> None:
    history, budget = parse(wire).history, Budget.of(window)
    cut = compaction_cut(history, budget, LADDER, size)
    after = history if cut is None else apply(history, Compacted(checkpoint_at(history, cut, budget, size)))
    assert len(units(after)) == 1 or history_size(after, size) <= budget.due(LADDER.compact)


def test_there_is_nothing_to_cut_from_nothing(size: Size) -> None:
    assert choose_cut(History(), 0, size) is None


def units(history: History) -> list[Message | Step]:
    return [unit for _, unit in history.units()]


# --- clearing -------------------------------------------------------------------------------------------------------


def test_old_results_become_stubs_and_the_newest_five_stay(size: Size) -> None:
    history, budget = read_files(20_000), Budget.of(128_000)
    effect = clear(history, budget, LADDER, size)
    after = apply(history, effect)
    assert [stub.seq for stub in effect.stubs] == [end_of(unit) for _, unit in history.units()][1:10:2]
    assert history_size(history, size) - history_size(after, size) > 5 * 4_900
    assert after.messages() == history.messages() == 31
    assert clear(after, budget, LADDER, size) == Cleared(())


@pytest.mark.parametrize(
    ("characters", "files", "window", "policy", "cleared"),
    [
        pytest.param(40, 12, 128_000, Policy(), 0, id="small results are worth more than they take"),
        pytest.param(20_000, 3, 128_000, Policy(), 0, id="fewer cycles than are protected"),
        pytest.param(20_000, 10, 16_000, Policy(), 9, id="no more than two fifths of the budget are protected"),
        pytest.param(200_000, 2, 16_000, Policy(), 1, id="but always the newest"),
        pytest.param(20_000, 3, 128_000, Policy(protected_cycles=0), 3, id="none is protected where none should be"),
    ],
)
def test_what_is_cleared(size: Size, *, characters: int, files: int, window: int, policy: Policy, cleared: int) -> None:
    effect = clear(read_files(characters, files), Budget.of(window), policy, size)
    assert len(effect.stubs) == cleared


def test_a_stub_says_what_stood_there_and_where_it_is(size: Size) -> None:
    (stub,) = clear(read_files(20_000, 6), Budget.of(128_000), LADDER, size).stubs
    x = "x" * 60
    expected = f"[cleared: result of read_file, ~5,001 tokens, begins {x!r}, ends {x!r}; message #4]"
    assert stub == Stub(4, expected)


def test_long_arguments_of_an_old_call_stay_an_object_with_their_keys(size: Size) -> None:
    wire = [
        asked(),
        call("write", "a", "b", path="a.txt", text="x" * 4_000, lines=[1]),
        result("a"),
        result("b"),
        said(),
    ]
    history = parse(wire).history
    effect = clear(history, BUDGET, Policy(protected_cycles=0), size)
    assert [(stub.seq, stub.call_id) for stub in effect.stubs] == [(2, "a"), (2, "b")]
    cycle = apply(history, effect).turns[0].steps[0]
    assert isinstance(cycle, ToolCycle)
    for made in cycle.calls:
        assert json.loads(made.arguments) == {
            "path": "a.txt",
            "text": "[cleared: ~1,001 tokens, message #2]",
            "lines": [1],
        }


@pytest.mark.parametrize("arguments", ["", "[", "[" * 100_000, "7", '["x"]', '{"path": "a.txt"}'])
def test_arguments_that_hold_nothing_to_clear_are_left(size: Size, arguments: str) -> None:
    made = call("write", "a")
    made["tool_calls"][0]["function"]["arguments"] = arguments  # type: ignore[index]
    history = parse([asked(), made, result("a")]).history
    assert clear(history, BUDGET, Policy(protected_cycles=0), size) == Cleared(())


# --- effects --------------------------------------------------------------------------------------------------------


def test_a_stub_of_something_that_is_gone_changes_nothing() -> None:
    history = parse([asked(), call("read", "a"), result("a"), said()]).history
    assert apply(history, Cleared((Stub(9, "x"), Stub(3, "x", "b")))) == history


def test_what_was_withdrawn_is_gone() -> None:
    wire = [asked(), said(), asked("again"), said("hm")]
    assert apply(parse(wire).history, Withdrawn(3)) == parse(wire[:2]).history


# --- trimming -------------------------------------------------------------------------------------------------------


def test_there_is_nothing_to_trim_from_one_message(size: Size) -> None:
    assert trim(parse([asked("x" * 90_000)]).history, BUDGET, LADDER, size) is None


def test_trimming_goes_deep_not_to_just_below(size: Size) -> None:
    history = parse([message for _ in range(60) for message in (asked("x" * 360), said("y" * 360))]).history
    effect = trim(history, BUDGET, LADDER, size)
    assert effect is not None
    assert history_size(history, size) > BUDGET.window
    assert history_size(apply(history, effect), size) < BUDGET.window * 0.75


@given(st.lists(sessions(turns=2), min_size=1, max_size=5), st.sampled_from([2_048, WINDOW, 32_768]))
def test_the_first_task_is_kept_word_for_word_however_often_it_is_trimmed(
    size: Size, parts: list[list[Wire]], window: int
) -> None:
    task = "Move the parser tests to tests/, and never touch the vendored code."
    history, lines = History(), count(1)
    for wire in [[asked(task)], *parts]:
        for message in wire:
            history = history.add(read(message, seq=next(lines)))
        effect = trim(history, Budget.of(window), LADDER, size)
        history = apply(history, effect) if effect else history
        first_user = next(message for message in outgoing(history) if message["role"] == "user")
        assert task in "".join(texts(first_user))


# --- what a sceptic found -------------------------------------------------------------------------------------------


def test_a_trim_that_would_free_nothing_is_no_trim(size: Size) -> None:
    history = parse([asked("a"), said(), asked("b")]).history
    assert trim(history, Budget.of(16), LADDER, size) is None


def test_a_long_system_prompt_leaves_room_for_a_tail(size: Size) -> None:
    system = {"role": "system", "content": "s" * 4 * 2_800}
    turns = [message for number in range(20) for message in (asked(f"{number} " + "x" * 400), said())]
    history, budget = parse([system, *turns]).history, Budget.of(4_096)
    cut = compaction_cut(history, budget, LADDER, size)
    assert cut is not None
    after = apply(history, Compacted(checkpoint_at(history, cut, budget, size)))
    assert history_size(after, size) <= budget.due(LADDER.compact)


@given(sessions())
def test_the_least_history_ends_as_the_whole_one_does(size: Size, wire: list[Wire]) -> None:
    history, budget = parse(wire).history, Budget.of(WINDOW)
    smallest = least(history, budget, size)
    assert smallest.system == history.system
    assert units(smallest)[-1:] == units(history)[-1:]
    assert history_size(smallest, size) <= history_size(history, size)
    assert least(smallest, budget, size) == smallest


def test_the_least_history_keeps_the_newest_words_and_the_first_task(size: Size) -> None:
    history = parse([asked("first task"), said(), *[asked("x" * 400), said()] * 10, asked("newest")]).history
    smallest = least(history, Budget.of(2_048), size)
    assert smallest.messages() == 1
    assert "first task" in str(outgoing(smallest)[0]["content"])
    assert str(outgoing(smallest)[0]["content"]).endswith("newest")
