"""What a person is told of events."""

from __future__ import annotations

import pytest

from localctx.cli.progress import drafting, reading, reading_on
from localctx.cli.wording import told
from localctx.core.accounting import Count, Usage
from localctx.core.events import Drafting, Prefilling, RequestSent, ToolAnswered, ToolCalled, UsageReported


@pytest.mark.parametrize(
    ("arguments", "shown"),
    [
        ('{"path": "src/a.py", "limit": 5}', "* read src/a.py"),
        ('{"limit": 5}', '* read {"limit": 5}'),
        ("{}", "* read"),
        ("not json", "* read not json"),
        ("[" * 100_000, "* read ..."),
        ('{"text": "several\\nlines"}', "* read several lines"),
    ],
)
def test_a_call_is_one_line_with_its_main_argument(arguments: str, shown: str) -> None:
    assert told(ToolCalled("1", "read", arguments)) == shown


def test_a_result_is_one_line_with_its_size_or_its_error() -> None:
    assert told(ToolAnswered("1", "read", 12_345, "text of it\n")) == "  read: 12,345 characters"
    assert told(ToolAnswered("1", "read", 9, "error: no\nsuch file")) == "  read: error: no such file"


def test_nothing_is_told_of_what_only_programs_want() -> None:
    assert told(UsageReported(Usage(), Count(1, 0, ""))) == ""


def test_reading_is_told_with_what_is_known_of_it() -> None:
    assert reading(RequestSent(12_400, 9_000, 8.6))(3.2) == "reading 9.0k of 12.4k tokens ... 3 of about 9 s"
    assert reading(RequestSent(12_400, 9_000, None))(3.2) == "reading 9.0k of 12.4k tokens ... 3 s"
    assert reading_on(Prefilling(6_200, 12_400, 0), 3.0)(3.2) == "reading 50% of 12.4k tokens ... 3 s, about 3 s more"
    assert (
        reading_on(Prefilling(9_000, 10_000, 8_000), 5.0)(5.0) == "reading 90% of 10.0k tokens ... 5 s, about 5 s more"
    )
    assert reading_on(Prefilling(10, 20, 0), 2.0)(9.0) == "reading 50% of 20 tokens ... 9 s"
    assert reading_on(Prefilling(5, 0, 0), 1.0)(0.0) == "reading 0% of 0 tokens ... 0 s"


def test_a_call_that_is_written_is_told_by_its_tool_and_how_long_it_is() -> None:
    assert drafting(Drafting("write_file", 1_234))(3.2) == "writing write_file: 1,234 characters ... 3 s"
    assert drafting(Drafting("", 0))(1.0) == "writing a call: 0 characters ... 1 s"
    assert len(drafting(Drafting("n" * 1_000, 0))(1.0)) < 80


@pytest.mark.parametrize(
    ("name", "shown", "line"),
    [
        ("run_command", "one\ntwo\nthree\nfour\n[exit code 3]", "  run_command: three | four | [exit code 3]"),
        ("edit_file", "a.py changed: +1 -1 lines", "  edit_file: a.py changed: +1 -1 lines"),
        ("read_file", "all of a file", "  read_file: 99 characters"),
        ("grep", "a:1: x", "  grep: 99 characters"),
    ],
)
def test_what_a_tool_did_is_told_in_its_own_words(name: str, shown: str, line: str) -> None:
    assert told(ToolAnswered("1", name, 99, shown)) == line
