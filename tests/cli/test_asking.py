from __future__ import annotations

import pytest

from localctx.app.tools.approval import Answer, Reply
from localctx.cli.asking import answered


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
