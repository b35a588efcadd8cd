"""ShareGPT's form of a conversation: who said it under `from`, what under `value`; calls and results are turns too."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from localctx.core.formats.blocks import call
from localctx.core.formats.conversation import Conversation, Draft, Entry, Format, Why, objects, text_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from localctx.core.outgoing import WireMessage

__all__ = ["read", "recognises"]


def recognises(value: object) -> bool:
    """Whether it is a conversation in this form, or a list of some."""
    return any(True for _ in _bodies(value))


def read(value: object) -> Iterator[Conversation]:
    """The conversations."""
    for body in _bodies(value):
        draft = Draft(Format.SHAREGPT)
        if system := text_of(body.get("system")):
            draft.messages.append({"role": "system", "content": system})
        for turn in draft.objects(body.get("conversations"), "turns"):
            _take(turn, draft)
        _tools(body.get("tools"), draft)
        yield draft.done()


def _bodies(value: object) -> Iterator[Entry]:
    if _is_list(value):
        yield {"conversations": value}
    elif isinstance(value, dict) and _is_list(value.get("conversations")):
        yield value
    elif isinstance(value, list):
        found = [each for each in objects(value) if _is_list(each.get("conversations"))]
        yield from found if len(found) * 2 > len(value) else ()


def _is_list(value: object) -> bool:
    turns = [
        each for each in objects(value) if text_of(each.get("from")) in _ROLES and isinstance(each.get("value"), str)
    ]
    return isinstance(value, list) and len(turns) * 2 > len(value)


_ROLES = {
    "human": "user",
    "user": "user",
    "gpt": "assistant",
    "chatgpt": "assistant",
    "assistant": "assistant",
    "system": "system",
    "function_call": "call",
    "observation": "tool",
    "function_response": "tool",
    "tool": "tool",
}


def _take(turn: Entry, draft: Draft) -> None:
    role, text = _ROLES.get(text_of(turn.get("from"))), turn.get("value")
    if role is None or not isinstance(text, str):
        draft.leave("turns", Why.UNKNOWN)
    elif role == "call":
        _call(text, draft)
    elif role == "tool" and (call_id := draft.answered()) is not None:
        draft.messages.append({"role": "tool", "tool_call_id": call_id, "content": text})
    else:
        draft.messages.append({"role": role, "content": text})


def _call(text: str, draft: Draft) -> None:
    """A turn that calls: an object with name and arguments, or a list of such; other text is what was said."""
    made = _decoded(text)
    wanted = [each for each in objects(made if isinstance(made, list) else [made]) if isinstance(each.get("name"), str)]
    calls = [call(draft.new_call(), each["name"], each.get("arguments")) for each in wanted]
    before = draft.messages[-1] if draft.messages else {}
    if not calls:
        draft.messages.append({"role": "assistant", "content": text})
    elif isinstance(earlier := before.get("tool_calls"), list):
        earlier += calls
    else:
        draft.messages.append({"role": "assistant", "content": None, "tool_calls": calls})


def _decoded(text: str) -> object:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def _tools(tools: object, draft: Draft) -> None:
    for tool in draft.objects(_decoded(tools) if isinstance(tools, str) else tools, "tools"):
        draft.tools.append(_schema(tool))


def _schema(tool: Entry) -> WireMessage:
    return dict(tool) if "function" in tool else {"type": "function", "function": dict(tool)}
