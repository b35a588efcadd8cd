"""What of a journal can be searched, and how what was found is told to a model.

The model's window holds the end of a session; the journal holds all of it. `recall` looks there. What it and
`retrieve_tool_result` were asked and answered only repeats other lines and is left out: else the best match of a query
would be the call that asks it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from localctx.core.portions import Kind, portions
from localctx.core.transcript import FOREIGN

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from localctx.core.journal import Entry

__all__ = ["RECALL", "RETRIEVE", "Document", "Found", "documents", "told"]

RECALL = "recall"
RETRIEVE = "retrieve_tool_result"
"""The tool that reads a line of the journal whole."""

_REPEATING = {RECALL, RETRIEVE}
_KIND_CHARACTERS = 60
_QUERY_CHARACTERS = 80


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
    """What can be searched of the lines after line `after`; whatever JSON a message is, its words are found.

    The entries are those from the first on: a result is named by its call, which may stand before `after`. Reasoning
    is left out.
    """
    names = dict[str, str]()
    for entry in entries:
        if entry.type != "message":
            continue
        wire = entry.body.get("message")
        message = wire if isinstance(wire, dict) else {"role": FOREIGN, "content": wire}
        names.update(_called(message.get("tool_calls")))
        name = names.get(str(message.get("tool_call_id")), "") if message.get("role") == "tool" else ""
        text = "\n".join(_texts(message)) if entry.seq > after and name not in _REPEATING else ""
        if text.strip():
            kind = " ".join(f"{message.get('role')} {name}".split())
            yield Document(entry.seq, kind[:_KIND_CHARACTERS], text)


def _called(calls: object) -> Iterator[tuple[str, str]]:
    """The id and the tool of each call that has both."""
    for call in calls if isinstance(calls, list) else ():
        match call:
            case {"id": str(call_id), "function": {"name": str(name)}}:
                yield call_id, name


def _texts(message: Mapping[str, object]) -> Iterator[str]:
    for portion in portions({key: message.get(key) for key in ("content", "tool_calls")}):
        called = portion.text.partition(" ")[0] if portion.kind is Kind.CALL else ""
        if portion.kind in {Kind.TEXT, Kind.CALL} and called not in _REPEATING:
            yield portion.text


def told(query: str, found: Sequence[Found], *, most: int) -> str:
    """What the model reads, at most `most` characters: a line a hit, the best first, as many as find room.

    The best is first, not the newest last, because what finds no room is then what matters least; the numbers tell
    the order in time.
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
    return _cut(lines + end, most)


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else text[: max(0, most - 1)] + "…"[: max(0, most)]
