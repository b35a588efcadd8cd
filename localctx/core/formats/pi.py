"""pi's session files and those of its kin (omp, OpenClaw, Droid): a tree of entries, one a line, under `message`.

A compaction holds its summary and the id of the first entry that it kept. The system prompt and the tools are not in
the file.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from localctx.core.formats.blocks import by_assistant, by_user, result
from localctx.core.formats.branches import branch, keyed, parents, with_nameless
from localctx.core.formats.conversation import Conversation, Draft, Entry, Format, Why, objects, text_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

__all__ = ["read", "recognises"]


def recognises(value: object) -> bool:
    """Whether some entry is a message of a session."""
    return any(_speaks(entry) for entry in objects(value))


def read(value: object) -> Iterator[Conversation]:
    """The one conversation of a session."""
    draft = Draft(Format.PI)
    entries = draft.objects(value)
    known = keyed([entry for entry in entries if entry.get("type") != "session"], "id")
    draft.leave("entries", Why.DOUBLED, sum(entry.get("type") != "session" for entry in entries) - len(known))
    seen = set[str]()
    chain = with_nameless(branch(next(reversed(known), None), parents(known, "parentId"), seen), known, seen)
    for entry in _read_next([(key, known[key]) for key in chain], draft):
        draft.messages += _said(entry, draft)
    _leave([entry for key, entry in known.items() if key not in seen], Why.BRANCH, draft)
    yield draft.done()


def _speaks(entry: Entry) -> bool:
    match entry:
        case {"type": "message", "message": {"role": str(), "content": str() | list()}}:
            return True
        case {"type": "message", "message": {"role": "bashExecution"}}:
            return True
    return False


def _read_next(chain: list[tuple[str, Entry]], draft: Draft) -> list[Entry]:
    """The last compaction, what it kept, and what followed; everything where there is none."""
    entries = [entry for _, entry in chain]
    places = [place for place, entry in enumerate(entries) if entry.get("type") == "compaction"]
    if not places:
        return entries
    cut, keys = places[-1], [key for key, _ in chain]
    first = text_of(entries[cut].get("firstKeptEntryId"))
    kept = keys.index(first) if first in keys[:cut] else cut
    lasting = [entry for entry in entries[kept:cut] if entry.get("type") != "compaction"]
    _leave(entries[:kept], Why.REPLACED, draft)
    return [entries[cut], *lasting, *entries[cut + 1 :]]


def _leave(entries: Iterable[Entry], why: Why, draft: Draft) -> None:
    for entry in entries:
        if _speaks(entry):
            draft.leave("messages", why)
        else:
            draft.leave_kind(entry.get("type"), "entries", why)


def _said(entry: Entry, draft: Draft) -> Iterator[dict[str, object]]:
    match entry:
        case {"type": "message", "message": dict(message)}:
            yield from _message(message, draft)
        case {"type": "compaction" | "branch_summary", "summary": str(text)}:
            yield {"role": "user", "content": text}
        case {"type": "custom_message", "content": str() | list() as content}:
            yield from by_user(content, draft)
        case _:
            draft.leave_kind(entry.get("type"), "entries", Why.UNSENT)


def _message(message: Entry, draft: Draft) -> Iterator[dict[str, object]]:
    match message:
        case {"role": "assistant", "content": content}:
            yield from by_assistant(content, draft)
        case {"role": "toolResult", "toolCallId": call_id, "content": content}:
            yield result(text_of(call_id), content, draft)
        case {"role": "bashExecution", "excludeFromContext": True}:
            draft.leave("commands", Why.UNSENT)
        case {"role": "bashExecution", "command": str(command), "output": str(output)}:
            yield {"role": "user", "content": f"{command}\n{output}"}
        case {"role": "user" | "custom", "content": content}:
            yield from by_user(content, draft)
        case {"role": "compactionSummary" | "branchSummary", "summary": str(text)}:
            yield {"role": "user", "content": text}
        case _:
            draft.leave("messages", Why.DAMAGED)
