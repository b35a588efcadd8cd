"""A conversation whose every reply follows from the request alone, so that what a kill changed can be told from a run without one.

The user's turns are numbered in their words (`Turn 03:`). The model looks for the last turn that it can see and for what
of its calls has a result already, and goes on there; replies are marked `[reply 03]`.
"""

from __future__ import annotations

import json
import re
from typing import Any

from localctx.core.outgoing import NO_RESULT
from tests.fakes.llama_server import Calls

__all__ = [
    "GO_ON",
    "NOTES",
    "SYSTEM",
    "TURNS",
    "WINDOW",
    "expected_reply",
    "file_text",
    "reply_to",
]

WINDOW = 2048
SYSTEM = "You keep the log of the harbour."
GO_ON = "Please go on."
"""What a person says who finds the last question unanswered."""

NOTES = """## Goal
- The user wants the log of the harbour kept.
## Constraints & Preferences
- The log of the harbour stays short.
## Covered So Far
- Some pages of the log of the harbour were read and some words about ships and tides were said.
## Next Steps
- Go on with the next turn of the log, and keep an eye on the ships, the tides and the pages of the harbour.
"""

_TEXTS = (
    "Keep the log of the harbour. Never mention the old pier.",
    "Read the first page.",
    "Read the second and the third page.",
    "Write the page of today.",
    "What did we say of the tides?",
    "Record where we stand.",
    "Show me the whole of a long page.",
    "Only talk a little now. " + "The ships came in with the tide. " * 12,
    "Record that the second page is done. " + "The tide is high. " * 16,
    "Close the log.",
)
TURNS = tuple(f"Turn {number:02}: {text}" for number, text in enumerate(_TEXTS, 1))

_TODOS = [
    {"text": "count the ships", "status": "done", "verified_by": "two counts agree"},
    {"text": "check the second page", "status": "pending"},
    {"text": "ring the bell", "status": "in_progress"},
]


def _read(path: str) -> tuple[str, str]:
    return "read_file", json.dumps({"path": path})


_PLANS: dict[int, list[tuple[str, str] | str]] = {
    2: [_read("logs/first.txt")],
    3: [_read("logs/second.txt"), _read("logs/third.txt"), ("update_work_state", json.dumps({"goal": "keep the log"}))],
    4: [("write_file", json.dumps({"path": "logs/today.txt", "content": "A ship, a tide. " * 40}))],
    5: [("recall", json.dumps({"query": "tides of the first page"}))],
    6: [("update_work_state", json.dumps({"todos": _TODOS, "next_step": "ring the bell"}))],
    7: [_read("logs/long.txt"), "retrieve"],
    9: [("update_work_state", json.dumps({"todos": [{"text": "check the second page", "status": "done"}]}))],
}
"""What the model calls in a turn, one after the other; `retrieve` reads the rest of what came before."""


def file_text(path: str) -> str:
    """What stands in a file: a page, in `long.txt` more than any result may hold, and elsewhere than in `logs` a little."""
    lines = 100 if "long" in path else 22 if "logs" in path else 2
    words = " ".join(f"{path} line {number}: a ship and a tide." for number in range(lines))
    return f"{path} begins. {words} {path} ends."


def expected_reply(number: int) -> str:
    """The last words of the model in a turn."""
    return f"[reply {number:02}] " + f"The log of turn {number} is kept, and the tides are noted. " * 9


def reply_to(body: dict[str, Any]) -> str | Calls:
    """What the model says to a request."""
    if "grammar" in body:
        return NOTES
    number, since = _standing(body["messages"])
    wanted = _PLANS.get(number, [])
    done = _done(wanted, since)
    if done == len(wanted):
        return expected_reply(number)
    step = wanted[done]
    return Calls(f"[step {number:02}.{done}]", [(_retrieval(since) if isinstance(step, str) else step)])


_TURN = re.compile(r"Turn (\d\d): ")


def _standing(messages: list[dict[str, Any]]) -> tuple[int, list[dict[str, Any]]]:
    """The last turn that the list speaks of, and what followed it."""
    for at in range(len(messages) - 1, -1, -1):
        found = _TURN.findall(str(messages[at]["content"])) if messages[at]["role"] == "user" else []
        if found:
            return int(found[-1]), messages[at + 1 :]
    raise AssertionError("the model sees no turn of the script")


def _done(wanted: list[tuple[str, str] | str], since: list[dict[str, Any]]) -> int:
    """How many of the wanted calls were made: all up to the last one that has a result."""
    names = {call["id"]: call["function"] for message in since for call in message.get("tool_calls") or []}
    made = [
        names[message["tool_call_id"]]
        for message in since
        if message["role"] == "tool" and not message["content"].startswith(NO_RESULT)
    ]
    done = 0
    for at, step in enumerate(wanted):
        name, arguments = ("retrieve_tool_result", None) if isinstance(step, str) else step
        if any(call["name"] == name and arguments in {None, call["arguments"]} for call in made):
            done = at + 1
    return done


_POINTER = re.compile(r"retrieve_tool_result (\d+)\]")


def _retrieval(since: list[dict[str, Any]]) -> tuple[str, str]:
    """The call that reads the rest of a result, by the number that stands in it."""
    found = [number for message in since for number in _POINTER.findall(str(message["content"]))]
    return "retrieve_tool_result", json.dumps({"id": found[-1] if found else "1"})
