from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from localctx.core import journal
from localctx.core.effects import Compacted, Withdrawn, apply
from localctx.core.journal import Entry, project
from localctx.core.messages import Checkpoint, plain
from localctx.core.record import Use, body, compactions, conversation, last_undo, markdown, overview
from localctx.core.transcript import flatten, read
from localctx.core.work import as_json
from tests.core.strategies import Move, json_values, lives, play, wires

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

AT = "2026-09-01T12:00:00.000+00:00"
SYSTEM = ("message", {"message": {"role": "system", "content": "Be brief."}})


def said(text: str, role: str = "user", **about: object) -> tuple[str, journal.Body]:
    return "message", {"message": {"role": role, "content": text}, **about}


def result(text: str, **about: object) -> tuple[str, journal.Body]:
    return "message", {"message": {"role": "tool", "tool_call_id": "c", "content": text}, **about}


def compacted(through: int, **taken: object) -> tuple[str, journal.Body]:
    return journal.commit(Compacted(Checkpoint(through, "machine")), taken=taken)


def entries(*lines: tuple[str, journal.Body]) -> list[Entry]:
    return [Entry(seq, AT, *line) for seq, line in enumerate(lines, 1)]


def texts(found: Sequence[Entry]) -> list[str]:
    return [plain(getattr(read(each.body.get("message")), "content", "")) for each in found]


# --- the conversation ---------------------------------------------------------------------------------------------


def test_what_a_compaction_replaced_stays_in_the_conversation() -> None:
    assert texts(conversation(entries(said("one"), said("two", "assistant"), compacted(2), said("three")))) == [
        "one",
        "two",
        "three",
    ]


def test_what_was_undone_or_withdrawn_is_not_in_it() -> None:
    lines = [said("kept"), said("cut", "assistant"), journal.commit(Withdrawn(2)), said("again", "assistant")]
    lines += [said("undone"), said("this too", "assistant"), journal.undo(5)]
    assert texts(conversation(entries(*lines))) == ["kept", "again"]
    assert texts(conversation(entries(*lines, journal.undo(7)))) == ["kept", "again", "undone", "this too"]
    assert texts(conversation(entries(*lines, said("new")))) == ["kept", "again", "new"]


@given(lives())
def test_without_compactions_the_conversation_is_the_history(size: Callable[[str], int], moves: Sequence[Move]) -> None:
    lines = play([move for move in moves if move.what in {"message", "withdraw"}], size)
    assert [each.body["message"] for each in conversation(lines)] == flatten(project(lines))


# --- figures ------------------------------------------------------------------------------------------------------


def test_an_empty_journal_has_its_figures() -> None:
    seen = overview([])
    assert (seen.messages, seen.taken_back, seen.undone, seen.tools, dict(seen.window)) == (0, 0, 0, (), {})


def test_what_was_taken_back_is_counted_apart() -> None:
    lines = [SYSTEM, said("kept"), ("usage", {}), said("withdrawn"), journal.commit(Withdrawn(4))]
    lines += [said("undone"), ("usage", {}), said("so"), journal.undo(6), said("new")]
    seen = overview(entries(*lines))
    assert (seen.messages, seen.taken_back, seen.undone) == (3, 3, 3)


def test_results_are_counted_by_tool_the_largest_first() -> None:
    long = {"bodies": {"content": {"hash": "0" * 64, "characters": 9_000}}}
    lines = [
        result("12345", tool="small", size=5),
        result("[...]", tool="big", size=20_000, **long),
        result("whole", tool="big", size=5),
        result("[interrupted: no result]", tool="small"),
        ("message", {"message": {"role": "tool", "content": None}, "tool": "small"}),
        result("of nobody", size=7),
    ]
    assert overview(entries(*lines)).tools == (Use("big", 2, 20_005, 9_005), Use("small", 3, 5, 29))


def test_results_that_were_undone_are_not_counted() -> None:
    assert overview(entries(said("a"), result("x", tool="t", size=1), journal.undo(1))).tools == ()


def test_the_window_is_that_of_the_last_run_and_the_work_is_what_counts() -> None:
    lines = [("window", {"model": "old", "tokens": 1}), said("a"), journal.work({"goal": "first"}), said("b")]
    lines += [journal.work({"goal": "second"}), ("window", {"model": "new", "tokens": 2}), journal.undo(4)]
    seen = overview(entries(*lines))
    assert seen.window == {"model": "new", "tokens": 2}
    assert as_json(seen.work) == {"goal": "first"}


# --- compactions --------------------------------------------------------------------------------------------------


def test_a_compaction_names_the_lines_that_it_replaced() -> None:
    lines = [SYSTEM, said("a"), ("usage", {}), said("b", "assistant"), said("c"), said("d", "assistant")]
    lines += [compacted(4, why="full", tokens_before=9), said("e"), said("f", "assistant"), compacted(8)]
    first, second = compactions(entries(*lines))
    assert (first.replaced, first.taken, first.undone) == ((2, 4), {"why": "full", "tokens_before": 9}, False)
    assert (second.replaced, second.taken, second.checkpoint.through) == ((5, 6, 8), {}, 8)


def test_a_compaction_that_was_undone_is_shown_and_marked() -> None:
    lines = [said("a"), said("b", "assistant"), said("c"), compacted(2), said("d", "assistant"), journal.undo(3)]
    lines += [said("e"), said("f", "assistant"), compacted(2)]
    undone, again = compactions(entries(*lines))
    assert (undone.undone, again.undone) == (True, False)
    assert undone.replaced == again.replaced == (1, 2)


@given(lives())
def test_what_was_replaced_is_what_the_history_lost(size: Callable[[str], int], moves: Sequence[Move]) -> None:
    lines = play([move for move in moves if move.what != "withdraw"], size)
    for each in compactions(lines):
        before = project(lines[: each.entry.seq - 1])
        lost = before.messages() - apply(before, Compacted(each.checkpoint)).messages()
        assert len(each.replaced) == lost


# --- undo and redo ------------------------------------------------------------------------------------------------

ASKED, REPLIED = said("a"), said("b", "assistant")
NOTED = ("window", {"tokens": 1})


@pytest.mark.parametrize(
    ("lines", "line"),
    [
        pytest.param([], None, id="nothing at all"),
        pytest.param([ASKED, REPLIED], None, id="nothing undone"),
        pytest.param([ASKED, REPLIED, journal.undo(1)], 3, id="the last thing was an undo"),
        pytest.param([ASKED, journal.undo(1), NOTED, ("later", {})], 2, id="nothing was said since"),
        pytest.param([ASKED, journal.undo(1), ASKED], None, id="the user said something since"),
        pytest.param([ASKED, journal.undo(1), journal.work(None)], None, id="the work was cleared since"),
        pytest.param([ASKED, journal.undo(1), compacted(1)], None, id="something was committed since"),
        pytest.param([ASKED, journal.undo(1), journal.undo(2)], None, id="it was redone"),
        pytest.param([ASKED, REPLIED, ASKED, journal.undo(3), journal.undo(1)], 5, id="the last of two"),
        pytest.param(
            [ASKED, REPLIED, ASKED, journal.undo(3), journal.undo(1), journal.undo(5)], 4, id="then the first"
        ),
        pytest.param(
            [ASKED, REPLIED, ASKED, journal.undo(3), journal.undo(1), journal.undo(5), journal.undo(4)],
            None,
            id="both were redone",
        ),
        pytest.param([ASKED, journal.undo(1), journal.undo(2), journal.undo(1)], 4, id="undone, redone, undone"),
        pytest.param([ASKED, journal.undo(1), ASKED, journal.undo(3)], 4, id="another thing undone"),
        pytest.param([ASKED, journal.undo(1), ASKED, journal.undo(3), journal.undo(4)], None, id="and redone"),
    ],
)
def test_the_undo_that_a_redo_goes_back_before(lines: list[tuple[str, journal.Body]], line: int | None) -> None:
    found = last_undo(entries(*lines))
    assert (found.seq if found else None) == line


@given(st.lists(st.sampled_from(["ask", "undo", "redo", "note"]), max_size=12))
def test_a_redo_brings_back_what_the_undo_took(moves: list[str]) -> None:
    lines, past = list[Entry](), list[list[Entry]]()
    for move in moves:
        before = conversation(lines)
        if move == "ask":
            past.clear()
            _append(lines, ASKED, REPLIED)
        elif move == "note":
            _append(lines, NOTED)
        elif move == "undo" and (asked := journal.last_asked(lines)):
            past.append(before)
            _append(lines, journal.undo(asked.seq))
        elif move == "redo":
            found = last_undo(lines)
            assert bool(found) == bool(past)
            if found:
                _append(lines, journal.undo(found.seq))
                assert conversation(lines) == past.pop()


def _append(lines: list[Entry], *more: tuple[str, journal.Body]) -> None:
    for line in more:
        lines.append(Entry(len(lines) + 1, AT, *line))


# --- Markdown -----------------------------------------------------------------------------------------------------

CALL = {"id": "c1", "type": "function", "function": {"name": "read_file", "arguments": '{"path": "a"}'}}


def test_headings_name_the_role_the_tool_and_the_place() -> None:
    messages: list[tuple[str, object]] = [
        ("(line 1)", {"role": "user", "content": "Read a."}),
        ("(line 2)", {"role": "assistant", "content": None, "tool_calls": [CALL]}),
        ("(line 3)", {"role": "tool", "tool_call_id": "c1", "content": "text"}),
        ("", {"role": "tool", "tool_call_id": "c9", "content": ""}),
        ("", None),
    ]
    text = markdown("mine", messages)
    assert re.findall(r"^#.*$", text, re.MULTILINE) == [
        "# mine",
        "## User (line 1)",
        "## Assistant (line 2)",
        "## Result of read_file c1 (line 3)",
        "## Result of a call c9",
        "## No message",
    ]
    assert 'Calls read_file c1:\n\n```\n{"path": "a"}\n```' in text


def test_a_fence_is_longer_than_any_in_the_text() -> None:
    text = "a\n```\nb\n`````\nc"
    assert body({"role": "tool", "content": text}) == f"``````\n{text}\n``````"


@pytest.mark.parametrize("text", ["# A heading\n```\ncode\n```", "a `b", "see ```this```"])
def test_a_text_stands_as_it_is(text: str) -> None:
    assert body({"role": "assistant", "content": text}) == text


@pytest.mark.parametrize("text", ["```python\ncut off", "so:\n  ~~~\ncut off", "```\na\n```\nb\n```"])
def test_a_text_whose_fence_has_no_end_takes_in_nothing_that_follows(text: str) -> None:
    fence = "````" if "```" in text else "```"
    assert body({"role": "assistant", "content": text}) == f"{fence}\n{text}\n{fence}"


def test_thinking_is_folded_away() -> None:
    message = {"role": "assistant", "content": "Yes.", "reasoning_content": "</details> ```"}
    assert body(message) == "<details><summary>Thinking</summary>\n\n````\n</details> ```\n````\n\n</details>\n\nYes."


def test_a_tool_s_name_makes_no_heading_of_its_own() -> None:
    call = {"id": "c1\n# no", "function": {"name": "x\n# heading", "arguments": "{}"}}
    message = {"role": "assistant", "tool_calls": [call]}
    answer = {"role": "tool", "tool_call_id": "c1\n# no", "content": ""}
    assert markdown("t", [("", message), ("", answer)]).count("\n#") == 2


@given(wires())
def test_nothing_of_any_message_is_left_out(messages: list[object]) -> None:
    text = markdown("t", [("", message) for message in messages])
    for message in messages:
        for each in _texts(message):
            assert each in text or json.dumps(each, ensure_ascii=False)[1:-1] in text


def _texts(message: object) -> list[str]:
    """The texts of a message that is one, but for its role and the ids, which headings hold in one line."""
    if not isinstance(message, dict):
        return [message] if isinstance(message, str) else []
    return [value for key, value in message.items() if isinstance(value, str) and key not in {"role", "tool_call_id"}]


@given(json_values)
def test_any_value_has_its_markdown(value: object) -> None:
    assert isinstance(body(value), str)
