"""Whatever is written as a path reaches nothing outside of the working folder."""

from __future__ import annotations

import os
import socket
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from localctx.app.tools.place import Place, explained, visible
from tests.app.tools.conftest import OUTSIDE, Bench, Person, swapping


def read(place: Place, path: str) -> str:
    with explained(path), place.spot(path) as spot, os.fdopen(spot.open_file(), "rb") as file:
        return file.read().decode()


def fill(bench: Bench) -> None:
    (bench.root / "sub" / "deep").mkdir(parents=True)
    (bench.root / "file").write_text("inside", encoding="utf-8")
    (bench.root / "sub" / "file").write_text("inside sub", encoding="utf-8")
    for name, target in {
        "out": str(bench.outside),
        "up": "..",
        "far": "../outside",
        "in": "sub",
        "abs": str(bench.root / "sub"),
        "back": "sub/../sub/deep/..",
        "loop": "loop",
        "pingpong": "sub/pongping",
        "sneaky": "sub/../../outside/file",
        "dangling": "nowhere/at/all",
    }.items():
        (bench.root / name).symlink_to(target)
    (bench.root / "sub" / "pongping").symlink_to("../pingpong")
    (bench.root / "sub" / "up2").symlink_to("../..")


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("file", "inside"),
        ("./sub//./file", "inside sub"),
        ("sub/../file", "inside"),
        ("in/file", "inside sub"),
        ("abs/file", "inside sub"),
        ("back/file", "inside sub"),
        ("abs/../file", "inside"),
        ("in/deep/../../file", "inside"),
        ("ROOT/file", "inside"),
        ("ROOT/../work/sub/file", "inside sub"),
        ("OUTSIDE/../work/file", "inside"),
    ],
)
def test_what_is_inside_is_reached_however_it_is_written(bench: Bench, path: str, text: str) -> None:
    fill(bench)
    assert read(bench.place, path.replace("ROOT", str(bench.root)).replace("OUTSIDE", str(bench.outside))) == text


@pytest.mark.parametrize(
    "path",
    [
        *("..", "../outside/file", "sub/../../outside/file", "out/file", "up/outside/file", "far/file", "sneaky"),
        *(
            "OUTSIDE/file",
            "/etc/passwd",
            "ROOT/../outside/file",
            "//etc/passwd",
            "~/x",
            "~",
            "/",
            "sub/up2/outside/file",
        ),
        *("/proc/self/environ", "/proc/self/root/etc/passwd", "/dev/zero", "/proc/self/cwd/file/../../etc/passwd"),
    ],
)
def test_what_is_outside_is_said_to_be(bench: Bench, path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    fill(bench)
    monkeypatch.setenv("HOME", str(bench.outside))
    with pytest.raises(ValueError, match="is outside of the working folder"):
        read(bench.place, path.replace("ROOT", str(bench.root)).replace("OUTSIDE", str(bench.outside)))


def test_the_home_folder_is_reached_where_it_is_inside(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    fill(bench)
    monkeypatch.setenv("HOME", str(bench.root / "sub"))
    assert read(bench.place, "~/file") == "inside sub"


@pytest.mark.parametrize(
    ("path", "said"),
    [
        ("", "is no path"),
        ("a\0b", "is no path"),
        ("x" * 300, "File name too long"),
        ("x/" * 3000, "is no path"),
        ("d/" * 100 + "file", "there is no d/d/"),
        ("\ud800", "half of a character"),
        ("loop", "Too many levels"),
        ("pingpong", "Too many levels"),
        ("dangling", "there is no dangling"),
        ("none", "there is no none; list_dir shows"),
        ("file/x", "goes through something that is no folder"),
        ("sub", "sub is a folder, not a file"),
        (".", ". is a folder, not a file"),
    ],
)
def test_what_is_no_file_is_said_to_be(bench: Bench, path: str, said: str) -> None:
    fill(bench)
    with pytest.raises(ValueError, match=said):
        read(bench.place, path)


def test_a_path_may_be_only_so_deep(bench: Bench) -> None:
    deep = bench.root.joinpath(*["d"] * 70)
    deep.mkdir(parents=True)
    with pytest.raises(ValueError, match="more than 64 folders deep"):
        read(bench.place, "d/" * 70 + "file")


def test_what_could_wait_or_act_is_not_opened(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    os.mkfifo(bench.root / "pipe")
    (bench.root / "a").symlink_to("pipe")
    with socket.socket(socket.AF_UNIX) as listening:
        monkeypatch.chdir(bench.root)  # the path of a socket is short
        listening.bind("socket")
        for name, kind in {"pipe": "a pipe", "a": "a pipe", "socket": "a socket"}.items():
            with pytest.raises(ValueError, match=f"is {kind}, not a file"):
                read(bench.place, name)


def test_what_is_no_file_of_a_disk_is_not_read_even_where_the_root_holds_it() -> None:
    for path in ("/proc/self/environ", "proc/version", "dev/null"):
        with pytest.raises(ValueError, match="is no file of a disk"):
            read(Place(Path("/")), path)


def test_a_name_that_is_no_utf_8_is_shown_and_read_as_json_would_write_it(bench: Bench) -> None:
    name = os.fsdecode(b"caf\xe9\x1b[31m")
    try:
        (bench.root / name).write_text("inside", encoding="utf-8")
    except OSError:
        pytest.skip("this file system takes only UTF-8")
    assert visible(name) == r"caf\udce9\x1b[31m"
    assert read(bench.place, name) == "inside"


def test_a_root_by_a_link_is_the_same_root(bench: Bench) -> None:
    fill(bench)
    (bench.root.parent / "other").symlink_to(bench.root)
    place = Place(bench.root.parent / "other")
    assert read(place, str(bench.root / "file")) == read(place, str(bench.root.parent / "other" / "file")) == "inside"


_FILLED: list[Bench] = []


@pytest.fixture(autouse=True, scope="module")
def _filled(tmp_path_factory: pytest.TempPathFactory) -> None:
    root = tmp_path_factory.mktemp("escape").resolve()
    bench = Bench(root / "work", root / "outside", Person())
    bench.root.mkdir()
    bench.outside.mkdir()
    (bench.outside / "file").write_text(OUTSIDE, encoding="utf-8")
    fill(bench)
    _FILLED[:] = [bench]


_PARTS = st.sampled_from(
    ["..", ".", "", "sub", "deep", "file", "out", "up", "far", "in", "abs", "back", "loop", "sneaky", "dangling", "up2"]
)


@given(st.lists(_PARTS, min_size=1, max_size=9), st.sampled_from(["", "/", "ROOT/", "OUTSIDE/", "/proc/self/cwd/"]))
def test_no_path_escapes(parts: list[str], start: str) -> None:
    (bench,) = _FILLED
    path = start.replace("ROOT", str(bench.root)).replace("OUTSIDE", str(bench.outside)) + "/".join(parts)
    try:
        with bench.place.spot(path) as spot:
            found = spot.look()
            there = Path(f"/proc/self/fd/{spot.folder}").readlink() if sys.platform == "linux" else None
            text = read(bench.place, path) if found else ""
    except (ValueError, OSError):
        return
    assert OUTSIDE not in text
    assert there is None or there == bench.root or bench.root in there.parents
    assert (bench.root / spot.shown).resolve() == (bench.root / spot.shown), "what is shown is the real path"


def test_a_folder_that_is_swapped_for_a_link_leads_nowhere_else(bench: Bench) -> None:
    (bench.root / "sub").mkdir()
    (bench.root / "sub" / "file").write_text("inside", encoding="utf-8")
    seen = set[str]()
    with swapping(bench.root / "sub", bench.outside):
        for _ in range(2_000):
            try:
                seen.add(read(bench.place, "sub/file"))
            except ValueError:
                seen.add("refused")
    assert "inside" in seen
    assert OUTSIDE not in seen


def test_a_file_that_is_swapped_for_a_link_leads_nowhere_else(bench: Bench) -> None:
    (bench.root / "name").write_text("inside", encoding="utf-8")
    seen = set[str]()
    with swapping(bench.root / "name", bench.outside / "file"):
        for _ in range(2_000):
            try:
                seen.add(read(bench.place, "name"))
            except ValueError:
                seen.add("refused")
    assert "inside" in seen
    assert OUTSIDE not in seen


def test_a_file_that_is_swapped_for_a_pipe_is_not_waited_for(bench: Bench) -> None:
    os.mkfifo(bench.root.parent / "pipe")
    (bench.root / "name").write_text("inside", encoding="utf-8")
    os.mkfifo(bench.root / "other")
    with bench.place.spot("name") as spot:
        (bench.root / "other").replace(bench.root / "name")
        with pytest.raises(ValueError, match="is a pipe"):
            spot.open_file()
