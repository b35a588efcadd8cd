"""Numbers that cannot be true are not kept."""

from __future__ import annotations

import pytest

from localctx.core.accounting import Usage
from localctx.runtimes.reported import number, seconds, usage

ODD: list[object] = [
    None,
    "12",
    "",
    True,
    False,
    12.0,
    0.5,
    -1,
    2**31,
    10**400,
    [],
    {},
    [12],
    float("nan"),
    float("inf"),
]


@pytest.mark.parametrize("value", ODD, ids=lambda value: repr(value)[:12])
def test_what_is_no_number_of_tokens(value: object) -> None:
    assert number(value) is None
    assert usage(value, value, value) == Usage()


@pytest.mark.parametrize("value", [0, 1, 4096, 2**31 - 1])
def test_a_number_of_tokens(value: int) -> None:
    assert number(value) == value
    assert number(value, least=1) == (value or None)


@pytest.mark.parametrize(
    ("prompt", "cached", "kept"),
    [(37, 36, 37), (37, 37, 37), (37, 0, 37), (37, None, 37), (1, 36, None), (0, 0, None), (0, 36, None), (37, -1, 37)],
)
def test_a_prompt_is_all_of_it_or_nothing(prompt: int, cached: int | None, kept: int | None) -> None:
    assert usage(prompt, 8, cached).prompt == kept


def test_a_reply_of_nothing_is_one() -> None:
    assert usage(294, 0).completion == 0


@pytest.mark.parametrize(
    ("value", "kept"),
    [(0, 0.0), (1500, 1.5), (44.853, 0.044853), (-1, None), ("1500", None), (True, None), (None, None)],
)
def test_a_duration(value: object, kept: float | None) -> None:
    assert seconds(value, 1e-3) == (None if kept is None else pytest.approx(kept))


@pytest.mark.parametrize("value", [float("nan"), float("inf"), 10**400, 1e308])
def test_no_duration_is_endless(value: object) -> None:
    assert seconds(value, 1e-9) is None
