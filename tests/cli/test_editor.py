"""What the line editor offers, and what it remembers."""

from __future__ import annotations

import json
import stat
from pathlib import Path

import pytest
from prompt_toolkit.completion import CompleteEvent
from prompt_toolkit.document import Document

from localctx.cli.editor import Words
from localctx.cli.typed import TypedLines

WORDS = Words(
    [("/context", "what fills it"), ("/compact", "compact now"), ("/model", "another model")],
    lambda command: ["qwen3:8b", "gemma3"] if command == "/model" else [],
)


def offered(text: str) -> list[str]:
    """The texts that would stand there."""
    return [
        text[: len(text) + each.start_position] + each.text
        for each in WORDS.get_completions(Document(text), CompleteEvent())
    ]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "src").mkdir()
    for name in ("src/main.py", "src/map.py", "my notes.txt", ".env", "日本.md", "bad\nname"):
        (tmp_path / name).write_text("x", encoding="utf-8")
    return tmp_path


def test_commands_are_completed_with_their_meaning() -> None:
    assert offered("/") == ["/context", "/compact", "/model"]
    assert offered("/com") == ["/compact"]
    (each,) = WORDS.get_completions(Document("/com"), CompleteEvent())
    assert each.display_meta_text == "compact now"


def test_what_a_command_may_be_given_is_completed() -> None:
    assert offered("/model ") == ["/model qwen3:8b", "/model gemma3"]
    assert offered("/model g") == ["/model gemma3"]
    assert offered("/compact ") == []


@pytest.mark.parametrize(
    "text", ["", "hello", "what is /com", "me@example", "/model a b", "@nowhere/", "@~nobody/", "@\0"]
)
def test_nothing_is_offered_elsewhere(text: str, folder: Path) -> None:
    assert folder.exists()
    assert offered(text) == []


def test_files_are_completed_behind_an_at(folder: Path) -> None:
    assert offered("see @s") == ["see @src/"]
    assert offered("see @src/ma") == ["see @src/main.py", "see @src/map.py"]
    assert offered("@my") == ['@"my notes.txt"']
    assert offered('@"my no') == ['@"my notes.txt"']
    assert offered(f"@{folder}/日") == [f"@{folder}/日本.md"]


def test_hidden_files_are_offered_only_when_asked_for_and_names_that_steer_never(folder: Path) -> None:
    assert folder.exists()
    assert ".env" not in "".join(offered("@"))
    assert offered("@.e") == ["@.env"]
    assert offered("@bad") == []


def test_a_folder_of_thousands_offers_some(folder: Path) -> None:
    (folder / "many").mkdir()
    for number in range(3_000):
        (folder / "many" / f"{number:05}").touch()
    assert len(offered("@many/")) == 200


def test_typed_lines_are_kept_private_and_come_back_the_last_first(tmp_path: Path) -> None:
    path = tmp_path / "data" / "typed.jsonl"
    first = TypedLines(path)
    for text in ("one", "two\nlines", "日本 \x1b \ud800"):
        first.append_string(text)
    assert list(TypedLines(path).load_history_strings()) == ["日本 \x1b \ud800", "two\nlines", "one"]
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700


def test_the_file_stays_bounded_and_damage_in_it_is_skipped(tmp_path: Path) -> None:
    path = tmp_path / "typed.jsonl"
    path.write_bytes(b"".join(json.dumps(f"{number} " + "x" * 300).encode() + b"\n" for number in range(9_000)))
    with path.open("ab") as file:
        file.write(b'{"no": "text"}\n[broken\n"last"\n')
    found = list(TypedLines(path).load_history_strings())
    assert found[:2] == ["last", "8999 " + "x" * 300]
    assert len(found) <= 1_000
    assert path.stat().st_size < 2**19
    before = path.read_bytes()
    TypedLines(path).store_string("x" * 20_000)
    assert path.read_bytes() == before, "a long paste is not kept"


def test_a_place_that_cannot_be_written_is_no_reason_to_complain(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    lines = TypedLines(tmp_path / "file" / "typed.jsonl")
    lines.append_string("one")
    assert lines.get_strings() == ["one"]
