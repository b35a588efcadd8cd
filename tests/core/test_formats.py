from __future__ import annotations

import copy
import json
from functools import reduce
from itertools import count
from typing import TYPE_CHECKING, Any, TypeAlias, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from localctx.core import journal
from localctx.core.effects import Cleared, Compacted, Stub, Withdrawn
from localctx.core.formats import UNRECORDED, Conversation, Format, Why, convert, recognise
from localctx.core.formats.conversation import DEEPEST
from localctx.core.messages import Checkpoint, Words
from localctx.core.outgoing import defects
from localctx.core.transcript import flatten, parse
from tests.core.strategies import json_values, lives, play, wires

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from tests.core.strategies import Move

Wire: TypeAlias = dict[str, object]
Path: TypeAlias = "tuple[str | int, ...]"

PICTURE = "data:image/png;base64,AAAA"
PART = {"type": "image_url", "image_url": {"url": PICTURE}}
IMAGE = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AAAA"}}
SCHEMA = {"type": "object", "properties": {"path": {"type": "string"}}}
TOOL = {"type": "function", "function": {"name": "read", "description": "Reads.", "parameters": SCHEMA}}


def stood_for(conversation: Conversation) -> int:
    """How many messages a compaction stands for."""
    return sum(each.count for each in conversation.left_out if (each.what, each.why) == ("messages", Why.REPLACED))


def only(value: object, form: Format) -> Conversation:
    """The one conversation of a value, which must be recognised as what it is."""
    assert recognise(value) is form
    (conversation,) = convert(value, form)
    assert conversation.format is form
    return conversation


def lost(conversation: Conversation) -> dict[tuple[str, Why], int]:
    return {(each.what, each.why): each.count for each in conversation.left_out}


def call(call_id: str, name: str, arguments: object) -> Wire:
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": json.dumps(arguments)}}


def user(text: str) -> Wire:
    return {"role": "user", "content": text}


def said(text: str | None, **more: object) -> Wire:
    return {"role": "assistant", "content": text, **more}


def answer(call_id: str, content: object) -> Wire:
    return {"role": "tool", "tool_call_id": call_id, "content": content}


# --- lists of messages ----------------------------------------------------------------------------------------------

CHAT: list[Wire] = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": [{"type": "text", "text": "what is it?"}, PART]},
    {
        "role": "assistant",
        "content": None,
        "reasoning_content": "look",
        "tool_calls": [call("a", "read", {"path": "x"})],
    },
    {"role": "tool", "tool_call_id": "a", "content": "a cat", "name": "read"},
    {"role": "assistant", "content": "A cat."},
]


@pytest.mark.parametrize(
    "around",
    [
        pytest.param(lambda messages: messages, id="a list, or a message a line"),
        pytest.param(lambda messages: {"model": "m", "messages": messages, "stream": True}, id="a request"),
        pytest.param(lambda messages: [{"messages": messages}], id="a line of a training file"),
        pytest.param(lambda messages: {"task_id": 3, "reward": 1.0, "traj": messages}, id="a trajectory"),
        pytest.param(lambda messages: {"conversations": messages}, id="under another name"),
    ],
)
def test_messages_of_the_wire_come_as_they_are(around: Callable[[list[Wire]], object]) -> None:
    conversation = only(around(CHAT), Format.OPENAI)
    assert list(conversation.messages) == CHAT
    assert (conversation.tools, conversation.left_out) == ((), ())


@given(wires())
def test_every_message_of_a_wire_list_is_kept_or_counted(messages: list[object]) -> None:
    if recognise(messages) is not Format.OPENAI:
        return
    conversation = only(messages, Format.OPENAI)
    damaged = sum(each.count for each in conversation.left_out if each.what == "entries")
    assert len(conversation.messages) + damaged == len(messages)
    kept = [each for each in messages if isinstance(each, dict) and isinstance(each.get("content"), str)]
    assert {each["content"] for each in kept if isinstance(each.get("role"), str)} <= {
        each["content"] for each in conversation.messages if isinstance(each.get("content"), str)
    }


def test_each_line_of_a_training_file_is_a_conversation() -> None:
    value = [{"messages": CHAT[:2]}, {"note": "not one"}, {"messages": CHAT}]
    conversations = convert(value, Format.OPENAI)
    assert [list(each.messages) for each in conversations] == [CHAT[:2], CHAT]
    assert lost(conversations[0]) == {("entries", Why.DAMAGED): 1}


def test_the_tools_of_a_request_are_there() -> None:
    value = {"messages": CHAT, "tools": [TOOL, {"type": "retrieval"}, 7]}
    conversation = only(value, Format.OPENAI)
    assert conversation.tools == (TOOL,)
    assert lost(conversation) == {("tools", Why.UNKNOWN): 1, ("tools", Why.DAMAGED): 1}
    assert only({"messages": CHAT, "functions": [TOOL["function"]]}, Format.OPENAI).tools == (TOOL,)


def test_fields_that_no_server_reads_are_counted_not_kept() -> None:
    noted = [{**message, "timestamp": 7, "id": "m"} for message in CHAT]
    conversation = only([*noted, user("on") | {"\x1b[2J": 1}], Format.OPENAI)
    assert list(conversation.messages) == [*CHAT, user("on")]
    assert lost(conversation) == {
        ("timestamp fields", Why.UNSENT): 5,
        ("id fields", Why.UNSENT): 5,
        ("other fields", Why.UNSENT): 1,
    }


def test_calls_of_older_dialects_are_paired_with_their_results() -> None:
    value = [
        user("weather?"),
        {"role": "assistant", "function_call": {"name": "weather", "arguments": '{"in": "Rom"}'}},
        {"role": "function", "name": "weather", "content": "sun"},
        {"role": "assistant", "thinking": "again", "tool_calls": [{"function": {"name": "weather", "arguments": {}}}]},
        {"role": "tool", "content": "rain"},
        {"role": "tool", "content": "asked by nobody"},
    ]
    conversation = only(value, Format.OPENAI)
    assert list(conversation.messages) == [
        user("weather?"),
        said(None, tool_calls=[call("call_1", "weather", {"in": "Rom"})]),
        answer("call_1", "sun") | {"name": "weather"},
        {"role": "assistant", "reasoning_content": "again", "tool_calls": [call("call_2", "weather", {})]},
        answer("call_2", "rain"),
        {"role": "tool", "content": "asked by nobody"},
    ]
    assert conversation.left_out == ()


def test_calls_of_no_known_kind_stay_as_they_are() -> None:
    odd = [user("?"), said("!", tool_calls=[7, {"function": "read"}, {"name": "read"}])]
    assert list(only(odd, Format.OPENAI).messages) == odd


def test_a_trajectory_of_swe_agent_is_its_history() -> None:
    calls = [call("a", "bash", {"command": "ls"})]
    value = {
        "environment": "e",
        "trajectory": [{"action": "ls", "observation": "x"}],
        "history": [
            {"role": "system", "content": "s", "agent": "main"},
            {"role": "assistant", "content": "t", "thought": "t", "action": "ls", "tool_calls": calls},
            {"role": "tool", "content": "x", "tool_call_ids": ["a"]},
        ],
    }
    conversation = only(value, Format.SWE_AGENT)
    assert list(conversation.messages) == [
        {"role": "system", "content": "s"},
        said("t", tool_calls=calls),
        answer("a", "x"),
    ]
    assert parse(conversation.messages).complaints == ()


# --- Anthropic's dialect --------------------------------------------------------------------------------------------

REQUEST = {
    "model": "claude",
    "system": [
        {"type": "text", "text": "Be", "cache_control": {"type": "ephemeral"}},
        {"type": "text", "text": "brief."},
    ],
    "tools": [
        {"name": "read", "description": "Reads.", "input_schema": SCHEMA},
        {"type": "web_search_20250305", "name": "web_search"},
    ],
    "messages": [
        {"role": "user", "content": [{"type": "text", "text": "look"}, IMAGE]},
        {
            "role": "assistant",
            "content": [
                {"type": "thinking", "thinking": "which?", "signature": "s"},
                {"type": "redacted_thinking", "data": "zzz"},
                {"type": "text", "text": "I look."},
                {"type": "tool_use", "id": "a", "name": "read", "input": {"path": "ä"}},
                {"type": "tool_use", "id": "b", "name": "read", "input": {}},
            ],
        },
        {
            "role": "user",
            "content": [
                {"type": "text", "text": "and hurry"},
                {"type": "tool_result", "tool_use_id": "a", "content": "one", "is_error": True},
                {"type": "tool_result", "tool_use_id": "b", "content": [{"type": "text", "text": "two"}, IMAGE]},
            ],
        },
        {"role": "assistant", "content": "Done."},
    ],
}


def test_a_request_of_anthropic_in_the_dialect_of_the_wire() -> None:
    conversation = only(REQUEST, Format.ANTHROPIC)
    assert list(conversation.messages) == [
        {"role": "system", "content": "Be\n\nbrief."},
        {"role": "user", "content": [{"type": "text", "text": "look"}, PART]},
        said(
            "I look.",
            reasoning_content="which?",
            tool_calls=[
                {"id": "a", "type": "function", "function": {"name": "read", "arguments": '{"path": "ä"}'}},
                call("b", "read", {}),
            ],
        ),
        answer("a", "one"),
        answer("b", [{"type": "text", "text": "two"}, PART]),
        user("and hurry"),
        said("Done."),
    ]
    assert conversation.tools == (TOOL,)
    assert lost(conversation) == {("thoughts", Why.SEALED): 1, ("tools", Why.UNKNOWN): 1}
    assert parse(conversation.messages).complaints == ()


@pytest.mark.parametrize(
    ("block", "content"),
    [
        pytest.param({"type": "image", "source": {"type": "url", "url": PICTURE}}, [PART], id="an address"),
        pytest.param(
            {"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": "page"}},
            "page",
            id="text",
        ),
        pytest.param(
            {"type": "document", "source": {"type": "base64", "media_type": "application/pdf", "data": "AA"}},
            [{"type": "file", "file": {"file_data": "data:application/pdf;base64,AA"}}],
            id="a PDF",
        ),
        pytest.param({"type": "file", "path": "a.py", "content": "x = 1"}, "a.py\nx = 1", id="a file of Cline"),
        pytest.param(PART, [PART], id="a part of the wire"),
    ],
)
def test_what_a_user_may_show(block: Wire, content: object) -> None:
    value = [{"role": "user", "content": [block]}, {"role": "assistant", "content": [{"type": "tool_use", "id": "a"}]}]
    assert only(value, Format.ANTHROPIC).messages[0] == {"role": "user", "content": content}


def test_results_that_are_values_are_spelled() -> None:
    given_back = [{"query": "a.py", "result": "x = 1"}]
    value = [
        {"role": "assistant", "content": [{"type": "tool_use", "id": "a", "name": "read", "input": "{torn"}]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "a", "content": given_back}]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "a"}]},
    ]
    called, spelled, empty = only(value, Format.ANTHROPIC).messages
    assert called["tool_calls"] == [{"id": "a", "type": "function", "function": {"name": "read", "arguments": "{torn"}}]
    assert (spelled["content"], empty["content"]) == (json.dumps(given_back), "")


def test_what_cannot_be_put_on_the_wire_is_counted_by_kind() -> None:
    value = [
        {"role": "assistant", "content": [{"type": "thinking", "thinking": ""}, {"type": "gadget"}, {"type": ["?"]}]},
        {"role": "user", "content": [{"type": "image", "source": {"type": "file", "file_id": "f"}}]},
        {"role": "user", "content": []},
    ]
    conversation = only(value, Format.ANTHROPIC)
    assert conversation.messages == ()
    assert lost(conversation) == {
        ("thoughts", Why.SEALED): 1,
        ("gadget blocks", Why.UNKNOWN): 1,
        ("other blocks", Why.UNKNOWN): 1,
        ("image blocks", Why.SEALED): 1,
        ("messages without content", Why.UNSENT): 3,
    }
    assert str(conversation.left_out[1]) == "1 gadget blocks of an unknown kind"


# --- Claude Code ----------------------------------------------------------------------------------------------------


class Session:
    """Entries of a session, each the child of the one before unless said otherwise."""

    def __init__(self) -> None:
        self.entries: list[Wire] = []
        self._last: str | None = None
        self._numbers = count(1)

    def add(self, kind: str, **fields: object) -> str:
        uuid = str(fields.get("uuid", f"u{next(self._numbers)}"))
        entry = {"parentUuid": self._last, "isSidechain": False, "type": kind, "uuid": uuid, **fields}
        self.entries.append(entry)
        self._last = uuid
        return uuid

    def user(self, content: object, **fields: object) -> str:
        return self.add("user", message={"role": "user", "content": content}, **fields)

    def block(self, answer_id: str, block: Mapping[str, object], **fields: object) -> str:
        message = {"id": answer_id, "type": "message", "role": "assistant", "content": [block]}
        return self.add("assistant", message=message, **fields)

    def says(self, answer_id: str, text: str, **fields: object) -> str:
        return self.block(answer_id, {"type": "text", "text": text}, **fields)

    def calls(self, answer_id: str, call_id: str, **fields: object) -> str:
        use = {"type": "tool_use", "id": call_id, "name": "Bash", "input": {"command": call_id}}
        return self.block(answer_id, use, **fields)

    def gives(self, call_id: str, content: object, **fields: object) -> str:
        return self.user([{"type": "tool_result", "tool_use_id": call_id, "content": content}], **fields)

    def boundary(self, **fields: object) -> str:
        below = {"parentUuid": None, "logicalParentUuid": self._last, "subtype": "compact_boundary"}
        return self.add("system", **(below | fields))

    def read(self) -> Conversation:
        return only(self.entries, Format.CLAUDE_CODE)


def bash(*ids: str) -> list[Wire]:
    return [call(each, "Bash", {"command": each}) for each in ids]


def small_session() -> list[Wire]:
    session = Session()
    session.user("do it", cwd="/repo")
    session.block("m1", {"type": "thinking", "thinking": "how?"})
    session.says("m1", "I do.")
    session.calls("m1", "a")
    session.gives("a", "done")
    session.says("m2", "It is done.")
    return [{"type": "file-history-snapshot", "messageId": "x"}, *session.entries, {"type": "summary", "summary": "t"}]


def test_an_answer_that_was_written_block_by_block_is_one_message() -> None:
    conversation = only(small_session(), Format.CLAUDE_CODE)
    assert list(conversation.messages) == [
        user("do it"),
        said("I do.", reasoning_content="how?", tool_calls=bash("a")),
        answer("a", "done"),
        said("It is done."),
    ]
    assert lost(conversation) == {
        ("file-history-snapshot entries", Why.UNSENT): 1,
        ("summary entries", Why.UNSENT): 1,
    }


def test_a_result_written_between_the_calls_of_one_answer_comes_behind_them() -> None:
    session = Session()
    session.user("both")
    session.calls("m", "a")
    session.gives("a", "one")
    session.calls("m", "b")
    session.gives("b", "two")
    assert list(session.read().messages) == [
        user("both"),
        said(None, tool_calls=bash("a", "b")),
        answer("a", "one"),
        answer("b", "two"),
    ]


def test_an_answer_does_not_go_on_behind_words_of_the_user() -> None:
    session = Session()
    session.says("m", "one")
    session.user("wait")
    session.says("m", "two")
    assert list(session.read().messages) == [said("one"), user("wait"), said("two")]


def test_parallel_calls_that_hang_beside_the_branch_are_read_with_it() -> None:
    session = Session()
    first = session.user("both")
    one = session.calls("m", "a")
    two = session.calls("m", "b", parentUuid=first)
    session.gives("a", "one", parentUuid=one)
    session.gives("b", "two", parentUuid=two)
    session.says("m2", "fine")
    conversation = session.read()
    assert list(conversation.messages) == [
        user("both"),
        said(None, tool_calls=bash("b", "a")),
        answer("a", "one"),
        answer("b", "two"),
        said("fine"),
    ]
    assert conversation.left_out == ()


def test_of_branches_the_one_that_ends_last_is_read() -> None:
    session = Session()
    session.user("start")
    fork = session.says("m", "yes?")
    session.user("first try")
    session.says("m1", "no")
    session.user("second try", parentUuid=fork)
    conversation = session.read()
    assert list(conversation.messages) == [user("start"), said("yes?"), user("second try")]
    assert lost(conversation) == {("messages", Why.BRANCH): 2}


def test_after_a_compaction_its_summary_and_what_follows_are_read() -> None:
    session = Session()
    session.user("old")
    session.says("m", "old answer")
    for number in (1, 2):
        session.boundary()
        session.add("attachment", attachment={"type": "nested_memory", "content": {"content": f"rules {number}"}})
        session.user(f"summary {number}", isCompactSummary=True, isVisibleInTranscriptOnly=True)
        session.says(f"s{number}", f"on we go {number}")
    conversation = session.read()
    assert list(conversation.messages) == [user("rules 2"), user("summary 2"), said("on we go 2")]
    assert stood_for(conversation) == 4
    assert ("messages", Why.BRANCH) not in lost(conversation)


@pytest.mark.parametrize("below", ["tail", "sum"])
@pytest.mark.parametrize("how", ["preservedSegment", "preservedMessages"])
def test_what_a_compaction_kept_word_for_word_stands_behind_the_summary(how: str, below: str) -> None:
    session = Session()
    session.user("old")
    session.says("m0", "old answer")
    head = session.user("kept")
    tail = session.says("m1", "kept answer")
    kept = {
        "preservedSegment": {"headUuid": head, "anchorUuid": "sum", "tailUuid": tail},
        "preservedMessages": {"anchorUuid": "sum", "uuids": [head, tail]},
    }
    session.boundary(compactMetadata={"trigger": "auto", how: kept[how]})
    session.user("summary", uuid="sum", isCompactSummary=True)
    session.user("new", parentUuid={"tail": tail, "sum": "sum"}[below])
    conversation = session.read()
    assert list(conversation.messages) == [user("summary"), user("kept"), said("kept answer"), user("new")]
    assert stood_for(conversation) == 2
    assert ("messages", Why.BRANCH) not in lost(conversation)


@pytest.mark.parametrize(
    "kept",
    [
        {"preservedSegment": {"headUuid": "u1", "anchorUuid": "sum", "tailUuid": "gone"}},
        {"preservedSegment": {"headUuid": "gone", "anchorUuid": "sum", "tailUuid": "u2"}},
        {"preservedMessages": {"anchorUuid": "sum", "uuids": ["gone"]}},
        {"preservedMessages": {"anchorUuid": "u1", "uuids": ["u1", 7]}},
    ],
)
def test_a_compaction_that_kept_what_is_not_there_kept_nothing(kept: Wire) -> None:
    session = Session()
    session.user("old")
    session.says("m", "old answer")
    session.boundary(compactMetadata=kept)
    session.user("summary", uuid="sum", isCompactSummary=True)
    session.user("new")
    conversation = session.read()
    assert list(conversation.messages) == [user("summary"), user("new")]
    assert stood_for(conversation) == 2


def test_a_compaction_that_never_got_a_summary_replaces_nothing() -> None:
    session = Session()
    session.user("old")
    session.says("m", "answer")
    session.boundary()
    conversation = session.read()
    assert list(conversation.messages) == [user("old"), said("answer")]
    assert stood_for(conversation) == 0


def test_a_summary_alone_begins_a_history_too() -> None:
    value = [
        {"type": "user", "message": user("old")},
        {"type": "user", "message": user("summary"), "isCompactSummary": True},
        {"type": "user", "message": user("new")},
    ]
    for held in (value, {"loglines": value}):
        conversation = only(held, Format.CLAUDE_CODE)
        assert list(conversation.messages) == [user("summary"), user("new")]
        assert stood_for(conversation) == 1


def test_subagents_are_left_out_of_the_session_and_read_in_their_own_file() -> None:
    session = Session()
    first = session.user("go")
    session.user("look around", isSidechain=True, parentUuid=None)
    session.says("s", "nothing", isSidechain=True)
    session.says("m", "fine", parentUuid=first)
    conversation = session.read()
    assert list(conversation.messages) == [user("go"), said("fine")]
    assert lost(conversation) == {("messages", Why.SUBAGENT): 2}
    own = only([entry for entry in session.entries if entry["isSidechain"]], Format.CLAUDE_CODE)
    assert list(own.messages) == [user("look around"), said("nothing")]


def test_what_the_model_reads_though_no_user_sees_it() -> None:
    session = Session()
    session.user("a caveat", isMeta=True)
    session.add("system", subtype="local_command", content="<command-name>/cost</command-name>")
    session.add(
        "attachment", attachment={"type": "queued_command", "prompt": [{"type": "text", "text": "also"}, IMAGE]}
    )
    session.add("attachment", attachment={"type": "hook_additional_context", "content": ["one", "two"]})
    session.add("attachment", attachment={"type": "task_reminder", "content": [{"subject": "x"}]})
    session.add("progress", data={})
    session.says("m", "API Error: 529", isApiErrorMessage=True)
    conversation = session.read()
    assert list(conversation.messages) == [
        user("a caveat"),
        user("<command-name>/cost</command-name>"),
        {"role": "user", "content": [{"type": "text", "text": "also"}, PART]},
        {"role": "user", "content": [{"type": "text", "text": "one"}, {"type": "text", "text": "two"}]},
    ]
    assert lost(conversation) == {
        ("task_reminder attachments", Why.SEALED): 1,
        ("progress entries", Why.UNSENT): 1,
        ("notes of failed requests", Why.UNSENT): 1,
    }


def test_of_entries_written_twice_the_last_counts() -> None:
    session = Session()
    session.user("first", uuid="same")
    session.says("m", "yes")
    session.entries.append({**session.entries[0], "message": user("second")})
    conversation = session.read()
    assert list(conversation.messages) == [user("second"), said("yes")]
    assert lost(conversation) == {("entries", Why.DOUBLED): 1}


def test_a_tree_that_is_damaged_is_read_in_the_order_of_the_file() -> None:
    session = Session()
    session.user("one")
    session.says("m1", "two", parentUuid="gone")
    session.user("three")
    session.entries.append({"type": "user", "message": user("without an id")})
    session.says("m2", "four")
    session.entries.append({"type": "assistant", "uuid": "x", "parentUuid": "u4", "message": "torn"})
    conversation = session.read()
    assert [each["content"] for each in conversation.messages] == ["one", "two", "three", "without an id", "four"]
    assert lost(conversation) == {("assistant entries", Why.DAMAGED): 1}


def test_a_tree_that_runs_in_a_circle_ends() -> None:
    session = Session()
    session.user("one", parentUuid="u2")
    session.user("two")
    assert list(session.read().messages) == [user("one"), user("two")]


# --- Codex ----------------------------------------------------------------------------------------------------------


def item(kind: str, **fields: object) -> Wire:
    return {"timestamp": "t", "type": "response_item", "payload": {"type": kind, **fields}}


def words(role: str, text: str) -> Wire:
    kind = "output_text" if role == "assistant" else "input_text"
    return item("message", role=role, content=[{"type": kind, "text": text}])


def event(kind: str, **fields: object) -> Wire:
    return {"timestamp": "t", "type": "event_msg", "payload": {"type": kind, **fields}}


def compacted(message: str, **fields: object) -> Wire:
    return {"timestamp": "t", "type": "compacted", "payload": {"message": message, **fields}}


def called(call_id: str, **fields: object) -> Wire:
    return item("function_call", call_id=call_id, name="shell", arguments='{"command": ["ls"]}', **fields)


def returned(call_id: str, output: object) -> Wire:
    return item("function_call_output", call_id=call_id, output=output)


def shell(*ids: str) -> list[Wire]:
    return [call(each, "shell", {"command": ["ls"]}) for each in ids]


def thought(text: str, **fields: object) -> Wire:
    return item("reasoning", summary=[{"type": "summary_text", "text": text}], content=None, **fields)


OPENED = {"type": "session_meta", "payload": {"id": "s", "base_instructions": {"text": "You are Codex."}}}
SYSTEM = {"role": "system", "content": "You are Codex."}
ROLLOUT = [
    OPENED,
    {"type": "turn_context", "payload": {"cwd": "/repo", "model": "m"}},
    words("user", "<environment_context>cwd</environment_context>"),
    event("user_message", message="list"),
    words("user", "list"),
    thought("how?", encrypted_content="zzz"),
    words("assistant", "I list."),
    thought("which way?"),
    called("a"),
    called("b"),
    returned("a", "one"),
    returned("b", {"content": "two", "success": True}),
    event("agent_message", message="Listed."),
    words("assistant", "Listed."),
]


def test_items_that_follow_each_other_are_one_answer() -> None:
    conversation = only(ROLLOUT, Format.CODEX)
    assert list(conversation.messages) == [
        SYSTEM,
        user("<environment_context>cwd</environment_context>"),
        user("list"),
        said("I list.", reasoning_content="how?\n\nwhich way?", tool_calls=shell("a", "b")),
        answer("a", "one"),
        answer("b", "two"),
        said("Listed."),
    ]
    assert lost(conversation) == {
        ("turn_context entries", Why.UNSENT): 1,
        ("event_msg entries", Why.UNSENT): 2,
        ("thoughts", Why.SEALED): 1,
    }


def test_a_compaction_replaces_the_history_by_its_own() -> None:
    replacement = [words("user", "list")["payload"], item("compaction", encrypted_content="zzz")["payload"], 7]
    value = [*ROLLOUT, compacted("", replacement_history=replacement), words("user", "go on")]
    conversation = only(value, Format.CODEX)
    assert list(conversation.messages) == [SYSTEM, user("list"), user("go on")]
    assert stood_for(conversation) == 6
    assert lost(conversation)["compaction items", Why.SEALED] == 1
    assert lost(conversation)["items", Why.DAMAGED] == 1


def test_an_older_compaction_keeps_the_users_own_words() -> None:
    value = [
        *ROLLOUT,
        words("user", "x" * 79_995),
        words("user", "last"),
        compacted("Summary."),
        words("user", "go on"),
    ]
    conversation = only(value, Format.CODEX)
    assert list(conversation.messages) == [
        SYSTEM,
        user("<environment_context>cwd</environment_context>"),
        user("x" * 79_995),
        user("last"),
        user("Summary."),
        user("go on"),
    ]
    assert stood_for(conversation) == 8


def test_turns_that_were_rolled_back_are_gone() -> None:
    value = [*ROLLOUT, words("user", "no"), words("assistant", "oh"), event("thread_rolled_back", num_turns=1)]
    conversation = only(value, Format.CODEX)
    assert conversation.messages == only(ROLLOUT, Format.CODEX).messages
    assert lost(conversation)["messages", Why.WITHDRAWN] == 2
    assert only([*ROLLOUT, event("thread_rolled_back", num_turns=0)], Format.CODEX).messages == conversation.messages
    all_gone = only([*ROLLOUT, event("thread_rolled_back", num_turns=9)], Format.CODEX)
    assert list(all_gone.messages) == [SYSTEM, user("<environment_context>cwd</environment_context>")]


def test_of_long_words_an_older_compaction_keeps_head_and_tail() -> None:
    value = [words("user", "early"), words("user", "a" * 50_000 + "b" * 50_000), compacted("Summary.")]
    long, summary = only(value, Format.CODEX).messages
    assert long["content"] == "a" * 40_000 + "…" + "b" * 40_000
    assert summary == user("Summary.")


def test_where_no_item_says_anything_the_events_do() -> None:
    value = [OPENED, event("user_message", message="hello"), called("a"), returned("a", "x"), thought("hm")]
    conversation = only([*value, event("agent_message", message="hi")], Format.CODEX)
    assert list(conversation.messages) == [
        SYSTEM,
        user("hello"),
        said(None, tool_calls=shell("a")),
        answer("a", "x"),
        said("hi", reasoning_content="hm"),
    ]


def test_other_calls_of_codex() -> None:
    value = [
        item("custom_tool_call", call_id="a", name="apply_patch", input="*** Begin"),
        item("custom_tool_call_output", call_id="a", output=[{"type": "input_text", "text": "ok"}]),
        item("local_shell_call", call_id="b", action={"type": "exec", "command": ["ls"]}),
        returned("b", [{"type": "input_text", "text": "x"}, {"type": "input_image", "image_url": PICTURE}]),
        item("tool_search_call", call_id="c", arguments={"query": "q"}),
        item("tool_search_output", call_id="c", tools=[{"name": "read"}]),
        item("web_search_call", action={"query": "q"}),
        item("ghost_snapshot"),
        item("agent_message", content=[{"type": "input_text", "text": "from another agent"}]),
        thought("and then"),
    ]
    conversation = only(value, Format.CODEX)
    assert list(conversation.messages) == [
        said(None, tool_calls=[call("a", "apply_patch", {"input": "*** Begin"})]),
        answer("a", "ok"),
        said(None, tool_calls=[call("b", "local_shell", {"type": "exec", "command": ["ls"]})]),
        answer("b", [{"type": "text", "text": "x"}, PART]),
        said(None, tool_calls=[call("c", "tool_search", {"query": "q"})]),
        answer("c", '[{"name": "read"}]'),
        user("from another agent"),
        said(None, reasoning_content="and then"),
    ]
    assert lost(conversation) == {
        ("web_search_call items", Why.SEALED): 1,
        ("ghost_snapshot items", Why.UNSENT): 1,
    }


def test_calls_with_the_same_id_do_not_share_a_message() -> None:
    conversation = only([called("a"), called("a"), returned("a", "x"), returned("a", "y")], Format.CODEX)
    assert [each["role"] for each in conversation.messages] == ["assistant", "assistant", "tool", "tool"]


def test_the_tools_that_a_client_added_to_codex() -> None:
    mine = {"type": "function", "name": "read", "description": "Reads.", "inputSchema": SCHEMA}
    dynamic = [{"type": "namespace", "name": "n", "tools": [mine, mine | {"deferLoading": True}, {"type": "function"}]}]
    opened = {"type": "session_meta", "payload": {"id": "s", "dynamic_tools": dynamic}}
    conversation = only([opened, words("user", "hi")], Format.CODEX)
    assert conversation.tools == (TOOL,)
    assert lost(conversation) == {("tools", Why.UNSENT): 1, ("tools", Why.DAMAGED): 1}


# --- pi -------------------------------------------------------------------------------------------------------------


def node(name: str, parent: str | None, kind: str = "message", **fields: object) -> Wire:
    return {"type": kind, "id": name, "parentId": parent, **fields}


PI = [
    {"type": "session", "version": 3, "id": "s", "cwd": "/repo"},
    node("m", None, "model_change", modelId="x"),
    node("a", "m", message={"role": "user", "content": [{"type": "text", "text": "make it"}]}),
    node(
        "b",
        "a",
        message={
            "role": "assistant",
            "content": [
                {"type": "thinking", "thinking": "how?"},
                {"type": "toolCall", "id": "t", "name": "read", "arguments": {"path": "x"}},
            ],
        },
    ),
    node(
        "c",
        "b",
        message={
            "role": "toolResult",
            "toolCallId": "t",
            "content": [{"type": "text", "text": "1"}, {"type": "image", "data": "AAAA", "mimeType": "image/png"}],
        },
    ),
    node("d", "c", message={"role": "bashExecution", "command": "ls", "output": "x"}),
    node("e", "d", message={"role": "bashExecution", "command": "pwd", "output": "/", "excludeFromContext": True}),
    node("f", "e", message={"role": "assistant", "content": [{"type": "text", "text": "Made."}]}),
]
PI_READ = [
    user("make it"),
    said(None, reasoning_content="how?", tool_calls=[call("t", "read", {"path": "x"})]),
    answer("t", [{"type": "text", "text": "1"}, PART]),
    user("ls\nx"),
    said("Made."),
]


def test_a_session_of_pi() -> None:
    conversation = only(PI, Format.PI)
    assert list(conversation.messages) == PI_READ
    assert lost(conversation) == {("model_change entries", Why.UNSENT): 1, ("commands", Why.UNSENT): 1}


def test_pi_reads_the_branch_that_ends_last() -> None:
    branched = node("g", "a", "branch_summary", summary="tried", fromId="f")
    added = node("h", "g", "custom_message", content="a note")
    odd = node("i", "h", message={"role": "oracle", "content": "?"})
    conversation = only([*PI, branched, added, odd], Format.PI)
    assert list(conversation.messages) == [user("make it"), user("tried"), user("a note")]
    assert lost(conversation)["messages", Why.BRANCH] == 5
    assert lost(conversation)["messages", Why.DAMAGED] == 1


@pytest.mark.parametrize(("first", "kept", "replaced"), [("d", PI_READ[3:], 3), ("gone", [], 6)])
def test_a_compaction_of_pi_keeps_what_it_names(first: str, kept: list[Wire], replaced: int) -> None:
    value = [
        *PI,
        node("g", "f", "compaction", summary="So far.", firstKeptEntryId=first),
        node("h", "g", message={"role": "compactionSummary", "summary": "again"}),
    ]
    conversation = only(value, Format.PI)
    assert list(conversation.messages) == [user("So far."), *kept, user("again")]
    assert stood_for(conversation) == replaced


# --- ShareGPT -------------------------------------------------------------------------------------------------------

SHAREGPT = {
    "system": "Be brief.",
    "conversations": [
        {"from": "human", "value": "weather?"},
        {"from": "function_call", "value": '{"name": "weather", "arguments": {"in": "Rom"}}'},
        {"from": "function_call", "value": '[{"name": "time"}]'},
        {"from": "observation", "value": "sun"},
        {"from": "observation", "value": "noon"},
        {"from": "gpt", "value": "Sunny."},
        {"from": "function_call", "value": "not a call"},
        {"from": "martian", "value": "?"},
    ],
    "tools": json.dumps([TOOL["function"]]),
}


def test_a_conversation_in_the_form_of_sharegpt() -> None:
    conversation = only(SHAREGPT, Format.SHAREGPT)
    assert list(conversation.messages) == [
        {"role": "system", "content": "Be brief."},
        user("weather?"),
        said(None, tool_calls=[call("call_1", "weather", {"in": "Rom"}), call("call_2", "time", {})]),
        answer("call_1", "sun"),
        answer("call_2", "noon"),
        said("Sunny."),
        said("not a call"),
    ]
    assert conversation.tools == (TOOL,)
    assert lost(conversation) == {("turns", Why.UNKNOWN): 1}
    assert parse(conversation.messages).complaints == ()


def test_many_conversations_in_the_form_of_sharegpt() -> None:
    small = {"conversations": [{"from": "human", "value": "hi"}]}
    value = [small, SHAREGPT, small]
    assert recognise(value) is Format.SHAREGPT
    assert [len(each.messages) for each in convert(value, Format.SHAREGPT)] == [1, 7, 1]
    assert list(only(small["conversations"], Format.SHAREGPT).messages) == [user("hi")]


# --- our own --------------------------------------------------------------------------------------------------------


def written(*bodies: tuple[str, journal.Body]) -> list[object]:
    entries = [journal.Entry(seq, "t", kind, body) for seq, (kind, body) in enumerate(bodies, 1)]
    return [json.loads(each) for each in (journal.header("s", "t"), *map(journal.encode, entries))]


JOURNAL = written(
    journal.message({"role": "system", "content": "Be brief."}),
    journal.message(user("first")),
    journal.message(said(None, tool_calls=[call("a", "read", {})])),
    journal.message(answer("a", "long body")),
    ("usage", {"prompt": 7}),
    journal.begin("clear"),
    journal.commit(Cleared((Stub(4, "[cleared]"),)), 6),
    journal.message(user("second")),
    journal.message(said("done")),
)


def test_a_journal_is_what_its_session_would_send() -> None:
    conversation = only(JOURNAL, Format.LOCALCTX)
    assert list(conversation.messages) == [
        {"role": "system", "content": "Be brief."},
        user("first"),
        said(None, tool_calls=[call("a", "read", {})]),
        answer("a", "[cleared]"),
        said("[no reply]"),
        user("second"),
        said("done"),
    ]
    assert lost(conversation) == {
        ("usage entries", Why.UNSENT): 1,
        ("begin entries", Why.UNSENT): 1,
        ("bodies", Why.CLEARED): 1,
    }


def test_a_compaction_of_ours_stands_before_what_it_kept() -> None:
    checkpoint = Checkpoint(4, "model", (("goal", ("Be done.",)),), words=(Words(2, "first"),))
    withdrawn = written(*[journal.message(user("x"))] * 10, journal.commit(Withdrawn(9)))[-1]
    value = [*JOURNAL, written(journal.commit(Compacted(checkpoint)))[-1], withdrawn]
    conversation = only(value, Format.LOCALCTX)
    texts = [str(each["content"]) for each in conversation.messages]
    assert len(texts) == 2
    assert "Be done." in texts[1]
    assert texts[1].endswith("second")
    assert stood_for(conversation) == 3
    assert lost(conversation)["messages", Why.WITHDRAWN] == 1


def test_what_cannot_be_replayed_is_counted() -> None:
    value = [*JOURNAL, {"seq": 10, "at": "t", "type": "commit", "effect": {"kind": "?"}}, {"seq": "x"}]
    conversation = only(value, Format.LOCALCTX)
    assert conversation.messages == only(JOURNAL, Format.LOCALCTX).messages
    assert lost(conversation)["effects", Why.DAMAGED] == 1
    assert lost(conversation)["lines", Why.DAMAGED] == 1


@given(lives())
def test_any_journal_gives_a_list_that_a_server_takes(moves: list[Move]) -> None:
    entries = play(moves, lambda text: len(text) // 4)
    value = [json.loads(each) for each in (journal.header("s", "t"), *map(journal.encode, entries))]
    conversation = only(value, Format.LOCALCTX)
    assert set(defects(conversation.messages)) <= {"no user message"}


# --- what is no conversation ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "value",
    [
        None,
        7,
        "user: hello",
        [],
        {},
        {"messages": []},
        {"messages": "hello"},
        [{"role": "admin", "content": "x"}],
        [{"role": "admin", "name": "ann"}, {"role": "user", "name": "bob"}],
        [user("hi"), {"level": "info"}, {"level": "info"}],
        {"messages": [{"id": 1, "text": "hello"}]},
        [{"type": "user", "name": "ann"}, {"type": "assistant", "name": "bob"}],
        [{"type": "message", "message": "disk full"}],
        [{"type": "event_msg", "payload": {"type": "user_message", "message": "hi"}}],
        [{"from": "ann@example.org", "value": "hi"}],
        [{"schema": 2, "session": "s", "created": "t"}],
        [{"schema": 1}],
        {"history": [1, 2], "trajectory": []},
    ],
    ids=lambda value: json.dumps(value)[:60],
)
def test_other_json_is_no_conversation(value: object) -> None:
    assert recognise(value) is None
    assert all(convert(value, form) == () for form in Format)


def test_a_format_whose_files_lack_something_says_so() -> None:
    assert UNRECORDED.keys() < set(Format)


# --- whatever a file holds ------------------------------------------------------------------------------------------

SAMPLES: dict[Format, list[object]] = {
    Format.OPENAI: [CHAT, {"messages": CHAT, "tools": [TOOL]}, [{"messages": CHAT}] * 2],
    Format.ANTHROPIC: [REQUEST, REQUEST["messages"]],
    Format.CLAUDE_CODE: [small_session(), {"loglines": small_session()}],
    Format.CODEX: [ROLLOUT, [*ROLLOUT, compacted("s"), event("thread_rolled_back", num_turns=1)]],
    Format.PI: [PI, [*PI, node("g", "f", "compaction", summary="s", firstKeptEntryId="d")]],
    Format.SHAREGPT: [SHAREGPT, [SHAREGPT] * 2],
    Format.SWE_AGENT: [{"trajectory": [], "history": CHAT}],
    Format.LOCALCTX: [JOURNAL],
}


def test_every_format_has_a_sample_that_is_recognised() -> None:
    found = {form: {recognise(each) for each in samples} for form, samples in SAMPLES.items()}
    assert found == {form: {form} for form in Format}


def check(value: object) -> None:
    """What holds for any JSON value."""
    form = recognise(value)
    for each in Format:
        for conversation in convert(value, each):
            assert conversation.format is each
            messages = list(conversation.messages)
            assert flatten(parse(messages).history) == json.loads(json.dumps(messages))
            assert json.dumps(conversation.tools)
            assert all(left.count > 0 and left.what.isprintable() for left in conversation.left_out)
            assert len(conversation.left_out) < 200
    assert form is None or convert(value, form)


@given(st.recursive(json_values, lambda inner: st.lists(inner, max_size=4), max_leaves=6))
def test_any_json_value_is_answered(value: object) -> None:
    check(value)


def places(value: object, path: Path = ()) -> list[Path]:
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [path, *(deeper for key, each in inner for deeper in places(each, (*path, key)))]


def changed(value: object, path: Path, what: str, new: object) -> object:
    """The value with something else at a place, or with that place gone or said twice."""
    if not path:
        return new
    value = copy.deepcopy(value)
    holder = reduce(lambda inner, key: cast("Any", inner)[key], path[:-1], value)
    here = cast("Any", holder)
    if what == "drop":
        del here[path[-1]]
    elif what == "double" and isinstance(holder, list):
        holder.append(here[path[-1]])
    else:
        here[path[-1]] = new
    return value


@given(st.data())
def test_any_damage_to_a_file_is_survived(data: st.DataObject) -> None:
    value: object = data.draw(st.sampled_from([each for samples in SAMPLES.values() for each in samples]))
    for _ in range(data.draw(st.integers(1, 4))):
        path = data.draw(st.sampled_from(places(value)))
        what = data.draw(st.sampled_from(["drop", "double", "put"]))
        value = changed(value, path, what, data.draw(json_values))
    check(value)


@pytest.mark.parametrize("form", list(Format))
@pytest.mark.parametrize("levels", [DEEPEST + 1, 900])
def test_values_that_are_nested_too_deeply_are_left_out(form: Format, levels: int) -> None:
    deep: object = "x"
    for _ in range(levels):
        deep = [deep]
    for sample in SAMPLES[form]:
        for path in places(sample)[1:]:
            value = changed(sample, path, "put", deep)
            for conversation in convert(value, form):
                assert flatten(parse(conversation.messages).history) == list(conversation.messages)


def test_kinds_that_a_file_makes_up_do_not_fill_the_report() -> None:
    value = [*ROLLOUT, *({"type": f"kind{number}"} for number in range(1_000)), {"type": "\x1b[31m"}]
    conversation = only(value, Format.CODEX)
    assert len(conversation.left_out) < 70
    assert sum(each.count for each in conversation.left_out) == 1_005
