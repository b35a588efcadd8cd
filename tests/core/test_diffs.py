from __future__ import annotations

import subprocess
from pathlib import Path
from shutil import which
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given
from hypothesis import strategies as st

from localctx.core.diffs import changed, difference, line_of, occurrences, similar


def test_a_difference_is_one_hunk_with_what_is_around_it() -> None:
    before = "".join(f"{number}\n" for number in range(1, 11))
    assert difference(before, before.replace("5\n", "five\n"), "a") == (
        "--- a\n+++ a\n@@ -2,7 +2,7 @@\n 2\n 3\n 4\n-5\n+five\n 6\n 7\n 8"
    )
    assert changed(difference(before, before.replace("5\n6\n", "five\n"), "a")) == "+1 -2 lines"
    assert difference(before, before, "a") == ""


def test_an_end_in_the_middle_of_a_line_is_told() -> None:
    assert difference("a\n", "a", "x") == "--- x\n+++ x\n@@ -1,1 +1,1 @@\n-a\n+a\n\\ No newline at end of file"


_TEXTS = st.text("ab\n", max_size=12)


@pytest.mark.skipif(which("git") is None, reason="git is not installed")
@given(_TEXTS, _TEXTS)
def test_patch_makes_the_one_from_the_other(before: str, after: str) -> None:
    diff = difference(before, after, "a")
    if before == after:
        assert diff == ""
        return
    with TemporaryDirectory() as folder:
        path = Path(folder) / "a"
        path.write_text(before, encoding="utf-8")
        if before == "":
            return  # the diff of a new file is for people alone: it may be there already, and empty
        done = subprocess.run(
            ["git", "apply", "--unidiff-zero", "-"],  # noqa: S607  wherever it is
            input=f"{diff}\n",
            text=True,
            cwd=folder,
            capture_output=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        assert path.exists() is False or path.read_text(encoding="utf-8") == after


def test_places_do_not_overlap() -> None:
    assert occurrences("aaaa", "aa", 9) == [0, 2]
    assert occurrences("aaaa", "a", 3) == [0, 1, 2]
    assert [line_of("a\nb\nc", at) for at in (0, 2, 4)] == [1, 2, 3]


def test_similar_lines_are_those_with_the_same_letters() -> None:
    text = "import os\n\ndef first(a, b):\n    pass\n"
    assert similar(text, "\ndef frist(a,  b):\n    pass") == ["3: def first(a, b):"]
    assert similar(text, "nothing of the kind") == []
    assert similar("", "x") == similar(text, "") == []
