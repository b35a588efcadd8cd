"""The figures of the README are those of the committed results, and the micro-benchmarks judge as they say."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.micro.__main__ import compared, slower
from benchmarks.readme import BLOCKS, filled, main

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


def test_what_takes_more_than_one_and_a_half_times_its_baseline_is_named_and_nothing_else() -> None:
    before = {"a": 1.0, "b": 1.0, "c": 0.5}
    assert slower({"a": 1.4, "b": 1.6, "new": 100.0, "c": 0.1}, before) == {"b": 1.6}


def test_a_function_that_was_never_recorded_is_said_to_have_no_baseline() -> None:
    known, new = compared({"test_known": 1.4, "test_new": 0.7}, {"test_known": 1.25})
    assert known.split() == ["known", "1.4000", "of", "the", "reference,", "baseline", "1.2500"]
    assert new.split() == ["new", "0.7000", "of", "the", "reference,", "no", "baseline"]


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
