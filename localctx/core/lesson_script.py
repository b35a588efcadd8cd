"""What the lesson's coding session is made of: its messages, the facts in them, its questions, and its recordings.

The sizes are the lesson's; where it gives only totals (`reply` and what follows), those totals give them, and the call
among them is a guess at 300. What a model's summary keeps no arithmetic says: `RECORDED` is what the lesson found in runs.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from localctx.core.lesson import Plan, Row

__all__ = [
    "FACTS",
    "GOES_ON",
    "LABELS",
    "POLICIES",
    "READ_AGAIN",
    "RECORDED",
    "RULE",
    "RUNS",
    "TASK",
    "TITLES",
    "Recording",
    "title",
]

RULE = "Always pnpm, never npm."

TASK = (
    Row("user", 500),
    Row("asst", 800),
    Row("memory line", 100, RULE),
    Row("call_read", 300),
    Row("res_read", 19_000),
    Row("diag", 900),
    Row("call_test", 300),
    Row("res_test", 22_100),
)
"""The session up to the log of the tests, where the lesson asks its first question if something was compacted."""

GOES_ON = (Row("reply", 600), Row("user2", 500), Row("call_changelog", 300), Row("res_changelog", 4_200))
"""How it goes on where nothing was."""

READ_AGAIN = 300 + 19_000
"""What it takes to have the file on the desk once more: a call, and its result."""

TITLES = {
    "system": "system prompt",
    "memory": "copy of MEMORY.md",
    "user": "the task",
    "asst": "first reply",
    "call_read": "read call",
    "res_read": "src/parser.ts",
    "diag": "diagnosis",
    "call_test": "test call",
    "res_test": "test log",
    "reply": "second reply",
    "user2": "next request",
    "call_changelog": "changelog call",
    "res_changelog": "changelog",
}
"""What to call a message in a word or two; of a summary `title` knows it."""

LABELS = {
    "user": "The user: fix the failing parser test; and always pnpm, never npm.",
    "asst": "The model notes the rule, and says that it will read the parser.",
    "call_read": "It calls for src/parser.ts.",
    "res_read": "The whole file: a loop bound that is off by one in line 247, a guard MAX_DEPTH, a TODO about unicode.",
    "diag": "The model names the bug, and the fix: i < n.",
    "call_test": "It calls for the patch and the tests.",
    "res_test": "The log of the tests.",
    "reply": "The model reports.",
    "user2": "The user asks for more.",
    "call_changelog": "It calls for the changelog.",
    "res_changelog": "The changelog: a file like any other.",
}
"""What happens when a message arrives."""

FACTS = {
    "rule": ("the pnpm rule", ("user",)),
    "bug": ("the bug in line 247 and its fix", ("res_read", "diag")),
    "guard": ("the guard MAX_DEPTH", ("res_read",)),
    "todo": ("the unicode TODO", ("res_read",)),
}
"""What one may want to know later, and the messages that say it."""


@dataclass(frozen=True, slots=True)
class Recording:
    """The facts that a model's summary kept in the run that the lesson shows, and those that it dropped."""

    kept: frozenset[str]
    dropped: frozenset[str]


RECORDED = {
    ("user", "asst", "call_read", "res_read", "diag"): Recording(
        frozenset({"rule", "bug"}), frozenset({"todo", "guard"})
    ),
    ("summary1", "res_read", "diag"): Recording(frozenset({"rule", "bug", "todo"}), frozenset()),
}
"""By the messages that were summarized: at 92 % all at once, at 50 % with memory a summary of a summary."""

RUNS = (
    ("the pnpm rule, the bug's line and its fix: kept by every summary that covered the diagnosis", 5, 5),
    ("the unicode TODO: dropped by the one summary at 92%", 4, 5),
    ("the unicode TODO: dropped by the summary of a summary at 50%", 2, 5),
)
"""How often the recorded runs did what, of how many."""

POLICIES = {
    "no compaction": Plan(gate=None),
    "92%, no memory": Plan(memory=False),
    "92%, memory": Plan(),
    "50%, memory": Plan(gate=0.5),
    "50%, no memory": Plan(gate=0.5, memory=False),
}
"""The lesson's three policies, and its knob at half."""


def title(name: str) -> str:
    """What to call a message or a summary; anything else is called what it is."""
    return TITLES.get(name) or re.sub(r"^summary(?=\d+$)", "summary ", name)
