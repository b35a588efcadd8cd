"""The tools by which a model reaches what its window no longer holds, and keeps what it must not lose."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from localctx.core import work
from localctx.core.arguments import described
from localctx.core.messages import Interjection, Message, Said, ToolResult, plain
from localctx.core.recall import documents, told
from localctx.core.record import conversation
from localctx.core.results import PAGE_CHARACTERS, RECALL, RETRIEVE, page, provenance_of
from localctx.core.transcript import read, write
from localctx.ports import Outcome

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from localctx.app.session import Session
    from localctx.core.journal import Entry
    from localctx.core.outgoing import WireMessage
    from localctx.core.recall import Found
    from localctx.ports import Index

__all__ = ["Recall", "Retrieve", "UpdateWorkState"]


@dataclass(frozen=True, slots=True)
class Retrieve:
    """Reads a result, or any message, whole and in pages; `fit` gives as much of a text as one result may take."""

    session: Session
    fit: Callable[[str], str]
    name = RETRIEVE

    @property
    def schema(self) -> WireMessage:
        """What a request says of it."""
        about = "Read a cleared, cut or earlier message whole, by the number after # or the id of its tool call."
        fields = {"id": {"type": "string"}, "offset": {"type": "integer", "description": "for the next page"}}
        return described(self.name, about, fields, "id")

    async def run(self, arguments: Mapping[str, object]) -> Outcome:
        """A page of it. Raises `ValueError` where there is nothing by that name."""
        wanted, offset = str(arguments.get("id", "")).strip().lstrip("#"), arguments.get("offset") or 0
        if not isinstance(offset, int):
            raise TypeError("offset is a number of characters")
        entry = self._entry(wanted)
        if entry is None:
            raise ValueError(f"there is no message {wanted[:60]!r}; use the number after #, or search with {RECALL}")
        body = self.session.journal.whole(entry) or _text(entry)
        most = len(self.fit(body[max(offset, 0) :][:PAGE_CHARACTERS]))
        return Outcome(page(body, offset, most), provenance_of(entry.body.get("provenance")))

    def _entry(self, wanted: str) -> Entry | None:
        """The message on a line, or the newest result of a call."""
        found = None
        for entry in conversation(self.session.journal.entries()):
            message = entry.body.get("message")
            if isinstance(message, dict) and wanted in {str(entry.seq), message.get("tool_call_id")}:
                found = entry
        return found


_HITS, _MOST_HITS = 8, 50


@dataclass(frozen=True, slots=True)
class Recall:
    """Searches everything that the session ever saw."""

    session: Session
    index: Index
    fit: Callable[[str], str]
    name = RECALL

    @property
    def schema(self) -> WireMessage:
        """What a request says of it."""
        about = "Search this whole session, also what is no longer shown, for words, names, paths or numbers."
        return described(self.name, about, {"query": {"type": "string"}}, "query")

    async def run(self, arguments: Mapping[str, object]) -> Outcome:
        """The best matches among what the model does not see whole, and nobody took back. Raises `ValueError` where nothing is searched for."""
        query = str(arguments.get("query") or "").strip()
        if not query:
            raise ValueError("say what to search for: a query of some words")
        seen = {leaf.seq for leaf in self.session.history.since(0) if not isinstance(leaf, ToolResult)}
        hits = self._search(query, len(seen) + _MOST_HITS)
        counted = {entry.seq for entry in conversation(self.session.journal.entries())} if hits else set[int]()
        found = [each for each in hits if each.seq in counted - seen][:_HITS]
        return Outcome(self.fit(told(query, found, most=PAGE_CHARACTERS)))

    def _search(self, query: str, most: int) -> list[Found]:
        """The best matches up to the last line; once more where the index failed, and began anew."""
        last = self.session.journal.last_seq
        found: list[Found] = []
        for _ in range(2):
            if self.index.through != last:
                self.index.add(documents(self._whole(), self.index.through), last)
            found = self.index.search(query, most)
            if self.index.through == last:
                break
        return found

    def _whole(self) -> Iterator[Entry]:
        """The entries, with all that a tool returned where the message holds less."""
        journal = self.session.journal
        for entry in journal.entries():
            message, body = entry.body.get("message"), journal.whole(entry)
            if body is not None and isinstance(message, dict):
                yield replace(entry, body={**entry.body, "message": {**message, "content": body}})
            else:
                yield entry


@dataclass(frozen=True, slots=True)
class UpdateWorkState:
    """Patches the work state."""

    session: Session
    name = work.UPDATE

    @property
    def schema(self) -> WireMessage:
        """What a request says of it."""
        return work.SCHEMA

    async def run(self, arguments: Mapping[str, object]) -> Outcome:
        """Records it. Raises `ValueError`, worded for the model, for what cannot be recorded."""
        self.session.work(arguments)
        return Outcome("recorded")


def _text(entry: Entry) -> str:
    item = read(entry.body.get("message"))
    match item:
        case Message() | ToolResult() | Said():
            return plain(item.content)
        case Interjection():
            return plain(item.message.content)
    calls = "\n".join(f"{call.name} {call.arguments}" for call in item.calls)
    return f"{plain(item.content)}\n{calls}".strip() or str(write(item))
