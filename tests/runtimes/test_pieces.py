"""Pieces of a text, and that tokens add up whichever way a tokenizer splits it first."""

from __future__ import annotations

import random
import re
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from localctx.runtimes.pieces import guard, pieces

MOST = 131_072
MARKS = "word Word don't 's 'll x _name 9 2048 é 日本語 。 🙂 \u0301 , ; // / ( ) { } \" <b> - <|im_end|>"
SPACES = (" next", " a", " ", "  ", "\t", "\n", "\n\n", "\r\n", " \n", "\n ", ", ", "\ufeff", "\u00a0")
SNIPPETS = (*MARKS.split(" "), *SPACES)


def text(seed: int, length: int, snippets: tuple[str, ...] = SNIPPETS) -> str:
    choice = random.Random(seed)  # noqa: S311  a text, no secret
    found: list[str] = []
    while sum(map(len, found)) < length:
        found += choice.choices(snippets, k=1000)
    return "".join(found)


L, N, OTHER = r"[^\W\d_]", r"\d", r"(?:[^\s\w]|_)"  # letters, digits and the rest, nearly as \p{L} and \p{N} mean them
SPLITS = {
    "gpt-2": rf"'s|'t|'re|'ve|'m|'ll|'d| ?{L}+| ?{N}+| ?{OTHER}+|\s+(?!\S)|\s+",
    "single digits": rf"{N}|'s|'t|'re|'ve|'m|'ll|'d| ?{L}+| ?{OTHER}+|\s+(?!\S)|\s+",
    "llama 3, qwen": rf"'s|'t|'ll|(?:(?![\r\n])[\s\W_])?{L}+|{N}{{1,3}}| ?{OTHER}+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
    "gpt-4o, tekken": rf"(?:(?![\r\n])[\s\W_])?{L}+|{N}{{1,3}}| ?{OTHER}+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+",
    "bloom": r" ?[^\s|.,!?…。、()]+|.|\s+",
    "newlines alone": r"[^\n]+|\n+",
}


JSON = (
    '{"',
    '": ',
    '"',
    '": "',
    '", "',
    ", ",
    "},\n  ",
    "[\n  ",
    "  ",
    "name",
    "x_1",
    "12",
    "3.5",
    "true",
    "é",
    "日本",
    "é 9",
)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("snippets", [SNIPPETS, JSON], ids=["anything", "json"])
@pytest.mark.parametrize("split", SPLITS)
@pytest.mark.parametrize("front", ["", " "])
def test_what_a_pre_tokenizer_splits_adds_up(split: str, front: str, snippets: tuple[str, ...], seed: int) -> None:
    """`front` is what some vocabularies put before every text. Where only newlines part it, no words may be kept together."""
    pattern = re.compile(SPLITS[split], re.DOTALL)

    def words(part: str) -> int:
        found = pattern.findall(front + part)
        return sum(len(word.split(" ")) for word in found) if split == "newlines alone" else len(found)

    whole = text(seed, 100_000, snippets)
    first, *rest = pieces(whole) or ()
    assert len(rest) > 5
    total = words(first) + sum(words(guard(part) + part) - words(guard(part)) for part in rest)
    assert total == words(whole)


@pytest.mark.parametrize(
    "snippets",
    [("word", " "), ("word", "\n"), ("1", "\n"), ("字", "\n"), ("word", ". ", "\n"), JSON, SNIPPETS],
    ids=["words", "lines", "numbers", "no spaces", "sentences", "json", "all"],
)
def test_pieces_are_cut_where_there_is_a_place(snippets: tuple[str, ...]) -> None:
    whole = text(1, 60_000, snippets)
    found = pieces(whole)
    assert found is not None
    assert "".join(found) == whole
    assert len(found) > 3
    assert max(map(len, found)) <= 16_384
    for before, after in pairwise(found):
        assert (
            re.search(r"\S\n$", before)
            if guard(after) == "a\n"
            else (re.search(r"[\w:,]$", before) and re.match(r" \S", after))
        )


@pytest.mark.parametrize(
    ("whole", "count"),
    [
        ("", 1),
        ("x" * 16_384, 1),
        ("x" * MOST, 1),
        ("x" * (MOST + 1), None),
        ("x" * 20_000 + " y" + "x" * 100_000, 2),
        ("a b" + "x" * MOST, None),
        ("line\n/" * 30_000, None),
        ("line,\n\n" * 20_000, None),
        ("line\r\n" * 30_000, None),
    ],
    ids=["nothing", "short", "no place", "too long", "late", "early", "slashes", "empty lines", "carriage returns"],
)
def test_a_text_without_a_place_is_whole_or_given_up(whole: str, count: int | None) -> None:
    found = pieces(whole)
    assert (len(found) if found else None) == count
    assert found is None or "".join(found) == whole


@given(st.lists(st.sampled_from(SNIPPETS), max_size=40), st.integers(1, 2000))
def test_nothing_is_lost(parts: list[str], times: int) -> None:
    whole = "".join(parts) * times
    found = pieces(whole)
    assert found is None or "".join(found) == whole
