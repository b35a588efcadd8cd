from __future__ import annotations

import json
import os
import re
import shutil
import stat
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from localctx.core.effects import Compacted
from localctx.core.journal import commit, message, project
from localctx.core.messages import Checkpoint
from localctx.core.work import Todo, WorkState, read_state
from localctx.errors import JournalDamaged, Misuse, NothingFound, StoreUnusable
from localctx.stores.journal import Lines
from localctx.stores.sessions import Listed, Sessions, header_of, keep_state
from tests.stores.test_files import NO_FILES, no_file
from tests.stores.test_journal import HEADER, LONG, SAID, answer, child, line, lines, on_a_disk, opened, written

BAD_NAMES = [
    *("..", ".", "../up", "a/b", "/abs", "a\\b", ".hidden", "-option", "a b", "a\n", "a\0", "caf\u00e9", "~", "\ud800"),
    *("", "x" * 101, "C:x", "a*", "$HOME"),
]


@pytest.fixture
def sessions(tmp_path: Path) -> Sessions:
    return Sessions(tmp_path)


def saved(sessions: Sessions, name: str, *texts: str, at: float | None = None) -> Path:
    """A session in which the user said these texts; when it was last written."""
    journal = sessions.create(name)
    for text in texts:
        journal.append(*message({"role": "user", "content": text}))
    journal.close()
    if at is not None:
        os.utime(journal.path, (at, at))
    return journal.path


# --- names ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", BAD_NAMES, ids=ascii)
def test_a_name_that_is_no_name_is_misuse_wherever_it_comes_from(tmp_path: Path, name: str) -> None:
    sessions = Sessions(tmp_path / "home")
    saved(sessions, "s", "hi")
    saved(sessions, "up", "hi")
    before = sorted(tmp_path.rglob("*"))
    uses: list[Callable[[str], object]] = [sessions.create, sessions.resume, sessions.read, sessions.find]
    uses += [sessions.fork, partial(sessions.fork, "s"), sessions.remove, sessions.state_file, sessions.folder]
    for use in uses:
        with pytest.raises(Misuse, match="use letters") as wrong:
            use(name)
        assert "\n" not in str(wrong.value)
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.parametrize("name", ["a", "_", "20260101-000000-ab12", "A.b_c-d", "x" * 100])
def test_a_name_is_a_folder(tmp_path: Path, sessions: Sessions, name: str) -> None:
    sessions.create(name).close()
    assert (tmp_path / "sessions" / name / "journal.jsonl").is_file()
    assert sessions.names() == [name]
    assert sessions.folder(name) == tmp_path / "sessions" / name
    assert sessions.state_file(name) == tmp_path / "work" / name / "state.json"


@pytest.mark.parametrize("umask", [0o000, 0o022])
def test_a_session_is_for_its_owner_alone(tmp_path: Path, umask: int) -> None:
    before = os.umask(umask)
    try:
        home = tmp_path / "new" / "home"
        sessions = Sessions(home)
        saved(sessions, "s", "hi")
        sessions.fork("s", "fork")
        keep_state(sessions.state_file("s"), WorkState(goal="ship"))
    finally:
        os.umask(before)
    modes = {stat.S_IMODE(each.stat().st_mode) for each in (home, *home.rglob("*")) if each.is_dir()}
    files = {stat.S_IMODE(each.stat().st_mode) for each in home.rglob("*") if each.is_file()}
    assert (modes, files) == ({0o700}, {0o600})


def test_a_session_without_a_name_is_given_one_of_its_own(sessions: Sessions) -> None:
    made = {sessions.create().path.parent.name for _ in range(50)}
    assert len(made) == 50
    assert all(re.fullmatch(r"\d{8}-\d{6}-[0-9a-f]{8}", name) for name in made)


# --- finding --------------------------------------------------------------------------------------------------------


def test_sessions_are_told_apart_and_the_last_written_is_the_newest(sessions: Sessions) -> None:
    made = [sessions.create(), sessions.create(), sessions.create("mine")]
    assert len({journal.path for journal in made}) == 3
    for stamp, journal in enumerate((made[2], made[0], made[1])):
        journal.close()
        os.utime(journal.path, (stamp, stamp))
    newest = sessions.newest()
    newest.close()
    assert newest.path == made[1].path
    assert sessions.find(None) == sessions.names()[0] == made[1].name
    assert sessions.names()[1:] == [made[0].name, "mine"]
    with pytest.raises(NothingFound, match=f"newest: {made[1].path.parent.name}"):
        sessions.resume("unknown")


def test_a_beginning_that_is_one_session_alone_is_its_name(sessions: Sessions) -> None:
    for name in ("alpha", "beta-1", "beta-2", "beta"):
        saved(sessions, name, name)
    assert [sessions.find(each) for each in ("a", "alp", "alpha", "beta-1", "beta")] == [
        *["alpha"] * 3,
        "beta-1",
        "beta",
    ]
    with pytest.raises(NothingFound, match=r"more than one session begins with 'beta-'.*they are: beta-"):
        sessions.find("beta-")
    with pytest.raises(NothingFound, match="no session 'alphabet'"):
        sessions.find("alphabet")
    resumed = sessions.resume("al")
    resumed.close()
    assert resumed.name == "alpha"
    assert [entry.body["message"] for entry in sessions.read("al")] == [{"role": "user", "content": "alpha"}]


def test_a_session_is_read_beside_whoever_writes_it(sessions: Sessions) -> None:
    journal = sessions.create("s")
    journal.append(*message(SAID))
    assert list(sessions.read("s")) == list(sessions.read(None)) == list(journal.entries())
    journal.close()


def test_a_name_that_is_there_is_gone_on_with(sessions: Sessions) -> None:
    path = saved(sessions, "s", "one")
    again = sessions.create("s")
    assert (again.path, again.last_seq) == (path, 1)
    again.close()


def test_nothing_to_go_on_with(tmp_path: Path) -> None:
    sessions = Sessions(tmp_path / "none")
    with pytest.raises(NothingFound, match="localctx run"):
        sessions.newest()
    with pytest.raises(NothingFound, match="none yet"):
        sessions.resume("s")
    with pytest.raises(NothingFound, match="localctx run"):
        sessions.read(None)
    assert (sessions.names(), sessions.listed()) == ([], [])
    assert not (tmp_path / "none").exists()


def test_what_is_no_session_is_not_listed_and_not_waited_for(tmp_path: Path, sessions: Sessions) -> None:
    root = tmp_path / "sessions"
    path = saved(sessions, "real", "hi")
    for number, kind in enumerate(NO_FILES):
        (root / f"odd-{number}").mkdir()
        no_file(root / f"odd-{number}" / "journal.jsonl", kind)
        no_file(root / f"place-{number}", kind)
    (root / "empty").mkdir()
    (root / "file").write_text("x")
    for name in ("caf\u00e9", ".hidden", "-option", "a b", os.fsdecode(b"\xff"), "x" * 101):
        shutil.copytree(path.parent, root / name)
    (root / "linked").symlink_to(path.parent)
    (root / "linked-file").mkdir()
    (root / "linked-file" / "journal.jsonl").symlink_to(path)
    assert sorted(sessions.names()) == ["linked", "linked-file", "real"]
    assert [each.messages for each in sessions.listed()] == [1, 1, 1]
    for name in ("odd-0", "place-0", "empty", "file"):
        with pytest.raises(NothingFound, match=f"no session '{name}'"):
            sessions.find(name)


# --- the list -------------------------------------------------------------------------------------------------------


def test_a_list_says_of_each_session_what_it_is(tmp_path: Path, sessions: Sessions) -> None:
    journal = sessions.create("s")
    journal.append(*message({"role": "system", "content": "be brief"}))
    journal.append("window", {"model": "first", "tokens": 4096})
    journal.append(*message({"role": "user", "content": "  please\n\tcount " + "the files " * 20}))
    journal.append(*message({"role": "user", "content": "second"}))
    journal.append(*answer(LONG))
    journal.append(*commit(Compacted(Checkpoint(1, "machine"))))
    journal.append("window", {"model": "second"})
    journal.append("notice", {"message": SAID, "model": "none"})
    journal.close()
    os.utime(journal.path, (10**9, 10**9))
    saved(sessions, "older", at=10**8)
    found, older = sessions.listed()
    assert found == Listed(
        name="s",
        created=str(header_of(journal.path)["created"]),
        written="2001-09-09T01:46:40+00:00",
        size_bytes=sum(each.stat().st_size for each in (tmp_path / "sessions" / "s").rglob("*") if each.is_file()),
        messages=4,
        compactions=1,
        model="second",
        first_words=("please count " + "the files " * 20)[:80],
    )
    assert found.size_bytes > len(LONG)
    assert (older.name, older.messages, older.first_words, older.trouble) == ("older", 0, "", "")


def test_a_list_tells_of_what_is_damaged_and_goes_on(tmp_path: Path, sessions: Sessions) -> None:
    saved(sessions, "sound", "hi")
    root = tmp_path / "sessions"
    written(root / "damaged" / "journal.jsonl", HEADER, line(1), "no entry")
    written(root / "newer" / "journal.jsonl", '{"schema": 2, "created": "2030"}')
    written(root / "torn" / "journal.jsonl", torn=b"{")
    written(root / "odd" / "journal.jsonl", HEADER, line(1, message=7), line(2, "commit", effect=7), line(3, "window"))
    found = {each.name: each for each in sessions.listed()}
    assert set(found) == {"sound", "damaged", "newer", "torn", "odd"}
    assert [name for name, each in found.items() if each.trouble] == [
        each.name for each in sessions.listed() if each.name in {"damaged", "newer"}
    ]
    assert "line 3 is no journal entry" in found["damaged"].trouble
    assert found["damaged"].messages == 1
    assert "upgrade localctx" in found["newer"].trouble
    assert (found["odd"].messages, found["odd"].compactions) == (1, 0)


def test_a_time_that_no_calendar_has_is_the_end_of_it() -> None:
    shm = Path("/dev/shm")  # noqa: S108  a disk that takes any time
    if not os.access(shm, os.W_OK):
        pytest.skip("there is no disk that takes any time")
    sessions = Sessions(shm / f"localctx-test-{os.getpid()}")
    try:
        path = saved(sessions, "s", "hi")
        os.utime(path, (0, 300_000_000_000))
        if path.stat().st_mtime < 300_000_000_000:
            pytest.skip("there is no disk that takes any time")
        assert sessions.listed()[0].written == "9999-12-31T23:59:59+00:00"
    finally:
        shutil.rmtree(sessions.folder("s").parent.parent, ignore_errors=True)


@pytest.mark.parametrize("head", ["", "no json", "[]", "7", "[" * 50_000, "x" * 100_000])
def test_a_header_that_cannot_be_read_is_empty(tmp_path: Path, head: str) -> None:
    assert header_of(written(tmp_path / "s" / "journal.jsonl", head)) == {}


@pytest.mark.parametrize("kind", NO_FILES)
def test_a_header_of_no_file_is_empty_at_once(tmp_path: Path, kind: str) -> None:
    assert header_of(no_file(tmp_path / "place", kind)) == {}


# --- forks ----------------------------------------------------------------------------------------------------------


@pytest.fixture
def origin(sessions: Sessions) -> Path:
    """A session with two long results among five lines."""
    journal = sessions.create("origin")
    for number in range(5):
        if number % 2:
            text = f"{number} " * 4000
            journal.append(*answer(text, whole=text * 2))
        else:
            journal.append(*message({"role": "user", "content": f"{number}"}))
    journal.append("begin", {"rung": "clear"})
    journal.close()
    return journal.path


def test_a_fork_has_the_lines_of_its_origin_which_stays_as_it_is(sessions: Sessions, origin: Path) -> None:
    before = {each: each.read_bytes() for each in origin.parent.rglob("*") if each.is_file()}
    name = sessions.fork("orig", "fork")
    assert name == "fork"
    path = sessions.folder("fork") / "journal.jsonl"
    assert lines(path)[1:] == lines(origin)[1:]
    head = header_of(path)
    assert (head["schema"], head["session"], head["forked_from"]) == (1, "fork", "origin")
    assert list(Lines(path)) == list(Lines(origin))
    assert [Lines(path).whole(each) for each in Lines(path)][3] == "3 " * 8000
    assert {each: each.read_bytes() for each in origin.parent.rglob("*") if each.is_file()} == before
    assert [entry.type for entry in opened(path)][-2:] == ["begin", "abort"]
    assert lines(origin) == before[origin].splitlines()


def test_a_fork_without_a_name_is_given_one(sessions: Sessions, origin: Path) -> None:
    made = {sessions.fork("origin"), sessions.fork("origin")}
    assert len(made) == 2
    assert set(sessions.names()) == {"origin", *made}
    assert origin.is_file()


def test_a_line_of_a_fork_is_the_line_of_its_origin_to_the_byte(tmp_path: Path, sessions: Sessions) -> None:
    odd = ['{"type":"later", "seq":1,"x": 1e2, "x": 1E+2, "at":"?"}', line(2, x="\ud800"), line(3, x="\u2028é")]
    path = written(tmp_path / "sessions" / "odd" / "journal.jsonl", HEADER, *odd, torn=b"torn")
    fork = sessions.folder(sessions.fork("odd")) / "journal.jsonl"
    assert lines(fork)[1:] == [each.encode() for each in odd]
    assert path.read_bytes().endswith(b"torn")


@pytest.mark.parametrize(("through", "kept"), [(1, 1), (3, 3), (6, 6), (7, 6), (10**30, 6)])
def test_a_fork_through_a_line_has_those_up_to_it(sessions: Sessions, origin: Path, through: int, kept: int) -> None:
    name = sessions.fork("origin", "fork", through)
    assert lines(sessions.folder(name) / "journal.jsonl")[1:] == lines(origin)[1 : kept + 1]


@pytest.mark.parametrize("through", [0, -1])
def test_a_fork_through_no_line_is_misuse(sessions: Sessions, origin: Path, through: int) -> None:
    with pytest.raises(Misuse, match=f"session origin has no line {through}; they are counted from 1"):
        sessions.fork("origin", "fork", through)
    assert sessions.names() == [origin.parent.name]


def test_what_is_before_a_damaged_line_can_be_kept_as_its_message_says(sessions: Sessions, origin: Path) -> None:
    content = lines(origin)
    content[4] = content[4][:-10]
    origin.write_bytes(b"\n".join([*content, b""]))
    with pytest.raises(JournalDamaged) as damaged:
        sessions.resume("origin")
    told = re.search(r"localctx sessions fork (\S+) --through (\d+)$", str(damaged.value))
    assert told is not None
    name = sessions.fork(told[1], "kept", int(told[2]))
    assert [entry.seq for entry in opened(sessions.folder(name) / "journal.jsonl")] == [1, 2, 3]
    with pytest.raises(JournalDamaged, match="line 5 is no journal entry"):
        sessions.fork("origin", "all")
    assert not sessions.folder("all").exists()


@pytest.mark.parametrize("there", ["session", "folder", "file", "dangling link"])
def test_a_fork_replaces_nothing(tmp_path: Path, sessions: Sessions, origin: Path, there: str) -> None:
    place = origin.parent.with_name("fork")
    match there:
        case "session":
            saved(sessions, "fork", "mine")
        case "folder":
            place.mkdir()
        case "file":
            place.write_text("mine")
        case _:
            place.symlink_to(tmp_path / "nowhere")
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(Misuse, match="there is a session 'fork' already; name another"):
        sessions.fork("origin", "fork")
    assert sorted(tmp_path.rglob("*")) == before


def test_a_fork_of_nothing_is_told(sessions: Sessions, origin: Path) -> None:
    with pytest.raises(NothingFound, match="no session 'other'"):
        sessions.fork("other", "fork")
    assert sessions.names() == [origin.parent.name]


def test_a_fork_that_a_full_disk_does_not_take_leaves_nothing(tmp_path: Path, sessions: Sessions, origin: Path) -> None:
    code = """
allow(100)
try:
    Sessions(Path(sys.argv[1])).fork("origin", "fork")
except LocalctxError as error:
    print(type(error).__name__, error)
"""
    done = child(code, tmp_path)
    assert done.stdout.startswith("StoreUnusable cannot use ")
    assert "LOCALCTX_HOME" in done.stdout
    assert sessions.names() == [origin.parent.name]
    assert not sessions.folder("fork").exists()


def test_what_a_fork_does_to_its_bodies_leaves_its_origin_whole(sessions: Sessions, origin: Path) -> None:
    expected = list(Lines(origin))
    assert "no longer here" not in json.dumps([entry.body for entry in expected])
    for name in ("shrunk", "gone"):
        sessions.fork("origin", name)
    fork = sessions.resume("shrunk")
    fork._results._most = fork._results._allowed = 1
    assert fork.shrink([]) == 4
    fork.append(*answer("3 " * 4000))
    fork.close()
    sessions.remove("gone")
    assert list(Lines(origin)) == expected
    assert Lines(origin).whole(expected[1]) == "1 " * 8000
    sessions.remove("origin")
    assert project(Lines(fork.path)).messages() == 6


def test_a_fork_of_a_session_whose_bodies_are_odd_has_what_is_sound(sessions: Sessions, origin: Path) -> None:
    results = origin.parent / "results"
    bodies = sorted(results.iterdir())
    for at, kind in enumerate(("FIFO", "folder", "/etc/passwd")):
        bodies[at].unlink()
        no_file(bodies[at], kind)
    (results / ("0" * 64)).mkdir()
    name = sessions.fork("origin")
    shared = sessions.folder(name) / "results"
    assert list(shared.iterdir()) == [shared / bodies[3].name]
    assert len(list(Lines(sessions.folder(name) / "journal.jsonl"))) == 6


# --- removing -------------------------------------------------------------------------------------------------------


def test_a_session_is_removed_with_all_that_belongs_to_it(tmp_path: Path, sessions: Sessions, origin: Path) -> None:
    saved(sessions, "other", "hi")
    for name in ("origin", "other"):
        keep_state(sessions.state_file(name), WorkState(goal=name))
    (origin.parent / "recall.db").write_bytes(b"x")
    sessions.remove("origin")
    assert sessions.names() == ["other"]
    assert sorted(each.name for each in (tmp_path / "work").iterdir()) == ["other"]
    assert sorted(each.name for each in (tmp_path / "sessions").iterdir()) == ["other"]


@pytest.mark.parametrize("name", ["s", "sess", "file"])
def test_what_is_not_there_is_not_removed_and_a_beginning_is_no_name(
    tmp_path: Path, sessions: Sessions, name: str
) -> None:
    saved(sessions, "session", "hi")
    (tmp_path / "sessions" / "file").write_text("x")
    with pytest.raises(NothingFound, match=f"no session '{name}' under {re.escape(str(tmp_path))}"):
        sessions.remove(name)
    assert sorted(each.name for each in (tmp_path / "sessions").iterdir()) == ["file", "session"]


@pytest.mark.parametrize("linked", [False, True])
def test_a_session_that_a_program_has_open_is_not_removed(tmp_path: Path, sessions: Sessions, *, linked: bool) -> None:
    path = saved(sessions, "s", "hi")
    keep_state(sessions.state_file("s"), WorkState(goal="ship"))
    (tmp_path / "sessions" / "link").symlink_to(path.parent)
    journal = sessions.resume("s")
    with pytest.raises(StoreUnusable, match="is open in another program; end it"):
        sessions.remove("link" if linked else "s")
    journal.append(*message(SAID))
    journal.close()
    assert [entry.seq for entry in opened(path)] == [1, 2]
    assert sessions.state_file("s").is_file()
    assert (tmp_path / "sessions" / "link").is_symlink()


def test_of_a_linked_session_the_link_goes_alone(tmp_path: Path, sessions: Sessions) -> None:
    elsewhere = saved(Sessions(tmp_path / "elsewhere"), "kept", "hi").parent
    (tmp_path / "sessions").mkdir()
    (tmp_path / "sessions" / "link").symlink_to(elsewhere)
    (tmp_path / "work").mkdir()
    (tmp_path / "work" / "link").symlink_to(elsewhere)
    sessions.remove("link")
    assert list((tmp_path / "sessions").iterdir()) == list((tmp_path / "work").iterdir()) == []
    assert [entry.seq for entry in Lines(elsewhere / "journal.jsonl")] == [1]


def test_what_links_inside_a_session_lead_to_stays(tmp_path: Path, sessions: Sessions) -> None:
    path = saved(sessions, "s", "hi")
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "precious").write_text("x")
    shutil.move(path, outside / "journal.jsonl")
    path.symlink_to(outside / "journal.jsonl")
    (path.parent / "results").symlink_to(outside)
    sessions.remove("s")
    assert not path.parent.exists()
    assert sorted(each.name for each in outside.iterdir()) == ["journal.jsonl", "precious"]


@pytest.mark.parametrize("kind", [*NO_FILES, "nothing"])
def test_a_folder_without_a_journal_is_removed_at_once(tmp_path: Path, sessions: Sessions, kind: str) -> None:
    folder = tmp_path / "sessions" / "odd"
    folder.mkdir(parents=True)
    if kind != "nothing":
        no_file(folder / "journal.jsonl", kind)
    sessions.remove("odd")
    assert not folder.exists()


def test_a_session_on_a_disk_that_can_only_be_read_is_listed_but_not_forked_or_removed(tmp_path: Path) -> None:
    on_a_disk(
        tmp_path / "disk",
        """
sessions = Sessions(home)
journal = sessions.create("s")
journal.append(*message({"role": "user", "content": "hi"}))
journal.close()
mount("-o", "remount,ro")
assert [(each.name, each.messages) for each in sessions.listed()] == [("s", 1)]
assert len(list(sessions.read("s"))) == 1
for change in (lambda: sessions.remove("s"), lambda: sessions.fork("s", "fork"), lambda: sessions.create("new")):
    try:
        change()
    except LocalctxError as error:
        assert "Read-only file system" in str(error) and "LOCALCTX_HOME" in str(error), error
    else:
        raise AssertionError("changed")
assert sessions.names() == ["s"]
""",
    )


# --- the work state where people can read it ------------------------------------------------------------------------


def test_the_work_state_can_be_read_by_people_and_programs(sessions: Sessions) -> None:
    state = WorkState(goal="für 語", todos=(Todo("test", "done", "pytest -q"),))
    path = sessions.state_file("s")
    for _ in range(2):
        keep_state(path, state)
    found = json.loads(path.read_text(encoding="utf-8"))
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT[\d:.]+\+00:00", found.pop("updated_at"))
    assert read_state(found) == state
    assert "für 語" in path.read_text(encoding="utf-8")
    assert list(path.parent.iterdir()) == [path]


def test_a_work_state_that_is_shown_already_is_not_written_again(sessions: Sessions) -> None:
    path = sessions.state_file("s")
    keep_state(path, WorkState(goal="ship"))
    before = path.stat().st_ino
    keep_state(path, WorkState(goal="ship"))
    assert path.stat().st_ino == before
    path.write_text("[]", encoding="utf-8")
    keep_state(path, WorkState(goal="ship"))
    assert json.loads(path.read_text(encoding="utf-8"))["goal"] == "ship"
    keep_state(path, WorkState())
    assert not path.parent.exists()


@pytest.mark.parametrize("blocked", ["work", "work/s", "work/s/state.json"])
def test_a_work_state_that_cannot_be_kept_stops_nothing(tmp_path: Path, sessions: Sessions, blocked: str) -> None:
    place = tmp_path / blocked
    place.parent.mkdir(parents=True, exist_ok=True)
    if blocked.endswith(".json"):
        place.mkdir()
    else:
        place.write_text("not a folder")
    keep_state(sessions.state_file("s"), WorkState(goal="ship"))
    assert [each.name for each in place.parent.iterdir()] == [place.name]


# --- places that cannot be used -------------------------------------------------------------------------------------


def test_a_second_writer_is_refused(tmp_path: Path, sessions: Sessions) -> None:
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


@pytest.mark.parametrize("blocked", [".", "sessions", "sessions/s", "sessions/s/journal.jsonl"])
def test_a_place_that_cannot_be_used_is_told_with_the_way_out(tmp_path: Path, blocked: str) -> None:
    home = tmp_path / "home"
    place = home / blocked
    place.parent.mkdir(parents=True, exist_ok=True)
    if blocked.endswith(".jsonl"):
        place.mkdir()
    else:
        place.write_text("not a folder")
    uses: list[Callable[[], object]] = [lambda: Sessions(home).create("s")]
    if blocked in {".", "sessions"}:
        uses += [Sessions(home).names, Sessions(home).newest, Sessions(home).listed, lambda: Sessions(home).read("s")]
    for use in uses:
        with pytest.raises(StoreUnusable, match=r"LOCALCTX_HOME .*--ephemeral") as unusable:
            use()
        assert str(home) in str(unusable.value)
        assert "\n" not in str(unusable.value)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become nobody")
@pytest.mark.parametrize("mode", [0o500, 0o000])
def test_a_folder_of_somebody_else_is_told_with_the_way_out(mode: int) -> None:
    code = """
import tempfile
home = Path(tempfile.mkdtemp())
os.chown(home, 65534, 65534)
os.chmod(home, int(sys.argv[1]))
os.setgid(65534); os.setuid(65534)
for use in (lambda: Sessions(home).create("s"), lambda: Sessions(home).fork("s"), lambda: Sessions(home).remove("s"),
            lambda: Sessions(home).read("s"), Sessions(home).newest, Sessions(home).names, Sessions(home).listed):
    try:
        print("made", use())
    except LocalctxError as error:
        print(type(error).__name__, error)
os.rmdir(home)
"""
    done = child(code, mode)
    assert done.stderr == ""
    create, fork, remove, *rest = done.stdout.splitlines()
    assert create.startswith("StoreUnusable cannot use ")
    assert "Permission denied" in create
    assert "LOCALCTX_HOME" in create
    if mode == 0o500:
        assert "no session 's'" in fork
        assert "no session 's'" in remove
        assert [each.partition(" ")[0] for each in rest] == ["NothingFound", "NothingFound", "made", "made"]
    else:
        assert all(each.startswith("StoreUnusable cannot use ") for each in (fork, remove, *rest))
