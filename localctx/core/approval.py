"""What a model wishes to do that a person may want to see first, and the rules by which the person allows it beforehand."""

from __future__ import annotations

import re
from dataclasses import dataclass

__all__ = ["RULED", "Rule", "Verdict", "Wish", "rule"]

COMMAND = "run_command"
RULED = ("write_file", "edit_file", COMMAND, "read_file", "fetch_url")
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
        anything = _PLAIN if self.tool == COMMAND else _ANY
        wanted = anything.join(re.escape(part) for part in re.split(r"\*+", self.pattern))
        return re.fullmatch(wanted, wish.subject, re.DOTALL) is not None


_ANY = ".*"
_PLAIN = r"[^;&|<>()`$\\\x00-\x1f\x7f]*"
"""In a command `*` stands for nothing by which a shell would do a second thing: no `;`, `&&`, pipe, substitution, redirection or
line end. A rule that is to allow these writes them out."""

_MOST_STARS = 4
"""Each more multiplies the time that a hostile subject can take."""


def rule(text: str) -> Rule:
    """The rule that a text states. Raises `ValueError` that says what a rule is."""
    tool, colon, pattern = text.partition(":")
    if not colon or not pattern or tool not in RULED:
        raise ValueError(
            f"{text!r} is no rule; write TOOL:PATTERN, such as 'run_command:git status*', TOOL one of {', '.join(RULED)}"
        )
    if len(re.findall(r"\*+", pattern)) > _MOST_STARS:
        raise ValueError(f"{text!r} has more than {_MOST_STARS} stars; write several rules")
    return Rule(tool, pattern)
