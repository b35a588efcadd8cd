"""What a model wishes to do that a person may want to see first, and the rules by which the person allows it beforehand."""

from __future__ import annotations

import re
from dataclasses import dataclass

__all__ = ["COMMAND", "RULED", "WRITERS", "Rule", "Verdict", "Wish", "rule"]

COMMAND, WRITERS = "run_command", ("write_file", "edit_file")
RULED = (*WRITERS, COMMAND, "read_file", "fetch_url")
"""The tools that rules may allow; `read_file` asks only for files that may hold secrets."""


@dataclass(frozen=True, slots=True)
class Wish:
    """Something that a tool would do to `subject`: a path in the working folder, a command line, or a host.

    `details` are for people: a diff, or why it is asked.
    """

    tool: str
    subject: str
    details: str = ""


@dataclass(frozen=True, slots=True)
class Verdict:
    """Whether a wish is granted, and else why not, worded for the model."""

    granted: bool
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Rule:
    """`TOOL:PATTERN`; in a pattern, `*` stands for any characters.

    In a command it stands for less, lest it allows what nobody thought of: for nothing by which a shell would do a second
    thing, for no option by which a well-known program runs another one, writes or deletes (`--output`, `-o`, `-c`, `-exec`
    and their kin, shortened ones too), and behind a letter or a digit only for nothing, or for a blank and what follows it:
    `ls*` is not `lsof`. What a rule is to allow beyond that, it writes out. No wall: a program may have options of its own.
    """

    tool: str
    pattern: str

    def allows(self, wish: Wish) -> bool:
        """Whether the wish is one of those that the rule means."""
        if wish.tool != self.tool:
            return False
        stars = _stars(self.pattern, wish.subject)
        if stars is None or self.tool != COMMAND:
            return stars is not None
        before = re.split(r"\*+", self.pattern)[:-1]
        return all(_is_harmless(star, behind) for star, behind in zip(stars, before, strict=True))


def _stars(pattern: str, subject: str) -> list[str] | None:
    """What each star of a pattern stands for in a subject, in linear time; None where it does not match."""
    head, *others = re.split(r"\*+", pattern)
    if not others:
        return [] if subject == head else None
    *middle, tail = others
    if len(subject) < len(head) + len(tail) or not (subject.startswith(head) and subject.endswith(tail)):
        return None
    left, stars = subject[len(head) : len(subject) - len(tail)], list[str]()
    for part in middle:
        star, found, left = left.partition(part)
        if not found:
            return None
        stars.append(star)
    return [*stars, left]


def _is_harmless(star: str, behind: str) -> bool:
    """Whether a star in a command, behind a text of its pattern, may stand for this."""
    if _SECOND.search(star) or (behind[-1:].isalnum() and star[:1] not in {"", " ", "\t"}):
        return False
    dashes = re.search(r"(?:^|\s)(-{1,2})$", behind)
    words = f"{dashes[1] if dashes else ''}{star}".translate(_UNQUOTED).split()
    return not any(map(_does_more, words))


_SECOND = re.compile(r"[;&|<>(){}!`$\\\x00-\x1f\x7f]")
"""By what a shell would do a second thing, or make words of others: `;`, `&&`, pipe, substitution, redirection, line end, braces."""

_UNQUOTED = {ord(quote): None for quote in "'\""}
"""Quotes, which a shell takes away: `-ex""ec` is `-exec`."""

_MORE = (
    "--output",
    "--exec",
    "--config-env",
    "--upload-pack",
    "-o",
    "-c",
    "-exec",
    "-ok",
    "-delete",
    "-fprint",
    "-fls",
)
"""How options begin that run a program, write or delete, in git, find, sort and others (their manuals)."""

_SHORTENED = 4
"""The least characters of a long option that git takes for the whole one where no other begins so (`--ou`)."""


def _does_more(word: str) -> bool:
    """Whether a word is one of these options, with its value or shortened."""
    option = re.match(r"[-A-Za-z]*", word)
    name = option[0] if option else ""
    shortened = name.startswith("--") and len(name) >= _SHORTENED and any(each.startswith(name) for each in _MORE)
    return shortened or name.startswith(_MORE)


def rule(text: str) -> Rule:
    """The rule that a text states. Raises `ValueError` that says what a rule is."""
    tool, colon, pattern = text.partition(":")
    if not colon or not pattern or tool not in RULED:
        raise ValueError(
            f"{text!r} is no rule; write TOOL:PATTERN, such as 'run_command:git status*', TOOL one of {', '.join(RULED)}"
        )
    return Rule(tool, pattern)
