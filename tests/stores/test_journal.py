from __future__ import annotations

import json
import os
import re
import shutil
import signal
import stat
import subprocess
import sys
import threading
import tracemalloc
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache
from hashlib import sha256
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from localctx.core.effects import Compacted, Withdrawn
from localctx.core.journal import Entry, advance, begin, commit, decode, encode, message, project, undo, work
from localctx.core.messages import Checkpoint, History, Words
from localctx.core.transcript import flatten
from localctx.errors import JournalDamaged, StoreUnusable
from localctx.stores.journal import FileJournal, Lines, MemoryJournal, in_file
from localctx.stores.results import Results
from tests.core.strategies import Move, json_values, lives, play
from tests.stores.test_files import NO_FILES, no_file, traced

AT = "2026-01-01T00:00:00.000+00:00"
HEADER = f'{{"schema": 1, "session": "s", "created": "{AT}"}}'
SAID = {"role": "user", "content": "hi"}
LONG = "first words " + "x" * 20_000 + " last words"
ROOT = Path(__file__).parents[2]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "sessions" / "s" / "journal.jsonl"


@pytest.fixture
def journal(path: Path) -> Iterator[FileJournal]:
    journal = FileJournal(path)
    yield journal
    journal.close()


def lines(path: Path) -> list[bytes]:
    """The lines of a journal; its last one must be whole."""
    content = path.read_bytes()
    assert content.endswith(b"\n")
    return content[:-1].split(b"\n")


def opened(path: Path) -> list[Entry]:
    """The entries of a journal after it was opened for writing."""
    journal = FileJournal(path)
    journal.close()
    assert journal.trouble == ""
    return list(journal.entries())


def written(path: Path, *texts: str | bytes, torn: bytes = b"") -> Path:
    path.parent.mkdir(parents=True)
    path.write_bytes(b"".join((each.encode() if isinstance(each, str) else each) + b"\n" for each in texts) + torn)
    return path


def line(seq: int, kind: str = "message", **fields: object) -> str:
    more = fields or ({"message": SAID} if kind == "message" else {})
    return json.dumps({"seq": seq, "at": AT, "type": kind, **more})


def answer(text: str, **more: object) -> tuple[str, dict[str, object]]:
    return "message", {"message": {"role": "tool", "tool_call_id": "c", "content": text}, "tool": "read", **more}


START = """import errno, json, os, resource, subprocess, sys
from pathlib import Path
from localctx.core.journal import message, project
from localctx.errors import LocalctxError
from localctx.stores.journal import FileJournal, Lines
from localctx.stores.sessions import Sessions
def allow(size):
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))
def texts(entries):
    return [entry.body.get("text") for entry in entries]
"""


def ran(command: Sequence[str], code: str, *args: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*command, sys.executable, "-c", START + code, *map(str, args)],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
        cwd=ROOT,
    )


def child(code: str, *args: object) -> subprocess.CompletedProcess[str]:
    """A program of its own, which may end, be ended, or be given less than others."""
    return ran([], code, *args)


APART = ["unshare", "--mount", "--map-root-user"]
"""A program that sees its own mounts, which are gone with it."""


@cache
def may_mount() -> bool:
    if shutil.which(APART[0]) is None:
        return False
    mount = 'mount -t tmpfs -o size=64k none "$1" && mount -o remount,ro "$1"'
    try:
        done = subprocess.run([*APART, "sh", "-c", mount, "sh", "/mnt"], capture_output=True, check=False, timeout=60)
    except OSError:
        return False
    return done.returncode == 0


def on_a_disk(folder: Path, code: str) -> None:
    """Runs code with a small disk of its own at `sys.argv[1]`, which may fill up or become read-only."""
    if not may_mount():
        pytest.skip("this user may not mount a disk of its own (unshare --mount --map-root-user)")
    folder.mkdir()
    mounted = """
def mount(*options):
    subprocess.run(["mount", *options, sys.argv[1]], check=True)
mount("-t", "tmpfs", "-o", "size=128k", "none")
home = Path(sys.argv[1])
"""
    done = ran(APART, mounted + code, folder)
    assert (done.returncode, done.stderr) == (0, "")


# --- in memory ------------------------------------------------------------------------------------------------------


def test_a_journal_in_memory_keeps_what_it_is_given_and_has_no_name() -> None:
    memory = MemoryJournal()
    assert (memory.name, memory.trouble, memory.last_seq, list(memory.entries())) == (None, "", 0, [])
    kept = [memory.append(*message(SAID), sync=True), memory.append(*answer("part", whole=LONG))]
    assert list(memory.entries()) == kept
    assert [each.seq for each in kept] == [1, 2]
    assert memory.last_seq == 2
    assert memory.whole(kept[1]) == LONG
    assert memory.whole(kept[0]) is None
    assert memory.shrink([1]) == 0
    assert project(memory.entries()).last_seq == 2
    memory.leave()


def test_a_journal_in_memory_says_why_it_is_one() -> None:
    assert MemoryJournal("the disk is full").trouble == "the disk is full"


def test_long_results_of_a_journal_in_memory_are_files_until_it_is_left(tmp_path: Path) -> None:
    folder = tmp_path / "bodies"
    memory, text = MemoryJournal(folder=folder), "line\n" * 5_000
    call = {"id": "a", "type": "function", "function": {"name": "read_file", "arguments": "{}"}}
    memory.append("message", {"message": {"role": "assistant", "content": "", "tool_calls": [call]}})
    result = {"role": "tool", "tool_call_id": "a", "content": text[:8_000]}
    memory.append("message", {"message": result, "whole": text})
    assert sum(file.stat().st_size for file in folder.iterdir()) == len(text) + 8_000
    assert [entry.body["message"] for entry in memory.entries()][1] == result
    assert memory.whole(memory.entries()[1]) == text
    assert len(str(memory._entries)) < 4_000, "the text itself is not in memory"
    memory.leave()
    assert not folder.exists()


# --- what is written ------------------------------------------------------------------------------------------------


def test_a_header_then_numbered_lines(path: Path, journal: FileJournal) -> None:
    assert list(journal.entries()) == []
    assert (journal.name, journal.last_seq, journal.trouble) == ("s", 0, "")
    entries = [journal.append(*message(SAID), sync=True), journal.append("notice", {"code": "x"})]
    assert list(journal.entries()) == list(journal.entries()) == entries
    assert journal.last_seq == 2
    header, *rest = [json.loads(each) for each in lines(path)]
    assert (header["schema"], header["session"]) == (1, "s")
    assert [(each["seq"], each["type"]) for each in rest] == [(1, "message"), (2, "notice")]
    assert rest[0]["message"] == SAID
    assert [each["at"] for each in rest] == [entry.at for entry in entries]
    assert header["created"] <= rest[0]["at"] <= rest[1]["at"]


def test_an_entry_is_on_disk_before_it_counts(path: Path, journal: FileJournal) -> None:
    for number in range(1, 4):
        entry = journal.append("notice", {"number": number})
        assert decode(lines(path)[-1].decode()) == entry
        assert len(lines(path)) == number + 1


def test_a_journal_goes_on_where_it_ended(path: Path, journal: FileJournal) -> None:
    journal.append(*message(SAID))
    journal.append("notice", {})
    journal.close()
    again = FileJournal(path)
    assert list(again.entries()) == list(journal.entries())
    assert again.last_seq == 2
    assert again.append(*message(SAID)).seq == 3
    again.close()
    assert [entry.seq for entry in opened(path)] == [1, 2, 3]
    assert len(lines(path)) == 4


def test_a_journal_is_only_added_to(path: Path, journal: FileJournal) -> None:
    before = b""
    for kind, body in (begin("clear"), message(SAID), commit(Withdrawn(2), 1), undo(1), answer(LONG), begin("warn")):
        journal.append(kind, body)
        assert path.read_bytes().startswith(before)
        before = path.read_bytes()
    journal.close()
    opened(path)
    assert path.read_bytes().startswith(before)


@pytest.mark.parametrize("umask", [0o000, 0o022])
def test_it_is_for_its_owner_alone(tmp_path: Path, umask: int) -> None:
    path = tmp_path / "new" / "home" / "s" / "journal.jsonl"
    before = os.umask(umask)
    try:
        journal = FileJournal(path)
        journal.append(*answer(LONG))
        journal.close()
    finally:
        os.umask(before)
    (body,) = (path.parent / "results").iterdir()
    assert {stat.S_IMODE(each.stat().st_mode) for each in (path, body)} == {0o600}
    folders = [body.parent, *body.parent.parents]
    assert {stat.S_IMODE(each.stat().st_mode) for each in folders[: folders.index(tmp_path)]} == {0o700}


TEXTS = ["", "\u2028\u2029\x85\r\n\t\0", "\ud800 alone", "\U0001f600\u6f22\u00e9", '"\\', "x" * 3_000_000]


@pytest.mark.parametrize("role", ["user", "tool"])
@pytest.mark.parametrize("text", TEXTS, ids=lambda text: ascii(text[:12]))
def test_any_text_comes_back_as_it_was(path: Path, journal: FileJournal, text: str, role: str) -> None:
    entry = journal.append(*message({"role": role, "content": text, "tool_call_id": "c"}), sync=True)
    journal.append("notice", {})
    journal.close()
    assert opened(path)[0].body["message"] == entry.body["message"]
    with path.open(encoding="utf-8", newline="\n") as file:
        read = [json.loads(each) for each in file]
    assert [each.get("seq") for each in read] == [None, 1, 2]
    assert role == "tool" or read[1]["message"]["content"] == text


@given(st.lists(st.dictionaries(st.sampled_from(["message", "effect", "x", "seq", "at", "type"]), json_values)))
def test_any_json_comes_back_as_it_was(
    tmp_path_factory: pytest.TempPathFactory, bodies: list[dict[str, object]]
) -> None:
    folder = tmp_path_factory.mktemp("any")
    journal = FileJournal(folder / "s" / "journal.jsonl")
    for body in bodies:
        journal.append("later", body)
    journal.close()
    own = {"seq", "at", "type"}
    expected = [{name: value for name, value in body.items() if name not in own} for body in bodies]
    assert json.dumps([entry.body for entry in Lines(journal.path)]) == json.dumps(expected)
    shutil.rmtree(folder)


@pytest.mark.skipif(shutil.which("jq") is None, reason="jq is not installed")
def test_jq_reads_every_line(path: Path, journal: FileJournal) -> None:
    """Apart from the one text that is half a character: of that, jq before 1.7 says that it is none."""
    for text in TEXTS:
        if text.isprintable() or "\ud800" not in text:
            journal.append(*message({"role": "user", "content": text}))
            journal.append(*answer(text * 3 + LONG, whole=text + LONG, size=1.5))
    for kind, body in (begin("compact"), work({"goal": "x"}), work(None), undo(3), ("usage", {"x": float("inf")})):
        journal.append(kind, body)
    journal.append(*commit(Compacted(Checkpoint(2, "machine", words=(Words(1, "\u2028"),))), taken={"tokens": 10**20}))
    done = subprocess.run(["jq", "-c", "[.seq, .type]", path], capture_output=True, check=True, timeout=60)  # noqa: S607  whichever there is
    found = [json.loads(each) for each in done.stdout.splitlines()]
    assert found == [[None, None], *([entry.seq, entry.type] for entry in journal.entries())]
    content = subprocess.run(["jq", "-c", ".message.content?", path], capture_output=True, check=True, timeout=60)  # noqa: S607  whichever there is
    read = [json.loads(each) for each in content.stdout.splitlines()]
    assert read[1:] == [(entry.body.get("message") or {}).get("content") for entry in Lines(path).bare()]  # type: ignore[attr-defined]


def test_what_cannot_be_written_at_all_changes_nothing(path: Path, journal: FileJournal) -> None:
    with pytest.raises(TypeError):
        journal.append("notice", {"x": object()})
    assert (list(journal.entries()), journal.last_seq, journal.trouble) == ([], 0, "")
    assert journal.append("notice", {}).seq == 1
    assert len(lines(path)) == 2


def test_a_synced_entry_is_on_disk_with_the_name_of_its_file_and_the_others_wait_for_nothing(tmp_path: Path) -> None:
    code = """
import sys; from pathlib import Path; from localctx.stores.journal import FileJournal
journal = FileJournal(Path(sys.argv[1]) / "s" / "journal.jsonl")
for number in range(3):
    journal.append("notice", {"number": number}, sync=number == 1)
"""
    calls = [re.sub(r"^\d+ +", "", each) for each in traced(tmp_path, code, tmp_path)]
    on_file = [call.partition("(")[0] for call in calls if "journal.jsonl>" in call]
    assert on_file == ["write", "fsync", "write", "write", "fsync", "write"]
    for folder in (tmp_path, tmp_path / "s"):
        assert any(call.startswith("fsync(") and f"<{folder}>" in call for call in calls)


def test_a_clock_that_goes_back_changes_nothing_but_the_time(path: Path) -> None:
    future = "2999-01-01T00:00:00.000+00:00"
    written(
        path, HEADER.replace(AT, future), line(1).replace(AT, future), line(2, "begin", rung="x").replace(AT, future)
    )
    journal = FileJournal(path)
    entry = journal.append(*message(SAID))
    journal.close()
    entries = list(journal.entries())
    assert [each.seq for each in entries] == [1, 2, 3, 4]
    assert [each.at for each in entries[:2]] == [future] * 2
    assert entry.at < future
    assert project(opened(path)).last_seq == 4


# --- long results ---------------------------------------------------------------------------------------------------


def test_a_long_result_is_a_file_beside_the_journal_and_comes_back_whole(path: Path, journal: FileJournal) -> None:
    whole = LONG * 2
    kept = journal.append(*answer(LONG, whole=whole, size=len(whole)), sync=True)
    assert kept.body["whole"] == whole
    journal.close()
    assert len(lines(path)[1]) < 2_000
    assert {each.name for each in (path.parent / "results").iterdir()} == {
        sha256(text.encode()).hexdigest() for text in (LONG, whole)
    }
    for entries in (opened(path), list(Lines(path))):
        assert entries[0].body["message"] == kept.body["message"]
        assert Lines(path).whole(entries[0]) == journal.whole(entries[0]) == whole
    (bare,) = Lines(path).bare()
    assert flatten(project([bare])) != flatten(project([kept])) == flatten(project(Lines(path)))


def test_what_a_tool_returned_is_read_from_an_old_line_as_well(path: Path) -> None:
    written(path, HEADER, line(1, message={"role": "tool", "content": "part"}, whole="all of it"), line(2, whole=7))
    found = list(Lines(path))
    assert [Lines(path).whole(each) for each in found] == ["all of it", None]


def test_where_a_body_is_gone_head_and_tail_are_left_and_all_else_works(path: Path, journal: FileJournal) -> None:
    journal.append(*answer(LONG, whole=LONG * 2))
    journal.append(*message(SAID))
    shutil.rmtree(path.parent / "results")
    first, second = journal.entries()
    said = first.body["message"]
    assert isinstance(said, dict)
    assert said["content"].startswith("first words")
    assert said["content"].endswith("last words")
    assert len(said["content"]) < 1_000
    assert journal.whole(first) is None
    assert second.body["message"] == SAID
    assert journal.append(*answer(LONG)).seq == 3
    assert list(journal.entries())[2].body["message"] == answer(LONG)[1]["message"]


@pytest.mark.parametrize("kind", NO_FILES)
def test_what_is_in_the_place_of_a_body_is_not_waited_for(path: Path, journal: FileJournal, kind: str) -> None:
    journal.append(*answer(LONG))
    (body,) = (path.parent / "results").iterdir()
    body.unlink()
    no_file(body, kind)
    (entry,) = journal.entries()
    assert len(json.dumps(entry.body)) < 2_000


def test_where_the_folder_of_results_is_lost_meanwhile_the_line_holds_the_text(
    path: Path, journal: FileJournal
) -> None:
    journal.append(*answer(LONG))
    shutil.rmtree(path.parent / "results")
    (path.parent / "results").write_text("a file where the folder must be")
    journal.append(*answer(LONG, whole=LONG * 2))
    assert journal.trouble == ""
    assert json.loads(lines(path)[2])["message"]["content"] == LONG
    journal.close()
    entry = opened(path)[1]
    assert entry.body["message"] == answer(LONG)[1]["message"]
    assert Lines(path).whole(entry) == LONG * 2


def narrowed(journal: FileJournal, most: int) -> FileJournal:
    """The journal with less room for bodies than 64 MiB."""
    journal._results = Results(journal.path.parent / "results", most)
    return journal


def texts(entries: Iterable[Entry]) -> list[str]:
    """What the messages of entries say."""
    return [str(entry.body["message"]["content"]) for entry in entries]  # type: ignore[index]


def test_the_oldest_bodies_go_but_none_of_the_lines_that_are_pointed_at(path: Path, journal: FileJournal) -> None:
    narrowed(journal, 50_000)
    said = [f"{number:x}" * 5_000 for number in range(12)]
    kept = [journal.append(*answer(text, whole=text * 2 if text[0] == "2" else None)) for text in said]
    (path.parent / "results" / f".{'0' * 64}.abcd1234").write_text("half written, when a program was killed")
    assert journal.shrink(entry.seq for entry in kept[1:3]) == 8
    assert sum(each.stat().st_size for each in (path.parent / "results").iterdir()) <= 50_000
    assert [at for at, text in enumerate(texts(journal.entries())) if text == said[at]] == [1, 2, 9, 10, 11]
    assert journal.whole(list(journal.entries())[2]) == said[2] * 2
    assert journal.shrink([]) == 0


def test_what_is_not_written_yet_names_its_bodies_too(path: Path, journal: FileJournal) -> None:
    narrowed(journal, 12_000)
    with path.open("ab") as other:
        other.write(b"half a line of another program")
    said = [f"{number}" * 5_000 for number in range(3)]
    kept = [journal.append(*answer(text)) for text in said]
    assert journal.trouble
    assert journal.shrink([kept[0].seq, kept[2].seq]) == 1
    found = texts(journal.entries())
    assert [found[at] == said[at] for at in range(3)] == [True, False, True]
    assert found[1].startswith(said[1][:400])


def test_where_the_journal_cannot_be_read_no_body_goes(path: Path, journal: FileJournal) -> None:
    journal.append(*answer(LONG))
    narrowed(journal, 1_000)
    kept = path.read_bytes()
    path.unlink()
    assert journal.shrink([]) == 0
    path.write_text("no journal\n")
    assert journal.shrink([]) == 0
    path.write_bytes(kept)
    assert journal.shrink([1]) == 0
    assert len(list((path.parent / "results").iterdir())) == 1
    assert narrowed(journal, 1_000).shrink([]) == 1


# --- what cannot be written -----------------------------------------------------------------------------------------


def test_what_a_full_disk_does_not_take_is_in_memory_and_written_later_in_order(path: Path) -> None:
    code = """
path = Path(sys.argv[1])
journal = FileJournal(path)
journal.append("notice", {"text": "before"}, sync=True)
allow(path.stat().st_size + 3000)
for number in range(2):
    entry = journal.append("notice", {"text": "x" * 9000}, sync=True)
    assert (entry.seq, journal.last_seq) == (number + 2, number + 2)
    print(journal.trouble)
    assert texts(Lines(path)) == ["before"]
journal.append("notice", {"text": "waits for its turn"})
assert journal.trouble
assert texts(journal.entries()) == texts(journal.entries()) == ["before", "x" * 9000, "x" * 9000, "waits for its turn"]
allow(path.stat().st_size + 12000)
journal.append("notice", {"text": "one more"})
assert journal.trouble and texts(Lines(path)) == ["before", "x" * 9000]
allow(resource.RLIM_INFINITY)
journal.append("notice", {"text": "after"})
assert journal.trouble == ""
assert texts(Lines(path)) == texts(journal.entries())
"""
    done = child(code, path)
    assert (done.returncode, done.stderr) == (0, "")
    told = done.stdout.splitlines()
    assert len(told) == 2
    assert all("LOCALCTX_HOME" in each and "--ephemeral" in each and str(path) in each for each in told)
    assert [entry.seq for entry in opened(path)] == [1, 2, 3, 4, 5, 6]
    assert [entry.body["text"] for entry in opened(path)][3:] == ["waits for its turn", "one more", "after"]


def test_what_was_not_written_is_tried_once_more_at_the_end(path: Path) -> None:
    code = """
journal = FileJournal(Path(sys.argv[1]))
allow(journal.path.stat().st_size)
journal.append(*message({"role": "user", "content": "hi"}))
assert journal.trouble
allow(resource.RLIM_INFINITY)
journal.leave()
assert journal.trouble == ""
"""
    done = child(code, path)
    assert (done.returncode, done.stderr) == (0, "")
    assert [entry.body for entry in opened(path)] == [{"message": SAID}]


@pytest.mark.parametrize("room", [0, 10])
def test_a_new_journal_on_a_full_disk_is_told_at_once_and_begins_with_its_header_later(path: Path, room: int) -> None:
    code = """
allow(int(sys.argv[2]))
journal = FileJournal(Path(sys.argv[1]))
assert "cannot use" in journal.trouble
journal.append("notice", {"text": "in memory"})
assert texts(journal.entries()) == ["in memory"] and journal.trouble
allow(resource.RLIM_INFINITY)
journal.append("notice", {"text": "on disk"})
assert journal.trouble == ""
"""
    done = child(code, path, room)
    assert (done.returncode, done.stderr) == (0, "")
    assert json.loads(lines(path)[0])["schema"] == 1
    assert [entry.body["text"] for entry in opened(path)] == ["in memory", "on disk"]


def test_what_is_killed_while_the_disk_is_full_leaves_whole_lines(path: Path) -> None:
    code = """
import signal
journal = FileJournal(Path(sys.argv[1]))
journal.append("notice", {"text": "before"}, sync=True)
allow(journal.path.stat().st_size + 100)
journal.append("notice", {"text": "x" * 9000})
os.kill(os.getpid(), signal.SIGKILL)
"""
    assert child(code, path).returncode == -signal.SIGKILL
    assert not path.read_bytes().endswith(b"\n")
    journal = FileJournal(path)
    assert [entry.body["text"] for entry in journal.entries()] == ["before"]
    journal.append("notice", {"text": "after"})
    journal.close()
    assert [entry.body["text"] for entry in opened(path)] == ["before", "after"]
    assert len(lines(path)) == 3


def test_a_disk_that_fills_up_and_has_room_again_loses_nothing(tmp_path: Path) -> None:
    on_a_disk(
        tmp_path / "disk",
        """
journal = FileJournal(home / "s" / "journal.jsonl")
journal.append(*message({"role": "user", "content": "hi"}), sync=True)
with (home / "filler").open("wb", buffering=0) as filler:
    try:
        while filler.write(b"x" * 4096): pass
    except OSError as error:
        assert error.errno == errno.ENOSPC
said = ["hi"]
for number in range(5):
    text = f"{number}" * (9000 if number % 2 else 3000)
    journal.append("message", {"message": {"role": "tool", "tool_call_id": "c", "content": text}}, sync=True)
    said.append(text)
def contents(entries):
    return [entry.body["message"]["content"] for entry in entries]
assert "No space left on device" in journal.trouble, journal.trouble
assert contents(journal.entries()) == said
assert len(contents(Lines(journal.path))) < len(said)
assert not [each for each in home.rglob("*") if each.name.startswith(".")]
(home / "filler").unlink()
journal.append(*message({"role": "user", "content": "bye"}))
assert journal.trouble == ""
journal.close()
assert contents(Lines(journal.path)) == [*said, "bye"]
again = FileJournal(journal.path)
assert contents(again.entries()) == [*said, "bye"]
""",
    )


def test_a_disk_that_can_only_be_read_is_gone_on_with_in_memory(tmp_path: Path) -> None:
    on_a_disk(
        tmp_path / "disk",
        """
path = home / "s" / "journal.jsonl"
journal = FileJournal(path)
journal.append("notice", {"text": "one"})
journal.append("begin", {"rung": "clear"})
journal.close()
mount("-o", "remount,ro")
before = path.read_bytes()
journal = FileJournal(path)
assert "Read-only file system" in journal.trouble and "--ephemeral" in journal.trouble
assert [(each.seq, each.type) for each in journal.entries()] == [(1, "notice"), (2, "begin"), (3, "abort")]
entry = journal.append("message", {"message": {"role": "tool", "tool_call_id": "c", "content": "x" * 9000}}, sync=True)
assert entry.seq == 4 and journal.trouble
assert list(journal.entries())[3].body["message"] == entry.body["message"]
assert journal.shrink([]) == 0
try:
    FileJournal(path)
except LocalctxError as error:
    assert "open in another program" in str(error)
journal.leave()
assert path.read_bytes() == before
try:
    FileJournal(home / "new" / "journal.jsonl")
except LocalctxError as error:
    assert "Read-only file system" in str(error)
else:
    raise AssertionError("made where nothing can be made")
""",
    )


def test_where_the_results_become_read_only_meanwhile_the_line_holds_the_text(tmp_path: Path) -> None:
    on_a_disk(
        tmp_path / "disk",
        """
journal = FileJournal(home / "s" / "journal.jsonl")
def answer(text):
    journal.append("message", {"message": {"role": "tool", "tool_call_id": "c", "content": text}}, sync=True)
answer("x" * 5000)
results = str(home / "s" / "results")
subprocess.run(["mount", "--bind", results, results], check=True)
subprocess.run(["mount", "-o", "remount,bind,ro", results], check=True)
answer("y" * 5000)
answer("x" * 5000)
assert journal.trouble == ""
found = [json.loads(line) for line in journal.path.open()][1:]
assert [len(each["message"]["content"]) > 4096 for each in found] == [False, True, False]
assert [each.body["message"]["content"][0] * 5000 for each in journal.entries()] == [
    each.body["message"]["content"] for each in journal.entries()
]
journal._results._most, journal._results._allowed = 1000, 1000
assert journal.shrink([]) == 0
assert len(os.listdir(results)) == 1
""",
    )


def test_what_another_program_wrote_into_it_is_never_cut_off(path: Path, journal: FileJournal) -> None:
    journal.append(*message(SAID))
    with path.open("ab") as other:
        other.write(b"by another program\n")
    before = path.read_bytes()
    entry = journal.append(*message(SAID))
    assert "another program removed it or wrote to it" in journal.trouble
    assert path.read_bytes() == before
    with path.open("r+b") as other:
        other.truncate(len(before) - len(b"by another program\n"))
    journal.append("notice", {})
    assert journal.trouble == ""
    assert list(journal.entries())[1] == entry
    assert len(lines(path)) == 4


def test_a_journal_that_is_removed_meanwhile_is_told(path: Path, journal: FileJournal) -> None:
    journal.append(*message(SAID))
    shutil.rmtree(path.parent)
    journal.append(*message(SAID))
    assert "another program removed it" in journal.trouble
    with pytest.raises(StoreUnusable, match="No such file"):
        list(journal.entries())
    journal.leave()
    assert not path.parent.exists()


# --- what a crash leaves --------------------------------------------------------------------------------------------


TORN = [
    b"x",
    b'{"seq": 3, "at": "',
    b"\0" * 500,
    line(3).encode()[:-1],
    line(3).encode(),
    "é".encode()[:1],
    b"x" * 70_000,
]


@pytest.mark.parametrize("torn", TORN, ids=lambda torn: repr(torn[:20]))
def test_a_torn_last_line_is_none_and_is_cut_off_before_the_next_is_written(path: Path, torn: bytes) -> None:
    written(path, HEADER, line(1), line(2), torn=torn)
    assert [entry.seq for entry in Lines(path)] == [1, 2]
    journal = FileJournal(path)
    assert [entry.seq for entry in journal.entries()] == [1, 2]
    assert path.read_bytes().endswith(b"\n" + torn)
    assert journal.append(*message(SAID)).seq == 3
    journal.close()
    assert lines(path)[:3] == [each.encode() for each in (HEADER, line(1), line(2))]
    assert [entry.seq for entry in opened(path)] == [1, 2, 3]


@pytest.mark.parametrize("torn", [b"", b"{", HEADER.encode(), b"x" * 200_000], ids=lambda torn: repr(torn[:12]))
def test_a_torn_header_begins_anew(path: Path, torn: bytes) -> None:
    written(path, torn=torn)
    assert list(Lines(path)) == []
    assert opened(path) == []
    (header,) = lines(path)
    assert json.loads(header)["session"] == "s"


@pytest.mark.parametrize("size", [0, 1, 65_535, 65_536, 65_537, 131_072, 200_000])
def test_a_torn_line_of_any_length_is_found(path: Path, size: int) -> None:
    written(path, HEADER, line(1, text="y" * 70_000), torn=b"x" * size)
    journal = FileJournal(path)
    journal.append("notice", {})
    journal.close()
    assert [entry.seq for entry in opened(path)] == [1, 2]


def test_a_begin_that_was_never_committed_is_closed_once(path: Path, journal: FileJournal) -> None:
    done, left = (journal.append(*begin("clear")) for _ in range(2))
    journal.append(*commit(Withdrawn(0), done.seq), sync=True)
    journal.close()
    entries = opened(path)
    assert [(entry.type, entry.body.get("begin")) for entry in entries[2:]] == [
        ("commit", done.seq),
        ("abort", left.seq),
    ]
    assert opened(path) == entries


def test_what_a_killed_program_had_written_is_there(path: Path) -> None:
    code = """
import signal
journal = FileJournal(Path(sys.argv[1]))
for number in range(50): journal.append("notice", {"number": number}, sync=number % 10 == 0)
os.kill(os.getpid(), signal.SIGKILL)
"""
    assert child(code, path).returncode == -signal.SIGKILL
    assert [entry.body["number"] for entry in opened(path)] == [*range(50)]


def test_a_program_that_is_killed_anywhere_leaves_lines_in_order_and_what_it_told_of(path: Path) -> None:
    code = """
journal = FileJournal(Path(sys.argv[1]))
for number in range(100_000):
    text = f"{number} " * (2000 if number % 3 == 0 else 10)
    journal.append("message", {"message": {"role": "tool", "tool_call_id": "c", "content": text}})
    print(number, flush=True)
"""
    told = 0
    for stop in (1, 7, 40):
        program = subprocess.Popen(
            [sys.executable, "-c", START + code, str(path)], stdout=subprocess.PIPE, text=True, cwd=ROOT
        )
        assert program.stdout is not None
        for _ in range(stop):
            program.stdout.readline()
        program.kill()
        told += stop + len(program.stdout.readlines())
        program.stdout.close()
        assert program.wait(60) == -signal.SIGKILL
        entries = opened(path)
        assert [entry.seq for entry in entries] == [*range(1, len(entries) + 1)]
        assert told <= len(entries) <= told + 1
        told = len(entries)
        for entry in entries:
            said = entry.body["message"]
            assert isinstance(said, dict)
            assert "no longer here" not in said["content"]


@given(lives())
def test_what_is_reopened_after_a_crash_is_the_history_up_to_there(
    tmp_path_factory: pytest.TempPathFactory, size: Callable[[str], int], moves: list[Move]
) -> None:
    folder = tmp_path_factory.mktemp("crash")
    journal = FileJournal(folder / "s" / "journal.jsonl")
    states = [History()]
    for entry in play(moves, size):
        states.append(advance(states[-1], journal.append(entry.type, entry.body)))
    journal.close()
    assert project(journal.entries()) == states[-1]
    crashed = folder / "t" / "journal.jsonl"
    raw = journal.path.read_bytes()
    for cut in {len(raw) * share // 5 for share in range(6)}:
        shutil.rmtree(crashed.parent, ignore_errors=True)
        shutil.copytree(journal.path.parent, crashed.parent)
        crashed.write_bytes(raw[:cut])
        whole = max(raw[:cut].count(b"\n") - 1, 0)
        assert project(opened(crashed)) == states[whole]
    shutil.rmtree(folder)


# --- what is damaged, newer or not known ----------------------------------------------------------------------------


def refused(path: Path, match: str) -> str:
    """What is told of a damaged journal, the same whether it is opened or read; nothing is changed."""
    before = path.read_bytes()
    with pytest.raises(JournalDamaged, match=match) as damaged:
        FileJournal(path)
    for read in (Lines(path), Lines(path).bare(), Lines(path).raw()):
        with pytest.raises(JournalDamaged) as again:
            deque(read, 0)
        assert str(again.value) == str(damaged.value)
    assert path.read_bytes() == before
    assert str(path) in str(damaged.value)
    assert "\n" not in str(damaged.value)
    return str(damaged.value)


@pytest.mark.parametrize(
    "bad",
    [
        "",
        "not json",
        "[1]",
        "null",
        '{"seq": 2}',
        line(2).replace('"seq": 2', '"seq": "2"'),
        line(2).replace('"seq": 2', '"seq": 2.0'),
        line(2).replace('"at"', '"when"'),
        line(2).replace('"message"', "7"),
        b"\xff\xfe",
        line(2).encode().replace(b"hi", b"\xff"),
        line(2).encode().replace(b"hi", b"\xed\xa0\x80"),
        line(2).encode() + b"\0",
        line(2) + line(3),
        "[" * 50_000,
        line(2).replace('"hi"', "[" * 50_000 + "]" * 50_000),
    ],
    ids=lambda bad: repr(bad[-30:]),
)
def test_a_damaged_line_is_named_and_nothing_is_changed(path: Path, bad: str | bytes) -> None:
    written(path, HEADER, line(1, "begin", rung="clear"), bad, line(3), torn=b"torn")
    told = refused(path, "line 3 is no journal entry; restore the line, or keep what is before it: ")
    assert told.endswith("localctx sessions fork s --through 1")


FIVE = [line(seq) for seq in range(1, 6)]


@pytest.mark.parametrize(
    ("edited", "told"),
    [
        pytest.param([*FIVE[:2], *FIVE[3:]], "line 4 has seq 4 where 3 is due", id="one was removed"),
        pytest.param(
            FIVE[2:], "line 2 has seq 3 where 1 is due; restore the line, or start a new", id="the first ones were"
        ),
        pytest.param(
            [FIVE[0], FIVE[2], FIVE[1], *FIVE[3:]], "line 3 has seq 3 where 2 is due", id="two were exchanged"
        ),
        pytest.param([*FIVE[:2], *FIVE[1:]], "line 4 has seq 2 where 3 is due", id="one is there twice"),
        pytest.param([*FIVE, FIVE[0]], "line 7 has seq 1 where 6 is due", id="an old one was added"),
        pytest.param([line(0), *FIVE], "line 2 has seq 0 where 1 is due", id="one has number 0"),
        pytest.param(
            [*FIVE, line(10**30)], "line 7 has seq 1000000000000000000000000000000 where 6", id="a huge number"
        ),
        pytest.param([*FIVE[:3], FIVE[3][:-5], FIVE[4]], "line 5 is no journal entry", id="one was cut"),
        pytest.param([*FIVE[:3], "# a remark", *FIVE[3:]], "line 5 is no journal entry", id="a remark was put in"),
        pytest.param([*FIVE[:3], "", *FIVE[3:]], "line 5 is no journal entry", id="an empty line was put in"),
    ],
)
def test_what_was_edited_by_hand_is_told_with_its_line(path: Path, edited: list[str], told: str) -> None:
    refused(written(path, HEADER, *edited), told)


@given(st.data())
def test_to_open_is_to_check_all_that_reading_checks(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    folder = tmp_path_factory.mktemp("spoilt")
    raw = bytearray(line(1, message={"role": "user", "content": ["é\ud83d", 1.5, None]}, x={"y": [True]}).encode())
    for _ in range(data.draw(st.integers(0, 3))):
        raw[data.draw(st.integers(0, len(raw) - 1))] = data.draw(
            st.integers(0, 255) | st.sampled_from(list(b'"\\{}[]u0'))
        )
    path = written(folder / "s" / "journal.jsonl", HEADER, bytes(raw))
    told = list[str]()
    for read in (lambda: FileJournal(path).close(), lambda: deque(Lines(path), 0), lambda: deque(Lines(path).raw(), 0)):
        try:
            read()
        except JournalDamaged as error:
            told.append(str(error))
    assert len(told) in {0, 3}
    assert len(set(told)) <= 1
    shutil.rmtree(folder)


@pytest.mark.parametrize(
    "header", ["", "x", "[]", "{}", '{"schema": null}', "[" * 50_000, line(1), "\ufeff" + HEADER, b"\xff"], ids=repr
)
def test_a_file_that_is_no_journal_is_refused(path: Path, header: str | bytes) -> None:
    refused(written(path, header, line(1)), "line 1: .*restore it, or start a new session")


def test_damage_in_an_entry_is_told_with_its_file_its_line_and_what_can_be_done(path: Path) -> None:
    told = str(in_file(path, JournalDamaged("its effect cannot be read", 7)))
    assert told.startswith(f"{path} line 8 is damaged (its effect cannot be read)")
    assert "localctx sessions fork s --through 6" in told
    known = JournalDamaged(f"{path} line 3 is no journal entry")
    assert in_file(path, known) is known


def test_a_newer_journal_is_refused_and_left_alone(path: Path) -> None:
    written(path, HEADER.replace('"schema": 1', '"schema": 2'), line(1), line(1, "begin", rung="new"), torn=b'{"seq"')
    refused(path, "schema 2, this version reads 1; upgrade localctx")


def test_types_and_fields_of_later_versions_are_kept_and_skipped(path: Path) -> None:
    written(path, HEADER, line(1), line(2, "from-the-future", effect={"kind": "new"}), line(3, message=SAID, new=[1]))
    entries = opened(path)
    assert [entry.type for entry in entries] == ["message", "from-the-future", "message"]
    assert entries[1].body == {"effect": {"kind": "new"}}
    history = project(entries)
    assert (len(history.turns), history.last_seq) == (1, 3)
    assert lines(path)[2].decode() == line(2, "from-the-future", effect={"kind": "new"})


def test_lines_that_only_the_standard_decoder_takes_are_read(path: Path) -> None:
    odd = (
        line(1, message={"role": "user", "content": "\ud800"}),
        line(2, "begin", rung="\ud800"),
        line(3, x=float("nan")),
    )
    entries = opened(written(path, HEADER, *odd))
    assert [entry.type for entry in entries] == ["message", "begin", "message", "abort"]
    assert entries[0].body == {"message": {"role": "user", "content": "\ud800"}}
    assert entries[3].body == {"begin": 2}


# --- who else is there ----------------------------------------------------------------------------------------------


def test_a_second_writer_is_refused_and_the_first_goes_on(path: Path, journal: FileJournal) -> None:
    journal.append(*message(SAID))
    before = path.read_bytes()
    with pytest.raises(StoreUnusable, match="session s is open in another program; end it, or start a new one"):
        FileJournal(path)
    done = child("FileJournal(Path(sys.argv[1]))", path)
    assert "StoreUnusable: session s is open in another program" in done.stderr
    assert path.read_bytes() == before
    assert journal.append(*message(SAID)).seq == 2
    journal.close()
    assert [entry.seq for entry in opened(path)] == [1, 2]


def test_a_program_that_ended_leaves_no_lock(path: Path) -> None:
    assert child("FileJournal(Path(sys.argv[1])); os._exit(1)", path).returncode == 1
    assert opened(path) == []


def test_those_who_read_while_another_program_writes_see_whole_entries_in_order(path: Path) -> None:
    code = """
journal = FileJournal(Path(sys.argv[1]))
print("opened", flush=True)
for number in range(400):
    journal.append("message", {"message": {"role": "user", "content": f"{number} " * 5000}})
"""
    program = subprocess.Popen(
        [sys.executable, "-c", START + code, str(path)], stdout=subprocess.PIPE, text=True, cwd=ROOT
    )
    assert program.stdout is not None
    program.stdout.readline()
    seen = 0
    while program.poll() is None:
        found = [entry.seq for entry in Lines(path)]
        assert found == [*range(1, len(found) + 1)]
        assert len(found) >= seen
        seen = len(found)
    program.stdout.close()
    assert program.returncode == 0
    assert len(list(Lines(path))) == 400


def test_a_line_that_comes_in_pieces_is_read_when_it_is_whole(path: Path) -> None:
    written(path, HEADER)
    raw = b"".join(line(seq).encode() + b"\n" for seq in range(1, 3_000))

    def write() -> None:
        with path.open("ab", buffering=0) as file:
            for at in range(0, len(raw), 17):
                file.write(raw[at : at + 17])

    writer = threading.Thread(target=write)
    writer.start()
    while writer.is_alive():
        deque(Lines(path), 0)
    assert len(list(Lines(path))) == 2_999


# --- places that cannot be used -------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", NO_FILES)
def test_what_is_no_file_is_told_at_once(path: Path, kind: str) -> None:
    path.parent.mkdir(parents=True)
    no_file(path, kind)
    if kind == "dangling link":
        assert opened(path) == []  # it leads to a new file
    else:
        with pytest.raises(StoreUnusable, match=r"LOCALCTX_HOME .*--ephemeral"):
            FileJournal(path)
        with pytest.raises(StoreUnusable, match=r"LOCALCTX_HOME .*--ephemeral"):
            list(Lines(path))


def test_a_journal_that_is_not_there_is_told(path: Path) -> None:
    with pytest.raises(StoreUnusable, match="No such file"):
        list(Lines(path))
    assert not path.parent.exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become nobody")
def test_a_journal_of_somebody_else_is_read_and_gone_on_with_in_memory(path: Path) -> None:
    code = """
path = Path(sys.argv[1])
os.setgid(65534); os.setuid(65534)
journal = FileJournal(path)
assert "Permission denied" in journal.trouble
assert texts(journal.entries()) == ["one"]
assert journal.append("notice", {"text": "two"}).seq == 2
assert texts(journal.entries()) == ["one", "two"]
journal.leave()
"""
    written(path, HEADER, line(1, "notice", text="one"))
    for folder in (path.parent, *path.parent.parents):
        if folder.stat().st_uid == os.geteuid() and ROOT not in (folder, *folder.parents):
            folder.chmod(folder.stat().st_mode | 0o755)
    before = path.read_bytes()
    done = child(code, path)
    if "ModuleNotFoundError" in done.stderr or "can't open" in done.stderr:
        pytest.skip("nobody may not read the program itself")
    assert (done.returncode, done.stderr) == (0, "")
    assert path.read_bytes() == before


# --- leaving --------------------------------------------------------------------------------------------------------


def test_a_session_in_which_nothing_was_said_goes(path: Path) -> None:
    journal = FileJournal(path)
    journal.append("window", {"tokens": 4096})
    journal.leave()
    assert not path.parent.exists()
    assert path.parent.parent.exists()


def test_a_session_in_which_something_was_said_stays_also_when_nothing_more_was(path: Path) -> None:
    journal = FileJournal(path)
    journal.append(*message(SAID))
    journal.leave()
    again = FileJournal(path)
    again.leave()
    assert [entry.seq for entry in opened(path)] == [1]


def test_leaving_and_closing_give_the_session_back_and_may_be_repeated(path: Path) -> None:
    journal = FileJournal(path)
    journal.append(*message(SAID))
    journal.leave()
    journal.close()
    journal.close()
    FileJournal(path).close()


# --- memory ---------------------------------------------------------------------------------------------------------


def compacted(path: Path, count: int) -> None:
    """A journal of so many lines, of which each two hundredth is a compaction of nearly all before it."""
    path.parent.mkdir(parents=True)
    with path.open("w", encoding="utf-8") as file:
        file.write(HEADER + "\n")
        for seq in range(1, count + 1):
            made = Checkpoint(seq - 5, "machine", (("done", ("item " * 20,) * 50),), words=(Words(1, "w" * 2_000),))
            said = message({"role": "assistant", "content": f"{seq} " * 60})
            kind, body = commit(Compacted(made)) if seq % 200 == 0 else said
            file.write(encode(Entry(seq, AT, kind, body)) + "\n")


def peak(use: Callable[[], object]) -> int:
    """The most bytes that Python holds at once while this is done, beyond what it held before."""
    tracemalloc.start()
    try:
        use()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def test_only_the_live_history_is_in_memory_however_long_the_journal(path: Path) -> None:
    compacted(path, 8_000)
    history = project(Lines(path))
    live = peak(lambda: [decode(encode(Entry(1, AT, *message(each)))) for each in flatten(history)])
    assert history.checkpoint is not None
    most = max(40 * live, 600_000)
    assert path.stat().st_size > 4 * most
    assert peak(lambda: FileJournal(path).close()) < most
    assert peak(lambda: project(Lines(path))) < most
    assert peak(lambda: deque(Lines(path).bare(), 0)) < most
