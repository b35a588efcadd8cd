"""The figures of the README are those of the committed results, and the micro-benchmarks judge as they say."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from benchmarks.micro.__main__ import compared, slower
from benchmarks.micro.__main__ import main as micro
from benchmarks.readme import _BENCHED, BLOCKS, filled, main

ROOT = Path(__file__).parent.parent
README = ROOT / "README.md"


def test_the_readme_has_the_figures_of_the_results(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--check"]) == 0, capsys.readouterr().err


def test_every_block_stands_in_the_readme_once() -> None:
    names = re.findall(r"<!-- figures: ([\w-]+) -->", README.read_text(encoding="utf-8"))
    assert sorted(names) == sorted(BLOCKS)


def test_a_figure_that_was_changed_is_found_and_written_anew(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = "Before.\n<!-- figures: counting-exact -->\nwrong: 7\n<!-- end -->\nBehind.\n"
    other = tmp_path / "README.md"
    other.write_text(text, encoding="utf-8")
    assert main(["--check", "--readme", str(other)]) == 1
    assert "--write" in capsys.readouterr().err
    assert main(["--write", "--readme", str(other)]) == 0
    assert main(["--check", "--readme", str(other)]) == 0
    written = other.read_text(encoding="utf-8")
    assert written.startswith("Before.\n<!-- figures: counting-exact -->\n")
    assert written.endswith("\n<!-- end -->\nBehind.\n")
    assert "wrong: 7" not in written


def test_a_block_that_there_is_not_is_refused() -> None:
    with pytest.raises(KeyError, match="nonsense"):
        filled("<!-- figures: nonsense -->\n<!-- end -->")


@pytest.fixture
def copied(tmp_path: Path) -> Path:
    shutil.copytree(ROOT / "benchmarks", tmp_path / "benchmarks")
    shutil.copy(README, tmp_path)
    return tmp_path


def checked(folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "benchmarks.readme", "--check"],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize("text", [None, "{", "\udcff"])
def test_a_results_file_that_is_missing_or_damaged_is_named_in_one_line(copied: Path, text: str | None) -> None:
    assert checked(copied).returncode == 0
    path = copied / "benchmarks" / "results" / "counting-exact.json"
    path.unlink()
    if text is not None:
        path.write_bytes(text.encode(errors="surrogateescape"))
    done = checked(copied)
    assert done.returncode == 1
    (line,) = done.stderr.splitlines()
    assert "benchmarks/results/counting-exact.json" in line


@pytest.mark.parametrize("kind", ["server", "tokenizer"])
def test_results_of_the_same_time_do_not_stand_in_one_table(copied: Path, kind: str) -> None:
    paths = [copied / "benchmarks" / "results" / f"bench-{kind}-{model}.json" for model in _BENCHED]
    first, second = (json.loads(path.read_text(encoding="utf-8")) for path in paths)
    for begun, code in (("09:59:59", 1), ("10:00:00", 0), ("10:02:00", 0)):
        first |= {"begun": "2026-11-30T09:00:00+00:00", "ended": "2026-11-30T10:00:00+00:00"}
        second |= {"begun": f"2026-11-30T{begun}+00:00", "ended": "2026-11-30T11:00:00+00:00"}
        for path, document in zip(paths, (first, second), strict=True):
            path.write_text(json.dumps(document), encoding="utf-8")
        done = checked(copied)
        assert (done.returncode, len(done.stderr.splitlines())) == (code, code), begun
        assert all(path.name in done.stderr for path in paths) == bool(code)


def test_results_that_say_no_end_last_as_long_as_their_rows(copied: Path) -> None:
    paths = [copied / "benchmarks" / "results" / f"bench-server-{model}.json" for model in _BENCHED]
    for second, code in ((59, 1), (60, 0)):
        for path, begun in zip(paths, (0, second), strict=True):
            document = json.loads(path.read_text(encoding="utf-8"))
            document.pop("ended", None)
            document["begun"] = (datetime(2026, 11, 30, tzinfo=UTC) + timedelta(seconds=begun)).isoformat()
            _of_seconds(document, 60)
            path.write_text(json.dumps(document), encoding="utf-8")
        assert ("at the same time" in checked(copied).stderr) == bool(code), second


def _of_seconds(document: dict[str, Any], seconds: float) -> None:
    """Makes its rows take so long in all."""
    rows = [row for table in document["tables"] for row in table["rows"]]
    for row in rows:
        row |= {name: 0.0 for name in row if name.endswith(", s")}
    rows[0]["first token, s"] = seconds


def test_no_counter_and_no_author_of_notes_is_left_out() -> None:
    results = ROOT / "benchmarks" / "results"
    counted, spoken = 0, 0
    for model in _BENCHED:
        for table in json.loads((results / f"bench-tokenizer-{model}.json").read_text(encoding="utf-8"))["tables"]:
            counted += len(table["rows"]) * table["title"].startswith("Count")
            spoken += len(table["rows"]) * table["title"].startswith("Tokens a second")
    played = json.loads((results / "compaction-conversation.json").read_text(encoding="utf-8"))["tables"][0]["rows"]
    ways = {(row["policy"], row["notes"]) for row in played}
    assert [len(BLOCKS[name]().splitlines()) - 2 for name in _ROWS] == [counted, spoken, len(ways)]


_ROWS = ("bench-tokenizer", "bench-tokenizer-speed", "compaction-conversation")


def test_what_takes_more_than_one_and_a_half_times_its_baseline_is_named_and_nothing_else() -> None:
    before = {"a": 1.0, "b": 1.0, "c": 0.5}
    assert slower({"a": 1.4, "b": 1.6, "new": 100.0, "c": 0.1}, before) == {"b": 1.6}


def test_a_function_that_was_never_recorded_is_said_to_have_no_baseline() -> None:
    known, new = compared({"test_known": 1.4, "test_new": 0.7}, {"test_known": 1.25})
    assert known.split() == ["known", "1.4000", "of", "the", "reference,", "baseline", "1.2500"]
    assert new.split() == ["new", "0.7000", "of", "the", "reference,", "no", "baseline"]


def test_without_pytest_benchmark_the_extra_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    if find_spec("pytest_benchmark"):
        pytest.skip("pytest-benchmark is installed")
    assert micro(["--compare"]) == 1
    assert ".[micro,test]" in capsys.readouterr().err


def test_micro_benchmarks_are_not_collected_where_no_path_is_named() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "--collect-only", "-q", "--ignore-glob=tests/*"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert "no tests collected" in done.stdout, done.stdout
    assert done.returncode == pytest.ExitCode.NO_TESTS_COLLECTED
