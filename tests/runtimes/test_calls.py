"""Calls are put together whatever pieces they come in."""

from __future__ import annotations

import json
import re
from time import monotonic
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from localctx.core.messages import ToolCall
from localctx.errors import ServerFailed
from localctx.runtimes.calls import Calls

WHERE = "http://127.0.0.1:8080"
A, B = '{"path":"a"}', '{"path":"b"}'


def piece(name: object = None, arguments: object = None, **more: object) -> dict[str, object]:
    """One entry of `tool_calls`; what is None is left out."""
    function = {key: value for key, value in (("name", name), ("arguments", arguments)) if value is not None}
    return {**more, "function": function}


def taken(*chunks: list[Any]) -> tuple[ToolCall, ...]:
    calls = Calls(WHERE)
    for chunk in chunks:
        calls.take(chunk)
    assert calls.called == any(chunks)
    return calls.made()


def named(*chunks: list[Any]) -> list[tuple[str, str]]:
    return [(call.name, call.arguments) for call in taken(*chunks)]


PARTS = [
    piece("read", "", index=0, id="x", type="function"),
    piece(None, '{"path"', index=0),
    piece(None, ':"a"}', index=0),
]


@pytest.mark.parametrize(
    "pieces",
    [
        PARTS,
        [piece("read", A, index=0, id="x")],
        [piece("read", {"path": "a"}, index=0, id="x")],
        [piece("read", A, id="x")],
        [piece("read", A, index=None, id="x")],
        [piece("re", index=0, id="x"), piece("ad", index=0), piece(None, A, index=0)],
        [piece("re", index=0, id="x"), piece("read", "", index=0), piece("read", A, index=0)],
        [piece("read", "{", index=0, id="x"), piece("read", A[1:], index=0, id="x")],
        [piece("read", "{", index=0, id="x"), piece("", A[1:], index=0, id="")],
        [piece("read", "{", index=0, id="x"), piece(None, A[1:], index=0, id="another")],
        [piece("read", A, index=0, id="x"), piece("read", "", index=0, id="x"), piece("read", None, index=0)],
        [piece("read", "{", id="x"), piece(None, A[1:])],
        [piece(None, A, index=0, id="x"), piece("read", index=0)],
        [{"index": 0, "id": "x"}, piece("read", index=0), piece(None, A, index=0)],
        [piece("read", A[:4], index=0, id="x"), {"index": 0}, {}, piece(None, A[4:], index=0)],
    ],
)
def test_one_call_is_one_however_it_comes(pieces: list[dict[str, object]]) -> None:
    assert taken(*([each] for each in pieces)) == (ToolCall("x", "read", A),)


def test_pieces_of_one_index_may_come_in_one_chunk() -> None:
    assert taken(PARTS) == (ToolCall("x", "read", A),)


@pytest.mark.parametrize(
    "chunks",
    [
        [[piece("read", A, index=0, id="x")], [piece("read", B, index=1, id="y")]],
        [[piece("read", A, index=0, id="x"), piece("read", B, index=1, id="y")]],
        [
            [piece("read", "{", index=0, id="x")],
            [piece("read", "{", index=1, id="y")],
            [piece(None, A[1:], index=0), piece(None, B[1:], index=1)],
        ],
        [[piece("read", A, index=0, id="x")], [piece("read", B, index=0, id="y")]],
        [[piece("read", A, index=0)], [piece("read", B, index=0)]],
        [[piece("read", A)], [piece("read", B)]],
        [[piece("read", A), piece("read", B)]],
        [[piece("read", A, id="")], [piece("read", B, id="")]],
        [[piece("read", A, id="x")], [piece("read", B, id="x")]],
        [[piece("read", A, index=0, id="0")], [piece("read", B, index=0, id="0")]],
        [[piece("read", {"path": "a"})], [piece("read", {"path": "b"})]],
        [[piece("read", A[:5])], [piece(None, A[5:])], [piece("read", "")], [piece("read", B)]],
        [[piece("read", A, index=0)], [piece("re", index=1)], [piece("ad", index=1)], [piece(None, B, index=1)]],
    ],
)
def test_two_calls_are_two_however_they_come(chunks: list[list[dict[str, object]]]) -> None:
    first, second = taken(*chunks)
    assert [(call.name, call.arguments) for call in (first, second)] == [("read", A), ("read", B)]
    assert first.id
    assert second.id not in {"", first.id}


def test_calls_of_several_tools_stay_apart_without_index_and_id() -> None:
    assert named([piece("one", A)], [piece("two", A)]) == [("one", A), ("two", A)]
    assert named([piece("one", "{")], [piece("two", B)]) == [("one", "{"), ("two", B)], "the first was broken off"
    assert named([piece("one"), piece("two")]) == [("one", "{}"), ("two", "{}")]


def test_a_brace_inside_a_text_ends_nothing() -> None:
    text = json.dumps({"text": 'a "}" \\ } {', "more": {"deep": "\\"}})
    for size in (1, 2, 3, 7, len(text)):
        parts = [text[start : start + size] for start in range(0, len(text), size)]
        assert named(*([piece("write", part)] for part in parts), [piece("write", A)]) == [
            ("write", text),
            ("write", A),
        ]


@pytest.mark.parametrize("arguments", [None, "", " \n", "{}"])
def test_a_call_without_arguments_has_an_empty_object(arguments: object) -> None:
    assert named([piece("look", arguments, index=0)]) == [("look", "{}")]


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"a": ["é漢", 1.5, None], "b": {}}, '{"a":["é漢",1.5,null],"b":{}}'),
        ([1], "[1]"),
        (0, "0"),
        (False, "false"),
        ('{"cut', '{"cut'),
        ("no JSON", "no JSON"),
    ],
)
def test_arguments_are_text_as_the_model_wrote_it(arguments: object, text: str) -> None:
    assert named([piece("look", arguments)]) == [("look", text)]


def test_an_id_that_is_made_up_repeats_neither_here_nor_in_another_reply() -> None:
    replies = [taken([piece("look", A, id=own) for own in ("x", "x", "", None, 7, "y" * 257)]) for _ in range(20)]
    ids = [call.id for calls in replies for call in calls if call.id != "x"]
    assert len(ids) == len(set(ids)) == 20 * 5
    assert all(re.fullmatch(r"call_[0-9a-f]{16}", each) for each in ids)


@pytest.mark.parametrize(
    "entries",
    [
        [None],
        [5, "x", [], True],
        [{}],
        [{"function": None}],
        [{"function": {"name": 7, "arguments": A}}],
        [{"function": {"name": " ", "arguments": A}}],
    ],
)
def test_what_has_no_name_is_no_call_but_is_told_of(entries: list[object]) -> None:
    for take in (Calls.take, Calls.take_whole):
        calls = Calls(WHERE)
        take(calls, entries)
        assert calls.called
        assert calls.made() == ()


def test_no_entries_are_no_calls() -> None:
    calls = Calls(WHERE)
    calls.take(None)
    calls.take_whole([])
    assert (calls.called, calls.made()) == (False, ())


def test_whole_calls_are_never_joined() -> None:
    calls = Calls(WHERE)
    calls.take_whole([piece("look"), piece("look", {}, id="x")])
    calls.take_whole([piece("look", {"at": "it"}, id="x")])
    assert [(call.name, call.arguments) for call in calls.made()] == [
        ("look", "{}"),
        ("look", "{}"),
        ("look", '{"at":"it"}'),
    ]
    assert len({call.id for call in calls.made()}) == 3


# Bounds.


def test_a_reply_has_at_most_128_calls() -> None:
    whole = [piece("look", A, index=index, id=f"{index}") for index in range(129)]
    assert len(taken(whole[:128])) == 128
    for take in (Calls.take, Calls.take_whole):
        with pytest.raises(ServerFailed, match=f"^{WHERE} sent more than 128 calls in one reply"):
            take(Calls(WHERE), whole)


@pytest.mark.parametrize("letter", ["x", "é", "漢"])
def test_a_reply_has_at_most_a_mebibyte_of_arguments(letter: str) -> None:
    fits = 2**20 // len(letter.encode())
    calls = Calls(WHERE)
    for index in range(4):
        calls.take([piece("look", letter * (fits // 4), index=index)])
    assert len(calls.made()) == 4
    with pytest.raises(ServerFailed, match=r"more than 1,048,576 bytes of arguments in one reply"):
        calls.take([piece(None, letter * 4, index=0)])


def test_a_name_has_at_most_1024_characters() -> None:
    assert named([piece("x" * 1024, A)]) == [("x" * 1024, A)]
    with pytest.raises(ServerFailed, match="a call whose name has more than 1,024 characters"):
        taken([piece("x" * 512, index=0)], [piece("y" * 513, index=0)])


def test_arguments_may_not_be_nested_without_end() -> None:
    deep: object = 1
    for _ in range(5000):
        deep = [deep]
    with pytest.raises(ServerFailed, match="nested too deeply"):
        taken([piece("look", deep)])


@pytest.mark.parametrize("text", ["{", '"', "\\"])
def test_a_piece_costs_what_is_in_it(text: str) -> None:
    """However long the call is already, and though each piece says the name again, as if it were another call."""
    calls, began = Calls(WHERE), monotonic()
    for _ in range(200_000):
        calls.take([piece("look", text, index=0, id="x")])
    calls.made()
    assert monotonic() - began < 10


ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=5,
)
LIKELY = st.fixed_dictionaries(
    {},
    optional={
        "index": st.integers(0, 2) | ANYTHING,
        "id": st.sampled_from(["", "x", "y"]) | ANYTHING,
        "function": st.fixed_dictionaries(
            {},
            optional={
                "name": st.sampled_from(["", "a", "ab", "b"]) | ANYTHING,
                "arguments": st.sampled_from(["", "{", "}", '"', "{}", A]) | ANYTHING,
            },
        )
        | ANYTHING,
    },
)


@given(st.lists(st.lists(LIKELY | ANYTHING, max_size=4), max_size=8))
def test_whatever_comes_the_calls_that_are_made_can_be_sent_back(chunks: list[list[object]]) -> None:
    made = taken(*chunks)
    ids = [call.id for call in made]
    assert all(ids)
    assert len(ids) == len(set(ids))
    for call in made:
        assert call.name.strip()
        assert isinstance(call.arguments, str)
        assert call.arguments.strip()
    assert len(made) <= sum(map(len, chunks))


CALL = st.tuples(
    st.sampled_from(["read", "write", "list_all"]), st.dictionaries(st.text(max_size=5), st.text(), max_size=3)
)


@given(st.lists(CALL, min_size=1, max_size=4), st.integers(1, 9), st.data())
def test_a_stream_in_the_common_form_gives_back_what_was_called(
    wanted: list[tuple[str, dict[str, str]]], size: int, data: st.DataObject
) -> None:
    """Each call's pieces in order; those of several calls in any order, as servers that call in parallel send them."""
    queues = []
    for index, (name, arguments) in enumerate(wanted):
        text = json.dumps(arguments)
        parts = [text[start : start + size] for start in range(0, len(text), size)]
        queues.append(
            [piece(name, "", index=index, id=f"id-{index}"), *(piece(None, part, index=index) for part in parts)]
        )
    calls = Calls(WHERE)
    calls.take([queue.pop(0) for queue in queues])
    while queues := [queue for queue in queues if queue]:
        calls.take([data.draw(st.sampled_from(queues)).pop(0)])
    assert calls.made() == tuple(
        ToolCall(f"id-{index}", name, json.dumps(arguments)) for index, (name, arguments) in enumerate(wanted)
    )
