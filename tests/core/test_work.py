from __future__ import annotations

import json
from functools import reduce
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from localctx.core.work import SCHEMA, Todo, WorkState, as_json, claims, lines, patched, preamble, read_state

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    Size = Callable[[str], int]

HEADING = "Recovered work state (claims to verify before relying on them):"


def made(*patches: Mapping[str, object]) -> WorkState:
    return reduce(patched, patches, WorkState())


def todo(text: str = "x", **said: object) -> dict[str, object]:
    return {"todos": [{"text": text, **said}]}


FULL = made(
    {
        "goal": "port the parser",
        "constraints": ["no new dependency", "keep the API"],
        "decisions": ["one pass"],
        "files_touched": ["a.py", "b.py"],
        "open_questions": ["which encoding?"],
        "todos": [
            "write it",
            {"text": "read it", "status": "done", "verified_by": "pytest -q"},
            {"text": "time it", "status": "done"},
            {"text": "ship it", "status": "in_progress"},
            {"text": "drop it", "status": "cancelled"},
        ],
        "next_step": "run the tests",
    }
)

# --- any patch ------------------------------------------------------------------------------------------------------

_keys = st.sampled_from(["goal", "nextStep", "constraints", "decisions", "filesTouched", "open_questions", "todos"])
_texts = st.one_of(
    st.text(st.characters(codec=None), max_size=20),
    st.sampled_from(["x", "X", " x\n", "[1]", '["a", {"text": "b"}]', "[" * 2_000, "{}", "none"]),
    st.builds(lambda text, times: text * times, st.sampled_from(["long ", "語", '"', "\ud800"]), st.integers(1, 900)),
)
_json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | _texts,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(_texts, inner, max_size=3),
    max_leaves=8,
)
_statuses = st.sampled_from(["pending", "in progress", "In-Progress", "completed", "done", "failing", "", None, "odd"])
_todo = st.fixed_dictionaries(
    {"text": _texts}, optional={"status": _statuses, "verifiedBy": _texts | st.none(), "id": st.integers()}
)
_lists = st.lists(_texts | _todo | _json, max_size=5) | st.lists(_texts, min_size=40, max_size=80, unique=True)
PATCHES = st.lists(st.dictionaries(_keys | _texts, _texts | _lists | _json, max_size=4), max_size=6)
GOOD = st.lists(
    st.fixed_dictionaries(
        {},
        optional={
            "goal": _texts,
            "constraints": st.lists(_texts, max_size=60),
            "openQuestions": _texts | st.none(),
            "todos": st.lists(
                st.fixed_dictionaries(
                    {"text": st.text("abcd ", min_size=1).filter(str.strip)},
                    optional={"status": st.sampled_from(["done", "failing", "cancelled"]), "verified_by": _texts},
                ),
                max_size=60,
            ),
        },
    ),
    min_size=1,
    max_size=4,
)


def fold(patches: list[dict[str, object]]) -> WorkState:
    """The state after those of the patches that are usable."""
    state = WorkState()
    for patch in patches:
        try:
            state = patched(state, patch)
        except ValueError as error:
            assert str(error)  # noqa: PT017  that it may be raised is part of the promise
    return state


def weight(state: WorkState) -> int:
    return len(json.dumps(as_json(state), ensure_ascii=False).encode())


@given(PATCHES | GOOD)
def test_any_patch_is_taken_or_refused_and_the_state_is_bounded_and_read_back(
    patches: list[dict[str, object]],
) -> None:
    state = fold(patches)
    assert state == fold(patches)
    assert weight(state) <= 30_000
    assert read_state(as_json(state)) == state
    assert read_state(json.loads(json.dumps(as_json(state)))) == state
    assert patched(WorkState(), as_json(state)) == state
    assert all(line == " ".join(line.split()) and len(line) < 1_100 for line in lines(state))


@given(PATCHES | GOOD)
def test_nothing_unverified_is_shown_as_done(patches: list[dict[str, object]]) -> None:
    state = fold(patches)
    done = [line for line in lines(state) if line.startswith("done")]
    assert len(done) == sum(each.status == "done" and bool(each.verified_by.strip()) for each in state.todos)
    assert all(line.startswith("done (verified by ") for line in done)


@given(_json | st.dictionaries(_keys | _texts, _lists | _json))
def test_any_value_is_read(value: object) -> None:
    assert weight(read_state(value)) <= 30_000


# --- patches --------------------------------------------------------------------------------------------------------


def test_a_patch_leaves_the_other_fields_alone() -> None:
    state = made({"goal": "g", "decisions": ["d"]}, {"nextStep": "n"})
    assert state == WorkState(goal="g", decisions=("d",), next_step="n")


def test_an_empty_patch_changes_nothing() -> None:
    assert patched(FULL, {}) is FULL


@pytest.mark.parametrize(
    ("given_as", "field"),
    [
        ("filesTouched", "files_touched"),
        ("files_touched", "files_touched"),
        ("openQuestions", "open_questions"),
        ("open_questions", "open_questions"),
    ],
)
def test_both_spellings_are_taken(given_as: str, field: str) -> None:
    assert as_json(made({given_as: ["a"]})) == {field: ["a"]}


def test_a_list_replaces_the_list() -> None:
    assert made({"decisions": ["a", "b"]}, {"decisions": ["c"]}).decisions == ("c",)
    assert made({"decisions": ["a", "b"]}, {"decisions": []}).decisions == ()


@pytest.mark.parametrize("field", as_json(FULL))
def test_null_clears_a_field(field: str) -> None:
    assert as_json(patched(FULL, {field: None})) == {key: said for key, said in as_json(FULL).items() if key != field}


@pytest.mark.parametrize(
    ("said", "taken"),
    [
        pytest.param("a", ("a",), id="a text alone"),
        pytest.param(7, ("7",), id="a number alone"),
        pytest.param(["a", 2, 0.5], ("a", "2", "0.5"), id="numbers"),
        pytest.param('["a", "b"]', ("a", "b"), id="a list as JSON in a text"),
        pytest.param("[x] a", ("[x] a",), id="a text that only looks like a list"),
        pytest.param('{"a": 1}', ('{"a": 1}',), id="JSON that is no list"),
        pytest.param("[" * 100_000, ("[" * 499 + "…",), id="JSON too deep to be read"),
        pytest.param([None, "", " \n", "a", "a"], ("a",), id="nothing, and the same again"),
        pytest.param(["a\n  b\tc\x00\ud800d"], ("a b c d",), id="more than a line"),
    ],
)
def test_a_list_is_read_from_what_models_send(said: object, taken: tuple[str, ...]) -> None:
    assert made({"constraints": said}).constraints == taken


@pytest.mark.parametrize(
    ("patch", "message"),
    [
        (
            {"purpose": "x"},
            "the work state has no field 'purpose'; it has goal, constraints, decisions, files_touched, ",
        ),
        ({"p" * 1_000: "x"}, f"no field '{'p' * 40}';"),
        ({"goal": ["x"]}, "goal must be a text, not list"),
        ({"goal": True}, "goal must be a text, not bool"),
        ({"decisions": [{"text": "x"}]}, "an item of decisions must be a text, not dict"),
        ({"decisions": [["x"]]}, "an item of decisions must be a text, not list"),
        ({"todos": {"x": "done"}}, "a todo has no field 'x'; it has text, status, verified_by"),
        ({"todos": [{"status": "done"}]}, "a todo needs a text; it has text, status, verified_by"),
        ({"todos": [""]}, "a todo needs a text"),
        ({"todos": [["x"]]}, "the text of a todo must be a text, not list"),
        (todo(status="Blocked"), "a todo cannot be 'blocked'; its status is one of pending, in_progress, done, "),
        (todo(status="s" * 400), f"a todo cannot be '{'s' * 40}'; its status"),
        (todo(verified_by=True), "the verified_by of a todo must be a text, not bool"),
    ],
)
def test_what_cannot_be_used_is_refused_in_words_for_the_model(patch: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError) as refused:  # noqa: PT011  compared below
        patched(FULL, {"next_step": "never taken"} | patch)
    assert message in str(refused.value)
    assert len(str(refused.value)) < 200


# --- todos ----------------------------------------------------------------------------------------------------------


def test_todos_are_merged_by_their_text() -> None:
    state = made({"todos": ["a", "B"]}, {"todos": [{"text": " A ", "status": "done"}, "b", "c"]}, {"todos": []})
    assert state.todos == (Todo("a", "done"), Todo("B"), Todo("c"))


@pytest.mark.parametrize("said", ["x", {"text": "x"}, '[{"text": "x"}]', {"text": "x", "status": None}])
def test_a_todo_may_be_a_text_or_an_object_alone(said: object) -> None:
    assert made({"todos": said}).todos == (Todo("x", "pending"),)


@pytest.mark.parametrize(
    ("said", "status"),
    [
        ("In Progress", "in_progress"),
        ("in-progress", "in_progress"),
        ("completed", "done"),
        ("complete", "done"),
        ("failed", "failing"),
        ("canceled", "cancelled"),
        ("", "pending"),
    ],
)
def test_a_status_may_be_spelled_otherwise(said: str, status: str) -> None:
    assert made(todo(status=said)).todos == (Todo("x", status),)


@pytest.mark.parametrize(
    ("then", "after"),
    [
        pytest.param({}, Todo("x", "done", "make"), id="named again"),
        pytest.param({"status": "done"}, Todo("x", "done", "make"), id="the same status"),
        pytest.param({"status": None, "verifiedBy": None}, Todo("x", "done", "make"), id="nothing said"),
        pytest.param({"verifiedBy": "pytest"}, Todo("x", "done", "pytest"), id="another check"),
        pytest.param({"verified_by": ""}, Todo("x", "done"), id="taken back"),
        pytest.param({"status": "failing"}, Todo("x", "failing"), id="another status"),
        pytest.param({"status": "cancelled"}, Todo("x", "cancelled"), id="cancelled, yet there"),
    ],
)
def test_a_check_stands_while_the_status_stands(then: dict[str, Any], after: Todo) -> None:
    assert made(todo(status="done", verified_by="make"), todo(**then)).todos == (after,)


def test_a_todo_that_was_reopened_is_claimed_again_until_it_is_checked_again() -> None:
    state = made(todo(status="done", verified_by="make"), todo(status="pending"), todo(status="done"))
    assert lines(state) == ("claimed done, not verified: x",)


@pytest.mark.parametrize("check", ["", " ", None, "None", "no", "N/A", "not verified"])
def test_a_check_that_says_that_there_was_none_is_none(check: object) -> None:
    assert made(todo(status="done", verified_by=check)).todos == (Todo("x", "done"),)


# --- bounds ---------------------------------------------------------------------------------------------------------


def test_a_long_text_is_clipped() -> None:
    state = made({"goal": "g" * 501, "todos": ["t" * 501]}, todo("t" * 600, status="done", verified_by="v" * 501))
    assert state.goal == "g" * 499 + "…"
    assert state.todos == (Todo("t" * 499 + "…", "done", "v" * 499 + "…"),)
    assert made({"goal": "g" * 500}).goal == "g" * 500


def test_the_newest_fifty_are_kept() -> None:
    assert made({"decisions": [f"d{number}" for number in range(60)]}).decisions == tuple(
        f"d{number}" for number in range(10, 60)
    )


def test_settled_todos_go_before_claims_and_claims_before_open_ones() -> None:
    early = [todo("open"), todo("claim", status="done"), todo("checked", status="done", verified_by="make")]
    early.append(todo("off", status="cancelled"))
    full = made(*early, {"todos": [f"t{number}" for number in range(46)]})
    texts = [each.text for each in full.todos]
    assert texts[:4] == ["open", "claim", "checked", "off"]
    for more, gone in enumerate(["checked", "off", "claim", "open"]):
        full = patched(full, todo(f"more {more}"))
        assert len(full.todos) == 50
        assert gone not in [each.text for each in full.todos]
        texts = [text for text in texts if text != gone] + [f"more {more}"]
        assert [each.text for each in full.todos] == texts


def test_the_largest_state_is_bounded() -> None:
    text = [f"{number:02d}" + "\U0001f600" * 600 for number in range(99)]
    short = [f"{number:02d}" + '"' * 40 for number in range(99)]
    lists = ("constraints", "decisions", "files_touched", "open_questions")
    for items in (text, short):
        todos = [{"text": each, "status": "in_progress", "verified_by": each} for each in items]
        state = made({"goal": text[0], "next_step": text[1], "todos": todos, **dict.fromkeys(lists, items)})
        assert 20_000 < weight(state) <= 30_000
        assert state.decisions[-1][:2] == state.todos[-1].text[:2] == "98"


# --- state.json -----------------------------------------------------------------------------------------------------


def test_a_state_is_written_without_empty_fields() -> None:
    state = made({"goal": "g", "todos": ["a", {"text": "b", "status": "done", "verified_by": "make"}]})
    assert as_json(state) == {
        "goal": "g",
        "todos": [
            {"text": "a", "status": "pending"},
            {"text": "b", "status": "done", "verified_by": "make"},
        ],
    }
    assert as_json(WorkState()) == {}


@pytest.mark.parametrize("value", [None, 1, "x", [], [{"goal": "x"}], {"goal": {}}, {1: 2}])
def test_a_value_that_holds_no_state_is_an_empty_one(value: object) -> None:
    assert read_state(value) == WorkState()


def test_what_cannot_be_read_is_left_out() -> None:
    edited = {
        "updated_at": "2026-09-01T12:00:00Z",
        "goal": ["not", "a text"],
        "nextStep": "n",
        "constraints": ["a", {"b": 1}, ["c"], None, "d"],
        "decisions": {"e": "f"},
        "todos": [{"text": "g", "status": "done"}, {"text": "h", "status": "odd"}, {}, 7],
    }
    assert read_state(edited) == WorkState(constraints=("a", "d"), todos=(Todo("g", "done"), Todo("7")), next_step="n")


# --- lines and the preamble -----------------------------------------------------------------------------------------


def test_a_state_is_shown_a_line_an_item() -> None:
    assert lines(FULL) == (
        "goal: port the parser",
        "constraint: no new dependency",
        "constraint: keep the API",
        "decision: one pass",
        "files touched: a.py",
        "files touched: b.py",
        "open question: which encoding?",
        "pending: write it",
        "done (verified by pytest -q): read it",
        "claimed done, not verified: time it",
        "in progress: ship it",
        "cancelled: drop it",
        "next step: run the tests",
    )
    assert lines(WorkState()) == ()


@pytest.mark.parametrize(
    ("told", "claim"),
    [
        ("Fixed the rounding.", True),
        ("fix the rounding", True),
        ("Rounding is fixed, and much else.", True),
        ("The fixtures are migrated", True),
        ("Ported the tax tables.", False),
        ("Read the code.", False),
        ("", False),
    ],
)
def test_what_tells_of_a_todo_as_done_is_a_claim_until_it_was_verified(told: str, claim: object) -> None:
    todos = (Todo("port the tax tables", "done", "pytest"), Todo("fix the rounding", "done"), Todo("migrate fixtures"))
    assert claims(WorkState(todos=todos), told) is claim


def test_a_todo_of_short_words_is_known_by_all_of_them() -> None:
    state = WorkState(todos=(Todo("add a log"),))
    assert claims(state, "a log was added")
    assert not claims(state, "a log was read")
    assert not claims(WorkState(todos=(Todo("?"),)), "anything")


def test_a_preamble_that_fits_is_whole(size: Size) -> None:
    whole = "\n".join([HEADING, *(f"- {line}" for line in lines(FULL))])
    assert preamble(FULL, 2_000, size) == whole
    assert preamble(FULL, size(whole), size) == whole
    assert "more, not shown: recall" in preamble(FULL, size(whole) - 1, size)


def test_a_preamble_sheds_what_matters_least_and_counts_it() -> None:
    shed = ["a.py", "b.py", "read it", "drop it", "one pass", "encoding", "time it", "write it", "ship it", "run the"]
    shed += ["no new", "keep the"]
    seen = list[int]()
    for most in range(len(preamble(FULL, 10_000, len)), 0, -1):
        text = preamble(FULL, most, len)
        gone = [word for word in shed if word not in text]
        if text:
            assert gone == shed[: len(gone)]
            assert text.endswith(f"- +{len(gone)} more, not shown: recall") or not gone
            seen.append(len(gone))
    assert seen == sorted(seen)
    assert seen[-1] >= 10


def test_a_long_goal_is_shown_by_head_and_tail_where_room_is_short(size: Size) -> None:
    state = made({"goal": "Begin " + "x" * 480 + " end", "constraints": ["short"]})
    text = preamble(state, 60, size)
    assert "- goal: Begin" in text
    assert text.endswith(" end\n- constraint: short")
    assert " ... " in text


def test_no_state_or_no_room_gives_no_preamble(size: Size) -> None:
    assert preamble(WorkState(), 2_000, size) == ""
    assert preamble(FULL, 10, size) == ""
    assert preamble(FULL, 0, size) == ""


@given(PATCHES | GOOD, st.integers(-1, 3_000), st.sampled_from([1, 3, 4]))
def test_a_preamble_is_never_longer_than_its_cap(patches: list[dict[str, object]], most: int, characters: int) -> None:
    def size(text: str) -> int:
        return -(-len(text) // characters)

    state = fold(patches)
    text = preamble(state, most, size)
    assert size(text) <= max(most, 0)
    assert bool(text) <= bool(lines(state))
    if most >= 200:
        assert bool(text) == bool(lines(state))
        assert not state.goal or "\n- goal: " in text


# --- the tool -------------------------------------------------------------------------------------------------------


def test_the_schema_names_the_fields_and_says_how_lists_and_todos_change() -> None:
    function: Any = SCHEMA["function"]
    fields = function["parameters"]["properties"]
    assert SCHEMA["type"] == "function"
    assert function["name"] == "update_work_state"
    assert "A list replaces the old list; todos are merged by text." in function["description"]
    assert list(fields) == list(WorkState.__dataclass_fields__)
    assert list(fields["todos"]["items"]["properties"]) == list(Todo.__dataclass_fields__)
    for status in fields["todos"]["items"]["properties"]["status"]["enum"]:
        assert made(todo(status=status)).todos == (Todo("x", status),)


def test_the_schema_is_short() -> None:
    assert len(json.dumps(SCHEMA)) < 950
