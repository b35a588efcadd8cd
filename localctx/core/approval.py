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
    """`TOOL:PATTERN`; in a pattern, `*` stands for any characters."""

    tool: str
    pattern: str

    def allows(self, wish: Wish) -> bool:
        """Whether the wish is one of those that the rule means."""
        if wish.tool != self.tool:
            return False
        stars = _stars(self.pattern, wish.subject)
        return stars is not None and not (self.tool == COMMAND and any(map(_SECOND.search, stars)))


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


_SECOND = re.compile(r"[;&|<>()`$\\\x00-\x1f\x7f]")
"""By what a shell would do a second thing. In a command `*` stands for none of it: no `;`, `&&`, pipe, substitution, redirection or
line end. A rule that is to allow these writes them out."""


def rule(text: str) -> Rule:
    """The rule that a text states. Raises `ValueError` that says what a rule is."""
    tool, colon, pattern = text.partition(":")
    if not colon or not pattern or tool not in RULED:
        raise ValueError(
            f"{text!r} is no rule; write TOOL:PATTERN, such as 'run_command:git status*', TOOL one of {', '.join(RULED)}"
        )
    return Rule(tool, pattern)
