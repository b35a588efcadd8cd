from __future__ import annotations

import json
import os
import signal
import stat
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from localctx.core.journal import begin, commit, message, project
from localctx.core.ladder import Withdrawn
from localctx.errors import JournalDamaged, Misuse, NothingFound, StoreUnusable
from localctx.stores.journal import FileJournal, MemoryJournal
from localctx.stores.sessions import Sessions

if TYPE_CHECKING:
    from collections.abc import Iterator

    from localctx.core.journal import Entry

HEADER = '{"schema": 1, "session": "s", "created": "2026-01-01T00:00:00.000+00:00"}'
SAID = {"role": "user", "content": "hi"}


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
    journal = FileJournal(path)
    journal.close()
    return list(journal.entries())


def written(path: Path, *texts: str | bytes, torn: bytes = b"") -> Path:
    path.parent.mkdir(parents=True)
    path.write_bytes(b"".join((each.encode() if isinstance(each, str) else each) + b"\n" for each in texts) + torn)
    return path


def line(seq: int, kind: str = "message", **fields: object) -> str:
    more = fields or ({"message": SAID} if kind == "message" else {})
    return json.dumps({"seq": seq, "at": "2026-01-01T00:00:00.000+00:00", "type": kind, **more})


def child(code: str, *args: object) -> subprocess.CompletedProcess[str]:
    start = "import sys; from pathlib import Path; from localctx.stores.journal import FileJournal, Sessions\n"
    return subprocess.run(
        [sys.executable, "-c", start + code, *map(str, args)],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
        cwd=Path(__file__).parents[2],
    )


# What is written.


def test_a_header_then_numbered_lines(path: Path, journal: FileJournal) -> None:
    assert journal.entries() == ()
    entries = [journal.append(*message(SAID), sync=True), journal.append("notice", {"code": "x"})]
    assert list(journal.entries()) == entries
    header, *rest = [json.loads(each) for each in lines(path)]
    assert (header["schema"], header["session"]) == (1, "s")
    assert [(each["seq"], each["type"]) for each in rest] == [(1, "message"), (2, "notice")]
    assert rest[0]["message"] == SAID
    assert [each["at"] for each in rest] == [entry.at for entry in entries]
    assert header["created"] <= rest[0]["at"] <= rest[1]["at"]


def test_a_journal_goes_on_where_it_ended(path: Path, journal: FileJournal) -> None:
    journal.append(*message(SAID))
    journal.append("notice", {})
    journal.close()
    again = FileJournal(path)
    assert list(again.entries()) == list(journal.entries())
    assert again.append(*message(SAID)).seq == 3
    again.close()
    assert [entry.seq for entry in opened(path)] == [1, 2, 3]
    assert len(lines(path)) == 4


@pytest.mark.parametrize("umask", [0o000, 0o022])
def test_it_is_for_its_owner_alone(tmp_path: Path, umask: int) -> None:
    before = os.umask(umask)
    try:
        Sessions(tmp_path / "new" / "home").create("s").close()
    finally:
        os.umask(before)
    path = tmp_path / "new" / "home" / "sessions" / "s" / "journal.jsonl"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    folders = [path.parent, *path.parent.parents]
    assert {stat.S_IMODE(each.stat().st_mode) for each in folders[: folders.index(tmp_path)]} == {0o700}


@pytest.mark.parametrize(
    "text",
    ["", "\u2028\u2029\x85\r\n\t\0", "\ud800 alone", "\U0001f600\u6f22\u00e9", '"\\', "x" * 3_000_000],
    ids=lambda text: ascii(text[:12]),
)
def test_any_text_comes_back_as_it_was(path: Path, journal: FileJournal, text: str) -> None:
    entry = journal.append(*message({"role": "user", "content": text}), sync=True)
    journal.append("notice", {})
    journal.close()
    assert opened(path)[0] == entry
    with path.open(encoding="utf-8", newline="\n") as file:
        read = [json.loads(each) for each in file]
    assert [each.get("seq") for each in read] == [None, 1, 2]
    assert read[1]["message"]["content"] == text


def test_what_cannot_be_written_changes_nothing(path: Path, journal: FileJournal) -> None:
    with pytest.raises(TypeError):
        journal.append("notice", {"x": object()})
    assert journal.entries() == ()
    assert journal.append("notice", {}).seq == 1
    assert len(lines(path)) == 2


def test_an_ephemeral_journal_numbers_alike() -> None:
    memory = MemoryJournal()
    assert [memory.append(*message(SAID)).seq for _ in range(2)] == [1, 2]
    assert project(memory.entries()).last_seq == 2


# What a crash leaves.


@pytest.mark.parametrize("torn", [b"x", b'{"seq": 3, "at": "', b"\0" * 500, line(3).encode()[:-1], "é".encode()[:1]])
def test_a_torn_last_line_is_cut_and_the_rest_kept(path: Path, torn: bytes) -> None:
    written(path, HEADER, line(1), line(2), torn=torn)
    assert [entry.seq for entry in opened(path)] == [1, 2]
    assert lines(path) == [each.encode() for each in (HEADER, line(1), line(2))]
    journal = FileJournal(path)
    assert journal.append(*message(SAID)).seq == 3
    journal.close()
    assert [entry.seq for entry in opened(path)] == [1, 2, 3]


@pytest.mark.parametrize("torn", [b"", b"{", HEADER.encode()[:-1]])
def test_a_torn_header_begins_anew(path: Path, torn: bytes) -> None:
    written(path, torn=torn)
    assert opened(path) == []
    (header,) = lines(path)
    assert json.loads(header)["schema"] == 1


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


def test_what_a_killed_program_had_synced_is_there(path: Path) -> None:
    code = (
        "journal = FileJournal(Path(sys.argv[1]))\n"
        "for number in range(50): journal.append('notice', {'number': number}, sync=True)\n"
        "import os, signal; os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    assert child(code, path).returncode == -signal.SIGKILL
    assert [entry.body["number"] for entry in opened(path)] == [*range(50)]


def test_a_full_disk_is_told_and_leaves_whole_lines(path: Path) -> None:
    code = """
import resource
from localctx.errors import StoreUnusable
journal = FileJournal(Path(sys.argv[1]))
journal.append("notice", {"text": "before"}, sync=True)
_, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
resource.setrlimit(resource.RLIMIT_FSIZE, (4000, hard))
for _ in range(2):
    try:
        journal.append("notice", {"text": "x" * 9000}, sync=True)
    except StoreUnusable as error:
        print(error)
assert Path(sys.argv[1]).read_bytes().endswith(b"}\\n")
journal.append("notice", {"text": "small enough"}, sync=True)
resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
journal.append("notice", {"text": "after"}, sync=True)
journal.close()
"""
    done = child(code, path)
    assert (done.returncode, done.stderr) == (0, "")
    told = done.stdout.splitlines()
    assert len(told) == 2
    assert all("LOCALCTX_HOME" in each and "--ephemeral" in each and str(path) in each for each in told)
    assert [(entry.seq, entry.body["text"]) for entry in opened(path)] == [
        (1, "before"),
        (2, "small enough"),
        (3, "after"),
    ]
    assert len(lines(path)) == 4


# What is damaged, newer or not known.


@pytest.mark.parametrize(
    "bad",
    [
        "",
        "not json",
        "[1]",
        "null",
        '{"seq": 2}',
        line(2).replace('"seq": 2', '"seq": "2"'),
        line(2).replace('"at"', '"when"'),
        b"\xff\xfe",
        "[" * 50_000,
    ],
    ids=lambda bad: repr(bad[:20]),
)
def test_a_damaged_line_is_named_and_nothing_is_changed(path: Path, bad: str | bytes) -> None:
    written(path, HEADER, line(1), bad, line(3), torn=b"torn")
    before = path.read_bytes()
    with pytest.raises(JournalDamaged, match=r"line 3 ") as damaged:
        FileJournal(path)
    assert str(path) in str(damaged.value)
    assert "\n" not in str(damaged.value)
    assert path.read_bytes() == before


@pytest.mark.parametrize("header", ["", "x", "[]", "{}", '{"schema": null}', "[" * 50_000, line(1)], ids=repr)
def test_a_file_that_is_no_journal_is_refused(path: Path, header: str) -> None:
    written(path, header, line(1))
    before = path.read_bytes()
    with pytest.raises(JournalDamaged, match="line 1") as damaged:
        FileJournal(path)
    assert str(path) in str(damaged.value)
    assert path.read_bytes() == before


def test_a_newer_journal_is_refused_and_left_alone(path: Path) -> None:
    written(path, HEADER.replace('"schema": 1', '"schema": 2'), line(1), line(1, "begin", rung="new"), torn=b'{"seq"')
    before = path.read_bytes()
    with pytest.raises(JournalDamaged, match="schema 2, this version reads 1; upgrade localctx"):
        FileJournal(path)
    assert path.read_bytes() == before


def test_types_and_fields_of_later_versions_are_kept_and_skipped(path: Path) -> None:
    written(path, HEADER, line(1), line(2, "from-the-future", effect={"kind": "new"}), line(3, message=SAID, new=[1]))
    entries = opened(path)
    assert [entry.type for entry in entries] == ["message", "from-the-future", "message"]
    assert entries[1].body == {"effect": {"kind": "new"}}
    history = project(entries)
    assert (len(history.turns), history.last_seq) == (1, 3)
    assert lines(path)[2].decode() == line(2, "from-the-future", effect={"kind": "new"})


# Sessions.


def test_a_second_writer_is_refused(tmp_path: Path) -> None:
    sessions = Sessions(tmp_path)
    first = sessions.create("s")
    first.append(*message(SAID))
    for again in (partial(sessions.resume, "s"), partial(sessions.create, "s"), sessions.newest):
        with pytest.raises(StoreUnusable, match="session s is open in another program; end it, or start a new one"):
            again()
    done = child("Sessions(Path(sys.argv[1])).resume('s')", tmp_path)
    assert "StoreUnusable: session s is open in another program" in done.stderr
    assert first.append(*message(SAID)).seq == 2
    first.close()
    assert [entry.seq for entry in opened(first.path)] == [1, 2]


def test_sessions_are_told_apart_and_the_last_written_is_the_newest(tmp_path: Path) -> None:
    sessions = Sessions(tmp_path)
    made = [sessions.create(), sessions.create(), sessions.create("mine")]
    assert len({journal.path for journal in made}) == 3
    for stamp, journal in enumerate((made[2], made[0], made[1])):
        journal.close()
        os.utime(journal.path, (stamp, stamp))
    newest = sessions.newest()
    newest.close()
    assert newest.path == made[1].path
    with pytest.raises(NothingFound, match=f"newest: {made[1].path.parent.name}"):
        sessions.resume("unknown")


def test_nothing_to_go_on_with(tmp_path: Path) -> None:
    sessions = Sessions(tmp_path / "none")
    with pytest.raises(NothingFound, match="localctx run"):
        sessions.newest()
    with pytest.raises(NothingFound, match="none yet"):
        sessions.resume("s")
    assert not (tmp_path / "none").exists()


@pytest.mark.parametrize(
    "name",
    ["..", ".", "../up", "a/b", "/abs", "a\\b", ".hidden", "-option", "a b", "a\n", "a\0", "caf\u00e9", "x" * 101, "~"],
    ids=repr,
)
def test_a_name_that_is_no_name_is_misuse(tmp_path: Path, name: str) -> None:
    sessions = Sessions(tmp_path / "home")
    for use in (sessions.create, sessions.resume):
        with pytest.raises(Misuse, match="use letters") as wrong:
            use(name)
        assert "\n" not in str(wrong.value)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["a", "_", "20260101-000000-ab12", "A.b_c-d", "x" * 100])
def test_a_name_is_a_folder(tmp_path: Path, name: str) -> None:
    Sessions(tmp_path).create(name).close()
    assert (tmp_path / "sessions" / name / "journal.jsonl").is_file()


# Places that cannot be used.


@pytest.mark.parametrize("blocked", [".", "sessions", "sessions/s", "sessions/s/journal.jsonl"])
def test_a_place_that_cannot_be_used_is_told_with_the_way_out(tmp_path: Path, blocked: str) -> None:
    home = tmp_path / "home"
    place = home / blocked
    place.parent.mkdir(parents=True, exist_ok=True)
    if blocked.endswith(".jsonl"):
        place.mkdir()
    else:
        place.write_text("not a folder")
    with pytest.raises(StoreUnusable, match=r"LOCALCTX_HOME .*--ephemeral") as unusable:
        Sessions(home).create("s")
    assert str(home) in str(unusable.value)
    assert "\n" not in str(unusable.value)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become nobody")
@pytest.mark.parametrize("mode", [0o500, 0o000])
def test_a_folder_of_somebody_else_is_told_with_the_way_out(mode: int) -> None:
    code = """
import os, tempfile
home = Path(tempfile.mkdtemp())
os.chown(home, 65534, 65534)
os.chmod(home, int(sys.argv[1]))
os.setgid(65534); os.setuid(65534)
try:
    Sessions(home).create("s")
except Exception as error:
    print(type(error).__name__, error)
os.rmdir(home)
"""
    done = child(code, mode)
    assert done.stderr == ""
    assert done.stdout.startswith("StoreUnusable cannot use ")
    assert "Permission denied" in done.stdout
    assert "LOCALCTX_HOME" in done.stdout
