from __future__ import annotations

import contextlib
import json
import os
import re
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import pexpect
import pytest
from typer.testing import CliRunner

from localctx.app.session import Session
from localctx.cli.app import app
from localctx.core.effects import Compacted
from localctx.core.journal import project
from localctx.core.messages import Checkpoint, ToolCall, Words
from localctx.core.outgoing import outgoing
from localctx.errors import LocalctxError
from localctx.stores.journal import FileJournal
from localctx.stores.sessions import Sessions
from tests.app.conftest import answering
from tests.cli.conftest import Run
from tests.fakes.llama_server import Fake, running

Made = Callable[..., Session]

CALL = {"id": "call_1", "type": "function", "function": {"name": "read_file", "arguments": '{"path": "a.txt"}'}}
WHOLE = "".join(f"line {number} of the file\n" for number in range(900))
SHOWN = WHOLE[:6_000] + "\n[all 17,990 characters: retrieve_tool_result 4]"
NOTES = Checkpoint(4, "model", (("goal", ("Read a.txt.",)),), words=(Words(2, "Read a.txt."),))
TAKEN = {"rung": "compact", "tokens_before": 3_000, "tokens_after": 800, "seconds": 4.25, "why": "83% were used"}


@pytest.fixture
def sessions(tmp_path: Path) -> Sessions:
    return Sessions(tmp_path / "data")


@pytest.fixture
def make(sessions: Sessions) -> Iterator[Made]:
    """Opens sessions, new or not; those that a test leaves open are closed after it."""
    opened = list[FileJournal]()

    def made(name: str, *words: str) -> Session:
        session = Session(sessions.create(name))
        assert isinstance(session.journal, FileJournal)
        opened.append(session.journal)
        for number, text in enumerate(words):
            session.add({"role": ("user", "assistant")[number % 2], "content": text})
        return session

    yield made
    for journal in opened:
        journal.close()


def end(session: Session) -> None:
    assert isinstance(session.journal, FileJournal)
    session.journal.close()


@pytest.fixture
def mine(make: Made) -> Path:
    """A session with a call, a long result, a compaction and a work state; its folder."""
    session = make("mine")
    session.note("window", tokens=4_096, confidence="served", model="tiny")
    session.add({"role": "user", "content": "Read a.txt."})
    session.add({"role": "assistant", "content": "", "reasoning_content": "Hm.", "tool_calls": [CALL]})
    session.answer(ToolCall("call_1", "read_file", "{}"), SHOWN, size=len(WHOLE), whole=WHOLE)
    session.add({"role": "assistant", "content": "I have read it."})
    session.commit(Compacted(NOTES), session.begin("compact"), TAKEN)
    session.work({"goal": "read all files", "todos": [{"text": "b.txt"}]})
    session.add({"role": "user", "content": "Now b.txt."})
    session.add({"role": "assistant", "content": "There is none."})
    end(session)
    assert isinstance(session.journal, FileJournal)
    return session.journal.path.parent


@pytest.fixture
def here(environment: dict[str, str], tmp_path: Path) -> Run:
    """Runs the program within this one, which is quicker."""
    return partial(within, environment, tmp_path)


def within(
    environment: Mapping[str, str], folder: Path, *args: str, stdin: str = ""
) -> subprocess.CompletedProcess[str]:
    """What the program would do in a folder, as `localctx.__main__` ends it."""
    with contextlib.chdir(folder):
        done = CliRunner().invoke(app, args, input=stdin, env=environment)
    error, code = done.stderr, done.exit_code
    if isinstance(done.exception, LocalctxError):
        error, code = f"{error}localctx: {' '.join(str(done.exception).split())}\n", done.exception.exit_code
    elif done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    return subprocess.CompletedProcess(args, code, done.stdout, error)


def complaint(text: str) -> str:
    """The one line that says why."""
    lines = [line for line in text.splitlines() if line.startswith("localctx: ")]
    assert len(lines) == 1, text
    return lines[0]


def damage(folder: Path, line: int) -> None:
    path = folder / "journal.jsonl"
    lines = path.read_text(encoding="utf-8").split("\n")
    lines[line - 1] = "not json"
    path.write_text("\n".join(lines), encoding="utf-8")


# --- list ---------------------------------------------------------------------------------------------------------


def test_without_sessions_the_list_says_how_to_begin(localctx: Run) -> None:
    done = localctx("sessions", "list")
    assert (done.returncode, done.stdout) == (0, "No session yet; begin one with: localctx run\n")
    assert json.loads(localctx("sessions", "list", "--json").stdout) == {"schema": 1, "sessions": []}


def test_the_list_is_newest_first_and_fits_80_columns(here: Run, make: Made, mine: Path) -> None:
    os.utime(mine / "journal.jsonl", (1, 1))
    other = make("other", "Wozu? " * 40, "Answer.")
    other.note("window", tokens=1, model="maker/" + "long-name-" * 9)
    make("x" * 100, "日本語" * 40)
    done = here("sessions", "list")
    assert (done.returncode, done.stderr) == (0, "")
    lines = done.stdout.splitlines()
    assert [line.split()[0] for line in lines[::2]] == ["x" * 100, "other", "mine"]
    assert all(len(line) <= 80 for line in lines[1:])
    assert lines[2].startswith("other                     Wozu? Wozu?")
    assert re.fullmatch(r"  \d{4}-\d\d-\d\d \d\d:\d\d, 2 messages, 0 compactions, 1 kB, maker/long.*…", lines[3])
    assert re.search(r", 6 messages, 1 compaction, \d\d kB, tiny$", lines[5])


def test_the_list_as_json_has_the_figures_of_the_journal(here: Run, mine: Path) -> None:
    (row,) = json.loads(here("sessions", "list", "--json").stdout)["sessions"]
    assert row["size_bytes"] == sum(each.stat().st_size for each in mine.rglob("*") if each.is_file())
    known = {"name": "mine", "messages": 6, "compactions": 1, "model": "tiny", "first_words": "Read a.txt."}
    assert {**row, **known, "trouble": None} == row


def test_a_damaged_session_is_listed_with_what_is_wrong(here: Run, make: Made, mine: Path) -> None:
    end(make("whole", "Hi."))
    damage(mine, 5)
    done = here("sessions", "list")
    assert done.returncode == 0
    assert "! damaged" in done.stdout
    assert "line 5 is no journal entry" in done.stderr
    rows = json.loads(here("sessions", "list", "--json").stdout)["sessions"]
    assert {row["name"]: (row["messages"], bool(row["trouble"])) for row in rows} == {
        "mine": (2, True),
        "whole": (1, False),
    }


# --- show ---------------------------------------------------------------------------------------------------------


def test_show_tells_a_session_in_figures(here: Run, mine: Path) -> None:
    done = here("sessions", "show")
    assert (done.returncode, done.stderr) == (0, "")
    told = dict(re.findall(r"^(\S.*?) {2,}(.*)$", done.stdout, re.MULTILINE))
    assert told["session"] == "mine"
    assert (told["model"], told["window"], told["confidence"]) == ("tiny", "4,096", "served")
    assert (told["messages"], told["messages taken back"], told["compactions"]) == ("6", "0", "1")
    assert told["tool"] == "read_file: 1 result, 18,790 characters returned, 6,048 shown to the model"
    assert told["folder"] == str(mine)
    assert "work                 goal: read all files\n" in done.stdout
    assert "work                 pending: b.txt\n" in done.stdout


def test_show_as_json(here: Run, mine: Path) -> None:
    here("sessions", "undo", "mine")
    shown = json.loads(here("sessions", "show", "mi", "--json").stdout)
    assert shown["schema"] == 1
    assert (shown["messages"], shown["messages_taken_back"], shown["lines_undone"]) == (4, 2, 2)
    assert shown["tools"] == [{"tool": "read_file", "results": 1, "returned": len(WHOLE), "shown": len(SHOWN)}]
    assert shown["work"] == {"goal": "read all files", "todos": [{"text": "b.txt", "status": "pending"}]}
    assert shown["size_bytes"] == sum(each.stat().st_size for each in mine.rglob("*") if each.is_file())
    assert shown["forked_from"] is None
    assert shown["trouble"] is None


def test_compactions_are_shown_with_the_summary_as_the_model_read_it(here: Run, mine: Path) -> None:
    done = here("sessions", "show", mine.name, "--compactions")
    assert re.search(
        r"notes on the earlier part .*\n\nRead a\.txt\.\n\n## Goal\n- Read a\.txt\.\n\(end of notes\)", done.stdout
    )
    told = dict(re.findall(r"^(\S.*?) {2,}(.*)$", done.stdout, re.MULTILINE))
    assert (told["tokens before"], told["tokens after"], told["seconds"]) == ("3,000", "800", "4.25")
    assert (told["author"], told["why"], told["undone"]) == ("model", "83% were used", "no")
    assert (told["replaced messages"], told["replaced from"], told["replaced to"]) == ("3", "2", "4")


def test_a_compaction_that_was_undone_stays_to_be_seen(here: Run, make: Made) -> None:
    session = make("long", "One.", "Two.", "Three.")
    session.commit(Compacted(Checkpoint(2, "machine")))
    end(session)
    assert here("sessions", "undo").stdout == "taken back: Three. (1 message, 1 compaction)\n"
    (row,) = json.loads(here("sessions", "show", "--compactions", "--json").stdout)["compactions"]
    assert (row["undone"], row["replaced_from"], row["replaced_to"], row["tokens_before"]) == (True, 1, 2, None)
    assert "undone               yes\n" in here("sessions", "show", "--compactions").stdout


def test_without_a_compaction_that_is_said(here: Run, make: Made) -> None:
    make("short", "Hi.")
    assert here("sessions", "show", "--compactions").stdout == "No compaction has happened in session short.\n"


def test_a_result_is_shown_whole_from_its_file(here: Run, mine: Path) -> None:
    done = here("sessions", "show", "mine", "--message", "4")
    assert (done.stdout, done.stderr) == (WHOLE + "\n", "")
    shown = json.loads(here("sessions", "show", "mine", "--message", "4", "--json").stdout)
    assert (shown["whole"], shown["message"]["content"], shown["tool"]) == (WHOLE, SHOWN, "read_file")
    for each in (mine / "results").iterdir():
        each.unlink()
    done = here("sessions", "show", "mine", "--message", "4")
    assert "characters that are no longer here" in done.stdout
    assert "no longer here whole" in done.stderr


def test_any_message_can_be_shown(here: Run, mine: Path) -> None:
    assert here("sessions", "show", mine.name, "--message", "2").stdout == "Read a.txt.\n"
    called = here("sessions", "show", mine.name, "--message", "3").stdout
    assert "Hm." in called
    assert '{"path": "a.txt"}' in called


@pytest.mark.parametrize("line", ["1", "0", "-1", "999"])
def test_a_line_that_holds_no_message(here: Run, mine: Path, line: str) -> None:
    done = here("sessions", "show", mine.name, "--message", line)
    assert (done.returncode, done.stdout) == (2, "")
    assert "--format markdown names the line of each" in complaint(done.stderr)


# --- export -------------------------------------------------------------------------------------------------------


def test_an_export_holds_every_word_also_what_a_compaction_replaced(here: Run, mine: Path) -> None:
    done = here("sessions", "export")
    assert done.stderr == ""
    (document,) = (json.loads(done.stdout),)
    assert document.keys() == {"messages"}
    read, called, answered, *rest = document["messages"]
    assert read == {"role": "user", "content": "Read a.txt."}
    assert called == {"role": "assistant", "content": "", "reasoning_content": "Hm.", "tool_calls": [CALL]}
    assert answered == {"role": "tool", "tool_call_id": "call_1", "content": SHOWN}
    assert [each["content"] for each in rest] == ["I have read it.", "Now b.txt.", "There is none."]
    assert mine.is_dir()


def test_an_export_can_be_counted(localctx: Run, mine: Path, tmp_path: Path) -> None:
    assert localctx("sessions", "export", mine.name, "--out", "saved.json").returncode == 0
    done = localctx("count", str(tmp_path / "work" / "saved.json"), "--json", "--counter", "baseline")
    assert '"format": "openai"' in done.stdout


def test_next_is_what_the_model_would_read(here: Run, mine: Path) -> None:
    journal = FileJournal(mine / "journal.jsonl")
    journal.close()
    expected = outgoing(project(journal.entries()))
    assert json.loads(here("sessions", "export", "--next").stdout)["messages"] == expected
    assert "Read a.txt." in str(expected[0]["content"])
    assert len(expected) == 4


def test_a_long_run_past_its_window_loses_nothing(localctx: Run) -> None:
    pieces = [f"Piece {number}: " + "so it goes on " * 40 for number in range(6)]
    with running(Fake(n_ctx=1024, reply=answering("Understood."))) as server:
        for piece in pieces:
            assert localctx("run", piece, "--url", server.url, "--session", "long").returncode == 0
    said = [each["content"] for each in json.loads(localctx("sessions", "export").stdout)["messages"]]
    assert said == [text for piece in pieces for text in (piece, "Understood.")]
    (made,) = json.loads(localctx("sessions", "show", "--compactions", "--json").stdout)["compactions"]
    assert (made["author"], made["rung"]) == ("model", "compact")
    assert made["tokens_before"] > made["tokens_after"] > 0
    assert made["replaced_messages"] >= 2
    assert "due at 80%" in made["why"]


def test_markdown_names_roles_and_lines(here: Run, make: Made, mine: Path) -> None:
    text = here("sessions", "export", mine.name, "--format", "markdown").stdout
    assert re.findall(r"^#+ .*$", text, re.MULTILINE) == [
        "# mine",
        "## User (line 2)",
        "## Assistant (line 3)",
        "## Result of read_file call_1 (line 4)",
        "## Assistant (line 5)",
        "## User (line 9)",
        "## Assistant (line 10)",
    ]
    cut = make("cut", "Count.")
    cut.add({"role": "assistant", "content": "One, tw"}, complete=False)
    assert "## Assistant (line 2, interrupted)" in here("sessions", "export", "cut", "--format", "markdown").stdout


@pytest.mark.parametrize(
    "text", ["\x1b[2J\x9b31m\u202eabc\x00\x7f", "half \ud83d", "tab\t and\r\nlines\u2028"], ids=ascii
)
def test_an_export_is_exact_and_steers_no_terminal(here: Run, make: Made, text: str) -> None:
    make("odd", text)
    done = here("sessions", "export")
    assert json.loads(done.stdout)["messages"] == [{"role": "user", "content": text}]
    for command in (["export"], ["export", "--format", "markdown"], ["list"], ["show", "--message", "1"]):
        shown = here("sessions", *command).stdout
        assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e]", shown)


def test_out_makes_a_private_file_and_never_overwrites(here: Run, mine: Path, tmp_path: Path) -> None:
    (tmp_path / "new").mkdir()
    done = here("sessions", "export", mine.name, "--out", "new/a.json")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "wrote 6 messages to new/a.json\n")
    path = tmp_path / "new" / "a.json"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    before = path.read_bytes()
    assert json.loads(before)["messages"]
    (tmp_path / "new" / "link.json").symlink_to(tmp_path / "elsewhere")
    for taken in ("new/a.json", "new", "new/link.json", "new/no/such", "new/a.json/b", ""):
        done = here("sessions", "export", mine.name, "--out", taken)
        assert (done.returncode, done.stdout) == (2, ""), taken
        assert "name a file" in complaint(done.stderr)
    assert path.read_bytes() == before
    assert sorted(each.name for each in path.parent.iterdir()) == ["a.json", "link.json"]


@pytest.mark.skipif(sys.platform == "win32", reason="there is no full device")
@pytest.mark.usefixtures("mine")
def test_a_full_disk_leaves_no_half_of_an_export(environment: dict[str, str], tmp_path: Path) -> None:
    folder = tmp_path / "empty"
    folder.mkdir()
    code = (
        "import resource, sys; resource.setrlimit(resource.RLIMIT_FSIZE, (3000, 3000));"
        "import signal; signal.signal(signal.SIGXFSZ, signal.SIG_IGN);"
        "sys.argv = ['localctx', 'sessions', 'export', '--out', 'a.json'];"
        "from localctx.__main__ import main; main()"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2, done.stderr
    assert "cannot write a.json" in complaint(done.stderr)
    assert list(folder.iterdir()) == []


# --- fork, undo, rm -----------------------------------------------------------------------------------------------


def test_a_fork_is_named_and_goes_on_by_itself(here: Run, mine: Path) -> None:
    done = here("sessions", "fork", "mi", "theirs", "--through", "5")
    assert (done.returncode, done.stdout) == (0, "theirs\n")
    assert "localctx run --resume theirs" in done.stderr
    shown = json.loads(here("sessions", "show", "theirs", "--json").stdout)
    assert (shown["forked_from"], shown["messages"], shown["compactions"]) == ("mine", 4, 0)
    assert here("sessions", "show", "theirs", "--message", "4").stdout == WHOLE + "\n"
    assert "forked from          mine\n" in here("sessions", "show", "theirs").stdout
    new = here("sessions", "fork", mine.name).stdout.strip()
    assert json.loads(here("sessions", "show", new, "--json").stdout)["messages"] == 6


@pytest.mark.parametrize("words", [("mine", "mine"), ("mine", "../up"), ("mine", "x", "--through", "0"), ()])
def test_a_fork_that_cannot_be(here: Run, mine: Path, words: tuple[str, ...]) -> None:
    assert here("sessions", "fork", *words).returncode == 2
    assert [each.name for each in mine.parent.iterdir()] == ["mine"]


def test_an_undo_is_told_and_a_redo_brings_it_back(here: Run, mine: Path, tmp_path: Path) -> None:
    before = json.loads(here("sessions", "export").stdout)
    done = here("sessions", "undo")
    assert (done.returncode, done.stdout) == (0, "taken back: Now b.txt. (2 messages)\n")
    assert done.stderr == "bring it back: localctx sessions undo mine --redo\n"
    assert len(json.loads(here("sessions", "export").stdout)["messages"]) == 4
    done = here("sessions", "undo", "mine")
    assert done.stdout == "taken back: Read a.txt. (4 messages, 1 compaction)\n"
    assert not (tmp_path / "data" / "work" / "mine" / "state.json").exists()
    done = here("sessions", "undo", mine.name)
    assert done.returncode == 2
    assert "nothing to take back" in complaint(done.stderr)
    for words in ("Read a.txt. (4 messages, 1 compaction)", "Now b.txt. (2 messages)"):
        done = here("sessions", "undo", "--redo")
        assert (done.returncode, done.stdout) == (0, f"brought back: {words}\n")
    assert done.stderr == "take it back again: localctx sessions undo mine\n"
    assert json.loads(here("sessions", "export").stdout) == before
    state = json.loads((tmp_path / "data" / "work" / "mine" / "state.json").read_text(encoding="utf-8"))
    assert state["goal"] == "read all files"
    done = here("sessions", "undo", "--redo")
    assert done.returncode == 2
    assert "nothing to bring back" in complaint(done.stderr)


def test_nothing_is_redone_once_the_conversation_went_on(here: Run, make: Made) -> None:
    end(make("mine", "One.", "Two."))
    here("sessions", "undo")
    end(make("mine", "Three."))
    assert here("sessions", "undo", "--redo").returncode == 2
    assert [each["content"] for each in json.loads(here("sessions", "export").stdout)["messages"]] == ["Three."]


def test_a_session_goes_on_after_an_undo(localctx: Run) -> None:
    with running(Fake(reply="Hello there.")) as server:
        localctx("run", "One.", "--url", server.url, "--session", "mine")
        localctx("run", "Two.", "--url", server.url, "--session", "mine")
        localctx("sessions", "undo")
        localctx("run", "Three.", "--url", server.url, "--continue")
        said = [message["content"] for message in server.chats[-1]["messages"]]
    assert said == ["One.", "Hello there.", "Three."]


def test_rm_asks_on_a_terminal_and_needs_yes_elsewhere(
    localctx: Run, mine: Path, environment: dict[str, str], tmp_path: Path
) -> None:
    localctx("sessions", "undo")
    done = localctx("sessions", "rm", "mine", stdin="y\n")
    assert (done.returncode, done.stdout) == (2, "")
    assert "--yes" in complaint(done.stderr)
    assert mine.is_dir()
    for answer, left in (("", True), ("y", False)):
        child = pexpect.spawn(
            sys.executable, ["-m", "localctx", "sessions", "rm", "mi"], env=environment, encoding="utf-8", timeout=20
        )
        child.expect(r"1 session with all that was said \(mine\) for good\? \(y/n\)")
        child.sendline(answer)
        child.expect("nothing was removed" if left else "removed mine")
        child.expect(pexpect.EOF)
        child.close()
        assert (child.exitstatus, mine.exists()) == (0, left)
    assert not (tmp_path / "data" / "work" / "mine").exists()


def test_rm_checks_all_before_any_goes(here: Run, make: Made, mine: Path, tmp_path: Path) -> None:
    make("open", "Hi.")
    for other, code in (("nope", 3), ("open", 2), ("../mine", 2)):
        done = here("sessions", "rm", "mine", other, "--yes")
        assert (done.returncode, done.stdout) == (code, ""), other
        assert mine.is_dir()
    end(make("other", "Hi."))
    assert here("sessions", "rm", "mine", "oth", "mi", "--yes").stdout == "removed mine\nremoved other\n"
    assert [each.name for each in (tmp_path / "data" / "sessions").iterdir()] == ["open"]


# --- hostile and unlucky ------------------------------------------------------------------------------------------

ON_ONE: list[tuple[str, ...]] = [
    ("show",),
    ("show", "--compactions"),
    ("show", "--message", "1"),
    ("export",),
    ("fork",),
    ("undo",),
    ("rm", "--yes"),
]


@pytest.mark.parametrize("name", ["../mine", "/etc", ".", "..", "a/b", "-x", "", "a\nb", "mine/../mine", "x" * 101])
def test_a_name_that_is_none_is_wrong_usage(here: Run, mine: Path, name: str) -> None:
    for command, *flags in (("show",), ("rm", "--yes")):
        done = here("sessions", command, *flags, "--", name)
        assert (done.returncode, done.stdout) == (2, "")
        assert "session name" in complaint(done.stderr)
    assert mine.is_dir()


@pytest.mark.parametrize(("name", "said"), [("nope", "no session"), ("m", "more than one session begins with")])
def test_a_name_of_no_session_or_of_many(here: Run, make: Made, mine: Path, name: str, said: str) -> None:
    make("more", "Hi.")
    for command, *flags in ON_ONE:
        done = here("sessions", command, name, *flags)
        assert (done.returncode, done.stdout) == (3, "")
        assert said in complaint(done.stderr)
    assert mine.is_dir()


def test_a_session_that_is_being_written_is_read_and_not_changed(localctx: Run, make: Made, tmp_path: Path) -> None:
    make("live", "One.", "Two.")
    path = tmp_path / "data" / "sessions" / "live" / "journal.jsonl"
    with path.open("a", encoding="utf-8") as file:
        file.write('{"seq": 3, "at": "2026-01-01T00:00')
    before = path.read_bytes()
    assert ", 2 messages," in localctx("sessions", "list").stdout
    for command in (["show"], ["export"]):
        done = localctx("sessions", *command)
        assert (done.returncode, done.stderr) == (0, "")
    for command in (["undo"], ["undo", "--redo"], ["rm", "live", "--yes"]):
        done = localctx("sessions", *command)
        assert (done.returncode, done.stdout) == (2, "")
        assert "open in another program" in complaint(done.stderr)
    assert path.read_bytes() == before


@pytest.mark.parametrize("line", [2, 6, 10])
def test_what_is_before_the_damage_is_shown_with_a_warning(here: Run, mine: Path, line: int) -> None:
    damage(mine, line)
    for command in (["show"], ["show", "--compactions"], ["export"], ["export", "--format", "markdown"]):
        done = here("sessions", *command)
        assert (done.returncode, bool(done.stdout)) == (1, True)
        assert f"line {line} is no journal entry" in complaint(done.stderr)
    assert len(json.loads(here("sessions", "export").stdout)["messages"]) == {2: 0, 6: 3, 10: 4}[line]
    assert "no journal entry" in json.loads(here("sessions", "show", "--json").stdout)["trouble"]
    assert here("sessions", "show", "--message", "20").returncode == 1


def test_an_effect_that_cannot_be_read_is_damage_as_well(here: Run, mine: Path) -> None:
    path = mine / "journal.jsonl"
    path.write_text(path.read_text(encoding="utf-8").replace('"through": 4', '"through": "x"'), encoding="utf-8")
    done = here("sessions", "export")
    assert done.returncode == 1
    assert len(json.loads(done.stdout)["messages"]) == 4
    assert "entry 7" in complaint(done.stderr)


def entry(seq: int, kind: str, **fields: Any) -> str:  # noqa: ANN401  any JSON value
    return json.dumps({"seq": seq, "at": "\x1b[31mnever", "type": kind, **fields})


def test_a_journal_of_odd_values_is_shown_without_a_crash(here: Run, tmp_path: Path) -> None:
    lines = [
        json.dumps({"schema": 1, "session": 7, "created": ["x"], "forked_from": {"a": "\x1b[2J"}}),
        entry(1, "window", model={"x": 1}, tokens="many\x1b[31m"),
        entry(2, "message", message=None),
        entry(3, "message", message={"role": 5, "content": {"a": "\x9b"}}, size=[], tool=7),
        entry(4, "message", message={"role": "tool", "content": None}, tool="t", size="big", bodies=[1]),
        entry(5, "message", message={"role": "tool", "content": "x"}, tool="t", bodies={"content": {"characters": 9}}),
        entry(6, "commit", effect={"kind": "withdrawn", "since": 10**30}, taken=7),
        entry(7, "work", patch=[1]),
        entry(8, "undo", to=7, at_all=None),
    ]
    folder = tmp_path / "data" / "sessions" / "odd"
    folder.mkdir(parents=True)
    (folder / "journal.jsonl").write_text("\n".join([*lines, ""]), encoding="utf-8")
    commands = ["list", "show", "show --compactions", "export", "export --format markdown", "export --next"]
    for command in (*commands, *(f"show --message {line}" for line in range(2, 6))):
        done = here("sessions", *command.split())
        assert (done.returncode, done.stderr) == (0, ""), command
        assert not re.search(r"[\x1b\x9b]", done.stdout)
    assert here("work", "show").returncode == 0


def test_a_data_directory_that_is_none(here: Run, tmp_path: Path) -> None:
    (tmp_path / "data").write_text("in the way", encoding="utf-8")
    for command in (["list"], ["show"], ["undo"]):
        done = here("sessions", *command)
        assert done.returncode == 2
        assert "LOCALCTX_HOME" in complaint(done.stderr)


def test_the_help_names_every_command(localctx: Run) -> None:
    told = localctx("sessions", "--help").stdout
    assert all(f"\n  {command} " in told for command in ("list", "show", "export", "fork", "undo", "rm"))
    assert re.search(r"^  (sessions|work) +\S", localctx("--help").stdout, re.MULTILINE)
