"""Changes are seen before they are made, made whole, and made only to what was seen."""

from __future__ import annotations

import os
import stat

import pytest
from hypothesis import given
from hypothesis import strategies as st

from localctx.app.tools.writing import EditFile, WriteFile
from localctx.core.secrets import MASK
from localctx.ports import Tool
from tests.app.tools.conftest import OUTSIDE, Bench, swapping

pytestmark = pytest.mark.anyio


def write(bench: Bench) -> WriteFile:
    return WriteFile(bench.place, bench.person)


def edit(bench: Bench) -> EditFile:
    return EditFile(bench.place, bench.person)


async def test_a_new_file_is_written_with_its_folders_once_it_was_seen(bench: Bench) -> None:
    told = await bench.call(write(bench), path="new/sub/a.txt", content="one\ntwo\n")
    assert told == "new/sub/a.txt written"
    assert (bench.root / "new" / "sub" / "a.txt").read_text(encoding="utf-8") == "one\ntwo\n"
    (wish,) = bench.person.wishes
    assert (wish.tool, wish.subject) == ("write_file", "new/sub/a.txt")
    assert wish.details == "--- /dev/null\n+++ new/sub/a.txt\n@@ -0,0 +1,2 @@\n+one\n+two"


async def test_a_no_leaves_everything_as_it_is(bench: Bench) -> None:
    bench.person.no = "the user said no: not that one"
    assert await bench.call(write(bench), path="new/a", content="x") == "error: the user said no: not that one"
    assert list(bench.root.iterdir()) == []


async def test_one_text_is_replaced_and_the_rest_stays_byte_for_byte(bench: Bench) -> None:
    path = bench.root / "a"
    path.write_bytes(b"\xef\xbb\xbfbefore\n\xff\xfe odd\nold line\nafter")
    path.chmod(0o751)
    told = await bench.call(edit(bench), path="a", old="old line", new="new line\nand more")
    assert told == "a changed: +2 -1 lines"
    assert path.read_bytes() == b"\xef\xbb\xbfbefore\n\xff\xfe odd\nnew line\nand more\nafter"
    assert stat.S_IMODE(path.stat().st_mode) == 0o751
    assert [each.name for each in bench.root.iterdir()] == ["a"], "nothing is left beside it"


@pytest.mark.parametrize(
    ("tool", "arguments"),
    [
        ("edit_file", {"old": "two\nthree", "new": "2\n3"}),
        ("edit_file", {"old": "two\r\nthree", "new": "2\r\n3"}),
        ("write_file", {"content": "one\n2\n3\n"}),
        ("write_file", {"content": "one\r\n2\r\n3\r\n"}),
    ],
)
async def test_line_ends_stay_what_they_were(bench: Bench, tool: str, arguments: dict[str, str]) -> None:
    (bench.root / "a").write_bytes(b"one\r\ntwo\r\nthree\r\n")
    made: dict[str, Tool] = {"edit_file": edit(bench), "write_file": write(bench)}
    await bench.call(made[tool], path="a", **arguments)
    assert (bench.root / "a").read_bytes() == b"one\r\n2\r\n3\r\n"
    assert "\r" not in bench.person.wishes[0].details


async def test_mixed_line_ends_stay_mixed(bench: Bench) -> None:
    (bench.root / "a").write_bytes(b"one\r\ntwo\nthree\r\n")
    assert await bench.call(edit(bench), path="a", old="two", new="2") == "a changed: +1 -1 lines"
    assert (bench.root / "a").read_bytes() == b"one\r\n2\nthree\r\n"


async def test_a_text_that_is_not_there_is_told_with_what_is_like_it(bench: Bench) -> None:
    (bench.root / "a").write_text("def first():\n    return 1\n\ndef second():\n    return 2\n", encoding="utf-8")
    told = await bench.call(edit(bench), path="a", old="def secnd():\n  return 2", new="x")
    assert told == (
        "error: old is not in the file; it must be exact, blanks too\nThe most similar lines:\n4: def second():"
    )
    assert bench.person.wishes == []


async def test_a_text_that_occurs_more_than_once_is_told_with_its_lines(bench: Bench) -> None:
    (bench.root / "a").write_text("x\ny\nx\nx\n", encoding="utf-8")
    told = await bench.call(edit(bench), path="a", old="x", new="z")
    assert told == "error: old occurs 3 times, on lines 1, 3, 4; add lines around it until it is unique"


async def test_what_is_in_a_file_with_secrets_is_not_told_by_a_mistake(bench: Bench) -> None:
    (bench.root / ".env").write_text("PASSWORD=hunter2\n", encoding="utf-8")
    assert "hunter2" not in await bench.call(edit(bench), path=".env", old="PASSWORD=x", new="PASSWORD=y")


@pytest.mark.parametrize(
    ("path", "content", "said"),
    [
        ("sub", "x", "sub is a folder, not a file"),
        (".", "x", "is a folder, not a file"),
        ("pipe", "x", "pipe is a pipe, not a file"),
        ("bin", "x", "bin is binary, not text"),
        ("locked", "x", "locked is read-only"),
        (".git/config", "x", "belongs to git"),
        (".GIT/hooks/pre-commit", "x", "belongs to git"),
        ("new/.Git/hooks/pre-commit", "x", "belongs to git"),
        ("../outside/file", "x", "is outside of the working folder"),
        ("out/file", "x", "is outside of the working folder"),
        ("new/../../outside/file", "x", "there is no new/../../outside/file"),
        ("a", f"key = {MASK}", "stands for what you may not see"),
        ("a", "\ud800", "half of a character"),
        ("a", "x" * (4 << 20) + "x", "at most 4,194,304 are written at once"),
        ("large", "x", "has more than 4,194,304 bytes"),
        ("x" * 300, "x", "File name too long"),
        ("bin/x", "x", "goes through something that is no folder"),
    ],
)
async def test_what_is_not_to_be_written_is_not(bench: Bench, path: str, content: str, said: str) -> None:
    (bench.root / "sub").mkdir()
    os.mkfifo(bench.root / "pipe")
    (bench.root / "bin").write_bytes(b"\0")
    (bench.root / "locked").touch(0o444)
    (bench.root / "out").symlink_to(bench.outside)
    (bench.root / "large").write_bytes(b"x" * ((4 << 20) + 1))
    before = sorted(bench.root.rglob("*"))
    told = await bench.call(write(bench), path=path, content=content)
    assert told.startswith("error: ")
    assert said in told
    assert sorted(bench.root.rglob("*")) == before
    assert (bench.outside / "file").read_text(encoding="utf-8") == OUTSIDE


async def test_a_link_inside_stays_a_link(bench: Bench) -> None:
    (bench.root / "a").write_text("one", encoding="utf-8")
    (bench.root / "link").symlink_to("a")
    assert await bench.call(write(bench), path="link", content="two") == "a changed: +1 -1 lines"
    assert (bench.root / "link").is_symlink()
    assert (bench.root / "a").read_text(encoding="utf-8") == "two"


def replaced_by_a_link(bench: Bench) -> None:
    (bench.root / "a").unlink()
    (bench.root / "a").symlink_to(bench.outside / "file")


def changed(bench: Bench) -> None:
    (bench.root / "a").write_text("two", encoding="utf-8")


def removed(bench: Bench) -> None:
    (bench.root / "a").unlink()


@pytest.mark.parametrize("change", [replaced_by_a_link, changed, removed])
async def test_what_changed_since_it_was_seen_is_left_alone(bench: Bench, change: object) -> None:
    (bench.root / "a").write_text("one", encoding="utf-8")
    assert callable(change)
    bench.person.meanwhile = lambda: change(bench)
    told = await bench.call(write(bench), path="a", content="mine")
    assert "changed meanwhile" in told or "is outside" in told
    assert (bench.outside / "file").read_text(encoding="utf-8") == OUTSIDE
    assert not [path for path in bench.root.iterdir() if path.is_file() and path.read_text() == "mine"]


async def test_what_is_like_that_already_is_not_asked_for(bench: Bench) -> None:
    (bench.root / "a").write_text("one", encoding="utf-8")
    assert await bench.call(write(bench), path="a", content="one") == "a is like that already"
    assert bench.person.wishes == []


async def test_a_folder_that_is_swapped_for_a_link_takes_no_file_elsewhere(bench: Bench) -> None:
    (bench.root / "sub").mkdir()
    with swapping(bench.root / "sub", bench.outside):
        for number in range(300):
            await bench.call(write(bench), path="sub/file", content=f"{number}")
    assert (bench.outside / "file").read_text(encoding="utf-8") == OUTSIDE
    assert [path.name for path in bench.outside.iterdir()] == ["file"]
    assert not list(bench.root.rglob("*.part"))


@given(st.text(max_size=60), st.text("ab\n", min_size=1, max_size=4), st.text(max_size=20))
async def test_an_edit_replaces_one_place_and_nothing_else(text: str, old: str, new: str) -> None:
    (bench,) = _BENCH
    path = bench.root / "a"
    raw = text.encode("utf-8", "replace")
    path.write_bytes(raw)
    told = await bench.call(edit(bench), path="a", old=old, new=new.encode("utf-8", "replace").decode())
    after = path.read_bytes()
    assert (after == raw) or "changed" in told
    if "changed" in told and b"\r" not in raw and "\r" not in new:
        assert after == raw.replace(old.encode(), new.encode("utf-8", "replace"))


_BENCH: list[Bench] = []


@pytest.fixture(autouse=True)
def _kept(bench: Bench) -> None:
    _BENCH[:] = [bench]


async def test_a_new_file_takes_the_place_of_none_that_came_meanwhile(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced = os.fsync

    def editor(fd: int) -> None:
        (bench.root / "a").write_text("somebody's work", encoding="utf-8")
        synced(fd)

    monkeypatch.setattr(os, "fsync", editor)
    assert "was changed meanwhile" in await bench.call(write(bench), path="a", content="x")
    assert (bench.root / "a").read_text(encoding="utf-8") == "somebody's work"
    assert [each.name for each in bench.root.iterdir()] == ["a"]


async def test_nobody_else_may_read_what_is_written_before_it_has_its_mode(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    (bench.root / "a").write_text("x", encoding="utf-8")
    (bench.root / "a").chmod(0o640)
    seen, change = list[tuple[int, int]](), os.fchmod

    def changed(fd: int, mode: int) -> None:
        seen.append((stat.S_IMODE(os.fstat(fd).st_mode), os.fstat(fd).st_size))
        change(fd, mode)

    monkeypatch.setattr(os, "fchmod", changed)
    await bench.call(write(bench), path="a", content="y")
    assert seen == [(0o600, 0)]
    assert stat.S_IMODE((bench.root / "a").stat().st_mode) == 0o640


async def test_what_only_others_may_write_is_read_only(locked: Bench) -> None:
    if os.geteuid() != 65534:
        pytest.skip("only root can make a file of somebody else")
    os.seteuid(0)
    locked.root.chmod(0o777)
    (locked.root / "other").write_text("x", encoding="utf-8")
    (locked.root / "other").chmod(0o644)
    os.seteuid(65534)
    assert "other is read-only" in await locked.call(write(locked), path="other", content="y")


async def test_a_mark_at_the_beginning_is_kept_and_other_hard_links_are_told_of(bench: Bench) -> None:
    (bench.root / "a").write_bytes(b"\xef\xbb\xbfold\n")
    (bench.root / "b").hardlink_to(bench.root / "a")
    told = await bench.call(write(bench), path="a", content="new\n")
    assert told == "a changed: +1 -1 lines; its other hard links keep what they had"
    assert (bench.root / "a").read_bytes() == b"\xef\xbb\xbfnew\n"
    assert (bench.root / "b").read_bytes() == b"\xef\xbb\xbfold\n"


@pytest.mark.parametrize(
    ("old", "new", "left"),
    [
        ("one\ntwo\nthree", "one\n2\nthree", b"one\r\n2\nthree\r\nfour"),
        ("one\ntwo\n", "one\nand\ntwo\n", b"one\r\nand\ntwo\nthree\r\nfour"),
        ("two\nthree\nfour", "2\n3\n4", b"one\r\n2\n3\n4"),
        ("three\n", "", b"one\r\ntwo\nfour"),
        ("one\n", "1\n\n", b"1\r\n\r\ntwo\nthree\r\nfour"),
    ],
)
async def test_what_is_shown_of_mixed_line_ends_is_found(bench: Bench, old: str, new: str, left: bytes) -> None:
    (bench.root / "a").write_bytes(b"one\r\ntwo\nthree\r\nfour")
    await bench.call(edit(bench), path="a", old=old, new=new)
    assert (bench.root / "a").read_bytes() == left
