from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from localctx.core.journal import project
from localctx.core.messages import (
    Content,
    Growing,
    History,
    Interjection,
    Message,
    Part,
    Said,
    ToolCall,
    ToolCycle,
    ToolResult,
    end_of,
    plain,
)
from localctx.core.transcript import flatten, parse, read
from tests.core.strategies import Move, lives, play, wires

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from localctx.core.messages import Item

USER, DEVELOPER = Message("user", "?"), Message("developer", "!")
SYSTEM, SAID = Message("system", "be kind"), Said("hm")


def cycle(*ids: str) -> ToolCycle:
    return ToolCycle(None, tuple(ToolCall(each, "read", "{}") for each in ids))


def result(call: str) -> ToolResult:
    return ToolResult(call, "done")


def shape(history: History) -> str:
    """`s` a system message, `u` a user's, `t` text, `i` an interjection, `(ab)` a cycle with these results, `|` a turn."""

    def drawn(unit: object) -> str:
        match unit:
            case ToolCycle():
                return f"({''.join(each.call_id for each in unit.results)})"
            case Message():
                return "u"
            case Said():
                return "t"
        return "i"

    turns = ("".join(map(drawn, (*turn.opening, *turn.steps))) for turn in history.turns)
    return "|".join(("s" * len(history.system), *turns))


@pytest.mark.parametrize(
    ("items", "expected"),
    [
        pytest.param([SYSTEM, DEVELOPER, USER, SAID, USER], "ss|ut|u", id="system words before the first turn lead"),
        pytest.param([USER, SYSTEM, SAID], "|uit", id="system words after it stand where they came"),
        pytest.param([USER, USER, SAID], "|uut", id="several messages open one turn"),
        pytest.param([SAID, DEVELOPER, USER], "|ti|u", id="a history may begin in the middle"),
        pytest.param([USER, cycle("a", "b"), result("b"), result("a")], "|u(ba)", id="results in the order they came"),
        pytest.param([USER, cycle("a"), result("a"), result("a")], "|u(a)i", id="a second result is an interjection"),
        pytest.param([USER, cycle("a"), USER, result("a")], "|u()|ui", id="a late result never joins another turn"),
        pytest.param([USER, cycle("a"), SAID, result("a")], "|u()ti", id="a late result never reaches behind a step"),
        pytest.param([result("a")], "|i", id="an orphan is kept"),
        pytest.param([USER, Interjection(DEVELOPER)], "|ui", id="an interjection goes where it is put"),
    ],
)
def test_every_item_has_its_place(items: list[Item], expected: str) -> None:
    history = History()
    for item in items:
        history = history.add(item)
    assert shape(history) == expected


def test_a_cycle_waits_for_the_calls_that_nobody_answered() -> None:
    history = History().add(cycle("a", "b", "c")).add(result("b"))
    (step,) = history.turns[0].steps
    assert isinstance(step, ToolCycle)
    assert [call.id for call in step.pending] == ["a", "c"]


@pytest.mark.parametrize(
    ("content", "text"),
    [
        (None, ""),
        ("words", "words"),
        ((Part("text", "see"), Part("image_url", raw="{}")), "see\n[image_url]"),
        ((), ""),
    ],
)
def test_plain_text_names_what_is_not_text(content: Content, text: str) -> None:
    assert plain(content) == text


@given(lives())
def test_leaves_stand_by_rising_line_whatever_happens(size: Callable[[str], int], moves: list[Move]) -> None:
    history = project(play(moves, size))
    lines = [*(message.seq for message in history.system), *leaves(history)]
    assert lines == sorted(set(lines))
    assert history.last_seq == max(leaves(history), default=0)


def leaves(history: History) -> Iterator[int]:
    for _, unit in history.units():
        yield unit.seq
        if isinstance(unit, ToolCycle):
            yield from (each.seq for each in unit.results)


@given(wires())
def test_messages_are_counted_as_the_wire_would_carry_them(wire: list[object]) -> None:
    assert parse(wire).history.messages() == len(wire)


@given(wires(), st.integers(0, 14))
def test_withdrawing_is_as_if_it_had_never_been_said(wire: list[object], kept: int) -> None:
    assert parse(wire).history.before(kept + 1) == parse(wire[:kept]).history


@given(wires(), st.integers(0, 14))
def test_no_cut_loses_a_message_or_falls_inside_a_cycle(wire: list[object], cut: int) -> None:
    history = parse(wire).history
    older, newer = history.split(cut)
    units = [unit for _, unit in history.units()]
    assert [unit for part in (older, newer) for _, unit in part.units()] == units
    assert all(end_of(unit) <= cut for _, unit in older.units())
    assert all(end_of(unit) > cut for _, unit in newer.units())
    assert flatten(older) + flatten(newer)[len(history.system) :] == wire


@given(wires(), st.integers(0, 40))
def test_what_came_since_a_line_is_each_leaf_after_it_once(messages: list[object], line: int) -> None:
    history = parse(messages).history
    leaves = history.since(line)
    seqs = [leaf.seq for leaf in leaves]
    assert seqs == sorted(set(seqs))
    every = [leaf.seq for leaf in history.since(-1)]
    assert seqs == [seq for seq in every if seq > line]
    assert len(every) + len(history.system) == len(messages)
    assert history.last_seq == max(every, default=0)


@given(wires())
def test_a_growing_history_is_the_same_as_one_that_was_added_to(messages: list[object]) -> None:
    growing, history = Growing(), History()
    for seq, message in enumerate(messages, 1):
        item = read(message, seq=seq)
        growing.add(item)
        history = history.add(item)
        assert growing.history() == history
        steps = history.turns[-1].steps if history.turns else ()
        assert growing.newest == (steps[-1] if steps else None)
    assert Growing(history).history() == history
