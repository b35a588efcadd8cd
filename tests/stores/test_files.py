from __future__ import annotations

import errno
import os
import re
import shutil
import signal
import stat
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from localctx.errors import StoreUnusable
from localctx.stores.files import lock, open_file, private_folder, replace_file, sync_folder, unusable

ROOT = Path(__file__).parents[2]


def child(code: str, *args: object) -> subprocess.CompletedProcess[str]:
    start = "import os, sys; from pathlib import Path; from localctx.stores.files import *\n"
    return subprocess.run(
        [sys.executable, "-c", start + code, *map(str, args)],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
        cwd=ROOT,
    )


@pytest.fixture
def open_umask() -> Iterator[None]:
    before = os.umask(0)
    yield
    os.umask(before)


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


# --- folders --------------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("open_umask")
def test_new_folders_are_for_their_owner_alone_and_old_ones_stay_as_they_are(tmp_path: Path) -> None:
    (tmp_path / "old").mkdir(mode=0o755)
    private_folder(tmp_path / "old" / "a" / "b")
    private_folder(tmp_path / "old" / "a")
    assert [mode(tmp_path / each) for each in ("old", "old/a", "old/a/b")] == [0o755, 0o700, 0o700]


@pytest.mark.parametrize("place", ["file/below", "dangling", "dangling/below"])
def test_a_folder_that_cannot_be_made_is_an_error(tmp_path: Path, place: str) -> None:
    (tmp_path / "file").write_text("x")
    (tmp_path / "dangling").symlink_to(tmp_path / "nowhere")
    with pytest.raises(OSError, match=re.escape(str(tmp_path))):
        private_folder(tmp_path / place)
    assert (tmp_path / "file").read_text() == "x"
    assert not (tmp_path / "nowhere").exists()


def test_what_cannot_be_synced_is_no_error(tmp_path: Path) -> None:
    sync_folder(tmp_path)
    sync_folder(tmp_path / "none")
    sync_folder(Path("/proc/self"))


# --- opening --------------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("open_umask")
def test_a_new_file_is_for_its_owner_alone(tmp_path: Path) -> None:
    os.close(open_file(tmp_path / "new", os.O_WRONLY | os.O_CREAT))
    assert mode(tmp_path / "new") == 0o600


def no_file(place: Path, kind: str) -> Path:
    """Something at a place that is no file; to open most of it as one would wait for ever."""
    match kind:
        case "FIFO":
            os.mkfifo(place)
        case "folder":
            place.mkdir()
        case "dangling link":
            place.symlink_to(place.with_name("nowhere"))
        case "link to itself":
            place.symlink_to(place)
        case _:
            place.symlink_to(kind)
    return place


NO_FILES = ["FIFO", "folder", "/dev/zero", "dangling link", "link to itself"]


@pytest.mark.parametrize("flags", [os.O_RDONLY, os.O_RDWR, os.O_WRONLY])
@pytest.mark.parametrize("kind", NO_FILES)
def test_what_is_no_file_is_an_error_at_once_and_leaves_nothing_open(tmp_path: Path, kind: str, flags: int) -> None:
    place = no_file(tmp_path / "place", kind)
    before = len(os.listdir("/proc/self/fd")) if Path("/proc/self/fd").is_dir() else 0  # noqa: PTH208  numbers
    with pytest.raises(OSError, match=r"it is no file|\[Errno"):
        open_file(place, flags)
    if before:
        assert len(os.listdir("/proc/self/fd")) == before  # noqa: PTH208  numbers


# --- replacing ------------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("open_umask")
def test_a_file_is_put_in_place_with_its_folders_for_its_owner_alone(tmp_path: Path) -> None:
    path = tmp_path / "a" / "b" / "file"
    replace_file(path, [b"one ", b"", b"two"])
    assert (path.read_bytes(), mode(path), mode(path.parent)) == (b"one two", 0o600, 0o700)
    replace_file(path, iter([b"three"]))
    assert path.read_bytes() == b"three"
    assert list(path.parent.iterdir()) == [path]


def test_pieces_that_fail_leave_what_was_there(tmp_path: Path) -> None:
    def pieces() -> Iterator[bytes]:
        yield b"x" * 100_000
        raise KeyError("pieces")

    for path in (tmp_path / "old", tmp_path / "new"):
        if path.name == "old":
            path.write_bytes(b"old")
        with pytest.raises(KeyError):
            replace_file(path, pieces())
    assert [(each.name, each.read_bytes()) for each in tmp_path.iterdir()] == [("old", b"old")]


def test_a_full_disk_leaves_what_was_there(tmp_path: Path) -> None:
    code = """
import resource
path = Path(sys.argv[1])
replace_file(path, [b"old"])
resource.setrlimit(resource.RLIMIT_FSIZE, (1000, resource.RLIM_INFINITY))
try:
    replace_file(path, [b"x" * 5000])
except OSError as error:
    print(error.errno)
"""
    done = child(code, tmp_path / "file")
    assert (done.stdout, done.stderr) == (f"{errno.EFBIG}\n", "")
    assert [(each.name, each.read_bytes()) for each in tmp_path.iterdir()] == [("file", b"old")]


def test_a_kill_leaves_what_was_there_and_the_next_replacement_is_not_in_its_way(tmp_path: Path) -> None:
    code = """
import signal
def pieces():
    yield b"half" * 10_000
    os.kill(os.getpid(), signal.SIGKILL)
replace_file(Path(sys.argv[1]), pieces())
"""
    path = tmp_path / "file"
    path.write_bytes(b"old")
    assert child(code, path).returncode == -signal.SIGKILL
    assert path.read_bytes() == b"old"
    (left,) = set(tmp_path.iterdir()) - {path}
    assert re.fullmatch(r"\.file\..{8}", left.name)
    replace_file(path, [b"new"])
    assert path.read_bytes() == b"new"


def test_a_link_is_replaced_and_not_followed(tmp_path: Path) -> None:
    (tmp_path / "other").write_bytes(b"stays")
    (tmp_path / "file").symlink_to(tmp_path / "other")
    replace_file(tmp_path / "file", [b"new"])
    assert not (tmp_path / "file").is_symlink()
    assert [(tmp_path / each).read_bytes() for each in ("file", "other")] == [b"new", b"stays"]


def test_a_folder_in_its_place_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").mkdir()
    with pytest.raises(OSError, match="directory"):
        replace_file(tmp_path / "file", [b"new"])
    assert [each.name for each in tmp_path.iterdir()] == ["file"]


def test_those_who_replace_at_once_leave_one_of_their_texts(tmp_path: Path) -> None:
    path, failed = tmp_path / "file", list[BaseException]()
    texts = [bytes([48 + number]) * 50_000 for number in range(4)]

    def write(text: bytes) -> None:
        try:
            for _ in range(10):
                replace_file(path, [text])
        except BaseException as error:  # noqa: BLE001  whatever it was, this thread has no other way to tell
            failed.append(error)

    threads = [threading.Thread(target=write, args=[text]) for text in texts]
    for each in threads:
        each.start()
    while any(each.is_alive() for each in threads):
        assert not path.exists() or path.read_bytes() in texts
    assert failed == []
    assert path.read_bytes() in texts
    assert list(tmp_path.iterdir()) == [path]


def traced(tmp_path: Path, code: str, *args: object) -> list[str]:
    """The calls of a program that write and sync, in order; skips where none can be traced."""
    strace = shutil.which("strace")
    if (
        strace is None
        or subprocess.run([strace, "-f", "true"], capture_output=True, check=False, timeout=60).returncode
    ):
        pytest.skip("strace is not there, or may not trace here")
    out = tmp_path / "trace"
    calls = "write,fsync,fdatasync,rename,renameat,renameat2,mkdir,ftruncate"
    command = [strace, "-f", "-y", "-s", "16", "-e", f"trace={calls}", "-o", str(out), sys.executable, "-c", code]
    subprocess.run([*command, *map(str, args)], check=True, timeout=120, cwd=ROOT)
    return [line for line in out.read_text().splitlines() if str(tmp_path) in line]


def test_a_replaced_file_is_on_disk_before_its_name_and_its_name_before_it_returns(tmp_path: Path) -> None:
    code = """
import sys; from pathlib import Path; from localctx.stores.files import replace_file
replace_file(Path(sys.argv[1]), [b"new"])
print("returned", file=open(sys.argv[2], "w"))
"""
    folder, after = tmp_path / "folder", tmp_path / "after"
    calls = traced(tmp_path, code, folder / "file", after)
    order = [
        next(at for at, call in enumerate(calls) if re.search(pattern, call))
        for pattern in (
            rf"mkdir\(.{re.escape(str(folder))}",
            rf"fsync\(\d+<{re.escape(str(tmp_path))}>",
            r"write\(.*\"new\"",
            r"fsync\(\d+<.*/folder/\.file\.",
            r"rename",
            rf"fsync\(\d+<{re.escape(str(folder))}>",
            r"returned",
        )
    ]
    assert order == sorted(order)


# --- the lock, and what is told -------------------------------------------------------------------------------------


@pytest.fixture
def opened(tmp_path: Path) -> Iterator[Callable[[], int]]:
    """Opens the same file, each time anew."""
    found = list[int]()

    def fresh() -> int:
        found.append(open_file(tmp_path / "s" / "journal.jsonl", os.O_RDWR | os.O_CREAT))
        return found[-1]

    (tmp_path / "s").mkdir()
    yield fresh
    for each in found:
        os.close(each)


def test_a_session_is_locked_for_one_until_it_is_closed(tmp_path: Path, opened: Callable[[], int]) -> None:
    path = tmp_path / "s" / "journal.jsonl"
    first, second = opened(), opened()
    lock(first, path)
    with pytest.raises(StoreUnusable, match="session s is open in another program; end it, or start a new one"):
        lock(second, path)
    os.dup2(second, first)  # which closes the first
    lock(second, path)


def test_a_session_that_was_removed_before_it_was_locked_is_told(tmp_path: Path, opened: Callable[[], int]) -> None:
    path, fd = tmp_path / "s" / "journal.jsonl", opened()
    path.unlink()
    with pytest.raises(StoreUnusable, match="session s was removed just now; start a new one"):
        lock(fd, path)


@pytest.mark.skipif(not hasattr(os, "O_PATH"), reason="only Linux opens a file that cannot be locked")
def test_a_file_that_cannot_be_locked_is_used_without(tmp_path: Path, opened: Callable[[], int]) -> None:
    path = tmp_path / "s" / "journal.jsonl"
    lock(opened(), path)
    fd = os.open(path, os.O_PATH)
    try:
        lock(fd, path)
    finally:
        os.close(fd)


@pytest.mark.parametrize(
    ("error", "why"), [(OSError(errno.ENOSPC, "No space left"), "No space left"), (OSError("x"), "x")]
)
def test_a_place_that_cannot_be_used_is_told_with_the_way_out(error: OSError, why: str) -> None:
    told = str(unusable(Path("/home/place"), error))
    assert told.startswith(f"cannot use /home/place ({why}); set LOCALCTX_HOME ")
    assert told.endswith("or pass --ephemeral")
