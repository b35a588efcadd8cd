"""Codex' rollout files: a log, one entry a line, from which its history is replayed.

What was checked against files and readers up to version 0.146: `response_item` entries are the history, in the items of
the Responses API; `compacted` replaces it, by the list that it holds or, in older files, by the user's own words and a
summary; a rollback takes the last turns away. `event_msg` entries repeat for people what the items say. The base
instructions stand in the first entry; the tools are not in the file, but for those that a client added.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from localctx.core.formats.blocks import as_blocks, as_said, call, content_of
from localctx.core.formats.conversation import Conversation, Draft, Entry, Format, Why, objects, spelled, text_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from localctx.core.outgoing import WireMessage

__all__ = ["read", "recognises"]


def recognises(value: object) -> bool:
    """Whether some entry opens a rollout or holds an item of one."""
    return any(_of_rollout(entry) for entry in objects(value))


def _of_rollout(entry: Entry) -> bool:
    match entry:
        case {"type": "session_meta", "payload": {"id": str()}} | {"type": "response_item", "payload": {"type": str()}}:
            return True
    return False


def read(value: object) -> Iterator[Conversation]:
    """The one conversation of a rollout."""
    draft = Draft(Format.CODEX)
    entries = draft.objects(value)
    _opening(entries, draft)
    items = list[Entry]()
    spoken = any(_is_message(_payload(entry)) for entry in entries if entry.get("type") == "response_item")
    for entry in entries:
        items = _after(items, entry, draft, spoken=spoken)
    _write(items, draft)
    yield draft.done()


def _payload(entry: Entry) -> Entry:
    payload = entry.get("payload")
    return payload if isinstance(payload, dict) else {}


def _is_message(item: Entry) -> bool:
    return item.get("type") == "message"


def _opening(entries: Sequence[Entry], draft: Draft) -> None:
    """The base instructions and the client's tools, from the first entry that opens a session."""
    opened = next((_payload(entry) for entry in entries if entry.get("type") == "session_meta"), {})
    match opened.get("base_instructions"):
        case {"text": str(text)} | str(text) if text:
            draft.messages.append({"role": "system", "content": text})
    for tool in as_blocks(opened.get("dynamic_tools")):
        for each in (tool, *objects(tool.get("tools"))):
            _tool(each, draft)


def _tool(tool: Entry, draft: Draft) -> None:
    match tool:
        case {"type": "function", "deferLoading": True}:
            draft.leave("tools", Why.UNSENT)
        case {"type": "function", "name": str(name), "inputSchema": dict(schema)}:
            function = {"name": name, "description": text_of(tool.get("description")), "parameters": schema}
            draft.tools.append({"type": "function", "function": function})
        case {"type": "function"}:
            draft.leave("tools", Why.DAMAGED)


# --- the history --------------------------------------------------------------------------------------------------


def _after(items: list[Entry], entry: Entry, draft: Draft, *, spoken: bool) -> list[Entry]:
    """The history after one more entry; `spoken` if the words stand in items, so that events only repeat them."""
    match entry:
        case {"type": "response_item", "payload": dict(item)}:
            items.append(item)
        case {"type": "compacted", "payload": dict(compacted)}:
            draft.leave("messages", Why.REPLACED, _shown(items))
            return _compacted(items, compacted, draft)
        case {"type": "event_msg", "payload": {"type": "thread_rolled_back", "num_turns": int(turns)}}:
            return _rolled_back(items, turns, draft)
        case {"type": "event_msg", "payload": {"type": "user_message", "message": str(text)}} if not spoken:
            items.append(_item("user", text))
        case {"type": "event_msg", "payload": {"type": "agent_message", "message": str(text)}} if not spoken:
            items.append(_item("assistant", text))
        case {"type": "session_meta"}:
            pass
        case _:
            draft.leave_kind(entry.get("type"), "entries", Why.UNSENT)
    return items


def _item(role: str, text: str) -> Entry:
    return {"type": "message", "role": role, "content": [{"type": "input_text", "text": text}]}


def _shown(items: Sequence[Entry]) -> int:
    """How many messages items would make."""
    aside = Draft(Format.CODEX)
    _write(items, aside)
    return len(aside.messages)


def _compacted(items: Sequence[Entry], compacted: Entry, draft: Draft) -> list[Entry]:
    """The history after a compaction; where it holds none, what Codex made of the one before."""
    if isinstance(compacted.get("replacement_history"), list):
        return draft.objects(compacted["replacement_history"], "items")
    words = [text for item in items if _is_users(item) and (text := _text(item)) and not _is_context(text)]
    lead = [item for item in items if item.get("role") in _LEADING or _is_context(_text(item))]
    summary = text_of(compacted.get("message"))
    return [*lead, *(_item("user", text) for text in _newest(words)), _item("user", summary)]


_LEADING = ("system", "developer")
_KEPT_BYTES = 80_000
"""What Codex keeps of the user's words: 20,000 tokens of four bytes each (its `compact.rs`)."""


def _newest(texts: Sequence[str]) -> list[str]:
    """The newest texts within the bound; of the first that is too long, its head and its tail."""
    kept, room = list[str](), _KEPT_BYTES
    for text in reversed(texts):
        size = len(text.encode(errors="replace"))
        kept += [text if size <= room else f"{text[: room // 2]}…{text[-(room // 2) :]}"] if room > 1 else []
        room -= size
    return kept[::-1]


def _is_users(item: Entry) -> bool:
    return _is_message(item) and item.get("role") == "user"


def _text(item: Entry) -> str:
    return "\n".join(text_of(block.get("text")) for block in as_blocks(item.get("content"))) if _is_users(item) else ""


def _is_context(text: str) -> bool:
    """Whether a user's message was put there by Codex itself."""
    return text.startswith(("<environment_context>", "<user_instructions>", "# AGENTS.md instructions"))


def _rolled_back(items: list[Entry], turns: int, draft: Draft) -> list[Entry]:
    asked = [place for place, item in enumerate(items) if _is_users(item) and not _is_context(_text(item))]
    if turns <= 0 or not asked:
        return items
    cut = asked[max(len(asked) - turns, 0)]
    draft.leave("messages", Why.WITHDRAWN, _shown(items[cut:]))
    return items[:cut]


# --- the wire -----------------------------------------------------------------------------------------------------


def _write(items: Sequence[Entry], draft: Draft) -> None:
    chat = _Chat(draft)
    for item in items:
        chat.take(item)
    chat.finish()


class _Chat:
    """Items as messages: thoughts, text and calls that follow each other are one answer."""

    def __init__(self, draft: Draft) -> None:
        self._draft = draft
        self._thoughts: list[str] = []
        self._calls: list[dict[str, object]] = []
        self._ids: set[object] = set()
        self._answer: WireMessage | None = None

    def take(self, item: Entry) -> None:
        """Adds what an item says, or counts it as left out."""
        match item:
            case {"type": "reasoning"}:
                self._think(item)
            case {"type": "message", "role": "assistant"}:
                self._begin(as_said(content_of(item.get("content"), self._draft)) or None)
            case {"type": "message", "role": "user" | "system" | "developer" as role}:
                self._push({"role": role, "content": content_of(item.get("content"), self._draft)})
            case {"type": "agent_message"}:
                self._push({"role": "user", "content": content_of(item.get("content"), self._draft)})
            case _:
                self._tool(item)

    def finish(self) -> None:
        """Writes down thoughts that no text and no call followed."""
        if self._thoughts:
            self._begin(None)

    def _tool(self, item: Entry) -> None:
        call_id = text_of(item.get("call_id"))
        match item:
            case {"type": "function_call"}:
                self._call(call(call_id, item.get("name"), item.get("arguments")))
            case {"type": "custom_tool_call"}:
                self._call(call(call_id, item.get("name"), {"input": item.get("input")}))
            case {"type": "local_shell_call"}:
                self._call(call(call_id, "local_shell", item.get("action")))
            case {"type": "tool_search_call"}:
                self._call(call(call_id, "tool_search", item.get("arguments")))
            case {"type": "tool_search_output"}:
                self._result(call_id, spelled(item.get("tools")))
            case {"type": "function_call_output" | "custom_tool_call_output"}:
                self._result(call_id, _output(item.get("output"), self._draft))
            case _:
                kind = item.get("type")
                self._draft.leave_kind(kind, "items", Why.SEALED if kind in _SEALED else Why.UNSENT)

    def _think(self, item: Entry) -> None:
        blocks = as_blocks(item.get("content")) or as_blocks(item.get("summary"))
        texts = [text for block in blocks if (text := text_of(block.get("text")))]
        self._thoughts += texts
        if item.get("encrypted_content"):
            self._draft.leave("thoughts", Why.SEALED)

    def _call(self, made: dict[str, object]) -> None:
        if self._answer is None or made["id"] in self._ids:
            self._begin(None)
        elif self._thoughts:
            earlier = text_of(self._answer.get("reasoning_content"))
            self._answer["reasoning_content"] = "\n\n".join(filter(None, [earlier, *self._thoughts]))
            self._thoughts = []
        self._ids.add(made["id"])
        self._calls.append(made)
        self._draft.messages[-1]["tool_calls"] = self._calls

    def _begin(self, content: object) -> None:
        """Begins an answer, with the thoughts that came before it."""
        self._answer, self._calls, self._ids = {"role": "assistant", "content": content}, [], set()
        if self._thoughts:
            self._answer["reasoning_content"] = "\n\n".join(self._thoughts)
            self._thoughts = []
        self._draft.messages.append(self._answer)

    def _push(self, message: WireMessage) -> None:
        self.finish()
        self._answer = None
        self._draft.messages.append(message)

    def _result(self, call_id: str, content: object) -> None:
        self._answer = None
        self._draft.messages.append({"role": "tool", "tool_call_id": call_id, "content": content})


_SEALED = ("compaction", "compaction_summary", "context_compaction", "web_search_call", "image_generation_call")
"""Items of which the model reads more than the file holds."""


def _output(output: object, draft: Draft) -> object:
    """A result: text, or parts, or an object around either."""
    if isinstance(output, dict) and "content" in output:
        output = output["content"]
    return content_of(output, draft)
