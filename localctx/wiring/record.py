"""What is on record: reading saved sessions, and changing them while nobody else has them open."""

from __future__ import annotations

import os
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from localctx.app.session import Session
from localctx.core.checkpoint import render
from localctx.core.effects import Compacted
from localctx.core.journal import Entry, effect_of, living, project, undo
from localctx.core.outgoing import outgoing
from localctx.core.record import compactions as compactions_of
from localctx.core.record import conversation, last_undo, overview
from localctx.core.transcript import words
from localctx.core.work import as_json
from localctx.errors import JournalDamaged, Misuse, StoreUnusable
from localctx.stores.files import lock, open_file, unusable
from localctx.stores.journal import in_file
from localctx.stores.sessions import header_of, keep_state
from localctx.wiring.places import located, sessions

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from localctx.stores.journal import FileJournal, Lines

__all__ = [
    "Changed",
    "Kept",
    "bring_back",
    "clear_work",
    "compactions",
    "figures",
    "messages",
    "next_messages",
    "read",
    "removable",
    "save",
    "sessions",
    "take_back",
]


@dataclass(frozen=True, slots=True)
class Kept:
    """A session as it is on disk: the entries before the first that cannot be read, and what is wrong with that one.

    `written` is when that was last (UTC, ISO 8601; empty where nobody knows), `lines` finds the whole text of a result.
    """

    name: str
    folder: Path
    header: Mapping[str, object]
    written: str
    size_bytes: int
    entries: Sequence[Entry]
    damage: JournalDamaged | None
    lines: Lines


@dataclass(frozen=True, slots=True)
class Changed:
    """What an undo took back, or a redo brought back: the user's words, and how many messages and compactions."""

    name: str
    words: str
    messages: int
    compactions: int


def read(name: str | None = None, *, texts: bool = False) -> Kept:
    """A session (the newest without a name), beside whoever writes it; with `texts`, long results are whole.

    Raises `NothingFound`, `StoreUnusable`.
    """
    found = sessions().read(name)
    entries, damage = _sound(found if texts else found.bare(), found.path)
    folder = found.path.parent
    try:
        written = datetime.fromtimestamp(found.path.stat().st_mtime, UTC).isoformat(timespec="seconds")
    except (OSError, ValueError, OverflowError):
        written = ""
    return Kept(folder.name, folder, header_of(found.path), written, _size(folder), entries, damage, found)


def _size(folder: Path) -> int:
    """The bytes of all files in a folder and below it; one that goes meanwhile takes none."""
    size = 0
    for each in folder.rglob("*"):
        with suppress(OSError):
            size += 0 if each.is_dir() else each.lstat().st_size
    return size


def _sound(entries: Iterable[Entry], path: Path) -> tuple[list[Entry], JournalDamaged | None]:
    kept = list[Entry]()
    try:
        for entry in entries:
            project([entry])
            kept.append(entry)
    except JournalDamaged as damage:
        return kept, in_file(path, damage)
    return kept, None


def figures(kept: Kept) -> dict[str, Any]:
    """A session in figures: what counts of it, what was taken back, who answered last, and where it is."""
    seen, made = overview(kept.entries), _compacted(living(kept.entries))
    return {
        "created": kept.header.get("created"),
        "forked_from": kept.header.get("forked_from"),
        "written": kept.written,
        "model": seen.window.get("model"),
        "window": seen.window.get("tokens"),
        "confidence": seen.window.get("confidence"),
        "messages": seen.messages,
        "messages_taken_back": seen.taken_back,
        "compactions": made,
        "compactions_undone": _compacted(kept.entries) - made,
        "lines": len(kept.entries),
        "lines_undone": seen.undone,
        "size_bytes": kept.size_bytes,
        "folder": str(kept.folder),
        "tools": [asdict(each) for each in seen.tools],
        "work": as_json(seen.work),
        "trouble": str(kept.damage) if kept.damage else None,
    }


def compactions(kept: Kept) -> list[dict[str, Any]]:
    """Each compaction: its journal line, what it replaced, what it noted itself, and its summary as the model read it."""
    return [
        {
            "line": each.entry.seq,
            "at": each.entry.at,
            "undone": each.undone,
            "replaced_messages": len(each.replaced),
            "replaced_from": each.replaced[0] if each.replaced else None,
            "replaced_to": each.replaced[-1] if each.replaced else None,
            **{name: each.taken.get(name) for name in ("rung", "tokens_before", "tokens_after", "seconds", "why")},
            "author": each.checkpoint.author,
            "summary": render(each.checkpoint),
        }
        for each in compactions_of(kept.entries)
    ]


def messages(kept: Kept) -> list[tuple[str, object]]:
    """All that was said and counts, each message with the place of it."""
    return [(_place(entry), entry.body.get("message")) for entry in conversation(kept.entries)]


def _place(entry: Entry) -> str:
    return f"(line {entry.seq}{', interrupted' if entry.body.get('complete') is False else ''})"


def next_messages(kept: Kept) -> list[tuple[str, object]]:
    """What the model would read next; its messages have no place."""
    return [("", message) for message in outgoing(project(kept.entries))]


def take_back(name: str | None = None) -> Changed:
    """Takes back the last thing that the user said and all that came of it. Raises `Misuse` where nothing was said."""
    with _opened(name) as (journal, session):
        before = list(journal.entries())
        said = session.undo()
        if said is None:
            raise Misuse(f"session {journal.name} has nothing to take back: the user said nothing that still counts")
        return _changed(journal.name, words(said), before, list(journal.entries()))


def bring_back(name: str | None = None) -> Changed:
    """Brings back what the last undo took. Raises `Misuse` where none stands, or the session went on since."""
    with _opened(name) as (journal, _):
        before = list(journal.entries())
        if (undone := last_undo(before)) is None:
            why = "nothing was undone, or it went on since"
            raise Misuse(f"session {journal.name} has nothing to bring back: {why}; see localctx sessions show")
        journal.append(*undo(undone.seq), sync=True)
        after = list(journal.entries())
        keep_state(sessions().state_file(journal.name), project(after).work)
        asked = next((entry for entry in before if entry.seq == undone.body["to"]), undone)
        return _changed(journal.name, words(asked.body.get("message")), after, before)


def _changed(name: str, said: str, more: Sequence[Entry], less: Sequence[Entry]) -> Changed:
    messages = len(conversation(more)) - len(conversation(less))
    return Changed(name, said, messages, _compacted(living(more)) - _compacted(living(less)))


def _compacted(entries: Iterable[Entry]) -> int:
    return sum(isinstance(effect_of(entry), Compacted) for entry in entries if entry.type == "commit")


def clear_work(name: str | None = None) -> str:
    """Forgets the work state of a session, also where people can read it; the session's whole name."""
    with _opened(name) as (journal, session):
        session.work(None)
        if (path := sessions().state_file(journal.name)).exists():
            raise StoreUnusable(f"the work state is cleared, but {path} cannot be removed; remove it by hand")
        return journal.name


@contextmanager
def _opened(name: str | None) -> Iterator[tuple[FileJournal, Session]]:
    """A session that this program alone writes. Raises `StoreUnusable` where that cannot be, or did not reach the disk."""
    journal = sessions().resume(sessions().find(name))
    try:
        if journal.trouble:
            raise StoreUnusable(journal.trouble)
        path = sessions().state_file(journal.name)
        with located(journal):
            session = Session(journal, on_work=lambda state: keep_state(path, state))
        yield journal, session
        if journal.trouble:
            raise StoreUnusable(journal.trouble)
    finally:
        journal.close()


def removable(names: Iterable[str]) -> list[str]:
    """The whole names of sessions, each once. Raises `NothingFound`, and `StoreUnusable` where a program has one open."""
    found = list(dict.fromkeys(sessions().find(name) for name in names))
    for name in found:
        path = sessions().folder(name) / "journal.jsonl"
        try:
            fd = open_file(path)
        except OSError as error:
            raise unusable(path, error) from error
        try:
            lock(fd, path)
        finally:
            os.close(fd)
    return found


def save(path: Path, text: str | bytes) -> None:
    """Writes a new private file; nothing is left of one that cannot be written. Raises `Misuse` for that, and for a name that is taken."""
    try:
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError as error:
        raise Misuse(f"{path} is there already, and stays as it is; name a file that is not there yet") from error
    except OSError as error:
        raise _unwritable(path, error) from error
    try:
        with os.fdopen(fd, "wb") as file:
            file.write(text.encode("utf-8", "replace") if isinstance(text, str) else text)
    except OSError as error:
        path.unlink()
        raise _unwritable(path, error) from error


def _unwritable(path: Path, error: OSError) -> Misuse:
    return Misuse(f"cannot write {path} ({error.strerror or error}); name a file in a folder that you can write")
