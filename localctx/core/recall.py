"""What of a journal can be searched, and how what was found is told to a model.

What `recall` itself was asked and answered is left out, since it only repeats other lines: else the best match of a
query would be the call that asks it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from localctx.core.portions import Kind, portions
from localctx.core.results import RECALL, RETRIEVE
from localctx.core.transcript import FOREIGN

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from localctx.core.journal import Entry

__all__ = ["Document", "Found", "documents", "told"]

_KIND_CHARACTERS, _QUERY_CHARACTERS = 60, 80
_ESCAPE, _MEANT = re.compile(r"\\(?:u([0-9a-fA-F]{4})|(.))"), {"n": "\n", "r": "\n", "t": "\t"}
"""JSON's escapes: undone, else the word behind a line end would begin with an n."""


@dataclass(frozen=True, slots=True)
class Document:
    """The text of one message: the journal line `seq` that holds it, and who spoke (`user`, `tool read_file`)."""

    seq: int
    kind: str
    text: str


@dataclass(frozen=True, slots=True)
class Found:
    """A document that matches, and about 280 characters of it on one line, with ellipses where it goes on."""

    seq: int
    kind: str
    excerpt: str


def documents(entries: Iterable[Entry], after: int = 0) -> Iterator[Document]:
    """What can be searched of the lines after line `after`, reasoning left out; any JSON value is a message.

    The entries are those from the first on: a result is named by its call, which may stand before `after`.
    """
    names = dict[str, str]()
    for entry in (each for each in entries if each.type == "message"):
        wire = entry.body.get("message")
        message = wire if isinstance(wire, dict) else {"role": FOREIGN, "content": wire}
        names.update(_called(message.get("tool_calls")))
        name = names.get(str(message.get("tool_call_id")), "") if message.get("role") == "tool" else ""
        text = "\n".join(_texts(message)) if entry.seq > after and name != RECALL else ""
        if text.strip():
            yield Document(entry.seq, " ".join(f"{message.get('role')} {name}".split())[:_KIND_CHARACTERS], text)


def _called(calls: object) -> Iterator[tuple[str, str]]:
    """The id and the tool of each call that has both."""
    for call in calls if isinstance(calls, list) else ():
        match call:
            case {"id": str(call_id), "function": {"name": str(name)}}:
                yield call_id, name


def _texts(message: Mapping[str, object]) -> Iterator[str]:
    for portion in portions({key: message.get(key) for key in ("content", "tool_calls")}):
        if portion.kind is Kind.TEXT:
            yield portion.text
        elif portion.kind is Kind.CALL and not portion.text.startswith(f"{RECALL} "):
            yield _ESCAPE.sub(lambda it: chr(int(it[1], 16)) if it[1] else _MEANT.get(it[2], it[2]), portion.text)


def told(query: str, found: Sequence[Found], *, most: int) -> str:
    """What the model reads, at most `most` characters: a line a hit, as many as find room, the best first.

    So what finds no room matters least; the order in time can be told from the numbers.
    """
    if not found:
        asked = _cut(" ".join(query.split()), _QUERY_CHARACTERS)
        return _cut(f"nothing found for '{asked}'; try other words: a name, a path, a number, part of an error", most)
    end = f"(best match first; to read one whole, call {RETRIEVE} with its number, such as {found[0].seq})"
    lines, room = "", most - len(end)
    for each in found:
        line = f"#{each.seq} {each.kind}: {each.excerpt}\n"
        if lines and len(lines) + len(line) > room:
            break
        lines += line if len(line) <= room else _cut(line, room - 1) + "\n"
    return _cut((lines + end).strip(), most)


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else text[: max(0, most - 1)] + "…"[: max(0, most)]
