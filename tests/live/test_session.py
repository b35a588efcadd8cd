"""A whole session with the real default model on a terminal, and its transcript."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from tests.cli.screen import Terminal

pytestmark = pytest.mark.live


_SUMMARY_SECONDS = 240
"""A summary, in pieces and asked for once more, by a small model on a busy machine."""


def test_a_session_from_its_first_line_to_its_transcript(home: Path, tmp_path: Path) -> None:
    environment = os.environ | {"LOCALCTX_HOME": str(home), "LOCALCTX_OFFLINE": "1"}
    name, notes = f"whole-{os.getpid()}", tmp_path / "notes.txt"
    notes.write_text("The harbour opens at seven. " * 40, encoding="utf-8")
    arguments = ("run", "--runtime", "embedded", "--num-ctx", "1024", "--max-tokens", "60", "--session", name)
    with Terminal(*arguments, environment=environment, folder=tmp_path) as terminal:
        terminal.ask(
            "Read this: @notes.txt", lambda screen: any("attached notes.txt" in row for row in screen.everything)
        )
        terminal.ask("/context", "of 1.0k tokens used")
        for turn in range(3):
            terminal.ask(f"Say it again, please, for the {turn + 2}. time. {'It matters to me. ' * 30}")
            terminal.ready(_SUMMARY_SECONDS)
        terminal.ask("/window 2048", "window 2,048 tokens")
        terminal.ask("/cost", "tokens/s")
        terminal.ask("/export talk.json", "talk.json")
        terminal.ask("/exit")
        assert terminal.ended() == 0
        assert "Traceback" not in terminal.raw
    said = json.loads((tmp_path / "talk.json").read_text(encoding="utf-8"))
    messages = said if isinstance(said, list) else said["messages"]
    assert [message["role"] for message in messages] == ["user", "assistant"] * 4
    assert all(message["content"].strip() for message in messages)
    lines = (home / "sessions" / name / "journal.jsonl").read_text(encoding="utf-8").splitlines()
    effects = [entry["effect"]["kind"] for line in lines if "effect" in (entry := json.loads(line))]
    assert "compacted" in effects, "four turns do not fit into 1,024 tokens"
