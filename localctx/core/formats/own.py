"""The journal of a session of localctx itself, read by what replays it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from localctx.core.effects import Cleared, Compacted
from localctx.core.formats.conversation import Conversation, Draft, Format, Why, objects
from localctx.core.journal import SCHEMA, Entry, advance, effect_of
from localctx.core.messages import History
from localctx.core.outgoing import outgoing
from localctx.errors import JournalDamaged

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["read", "recognises"]


def recognises(value: object) -> bool:
    """Whether the first line is the header of a journal that this version can read."""
    match next(objects(value), None):
        case {"schema": int(schema), "session": str(), "created": str()}:
            return schema == SCHEMA
    return False


def read(value: object) -> Iterator[Conversation]:
    """What the session would send next, after its last effect."""
    draft, history = Draft(Format.LOCALCTX), History()
    for fields in draft.objects(value, "lines"):
        match fields:
            case {"seq": int(seq), "at": str(at), "type": str(kind)}:
                body = {key: each for key, each in fields.items() if key not in {"seq", "at", "type"}}
                history = _after(history, Entry(seq, at, kind, body), draft)
            case {"schema": _}:
                pass
            case _:
                draft.leave("lines", Why.DAMAGED)
    draft.messages += outgoing(history)
    yield draft.done()


def _after(history: History, entry: Entry, draft: Draft) -> History:
    """The history after one more entry; one that cannot be replayed changes nothing and is counted."""
    if entry.type not in {"message", "commit"}:
        draft.leave_kind(entry.type, "entries", Why.UNSENT)
    try:
        after = advance(history, entry)
    except JournalDamaged:
        draft.leave("effects", Why.DAMAGED)
        return history
    if entry.type == "commit":
        _count_gone(history, after, entry, draft)
    return after


def _count_gone(before: History, after: History, entry: Entry, draft: Draft) -> None:
    match effect_of(entry):
        case Cleared(stubs):
            draft.leave("bodies", Why.CLEARED, len(stubs))
        case Compacted():
            draft.leave("messages", Why.REPLACED, before.messages() - after.messages())
        case _:
            draft.leave("messages", Why.WITHDRAWN, before.messages() - after.messages())
