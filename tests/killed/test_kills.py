"""Programs that are killed at any point and started again, against one that was not."""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pytest

from localctx.core.journal import Entry, open_begins
from localctx.core.messages import History
from localctx.core.outgoing import outgoing
from localctx.stores.journal import FileJournal
from tests.killed.checks import (
    check_index,
    check_journal,
    check_nothing_told_is_lost,
    check_projection,
    check_requests,
    check_resumed,
    messages,
)
from tests.killed.conftest import Child, Place, Whole, asks_for_notes
from tests.killed.script import TURNS


@dataclass(frozen=True)
class Kill:
    """When a program is killed: `share` of a whole run after its start, or of a moment after its nth event or request of a
    kind, or with `share` of its nth line of a kind written.
    """

    how: str
    what: str = ""
    nth: int = 1
    share: float = 0.0


_MOMENTS = {"Text": 0.01, "RungBegun": 0.04, "ToolCalled": 0.03, "RungTaken": 0.02}
"""Seconds: about as long as what follows such an event takes."""

_NOTES_SECONDS = 0.03
_KINDS = ("time", "Text", "notes", "ToolCalled", "any", "RungBegun", "commit", "RungTaken", "notes", "begin")


def kills(seed: int, counts: dict[str, int]) -> list[Kill]:
    """One to three kills in a row; the first of another kind from seed to seed, and at any place of that kind."""
    chance = random.Random(seed)  # noqa: S311  no secret
    kinds = [_KINDS[seed % len(_KINDS)]]
    while len(kinds) < 3 and chance.random() < 0.4:
        kinds.append(chance.choice(_KINDS))
    return [_kill(kind, chance, counts, at) for at, kind in enumerate(kinds)]


def _kill(kind: str, chance: random.Random, counts: dict[str, int], at: int) -> Kill:
    if kind == "time":
        return Kill("time", share=chance.uniform(0.02, 1.0) / (at + 1))
    nth = chance.randint(1, max(counts[kind] // (2 * at + 1), 1))
    if kind == "notes":
        return Kill("notes", kind, nth, chance.random())
    if kind in _MOMENTS:
        return Kill("event", kind, nth, chance.random())
    return Kill("line", kind, nth, chance.choice([0.0, chance.random(), 1.0]))


@pytest.fixture(scope="session")
def counts(whole: Whole) -> dict[str, int]:
    """How often each kind of event and line comes in a whole run."""
    entries = whole.place.entries()
    lines = {kind: sum(entry.type == kind for entry in entries) for kind in ("begin", "commit")}
    asked = {"notes": sum(map(asks_for_notes, whole.place.chats)), "any": len(entries)}
    return {**asked, **lines, **{kind: len(whole.child.of(kind)) for kind in _MOMENTS}}


def kill(place: Place, how: Kill, whole: Whole) -> tuple[Child, bool]:
    """Lets a program go on with the script until it is killed; whether it was, before it came to its end."""
    die = {"line": how.what, "nth": how.nth, "share": how.share} if how.how == "line" else None
    with place.child(["script"], die=die) as child:
        if how.how == "time":
            time.sleep(how.share * whole.seconds)
            code = child.end(signal.SIGKILL)
        elif how.how == "notes":
            place.until_notes_asked(child, how.nth)
            code = child.end(signal.SIGKILL, after=how.share * _NOTES_SECONDS)
        elif how.how == "event" and child.until_event(how.what, how.nth):
            code = child.end(signal.SIGKILL, after=how.share * _MOMENTS[how.what])
        else:
            code = child.end()
    assert code in {0, -signal.SIGKILL}
    return child, code != 0


def where(place: Place, entries: Sequence[Entry], asked: Sequence[dict[str, Any]]) -> str:
    """At which kind of place a program died."""
    if place.torn:
        return "in the middle of a line"
    said = messages(entries)
    if not said or said[-1][1]["role"] == "system":
        return "before anything was said"
    if open_begins(entries):
        streams = asked and asks_for_notes(asked[-1]) and entries[-1].type == "begin"
        return "while notes were written" if streams else "between begin and commit"
    last = said[-1][1]
    if last.get("tool_calls"):
        return "between a call and its result"
    return "between two turns" if last["role"] == "assistant" else "before the end of a reply"


def lives_through(place: Place, seed: int, whole: Whole, counts: dict[str, int]) -> list[str]:
    """Kills a session as the seed says, resumes it to its end, and checks all that holds; where it was killed."""
    places, before = list[str](), b""
    for how in kills(seed, counts):
        lines, chats = len(place.entries()), len(place.chats)
        child, killed = kill(place, how, whole)
        entries = check_journal(place, before)
        asked = place.chats[chats:]
        check_nothing_told_is_lost(entries[lines:], child.told, asked)
        before = place.complete
        if not killed:
            break
        places.append(where(place, entries, asked))
        check_reopened(place, entries)
        before = place.complete
    place.done(["script"])
    entries = check_journal(place, before)
    assert not place.torn
    assert open_begins(entries) == ()
    check_requests(place, entries)
    check_resumed(place, entries, whole)
    return places


def check_reopened(place: Place, entries: Sequence[Entry]) -> None:
    """Whoever opens the session next finds every entry, and what was begun is closed without effect."""
    journal = FileJournal(place.path)
    journal.close()
    found = place.entries()
    assert found[: len(entries)] == [*entries]
    ends = [(entry.type, entry.body) for entry in found[len(entries) :]]
    assert ends == [("abort", {"begin": left}) for left in open_begins(entries)]
    assert check_projection(found) == (check_projection(entries) if entries else History())
    assert outgoing(check_projection(found)) == outgoing(check_projection(entries))


def test_a_whole_run_takes_every_rung_several_times(whole: Whole) -> None:
    place, child = whole.place, whole.child
    rungs = [told["rung"] for told in child.of("RungTaken")]
    assert rungs.count("compact") >= 4
    assert rungs.count("clear") >= 2
    assert rungs.count("trim") >= 1
    entries = check_journal(place)
    check_nothing_told_is_lost(entries, child.told, place.chats)
    check_requests(place, entries)
    check_resumed(place, entries, whole)


@pytest.mark.parametrize("seed", range(20))
def test_killed_and_resumed_it_is_the_run_that_nobody_killed(
    place: Place,
    seed: int,
    whole: Whole,
    counts: dict[str, int],
    request: pytest.FixtureRequest,
) -> None:
    request.node.user_properties += [("killed", at) for at in lives_through(place, seed, whole, counts)]


def test_lines_that_a_power_failure_took_are_not_found_any_more(place: Place) -> None:
    place.done(["script"])
    kept = place.complete.splitlines(keepends=True)
    cut = next(at for at, line in enumerate(kept) if TURNS[3].encode() in line)
    os.truncate(place.path, sum(map(len, kept[:cut])))
    place.done(["script"])
    entries = check_journal(place)
    check_projection(entries)
    check_index(place, entries)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(20, 220))
def test_killed_at_ten_times_as_many_points(
    place: Place,
    seed: int,
    whole: Whole,
    counts: dict[str, int],
    request: pytest.FixtureRequest,
) -> None:
    request.node.user_properties += [("killed", at) for at in lives_through(place, seed, whole, counts)]
