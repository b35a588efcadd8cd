"""The chat in a real pseudo-terminal: what is typed, and what is on the screen."""

from __future__ import annotations

import json
import re
import signal
import stat
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.app.conftest import answering
from tests.cli.screen import Terminal
from tests.cli.test_markdown import WHOLE, words
from tests.fakes import ollama
from tests.fakes.llama_server import Calls, Fake, running

Start = Callable[..., Terminal]


@pytest.fixture
def fake() -> Iterator[Fake]:
    with running(Fake(n_ctx=2048, reply=answering("Hello there."))) as server:
        yield server


@pytest.fixture
def start(fake: Fake, environment: dict[str, str], tmp_path: Path) -> Iterator[Start]:
    """Starts the chat with the fake, in a session called chat unless it is said otherwise."""
    begun = list[Terminal]()

    def start(*arguments: str, columns: int = 100, lines: int = 30, **extra: str) -> Terminal:
        whole = ("run", *(arguments or ("--session", "chat")), *(() if "--url" in arguments else ("--url", fake.url)))
        begun.append(Terminal(*whole, environment=environment | extra, folder=tmp_path, columns=columns, lines=lines))
        return begun[-1]

    yield start
    for terminal in begun:
        terminal.__exit__()


def journal(folder: Path, name: str = "chat") -> list[dict[str, Any]]:
    text = (folder / "data" / "sessions" / name / "journal.jsonl").read_text(encoding="utf-8")
    return [json.loads(line) for line in text.splitlines()]


def last_words(fake: Fake) -> str:
    """What the newest request ends with."""
    return str(fake.chats[-1]["messages"][-1]["content"])


# --- talking ------------------------------------------------------------------------------------------------------


def test_it_answers_meters_and_leaves(start: Start, fake: Fake, tmp_path: Path) -> None:
    terminal = start()
    terminal.ask("Say hello.", "Hello there.")
    terminal.ask("/context", "of 2.0k tokens used")
    terminal.until("compacting is due at 80%: it frees")
    terminal.until("window 2,048 tokens, served (llama-server /props n_ctx)")
    terminal.ask("/compact", "nothing was done")
    terminal.ask("/cost", "requests  1")
    terminal.ask("/help", "/exit")
    terminal.ask("/exit")
    assert terminal.ended() == 0
    assert len(fake.chats) == 1
    assert [entry.get("type") for entry in journal(tmp_path)].count("message") == 2


def test_an_empty_line_does_nothing_and_ctrl_d_leaves(start: Start, fake: Fake) -> None:
    terminal = start()
    terminal.ask("")
    terminal.ask("   ")
    terminal.ready()
    terminal.interrupt()
    terminal.until("Ctrl-D or /exit leaves")
    terminal.ready()
    terminal.send("\x04")
    assert terminal.ended() == 0
    assert fake.chats == []


def test_ctrl_c_while_the_model_loads_ends_the_program(start: Start) -> None:
    with running(Fake(loading_for=600)) as loading:
        terminal = start("--ephemeral", "--url", loading.url)
        terminal.until(lambda _screen: len(loading.requests) > 1)
        terminal.interrupt()
        assert terminal.ended() == 130
    assert "Traceback" not in terminal.raw


def test_an_interrupt_from_elsewhere_ends_nothing_while_a_line_is_typed(start: Start) -> None:
    terminal = start()
    terminal.ready()
    terminal.signal(signal.SIGINT)
    terminal.until("Ctrl-D or /exit leaves")
    terminal.ask("Still?", "Hello there.")


def test_ctrl_c_on_a_line_takes_it_away(start: Start, fake: Fake) -> None:
    terminal = start()
    terminal.type("never mind")
    terminal.until("> never mind")
    terminal.interrupt()
    terminal.ask("Hi.", "Hello there.")
    assert "Ctrl-D or /exit leaves" not in "\n".join(terminal.screen.everything)
    assert last_words(fake) == "Hi."


def test_ctrl_c_stops_the_reply_and_not_the_program(start: Start, fake: Fake, tmp_path: Path) -> None:
    fake.reply, fake.delay = "one two three four five six seven eight nine ten " * 20, 0.1
    terminal = start()
    terminal.ask("Count.", "two three")
    terminal.interrupt()
    terminal.interrupt()
    terminal.until("stopped; nothing is lost")
    terminal.interrupt()
    fake.reply, fake.delay = "Still here.", 0.0
    terminal.ask("And now?", "Still here")
    terminal.ready()
    terminal.send("\x04")
    assert terminal.ended() == 0
    kept = [entry for entry in journal(tmp_path) if entry.get("complete") is False]
    assert re.match("one two three", kept[0]["message"]["content"])
    assert "one two three" in str(fake.chats[-1]["messages"]), "the next request holds what was said"
    rows = terminal.screen.everything
    assert rows[rows.index("stopped; nothing is lost") - 1].startswith("one two"), "the notice has a line of its own"


def test_an_error_does_not_end_the_chat(start: Start, fake: Fake) -> None:
    fake.fault = "error_mid_stream"
    terminal = start()
    terminal.ask(
        "Hi.", lambda screen: bool(re.search("HTTP 200|its slots share one pool", " ".join(screen.everything)))
    )
    fake.fault = None
    terminal.ask("Hi again.", "Hello there.")
    terminal.ask("x " * 3000, lambda screen: "window is 2,048" in " ".join(screen.everything))
    terminal.ask("Still?", lambda screen: " ".join(screen.everything).count("Hello there.") == 2)


# --- the editor ---------------------------------------------------------------------------------------------------


def test_several_lines_are_one_message(start: Start, fake: Fake) -> None:
    terminal = start()
    terminal.type("one\\\rtwo\x1b\rthree")
    terminal.until("  three")
    terminal.send("\r")
    terminal.until("Hello there.")
    assert last_words(fake) == "one\ntwo\nthree"
    terminal.type("\x1b[200~four\rfive\rsix\x1b[201~")
    terminal.until("  six")
    terminal.send("\r")
    terminal.until(lambda screen: "\n".join(screen.everything).count("Hello there.") == 2)
    assert last_words(fake) == "four\nfive\nsix"


def test_commands_and_files_are_completed_and_files_attached(start: Start, fake: Fake, tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("The cat is called Mia.", encoding="utf-8")
    terminal = start()
    terminal.type("/cont")
    terminal.until("what fills the window, and where its size comes from")
    terminal.send("\t")
    terminal.until("> /context")
    terminal.send("\r")
    terminal.until("tokens used")
    terminal.type("Who is in @no")
    terminal.until("notes.txt")
    terminal.send("\t")
    terminal.until("@notes.txt")
    terminal.send("?\r")
    terminal.until("Hello there.")
    terminal.until("attached notes.txt, 22 characters")
    assert last_words(fake) == "Who is in @notes.txt?\n\nnotes.txt:\n```txt\nThe cat is called Mia.\n```"


def test_what_was_typed_comes_back_in_the_next_chat(start: Start, fake: Fake, tmp_path: Path) -> None:
    first = start()
    first.ask("A first question.", "Hello there.")
    first.ask("/exit")
    assert first.ended() == 0
    kept = tmp_path / "data" / "typed.jsonl"
    assert stat.S_IMODE(kept.stat().st_mode) == 0o600
    second = start("--ephemeral")
    second.ask("A secret.", "Hello there.")
    second.ask("/exit")
    assert second.ended() == 0
    assert "secret" not in kept.read_text(encoding="utf-8")
    third = start("--session", "third")
    third.type("\x1b[A\x1b[A")
    third.until("> A first question.")
    third.send("\r")
    third.until("Hello there.")
    assert last_words(fake) == "A first question."


def test_what_is_typed_ahead_is_not_seen_until_its_line_comes(start: Start, fake: Fake) -> None:
    go = threading.Event()

    def reply(body: dict[str, Any]) -> str:
        go.wait(20)
        return f"Answer {len(body['messages'])}."

    fake.reply = reply
    terminal = start()
    terminal.ask("First.", lambda _screen: len(fake.chats) == 1)
    terminal.send("Second.\rThird, not sent")
    go.set()
    terminal.until("Answer 1.")
    assert "Second" not in terminal.raw.partition("Answer 1.")[0]
    terminal.until("Answer 3.")
    terminal.until("> Third, not sent")
    rows = terminal.screen.everything
    talk = [row for row in rows if re.match("> |Answer", row)]
    assert talk == ["> First.", "Answer 1.", "> Second.", "Answer 3.", "> Third, not sent"]
    assert last_words(fake) == "Second."


@pytest.mark.parametrize(("columns", "lines"), [(100, 30), (40, 12)])
def test_the_bar_says_how_full_the_window_is(start: Start, fake: Fake, columns: int, lines: int) -> None:
    fake.reply = answering("so it goes on " * 110)
    terminal = start(columns=columns, lines=lines)
    terminal.until(lambda screen: "fake-model | 2.0k served | 0% full" in screen.display[-1])
    terminal.ask("Go on. " * 345)
    terminal.until(lambda screen: bool(re.search(r"7\d% full !", screen.display[-1])))
    assert re.search(r"\x1b\[[0-9;]*33[;m]", terminal.raw), "and in yellow"


# --- what is shown ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("columns", "lines"), [(100, 30), (40, 12)])
def test_markdown_is_rendered_once_however_small_the_terminal(
    start: Start, fake: Fake, columns: int, lines: int
) -> None:
    fake.n_ctx, fake.delay, fake.tokens_per_piece, fake.reply = 8192, 0.002, 3, answering(f"{WHOLE}\n\nThe end.")
    terminal = start(columns=columns, lines=lines)
    terminal.ask("Go.", "The end.")
    terminal.ready()
    rows = terminal.screen.everything
    reply = rows[rows.index("> Go.") + 1 : rows.index("The end.")]
    assert "A title" in reply
    assert " • a" in reply
    assert " 1. First" in reply
    assert len(words(reply)) == len(words([WHOLE])), "no letter is lost, and none is there twice"


def test_the_window_may_change_at_any_time(start: Start, fake: Fake) -> None:
    parts = "\n\n".join(f"Part {number} " + "goes on and on " * (number % 7) for number in range(40))
    fake.n_ctx, fake.delay, fake.tokens_per_piece, fake.reply = 8192, 0.005, 2, answering(f"{parts}\n\nThe end.")
    terminal = start(columns=70, lines=20)
    terminal.ask("Go.", "Part 6")
    terminal.resize(40, 12)
    terminal.until("Part 20")
    terminal.resize(90, 25)
    terminal.until("The end.")
    found = re.findall(r"Part\s+(\d+)", " ".join(terminal.screen.everything))
    assert [int(number) for number in found] == list(range(40))
    terminal.ready()
    terminal.resize(40, 12)
    terminal.until(lambda screen: screen.display[-1].startswith(" fake-model | 8.2k served"))
    fake.reply = "Still here."
    terminal.ask("And now?", "Still here.")


def test_neither_a_model_nor_its_server_steers_the_terminal(start: Start, fake: Fake) -> None:
    fake.reply = "red \x1b[31malert \x1b]8;;http://evil\x07here\x1b]8;;\x07 \x1b[2J\x9b2J &#27;[2J \u202etxt"
    terminal = start()
    terminal.ask("Go.", "alert")
    terminal.ready()
    for steering in ("\x1b[31malert", "\x1b]8", "\x1b[2J", "\x9b", "\u202e"):
        assert steering not in terminal.raw
    assert "> Go." in terminal.screen.everything


def test_without_colour_the_reply_is_as_the_model_wrote_it(start: Start, fake: Fake) -> None:
    fake.reply = "# Title\n\n**bold** and `code`"
    terminal = start(PLAIN="1")
    terminal.ask("Go.", "**bold** and `code`")
    terminal.until("# Title")
    terminal.ask("/context", lambda screen: any(re.fullmatch(r"\[[a-zA-Z.]+\]", row) for row in screen.everything))
    assert not re.search(r"\x1b\[[0-9;]*3[0-7]m", terminal.raw)


def test_a_long_prompt_is_told_of_while_it_is_read_and_then_no_more(start: Start, fake: Fake) -> None:
    fake.batch, fake.batch_delay = 20, 0.25
    terminal = start()
    terminal.ask("so it goes on " * 50, " tokens ... ")
    assert re.search(r"reading \d+% of 2\d\d tokens \.\.\. \d+ s, about \d+ s more", terminal.raw)
    fake.batch_delay = 0.0
    terminal.until("Hello there.")
    terminal.ready()
    assert "reading" not in "\n".join(terminal.screen.everything)


def test_a_long_call_is_told_of_while_it_is_written_and_thinking_with_its_own_time(
    start: Start, fake: Fake, tmp_path: Path
) -> None:
    writes = Calls("", [("write_file", json.dumps({"path": "a.txt", "content": "so it goes " * 30}))])
    fake.reply = lambda body: "It is there." if body["messages"][-1]["role"] == "tool" else writes
    fake.tools, fake.n_ctx, fake.delay, fake.reply_thinking = True, 16_384, 0.05, "Well. " * 20
    terminal = start("--yes")
    terminal.ask("Write it.", " characters ... ")
    assert re.search(r"writing write_file: \d+ characters \.\.\. \d+ s", terminal.raw)
    fake.delay = 0.0
    terminal.until("It is there.")
    terminal.ready()
    rows = "\n".join(terminal.screen.everything)
    assert "characters ..." not in rows
    assert re.search(r"thought for [1-3] s", rows)
    assert (tmp_path / "a.txt").read_text(encoding="utf-8") == "so it goes " * 30


def test_thinking_is_one_line_and_not_in_the_answer(start: Start, fake: Fake) -> None:
    fake.reply_thinking, fake.delay, fake.reply = "Let me see about this. " * 4, 0.08, "It is so."
    terminal = start()
    terminal.ask("Why?", "thinking ... ")
    terminal.until("It is so.")
    rows = terminal.screen.everything
    assert not any("Let me see" in row or "thinking ..." in row for row in rows)
    assert re.fullmatch(r"thought for \d+ s", rows[rows.index("It is so.") - 1])


def test_thinking_is_shown_beside_the_answer_where_more_is_wanted(
    fake: Fake, environment: dict[str, str], tmp_path: Path
) -> None:
    fake.reply_thinking, fake.reply = "Let me see about this.", "It is so."
    with Terminal("-v", "run", "Why?", "--url", fake.url, environment=environment, folder=tmp_path) as terminal:
        assert terminal.ended() == 0
        rows = terminal.screen.everything
        assert rows.index("Let me see about this.") < rows.index("It is so.")
    assert "\x1b[2mLet" in terminal.raw, "dimmed"


# --- commands -----------------------------------------------------------------------------------------------------


def test_an_unknown_command_is_corrected_and_a_path_is_a_message(start: Start, fake: Fake) -> None:
    terminal = start()
    terminal.ask("/contxt", "did you mean /context? A space before the slash makes it a message")
    terminal.ask("/memory", "no such command")
    terminal.ask("/undo please", "/undo takes nothing behind it")
    assert fake.chats == []
    terminal.ask("/etc/hosts is what?", "Hello there.")
    assert last_words(fake) == "/etc/hosts is what?"
    terminal.ask(" /usr is what?", lambda screen: " ".join(screen.everything).count("Hello there.") == 2)
    assert last_words(fake) == "/usr is what?"


def test_undo_and_retry(start: Start, fake: Fake) -> None:
    terminal = start()
    terminal.ask("/undo", "nothing was said yet")
    terminal.ask("/retry", "nothing was asked yet")
    terminal.ask("One.", "Hello there.")
    fake.reply = "Better."
    terminal.ask("/retry", "Better.")
    assert [each["content"] for each in fake.chats[-1]["messages"]] == ["One."]
    terminal.ask("/undo", "taken back: One. (arrow up brings the words back")
    terminal.ask("Two.", lambda screen: " ".join(screen.everything).count("Better.") == 2)
    assert [each["content"] for each in fake.chats[-1]["messages"]] == ["Two."]


def test_sessions_are_listed_exported_and_a_new_one_begun(start: Start, fake: Fake, tmp_path: Path) -> None:
    terminal = start()
    terminal.ask("The old one.", "Hello there.")
    terminal.ask("/export", "wrote 2 messages to chat.md")
    assert "The old one." in (tmp_path / "chat.md").read_text(encoding="utf-8")
    terminal.ask("/export", "chat.md is there already")
    terminal.ask("/export all.json", "wrote 2 messages to all.json")
    assert json.loads((tmp_path / "all.json").read_text(encoding="utf-8"))["messages"][0]["content"] == "The old one."
    terminal.ask("/new")
    terminal.ask("Something else.", lambda screen: " ".join(screen.everything).count("Hello there.") == 2)
    assert [each["content"] for each in fake.chats[-1]["messages"]] == ["Something else."]
    terminal.ask("/sessions", "this one is 2")
    terminal.until("chat")
    terminal.ask("/exit")
    assert terminal.ended() == 0
    said = [entry["message"]["content"] for entry in journal(tmp_path) if entry.get("type") == "message"]
    assert said == ["The old one.", "Hello there."]
    assert len(list((tmp_path / "data" / "sessions").iterdir())) == 2


def test_the_window_is_lowered_and_what_cannot_be_had_is_said(start: Start, fake: Fake) -> None:
    terminal = start()
    terminal.ask("One.", "Hello there.")
    terminal.ask("/window 1k", "window 1,024 tokens")
    terminal.until(lambda screen: "1.0k" in screen.display[-1])
    terminal.ask("/window 1,000,000", "1,000,000 tokens were asked for")
    terminal.until(lambda screen: "2.0k" in screen.display[-1])
    terminal.ask("/window much", "is no number of tokens")
    terminal.ask("/window 0", "from 1 to 2,147,483,647")
    terminal.ask("Two.", lambda screen: " ".join(screen.everything).count("Hello there.") == 2)
    assert [each["content"] for each in fake.chats[-1]["messages"]] == ["One.", "Hello there.", "Two."]


def test_where_the_next_model_cannot_be_had_the_chat_goes_on_with_the_one_before(start: Start, fake: Fake) -> None:
    terminal = start()
    terminal.ask("One.", "Hello there.")
    terminal.ask("/model nothing-of-the-kind", "going on as before")
    terminal.ask("Two.", lambda screen: " ".join(screen.everything).count("Hello there.") == 2)
    assert [each["content"] for each in fake.chats[-1]["messages"]] == ["One.", "Hello there.", "Two."]


def test_another_model_of_the_server_goes_on_with_the_conversation(start: Start) -> None:
    models = [ollama.Model(name="small:latest"), ollama.Model(name="large:latest", num_ctx=8192)]
    with ollama.running(ollama.Fake(models=models, reply=lambda body: f"I am {body['model']}.")) as server:
        terminal = start("--session", "chat", "--url", server.url, "--model", "small")
        terminal.ask("Who?", "I am small:latest.")
        terminal.ask("/model", "* small:latest")
        terminal.until("  large:latest")
        terminal.type("/model la")
        terminal.until(
            lambda screen: (
                screen.display.count("") < 30 and any(row.strip() == "large:latest" for row in screen.display)
            )
        )
        terminal.send("\t\r")
        terminal.until("large:latest on ollama")
        terminal.until("going on with 3 messages")
        terminal.ask("And now?", "I am large:latest.")
        terminal.ask("/window 2048", "window 2,048 tokens")
        terminal.ask("And here?", lambda screen: " ".join(screen.everything).count("I am large:latest.") == 2)
        terminal.ask("/exit")
        assert terminal.ended() == 0
        assert server.loads[-1][1] == 2048


def test_without_a_chat_the_editor_and_the_renderer_of_markdown_are_not_loaded(environment: dict[str, str]) -> None:
    code = (
        "import sys; from localctx.cli.app import app\n"
        "try: app(['run', '--help'])\nexcept SystemExit: pass\n"
        "print([name for name in sys.modules if name.split('.')[0] in ('prompt_toolkit', 'markdown_it', 'pygments')])"
    )
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"
