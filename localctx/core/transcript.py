"""Wire messages (OpenAI chat dialect) to a history and back, without loss.

The parser is total: it takes whatever a list in a real file holds, keeps every message, and reports what no server
would take. `flatten(parse(messages).history) == messages` for any list of JSON values. Repairs are made only in the
outgoing copy (`localctx.core.outgoing`).
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from localctx.core.messages import (
    Content,
    Growing,
    History,
    Interjection,
    Item,
    Message,
    Part,
    Said,
    Step,
    ToolCall,
    ToolCycle,
    ToolResult,
    plain,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

__all__ = ["FOREIGN", "Complaint", "Parsed", "called", "flatten", "parse", "read", "words", "write"]

FOREIGN = "foreign"
"""The role under which a value is kept that is not a chat message at all."""


@dataclass(frozen=True, slots=True)
class Complaint:
    """What the wire would not take: the index of the message and what is wrong with it."""

    index: int
    text: str


@dataclass(frozen=True, slots=True)
class Parsed:
    """A history that holds every message, and the complaints about them."""

    history: History
    complaints: tuple[Complaint, ...]


def parse(messages: Iterable[object]) -> Parsed:
    """Reads a list of wire messages; leaf `seq` is one more than the message's index."""
    growing, complaints = Growing(), list[Complaint]()
    for index, message in enumerate(messages):
        item, before = read(message, seq=index + 1), growing.newest
        growing.add(item)
        if said := _complaint(item, before, growing.newest):
            complaints.append(Complaint(index, said))
    return Parsed(growing.history(), tuple(complaints))


def flatten(history: History) -> list[object]:
    """The wire messages of a history as they came; its checkpoint, which no wire message made, is left out."""
    messages = [write(message) for message in history.system]
    for _, unit in history.units():
        messages.append(write(unit))
        if isinstance(unit, ToolCycle):
            messages.extend(write(result) for result in unit.results)
    return messages


def read(message: object, *, seq: int = 0, complete: bool = True) -> Item:
    """One wire message as an item of a history; what does not fit any is kept whole under the role `foreign`."""
    if isinstance(message, dict) and isinstance(message.get("role"), str):
        item = _item(message, seq, complete=complete)
        if item is not None and (_is_plain(item) or _same(write(item), message)):
            return item
    return Message(FOREIGN, None, json.dumps(message), seq)


def words(message: object) -> str:
    """The text of a wire message that is not the model's."""
    item = read(message)
    return plain(item.content) if isinstance(item, Message) else ""


def write(item: Item | Step) -> object:
    """The wire message that `read` would turn into this item."""
    match item:
        case Interjection():
            return write(item.message)
        case Message(role="foreign"):
            return json.loads(item.extra)
        case Message():
            return _object(item.role, item.content, item.extra)
        case ToolResult():
            return _object("tool", item.content, item.extra) | {"tool_call_id": item.call_id}
        case Said():
            return _object("assistant", item.content, item.extra) | _thinking(item.thinking)
        case ToolCycle():
            calls = {"tool_calls": [called(call) for call in item.calls]}
            return _object("assistant", item.content, item.extra) | _thinking(item.thinking) | calls


def _is_plain(item: Item) -> bool:
    """Whether an item has nothing but what every message of its kind has: there is nothing that it could have lost."""
    if isinstance(item, Interjection) or item.extra or isinstance(item.content, tuple):
        return False
    return not any(call.extra for call in item.calls) if isinstance(item, ToolCycle) else True


def _same(one: object, other: object) -> bool:
    return one == other or json.dumps(one, sort_keys=True) == json.dumps(other, sort_keys=True)


def _item(message: Mapping[str, object], seq: int, *, complete: bool) -> Item | None:
    fields = dict(message)
    role = str(fields.pop("role"))
    absent = "content" not in fields
    content, fits = _content(fields.pop("content", None))
    if not fits or role == FOREIGN:
        return None
    if absent:
        fields["content?"] = False
    if role == "tool" and isinstance(fields.get("tool_call_id"), str):
        return ToolResult(str(fields.pop("tool_call_id")), content, _extra(fields), seq)
    if role != "assistant":
        return Message(role, content, _extra(fields), seq)
    thinking = fields.pop("reasoning_content") if isinstance(fields.get("reasoning_content"), str) else None
    said = None if thinking is None else str(thinking)
    calls = _calls(fields.get("tool_calls"))
    if calls is None:
        return Said(content, said, complete, _extra(fields), seq)
    del fields["tool_calls"]
    return ToolCycle(content, calls, (), said, _extra(fields), seq)


def _content(value: object) -> tuple[Content, bool]:
    if value is None or isinstance(value, str):
        return value, True
    if isinstance(value, list) and all(isinstance(part, dict) and isinstance(part.get("type"), str) for part in value):
        return tuple(_part(part) for part in value), True
    return None, False


def _part(part: Mapping[str, object]) -> Part:
    kind, text = str(part["type"]), part.get("text")
    if kind == "text" and isinstance(text, str) and part.keys() == {"type", "text"}:
        return Part(kind, text)
    return Part(kind, text if isinstance(text, str) else "", json.dumps(part))


def _calls(value: object) -> tuple[ToolCall, ...] | None:
    """The calls of an assistant message, or None where there are none that have an id, a name and arguments as text."""
    if not isinstance(value, list) or not value:
        return None
    calls = tuple(call for raw in value if (call := _read_call(raw)) is not None)
    return calls if len(calls) == len(value) and len({call.id for call in calls}) == len(calls) else None


def _read_call(raw: Any) -> ToolCall | None:  # noqa: ANN401  any JSON value
    match raw:
        case {
            "id": str(call_id),
            "type": "function",
            "function": {"name": str(name), "arguments": str(arguments), **inner},
            **rest,
        }:
            return ToolCall(call_id, name, arguments, _extra(rest | {"function": inner} if inner else rest))
    return None


def called(call: ToolCall) -> dict[str, object]:
    """The wire form of a call."""
    extra = json.loads(call.extra) if call.extra else {}
    function = {"name": call.name, "arguments": call.arguments, **extra.pop("function", {})}
    return {"id": call.id, "type": "function", "function": function, **extra}


def _extra(fields: Mapping[Any, object]) -> str:
    return json.dumps(fields) if fields else ""


def _object(role: str, content: Content, extra: str) -> dict[str, object]:
    fields = json.loads(extra) if extra else {}
    present = fields.pop("content?", True)
    body = {"content": _wire_content(content)} if present else {}
    return {"role": role, **body, **fields}


def _wire_content(content: Content) -> object:
    if isinstance(content, tuple):
        return [json.loads(part.raw) if part.raw else {"type": "text", "text": part.text} for part in content]
    return content


def _thinking(thinking: str | None) -> dict[str, object]:
    return {} if thinking is None else {"reasoning_content": thinking}


_KNOWN_ROLES = frozenset({"system", "developer", "user", "assistant", "tool"})


def _complaint(item: Item, before: Step | None, after: Step | None) -> str:
    """What is wrong with an item between the step before it and the one that it made or went into."""
    if isinstance(item, Message) and item.role not in _KNOWN_ROLES:
        return "not a chat message" if item.role == FOREIGN else f"unknown role {item.role!r}"
    if isinstance(item, Said) and json.loads(item.extra or "{}").get("tool_calls"):
        return "calls that no server takes: each needs its own id, the type function, a name, and arguments as text"
    if isinstance(item, ToolResult) and isinstance(after, Interjection):
        return f"result of call {item.call_id!r}, which is not open here"
    if isinstance(item, Message) and item.role == "tool":
        return "result without a call id"
    if not isinstance(item, ToolResult) and isinstance(before, ToolCycle) and before.pending:
        return "the calls before it have no result: " + ", ".join(call.id for call in before.pending)
    return ""
