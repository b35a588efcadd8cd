"""Compactions that were interrupted, and sessions that go on elsewhere: the case's scenarios, with programs that are killed."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import pytest

from localctx.core.effects import Compacted
from localctx.core.journal import Entry, advance, begin, commit, message, open_begins, project
from localctx.core.messages import Checkpoint, History, Words, end_of
from localctx.core.outgoing import outgoing
from localctx.stores.journal import FileJournal
from tests.app.conftest import NOTES, answering
from tests.cases import case
from tests.fakes.llama_server import render
from tests.killed.checks import alive, check_journal, check_projection, check_requests, messages, turn_requests
from tests.killed.conftest import Place, Told, Whole, asks_for_notes

GIVEN, CHECKS = case(23)["given"], case(23)["checks"]
MESSAGES, TOKENS, AFTER = GIVEN["messages_before"], GIVEN["tokens_before"], CHECKS["resumed_tokens"]
TASK = "Keep the ledger of the mill. Never round a number."
ASKED = "How many sacks came in today?"
ANSWER = "Twelve sacks came in."


@dataclass(frozen=True)
class Mill:
    """The case's session: 640 messages of 26,800 tokens with the tools that are offered, in a window of 32,768."""

    place: Place
    tools: list[dict[str, Any]]

    def prompt(self, history: History) -> int:
        """The tokens of the request that a history makes."""
        return len(render({"messages": outgoing(history), "tools": self.tools}))

    def write(self) -> None:
        """Writes the session."""
        said = [TASK, *(f"entry {number}" for number in range(1, MESSAGES))]
        spare = TOKENS - self.prompt(_history(said))
        each, more = divmod(spare, MESSAGES)
        journal = FileJournal(self.place.path)
        for at, text in enumerate(said):
            filled = text + " sack" * (each + (at < more))
            journal.append(*message({"role": _role(at), "content": filled}))
        assert self.prompt(project(journal.entries())) == TOKENS
        journal.close()

    def compact(self) -> None:
        """Writes a compaction, after which the session takes 6,200 tokens."""
        journal = FileJournal(self.place.path)
        history = project(journal.entries())
        units = [unit for _, unit in history.units()]
        begun = journal.append(*begin("compact"))

        def effect(words: int) -> Compacted:
            notes = (("goal", ("the ledger is kept" + " well" * words,)),)
            return Compacted(Checkpoint(end_of(units[-101]), "model", notes, words=(Words(1, TASK),)))

        spare = AFTER - self.prompt(_after(history, effect(0)))
        journal.append(*commit(effect(spare), begun.seq), sync=True)
        assert self.prompt(project(journal.entries())) == AFTER
        journal.close()

    def reopened(self, *do: list[str]) -> Told:
        """What a program finds that opens the session, once it has done more."""
        (found,) = self.place.done(["filled"], *do).of("filled")
        return found


def _role(at: int) -> str:
    return "assistant" if at % 2 else "user"


def _history(said: Iterable[str]) -> History:
    wire = [message({"role": _role(at), "content": text}) for at, text in enumerate(said)]
    return project([Entry(seq, "", kind, body) for seq, (kind, body) in enumerate(wire, 1)])


def _after(history: History, effect: Compacted) -> History:
    return advance(history, Entry(10**6, "", *commit(effect)))


@pytest.fixture
def mill(place: Place, whole: Whole) -> Mill:
    place.fake.n_ctx, place.fake.n_ctx_train = GIVEN["window"], 2 * GIVEN["window"]
    place.fake.reply, place.fake.tokens_per_piece = answering(ANSWER), 8
    mill = Mill(place, whole.place.chats[0]["tools"])
    mill.write()
    return mill


def check_given_up(mill: Mill, said: int = MESSAGES) -> None:
    """Nothing was replaced, nothing is there twice, and the attempt is marked."""
    entries = check_journal(mill.place)
    assert len(messages(entries)) == len(alive(entries)) == said
    (begun,) = open_begins(entries)
    found = mill.reopened()
    assert (found["messages"], found["window"]) == (said, GIVEN["window"])
    if said == MESSAGES:
        assert found["tokens"] == TOKENS
    entries = check_journal(mill.place)
    assert [entry.body for entry in entries if entry.type == "abort"] == [{"begin": begun}]
    assert len(open_begins(entries)) == CHECKS["open_attempts_left_running"]
    assert len(messages(entries)) - said == CHECKS["lost_messages"] == CHECKS["duplicate_messages"]
    assert check_projection(entries).checkpoint is None


def check_answered(mill: Mill, text: str) -> None:
    """A message is kept, word for word in a request, and answered once."""
    entries = check_journal(mill.place)
    assert [wire["content"] for _, wire in messages(entries, "user")].count(text) == 1
    assert messages(entries)[-1][1]["content"] == ANSWER
    assert text in turn_requests(mill.place.chats)[-1]["messages"][-1]["content"]
    check_projection(entries)
    check_requests(mill.place, entries, MESSAGES)


def test_killed_while_the_notes_stream_nothing_is_replaced(mill: Mill) -> None:
    mill.place.fake.delay = 0.2
    with mill.place.child(["compact"]) as child:
        mill.place.until_asked(asks_for_notes)
        assert child.end(signal.SIGKILL, after=0.3) == -signal.SIGKILL
    mill.place.fake.delay = 0
    check_given_up(mill)
    mill.place.done(["ask", ASKED])
    check_answered(mill, ASKED)


def test_killed_while_the_notes_stream_for_a_message_that_is_kept_and_answered(mill: Mill) -> None:
    mill.place.fake.delay = 0.2
    with mill.place.child(["ask", ASKED]) as child:
        mill.place.until_asked(asks_for_notes)
        assert child.end(signal.SIGKILL, after=0.3) == -signal.SIGKILL
    mill.place.fake.delay = 0
    check_given_up(mill, MESSAGES + 1)
    mill.place.done(["ask", "And?"])
    last = turn_requests(mill.place.chats)[-1]["messages"][-1]["content"]
    assert last.startswith(f"{ASKED}\n\nAnd?")
    check_answered(mill, "And?")


@pytest.mark.parametrize("share", [0.0, 0.01, 0.999])
def test_killed_between_the_notes_and_the_end_of_their_commit_nothing_is_replaced(mill: Mill, share: float) -> None:
    child = mill.place.killed_while_writing(["compact"], line="commit", share=share)
    assert child.of("RungBegun")
    assert child.of("RungTaken") == []
    assert mill.place.torn is (share > 0)
    check_given_up(mill)


def test_a_journal_that_ends_behind_a_begin_replaces_nothing(mill: Mill) -> None:
    mill.place.done(["compact"])
    lines = mill.place.complete.splitlines(keepends=True)
    begun = next(at for at, line in enumerate(lines) if b'"type": "begin"' in line)
    os.truncate(mill.place.path, sum(map(len, lines[: begun + 1])))
    check_given_up(mill)


@pytest.mark.parametrize("share", [0.01, 0.999])
def test_a_message_that_was_half_written_was_not_said(mill: Mill, share: float) -> None:
    mill.place.killed_while_writing(["ask", ASKED], line="message", share=share)
    assert mill.place.torn
    assert mill.reopened(["ask", ASKED])["messages"] == MESSAGES
    assert not mill.place.torn
    check_answered(mill, ASKED)


@pytest.mark.parametrize("share", [0.0, 0.5, 1.0])
def test_killed_before_there_is_a_session_it_begins_anew(place: Place, share: float) -> None:
    place.fake.reply = ANSWER
    place.killed_while_writing(["ask", ASKED], line="header", share=share)
    assert place.torn is (share == 0.5)
    place.done(["ask", ASKED])
    assert [wire["content"] for _, wire in messages(check_journal(place))][1:] == [ASKED, ANSWER]


@pytest.mark.parametrize("meanwhile", ["compact", "idle"])
def test_a_message_that_comes_while_the_notes_stream_is_kept_and_answered(mill: Mill, meanwhile: str) -> None:
    mill.place.fake.delay = 0.02
    child = mill.place.done(["asked_in_the_middle", meanwhile, ASKED])
    assert [told["cancelled"] for told in child.of("given_up")] == [True]
    entries = check_journal(mill.place)
    first = next(entry.seq for entry in entries if entry.type == "begin")
    assert {"begin": first, "reason": "interrupted"} in [entry.body for entry in entries]
    assert len(messages(entries)) == MESSAGES + 2
    check_answered(mill, ASKED)


def test_a_message_beside_a_compaction_survives_its_commit(mill: Mill) -> None:
    mill.place.fake.delay = 0.02
    mill.place.done(["asked_beside_compacting", ASKED])
    entries = mill.place.entries()
    assert check_projection(entries).checkpoint is not None
    assert len(messages(entries)) == MESSAGES + 2
    said = [wire["content"] for seq, wire in messages(entries) if seq in alive(entries)]
    assert said[-2:] == [ASKED, ANSWER]


def test_after_a_clean_compaction_the_session_is_notes_and_tail(mill: Mill) -> None:
    child = mill.place.done(["compact"], ["filled"])
    (left,) = child.of("filled")
    assert left["messages"] < MESSAGES / 2
    assert left["tokens"] < TOKENS / 2
    assert mill.reopened() == left
    mill.place.done(["ask", ASKED])
    check_answered(mill, ASKED)
    sent = str(turn_requests(mill.place.chats)[-1]["messages"])
    assert NOTES.splitlines()[1].removeprefix("- ") in sent
    assert TASK in sent
    assert "entry 1 " not in sent


def test_a_session_of_6200_tokens_is_resumed_with_6200_tokens(mill: Mill) -> None:
    mill.compact()
    assert mill.reopened()["tokens"] == AFTER
    assert mill.prompt(check_projection(check_journal(mill.place))) == AFTER


def test_a_resumed_session_goes_by_the_window_that_is_served_now(mill: Mill) -> None:
    mill.compact()
    mill.place.fake.n_ctx = 8192
    child = mill.place.done(["filled"], ["ask", ASKED], ["ask", "More sacks: " + "sack " * 400])
    (found,) = child.of("filled")
    assert (found["tokens"], found["window"], found["source"]) == (AFTER, 8192, "served")
    assert found["thresholds"][:2] == CHECKS["thresholds_at_8192"][:2]
    assert found["prompt"] < found["thresholds"][2] == CHECKS["thresholds_at_8192"][2], "the budget comes first"
    events = [told["event"] for told in child.told if told["event"] in {"PressureRaised", "RungTaken", "TurnEnded"}]
    assert events == ["PressureRaised", "TurnEnded", "RungTaken", "TurnEnded"]
    assert [told["rung"] for told in child.of("RungTaken")] == ["compact"]
    assert [entry.body["tokens"] for entry in mill.place.entries() if entry.type == "window"] == [8192]
    check_requests(mill.place, check_journal(mill.place), MESSAGES)


def test_a_whole_session_is_resumed_in_a_window_that_never_held_it(mill: Mill) -> None:
    mill.place.killed_while_writing(["compact"], line="commit")
    mill.place.fake.n_ctx = 8192
    mill.place.fake.requests.clear()
    mill.place.done(["ask", ASKED])
    check_answered(mill, ASKED)
    assert TASK in str(turn_requests(mill.place.chats)[-1]["messages"])


def test_an_undo_reaches_the_messages_that_were_replaced(mill: Mill) -> None:
    with mill.place.child(["ask", ASKED], ["stay"]) as child:
        assert child.until(lambda told: told["event"] == "did")
        assert child.end(signal.SIGKILL) == -signal.SIGKILL
    assert [told["rung"] for told in child.of("RungTaken")] == ["compact"]
    entries = check_journal(mill.place)
    assert check_projection(entries).checkpoint is not None
    child = mill.place.done(["undo"], ["filled"])
    assert [told["said"] for told in child.of("undone")] == [ASKED]
    (found,) = child.of("filled")
    assert (found["messages"], found["tokens"]) == (MESSAGES, TOKENS)
    assert mill.reopened()["messages"] == MESSAGES
    assert mill.place.complete.startswith(b"".join(mill.place.complete.splitlines(keepends=True)[: len(entries) + 1]))
    assert [entry.type for entry in mill.place.entries()].count("undo") == 1


def test_an_undo_takes_back_a_message_that_a_kill_left_unanswered(mill: Mill) -> None:
    mill.place.killed_while_writing(["ask", ASKED], line="commit")
    child = mill.place.done(["undo"], ["filled"])
    assert [told["said"] for told in child.of("undone")] == [ASKED]
    assert [(told["messages"], told["tokens"]) for told in child.of("filled")] == [(MESSAGES, TOKENS)]
