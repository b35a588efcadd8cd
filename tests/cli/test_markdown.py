"""Markdown as it streams, on a terminal that is emulated."""

from __future__ import annotations

import random
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from localctx.cli.markdown import MarkdownStream
from tests.cli.screen import Screen

PARAGRAPH = "This goes on **and on** with `code` and so on, " * 12
BLOCKS = [
    "# A title",
    "Some *words*, and <T> tags, &lt;, [bold] and :smile: as they are.",
    PARAGRAPH.strip(),
    "Steps:\n1. First\n2. Then\n   with a second line\n\n   and a paragraph\n3. Last",
    "- a\n- b\n  - nested\n- c",
    '```python\ndef f(x):\n    """Words"""\n\n    return x  # ' + "a long comment " * 8 + "\n```",
    "> A quote\n> in two lines",
    "| Name | Value |\n|---|---:|\n| 日本語 | 12 |\n| emoji 👩‍🔬 | 3 |",
    "***",
    "日本語の長い段落です。これは空白のない文字列で、端末の幅を超えて続きます。" * 6,
    "Heading\n=======",
    "    indented\n    code",
    "[1]: http://example.org/",
    "Done ❤️ 👍🏽.",
]
WHOLE = "\n\n".join(BLOCKS)


def at_once(text: str, columns: int, lines: int) -> list[str]:
    screen, stream = Screen(columns, lines), MarkdownStream()
    stream.feed(text)
    screen.write(stream.end(columns, lines))
    return screen.everything


def streamed(text: str, screen: Screen, longest: int, seed: int = 0, sizes: tuple[tuple[int, int], ...] = ()) -> None:
    """Feeds a text in pieces of any length, while the terminal becomes each of the sizes."""
    stream, chance, at = MarkdownStream(), random.Random(seed), 0  # noqa: S311  no secret
    changes = [len(text) * (number + 1) // (len(sizes) + 1) for number in range(len(sizes))]
    while at < len(text):
        piece = text[at : at + chance.randint(1, longest)]
        at += len(piece)
        stream.feed(piece)
        if changes and at >= changes[0]:
            del changes[0]
            screen.resize(*sizes[len(sizes) - len(changes) - 1])
        screen.write(stream.draw(screen.columns, screen.lines))
    screen.write(stream.end(screen.columns, screen.lines))


def words(rows: list[str]) -> list[str]:
    """What is read, whatever the lines are."""
    return re.findall(r"[^\W_]", "".join(rows))


@pytest.mark.parametrize(("columns", "lines"), [(80, 24), (40, 12), (23, 6)])
@pytest.mark.parametrize("longest", [4, 400])
def test_what_stays_is_what_would_have_been_shown_at_once(columns: int, lines: int, longest: int) -> None:
    screen = Screen(columns, lines)
    streamed(WHOLE, screen, longest)
    assert screen.everything == at_once(WHOLE, columns, lines)


@given(st.lists(st.sampled_from(BLOCKS), max_size=6), st.integers(1, 60), st.integers(0, 99), st.sampled_from([80, 40]))
def test_any_blocks_in_any_pieces(blocks: list[str], longest: int, seed: int, columns: int) -> None:
    text = "\n\n".join(blocks)
    screen = Screen(columns, 12)
    streamed(text, screen, longest, seed)
    assert screen.everything == at_once(text, columns, 12)


@given(st.text("ab *_`#>-|\n\t1.[](){}<>&~=日本👩‍🔬\\", max_size=200), st.integers(1, 20))
def test_no_letter_of_any_text_is_lost(text: str, longest: int) -> None:
    screen = Screen(40, 12)
    streamed(text, screen, longest)
    shown = words(screen.everything)
    assert [each for each in shown if each != "1"] == [each for each in words([text]) if each != "1"]


def test_a_title_is_bold_a_list_has_bullets_and_a_number_its_point() -> None:
    screen, stream = Screen(40, 12), MarkdownStream()
    stream.feed("# Title\n\n- one\n\n3. three\n")
    screen.write(stream.end(40, 12))
    assert screen.display[:5] == ["Title", "", " • one", "", " 3. three"]
    assert screen.styled(0, 0).bold


def test_text_is_shown_before_its_line_ends() -> None:
    screen, stream = Screen(40, 12), MarkdownStream()
    stream.feed("The first wor")
    screen.write(stream.draw(40, 12))
    assert screen.display[0] == "The first wor"
    stream.feed("ds, and `co")
    screen.write(stream.draw(40, 12))
    assert screen.display[0] == "The first words, and `co"


def test_lines_are_those_of_the_model_and_markup_of_others_is_text() -> None:
    text = "one\ntwo [red]x[/red] :smile: <script> [a](http://e.org)\n"
    assert at_once(text, 80, 24) == ["one", "two [red]x[/red] :smile: <script> a (http://e.org)"]


def test_no_link_is_hidden_behind_a_text() -> None:
    stream = MarkdownStream()
    stream.feed("[bank](http://evil.example)\n")
    assert "\x1b]8" not in (shown := stream.end(80, 24))
    assert "evil.example" in shown


@pytest.mark.parametrize("sizes", [((40, 12),), ((100, 30),), ((30, 12), (90, 24), (33, 9)), ((40, 3),)])
@pytest.mark.parametrize("seed", range(4))
def test_no_line_is_lost_when_the_window_changes_meanwhile(sizes: tuple[tuple[int, int], ...], seed: int) -> None:
    text = "\n\n".join(f"Part {number} " + "goes on and on " * (number % 9) for number in range(40))
    screen = Screen(60, 12)
    streamed(text, screen, 25, seed, sizes)
    parts = [int(number) for number in re.findall(r"Part\s+(\d+)", " ".join(screen.everything))]
    assert parts == list(range(40))


def test_code_is_printed_line_by_line_however_long_it_is() -> None:
    screen, stream = Screen(40, 12), MarkdownStream()
    stream.feed("```\n" + "".join(f"line {number}\n" for number in range(50)))
    screen.write(stream.draw(40, 12))
    assert [row for row in screen.everything if row] == ["```", *(f"line {number}" for number in range(50))]


def test_an_end_in_the_middle_of_a_block_leaves_a_line_of_its_own() -> None:
    for text in ("some **bo", "```py\nx = ", "| a | b |\n|--", "- a\n  - b", "> q"):
        screen, stream = Screen(40, 12), MarkdownStream()
        stream.feed(text)
        screen.write(stream.draw(40, 12))
        screen.write(stream.end(40, 12) + "next")
        assert screen.everything[-1] == "next"
        assert words(screen.everything)[:-4] == words([text])


@pytest.mark.parametrize(
    "text",
    ["x" * 5_000, "[" * 1_500, "*a **b " * 300, "> " * 200 + "x", "".join("  " * at + "- x\n" for at in range(60))],
)
def test_what_no_person_would_write_is_shown_and_takes_no_time(text: str) -> None:
    screen = Screen(40, 12)
    streamed(text, screen, 150)
    assert len(words(screen.everything)) == len(words([text]))


def test_what_is_drawn_anew_never_has_more_than_eight_rows() -> None:
    stream = MarkdownStream()
    for piece in re.findall(".{1,40}", PARAGRAPH * 3 + "\n\n" + "| a | b |\n|--|--|\n" + "| c | d |\n" * 60):
        stream.feed(piece)
        drawn = stream.draw(40, 40)
        assert all(int(up) < 8 for up in re.findall(r"\x1b\[(\d+)A", drawn))
