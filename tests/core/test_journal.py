from __future__ import annotations

import json
from dataclasses import asdict
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

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
    message,
    open_begins,
    project,
)
from localctx.core.ladder import Cleared, Compacted, Effect, Stub, Withdrawn
from localctx.core.messages import Checkpoint, Facts, History, Said, Words
from localctx.core.transcript import flatten
from localctx.errors import JournalDamaged
from tests.core.strategies import Move, json_values, lives, play

if TYPE_CHECKING:
    from collections.abc import Callable

AT = "2026-09-01T12:00:00.000+00:00"
CHECKPOINT = Checkpoint(
    through=7,
    author="model",
    sections=(("goal", ("move the tests",)), ("done", ("lexer", "parser"))),
    facts=Facts(("a.txt",), ("b.txt",), ("make -> ok",), ("http://x/",), ("read(c): error",), "read(c)"),
    words=(Words(1, "move the tests"),),
    unsaid=2,
    shed=3,
)
EFFECTS: list[Effect] = [
    Cleared((Stub(3, "[cleared]"), Stub(2, "{}", "call_1"))),
    Compacted(CHECKPOINT),
    Compacted(Checkpoint(1, "machine")),
    Withdrawn(4),
]


def entry(kind: str, body: object = None, seq: int = 1) -> Entry:
    return Entry(seq, AT, kind, body if isinstance(body, dict) else {})


# --- replay ---------------------------------------------------------------------------------------------------------


@given(lives())
def test_a_replay_of_the_lines_is_the_live_history(size: Callable[[str], int], moves: list[Move]) -> None:
    entries, live = play(moves, size), History()
    for each in entries:
        live = advance(live, each)
    lines = [encode(each).encode() for each in entries]
    assert not any(b"\n" in line for line in lines)
    assert [decode(line.decode()) for line in lines] == entries
    assert project(decode(line.decode()) for line in lines) == live


@given(lives())
def test_only_messages_and_commits_have_an_effect(size: Callable[[str], int], moves: list[Move]) -> None:
    entries = play(moves, size)
    assert project(each for each in entries if each.type in {"message", "commit"}) == project(entries)


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


@pytest.mark.parametrize("body", [{}, {"effect": None}, {"effect": {"kind": "of a later version"}}])
def test_an_effect_that_nobody_knows_is_not_skipped(body: dict[str, object]) -> None:
    with pytest.raises(JournalDamaged, match="cannot be read"):
        project([entry("commit", body)])
