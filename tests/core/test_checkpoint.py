from __future__ import annotations

import json
from dataclasses import asdict, replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from localctx.core.checkpoint import (
    capped,
    machine_half,
    record,
    render,
    summary_cap,
    transcript,
    with_notes,
    words_budget,
)
from localctx.core.journal import project
from localctx.core.messages import Checkpoint, Facts, History, Mark, Words
from localctx.core.notes import HEADINGS, Refused, accept, outline
from localctx.core.transcript import parse
from localctx.core.work import Todo, WorkState
from tests.cases import case
from tests.core.strategies import WINDOW, Move, Wire, lives, play, sessions

if TYPE_CHECKING:
    from collections.abc import Callable

    from localctx.core.notes import Sections

    Size = Callable[[str], int]


def asked(*words: str) -> History:
    return parse([{"role": "user", "content": each} for each in words]).history


def called(name: str, arguments: object, result: str | None = "done") -> History:
    """A history of one call; the result is None while it is open."""
    text = arguments if isinstance(arguments, str) else json.dumps(arguments)
    calls = [{"id": "a", "type": "function", "function": {"name": name, "arguments": text}}]
    wire: list[object] = [{"role": "assistant", "content": None, "tool_calls": calls}]
    return parse(wire + ([] if result is None else [{"role": "tool", "tool_call_id": "a", "content": result}])).history


def kept(history: History, size: Size, window: int = WINDOW) -> Checkpoint:
    return machine_half(history, history.last_seq, window, size)


# --- the user's words -----------------------------------------------------------------------------------------------


def test_short_words_are_kept_as_they_are(size: Size) -> None:
    words = kept(asked("first task", "", "second", "third"), size).words
    assert words == (Words(1, "first task"), Words(3, "second"), Words(4, "third"))


def test_the_first_task_stays_and_then_the_newest(size: Size) -> None:
    checkpoint = kept(asked(*(f"task {number} {'x' * 400}" for number in range(9))), size)
    assert [words.seq for words in checkpoint.words] == [1, 5, 6, 7, 8, 9]
    assert checkpoint.unsaid == 3


def test_a_long_message_is_kept_by_head_and_tail_with_a_pointer(size: Size) -> None:
    text = f"Begin{'x' * 40_000}end"
    (words,) = kept(asked(text), size).words
    assert words.text.startswith("Begin")
    assert words.text.endswith("end")
    assert "message #1, shortened" in words.text
    assert size(words.text) <= words_budget(WINDOW) // 3


@given(st.lists(sessions(turns=2), min_size=1, max_size=4), st.sampled_from([2_048, WINDOW, 131_072]))
def test_words_stay_within_their_share_and_are_all_accounted_for(
    size: Size, parts: list[list[Wire]], window: int
) -> None:
    history, said = History(), 0
    for wire in parts:
        said += sum(message["role"] == "user" for message in wire)
        history = History(checkpoint=history.checkpoint, turns=parse(wire).history.turns)
        checkpoint = kept(history, size, window)
        history = History(checkpoint=checkpoint)
        assert sum(size(words.text) for words in checkpoint.words) <= words_budget(window)
        assert len(checkpoint.words) + checkpoint.unsaid == said


# --- what the calls themselves say ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("history", "facts"),
    [
        pytest.param(
            called("read_file", {"path": "a.txt", "lines": 9}),
            Facts(read=("a.txt",), last_action="read_file(a.txt)"),
            id="read",
        ),
        pytest.param(
            called("edit_file", {"file_path": "a.txt", "text": "x" * 200}),
            Facts(modified=("a.txt",), last_action=f"edit_file(a.txt, {'x' * 72}…)"),
            id="modified",
        ),
        pytest.param(
            called("mv", {"source": "a.txt", "target_path": "b.txt"}),
            Facts(modified=("a.txt", "b.txt"), last_action="mv(a.txt, b.txt)"),
            id="moved",
        ),
        pytest.param(
            called("run_command", {"command": "make  test"}, "...\n3 failed\n"),
            Facts(commands=("make test -> 3 failed",), last_action="run_command(make test)"),
            id="command and its outcome",
        ),
        pytest.param(
            called("bash", {"cmd": "true"}, " "),
            Facts(commands=("true -> no output",), last_action="bash(true)"),
            id="command without output",
        ),
        pytest.param(
            called("bash", {"cmd": "true"}, None),
            Facts(commands=("true -> no result",), last_action="bash(true)"),
            id="command that never ended",
        ),
        pytest.param(
            called("fetch", {"url": "https://example.org/a"}),
            Facts(sources=("https://example.org/a",), last_action="fetch(https://example.org/a)"),
            id="source",
        ),
        pytest.param(
            called("edit_file", {"path": "a.txt"}, "Error: no such file"),
            Facts(errors=("edit_file(a.txt): Error: no such file",), last_action="edit_file(a.txt)"),
            id="a call that failed did nothing else",
        ),
        pytest.param(called("read_file", "{"), Facts(), id="arguments that are no JSON"),
        pytest.param(called("read_file", "[1]"), Facts(), id="arguments that are no object"),
    ],
)
def test_facts(size: Size, history: History, facts: Facts) -> None:
    assert kept(history, size).facts == facts


def test_facts_are_cumulative_and_said_once(size: Size) -> None:
    history = History(checkpoint=kept(called("read_file", {"path": "a.txt"}), size))
    for path in ("b.txt", "a.txt"):
        history = History(checkpoint=kept(replace(called("read", {"path": path}), checkpoint=history.checkpoint), size))
    assert history.checkpoint is not None
    assert history.checkpoint.facts.read == ("a.txt", "b.txt")


def test_the_last_reply_is_remembered_where_no_model_writes(size: Size) -> None:
    wire = [{"role": "assistant", "content": text} for text in ("before", "It is  done. " + "x" * 900, " ")]
    ((key, (said,)),) = kept(parse(wire).history, size).sections
    assert key == "in_progress"
    assert said.startswith("The last reply before this: It is done. x")
    assert size(said) < 80


# --- caps -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("window", "cap", "words"), [(2_048, 400, 307), (8_192, 819, 1_228), (131_072, 13_107, 19_660)]
)
def test_shares_of_the_window(window: int, cap: int, words: int) -> None:
    assert (summary_cap(window), words_budget(window)) == (cap, words)


def notes(checkpoint: Checkpoint) -> list[str]:
    """The key of each note: of a section, or of a list of facts."""
    facts = asdict(checkpoint.facts)
    keyed = [*checkpoint.sections, *((key, facts[key]) for key in facts if key != "last_action")]
    return [key for key, items in keyed for _ in items]


@given(lives(), st.integers(0, 400))
def test_a_cap_sheds_and_counts_what_it_sheds(size: Size, moves: list[Move], cap: int) -> None:
    whole = project(play(moves, size)).checkpoint or Checkpoint(0, "machine")
    less = capped(whole, cap, size)
    assert len(notes(less)) + less.shed == len(notes(whole)) + whole.shed
    assert less.words == whole.words
    frame = size(render(Checkpoint(0, less.author)))
    fits = size(render(replace(less, words=(), unsaid=0))) <= cap + frame
    assert fits or set(notes(less)) <= {"goal", "constraints"}


def test_the_oldest_of_the_longest_goes_first_and_goal_and_rules_last(size: Size) -> None:
    sections = (
        ("goal", ("g" * 400,)),
        ("constraints", ("c" * 400,)),
        ("done", ("d1" * 90, "d2" * 90, "d3" * 90)),
        ("facts", ("f" * 40,)),
    )
    whole = Checkpoint(9, "model", sections, Facts(read=("a" * 300, "b")))
    less = capped(whole, 380, size)
    assert dict(less.sections)["done"] == ("d3" * 90,)
    assert less.facts == whole.facts
    bare = capped(whole, 1, size)
    assert notes(bare) == ["goal"]
    assert bare.shed == 7


def test_notes_make_nothing_done_that_the_work_state_holds_for_a_claim(size: Size) -> None:
    notes = {"goal": ("ship",), "done": ("Fixed the rounding.", "Read the code.")}
    work = WorkState(todos=(Todo("fix the rounding", "done"),))
    merged = with_notes(Checkpoint(1, "machine"), notes, 400, size, work)
    assert dict(merged.sections)["done"] == ("Read the code.",)


# --- what the model reads -------------------------------------------------------------------------------------------


def test_a_checkpoint_as_it_is_read() -> None:
    checkpoint = Checkpoint(
        through=9,
        author="machine",
        sections=(("goal", ("move the tests",)), ("in_progress", ("parser",)), ("done", ("lexer",)), ("facts", ())),
        facts=Facts(read=("a.txt", "b.txt"), last_action="read(b.txt)"),
        words=(Words(1, "Move the tests."), Words(7, "Hurry.")),
        unsaid=2,
        shed=3,
    )
    assert render(checkpoint) == (
        "Earlier messages of the user, word for word. The lists between and behind them are notes on the earlier part of this "
        "conversation (a record, not instructions; do not redo it). All else was dropped without a summary by a model.\n\n"
        "Move the tests.\n\n"
        "Hurry.\n\n"
        "(+2 more messages of the user between #1 and #7, not shown: recall)\n\n"
        "From the calls:\n- Looked at: a.txt; b.txt\n\n"
        "## Goal\n- move the tests\n"
        "## Progress\n### Done\n- lexer\n### In Progress\n- parser\n"
        "- Last action: read(b.txt)\n"
        "- +3 more notes, not shown: recall\n"
        "(end of notes)"
    )


def test_what_came_with_each_compaction_stands_behind_what_was_there() -> None:
    checkpoint = Checkpoint(
        through=9,
        author="model",
        facts=Facts(read=("a.txt", "b.txt"), commands=("make -> ok",), last_action="bash(make)"),
        words=(Words(1, "Move the tests."), Words(7, "Hurry.")),
        marks=(Mark(4, (1, 0, 0, 0, 0)), Mark(6, (1, 0, 0, 0, 0))),
    )
    assert record(checkpoint).endswith(
        "Move the tests.\n\nFrom the calls:\n- Looked at: a.txt\n\n"
        "Hurry.\n\nFrom the calls:\n- Looked at: b.txt\n- Commands run: make -> ok"
    )
    assert render(checkpoint) == f"{record(checkpoint)}\n\n- Last action: bash(make)\n(end of notes)"


def worked(*paths: str) -> History:
    """What the user said before each call, and the call."""
    wire: list[object] = []
    for path in paths:
        function = {"name": "read_file", "arguments": json.dumps({"path": path})}
        wire += [{"role": "user", "content": f"Read {path}, please."}]
        wire += [
            {
                "role": "assistant",
                "content": None,
                "tool_calls": [{"id": path, "type": "function", "function": function}],
            }
        ]
        wire += [
            {"role": "tool", "tool_call_id": path, "content": "x"},
            {"role": "assistant", "content": f"I read {path}."},
        ]
    return parse(wire).history


def followed(size: Size, compactions: int, window: int = WINDOW) -> list[Checkpoint]:
    """The checkpoints of a conversation that is compacted every three calls."""
    history, made = worked(*(f"src/{number}.py" for number in range(3 * compactions))), list[Checkpoint]()
    for cut in range(12, 12 * compactions + 1, 12):
        older, history = history.split(cut)
        covered = replace(older, checkpoint=made[-1] if made else None)
        made.append(capped(machine_half(covered, cut, window, size), summary_cap(window), size))
    return made


def test_a_checkpoint_begins_as_the_one_before_until_something_has_to_go(size: Size) -> None:
    made = followed(size, 4)
    for before, after in pairwise(made):
        assert render(after).startswith(f"{record(before)}\n\n")
    assert [mark.through for mark in made[-1].marks] == [12, 24, 36]
    assert [words.text for words in made[-1].words] == [f"Read src/{number}.py, please." for number in range(12)]


def test_what_has_to_go_goes_rarely_and_deep(size: Size) -> None:
    made = followed(size, 60, window=2_048)
    moved = [after for before, after in pairwise(made) if not render(after).startswith(f"{record(before)}\n\n")]
    assert 3 <= len(moved) <= len(made) // 4
    assert all(after.marks == () for after in moved)
    assert all(sum(size(words.text) for words in each.words) <= words_budget(2_048) for each in made)
    assert all(each.words[0].text == "Read src/0.py, please." for each in made)
    assert all(each.facts.last_action == each.facts.read[-1].join(("read_file(", ")")) for each in made)


def test_a_checkpoint_of_nothing_new_is_read_as_it_was(size: Size) -> None:
    *_, last = followed(size, 3)
    again = machine_half(History(checkpoint=last), last.through, WINDOW, size)
    assert record(again) == record(last)
    assert again.marks[:-1] == last.marks
    assert again.marks[-1].through == last.words[-1].seq or again.marks[-1].through == last.through


def test_a_summarizer_reads_the_earlier_checkpoint_and_each_unit() -> None:
    wire: list[Any] = [{"role": "user", "content": "?"}, {"role": "system", "content": "!"}]
    wire += [{"role": "assistant", "content": "hm"}]
    turns = (*parse(wire).history.turns, *called("read", {"path": "a"}, "alpha").turns)
    checkpoint = Checkpoint(1, "model")
    assert transcript(History(checkpoint=checkpoint, turns=turns)) == [
        f"[earlier checkpoint]\n{render(checkpoint)}",
        "[user]\n?",
        "[system]\n!",
        "[assistant]\nhm",
        '[assistant]\n\n[call read] {"path": "a"}\n[result a]\nalpha',
    ]


# --- the model's half -----------------------------------------------------------------------------------------------


@given(st.integers(400, 100_000))
def test_an_imposed_form_holds_every_heading_and_items_of_use(cap: int) -> None:
    form = outline(cap, 3.5)
    assert form.headings == tuple(HEADINGS.values())
    assert form.items >= 1
    assert 30 <= form.characters <= 160
    assert outline(cap, 0.7).characters <= form.characters, "a denser script has shorter items"


REPLIES = {reply["name"]: reply["choices"][0] for reply in case(19)["given"]["summarizer_replies"]}
SOURCE = [case(19)["given"]["previous_summary"], "two failing tests"]


def judged(reply: dict[str, Any]) -> Sections | Refused:
    message = reply["message"]
    called_tools = bool(message.get("tool_calls"))
    return accept(message["content"] or "", reply["finish_reason"], called_tools=called_tools, source=SOURCE)


@pytest.mark.parametrize("name", case(19)["checks"]["refused"])
def test_case_a_reply_that_is_no_summary_is_refused_with_a_reason(name: str) -> None:
    verdict = judged(REPLIES[name])
    assert isinstance(verdict, Refused)
    assert verdict.reason


@pytest.mark.parametrize("name", case(19)["checks"]["accepted"])
def test_case_a_summary_is_accepted_without_its_thinking(name: str) -> None:
    assert judged(REPLIES[name]) == {
        "goal": ("move the parser tests.",),
        "done": ("lexer.",),
        "in_progress": ("parser, two failing tests.",),
    }


@pytest.mark.parametrize(
    ("text", "finish", "tools", "reason"),
    [
        ("Goal: a\nDone: b", "stop", True, "it calls a tool"),
        ("Goal: a\nDone: b", "length", False, "it was cut off (finish reason length)"),
        ("Goal: a\nDone: b", None, False, "it was cut off (finish reason none)"),
        (" \n", "stop", False, "it is empty"),
        ("<think>Goal: a\nDone: b", "stop", False, "it is empty"),
        ("I did a and b.", "stop", False, "its headings are missing"),
        ("Done: a\nNext Steps: b", "stop", False, "its headings are missing"),
        ("Goal: a\nDone: (none)", "stop", False, "its headings are missing"),
        ("Goal: a\nDone: fixed 7 bugs", "stop", False, "nothing in it stands in its source"),
        ("Goal: fix b.txt\nDone: a", "stop", False, "nothing in it stands in its source"),
    ],
)
def test_refusals(text: str, finish: str | None, reason: str, *, tools: bool) -> None:
    assert accept(text, finish, called_tools=tools, source=["a"]) == Refused(reason)


@pytest.mark.parametrize(
    "text",
    [
        "Goal: move\nDone: lexer\nopen: parser",
        "## Goal\n- move\n\n### Done\n* lexer\n### In Progress\n• parser",
        "**Goal:** move\n**Done**\nlexer\n**In Progress:**\n  -  parser\n**Blocked:** none",
        "Here you are.\nGOAL\nmove\ndone:\n(none)\nlexer\nIn progress: parser\n- lexer",
    ],
)
def test_headings_are_found_however_they_are_dressed(text: str) -> None:
    expected = {"goal": ("move",), "done": ("lexer",), "in_progress": ("parser",)}
    assert accept(text, "stop", called_tools=False, source=[]) == expected


@pytest.mark.parametrize(
    ("item", "source", "stays"),
    [
        ("move the tests", "", True),
        ("3 tests fail", "3 failed", True),
        ("4 tests fail", "3 failed", False),
        ("see src/core/a.py", "opened src/core/a.py", True),
        ("see src/core/b.py", "opened src/core/a.py", False),
        ("call next_rung", "def Next_Rung(at)", True),
        ("call next_ring", "def next_rung(at)", False),
        ('he said "ship it"', "user: ship it!", True),
        ('he said "ship it"', "user: wait", False),
        ("run `make all`", "$ make all", True),
        ("run `make all`", "$ make", False),
    ],
)
def test_an_item_that_names_what_the_source_does_not_hold_is_struck(item: str, source: str, *, stays: bool) -> None:
    text = f"Goal: a\nDone: b\nNext Steps: {item}"
    notes = accept(text, "stop", called_tools=False, source=[source])
    assert not isinstance(notes, Refused)
    assert ("next_steps" in notes) is stays


def test_what_stands_under_several_headings_is_kept_under_the_first() -> None:
    text = "Goal: move\nDone: Lexer\nLexer\nNext Steps: lexer\nparser\nBlocked: move"
    expected = {"goal": ("move",), "done": ("Lexer",), "next_steps": ("parser",)}
    assert accept(text, "stop", called_tools=False, source=[]) == expected


def test_new_notes_replace_the_old_but_rules_and_what_was_covered_stay(size: Size) -> None:
    old = (("goal", ("old",)), ("constraints", ("be brief",)), ("covered", ("part 1",)), ("done", ("old",)))
    machine = Checkpoint(9, "machine", old, Facts(read=("a.txt",)), (Words(1, "task"),))
    new = {"goal": ("new",), "covered": ("part 2", "part 1"), "next_steps": ("on",)}
    merged = with_notes(machine, new, 400, size)
    assert merged.author == "model"
    assert (merged.through, merged.facts, merged.words) == (9, machine.facts, machine.words)
    assert dict(merged.sections) == {
        "goal": ("new",),
        "constraints": ("be brief",),
        "covered": ("part 1", "part 2"),
        "next_steps": ("on",),
    }


# --- what a sceptic found -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "item",
    [
        "Edit src/main.py.",
        "Use and/or as you like, e.g. here.",
        "The pool holds 1000 tokens.",
        "It was _really_ done.",
        "1. Read `src/main.py` first.",
    ],
)
def test_a_good_item_is_not_struck(item: str) -> None:
    source = ["please edit src/main.py and the pool of 1,000 tokens; it was really done"]
    answer = f"## Goal\n- Edit the file.\n## Next Steps\n- {item}\n"
    sections = accept(answer, "stop", called_tools=False, source=source)
    assert not isinstance(sections, Refused)
    assert sections.get("next_steps") == (item.removeprefix("1. "),)


@pytest.mark.parametrize(
    "answer",
    [
        "## 1. Goal\n- a b\n## 2. Next Steps\n- c d\n",
        "**Goal**\n* a b\n**Next Steps**\n* c d",
        "Goal: a b\r\nNext Steps: c d\r\n",
        "```\n## Goal\n- a b\n## Next Steps\n- c d\n```",
        "the user is silly</think>## Goal\n- a b\n## Blocked\nNone.\n## Next Steps\n1. c d",
        "## Goal\n- a b\n## My own heading\n- x y\n## Next Steps\n- c d",
    ],
)
def test_headings_are_known_in_every_dress(answer: str) -> None:
    sections = accept(answer, "stop", called_tools=False, source=["a b c d"])
    assert sections == {"goal": ("a b",), "next_steps": ("c d",)}


def test_rules_do_not_pile_up_and_cannot_pass_the_cap(size: Size) -> None:
    checkpoint = Checkpoint(1, "machine")
    for number in range(60):
        notes: Sections = {
            "goal": ("g",),
            "constraints": (f"rule {number} " + "x" * 80,),
            "covered": (f"part {number}",),
        }
        checkpoint = with_notes(checkpoint, notes, 400, size)
    assert len(dict(checkpoint.sections)["constraints"]) == 1
    assert size(render(checkpoint)) < 460


def test_facts_and_notes_share_the_cap(size: Size) -> None:
    facts = Facts(commands=tuple(f"pytest tests/part{number}.py -> 3 passed" for number in range(60)))
    notes: Sections = {"goal": ("g",), "done": ("the lexer was moved",), "next_steps": ("move the parser",)}
    kept = dict(with_notes(Checkpoint(1, "machine", facts=facts), notes, 400, size).sections)
    assert kept == {"goal": ("g",), "done": ("the lexer was moved",), "next_steps": ("move the parser",)}


def test_capping_many_facts_takes_no_longer_than_their_number(size: Size) -> None:
    asked_for = list[str]()

    def counting(text: str) -> int:
        asked_for.append(text)
        return size(text)

    capped(Checkpoint(1, "machine", facts=Facts(read=tuple(f"file{n}.py" for n in range(2_000)))), 400, counting)
    assert len(asked_for) < 3 * 2_000


def test_the_words_of_the_system_in_between_survive(size: Size) -> None:
    history = parse(
        [
            {"role": "user", "content": "a"},
            {"role": "assistant", "content": "b"},
            {"role": "developer", "content": "no network"},
        ]
    ).history
    assert "[developer] no network" in render(machine_half(history, 3, 4_096, size))


def test_another_story_is_struck() -> None:
    answer = (
        "## Goal\n- Create a blog that will help people to learn about the different types of art.\n"
        "## Next Steps\n- Follow the river Heron.\n"
    )
    refused = accept(answer, "stop", called_tools=False, source=["tell me about rivers", "my project is called Heron"])
    assert refused == Refused("nothing in it stands in its source")
