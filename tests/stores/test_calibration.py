from __future__ import annotations

import os
import resource
import shutil
import sqlite3
import stat
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING

import pytest

from localctx.stores.calibration import APPLICATION, Calibrations

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

ROOT = Path(__file__).parents[2]
VALUE = '{"ratio": 3.7, "overhead": 1200}'
CHILD = "import sys; from pathlib import Path; from localctx.stores.calibration import Calibrations\n"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "new" / "home" / "localctx.db"


@pytest.fixture
def store(path: Path) -> Iterator[Calibrations]:
    store = Calibrations(path)
    yield store
    store.close()


def child(code: str, *args: object) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", CHILD + code, *map(str, args)]
    return subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def said(process: subprocess.Popen[str]) -> str:
    output, errors = process.communicate(timeout=60)
    assert process.returncode == 0, errors
    return output.strip()


def query(path: Path, sql: str) -> list[tuple[object, ...]]:
    with closing(sqlite3.connect(path)) as db:
        return db.execute(sql).fetchall()


def script(path: Path, sql: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with closing(sqlite3.connect(path)) as db:
        db.executescript(sql)


def aside(path: Path) -> list[str]:
    return sorted(each.name for each in path.parent.iterdir() if "damaged" in each.name)


# What is kept.


def test_what_was_saved_is_loaded_also_by_another(path: Path, store: Calibrations) -> None:
    assert store.load("model") is None
    assert store.save("model", VALUE)
    assert store.save("other", "[]")
    assert store.load("model") == VALUE
    assert store.save("model", "{}")
    store.close()
    again = Calibrations(path)
    assert (again.load("model"), again.load("other"), again.load("none")) == ("{}", "[]", None)
    again.close()
    assert aside(path) == []


def test_any_text_is_a_key_or_a_value(store: Calibrations) -> None:
    for text in ("", "\0", "a\0b", "\u6f22\U0001f600\u2028", "'; DROP TABLE calibration; --", "k" * 1_000):
        assert store.save(text, text)
        assert store.load(text) == text


def test_half_a_surrogate_pair_is_refused(store: Calibrations) -> None:
    assert not store.save("\ud800", VALUE)
    assert not store.save("model", "\ud800")
    assert store.load("\ud800") is None
    assert store.save("model", VALUE)


def test_constructing_and_loading_touch_nothing_where_there_is_nothing(tmp_path: Path, store: Calibrations) -> None:
    assert store.load("model") is None
    store.close()
    assert list(tmp_path.iterdir()) == []


def test_a_closed_store_opens_again(store: Calibrations) -> None:
    store.close()
    assert store.save("model", VALUE)
    store.close()
    store.close()
    assert store.load("model") == VALUE


def test_when_it_was_saved_is_told_in_utc(path: Path, store: Calibrations) -> None:
    store.save("model", VALUE)
    store.close()
    before, saved, after = query(path, "SELECT date('now', '-1 day'), saved, date('now', '+1 day') FROM calibration")[0]
    assert str(before) < str(saved) < str(after)
    assert len(str(saved)) == len("2026-01-01T00:00:00.000Z")


def test_it_is_bounded(path: Path, store: Calibrations) -> None:
    assert not store.save("model", "x" * 16_385)
    assert not store.save("model", "\u6f22" * 5_462)
    assert not store.save("k" * 1_001, VALUE)
    assert not path.exists()
    assert store.save("model", "x" * 16_384)
    assert store.load("model") == "x" * 16_384


def test_a_value_that_no_store_wrote_is_not_loaded(path: Path, store: Calibrations) -> None:
    store.save("model", VALUE)
    script(path, "UPDATE calibration SET value = printf('%.*c', 16385, 'x')")
    assert store.load("model") is None
    script(path, "UPDATE calibration SET value = x'00ff'")
    assert store.load("model") is None
    script(path, "UPDATE calibration SET value = CAST(x'00ff' AS TEXT)")
    assert store.load("model") is None
    assert store.save("model", VALUE)
    assert store.load("model") == VALUE


def test_the_oldest_of_more_than_a_thousand_are_dropped(path: Path, store: Calibrations) -> None:
    store.save("0", VALUE)
    store.save("1", VALUE)
    rows = "WITH RECURSIVE n(i) AS (SELECT 2 UNION ALL SELECT i + 1 FROM n WHERE i < 999) SELECT i, '{}', '' FROM n"
    script(path, f"INSERT INTO calibration {rows}")
    assert store.save("0", "[]"), "saved again it is the newest"
    assert store.load("1") == VALUE
    assert store.save("1000", VALUE)
    assert store.save("1001", VALUE)
    assert [store.load(key) for key in ("0", "1", "2", "3", "1001")] == ["[]", None, None, "{}", VALUE]
    assert query(path, "SELECT count(*) FROM calibration") == [(1_000,)]


# The file.


@pytest.mark.parametrize("umask", [0o000, 0o022])
def test_it_is_for_its_owner_alone(tmp_path: Path, path: Path, store: Calibrations, umask: int) -> None:
    before = os.umask(umask)
    try:
        assert store.save("model", VALUE)
    finally:
        os.umask(before)
    files = {each.name: stat.S_IMODE(each.stat().st_mode) for each in path.parent.iterdir()}
    assert files == {"localctx.db": 0o600, "localctx.db-wal": 0o600, "localctx.db-shm": 0o600}
    folders = [path.parent, *path.parent.parents]
    assert {stat.S_IMODE(each.stat().st_mode) for each in folders[: folders.index(tmp_path)]} == {0o700}


def test_the_file_is_marked_as_ours_and_shared_with_other_tables(path: Path, store: Calibrations) -> None:
    script(path, f"PRAGMA application_id = {APPLICATION}")
    script(path, "CREATE TABLE memory (text); INSERT INTO memory VALUES ('x')")
    assert store.load("model") is None
    assert store.save("model", VALUE)
    store.close()
    assert query(path, "PRAGMA application_id") == [(APPLICATION,)]
    assert query(path, "PRAGMA journal_mode") == [("wal",)]
    assert query(path, "SELECT text FROM memory") == [("x",)]
    assert aside(path) == []


def test_an_empty_file_becomes_the_database(path: Path, store: Calibrations) -> None:
    path.parent.mkdir(parents=True)
    path.touch()
    assert store.load("model") is None
    assert store.save("model", VALUE)
    assert aside(path) == []


def junk(path: Path) -> None:
    path.write_bytes(b"this is no database\n" * 1_000)


def torn(path: Path) -> None:
    filled(path)
    path.write_bytes(path.read_bytes()[:5_000])


def scribbled(path: Path) -> None:
    filled(path)
    content = bytearray(path.read_bytes())
    content[4096:] = b"\xff" * (len(content) - 4096)
    path.write_bytes(content)


def filled(path: Path) -> None:
    store = Calibrations(path)
    assert store.save("model", VALUE)
    store.close()


def foreign(path: Path) -> None:
    script(path, "CREATE TABLE bookmarks (url TEXT)")


def named_alike(path: Path) -> None:
    script(path, "CREATE TABLE Calibration (device TEXT, offset REAL)")


def marked_by_another(path: Path) -> None:
    script(path, "PRAGMA application_id = 42; CREATE TABLE t (x)")


def other_columns(path: Path) -> None:
    script(path, f"PRAGMA application_id = {APPLICATION}; CREATE TABLE calibration (key, value, saved, more NOT NULL)")


def view(path: Path) -> None:
    script(
        path, f"PRAGMA application_id = {APPLICATION}; CREATE VIEW calibration AS SELECT 'model' AS key, '1' AS value"
    )


def triggered(path: Path) -> None:
    filled(path)
    script(path, "CREATE TRIGGER t AFTER INSERT ON calibration BEGIN DELETE FROM calibration; END")


DAMAGES = [junk, torn, scribbled, foreign, named_alike, marked_by_another, other_columns, view, triggered]


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("first", ["load", "save"])
def test_what_is_damaged_or_foreign_is_set_aside(
    path: Path, store: Calibrations, damage: Callable[[Path], None], first: str
) -> None:
    path.parent.mkdir(parents=True)
    damage(path)
    content = path.read_bytes()
    if first == "load":
        assert store.load("model") is None
    assert store.save("model", VALUE)
    assert store.load("model") == VALUE
    assert {name.removesuffix("-wal").removesuffix("-shm") for name in aside(path)} == {"localctx.db.damaged-1"}
    assert path.with_name("localctx.db.damaged-1").read_bytes() == content


def test_nothing_that_was_set_aside_is_overwritten(path: Path, store: Calibrations) -> None:
    path.parent.mkdir(parents=True)
    (path.parent / "localctx.db.damaged-1").write_text("first")
    (path.parent / "localctx.db.damaged-2-wal").write_text("second")
    junk(path)
    path.with_name("localctx.db-wal").write_text("third")
    assert store.save("model", VALUE)
    found = {name: (path.parent / name).read_bytes()[:20] for name in aside(path) if "shm" not in name}
    assert found == {
        "localctx.db.damaged-1": b"first",
        "localctx.db.damaged-2-wal": b"second",
        "localctx.db.damaged-3": b"this is no database\n",
        "localctx.db.damaged-3-wal": b"third",
    }


def test_with_too_many_damaged_files_nothing_is_kept(path: Path, store: Calibrations) -> None:
    path.parent.mkdir(parents=True)
    for number in range(1, 100):
        (path.parent / f"localctx.db.damaged-{number}").touch()
    junk(path)
    content = path.read_bytes()
    assert store.load("model") is None
    assert not store.save("model", VALUE)
    assert path.read_bytes() == content


def test_damage_while_it_is_open_is_survived(path: Path, store: Calibrations) -> None:
    store.save("model", VALUE)
    with path.open("r+b") as file:
        file.write(b"\xff" * 8_192)
    path.with_name("localctx.db-wal").write_bytes(b"")
    path.with_name("localctx.db-shm").write_bytes(b"\0" * 32_768)
    store.load("model")
    assert store.save("model", "{}")
    assert store.load("model") == "{}"


def test_a_file_that_another_program_has_replaced_is_left_alone(path: Path, store: Calibrations) -> None:
    path.parent.mkdir(parents=True)
    junk(path)
    assert store.save("model", VALUE)
    late = Calibrations(path)
    late._file = (0, 0)  # it found the damaged one, and another program was quicker
    assert late._set_aside()
    assert late.load("model") == VALUE
    late.close()
    assert aside(path) == ["localctx.db.damaged-1"]


@pytest.mark.parametrize("kind", ["folder", "pipe", "lost link", "loop", "file above"])
def test_what_is_no_file_is_no_store(path: Path, store: Calibrations, kind: str) -> None:
    path.parent.mkdir(parents=True)
    elsewhere = path.parents[2] / "elsewhere"
    match kind:
        case "folder":
            path.mkdir()
        case "pipe":
            os.mkfifo(path)
        case "lost link":
            path.symlink_to(elsewhere)
        case "loop":
            path.symlink_to(path)
        case _:
            path.parent.rmdir()
            path.parent.touch()
    assert store.load("model") is None
    assert not store.save("model", VALUE)
    assert not elsewhere.exists()


def test_a_link_to_a_database_is_followed_and_only_the_link_is_set_aside(path: Path, store: Calibrations) -> None:
    path.parent.mkdir(parents=True)
    target = path.parents[2] / "elsewhere.db"
    path.symlink_to(target)
    junk(target)
    assert store.save("model", VALUE)
    assert target.read_bytes().startswith(b"this is no database")
    assert path.is_file()
    assert not path.is_symlink()


@pytest.mark.skipif(os.geteuid() == 0, reason="for root nothing is read-only")
def test_in_a_folder_that_is_read_only_nothing_is_kept(path: Path, store: Calibrations) -> None:
    path.parent.mkdir(parents=True)
    path.parent.chmod(0o500)
    try:
        assert store.load("model") is None
        assert not store.save("model", VALUE)
    finally:
        path.parent.chmod(0o700)


def test_a_place_that_cannot_be_made_is_no_store() -> None:
    store = Calibrations(Path("/proc/localctx/localctx.db"))
    assert store.load("model") is None
    assert not store.save("model", VALUE)


def test_on_a_full_disk_nothing_is_kept_and_what_was_kept_stays(path: Path, store: Calibrations) -> None:
    store.save("model", VALUE)
    store.close()
    before = path.read_bytes()
    code = "store = Calibrations(Path(sys.argv[1])); print(store.save('more', 'x' * 9_999), store.load('model'))"

    def full() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (4_096, 4_096))

    done = subprocess.run(
        [sys.executable, "-c", CHILD + code, path],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
        preexec_fn=full,
    )
    assert done.stdout.split()[0] == "False"
    assert path.read_bytes() == before
    assert store.load("model") == VALUE
    assert aside(path) == []


# More than one.


def test_programs_begin_and_write_at_once(path: Path, store: Calibrations) -> None:
    code = """
store = Calibrations(Path(sys.argv[1]))
print(all([store.save(f"{sys.argv[2]}-{number}", "{}") for number in range(100)]))
store.close()
"""
    assert [said(each) for each in [child(code, path, name) for name in "abc"]] == ["True"] * 3
    assert {store.load(f"{name}-{number}") for name in "abc" for number in range(100)} == {"{}"}
    assert aside(path) == []


def test_programs_that_find_a_damaged_file_at_once_lose_nothing_new(path: Path, store: Calibrations) -> None:
    path.parent.mkdir(parents=True)
    junk(path)
    code = "store = Calibrations(Path(sys.argv[1])); print(store.save(sys.argv[2], '{}')); store.close()"
    said_true = [name for name, each in [(name, child(code, path, name)) for name in "abcd"] if said(each) == "True"]
    assert said_true
    assert store.save("model", VALUE)
    assert store.load("model") == VALUE


def test_threads_share_a_store(store: Calibrations) -> None:
    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(lambda number: store.save(str(number), "{}"), range(100)))
        assert set(pool.map(lambda number: store.load(str(number)), range(100))) == {"{}"}


def test_a_program_that_writes_long_is_not_waited_for_and_readers_go_on(path: Path, store: Calibrations) -> None:
    store.save("model", VALUE)
    with closing(sqlite3.connect(path)) as other:
        other.execute("BEGIN IMMEDIATE")
        began = perf_counter()
        assert not store.save("model", "{}")
        assert perf_counter() - began < 3
        assert store.load("model") == VALUE
        other.rollback()
    assert store.save("model", "{}")
    assert aside(path) == []


def test_a_program_that_was_killed_leaves_a_store_that_works(path: Path, store: Calibrations) -> None:
    code = """
import os
store = Calibrations(Path(sys.argv[1]))
store.save("model", "{}")
os.kill(os.getpid(), 9)
"""
    process = child(code, path)
    process.communicate(timeout=60)
    assert process.returncode == -9
    copy = path.with_name("copy.db")
    for ending in ("", "-wal"):
        shutil.copyfile(f"{path}{ending}", f"{copy}{ending}")
    assert store.load("model") == "{}"
    assert query(copy, "SELECT key FROM calibration") == [("model",)]
