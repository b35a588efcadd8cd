"""What a change does to a text, for the person who is asked and the model that made it."""

from __future__ import annotations

from itertools import takewhile
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["changed", "difference", "line_of", "occurrences", "similar"]

_CONTEXT = 3


def difference(before: str, after: str, path: str) -> str:
    """A unified diff of one hunk, from the first line that differs to the last; empty where there is none.

    One hunk, since looking for more takes quadratic time of texts that somebody else wrote.
    """
    old, new = _lines(before), _lines(after)
    if old == new:
        return ""
    same = _common(old, new)
    end = min(_common(old[::-1], new[::-1]), len(old) - same, len(new) - same)
    start = max(same - _CONTEXT, 0)
    lead, trail = old[start:same], old[len(old) - end : len(old) - end + _CONTEXT]
    gone, came = old[same : len(old) - end], new[same : len(new) - end]
    counts = [len(lead) + len(part) + len(trail) for part in (gone, came)]
    at = [start + (count > 0) for count in counts]
    return "\n".join(
        [
            f"--- {path if before else '/dev/null'}",
            f"+++ {path}",
            f"@@ -{at[0]},{counts[0]} +{at[1]},{counts[1]} @@",
            *(f" {line}" for line in lead),
            *(f"-{line}" for line in gone),
            *(f"+{line}" for line in came),
            *(f" {line}" for line in trail),
        ]
    )


def changed(diff: str) -> str:
    """How many lines a diff adds and takes away."""
    lines = diff.split("\n")[3:]
    added, gone = (sum(line.startswith(sign) for line in lines) for sign in "+-")
    return f"+{added:,} -{gone:,} lines"


def _lines(text: str) -> list[str]:
    r"""The lines of a text, split at `\n` alone; the end of a text that ends in the middle of its line is told."""
    lines = text.split("\n")
    if lines[-1] == "":
        return lines[:-1]
    return [*lines[:-1], f"{lines[-1]}\n\\ No newline at end of file"]


def _common(left: Sequence[str], right: Sequence[str]) -> int:
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(left, right, strict=False)))


def occurrences(text: str, part: str, most: int) -> list[int]:
    """Where a part begins in a text, each place behind the one before it; `most` at most."""
    found = list[int]()
    at = text.find(part)
    while at >= 0 and len(found) < most:
        found.append(at)
        at = text.find(part, at + len(part))
    return found


def line_of(text: str, at: int) -> int:
    """The number of the line that a place in a text is on."""
    return text.count("\n", 0, at) + 1


_MOST_COMPARED, _MOST_SHOWN, _WIDTH = 20_000, 3, 120
_LEAST_ALIKE = 0.5


def similar(text: str, part: str) -> list[str]:
    """The lines of a text that are most like the first that a part says anything in, with their numbers, the most alike first."""
    words = _words(next((line for line in part.split("\n") if line.strip()), ""))
    scored = [
        (_alike(words, _words(line)), -number, line)
        for number, line in enumerate(text.split("\n", _MOST_COMPARED)[:_MOST_COMPARED], 1)
    ]
    best = sorted((each for each in scored if each[0] >= _LEAST_ALIKE), reverse=True)[:_MOST_SHOWN]
    return [f"{-number}: {line[:_WIDTH]}" for _, number, line in best]


def _words(line: str) -> frozenset[str]:
    """What a line is made of, by pairs of letters without blanks."""
    text = "".join(line[:400].split()).lower()
    return frozenset(text[at : at + 2] for at in range(max(len(text) - 1, 1))) if text else frozenset()


def _alike(left: frozenset[str], right: frozenset[str]) -> float:
    """From 0 to 1: the share of what two lines have in common."""
    return 2 * len(left & right) / ((len(left) + len(right)) or 1)
