"""A request as a model's own chat template renders it, in this process, by the conventions of llama.cpp's server.

Jinja2 runs the template in its sandbox. What llama.cpp does to a list before it renders is done here too: it learns from
small chats whether a template wants typed contents and arguments as objects, and sends it what it wants. Where the two
engines differ (rare numbers in arguments, spaces beyond ASCII at the ends of texts) so may the text, by a few characters.
"""

from __future__ import annotations

import json
from datetime import UTC, datetime
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NoReturn

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from jinja2 import Environment, nodes
    from jinja2.parser import Parser

__all__ = ["render"]

_MOST_TEMPLATE = 1 << 20
_MOST_CHARACTERS = 1 << 26
"""Characters of a template, and of what it renders: more than any has, and as much as a prompt of ten million tokens."""


class _Refused(Exception):
    """The template does not take this list."""


def render(
    template: str,
    messages: Sequence[Mapping[str, object]],
    tools: Sequence[Mapping[str, object]] = (),
    *,
    bos: str = "",
    eos: str = "",
    now: datetime | None = None,
) -> str | None:
    """The prompt that asks for a reply to a list in the OpenAI dialect; `bos` and `eos` are the texts of those tokens.

    Where the list ends with the model's own words, it is to go on with them. None where the template refuses the list,
    cannot be run, or renders too much, where the list ends with a call, and where jinja2 is not installed. The sandbox keeps
    a template from the program's own objects, but not from taking long: see `rendering` for strangers'.
    """
    *before, last = messages or ({},)
    begun = last.get("role") == "assistant"
    if not template or not last or len(template) > _MOST_TEMPLATE or (begun and last.get("tool_calls")):
        return None
    try:
        program = _program(template)
        chat = program.prepared(before if begun else messages)
        prompt = program.run(chat, tools, bos, eos, now or datetime.now(UTC).astimezone())
        return prompt + _joined(last.get("content")) if begun else prompt
    except Exception:  # noqa: BLE001  a template is a stranger's program: it renders, or it does not
        return None


class _Program:
    """A compiled template, and what it wants contents and arguments to be."""

    def __init__(self, template: str) -> None:
        self._template = _environment().from_string(template)
        self._typed, self._joined, self._objects = False, False, True
        self._typed = not self._shows({"role": "user", "content": _NEEDLE})
        parts = [{"type": "text", "text": _NEEDLE}]
        self._joined = not self._shows({"role": "user", "content": parts}, without="text")
        self._objects = self._shows(*_called({_NEEDLE: "x"}), without=f"{{'{_NEEDLE}'")

    def run(
        self, chat: list[dict[str, Any]], tools: Sequence[Mapping[str, object]], bos: str, eos: str, now: datetime
    ) -> str:
        """The rendered prompt."""
        names: dict[str, object] = {
            "messages": chat,
            "bos_token": bos,
            "eos_token": eos,
            "add_generation_prompt": True,
            "enable_thinking": True,
            "strftime_now": now.strftime,
            "date_string": now.strftime("%d %b %Y"),
            "datetime": now.strftime("%b %d %Y"),
        }
        if tools:
            names["tools"] = [_tool(tool) for tool in tools]
        parts, length = list[str](), 0
        for part in self._template.generate(names):
            length += len(part)
            if length > _MOST_CHARACTERS:
                raise _Refused("too long")
            parts.append(part)
        return "".join(parts)

    def prepared(self, messages: Sequence[Mapping[str, object]]) -> list[dict[str, Any]]:
        """The messages as the template wants them."""
        return [self._prepared(dict(message)) for message in messages]

    def _prepared(self, message: dict[str, Any]) -> dict[str, Any]:
        if message.get("role") == "developer":
            message["role"] = "system"
        message["content"] = self._content(message.get("content"))
        if calls := message.pop("tool_calls", None):
            message["tool_calls"] = [self._call(call) for call in calls]
        if (thinking := message.pop("reasoning_content", None)) is not None:
            message |= dict.fromkeys(("reasoning_content", "reasoning", "thinking"), thinking)
        return message

    def _content(self, content: object) -> object:
        if isinstance(content, list) and self._joined:
            return _joined(content)
        if not isinstance(content, list) and self._typed:
            return [{"type": "text", "text": content or ""}]
        return "" if content is None else content

    def _call(self, call: Mapping[str, Any]) -> dict[str, object]:
        function = dict(call["function"])
        given = function.get("arguments") or "{}"
        if not isinstance(given, str):
            given = json.dumps(given, ensure_ascii=False, separators=(",", ":"))
        function["arguments"] = json.loads(given, parse_float=_number) if self._objects else given
        return {"id": call.get("id", ""), "type": "function", "function": function}

    def _shows(self, *messages: dict[str, object], without: str = "\0") -> bool:
        """Whether a chat renders with the needle in it, and without that text."""
        try:
            text = self.run(self.prepared(messages), (), "", "", datetime(2026, 1, 1, tzinfo=UTC))
        except Exception:  # noqa: BLE001  it refuses: then it does not show it
            return False
        return _NEEDLE in text and without not in text


_NEEDLE = "needle"


def _joined(content: object) -> str:
    """A content as one text."""
    if isinstance(content, list):
        return "\n".join(str(part.get("text", "")) for part in content if isinstance(part, dict))
    return content if isinstance(content, str) else ""


def _called(arguments: object) -> list[dict[str, object]]:
    """A chat with one call and its result."""
    call = {"id": "call00001", "type": "function", "function": {"name": "probe", "arguments": arguments}}
    return [
        {"role": "user", "content": "x"},
        {"role": "assistant", "content": "", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "call00001", "name": "probe", "content": "x"},
    ]


def _number(text: str) -> float | int:
    """A number as llama.cpp prints it: six digits, and none behind the point where they are noughts."""
    short = f"{float(text):g}"
    return int(short) if short.lstrip("-").isdigit() else float(short)


def _tool(tool: Mapping[str, Any]) -> dict[str, object]:
    """A schema with the fields that llama.cpp passes on."""
    function = tool["function"]
    known = {
        "name": function["name"],
        "description": function.get("description", ""),
        "parameters": function.get("parameters", {}),
    }
    return {"type": "function", "function": known}


@lru_cache(maxsize=16)
def _program(template: str) -> _Program:
    return _Program(template)


@lru_cache(maxsize=1)
def _environment() -> Environment:
    """Jinja2 as chat templates expect it."""
    from jinja2.ext import Extension, loopcontrols  # noqa: PLC0415  an extra, and no cost at start-up
    from jinja2.sandbox import ImmutableSandboxedEnvironment  # noqa: PLC0415  as above

    class Generation(Extension):
        """Marks the model's own words, for training; they render as they are."""

        tags = {"generation"}  # noqa: RUF012  as jinja2 has it

        def parse(self, parser: Parser) -> list[nodes.Node]:
            next(parser.stream)
            return parser.parse_statements(("name:endgeneration",), drop_needle=True)

    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[loopcontrols, Generation]
    )
    environment.filters["tojson"] = _to_json
    environment.globals["raise_exception"] = _refuse
    return environment


def _to_json(value: object, indent: int | None = None, separators: tuple[str, str] | None = None, **_: object) -> str:
    return json.dumps(value, ensure_ascii=False, indent=indent, separators=separators)


def _refuse(message: str) -> NoReturn:
    raise _Refused(message)
