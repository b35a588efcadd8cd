"""The journal: all that happened, an object a line, and the history as its projection.

The first line is `{"schema": 1, ...}`. Every other line is an entry: `seq` (its line's number, counted from 1 after the
header), `at` (when, UTC), `type` and the fields of the type:

* `message`: a wire message under `message`; `"complete": false` where the model's text was interrupted.
* `begin`: a rung was begun (`rung`). `commit`: the rung or the user committed an effect (`effect`; `begin` names the
  line it ends). `abort`: a begin that was never committed, closed without effect at the next open.
* anything else (`usage`, `window`, `notice`, later types) is kept and skipped.

`project` is a fold of `advance`, and a live session advances by the same function: a replay cannot differ.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias

from localctx.core.ladder import Cleared, Compacted, Effect, Stub, Withdrawn, apply
from localctx.core.messages import Checkpoint, Facts, Growing, History, Words
from localctx.core.transcript import read
from localctx.errors import JournalDamaged

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from localctx.core.messages import Item

__all__ = [
    "SCHEMA",
    "Entry",
    "advance",
    "begin",
    "check_header",
    "commit",
    "decode",
    "effect_of",
    "encode",
    "header",
    "message",
    "open_begins",
    "project",
]

SCHEMA = 1

Body: TypeAlias = "Mapping[str, object]"


@dataclass(frozen=True, slots=True)
class Entry:
    """One line of a journal: its number, when it was written (UTC, ISO 8601), its type and that type's fields."""

    seq: int
    at: str
    type: str
    body: Body = field(default_factory=dict)


def header(session: str, at: str) -> str:
    """The first line of a journal."""
    return json.dumps({"schema": SCHEMA, "session": session, "created": at})


def check_header(line: str) -> None:
    """Raises `JournalDamaged` where the first line is no header, or one of a schema that this version cannot read."""
    try:
        schema = json.loads(line)["schema"]
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise JournalDamaged(f"the first line is no journal header: {line[:60]!r}") from error
    if type(schema) is not int or schema != SCHEMA:
        raise JournalDamaged(f"the journal has schema {schema!r}, this version reads {SCHEMA}; upgrade localctx")


def encode(entry: Entry) -> str:
    """The entry as one line of JSON, without its line end; always valid UTF-8."""
    line = {"seq": entry.seq, "at": entry.at, "type": entry.type}
    line |= {name: value for name, value in entry.body.items() if name not in line}
    text = json.dumps(line, ensure_ascii=False)
    return text if _encodable(text) else json.dumps(line)


def _encodable(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def decode(line: str) -> Entry:
    """The entry of a line. Raises `JournalDamaged` where the line is no entry."""
    try:
        value = json.loads(line)
        seq, at, kind = value.pop("seq"), value.pop("at"), value.pop("type")
    except (ValueError, KeyError, AttributeError, TypeError, RecursionError) as error:
        raise JournalDamaged(f"not a journal entry: {line[:60]!r}") from error
    if not isinstance(seq, int) or not isinstance(at, str) or not isinstance(kind, str):
        raise JournalDamaged(f"not a journal entry: {line[:60]!r}")
    return Entry(seq, at, kind, value)


def message(wire: object, *, complete: bool = True) -> tuple[str, Body]:
    """The type and body of the entry that brings a wire message."""
    return "message", {"message": wire} if complete else {"message": wire, "complete": False}


def begin(rung: str) -> tuple[str, Body]:
    """The type and body of the entry that begins a rung."""
    return "begin", {"rung": rung}


def commit(effect: Effect, begun: int | None = None) -> tuple[str, Body]:
    """The type and body of the entry that commits an effect, and ends the begin on line `begun`."""
    fields = json.loads(json.dumps(asdict(effect)))  # as its line will hold it: lists, no tuples
    body = {"effect": {"kind": type(effect).__name__.lower(), **fields}}
    return "commit", body if begun is None else {**body, "begin": begun}


def advance(history: History, entry: Entry) -> History:
    """The history after one more entry. Raises `JournalDamaged` where an effect cannot be read."""
    if entry.type == "message":
        return history.add(_item(entry))
    if entry.type == "commit":
        return apply(history, effect_of(entry))
    return history


def project(entries: Iterable[Entry]) -> History:
    """The history that a journal adds up to: what advancing by each entry gives."""
    growing = Growing()
    for entry in entries:
        if entry.type == "message":
            growing.add(_item(entry))
        elif entry.type == "commit":
            growing = Growing(advance(growing.history(), entry))
    return growing.history()


def _item(entry: Entry) -> Item:
    return read(entry.body.get("message"), seq=entry.seq, complete=entry.body.get("complete") is not False)


def open_begins(entries: Iterable[Entry]) -> tuple[int, ...]:
    """The begins that were neither committed nor aborted: a rung was interrupted there."""
    begun = dict[int, None]()
    for entry in entries:
        if entry.type == "begin":
            begun[entry.seq] = None
        elif entry.type in {"commit", "abort"}:
            ended = entry.body.get("begin")
            begun.pop(ended if isinstance(ended, int) else -1, None)
    return tuple(begun)


def effect_of(entry: Entry) -> Effect:
    """The effect of a commit. Raises `JournalDamaged` where it cannot be read."""
    try:
        return _effect(entry.body["effect"])
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        raise JournalDamaged(f"journal entry {entry.seq}: its effect cannot be read ({error})") from error


def _effect(raw: object) -> Effect:
    match raw:
        case {"kind": "withdrawn", "since": int(since)}:
            return Withdrawn(since)
        case {"kind": "cleared", "stubs": list(stubs)}:
            return Cleared(tuple(_stub(each) for each in stubs))
        case {"kind": "compacted", "checkpoint": dict(checkpoint)}:
            return Compacted(_checkpoint(checkpoint))
    raise ValueError("unknown kind")


def _stub(raw: object) -> Stub:
    match raw:
        case {"seq": int(seq), "text": str(text), "call_id": (str() | None) as call_id}:
            return Stub(seq, text, call_id)
    raise ValueError("a stub needs a line and a text")


def _checkpoint(raw: dict[str, Any]) -> Checkpoint:
    facts = raw["facts"]
    lists = {name: tuple(map(str, facts[name])) for name in ("read", "modified", "commands", "sources", "errors")}
    return Checkpoint(
        through=int(raw["through"]),
        author=str(raw["author"]),
        sections=tuple((str(key), tuple(map(str, items))) for key, items in raw["sections"]),
        facts=Facts(**lists, last_action=str(facts["last_action"])),
        words=tuple(Words(int(each["seq"]), str(each["text"])) for each in raw["words"]),
        unsaid=int(raw["unsaid"]),
        shed=int(raw["shed"]),
    )
