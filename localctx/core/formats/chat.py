"""Conversations that are lists of messages: OpenAI's dialect and its kin, Anthropic's, and SWE-agent's trajectories.

A file holds such a list, an object around one (a request, a trajectory), or many of either.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from localctx.core.formats.blocks import as_blocks, as_said, by_assistant, by_user, content_of
from localctx.core.formats.conversation import Conversation, Draft, Entry, Format, Why, objects, spelled, text_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from localctx.core.outgoing import WireMessage

__all__ = ["is_anthropic", "is_openai", "is_swe_agent", "read"]


def is_swe_agent(value: object) -> bool:
    """Whether it is a trajectory of SWE-agent."""
    return isinstance(value, dict) and isinstance(value.get("trajectory"), list) and _is_list(value.get("history"))


def is_anthropic(value: object) -> bool:
    """Whether some message holds blocks of Anthropic's dialect, or a request is in its form."""
    return any(_in_blocks(messages, body) for messages, body in _found(value))


def is_openai(value: object) -> bool:
    """Whether it is a list of messages, something around one, or a list of such things."""
    return bool(_found(value))


def read(value: object, form: Format) -> Iterator[Conversation]:
    """The conversations, one a list of messages."""
    found = _found(value)
    for place, (messages, body) in enumerate(found):
        draft = Draft(form)
        if place == 0 and isinstance(value, list) and messages is not value:
            draft.leave("entries", Why.DAMAGED, len(value) - len(found))
        _read(messages, body, draft)
        yield draft.done()


def _read(messages: list[object], body: Entry, draft: Draft) -> None:
    system = as_said(content_of(body.get("system") or body.get("system_prompt"), draft))
    if system:
        draft.messages.append({"role": "system", "content": system})
    for message in draft.objects(messages):
        if not _is_message(message):
            draft.leave("entries", Why.DAMAGED)
        elif draft.format is Format.ANTHROPIC and _speaks_blocks(message):
            say = by_assistant if message["role"] == "assistant" else by_user
            draft.messages += say(message["content"], draft)
        else:
            draft.messages.append(_wire(message, draft))
    for tool in draft.objects(body.get("tools"), "tools"):
        _tool(tool, draft)
    for function in draft.objects(body.get("functions"), "tools"):
        draft.tools.append({"type": "function", "function": dict(function)})


# --- where the messages are ---------------------------------------------------------------------------------------

_KEYS = ("messages", "traj", "conversations", "history")


def _found(value: object) -> list[tuple[list[object], Entry]]:
    """Each list of messages, and the object around it."""
    if isinstance(value, list) and _is_list(value):
        return [(value, {})]
    around = value if isinstance(value, list) else [value]
    found = [(messages, each) for each in objects(around) if (messages := _messages(each)) is not None]
    return found if len(found) * 2 > len(around) else []


def _messages(body: Entry) -> list[object] | None:
    for key in _KEYS:
        listed = body.get(key)
        if isinstance(listed, list) and _is_list(listed):
            return listed
    return None


def _is_list(value: object) -> bool:
    """Whether most of a list are messages of a role that is known."""
    return isinstance(value, list) and sum(_is_known(each) for each in objects(value)) * 2 > len(value)


_ROLES = ("system", "developer", "user", "assistant", "tool", "function")


def _is_known(entry: Entry) -> bool:
    return entry.get("role") in _ROLES and _is_message(entry)


def _is_message(entry: Entry) -> bool:
    match entry:
        case {"role": str(), "content": str() | list() | None}:
            return True
        case {"role": "assistant", "tool_calls": list()} | {"role": "assistant", "function_call": dict()}:
            return "content" not in entry
    return False


# --- Anthropic's dialect ------------------------------------------------------------------------------------------

_BLOCKS = ("tool_use", "tool_result", "thinking", "redacted_thinking")


def _in_blocks(messages: list[object], body: Entry) -> bool:
    if isinstance(body.get("system") or body.get("system_prompt"), (str, list)):
        return True
    return any(_is_block(block) for message in objects(messages) for block in _listed(message.get("content")))


def _listed(content: object) -> Sequence[Entry]:
    return as_blocks(content) if isinstance(content, list) else ()


def _is_block(block: Entry) -> bool:
    return block.get("type") in _BLOCKS or isinstance(block.get("source"), dict)


def _speaks_blocks(message: Entry) -> bool:
    return message["role"] in {"user", "assistant"} and "content" in message and not message.get("tool_calls")


def _tool(tool: Entry, draft: Draft) -> None:
    match tool:
        case {"type": "function", "function": dict()}:
            draft.tools.append(dict(tool))
        case {"name": str(name), "input_schema": dict(schema)}:
            function = {"name": name, "description": text_of(tool.get("description")), "parameters": schema}
            draft.tools.append({"type": "function", "function": function})
        case _:
            draft.leave("tools", Why.UNKNOWN)


# --- OpenAI's dialect ---------------------------------------------------------------------------------------------

_FIELDS = ("role", "content", "name", "tool_call_id", "tool_calls", "reasoning_content")


def _wire(message: Entry, draft: Draft) -> WireMessage:
    """A message in the fields of the wire; calls and results of older and other dialects are put into them."""
    wire = {key: value for key, value in message.items() if key in _FIELDS}
    used = {*_FIELDS}
    for key in ("reasoning", "thinking"):
        if isinstance(message.get(key), str) and "reasoning_content" not in wire:
            wire["reasoning_content"] = message[key]
            used.add(key)
    if message["role"] == "assistant":
        used |= _called(message, wire, draft)
    elif message["role"] in {"tool", "function"}:
        used |= _answered(message, wire, draft)
    for key in message.keys() - used:
        draft.leave_kind(key, "fields", Why.UNSENT)
    return wire


def _called(message: Entry, wire: WireMessage, draft: Draft) -> set[str]:
    match message:
        case {"tool_calls": list(calls)}:
            wire["tool_calls"] = [_call(each, draft) for each in calls]
        case {"function_call": {"name": str()} as function}:
            wire.setdefault("content", None)
            wire["tool_calls"] = [_call({"function": function}, draft)]
            return {"function_call"}
    return set()


def _call(made: object, draft: Draft) -> object:
    match made:
        case {"id": str(), "type": "function", "function": {"arguments": str()}}:
            return made
        case dict() if isinstance(function := made.get("function"), dict) and isinstance(function.get("name"), str):
            rest = {key: value for key, value in made.items() if key not in {"id", "type", "function"}}
            arguments = spelled(function.get("arguments", {}))
            call_id = made["id"] if isinstance(made.get("id"), str) else draft.new_call()
            return {"id": call_id, "type": "function", "function": {**function, "arguments": arguments}, **rest}
    return made


def _answered(message: Entry, wire: WireMessage, draft: Draft) -> set[str]:
    match message:
        case {"tool_call_id": str()}:
            return set()
        case {"tool_call_ids": [str(call_id), *_]}:
            wire["tool_call_id"] = call_id
            return {"tool_call_ids"}
    if (made_up := draft.answered()) is not None:
        wire |= {"role": "tool", "tool_call_id": made_up}
    return set()
