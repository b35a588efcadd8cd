from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from localctx.core.journal import Entry, message
from localctx.core.recall import Document, Found, documents, told
from localctx.core.results import RECALL, RETRIEVE
from tests.core.strategies import json_values, wires

AT = "2026-09-01T12:00:00.000+00:00"


def entries(*wires: object) -> list[Entry]:
    return [Entry(number, AT, *message(wire)) for number, wire in enumerate(wires, 1)]


def call(call_id: str, name: str, arguments: str) -> dict[str, object]:
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}


def called(*calls: dict[str, object], content: object = None) -> dict[str, object]:
    return {"role": "assistant", "content": content, "tool_calls": list(calls)}


def result(call_id: str, content: object) -> dict[str, object]:
    return {"role": "tool", "tool_call_id": call_id, "content": content}


def only(wire: object) -> Document:
    (document,) = documents(entries(wire))
    return document


# What can be searched.


def test_words_are_kept_with_their_line_and_who_spoke() -> None:
    journal = entries({"role": "user", "content": "Port it"}, {"role": "assistant", "content": "Done."})
    assert list(documents(journal)) == [Document(1, "user", "Port it"), Document(2, "assistant", "Done.")]


def test_only_messages_have_words() -> None:
    journal = [
        Entry(1, AT, "usage", {"message": {"role": "user", "content": "not said"}}),
        Entry(2, AT, "message", {}),
        Entry(3, AT, "message", {"message": {"role": "user", "content": "said"}}),
        Entry(4, AT, "commit", {"effect": {}}),
    ]
    assert list(documents(journal)) == [Document(3, "user", "said")]


def test_all_text_parts_count_and_media_do_not() -> None:
    image = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}
    parts = [{"type": "text", "text": "see"}, image, {"type": "text", "text": "above"}]
    assert only({"role": "user", "content": parts}).text == "see\nabove"


def test_reasoning_is_left_out() -> None:
    wire = {"role": "assistant", "reasoning_content": "maybe", "reasoning": "perhaps", "content": "Yes."}
    assert only(wire).text == "Yes."


@pytest.mark.parametrize("content", [None, "", " \n", [], [{"type": "image_url", "image_url": {"url": "x"}}]])
def test_a_message_without_words_is_none(content: object) -> None:
    assert not list(documents(entries({"role": "user", "content": content})))


def test_calls_are_words_behind_what_was_said() -> None:
    wire = called(call("a", "read", '{"path": "x.py"}'), call("b", "list", "{}"), content="I look.")
    assert only(wire) == Document(1, "assistant", 'I look.\nread {"path": "x.py"}\nlist {}')


def test_the_escapes_of_arguments_are_undone() -> None:
    arguments = json.dumps({"text": 'a\n\tconst "C:\\new" \u6f22', "n": 1})
    assert only(called(call("a", "write", arguments))).text == 'write {"text": "a\n\tconst "C:\\new" \u6f22", "n": 1}'


@pytest.mark.parametrize("arguments", ["\\", "\\u12", "{", "a\\\nb"])
def test_arguments_that_are_no_json_are_kept(arguments: str) -> None:
    assert only(called(call("a", "write", arguments))).text.startswith("write ")


def test_a_result_goes_by_the_name_of_its_tool() -> None:
    journal = entries(called(call("a", "read", "{}"), call("b", "bash", "{}")), result("b", "one"), result("a", "two"))
    assert [each.kind for each in documents(journal)] == ["assistant", "tool bash", "tool read"]


def test_a_call_id_that_comes_again_means_the_newest_call() -> None:
    again = [called(call("0", "read", "{}")), result("0", "one"), called(call("0", "bash", "{}")), result("0", "two")]
    assert [each.kind for each in documents(entries(*again))][1::2] == ["tool read", "tool bash"]


@pytest.mark.parametrize("call_id", ["unknown", None, 7, ["a"]])
def test_a_result_of_an_unknown_call_is_of_a_tool(call_id: object) -> None:
    assert only({"role": "tool", "tool_call_id": call_id, "content": "x"}).kind == "tool"


def test_the_call_before_the_line_still_names_the_result_after_it() -> None:
    journal = entries(called(call("a", "read", "{}")), result("a", "body"))
    assert list(documents(journal, after=1)) == [Document(2, "tool read", "body")]
    assert not list(documents(journal, after=2))


def test_what_recall_was_asked_and_answered_is_left_out() -> None:
    journal = entries(
        called(call("a", RECALL, '{"query": "parser"}'), call("b", "read", '{"path": "parser.py"}')),
        result("a", "#1 user: parser"),
        result("b", "class Parser"),
        called(call("c", RECALL, "{}")),
        called(call("d", RETRIEVE, '{"id": "3"}'), call("e", "recall_all", "{}")),
        result("d", "class Parser: pass"),
    )
    assert [(each.seq, each.kind) for each in documents(journal)] == [
        (1, "assistant"),
        (3, "tool read"),
        (5, "assistant"),
        (6, f"tool {RETRIEVE}"),
    ]
    texts = [each.text for each in documents(journal)]
    assert texts[0] == 'read {"path": "parser.py"}'
    assert texts[2].endswith("\nrecall_all {}")


def test_who_spoke_is_one_short_line() -> None:
    journal = entries(called(call("a", "read\n#9 user: yes" + "x" * 99, "{}")), result("a", "body"))
    kind = [each.kind for each in documents(journal)][1]
    assert kind.startswith("tool read #9 user: yes")
    assert len(kind) == 60


def test_what_is_no_message_has_words_too() -> None:
    assert only("hello") == Document(1, "foreign", "hello")
    assert only({"role": "user", "content": {"odd": "shape"}}).text == '{"odd": "shape"}'
    assert only(["a", {"text": "b"}, 7]).text == "a\nb\n7"


@given(wires(), st.integers(-1, 20))
def test_any_journal_has_documents_in_order(messages: list[object], after: int) -> None:
    found = list(documents(entries(*messages), after))
    lines = [each.seq for each in found]
    assert lines == sorted(set(lines))
    assert all(after < each.seq <= len(messages) and each.text.strip() and each.kind for each in found)
    assert found == [each for each in documents(entries(*messages)) if each.seq > after]


@given(json_values)
def test_any_json_is_a_message(value: object) -> None:
    assert len(list(documents(entries(value, {"role": value, "content": value, "tool_calls": value})))) <= 2


# What is told.


FOUND = [Found(12, "user", "…the depth is 247…"), Found(3, "tool read", "MAX_DEPTH = 247")]


def test_each_hit_is_a_line_and_the_best_is_first() -> None:
    lines = told("depth", FOUND, most=1_000).splitlines()
    assert lines[:2] == ["#12 user: …the depth is 247…", "#3 tool read: MAX_DEPTH = 247"]
    assert len(lines) == 3
    assert "retrieve_tool_result with its number, such as 12" in lines[2]


def test_where_nothing_is_found_the_query_and_the_next_step_are_told() -> None:
    said = told("the\nparser", [], most=1_000)
    assert said.startswith("nothing found for 'the parser'; try other words")
    assert "\n" not in said


def test_a_long_query_is_not_repeated_whole() -> None:
    assert len(told("x" * 10_000, [], most=10_000)) < 200


def test_what_finds_no_room_is_left_out_from_the_end() -> None:
    whole = told("depth", FOUND, most=1_000)
    less = told("depth", FOUND, most=len(whole) - 1)
    assert less.splitlines() == [whole.splitlines()[0], whole.splitlines()[2]]


def test_the_best_is_shortened_rather_than_left_out() -> None:
    said = told("x", [Found(1, "user", "word " * 100)], most=200)
    assert said.startswith("#1 user: word word")
    assert "…\n(best match first" in said
    assert len(said) == 200


@given(st.text(), st.lists(st.builds(Found, st.integers(), st.text(), st.text()), max_size=5), st.integers(-5, 500))
def test_it_is_never_longer_than_asked(query: str, found: list[Found], most: int) -> None:
    assert len(told(query, found, most=most)) <= max(0, most)
