"""Tools as clients offer them, and calls of them with what they answer."""

from __future__ import annotations

import json
from functools import partial
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from localctx.app.bench.corpus.data import document
from localctx.app.bench.corpus.diffs import diff_piece
from localctx.app.bench.corpus.grammar import grammar

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from random import Random

__all__ = ["TOOLS", "Tool", "arguments", "result", "schema"]

_Value: TypeAlias = "Callable[[Random], object]"


class _Parameter(NamedTuple):
    """The JSON schema of a parameter, whether it must be given, and what gives a value for it."""

    schema: Mapping[str, object]
    required: bool
    value: _Value


class Tool(NamedTuple):
    """A tool: what it says of itself, its parameters, and what gives the text that it answers."""

    name: str
    description: str
    parameters: Mapping[str, _Parameter]
    answer: Callable[[Random], str]


def schema(tool: Tool) -> dict[str, object]:
    """The tool as a request declares it."""
    properties = {name: parameter.schema for name, parameter in tool.parameters.items()}
    required = [name for name, parameter in tool.parameters.items() if parameter.required]
    inner = {"type": "object", "properties": properties, "required": required}
    function = {"name": tool.name, "description": tool.description, "parameters": inner}
    return {"type": "function", "function": function}


def arguments(tool: Tool, rng: Random) -> str:
    """Arguments of one call as JSON text, compact or spaced, with or without what may be left out."""
    given = {
        name: parameter.value(rng)
        for name, parameter in tool.parameters.items()
        if parameter.required or rng.choice((0, 1))
    }
    return json.dumps(given, ensure_ascii=rng.choice((True, False, False)), separators=rng.choice((None, (",", ":"))))


def result(tool: Tool, rng: Random) -> str:
    """What a call answers: mostly text of the tool's kind, now and then an error or nothing at all."""
    luck = rng.random()
    if luck < 0.05:  # noqa: PLR2004  a small share
        return ""
    if luck < 0.15:  # noqa: PLR2004  a small share
        return f"Error: {_text(rng, 'notice')}"
    return tool.answer(rng)


def _text(rng: Random, rule: str) -> str:
    return grammar("words", "values").expand(rule, rng)


def _code(rng: Random, language: str) -> str:
    return grammar("words", language).expand("piece", rng)


def _numbered(rng: Random) -> str:
    """Code with the numbers of its lines, as tools that read files show it."""
    lines = _code(rng, rng.choice(("code-python", "code-rust", "code-javascript"))).splitlines()
    return "\n".join(f"{number:6}\t{line}" for number, line in enumerate(lines, 1))


def _json(rng: Random) -> str:
    return json.dumps(document(rng, 1), ensure_ascii=False, indent=rng.choice((None, 2)))


def _weather(rng: Random) -> str:
    degrees, sky = round(rng.uniform(-20, 40), 1), rng.choice(("clear", "overcast", "rain", "snow", "fog"))
    return json.dumps({"temperature": degrees, "sky": sky, "wind": {"speed": rng.randint(0, 120), "unit": "km/h"}})


def _described(description: str, rule: str, *, required: bool = True) -> _Parameter:
    return _Parameter({"type": "string", "description": description}, required, partial(_text, rule=rule))


def _whole(low: int, high: int, description: str) -> _Parameter:
    given = {"type": "integer", "description": description, "minimum": low, "maximum": high}
    return _Parameter(given, required=False, value=lambda rng: rng.randint(low, high))


def _one_of(*choices: str) -> _Parameter:
    return _Parameter({"type": "string", "enum": list(choices)}, required=False, value=lambda rng: rng.choice(choices))


def _yes(description: str) -> _Parameter:
    given = {"type": "boolean", "description": description, "default": False}
    return _Parameter(given, required=False, value=lambda rng: rng.choice((True, False)))


def _filters(rng: Random) -> object:
    return [
        {"field": _text(rng, "noun"), "op": rng.choice(("=", "<", ">")), "value": rng.randint(0, 999)}
        for _ in range(rng.randint(0, 3))
    ]


_FILTER = {
    "type": "array",
    "description": "Conditions that all have to hold.",
    "items": {
        "type": "object",
        "properties": {
            "field": {"type": "string"},
            "op": {"type": "string", "enum": ["=", "<", ">"]},
            "value": {"anyOf": [{"type": "number"}, {"type": "string"}]},
        },
        "required": ["field", "op", "value"],
        "additionalProperties": False,
    },
}

TOOLS = (
    Tool(
        "read_file",
        "Reads a text file of the project and returns its lines with their numbers.",
        {
            "path": _described("Path relative to the project's root.", "path"),
            "offset": _whole(1, 5000, "First line to read."),
            "limit": _whole(1, 2000, "How many lines at most."),
        },
        _numbered,
    ),
    Tool(
        "write_file",
        "Creates a file, or replaces what is in it. Folders on the way are made.",
        {
            "path": _described("Where to write.", "path"),
            "content": _Parameter({"type": "string"}, required=True, value=partial(_code, language="code-python")),
        },
        lambda rng: f"wrote {rng.randint(1, 90_000)} bytes",
    ),
    Tool(
        "run",
        "Runs a shell command and returns what it printed.\n\nNever starts anything that waits for input; "
        "output past 30,000 characters is cut in the middle.",
        {
            "command": _Parameter({"type": "string"}, required=True, value=partial(_code, language="shell")),
            "timeout": _whole(1, 600, "Seconds until the command is ended."),
            "background": _yes("Go on without waiting for the end."),
        },
        partial(_code, language="log"),
    ),
    Tool(
        "git_diff",
        "Shows what has changed since the last commit.",
        {"path": _described("Only this file or folder.", "path", required=False), "staged": _yes("What is staged.")},
        diff_piece,
    ),
    Tool(
        "find",
        "Lists files by pattern, newest first.",
        {"pattern": _described("For example src/**/*.c", "path"), "hidden": _yes("Hidden files as well.")},
        partial(_code, language="paths"),
    ),
    Tool(
        "query",
        "Reads rows of a table. At most 100 rows are returned; `cursor` of the answer asks for the next ones.",
        {
            "table": _described("Name of the table.", "noun"),
            "filters": _Parameter(_FILTER, required=False, value=_filters),
            "order": _one_of("newest", "oldest", "name"),
        },
        _json,
    ),
    Tool(
        "get_weather",
        "The weather of a place now.",
        {"city": _described("City, as in “Oslo”.", "city"), "units": _one_of("metric", "imperial")},
        _weather,
    ),
    Tool("now", "The current date and time in UTC.", {}, partial(_text, rule="stamp")),
    Tool(
        "notify",
        "Sends a message to a person: use it sparingly 🔔",
        {
            "to": _described("Address of the person.", "email"),
            "text": _described("What to say.", "sentence"),
            "urgency": _one_of("low", "normal", "high"),
        },
        lambda rng: json.dumps({"ok": True, "id": _text(rng, "uuid")}),
    ),
)
"""Tools with no, few and nested parameters, and answers from a word to a listing."""
