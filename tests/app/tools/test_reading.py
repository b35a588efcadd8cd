"""Files and folders are read whatever they are, and never whole where they are huge."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from localctx.app.tools.reading import ListDir, ReadFile
from localctx.app.tools.searching import Grep
from localctx.app.tools.toolbox import Toolbox
from localctx.core.approval import Wish
from localctx.core.messages import ToolCall
from localctx.core.results import PAGE_CHARACTERS, Provenance
from localctx.core.secrets import Secrets
from localctx.ports import Outcome
from tests.app.tools.conftest import Bench, Person

pytestmark = pytest.mark.anyio


def reader(bench: Bench, most: int = PAGE_CHARACTERS) -> ReadFile:
    return ReadFile(bench.place, bench.person, lambda text: text[:most])


async def test_a_small_file_comes_as_it_is(bench: Bench) -> None:
    (bench.root / "a").write_text("one\ntwo\n", encoding="utf-8")
    assert await bench.call(reader(bench), path="a") == "one\ntwo\n"


async def test_a_range_says_what_there_is_more(bench: Bench) -> None:
    (bench.root / "a").write_text("".join(f"line {number}\n" for number in range(1, 11)), encoding="utf-8")
    read = reader(bench)
    assert await bench.call(read, path="a", line=3, lines=2) == (
        "line 3\nline 4\n[lines 3-4 of 10, 71 bytes in all; go on with line 5]"
    )
    assert await bench.call(read, path="a", line="9") == "line 9\nline 10\n[lines 9-10 of 10, 71 bytes in all]"
    assert await bench.call(read, path="a", line=11) == "error: a ends before that: it has 10 lines, 71 bytes"
    assert (await bench.call(read, path="a", line=0)).startswith("line 1\n"), "some models count from 0"
    assert (await bench.call(read, path="a", line=-1)).startswith("error: line and lines count from 1")


async def test_a_long_file_is_read_to_its_end_in_pages_of_whole_lines(bench: Bench) -> None:
    text = "".join(f"line {number} of the file: ä\n" for number in range(1, 3_001))
    (bench.root / "a").write_text(text, encoding="utf-8")
    read, line, whole = reader(bench, 10_000), 1, ""
    while line:
        body, _, note = (await bench.call(read, path="a", line=line)).rpartition("[lines ")
        assert len(body) <= 10_000
        whole += body
        line = int(note.rpartition("go on with line ")[2].rstrip("]")) if "go on" in note else 0
    assert whole == text


async def test_a_file_of_one_huge_line_is_read_by_bytes(bench: Bench) -> None:
    text = "é" * 300_000
    (bench.root / "a").write_text(text, encoding="utf-8")
    read, byte, whole = reader(bench), 0, ""
    while byte >= 0:
        body, _, note = (await bench.call(read, path="a", byte=byte)).rpartition("\n[bytes ")
        whole += body
        byte = int(note.rpartition("go on with byte ")[2].rstrip("]")) if "go on" in note else -1
    assert whole == text
    assert "\ufffd" not in whole


async def test_no_byte_is_lost_between_the_pages_of_an_odd_file(bench: Bench) -> None:
    (bench.root / "a").write_bytes(b"x\xff\xfe\r\n" * 10_000 + "é".encode() * 30_000)
    read, byte, whole = reader(bench, 7_001), 0, ""
    while byte >= 0:
        body, _, note = (await bench.call(read, path="a", byte=byte)).rpartition("[bytes ")
        whole += body if body.endswith("\ufffd\n") else body.removesuffix("\n")
        byte = int(note.partition("go on with byte ")[2].partition(";")[0].rstrip("]")) if "go on" in note else -1
    assert whole == "x\ufffd\ufffd\n" * 10_000 + "é" * 30_000


async def test_a_huge_file_is_never_read_whole(bench: Bench) -> None:
    with (bench.root / "huge").open("wb") as file:
        file.write(b"first\nsecond\n")
        file.seek(50 << 30)  # a hole: it takes no room on the disk
        file.write(b"\nlast\n")
    read = reader(bench)
    shown = await bench.call(read, path="huge", lines=2)
    assert shown.startswith("error: huge is binary"), "a hole is NULs"
    with (bench.root / "huge").open("r+b") as file:
        file.write(b"text\n" * 2_000)
    assert await bench.call(read, path="huge", lines=1) == (
        "text\n[lines 1-1, 53,687,091,206 bytes in all; go on with line 2]"
    )
    assert (await bench.call(read, path="huge", byte=(50 << 30) + 1)).startswith("last\n")
    assert "use byte" in await bench.call(read, path="huge", line=3_000)


@pytest.mark.parametrize(
    ("raw", "shown"),
    [
        (b"", "[the file is empty]"),
        (b"\n", "\n"),
        (b"no end", "no end"),
        (b"caf\xe9\n", "caf\ufffd\n[bytes that are no UTF-8 are shown as \ufffd]"),
        ("a \ufffd is a character\n".encode(), "a \ufffd is a character\n"),
        (b"a\r\nb\r\n", "a\nb\n[its lines end with CRLF]"),
        (b"\x7fELF\0\0", "error: a is binary (6 bytes), not text"),
        ("text".encode("utf-16"), "error: a is binary (10 bytes), not text"),
    ],
)
async def test_odd_contents_are_said_to_be(bench: Bench, raw: bytes, shown: str) -> None:
    (bench.root / "a").write_bytes(raw)
    assert await bench.call(reader(bench), path="a") == shown


async def test_files_that_may_hold_secrets_are_asked_for(bench: Bench) -> None:
    (bench.root / ".env").write_text("NAME=value\n", encoding="utf-8")
    (bench.root / "harmless").symlink_to(".ENV" if (bench.root / ".ENV").exists() else ".env")
    assert await bench.call(reader(bench), path="harmless") == "NAME=value\n"
    assert bench.person.wishes == [Wish("read_file", ".env", "it may hold secrets, which the model would see")]
    bench.person.no = "no"
    assert await bench.call(reader(bench), path=".env") == "error: no"


async def test_what_was_approved_is_what_is_read(bench: Bench) -> None:
    (bench.root / ".env").write_text("one", encoding="utf-8")
    (bench.root / ".env.local").write_text("two", encoding="utf-8")
    (bench.root / "name").symlink_to(".env")

    def swap() -> None:
        (bench.root / "name").unlink()
        (bench.root / "name").symlink_to(".env.local")

    bench.person.meanwhile = swap
    assert "leads somewhere else now" in await bench.call(reader(bench), path="name")


async def test_a_name_that_is_no_utf_8_is_told_so_that_it_can_be_read(bench: Bench) -> None:
    name = os.fsdecode(b"caf\xe9")
    (bench.root / name).write_text("inside", encoding="utf-8")
    assert await bench.call(ListDir(bench.place)) == r"caf\udce9 6"
    tool = reader(bench)
    outcome = await Toolbox([tool]).run(ToolCall("1", tool.name, r'{"path": "caf\udce9"}'))
    assert outcome == Outcome("inside", Provenance("local-file", r"caf\udce9"))


async def test_all_in_a_folder_of_keys_is_asked_for_where_it_is_the_working_folder_too(tmp_path: Path) -> None:
    root = tmp_path / ".ssh"
    root.mkdir()
    (root / "deploy").write_text("inside", encoding="utf-8")
    bench = Bench(root, tmp_path, Person("no"))
    assert await bench.call(reader(bench), path="deploy") == "error: no"
    assert [wish.subject for wish in bench.person.wishes] == ["deploy"]
    told = await bench.call(Grep(bench.place, Secrets()), pattern="inside")
    assert told == "nothing found\n[files that may hold secrets, not searched: 1]"


async def test_keys_are_masked(bench: Bench) -> None:
    key = "ghp_" + "a1" * 18
    (bench.root / "a").write_text(f"token = {key}\nagain {key}\n", encoding="utf-8")
    assert await bench.call(reader(bench), path="a") == "token = [masked secret]\nagain [masked secret]\n"


async def test_a_folder_is_listed_with_what_its_entries_are(bench: Bench) -> None:
    (bench.root / "sub").mkdir()
    (bench.root / "file").write_text("12345", encoding="utf-8")
    (bench.root / "link").symlink_to("/etc")
    os.mkfifo(bench.root / "pipe")
    assert await bench.call(ListDir(bench.place)) == "file 5\nlink -> /etc\npipe (no file)\nsub/"
    assert await bench.call(ListDir(bench.place), path="sub") == "[the folder is empty]"
    assert (await bench.call(ListDir(bench.place), path="file")).startswith("error: file goes through something")
    assert (await bench.call(ListDir(bench.place), path="link")).startswith("error: /etc is outside")


async def test_a_folder_of_10_000_entries_is_told_in_part(bench: Bench) -> None:
    for number in range(10_000):
        (bench.root / f"{number:05}").touch()
    told = (await bench.call(ListDir(bench.place))).splitlines()
    assert (told[0], told[299]) == ("00000 0", "00299 0")
    assert told[300:] == ["[9,700 more of 10,000; find looks for names]"]


async def test_what_must_not_be_read_is_said_to_be(locked: Bench) -> None:
    assert await locked.call(reader(locked), path="file") == "error: file: Permission denied"
    assert await locked.call(ListDir(locked.place), path="sub") == "error: sub: Permission denied"
    assert await locked.call(ListDir(locked.place)) == "file 6\nopen/\nsub/"


async def test_a_folder_that_may_be_passed_but_not_read_is_passed(locked: Bench) -> None:
    assert await locked.call(reader(locked), path="open/file") == "inside"
    assert await locked.call(ListDir(locked.place), path="open") == "error: open: Permission denied"


async def test_a_working_folder_that_is_gone_is_no_crash(bench: Bench) -> None:
    place = bench.place
    (bench.root / "a").touch()
    bench.root.rename(bench.root.with_name("moved"))
    assert await bench.call(ListDir(place)) == f"error: the working folder {bench.root} is gone"
