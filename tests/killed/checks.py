"""What holds of a session whatever its programs died of, worked out without the code that is checked."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Iterable, Sequence
from typing import Any

from localctx.core.checkpoint import render
from localctx.core.journal import Entry, advance, open_begins, project
from localctx.core.messages import History
from localctx.core.outgoing import defects, outgoing
from localctx.core.recall import documents
from localctx.core.work import as_json
from localctx.stores.recall import RecallIndex
from tests.killed.conftest import Place, Told, Whole, asks_for_notes
from tests.killed.script import GO_ON, SYSTEM, TURNS, expected_reply

__all__ = [
    "alive",
    "check_index",
    "check_journal",
    "check_nothing_told_is_lost",
    "check_projection",
    "check_requests",
    "check_resumed",
    "messages",
    "same",
    "turn_requests",
]


def messages(entries: Iterable[Entry], role: str = "") -> list[tuple[int, dict[str, Any]]]:
    """The messages of a journal, or those of one role, with their lines."""
    found = [(entry.seq, entry.body["message"]) for entry in entries if entry.type == "message"]
    return [(seq, wire) for seq, wire in found if isinstance(wire, dict) and role in {"", wire["role"]}]


def check_journal(place: Place, before: bytes = b"") -> list[Entry]:
    """The complete lines are entries that other programs can read too, numbered from 1, and begin as they did before."""
    complete = place.complete
    assert complete.startswith(before), "a journal is never rewritten"
    lines = complete.splitlines()
    assert all(isinstance(json.loads(line), dict) for line in lines)
    if shutil.which("jq"):
        done = subprocess.run(["jq", "-c", "."], input=complete, capture_output=True, timeout=60, check=True)  # noqa: S607  whichever jq there is
        assert len(done.stdout.splitlines()) == len(lines)
    entries = place.entries()
    assert [entry.seq for entry in entries] == [*range(1, len(lines))]
    calls = [call["id"] for _, wire in messages(entries, "assistant") for call in wire.get("tool_calls", ())]
    results = [wire["tool_call_id"] for _, wire in messages(entries, "tool")]
    assert len(set(calls)) == len(calls)
    assert len(set(results)) == len(results), "a call has one result"
    assert set(results) <= set(calls)
    check_ends(entries)
    return entries


def check_ends(entries: Sequence[Entry]) -> None:
    """Every begin has one end at most, behind it; and all but the last are ended before another one."""
    begun: int | None = None
    for entry in entries:
        if entry.type == "begin":
            assert begun is None, f"line {begun} was still open on line {entry.seq}"
            begun = entry.seq
        elif "begin" in entry.body:
            assert entry.body["begin"] == begun
            begun = None
    assert open_begins(entries) == (() if begun is None else (begun,))


def check_nothing_told_is_lost(written: Sequence[Entry], told: Sequence[Told], asked: Sequence[dict[str, Any]]) -> None:
    """What a program told of, or asked a server with, was on disk by then; `written` are its lines alone."""
    whole = [wire for _, wire in messages(written, "assistant")]
    assert len(whole) >= sum(each["event"] == "TurnEnded" for each in told)
    answered = {each["id"] for each in told if each["event"] == "ToolAnswered"}
    assert answered <= {wire["tool_call_id"] for _, wire in messages(written, "tool")}
    commits = [entry.body["taken"]["rung"] for entry in written if entry.type == "commit"]  # type: ignore[index]
    taken = [each["rung"] for each in told if each["event"] == "RungTaken"]
    assert commits[: len(taken)] == taken
    said = [wire["content"] for _, wire in messages(written, "user")]
    for body in turn_requests(asked):
        last = [message for message in body["messages"] if message["role"] == "user"][-1]
        assert not said or any(text in last["content"] for text in said)


def alive(entries: Iterable[Entry]) -> list[int]:
    """The lines of the messages that no compaction covers and nobody took back, the system's apart."""
    units = list[list[int]]()
    for entry in entries:
        match entry.body:
            case {"message": {"role": "tool"}}:
                units[-1].append(entry.seq)
            case {"message": {"role": "user" | "assistant"}}:
                units.append([entry.seq])
            case {"effect": {"kind": "compacted", "checkpoint": {"through": int(through)}}}:
                units = [unit for unit in units if unit[-1] > through]
            case {"effect": {"kind": "withdrawn", "since": int(since)}}:
                units = [kept for unit in units if (kept := [seq for seq in unit if seq < since])]
    return [seq for unit in units for seq in unit]


def check_projection(entries: Sequence[Entry]) -> History:
    """What was dropped does not come back, and what was not dropped is there: by line, and word for word in what is sent."""
    history = project(entries)
    left = set(alive(entries))
    assert {leaf.seq for leaf in history.since(0)} == left
    sent = outgoing(history)
    if history.checkpoint:
        first = next(message for message in sent if message["role"] == "user")
        first["content"] = str(first["content"]).replace(render(history.checkpoint), "", 1)
    said = "\n".join(str(message.get("content")) for message in sent if message["role"] in {"user", "assistant"})
    there = {str(wire["content"]) for seq, wire in messages(entries) if seq in left}
    gone = {str(wire["content"]) for seq, wire in messages(entries) if seq not in left and wire["role"] != "system"}
    for seq, wire in messages(entries):
        if seq in left and wire["role"] != "tool":
            assert wire["content"] in said
    assert not [text for text in gone - there if text and text in said]
    results = {message["tool_call_id"] for message in sent if message["role"] == "tool"}
    assert {wire["tool_call_id"] for seq, wire in messages(entries, "tool") if seq in left} <= results
    return history


def turn_requests(bodies: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """The requests that asked for no notes."""
    return [body for body in bodies if not asks_for_notes(body)]


_NUDGES = "\n\nRecovered work state", "\n\n[CONTEXT "


def same(request: Sequence[dict[str, Any]], sent: Sequence[dict[str, Any]]) -> bool:
    """Whether a request is that list, but for what is said beside the conversation at its end."""
    if len(request) != len(sent) or request[:-1] != sent[:-1]:
        return False
    one, other = request[-1], sent[-1]
    more = str(one["content"]).removeprefix(str(other["content"]))
    return one == {**other, "content": one["content"]} and (not more or more.startswith(_NUDGES))


def check_requests(place: Place, entries: Sequence[Entry], after: int = 0) -> None:
    """Each request is valid, fits its window, and is what the journal said at that time; and no reply came of another.

    No request was made for what stands up to line `after`.
    """
    for body in place.chats:
        assert defects(body["messages"]) == []
        assert place.fake.prompt_tokens(body) + body["max_tokens"] <= place.fake.n_ctx
    left, history, asked = turn_requests(place.chats), History(), False
    for entry in entries:
        while entry.seq > after and left and same(left[0]["messages"], outgoing(history)):
            del left[0]
            asked = True
        if entry.seq > after and entry.type == "message" and entry.body["message"]["role"] == "assistant":  # type: ignore[index]
            assert asked, f"the reply on line {entry.seq} came of another request than the journal says"
        before, history = history, advance(history, entry)
        asked = asked and history == before
    while left and same(left[0]["messages"], outgoing(history)):
        del left[0]
    assert not left, "a request held something else than the journal"
    assert history == project(entries)


def check_resumed(place: Place, entries: Sequence[Entry], whole: Whole) -> None:
    """What a run that was killed has in common with one that was not.

    What may differ: nudges to go on, calls that were interrupted and made again, where rungs were taken, lines of usage.
    """
    uninterrupted = whole.place.entries()
    asked = [wire["content"] for _, wire in messages(entries, "user") if wire["content"] != GO_ON]
    assert asked == [*TURNS]
    said = [wire["content"] for _, wire in messages(entries, "assistant") if not wire.get("tool_calls")]
    assert said == [expected_reply(number) for number, _ in enumerate(TURNS, 1)]
    assert _returned(entries) == _returned(uninterrupted)
    history = check_projection(entries)
    assert history.work == check_projection(uninterrupted).work
    state = json.loads((place.home / "data" / "work" / "s" / "state.json").read_text(encoding="utf-8"))
    del state["updated_at"]
    assert state == as_json(history.work)
    last = str(place.chats[-1]["messages"][:2])
    assert SYSTEM in last
    assert TURNS[0] in last
    check_index(place, entries)


def _returned(entries: Sequence[Entry]) -> dict[tuple[str, str], object]:
    """What each call returned whose result is always the same; a call that was interrupted came again."""
    calls = {
        call["id"]: (call["function"]["name"], call["function"]["arguments"])
        for _, wire in messages(entries, "assistant")
        for call in wire.get("tool_calls", ())
    }
    scripted = {"read_file", "write_file", "update_work_state"}
    found = dict[tuple[str, str], object]()
    for entry in entries:
        match entry.body:
            case {"message": {"role": "tool", "tool_call_id": str(call_id)}, "tool": str(name)} if name in scripted:
                size = entry.body.get("size")
                assert size is None or found.setdefault(calls[call_id], size) == size
    return found


def check_index(place: Place, entries: Sequence[Entry]) -> None:
    """The index that lived through the kills finds what a new one finds."""
    created = json.loads(place.complete.splitlines()[0])["created"]
    kept, new = RecallIndex(place.folder / "recall.db", created), RecallIndex(None)
    for index in (kept, new):
        index.add(documents(entries, index.through), entries[-1].seq)
    for query in ("old pier", "second page", "[reply 03]", "logs/third.txt"):
        assert kept.search(query, 8) == new.search(query, 8) != []
    kept.close()
    new.close()
