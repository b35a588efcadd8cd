from __future__ import annotations

import json

import pytest
from hypothesis import given

from localctx.core.messages import Item, Message, Part, Said, ToolCall, ToolCycle, ToolResult
from localctx.core.transcript import flatten, parse, read, write
from tests.core.strategies import sessions, wires

CALL = {"id": "a", "type": "function", "function": {"name": "read", "arguments": "{}"}}
IMAGE = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}
SAID = {"role": "assistant", "content": "hm"}
ASKED = {"role": "user", "content": "?"}
CALLED = {"role": "assistant", "content": None, "tool_calls": [CALL]}
ANSWER = {"role": "tool", "tool_call_id": "a", "content": "done"}


@given(wires())
def test_any_list_comes_back_as_it_went_in(wire: list[object]) -> None:
    assert flatten(parse(wire).history) == wire


@given(wires())
def test_a_message_is_complained_about_once_at_most(wire: list[object]) -> None:
    indices = [complaint.index for complaint in parse(wire).complaints]
    assert indices == sorted(set(indices))
    assert set(indices) <= set(range(len(wire)))


@given(sessions())
def test_nothing_is_wrong_with_a_clean_conversation(wire: list[object]) -> None:
    parsed = parse(wire)
    assert parsed.complaints == ()
    assert flatten(parsed.history) == wire


@pytest.mark.parametrize(
    ("wire", "complaints"),
    [
        pytest.param([ASKED, CALLED, ANSWER], {}, id="a clean list"),
        pytest.param([7, "text", None, [], {}, {"role": 1}], dict.fromkeys(range(6), "not a chat message"), id="junk"),
        pytest.param([{"role": "user", "content": 7}], {0: "not a chat message"}, id="content of no known kind"),
        pytest.param([{"role": "critic", "content": "x"}], {0: "unknown role 'critic'"}, id="role"),
        pytest.param([ASKED, ANSWER], {1: "result of call 'a', which is not open here"}, id="orphan"),
        pytest.param([ASKED, CALLED, ANSWER, ANSWER], {3: "result of call 'a', which is not open here"}, id="twice"),
        pytest.param([{"role": "tool", "content": "x"}], {0: "result without a call id"}, id="result of nothing"),
        pytest.param([ASKED, CALLED, ASKED], {2: "the calls before it have no result: a"}, id="abandoned call"),
        pytest.param(
            [ASKED, CALLED | {"tool_calls": [CALL, CALL]}],
            {1: "calls that no server takes: each needs its own id, the type function, a name, and arguments as text"},
            id="doubled id",
        ),
        pytest.param(
            [ASKED, CALLED | {"tool_calls": [{"function": {"name": "read", "arguments": {}}}]}],
            {1: "calls that no server takes: each needs its own id, the type function, a name, and arguments as text"},
            id="calls of another dialect",
        ),
    ],
)
def test_complaints(wire: list[object], complaints: dict[int, str]) -> None:
    assert {each.index: each.text for each in parse(wire).complaints} == complaints


@pytest.mark.parametrize(
    ("wire", "item"),
    [
        pytest.param(ASKED, Message("user", "?"), id="text"),
        pytest.param(ASKED | {"name": "ann"}, Message("user", "?", '{"name": "ann"}'), id="a field without a place"),
        pytest.param({"role": "user"}, Message("user", None, '{"content?": false}'), id="no content at all"),
        pytest.param(
            {"role": "user", "content": [{"type": "text", "text": "see"}, IMAGE]},
            Message("user", (Part("text", "see"), Part("image_url", raw=json.dumps(IMAGE)))),
            id="parts",
        ),
        pytest.param(
            {"role": "user", "content": [{"type": "text", "text": "see", "cache": 1}]},
            Message("user", (Part("text", "see", '{"type": "text", "text": "see", "cache": 1}'),)),
            id="a part with more than its text",
        ),
        pytest.param(
            {"role": "assistant", "content": "hm", "reasoning_content": "so"}, Said("hm", "so"), id="reasoning"
        ),
        pytest.param(SAID | {"tool_calls": []}, Said("hm", extra='{"tool_calls": []}'), id="no calls"),
        pytest.param(
            CALLED | {"reasoning_content": "so", "tool_calls": [CALL | {"index": 0}]},
            ToolCycle(None, (ToolCall("a", "read", "{}", '{"index": 0}'),), thinking="so"),
            id="calls",
        ),
        pytest.param(ANSWER | {"name": "read"}, ToolResult("a", "done", '{"name": "read"}'), id="result"),
    ],
)
def test_a_message_is_read_as_what_it_is_and_written_back(wire: dict[str, object], item: Item) -> None:
    assert read(wire) == item
    assert write(item) == wire


def test_an_interrupted_text_stays_marked() -> None:
    said = read({"role": "assistant", "content": "I was about"}, seq=4, complete=False)
    assert said == Said("I was about", complete=False, seq=4)
