from __future__ import annotations

import json
from dataclasses import asdict, replace
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from localctx.core.effects import Cleared, Compacted, Effect, Stub, Withdrawn
from localctx.core.journal import (
    SCHEMA,
    Entry,
    advance,
    begin,
    check_header,
    commit,
    decode,
    effect_of,
    encode,
    header,
    last_asked,
    living,
    message,
    open_begins,
    project,
    undo,
    work,
)
from localctx.core.messages import Checkpoint, Facts, History, Mark, Message, Said, Words
from localctx.core.transcript import flatten
from localctx.core.work import WorkState, patched
from localctx.errors import JournalDamaged
from tests.core.strategies import Move, _effect, json_values, lives

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from hypothesis.strategies import SearchStrategy

    from localctx.core.journal import Body

AT = "2026-09-01T12:00:00.000+00:00"
CHECKPOINT = Checkpoint(
    through=7,
    author="model",
    sections=(("goal", ("move the tests",)), ("done", ("lexer", "parser"))),
    facts=Facts(("a.txt",), ("b.txt",), ("make -> ok",), ("http://x/",), ("read(c): error",), "read(c)"),
    words=(Words(1, "move the tests"),),
    unsaid=2,
    shed=3,
    marks=(Mark(3, (1, 0, 1, 0, 0)),),
)
EFFECTS: list[Effect] = [
    Cleared((Stub(3, "[cleared]"), Stub(2, "{}", "call_1"))),
    Compacted(CHECKPOINT),
    Compacted(Checkpoint(1, "machine")),
    Withdrawn(4),
]


def entry(kind: str, body: object = None, seq: int = 1) -> Entry:
    return Entry(seq, AT, kind, body if isinstance(body, dict) else {})


def numbered(*written: tuple[str, Body]) -> list[Entry]:
    return [Entry(seq, AT, *each) for seq, each in enumerate(written, 1)]


def said(text: str, role: str = "user") -> tuple[str, Body]:
    return message({"role": role, "content": text})


# --- replay ---------------------------------------------------------------------------------------------------------

_patches: SearchStrategy[Body | None] = st.one_of(
    st.none(),
    st.fixed_dictionaries({}, optional={"goal": st.sampled_from(["ship", "test"]), "todos": st.just([{"text": "a"}])}),
    st.dictionaries(st.sampled_from(["goal", "decisions", "todos", "nextStep", "junk"]), json_values, max_size=2),
)


@st.composite
def with_work(draw: st.DrawFn) -> list[Move]:
    """A life in which the work state is patched and cleared as well."""
    moves = draw(lives())
    for _ in range(draw(st.integers(0, 4))):
        moves.insert(draw(st.integers(0, len(moves))), Move("work", draw(_patches)))
    return moves


@st.composite
def with_undos(draw: st.DrawFn) -> list[Move]:
    """A life in which some of it is undone, undos among that."""
    moves = draw(with_work())
    for _ in range(draw(st.integers(1, 5))):
        moves.insert(draw(st.integers(0, len(moves))), Move("undo", at=draw(st.integers(0, 60))))
    return moves


def lived(moves: Sequence[Move], size: Callable[[str], int]) -> tuple[list[Entry], list[Entry], History]:
    """The journal of a life, those of its entries that count, and the history that was reached step by step.

    What an undo does is told by what had been there: `before` keeps both for each line.
    """
    entries, counting, history = list[Entry](), list[Entry](), History()
    before = list[tuple[list[Entry], History]]()
    for move in moves:
        seq = len(entries) + 1
        if move.what == "undo" and not entries:
            continue
        before.append((list(counting), history))
        if move.what == "undo":
            to = 1 + move.at % len(entries)
            entries.append(Entry(seq, AT, *undo(to)))
            counting, history = list(before[to - 1][0]), before[to - 1][1]
            continue
        entries.append(Entry(seq, AT, *written(history, move, size)))
        counting.append(entries[-1])
        history = advance(history, entries[-1])
    return entries, counting, history


def written(history: History, move: Move, size: Callable[[str], int]) -> tuple[str, Body]:
    if move.what == "message":
        return message(move.message, complete=bool(move.at % 2))
    if move.what == "work":
        return work(move.message if isinstance(move.message, dict) else None)
    effect = _effect(history, move, size)
    return commit(effect) if effect else (move.what, {"rung": "compact", "prompt": 7})


@given(with_work())
def test_a_replay_of_the_lines_is_the_live_history(size: Callable[[str], int], moves: list[Move]) -> None:
    entries, counting, live = lived(moves, size)
    lines = [encode(each).encode() for each in entries]
    assert counting == entries
    assert not any(b"\n" in line for line in lines)
    assert [decode(line.decode()) for line in lines] == entries
    assert project(decode(line.decode()) for line in lines) == live


@given(with_undos())
def test_after_an_undo_all_is_as_it_was_before_that_line(size: Callable[[str], int], moves: list[Move]) -> None:
    entries, counting, live = lived(moves, size)
    assert list(living(entries)) == counting
    assert project(counting) == live
    assert project(entries) == live
    assert project([decode(encode(each)) for each in entries]) == live


@given(with_undos())
def test_only_messages_commits_and_work_have_an_effect(size: Callable[[str], int], moves: list[Move]) -> None:
    _, counting, live = lived(moves, size)
    assert project(each for each in counting if each.type in {"message", "commit", "work"}) == live


@given(with_undos())
def test_an_undo_of_the_last_undo_brings_back_what_it_took(size: Callable[[str], int], moves: list[Move]) -> None:
    entries, _, live = lived(moves, size)
    seq = len(entries) + 1
    for to in {1, seq // 2, seq - 1} - {0} if entries else ():
        again = [*entries, Entry(seq, AT, *undo(to)), Entry(seq + 1, AT, *undo(seq))]
        assert project(again) == live


@pytest.mark.parametrize("effect", EFFECTS, ids=lambda effect: type(effect).__name__)
def test_an_effect_comes_back_whole(effect: Effect) -> None:
    written = entry(*commit(effect, begun=9))
    assert effect_of(written) == effect
    assert effect_of(decode(encode(written))) == effect


def test_a_message_comes_back_as_it_was() -> None:
    wire = {"role": "assistant", "content": "I was ab"}
    cut_off = project([entry(*message(wire, complete=False))])
    assert cut_off.turns[0].steps == (Said("I was ab", complete=False, seq=1),)
    whole = project([entry(*message(wire)), entry("message", seq=2)])
    assert whole.turns[0].steps[0] == Said("I was ab", seq=1)
    assert flatten(whole) == [wire, None]


def test_a_line_is_readable_and_says_its_own_number() -> None:
    line = encode(entry("notice", {"text": "für 語", "seq": 9, "type": "x"}))
    assert "für 語" in line
    assert decode(line) == entry("notice", {"text": "für 語"})


# --- undo -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("undos", "left"),
    [
        pytest.param({}, [1, 2, 3, 4, 5, 6, 7, 8], id="nothing undone"),
        pytest.param({8: 5}, [1, 2, 3, 4], id="an undo takes all from its line on"),
        pytest.param({4: 3}, [1, 2, 5, 6, 7, 8], id="what comes after an undo counts"),
        pytest.param({4: 3, 8: 6}, [1, 2, 5], id="two apart"),
        pytest.param({4: 3, 5: 4}, [1, 2, 3, 6, 7, 8], id="an undo of an undo brings back what it took"),
        pytest.param({4: 3, 5: 4, 6: 5}, [1, 2, 7, 8], id="an undo of an undo of an undo takes it again"),
        pytest.param({4: 3, 8: 2}, [1], id="an undo across an undo: that one is gone with all else"),
        pytest.param({4: 3, 7: 4}, [1, 2, 3, 8], id="an undo of an undo takes what came after it as well"),
        pytest.param({3: 2, 5: 4, 7: 1}, [8], id="all of it"),
        pytest.param({8: 1}, [], id="nothing is left"),
    ],
)
def test_which_entries_are_living(undos: dict[int, int], left: list[int]) -> None:
    entries = numbered(*(undo(undos[seq]) if seq in undos else said(str(seq)) for seq in range(1, 9)))
    assert [each.seq for each in living(entries)] == left
    assert flatten(project(entries)) == [{"role": "user", "content": str(seq)} for seq in left]


def test_an_undo_gives_back_what_a_compaction_covered_and_what_a_clearing_cleared() -> None:
    called = {"id": "c", "type": "function", "function": {"name": "read", "arguments": "{}"}}
    start = [
        said("one"),
        message({"role": "assistant", "tool_calls": [called]}),
        message({"role": "tool", "tool_call_id": "c", "content": "long"}),
        work({"goal": "ship"}),
    ]
    effects = [commit(Cleared((Stub(3, "short"),))), commit(Compacted(Checkpoint(3, "machine")))]
    undone = project(numbered(*start, said("two"), *effects, work({"goal": "other"}), said("three"), undo(5)))
    assert undone == project(numbered(*start))
    assert (undone.checkpoint, undone.work.goal) == (None, "ship")


@pytest.mark.parametrize("to", [None, 0, -1, 3, 4, 10**30, "1", 1.0, True, [1], {}], ids=repr)
def test_an_undo_of_nothing_that_was_before_it_is_damage(to: object) -> None:
    entries = [*numbered(said("one"), said("two")), entry("undo", {"to": to}, 3)]
    for use in (project, lambda given: list(living(given)), last_asked):
        with pytest.raises(JournalDamaged, match=r"^journal entry 3: it undoes nothing"):
            use(entries)


def test_an_undo_that_names_no_line_is_damage() -> None:
    with pytest.raises(JournalDamaged, match="journal entry 2"):
        project([entry(*said("one")), entry("undo", seq=2)])


# --- what was asked last --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("written", "asked"),
    [
        pytest.param([], None, id="nothing said"),
        pytest.param(
            [said("s", "system"), said("a", "assistant"), message("user"), ("usage", {})], None, id="not asked"
        ),
        pytest.param([said("one"), said("a", "assistant"), said("two"), said("b", "assistant")], 3, id="the last one"),
        pytest.param([said("one"), said("two"), commit(Withdrawn(2))], 1, id="the last was withdrawn"),
        pytest.param([said("one"), commit(Withdrawn(1))], None, id="all was withdrawn"),
        pytest.param([said("one"), commit(Withdrawn(1)), said("two")], 3, id="asked again after a withdrawal"),
        pytest.param([said("one"), said("two"), undo(2)], 1, id="the last was undone"),
        pytest.param([said("one"), said("two"), undo(2), undo(3)], 2, id="its undo was undone"),
        pytest.param([said("one"), said("two"), commit(Withdrawn(2)), undo(3)], 2, id="its withdrawal was undone"),
        pytest.param([said("one"), commit(Compacted(Checkpoint(1, "machine")))], 1, id="it was compacted away"),
        pytest.param([said("one"), ("notice", {"message": {"role": "user", "content": "x"}})], 1, id="not a message"),
        pytest.param([said("one"), ("later", {"effect": {"kind": "withdrawn", "since": 1}})], 1, id="not a commit"),
    ],
)
def test_last_asked(written: list[tuple[str, Body]], asked: int | None) -> None:
    entries = numbered(*written)
    found = last_asked(entries)
    assert (found and found.seq) == asked
    assert found is None or found is entries[found.seq - 1]


@given(with_undos())
def test_going_back_to_what_was_asked_last_takes_exactly_that(size: Callable[[str], int], moves: list[Move]) -> None:
    entries, counting, _ = lived(moves, size)
    asked = last_asked(entries)
    if asked is not None:
        assert asked in counting
        entries.append(Entry(len(entries) + 1, AT, *undo(asked.seq)))
        assert project(entries) == project(counting[: counting.index(asked)])


# --- work -----------------------------------------------------------------------------------------------------------


def test_patches_of_the_work_state_add_up() -> None:
    patches: list[Body] = [{"goal": "ship", "decisions": ["a"]}, {"todos": [{"text": "t"}]}, {"decisions": ["b"]}]
    state = WorkState()
    for patch in patches:
        state = patched(state, patch)
    history = project(numbered(said("one"), *map(work, patches)))
    assert history.work == state
    assert (state.goal, state.decisions, len(state.todos)) == ("ship", ("b",), 1)
    assert flatten(history) == [{"role": "user", "content": "one"}]


def test_clearing_the_work_state_clears_it_in_the_checkpoint_as_well() -> None:
    checkpoint = replace(CHECKPOINT, work="goal: ship")
    entries = numbered(work({"goal": "ship"}), said("one"), commit(Compacted(checkpoint)))
    assert (project(entries).work.goal, project(entries).checkpoint) == ("ship", checkpoint)
    cleared = project([*entries, Entry(4, AT, *work(None))])
    assert (cleared.work, cleared.checkpoint) == (WorkState(), replace(checkpoint, work=""))


def test_clearing_without_a_checkpoint_makes_none() -> None:
    assert project(numbered(work({"goal": "ship"}), work(None))) == History()


@pytest.mark.parametrize("patch", ["x", 7, [], True, {"goal": {}}, {"unknown": "x"}, {"goal": "new", "todos": [{}]}])
def test_a_patch_that_cannot_be_read_is_none(patch: object) -> None:
    start = numbered(said("one"), work({"goal": "ship"}))
    assert project([*start, entry("work", {"patch": patch}, 3)]) == project(start)


@given(json_values | st.dictionaries(st.sampled_from(["goal", "todos", "decisions"]), json_values))
def test_whatever_a_patch_is_a_history_is_left(patch: object) -> None:
    history = project([entry(*work({"goal": "ship"})), entry("work", {"patch": patch}, 2), entry(*said("one"), 3)])
    assert history.turns[0].opening == (Message("user", "one", seq=3),)


# --- what was begun -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("entries", "left"),
    [
        pytest.param([begin("compact"), ("usage", {})], (1,), id="never ended"),
        pytest.param([begin("compact"), commit(Withdrawn(9), begun=1)], (), id="committed"),
        pytest.param([begin("compact"), ("abort", {"begin": 1})], (), id="aborted"),
        pytest.param([begin("clear"), begin("compact"), commit(Withdrawn(9), begun=2)], (1,), id="another one ended"),
        pytest.param([begin("compact"), commit(Withdrawn(9))], (1,), id="a commit of nobody's begin"),
        pytest.param([begin("compact"), ("abort", {"begin": "1"})], (1,), id="an abort that names no line"),
    ],
)
def test_open_begins(entries: list[tuple[str, dict[str, object]]], left: tuple[int, ...]) -> None:
    assert open_begins(Entry(seq, AT, *each) for seq, each in enumerate(entries, 1)) == left


# --- damage ---------------------------------------------------------------------------------------------------------

DEEP = "[" * 100_000


def test_a_journal_of_this_version_is_read() -> None:
    check_header(header("20260901-demo", AT))


@pytest.mark.parametrize("line", ["", "{", "[]", "{}", "7", '"schema"', DEEP])
def test_a_first_line_that_is_no_header(line: str) -> None:
    with pytest.raises(JournalDamaged, match="no journal header"):
        check_header(line)


def test_a_journal_of_a_later_version_says_what_to_do() -> None:
    with pytest.raises(JournalDamaged, match="upgrade localctx"):
        check_header(json.dumps({"schema": SCHEMA + 1}))


WHOLE = {"seq": 1, "at": AT, "type": "usage"}


@pytest.mark.parametrize(
    "line",
    ["", '{"seq": 1, "at"', "[]", "7", DEEP, *(json.dumps(WHOLE | {key: None}) for key in WHOLE)]
    + [json.dumps({key: value for key, value in WHOLE.items() if key != gone}) for gone in WHOLE],
)
def test_a_line_that_is_no_entry(line: str) -> None:
    with pytest.raises(JournalDamaged, match="not a journal entry"):
        decode(line)


@given(st.sampled_from(EFFECTS), st.integers(0), json_values | st.just(float("inf")))
def test_an_effect_is_read_or_refused_whatever_stands_in_it(effect: Effect, at: int, junk: object) -> None:
    fields = {"kind": type(effect).__name__.lower(), **asdict(effect)}
    damaged = spoilt(json.loads(json.dumps(fields)), at, junk)
    try:
        advance(History(), entry("commit", {"effect": damaged}))
    except JournalDamaged as error:
        assert "journal entry 1" in str(error)  # noqa: PT017  either outcome will do


def spoilt(value: object, at: int, junk: object) -> object:
    """The value with junk in one place, chosen by `at`."""
    keys = list(value) if isinstance(value, dict) else list(range(len(value))) if isinstance(value, list) else []
    if not keys or not at % 4:
        return junk
    assert isinstance(value, (dict, list))
    key = keys[at % len(keys)]
    value[key] = spoilt(value[key], at // 4, junk)
    return value


@pytest.mark.parametrize("marks", [{"through": 3}, {"through": 3, "facts": [1]}, {"through": "3", "facts": [0] * 5}, 3])
def test_a_mark_that_marks_nothing_is_damage(marks: object) -> None:
    kind, body = commit(Compacted(CHECKPOINT))
    raw = json.loads(json.dumps(body))
    raw["effect"]["checkpoint"]["marks"] = [marks]
    with pytest.raises(JournalDamaged, match="a mark needs a line"):
        effect_of(entry(kind, raw))


def test_a_checkpoint_of_an_earlier_version_has_no_marks() -> None:
    kind, body = commit(Compacted(CHECKPOINT))
    raw = json.loads(json.dumps(body))
    del raw["effect"]["checkpoint"]["marks"]
    assert effect_of(entry(kind, raw)) == Compacted(replace(CHECKPOINT, marks=()))


@pytest.mark.parametrize("body", [{}, {"effect": None}, {"effect": {"kind": "of a later version"}}])
def test_an_effect_that_nobody_knows_is_not_skipped(body: dict[str, object]) -> None:
    with pytest.raises(JournalDamaged, match="cannot be read"):
        project([entry("commit", body)])
