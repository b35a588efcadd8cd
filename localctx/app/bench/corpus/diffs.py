"""Unified diffs of generated code."""

from __future__ import annotations

from difflib import unified_diff
from typing import TYPE_CHECKING

from localctx.app.bench.corpus.grammar import grammar

if TYPE_CHECKING:
    from random import Random

__all__ = ["diff_piece"]

_LANGUAGES = {
    "code-python": "py",
    "code-javascript": "js",
    "code-c": "c",
    "sql": "sql",
    "code-rust": "rs",
    "shell": "sh",
    "yaml": "yml",
}
_EDITED = 0.06
"""The share of lines that an edit touches."""


def diff_piece(rng: Random) -> str:
    """The change of one file as `git diff` shows it, with the head of its commit now and then."""
    words = grammar("words")
    language, suffix = rng.choice(list(_LANGUAGES.items()))
    file = f"{words.expand('dir', rng)}/{words.expand('noun', rng)}.{suffix}"
    rules = grammar("words", language)
    before = "\n".join(rules.expand("piece", rng) for _ in range(rng.randint(2, 4))).splitlines()
    after = _edited(before, rng)
    hunks = unified_diff(before, after, f"a/{file}", f"b/{file}", lineterm="")
    blobs = f"index {rng.getrandbits(28):07x}..{rng.getrandbits(28):07x} 100644"
    head = f"diff --git a/{file} b/{file}\n{blobs}\n"
    return _commit(rng) + head + "\n".join(hunks) + "\n"


def _commit(rng: Random) -> str:
    if rng.random() < 0.7:  # noqa: PLR2004  most files are not the first of their commit
        return ""
    words = grammar("words")
    when = f"{words.expand('date', rng)} {words.expand('clock', rng)} +0100"
    subject = words.expand("summary", rng)
    return f"commit {rng.getrandbits(160):040x}\nDate:   {when}\n\n    {subject}\n\n"


def _edited(lines: list[str], rng: Random) -> list[str]:
    """The lines with some of them dropped, doubled with a change, or changed in one word."""
    out = list[str]()
    for line in lines:
        if rng.random() > _EDITED:
            out.append(line)
            continue
        changed = _changed(line, rng)
        out += rng.choice(([], [changed], [changed], [line, changed], [changed, *_block(line, rng)]))
    return out


def _changed(line: str, rng: Random) -> str:
    words = line.split(" ")
    at = rng.randrange(len(words))
    words[at] = grammar("words").expand("noun", rng) if words[at] else words[at]
    return " ".join(words)


def _block(line: str, rng: Random) -> list[str]:
    """New lines at the indentation of a line."""
    indent = line[: len(line) - len(line.lstrip())]
    rules = grammar("words", "code-python")
    return [indent + text for text in rules.expand("statement", rng).splitlines()]
