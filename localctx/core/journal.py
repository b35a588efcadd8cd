"""The journal: all that happened, an object a line, and the history as its projection.

The first line is `{"schema": 1, ...}`. Every other line is an entry: `seq` (its line's number, counted from 1 after the
header), `at` (when, UTC), `type` and the fields of the type:

* `message`: a wire message under `message`; `"complete": false` where the model's text was interrupted. The result of a
  tool has `tool` (its name), `size` (the characters that the tool returned), `whole` (what it returned, where the
  message holds less of it) and `provenance`, where the text is not from this machine's user.
* `begin`: a rung was begun (`rung`). `commit`: the rung or the user committed an effect (`effect`; `begin` names the
  line it ends, `taken` says what it did). `abort`: a begin that was never committed, closed without effect at the next open.
* `work`: the work state was patched (`patch`), or cleared (`patch` is null).
* `undo`: all is as it was before line `to`. An undo of an undo brings back what that one took.
* anything else (`usage`, `window`, `notice`, later types) is kept and skipped.

`project` is a fold of `advance` over the lines that count, and a live session advances by the same function: a replay
cannot differ.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any, TypeAlias

from localctx.core.effects import Cleared, Compacted, Effect, Stub, Withdrawn, apply
from localctx.core.messages import Checkpoint, Facts, Growing, History, Mark, Words
from localctx.core.transcript import read
from localctx.core.work import WorkState, patched
from localctx.errors import JournalDamaged

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

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
    "entry_of",
    "header",
    "last_asked",
    "living",
    "message",
    "open_begins",
    "project",
    "undo",
    "work",
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


def header(session: str, at: str, *, forked_from: str | None = None) -> str:
    """The first line of a journal; `forked_from` is the session whose lines it began with."""
    origin = {} if forked_from is None else {"forked_from": forked_from}
    return json.dumps({"schema": SCHEMA, "session": session, "created": at, **origin})


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
        return entry_of(json.loads(line))
    except (ValueError, RecursionError, JournalDamaged) as error:
        raise JournalDamaged(f"not a journal entry: {line[:60]!r}") from error


def entry_of(value: Any) -> Entry:  # noqa: ANN401  any JSON value
    """The entry that a line's JSON value is. Raises `JournalDamaged` where it is none."""
    if isinstance(value, dict):
        body = dict(value)
        seq, at, kind = body.pop("seq", None), body.pop("at", None), body.pop("type", None)
        if isinstance(seq, int) and isinstance(at, str) and isinstance(kind, str):
            return Entry(seq, at, kind, body)
    raise JournalDamaged("not a journal entry")


def message(wire: object, *, complete: bool = True) -> tuple[str, Body]:
    """The type and body of the entry that brings a wire message."""
    return "message", {"message": wire} if complete else {"message": wire, "complete": False}


def begin(rung: str) -> tuple[str, Body]:
    """The type and body of the entry that begins a rung."""
    return "begin", {"rung": rung}


def commit(effect: Effect, begun: int | None = None, taken: Body | None = None) -> tuple[str, Body]:
    """The type and body of the entry that commits an effect, and ends the begin on line `begun`.

    `taken` is what a person may want to know of it: why, how, sizes before and after.
    """
    fields = json.loads(json.dumps(asdict(effect)))  # as its line will hold it: lists, no tuples
    body = {"effect": {"kind": type(effect).__name__.lower(), **fields}}
    more = {"begin": begun, "taken": None if taken is None else dict(taken)}
    return "commit", body | {name: value for name, value in more.items() if value is not None}


def work(patch: Body | None) -> tuple[str, Body]:
    """The type and body of the entry that patches the work state, or clears it."""
    return "work", {"patch": None if patch is None else dict(patch)}


def undo(to: int) -> tuple[str, Body]:
    """The type and body of the entry after which all is as it was before line `to`."""
    return "undo", {"to": to}


def advance(history: History, entry: Entry) -> History:
    """The history after one more entry, which is no undo. Raises `JournalDamaged` where an effect cannot be read."""
    match entry.type:
        case "message":
            return history.add(_item(entry))
        case "commit":
            return apply(history, effect_of(entry))
        case "work":
            return _worked(history, entry.body.get("patch"))
    return history


def _worked(history: History, patch: object) -> History:
    """The history with its work state patched, or cleared, also in its checkpoint; a patch that cannot be read is none."""
    if patch is None:
        checkpoint = history.checkpoint and replace(history.checkpoint, work="")
        return replace(history, work=WorkState(), checkpoint=checkpoint)
    try:
        return replace(history, work=patched(history.work, patch if isinstance(patch, dict) else {}))
    except ValueError:
        return history


def project(entries: Iterable[Entry]) -> History:
    """The history that a journal adds up to: what advancing by each entry that counts gives.

    `entries` is read again where something was undone.
    """
    growing = Growing()
    for entry in entries:
        if entry.type == "message":
            growing.add(_item(entry))
        elif entry.type in {"commit", "work"}:
            growing = Growing(advance(growing.history(), entry))
        elif entry.type == "undo":
            return project(living(entries))
    return growing.history()


def living(entries: Iterable[Entry]) -> Iterator[Entry]:
    """The entries that count, in order: none that was undone, and no undo. `entries` is read twice."""
    gone, end = list[range](), None
    undone = [(entry.seq, _to(entry)) for entry in entries if entry.type == "undo"]
    for seq, to in reversed(undone):
        if end is None or seq < end:
            gone.append(range(to, seq + 1))
            end = to
    for entry in entries:
        while gone and entry.seq >= gone[-1].stop:
            gone.pop()
        if not gone or entry.seq not in gone[-1]:
            yield entry


def _to(entry: Entry) -> int:
    to = entry.body.get("to")
    if type(to) is not int or not 0 < to < entry.seq:
        raise JournalDamaged(f"journal entry {entry.seq}: it undoes nothing that was before it ({to!r})", entry.seq)
    return to


def last_asked(entries: Iterable[Entry]) -> Entry | None:
    """The last message of the user that counts and was not withdrawn; what an undo goes back to."""
    asked = list[Entry]()
    for entry in living(entries):
        match entry.body:
            case {"message": {"role": "user"}} if entry.type == "message":
                asked.append(entry)
            case {"effect": {"kind": "withdrawn", "since": int(since)}} if entry.type == "commit":
                asked = [each for each in asked if each.seq < since]
    return asked[-1] if asked else None


def _item(entry: Entry) -> Item:
    try:
        return read(entry.body.get("message"), seq=entry.seq, complete=entry.body.get("complete") is not False)
    except RecursionError as error:
        raise JournalDamaged(f"journal entry {entry.seq}: its message is nested too deeply", entry.seq) from error


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
        raise JournalDamaged(f"journal entry {entry.seq}: its effect cannot be read ({error})", entry.seq) from error


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
        work=str(raw.get("work", "")),
        shed=int(raw["shed"]),
        marks=tuple(map(_mark, raw.get("marks", ()))),
    )


def _mark(raw: object) -> Mark:
    match raw:
        case {"through": int(through), "facts": [int(), int(), int(), int(), int()] as facts}:
            return Mark(through, tuple(facts))
    raise ValueError("a mark needs a line and the length of each list of facts")
