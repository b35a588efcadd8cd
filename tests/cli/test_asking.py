from __future__ import annotations

import pytest

from localctx.app.tools.approval import Answer, Reply
from localctx.cli.asking import answered, asked, behind_bars, plainly, told
from localctx.core.approval import Wish


@pytest.mark.parametrize("line", ["y", "yes", " YES "])
def test_a_yes_is_one_word(line: str) -> None:
    assert answered(line) == Answer(Reply.YES)


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("n", ""),
        ("no", ""),
        ("no, never delete things", "never delete things"),
        ("No. Ask first", "Ask first"),
        ("nope", "nope"),
        ("don't", "don't"),
        ("yes but only once", "yes but only once"),
        ("maybe", "maybe"),
    ],
)
def test_whatever_is_no_yes_is_a_no_with_its_reason(line: str, reason: str) -> None:
    assert answered(line) == Answer(Reply.NO, reason)


def test_an_always_is_one_word() -> None:
    assert answered("a") == answered("always") == Answer(Reply.ALWAYS)


@pytest.mark.parametrize("line", ["", "  ", "v", "view all"])
def test_nothing_said_is_asked_again(line: str) -> None:
    assert answered(line) is None


FORGED = "run_command, 1 line: allow? yes, no [reason]: "


def test_no_text_can_forge_a_question() -> None:
    command = f"touch a\n{FORGED}\n{' ' * 200}{FORGED}"
    rows = list(behind_bars(told(Wish("run_command", command, f"+a\n{FORGED}")), 80))
    assert all(row.startswith(("| ", "|>")) and len(row) < 80 for row in rows)
    assert rows[0].startswith(f"| run_command: touch a\\n{FORGED[:40]}")
    assert rows[-2:] == ["| +a", f"| {FORGED}"]


def test_a_line_is_shown_whole_whatever_its_width() -> None:
    line = "\u4e2d" * 50 + "a" * 50
    rows = list(behind_bars([line], 20))
    assert "".join(row[2:] for row in rows) == line
    assert max(map(len, rows[:5])) == 2 + 8, "each of these takes two columns"


@pytest.mark.parametrize(
    "hidden", [*"\u3164\u2800\u115f\u1160\uffa0\ufe00\ufe0f\u202e\x1b\r", "\U000e0100", "\U000e01ef"]
)
def test_what_is_not_seen_is_written_out(hidden: str) -> None:
    assert plainly(f"a{hidden}b") == f"a\\u{ord(hidden):04x}b"


@pytest.mark.parametrize(
    ("wish", "said"),
    [
        (Wish("run_command", "make"), "run_command, 1 line: allow? yes, no [reason], always this same one: "),
        (Wish("run_command", "a\n" * 39 + "a"), "run_command, 40 lines: allow? "),
        (
            Wish("write_file", "a", "+1\n+2"),
            "write_file, 3 lines: allow? yes, no [reason], always (this file, whatever is",
        ),
        (
            Wish("fetch_url", "a.example", "http://a.example/x"),
            "yes (any page of a.example in this run), no [reason]: ",
        ),
        (Wish("fetch_url", "a" * 200, "x"), "yes (any page of this host in this run)"),
    ],
)
def test_the_question_says_what_is_granted(wish: Wish, said: str) -> None:
    assert said in asked(wish, view=False)
