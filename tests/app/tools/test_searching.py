"""Names and lines are found in any folder, by any pattern, within a bound."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from localctx.app.tools import place, searching
from localctx.app.tools.searching import Find, Grep
from localctx.app.tools.walking import Passed, Search, found
from localctx.core.secrets import Secrets
from tests.app.tools.conftest import OUTSIDE, Bench

pytestmark = pytest.mark.anyio


@pytest.fixture
def project(bench: Bench) -> Bench:
    for name, text in {
        "a.py": "import os\n\ndef first():\n    return 1\n",
        "src/b.py": "def second():\n    return first()\n",
        "src/data.txt": "first line\n",
        "build/c.py": "def first(): ...\n",
        "x.log": "first\n",
        "src/keep.log": "first kept\n",
        ".git/d.py": "first\n",
        ".env": "first=1\n",
        ".gitignore": "*.log\nbuild/\n",
        "src/.gitignore": "!keep.log\n",
    }.items():
        path = bench.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    (bench.root / "bin").write_bytes(b"first\0")
    (bench.root / "out").symlink_to(bench.outside)
    (bench.root / "round").symlink_to(".")
    os.mkfifo(bench.root / "pipe.py")
    return bench


async def test_files_are_found_by_name_but_for_ignored_ones_and_links(project: Bench) -> None:
    find = Find(project.place, Secrets())
    assert await project.call(find, glob="*.py") == "a.py\nsrc/b.py"
    assert await project.call(find, glob="src/**") == "src/.gitignore\nsrc/b.py\nsrc/data.txt\nsrc/keep.log"
    assert await project.call(find, glob="*.py", path="src") == "src/b.py"
    assert await project.call(find, glob="*.rs") == "nothing found"
    assert await project.call(find, glob="*.py", path="a.py") == "a.py"
    assert (await project.call(find, glob="*", path="out")).startswith("error: ")
    assert (await project.call(find, glob="*", path="none")).startswith("error: there is no none")


async def test_lines_are_found_with_their_places_and_what_was_passed_over_is_said(project: Bench) -> None:
    grep = Grep(project.place, Secrets())
    assert await project.call(grep, pattern=r"first\(\)|first kept") == (
        "a.py:3:def first():\nsrc/b.py:2:    return first()\nsrc/keep.log:1:first kept\n"
        "[files that may hold secrets, not searched: 1; binary files, not searched: 1]"
    )
    assert await project.call(grep, pattern="first", glob="*.txt") == "src/data.txt:1:first line"
    assert await project.call(grep, pattern="first", path="build/c.py") == "build/c.py:1:def first(): ..."


@pytest.mark.parametrize(
    ("pattern", "said"),
    [
        ("(", "is no regular expression (missing ), unterminated subpattern at position 0)"),
        ("", "pattern has 0 characters"),
        ("x" * 1001, "pattern has 1,001 characters"),
        ("a{1,99999999999999999999}", "is no regular expression"),
    ],
)
async def test_a_pattern_that_is_none_is_explained(project: Bench, pattern: str, said: str) -> None:
    assert said in await project.call(Grep(project.place, Secrets()), pattern=pattern)


async def test_a_pattern_that_takes_for_ever_is_ended(project: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(searching, "SECONDS", 2.0)
    (project.root / "b.txt").write_text("a" * 60 + "!\n", encoding="utf-8")
    told = await project.call(Grep(project.place, Secrets()), pattern=r"^(import os|(a+)+)$")
    assert told == "a.py:1:import os\n[stopped after 2 s: simplify the pattern, or name a smaller folder]"


async def test_an_ignore_file_that_takes_for_ever_is_ended(project: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(searching, "SECONDS", 2.0)
    (project.root / ".gitignore").write_text("*a" * 40 + "b\n", encoding="utf-8")
    (project.root / ("a" * 200)).touch()
    assert "[stopped after 2 s" in await project.call(Find(project.place, Secrets()), glob="*")


async def test_no_more_is_told_than_there_may_be(project: Bench) -> None:
    for number in range(400):
        (project.root / "src" / f"{number:03}.c").write_text("int x;\n", encoding="utf-8")
    told = (await project.call(Find(project.place, Secrets()), glob="*.c")).splitlines()
    assert (len(told), told[-1]) == (301, "[there are more than 300: narrow it down]")
    told = (await project.call(Grep(project.place, Secrets()), pattern="int")).splitlines()
    assert told[200].startswith("[there are more than 200: narrow it down")


async def test_odd_lines_are_shown_around_their_match(bench: Bench) -> None:
    (bench.root / "a").write_bytes(b"x" * 5_000 + b"needle" + b"\xff" * 3_000 + b"\n" + b"\r\x1b[2Jneedle\r\n")
    told = (await bench.call(Grep(bench.place, Secrets()), pattern="needle")).splitlines()
    assert told[0].startswith("a:1:...xxx")
    assert "needle" in told[0]
    assert len(told[0]) < 250


async def test_10_000_files_are_gone_through(bench: Bench) -> None:
    for number in range(10_000):
        (bench.root / f"{number:05}").touch()
    (bench.root / "99999").write_text("needle", encoding="utf-8")
    assert await bench.call(Grep(bench.place, Secrets()), pattern="needle") == "99999:1:needle"
    assert await bench.call(Find(bench.place, Secrets()), glob="0000[1-3]") == "00001\n00002\n00003"


def test_folders_that_must_not_be_read_are_passed_over(locked: Bench) -> None:
    passed = Passed()
    assert list(found(Search(str(locked.root), ".", "*", None, 99), passed)) == ["file"]
    assert list(found(Search(str(locked.root), ".", "*", "x", 99), passed)) == []
    assert passed.told() == "folders that cannot be read: 4; files that cannot be read: 1"


def test_a_folder_deeper_than_any_is_passed_over(bench: Bench) -> None:
    deep = bench.root
    for _ in range(60):
        deep /= "d"
        deep.mkdir()
        (deep / "f").touch()
    passed = Passed()
    assert len(list(found(Search(str(bench.root), ".", "f", None, 99), passed))) == 48
    assert passed.told() == "folders more than 48 deep, not searched: 1"


async def test_a_folder_of_strangers_runs_none_of_its_code(bench: Bench) -> None:
    for name in ("json.py", "localctx.py", "pathspec.py"):
        (bench.root / name).write_text(f"raise SystemExit({OUTSIDE!r})", encoding="utf-8")
    assert await bench.call(Find(bench.place, Secrets()), glob="json.py") == "json.py"


async def test_a_line_ends_where_it_ends_in_the_file_alone(bench: Bench) -> None:
    (bench.root / "a").write_text("found\u2028b:7:forged\n", encoding="utf-8")
    told = await bench.call(Grep(bench.place, Secrets()), pattern="found")
    assert told == "a:1:found\u2028b:7:forged"


async def test_a_working_folder_that_is_gone_or_another_is_said_to_be(bench: Bench) -> None:
    tool = Find(bench.place, Secrets())
    bench.root.rmdir()
    assert await bench.call(tool, glob="*") == f"error: the working folder {bench.root} is gone"
    bench.root.symlink_to(bench.outside)
    assert "is gone" in await bench.call(tool, glob="*")


def test_what_is_no_disk_is_not_gone_into(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("proc", "other"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "file").touch()
    monkeypatch.setattr(place, "_WITHOUT_DISK", (str(tmp_path / "proc"),))
    place._without_disk.cache_clear()
    search = Search(str(tmp_path), ".", "*", None, 9)
    assert list(found(search, Passed())) == ["other/file"]
    place._without_disk.cache_clear()
