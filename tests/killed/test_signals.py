"""Programs that are told to end, or whose terminal is closed, lose no more than those that are killed."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
import termios
from collections.abc import Callable
from typing import Any

import pexpect
import pytest

from localctx.core.journal import message, open_begins
from localctx.stores.journal import FileJournal
from tests.app.conftest import answering
from tests.killed.checks import (
    check_journal,
    check_projection,
    check_requests,
    check_resumed,
    messages,
    turn_requests,
)
from tests.killed.conftest import Place, Whole, asks_for_notes

ENDING = [signal.SIGTERM, signal.SIGHUP]
ASKED, COUNT = "Count to a hundred.", "one two three four five six seven eight nine ten " * 10
READY = re.escape("\x1b[?2004h")
"""The editor asks for bracketed paste: it waits for a line."""


def run(place: Place, *arguments: str) -> subprocess.Popen[bytes]:
    """The program as a person starts it."""
    return subprocess.Popen(
        [
            sys.executable,
            "-m",
            "localctx",
            "run",
            *arguments,
            "--tools",
            "none",
            "--url",
            place.fake.url,
            "--session",
            "s",
        ],
        env=place.environment,
        cwd=place.home,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )


def ended(place: Place, number: int, wanted: Callable[[dict[str, Any]], bool], *arguments: str) -> None:
    """Ends the program by a signal once the server was asked something."""
    with run(place, *arguments) as process:
        try:
            place.until_asked(wanted)
            process.send_signal(number)
            _, complaints = process.communicate(timeout=60)
        finally:
            process.kill()
    assert process.returncode == 128 + number
    assert b"Traceback" not in complaints


def opened(place: Place) -> Any:  # noqa: ANN401  pexpect says nothing of some of its attributes
    """A chat on a terminal."""
    return pexpect.spawn(
        sys.executable,
        ["-m", "localctx", "run", "--tools", "none", "--url", place.fake.url, "--session", "s"],
        env=place.environment | {"TERM": "xterm", "PROMPT_TOOLKIT_NO_CPR": "1"},
        cwd=str(place.home),
        encoding="utf-8",
        timeout=60,
        dimensions=(24, 100),
    )


@pytest.mark.parametrize("number", ENDING)
def test_ended_in_the_middle_of_a_reply_what_was_said_is_kept_and_it_goes_on(place: Place, number: int) -> None:
    place.fake.reply, place.fake.delay = COUNT, 0.5
    ended(place, number, lambda _body: True, ASKED)
    asked, *said = [wire["content"] for _, wire in messages(check_journal(place))]
    assert asked == ASKED
    assert COUNT.startswith("".join(said))
    place.fake.reply, place.fake.delay = "Here you are.", 0.0
    place.done(["ask", "And?"])
    assert place.chats[-1]["messages"][-1]["content"].endswith("And?")
    check_requests(place, check_journal(place))


@pytest.mark.parametrize("number", ENDING)
def test_ended_while_notes_are_written_nothing_is_replaced(place: Place, number: int) -> None:
    said = [f"Part {part}: " + "so it goes on " * 10 for part in range(36)]
    journal = FileJournal(place.path)
    for at, text in enumerate(said):
        journal.append(*message({"role": "assistant" if at % 2 else "user", "content": text}))
    journal.close()
    place.fake.reply, place.fake.delay = answering("Here you are."), 0.5
    ended(place, number, asks_for_notes, ASKED)
    entries = check_journal(place)
    assert [wire["content"] for _, wire in messages(entries)] == [*said, ASKED]
    assert not open_begins(entries)
    assert check_projection(entries).checkpoint is None
    place.fake.delay = 0.0
    place.done(["ask", "And?"])
    entries = check_journal(place)
    assert check_projection(entries).checkpoint is not None
    assert place.chats[-1]["messages"][-1]["content"].removeprefix(f"{ASKED}\n\n").startswith("And?")
    check_requests(place, entries, len(said))


@pytest.mark.parametrize("number", ENDING)
def test_ended_by_a_signal_and_resumed_it_is_the_run_that_nobody_ended(place: Place, whole: Whole, number: int) -> None:
    for event, nth in (("RungBegun", 2), ("ToolCalled", 2), ("Text", 9)):
        with place.child(["script"]) as child:
            assert child.until_event(event, nth)
            assert child.end(number) == -number
    place.done(["script"])
    entries = check_journal(place)
    check_requests(place, entries)
    check_resumed(place, entries, whole)


@pytest.mark.parametrize("number", ENDING)
@pytest.mark.parametrize("busy", [False, True])
def test_a_terminal_is_given_back_as_it_was(place: Place, number: int, *, busy: bool) -> None:
    terminal = opened(place)
    before = termios.tcgetattr(terminal.child_fd)
    try:
        terminal.expect(READY)
        if busy:
            place.fake.reply, place.fake.delay = COUNT, 0.2
            terminal.send("Hello.\r")
            terminal.expect("one two")
        terminal.kill(number)
        terminal.expect(re.escape("\x1b[?2004l"))
        terminal.expect(pexpect.EOF)
        after = termios.tcgetattr(terminal.child_fd)
        terminal.wait()
    finally:
        terminal.close(force=True)
    assert (terminal.exitstatus, after) == (128 + number, before)
    assert "?2004h" not in terminal.before
    assert "Traceback" not in terminal.before


def test_a_terminal_that_is_closed_in_the_middle_of_a_reply_takes_nothing_along(place: Place) -> None:
    place.fake.reply = "Good morning."
    terminal = opened(place)
    try:
        terminal.expect(READY)
        terminal.send("Hello.\r")
        terminal.expect("Good morning")
        place.fake.reply, place.fake.delay = COUNT, 0.2
        terminal.expect(READY)
        terminal.send(f"{ASKED}\r")
        terminal.expect("one two")
        terminal.ptyproc.fileobj.close()
        terminal.wait()
    finally:
        terminal.ptyproc.terminate(force=True)
    assert terminal.exitstatus == 128 + signal.SIGHUP
    said = [wire["content"] for _, wire in messages(check_journal(place))]
    assert said[:3] == ["Hello.", "Good morning.", ASKED]
    place.fake.reply, place.fake.delay = "Here you are.", 0.0
    place.done(["ask", "And?"])
    sent = turn_requests(place.chats)[-1]["messages"]
    assert [sent[0]["content"], sent[1]["content"]] == ["Hello.", "Good morning."]
    assert ASKED in str(sent[2:])
    check_requests(place, check_journal(place))
