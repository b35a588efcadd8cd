"""What the calls of a conversation say by themselves: files, commands with their outcomes, sources, errors, the last action."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

from localctx.core.messages import Facts, ToolCall, ToolCycle, plain
from localctx.core.results import CONTEXT_INFO, RECALL, RETRIEVE, SEARCH_TOOLS, SUMMARIZE, unframed
from localctx.core.stubs import first_and_last
from localctx.core.work import UPDATE

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

__all__ = ["FACT_TITLES", "learnt"]

FACT_TITLES = {
    "read": "Looked at",
    "modified": "Files modified",
    "commands": "Commands run",
    "sources": "Sources covered",
    "errors": "Open errors",
}


_PATH_KEYS = re.compile(r"^(path|file|source|filename|.*_path|.*_file)$")
_WRITERS = re.compile(r"write|edit|create|patch|replace|move|^mv$|^cp$|^rm$|^mkdir$")
_RUNNERS = re.compile(r"command|shell|bash|exec")
_LONG = 80
_LONGEST_NAME = 300


_OWN = {RECALL, RETRIEVE, UPDATE, CONTEXT_INFO, SUMMARIZE, SEARCH_TOOLS}
"""Tools that look into the record or the window, or write in them: what they did is no news."""


def learnt(facts: Facts, cycles: Iterable[ToolCycle]) -> Facts:
    """The facts with what the calls say, each once, in the order in which it was first seen."""
    lists = {name: dict.fromkeys(getattr(facts, name)) for name in FACT_TITLES}
    last = facts.last_action
    for cycle in cycles:
        results = {result.call_id: plain(result.content) for result in cycle.results}
        for call in (each for each in cycle.calls if each.name not in _OWN):
            for name, said in _said_by(call, results.get(call.id)):
                lists[name][said] = None
            last = _action(call) or last
    return Facts(**{name: tuple(values) for name, values in lists.items()}, last_action=last)


def _said_by(call: ToolCall, result: str | None) -> Iterator[tuple[str, str]]:
    """What one call says, and in which list of facts it belongs."""
    texts = _texts(call)
    result = None if result is None else unframed(first_and_last(result))
    if result is not None and result.lower().startswith("error"):
        yield "errors", f"{_action(call)}: {_clip(result)}"
        return
    target = "modified" if _WRITERS.search(call.name) else "read"
    for key, value in texts.items():
        if _PATH_KEYS.match(key) and _short(value):
            yield target, value
        elif value.startswith(("http://", "https://")) and _short(value):
            yield "sources", value
    if _RUNNERS.search(call.name) and (command := texts.get("command") or texts.get("cmd")):
        outcome = _clip((result or "").strip().splitlines()[-1]) if (result or "").strip() else "no output"
        yield "commands", f"{_clip(command)} -> {'no result' if result is None else outcome}"


def _texts(call: ToolCall) -> dict[str, str]:
    """The arguments of a call that are text; none where they cannot be read."""
    try:
        arguments = json.loads(call.arguments)
    except (ValueError, RecursionError):
        return {}
    return (
        {key: value for key, value in arguments.items() if isinstance(value, str)}
        if isinstance(arguments, dict)
        else {}
    )


def _action(call: ToolCall) -> str:
    texts = _texts(call)
    return f"{call.name}({_clip(', '.join(texts.values()))})" if texts or call.arguments.strip() in {"", "{}"} else ""


def _short(text: str) -> bool:
    """Whether a value names something, rather than being its content."""
    return len(text) <= _LONGEST_NAME and "\n" not in text


def _clip(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= _LONG else line[: _LONG - 1] + "…"
