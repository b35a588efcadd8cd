"""Content blocks as parts of wire messages: Anthropic's, which Claude Code and Cline share, pi's and Codex's."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from localctx.core.formats.conversation import Draft, Entry, Why, objects, spelled, text_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from localctx.core.outgoing import WireMessage

__all__ = ["as_blocks", "as_said", "by_assistant", "by_user", "call", "content_of", "result"]

_Part: TypeAlias = dict[str, object]


def as_blocks(content: object) -> list[Entry]:
    """A content as blocks: text is one block, and so is each text in a list."""
    listed = content if isinstance(content, list) else [content]
    texts = [{"type": "text", "text": each} if isinstance(each, str) else each for each in listed]
    return list(objects(texts))


def content_of(content: object, draft: Draft) -> str | list[_Part]:
    """A content of the wire: text where it is one text, else parts; empty where nothing can be read."""
    if isinstance(content, str):
        return content
    parts = [part for block in as_blocks(content) if (part := _part(block, draft)) is not None]
    if not parts:
        return ""
    return text_of(parts[0]["text"]) if len(parts) == 1 and parts[0]["type"] == "text" else parts


def by_user(content: object, draft: Draft) -> Iterator[WireMessage]:
    """The messages of a user's content: the results in it, each behind its call, then the user's own words."""
    if isinstance(content, str):
        yield {"role": "user", "content": content}
        return
    blocks = as_blocks(content)
    for block in blocks:
        if block.get("type") == "tool_result":
            yield result(text_of(block.get("tool_use_id")), block.get("content"), draft)
    words = content_of([block for block in blocks if block.get("type") != "tool_result"], draft)
    if words:
        yield {"role": "user", "content": words}
    elif not any(block.get("type") == "tool_result" for block in blocks):
        draft.leave("messages without content", Why.UNSENT)


def result(call_id: str, content: object, draft: Draft) -> WireMessage:
    """The message of a call's result; what a tool gave as plain values, not as blocks, is spelled as JSON."""
    values = isinstance(content, dict) or (isinstance(content, list) and not any(map(_is_block, content)))
    said = spelled(content) if content and values else content_of(content, draft)
    return {"role": "tool", "tool_call_id": call_id, "content": said}


def _is_block(value: object) -> bool:
    return isinstance(value, str) or (isinstance(value, dict) and isinstance(value.get("type"), str))


def call(call_id: str, name: object, arguments: object) -> dict[str, object]:
    """One call of the wire; arguments that are no text are spelled as JSON."""
    function = {"name": text_of(name), "arguments": spelled({} if arguments is None else arguments)}
    return {"id": call_id, "type": "function", "function": function}


def by_assistant(content: object, draft: Draft) -> Iterator[WireMessage]:
    """The one message of an assistant's content; none where nothing in it can be read."""
    blocks = as_blocks(content)
    thoughts = [text for block in blocks if (text := _thought(block, draft))]
    calls = [made for block in blocks if (made := _called(block)) is not None]
    said = content_of([block for block in blocks if block.get("type") not in _NO_WORDS], draft)
    if thoughts or calls or said:
        yield (
            {"role": "assistant", "content": as_said(said) or None}
            | ({"reasoning_content": "\n\n".join(thoughts)} if thoughts else {})
            | ({"tool_calls": calls} if calls else {})
        )
    else:
        draft.leave("messages without content", Why.UNSENT)


_THOUGHTS = ("thinking", "redacted_thinking")
_NO_WORDS = (*_THOUGHTS, "tool_use", "toolCall")


def _thought(block: Entry, draft: Draft) -> str:
    if block.get("type") not in _THOUGHTS:
        return ""
    text = text_of(block.get("thinking"))
    if not text:
        draft.leave("thoughts", Why.SEALED)
    return text


def _called(block: Entry) -> dict[str, object] | None:
    match block.get("type"):
        case "tool_use":
            return call(text_of(block.get("id")), block.get("name"), block.get("input"))
        case "toolCall":
            return call(text_of(block.get("id")), block.get("name"), block.get("arguments"))
    return None


def as_said(said: str | list[_Part]) -> object:
    """What an assistant said as one text, since few templates take parts from it; parts where not all are text."""
    if isinstance(said, str) or any(part["type"] != "text" for part in said):
        return said
    return "\n\n".join(text_of(part["text"]) for part in said)


def _part(block: Entry, draft: Draft) -> _Part | None:
    if (text := _text(block)) is not None:
        return {"type": "text", "text": text}
    part = _media(block)
    if part is None:
        kind = block.get("type")
        draft.leave_kind(kind, "blocks", Why.SEALED if kind in _SEALED else Why.UNKNOWN)
    return part


def _text(block: Entry) -> str | None:
    match block:
        case {"type": "text" | "input_text" | "output_text" | "reasoning_text", "text": str(text)}:
            return text
        case {"type": "document", "source": {"type": "text", "data": str(text)}}:
            return text
        case {"type": "file", "path": str(path), "content": str(text)}:
            return f"{path}\n{text}"
    return None


def _media(block: Entry) -> _Part | None:
    match block:
        case {"type": "image_url", "image_url": dict()} | {"type": "file", "file": dict()}:
            return dict(block)
        case {"type": "input_image", "image_url": str(url)} | {"type": "image", "source": {"url": str(url)}}:
            return _image(url)
        case {"type": "image", "source": {"media_type": str(kind), "data": str(data)}} | {
            "type": "image",
            "mimeType": str(kind),
            "data": str(data),
        }:
            return _image(_embedded(kind, data))
        case {"type": "document", "source": {"media_type": str(kind), "data": str(data)}}:
            return {"type": "file", "file": {"file_data": _embedded(kind, data)}}
    return None


def _image(url: str) -> _Part:
    return {"type": "image_url", "image_url": {"url": url}}


def _embedded(kind: str, data: str) -> str:
    return f"data:{kind};base64,{data}"


_SEALED = ("image", "input_image", "document", "encrypted_content")
"""Kinds that are known, and hold no more than a reference here or something encrypted."""
