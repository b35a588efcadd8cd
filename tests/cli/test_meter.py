"""The picture of the window, the bar below the line, and the costs."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from localctx.cli.meter import Standing, bar, costs, picture, shares
from localctx.cli.wording import clipped, figure, wrapped
from localctx.core.accounting import Totals
from localctx.core.filling import Filling
from localctx.core.window import Budget

FILLING = Filling(
    18_000,
    {"system": 900, "checkpoint": 0, "user": 3_000, "assistant": 4_000, "tools": 9_000, "schemas": 1_000},
    {"read_file": 7_500, "ls": 1_200, "grep": 300, "stat": 10},
    {"grep": 600, "read_file": 400},
)


def text(line: list[tuple[str, str]]) -> str:
    return "".join(piece for _, piece in line)


@pytest.mark.parametrize(
    ("tokens", "shown"),
    [
        (0, "0"),
        (999, "999"),
        (1_000, "1.0k"),
        (18_000, "18.0k"),
        (999_949, "999.9k"),
        (999_950, "1.0M"),
        (1_500_000, "1.5M"),
    ],
)
def test_figures_are_those_of_the_seed(tokens: int, shown: str) -> None:
    assert figure(tokens) == shown


@pytest.mark.parametrize("columns", [100, 40, 20])
def test_the_picture_fits_and_can_be_read_without_colour(columns: int) -> None:
    lines = [text(line) for line in picture(FILLING, Budget.of(32_768), columns)]
    assert max(map(len, lines[:1])) == min(columns, 62)
    assert lines[0].strip("[]") == "".join(sorted(lines[0].strip("[]"), key="SsCuato.r".index))
    assert {line.split()[0] for line in lines[1:] if "%" in line} == set(lines[0].strip("[]"))


def test_the_picture_names_all_parts_and_the_three_biggest_tools() -> None:
    shown = "\n".join(text(line) for line in picture(FILLING, Budget.of(32_768), 80))
    assert "t tool results     9.0k   27.5%" in shown
    assert "o template          100    0.3%" in shown
    assert "checkpoint" not in shown
    assert "r for the reply    4.9k   15.0%" in shown
    assert "    read_file: results 7.5k, schema 400\n    ls: results 1.2k\n    grep: results 300, schema 600" in shown
    assert "stat" not in shown


def test_the_picture_of_a_window_that_is_more_than_full_has_neither_room_nor_reserve() -> None:
    shown = "\n".join(text(line) for line in picture(FILLING, Budget.of(8_192), 40))
    assert "free" not in shown
    assert "reply" not in shown


@given(st.lists(st.integers(0, 10**7), min_size=1, max_size=9), st.integers(0, 60))
def test_cells_add_up_and_no_part_is_forgotten(parts: list[int], cells: int) -> None:
    given_ = shares(parts, cells)
    assert sum(given_) == (cells if sum(parts) else 0)
    assert len(parts) > cells or all(bool(cell) or not part for part, cell in zip(parts, given_, strict=True))


STANDING = Standing(
    "qwen3-coder-30b-a3b-instruct-q4_k_m", "20261130-174614-a4e4e991", "served", 18_000, 32_768, 0.7, 0.8
)


def test_the_bar_says_all_where_there_is_room_and_the_pressure_where_there_is_none() -> None:
    wide = text(bar(STANDING, 130))
    for part in ("qwen3-coder-30b-a3b-instruct-q4_k_m", "32.8k served", "54% full", "[#####.....]", "20261130-174614"):
        assert part in wide
    narrow = text(bar(STANDING, 40))
    assert "32.8k served | 54% full" in narrow
    assert "qwen3" in narrow
    assert "2026" not in narrow


@given(st.integers(1, 200), st.text(st.characters(exclude_categories=["C"]), max_size=60), st.integers(0, 50_000))
def test_the_bar_never_needs_a_second_line(columns: int, model: str, used: int) -> None:
    standing = Standing(model, "日本語のセッション", "provisional", used, 32_768, 0.7, 0.8)
    line = bar(standing, max(columns, 40))
    assert cell_len(text(line)) <= max(columns, 40)


@pytest.mark.parametrize(
    ("used", "mark", "style"), [(100, " full", ""), (750, " full !", "ansiyellow"), (850, " full !!", "ansired")]
)
def test_pressure_is_read_with_and_without_colour(used: int, mark: str, style: str) -> None:
    line = bar(Standing("m", None, "served", used, 1_000, 0.7, 0.8), 60)
    (found,) = [piece for piece in line if "full" in piece[1]]
    assert found[1].endswith(mark)
    assert style in found[0]


def test_costs_are_what_was_reported() -> None:
    told = list(costs(Totals(3, 10_000, 8_000, 10_000, 500, 4.0, 10.0)))
    assert told == [
        "requests  3",
        "prompts   10.0k tokens, 80% from the cache",
        "replies   500 tokens",
        "reading   4.0 s, 500 tokens/s",
        "writing   10.0 s, 50 tokens/s",
    ]


def test_what_no_server_reported_is_said_to_be_unknown() -> None:
    assert list(costs(Totals())) == ["nothing was asked yet"]
    told = "\n".join(costs(Totals(2)))
    assert told.count("no server reported it") == 4
    told = "\n".join(costs(Totals(2, 10_000, 0, 0, 500, 4.0, 0.0)))
    assert "no server said how many came from its cache" in told
    assert "reading   4.0 s\n" in told, "no speed where nobody knows how much was read"
    assert "50% of 4.0k from the cache" in "\n".join(costs(Totals(2, 10_000, 2_000, 4_000)))


def test_texts_are_clipped_by_columns_and_wrapped_between_words() -> None:
    assert clipped("日本語 の\nテキスト", 9) == "日本語…"
    assert wrapped("  one two three four five six", 20) == "  one two three four\n    five six"
