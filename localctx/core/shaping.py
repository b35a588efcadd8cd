"""What a tool answered, shaped for a model before it enters the history: no noise, and no more than its budget.

The figures and the fields are the seed's. Unlike there, logs keep their tail as well, since errors stand at the end, and
characters are kept where whole lines or entries would leave next to nothing.
"""

from __future__ import annotations

import json
import re
from itertools import accumulate, takewhile
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["shaped"]

Value: TypeAlias = Any
"""An object or array of JSON, or a text. What cannot be read as JSON and written again (too deep, NaN) is a text."""

Fields: TypeAlias = "Mapping[str, Fields]"
"""Names of fields, each with the fields in it that are meant; none in it means the field itself."""


def _fields(*names: str, **within: Fields) -> Fields:
    return {**{name: {} for name in names}, **within}


_NOISE: Mapping[str, Fields] = {
    "grep": _fields(
        *("pattern", "recursive", "regex", "ignoreCase", "filePattern", "exclude", "excludeDir"),
        *("contextLines", "outputMode", "totalFound", "message", "backend"),
    ),
    "read_file": _fields("encoding"),
    "edit_file": _fields("totalEdits", "fullDiff", "wasTruncated"),
    "write_file": _fields("totalEdits", "fullDiff", "wasTruncated"),
    "ls": _fields("name"),
    "find": _fields("name"),
    "read_pdf": _fields("fileType", "totalLines", "pagesExtracted", "tables"),
    "execute_command": _fields("command", "success"),
    "http_request": _fields("request", response=_fields("elapsedMs", "truncated")),
    "web_search": _fields("query", "provider", "timestamp", "totalResults", results=_fields("source")),
}
"""By tool: the request repeated, counters, and what another field says too."""

_SAID_BY = {"name": "path", "tables": "content"}
"""Fields that are noise only beside the one that says the same."""

_NARROW, _MIDDLE, _WIDE = 12_000, 16_000, 24_000
_LONG_TEXT, _LONG_FIELD, _MANY = 4_000, 2_000, 100
"""Above these a text, a text in a field, and an array get a wider budget."""

_TEXTS = ("content", "diff", "stdout", "stderr", "body", "text")
_ARRAYS = ("matches", "commits", "lines", "results", "files", "counts", "summary", "items", "entries", "todos")
"""The fields of an object that may be shortened, in this order."""

_SHORT_TEXT, _LEAST, _SHORT_ARRAY, _FEW = 1_000, 500, 200, 5
"""In a field: the longest text that stays, what stays of a longer one, and the arrays that stay, by characters or items."""

_LOG_NAMES = ("command", "shell", "bash", "exec", "test", "log")
_LOG_FIELDS = ("stdout", "stderr")

_NOTE = re.compile(r"\[(\d+ more items|(\d+ more lines|\d+ lines left out here|truncated), \d+ chars total)]")
"""A text with a note was cut before, when its budget may have been wider; a hard cut takes one character more than that."""

_NOTE_ROOM = 60

_json = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode


def shaped(tool: str, body: str) -> str:
    """The body of a tool's result without what the model knows already, cut where it is still over its budget.

    `body` is any text; one that is a JSON object or array is shaped as such. A cut says how much is missing, and is never
    longer than the body; a JSON value stays one unless only characters of it could be kept. Shaping twice changes nothing
    more, and what needs no change comes back as it is. Skills are never cut.
    """
    try:
        value = json.loads(body)
        return _shaped(tool, body, value if isinstance(value, dict | list) else body)
    except (ValueError, RecursionError):
        return _shaped(tool, body, body)


def _shaped(tool: str, body: str, value: Value) -> str:
    text = min(_json(value), body, key=len) if _strip(value, _NOISE.get(tool, {})) else body
    limit = _budget(value)
    cut_before = len(text) <= _WIDE + 1 and _NOTE.search(text)
    if len(text) <= limit or cut_before or tool.startswith("load_skill"):
        return text
    log = any(name in tool.lower() for name in _LOG_NAMES)
    if value is not body:
        text = _json(value)
        if len(text) <= limit:
            return text
        array, over = isinstance(value, list), len(text) - limit
        short = _json(_cut_array(value, limit) if array else _cut_fields(value, over, log=log))
        if len(short) <= limit:
            return short
    return _cut_text(text, limit, log=log)


def _strip(value: Value, fields: Fields) -> bool:
    """Removes the fields from an object, or from the objects of an array. Whether there were any."""
    found = False
    for item in value if isinstance(value, list) else (value,):
        for name in item.keys() & fields.keys() if isinstance(item, dict) else ():
            if fields[name]:
                found |= _strip(item[name], fields[name])
            elif name not in _SAID_BY or item.get(_SAID_BY[name]):
                del item[name]
                found = True
    return found


def _budget(value: Value) -> int:
    """The most characters that a value may take."""
    if isinstance(value, str):
        return _WIDE if len(value) > _LONG_TEXT else _NARROW
    if isinstance(value, list):
        return _WIDE if len(value) > _MANY else _MIDDLE

    def has(names: tuple[str, ...], kind: type, least: int) -> bool:
        return any(isinstance(value.get(name), kind) and len(value[name]) > least for name in names)

    return _WIDE if has(_TEXTS, str, _LONG_FIELD) else _MIDDLE if has(_ARRAYS, list, _MANY) else _NARROW


def _cut_fields(value: dict[str, Any], over: int, *, log: bool) -> dict[str, Any]:
    """The object less `over` characters, one known field after another shortened, as far as that goes."""
    for name in (*_TEXTS, *_ARRAYS):
        if over > 0 and name in value:
            size = len(_json(value[name]))
            value[name] = _shorter(value[name], size, size - over, log=log or name in _LOG_FIELDS)
            over -= size - len(_json(value[name]))
    return value


def _shorter(field: Value, size: int, limit: int, *, log: bool) -> Value:
    """A long text or array, of `size` as JSON, cut to `limit` as far as it may be; anything else as it is."""
    if isinstance(field, list) and len(field) > _FEW and size > _SHORT_ARRAY:
        return _cut_array(field, limit)
    if not isinstance(field, str) or len(field) <= _SHORT_TEXT:
        return field
    room = min(limit, len(field))
    while (written := len(_json(cut := _cut_text(field, max(room, _LEAST), log=log)))) > limit and room > _LEAST:
        room = room * limit // written - 1
    return cut


def _cut_array(array: list[Any], limit: int) -> list[Any]:
    """The first entries, at least one, and how many more there are."""
    room = limit - len(_json([f"[{len(array)} more items]"]))
    sizes = accumulate(len(_json(entry)) + 1 for entry in array)
    kept = max(sum(1 for _ in takewhile(lambda size: size <= room, sizes)), 1)
    return [*array[:kept], f"[{len(array) - kept} more items]"]


def _cut_text(text: str, limit: int, *, log: bool) -> str:
    """The head of a text, or of a log its head and tail, with a note in place of the rest."""
    total = f"{len(text)} chars total]"
    if log:
        room = (limit - _NOTE_ROOM) // 2
        head = _lines(text[:room]) or text[:room]
        tail = _lines(text[: -room - 1 : -1])[::-1] or text[-room:]
        missing = text.count("\n", len(head), len(text) - len(tail)) - 1
        return f"{head}\n[{f'{missing} lines left out here' if missing > 0 else 'truncated'}, {total}\n{tail}"
    if head := _lines(text[: limit - _NOTE_ROOM]):
        missing = text.count("\n", len(head) + 1) + (not text.endswith("\n"))
        return f"{head}\n[{missing} more lines, {total}"
    note = f"\n[truncated, {total}"
    return text[: limit + 1 - len(note)] + note


def _lines(piece: str) -> str:
    """The whole lines at the beginning of a piece of a text; nothing where that would be less than half of it."""
    end = piece.rfind("\n")
    return piece[:end] if end > len(piece) // 2 else ""
