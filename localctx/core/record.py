"""What a journal tells a person: a session in figures, its compactions, and all that was said, word for word."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from itertools import dropwhile
from typing import TYPE_CHECKING, cast

from localctx.core.accounting import Totals, Usage
from localctx.core.effects import Compacted
from localctx.core.journal import Entry, effect_of, living, project
from localctx.core.messages import Message
from localctx.core.transcript import read

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from localctx.core.messages import Checkpoint
    from localctx.core.work import WorkState

__all__ = [
    "Compaction",
    "Overview",
    "Use",
    "body",
    "compactions",
    "conversation",
    "last_undo",
    "markdown",
    "overview",
    "spent",
]


@dataclass(frozen=True, slots=True)
class Use:
    """What one tool answered: how many results, the characters that it returned, and those that the model was shown."""

    tool: str
    results: int = 0
    returned: int = 0
    shown: int = 0


@dataclass(frozen=True, slots=True)
class Compaction:
    """One compaction: the journal lines of the messages that it replaced, and by what; `taken` is what it noted itself."""

    entry: Entry
    undone: bool
    replaced: tuple[int, ...]
    checkpoint: Checkpoint
    taken: Mapping[str, object]


@dataclass(frozen=True, slots=True)
class Overview:
    """A session in figures: what counts of it, how many messages and lines do not, and the body of its last `window` entry."""

    messages: int
    taken_back: int
    undone: int
    tools: tuple[Use, ...]
    window: Mapping[str, object]
    work: WorkState


def spent(entries: Iterable[Entry]) -> Totals:
    """What all replies took, those included that nobody sees any more."""
    totals = Totals()
    for entry in entries:
        if entry.type == "usage":
            totals = totals.plus(_usage(entry.body))
    return totals


def _usage(body: Mapping[str, object]) -> Usage:
    def number(name: str) -> float | None:
        value = body.get(name)
        return value if isinstance(value, (int, float)) and 0 <= value < _BEYOND else None

    def tokens(name: str) -> int | None:
        return None if (value := number(name)) is None else int(value)

    seconds = number("prefill_seconds"), number("decode_seconds")
    return Usage(tokens("prompt"), tokens("completion"), tokens("cached"), *seconds)


_BEYOND = 2**31
"""More tokens, or seconds, than any reply takes: a journal can be edited by hand."""


def conversation(entries: Iterable[Entry]) -> list[Entry]:
    """The messages that were neither undone nor withdrawn, whether or not a compaction took their place since."""
    said = list[Entry]()
    for entry in living(entries):
        match entry.body:
            case {"message": _} if entry.type == "message":
                said.append(entry)
            case {"effect": {"kind": "withdrawn", "since": int(since)}} if entry.type == "commit":
                said = [each for each in said if each.seq < since]
    return said


def overview(entries: Sequence[Entry]) -> Overview:
    """The figures of a session whose entries are sound."""
    said, counted = conversation(entries), {entry.seq for entry in living(entries)}
    return Overview(
        messages=len(said),
        taken_back=sum(entry.type == "message" for entry in entries) - len(said),
        undone=sum(entry.seq not in counted and entry.type != "undo" for entry in entries),
        tools=_uses(said),
        window=next((entry.body for entry in reversed(entries) if entry.type == "window"), {}),
        work=project(entries).work,
    )


def _uses(said: Iterable[Entry]) -> tuple[Use, ...]:
    """What the tools answered, the one that returned most first."""
    uses = dict[str, Use]()
    for entry in said:
        match entry.body:
            case {"message": {"role": "tool"}, "tool": str(tool)}:
                size, old = entry.body.get("size"), uses.get(tool, Use(tool))
                returned = old.returned + (size if isinstance(size, int) else 0)
                uses[tool] = Use(tool, old.results + 1, returned, old.shown + _shown(entry))
    return tuple(sorted(uses.values(), key=lambda use: (-use.returned, -use.shown, use.tool)))


def _shown(entry: Entry) -> int:
    """The characters of a message's text, which may be a file of its own."""
    match entry.body:
        case {"bodies": {"content": {"characters": int(characters)}}}:
            return characters
        case {"message": {"content": str(text)}}:
            return len(text)
    return 0


def compactions(entries: Sequence[Entry]) -> list[Compaction]:
    """All compactions, also those that were undone; the entries are sound."""
    counted, found = {entry.seq for entry in living(entries)}, list[Compaction]()
    for index, entry in enumerate(entries):
        if checkpoint := _checkpoint(entry):
            replaced, taken = _replaced(entries[:index], checkpoint.through), entry.body.get("taken")
            noted = taken if isinstance(taken, dict) else {}
            found.append(Compaction(entry, entry.seq not in counted, replaced, checkpoint, noted))
    return found


def _checkpoint(entry: Entry) -> Checkpoint | None:
    effect = effect_of(entry) if entry.type == "commit" else None
    return effect.checkpoint if isinstance(effect, Compacted) else None


def _replaced(before: Sequence[Entry], through: int) -> tuple[int, ...]:
    """The messages up to line `through` that stood for themselves until then; the system's first words stay."""
    earlier = [checkpoint.through for entry in living(before) if (checkpoint := _checkpoint(entry))]
    said = dropwhile(_is_system, conversation(before))
    return tuple(entry.seq for entry in said if (earlier or [0])[-1] < entry.seq <= through)


def _is_system(entry: Entry) -> bool:
    item = read(entry.body.get("message"))
    return isinstance(item, Message) and item.role in {"system", "developer"}


def last_undo(entries: Sequence[Entry]) -> Entry | None:
    """The last undo that stands, before which a redo goes back; None where something came after it that this would take."""
    undos = {entry.seq: cast("int", entry.body["to"]) for entry in entries if entry.type == "undo"}
    end = entries[-1].seq + 1 if entries else 0
    for entry in reversed(entries):
        if entry.seq < end and entry.type in {"message", "commit", "work"}:
            return None
        if entry.seq < end and entry.seq in undos:
            if undos[entry.seq] not in undos:
                return entry
            end = undos[entry.seq]
    return None


def markdown(title: str, said: Iterable[tuple[str, object]]) -> str:
    """Wire messages as Markdown, each with a note for its heading; whatever JSON they are, nothing is left out."""
    parts, names = [f"# {title}"], dict[object, str]()
    for note, message in said:
        wire = message if isinstance(message, dict) else {}
        names |= {call_id: name for call_id, name, _ in map(_called, _listed(wire.get("tool_calls")))}
        role, call_id = str(wire.get("role", "no message")), str(wire.get("tool_call_id", ""))
        heading = f"Result of {names.get(call_id, 'a call')} {call_id}" if role == "tool" else role.capitalize()
        parts += [f"## {' '.join(f'{heading} {note}'.split())}", body(message)]
    return "\n\n".join(part for part in parts if part) + "\n"


def body(message: object) -> str:
    """One wire message as Markdown: its texts as they are, thinking folded away, results, calls and all else in fences."""
    return "\n\n".join(_blocks(message if isinstance(message, dict) else {"content": message}))


def _blocks(wire: Mapping[str, object]) -> Iterator[str]:
    if thinking := wire.get("reasoning_content"):
        yield f"<details><summary>Thinking</summary>\n\n{_fenced(thinking)}\n\n</details>"
    for part in _listed(wire.get("content")):
        match part:
            case str(text) | {"type": "text", "text": str(text)} if wire.get("role") != "tool" and not _is_open(text):
                yield text
            case _:
                yield _fenced(part)
    for call_id, name, arguments in map(_called, _listed(wire.get("tool_calls"))):
        yield f"Calls {' '.join(f'{name} {call_id}'.split())}:\n\n{_fenced(arguments)}"
    known = {"role", "content", "reasoning_content", "tool_calls", "tool_call_id"}
    if rest := {key: value for key, value in wire.items() if key not in known}:
        yield _fenced(rest)


def _listed(value: object) -> list[object]:
    return value if isinstance(value, list) else [value] if value else []


def _called(call: object) -> tuple[str, str, object]:
    """The id, the tool and the arguments of a call; of anything else all of it."""
    match call:
        case {"id": str(call_id), "function": {"name": str(name), "arguments": arguments}}:
            return call_id, name, arguments
    return "", "", call


def _fenced(value: object) -> str:
    """A text, or any value as JSON, between fences longer than any in it."""
    text, kind = (value, "") if isinstance(value, str) else (json.dumps(value, ensure_ascii=False, indent=1), "json")
    fence = "`" * max(3, 1 + max(map(len, re.findall("`+", text)), default=0))
    return f"{fence}{kind}\n{text}\n{fence}"


def _is_open(text: str) -> bool:
    """Whether a fence in a text has no end, and would take in what follows it."""
    return len(re.findall(r"^ {0,3}(?:```|~~~)", text, re.MULTILINE)) % 2 == 1
