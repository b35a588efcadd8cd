"""The chat in a real pseudo-terminal."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pexpect
import pytest

from tests.app.conftest import answering
from tests.fakes.llama_server import Fake, running

READY = re.escape("\x1b[?2004h")
"""The editor asks for bracketed paste: it waits for a line."""


@pytest.fixture
def fake() -> Iterator[Fake]:
    with running(Fake(n_ctx=2048, reply=answering("Hello there."))) as server:
        yield server


@pytest.fixture
def terminal(fake: Fake, environment: dict[str, str]) -> Iterator[pexpect.spawn[str]]:
    child = pexpect.spawn(
        sys.executable,
        ["-m", "localctx", "run", "--url", fake.url, "--session", "chat"],
        env=environment | {"TERM": "xterm", "PROMPT_TOOLKIT_NO_CPR": "1"},
        encoding="utf-8",
        timeout=20,
        dimensions=(24, 100),
    )
    child.expect("type a message")
    yield child
    child.close(force=True)


def ask(terminal: pexpect.spawn[str], text: str, answer: str) -> None:
    terminal.expect(READY)
    terminal.send(text)
    terminal.send("\r")
    terminal.expect(answer)


def test_it_answers_meters_and_leaves(terminal: pexpect.spawn[str], fake: Fake, tmp_path: Path) -> None:
    ask(terminal, "Say hello.", "Hello there\\.")
    ask(terminal, "/context", r"\[\S+\]")
    terminal.expect("of 2,048 tokens used|free")
    terminal.expect("compacting now frees .* tokens.*waiting is cheaper until 80%")
    ask(terminal, "/nonsense", "no such command")
    ask(terminal, "/compact", "nothing is old enough")
    ask(terminal, "/help", "/exit")
    ask(terminal, "/exit", "")
    terminal.expect(pexpect.EOF)
    terminal.wait()
    assert terminal.exitstatus == 0
    assert len(fake.chats) == 1
    text = (tmp_path / "data" / "sessions" / "chat" / "journal.jsonl").read_text(encoding="utf-8")
    assert [json.loads(line).get("type") for line in text.splitlines()].count("message") == 2


def test_ctrl_c_stops_the_reply_and_not_the_program(terminal: pexpect.spawn[str], fake: Fake, tmp_path: Path) -> None:
    fake.reply, fake.delay = "one two three four five six seven eight nine ten " * 20, 0.1
    ask(terminal, "Count.", "two three")
    terminal.sendintr()
    terminal.expect("nothing is lost")
    fake.reply, fake.delay = "Still here.", 0.0
    ask(terminal, "And now?", "Still here")
    terminal.expect(READY)
    terminal.sendeof()
    terminal.expect(pexpect.EOF)
    text = (tmp_path / "data" / "sessions" / "chat" / "journal.jsonl").read_text(encoding="utf-8")
    kept = [entry for line in text.splitlines() if (entry := json.loads(line)).get("complete") is False]
    assert re.match("one two three", kept[0]["message"]["content"])
    assert "one two three" in str(fake.chats[-1]["messages"]), "the next request holds what was said"


def test_an_error_does_not_end_the_chat(terminal: pexpect.spawn[str], fake: Fake) -> None:
    fake.fault = "error_mid_stream"
    ask(terminal, "Hi.", "HTTP 200|its slots share one pool")
    fake.fault = None
    ask(terminal, "Hi again.", "Hello there\\.")
    ask(terminal, "x " * 3000, "window is 2,048")
    ask(terminal, "Still?", "Hello there\\.")
