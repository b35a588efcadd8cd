"""What fills a window, by kind of content and by tool, in tokens."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from localctx.core.checkpoint import render
from localctx.core.messages import Interjection, Message, Said, ToolCycle, plain
from localctx.core.sizes import unit_size

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from localctx.core.messages import History

__all__ = ["Filling", "by_tool", "fills"]


@dataclass(frozen=True, slots=True)
class Filling:
    """A request of `used` tokens, before new words.

    `parts` is what it is for; what no part accounts for is the template's own. `results` is what the answers of each tool
    take, and `schemas` what is said of each tool that is offered; both are among the parts.
    """

    used: int
    parts: Mapping[str, int] = field(default_factory=dict)
    results: Mapping[str, int] = field(default_factory=dict)
    schemas: Mapping[str, int] = field(default_factory=dict)


def fills(history: History, size: Callable[[str], int]) -> dict[str, int]:
    """About how many tokens each kind of content takes: system, checkpoint, user, assistant, tools (calls and results)."""
    kinds = {Message: "user", Interjection: "user", Said: "assistant", ToolCycle: "tools"}
    found = {
        "system": sum(unit_size(message, size) for message in history.system),
        "checkpoint": size(render(history.checkpoint)) if history.checkpoint else 0,
        "user": 0,
        "assistant": 0,
        "tools": 0,
    }
    for _, unit in history.units():
        found[kinds[type(unit)]] += unit_size(unit, size)
    return found


def by_tool(history: History, size: Callable[[str], int]) -> dict[str, int]:
    """About how many tokens the calls of each tool and their results take, the most first."""
    found = dict[str, int]()
    for _, unit in history.units():
        if isinstance(unit, ToolCycle):
            names = {call.id: call.name for call in unit.calls}
            texts = [(call.name, call.arguments) for call in unit.calls]
            texts += [(names[result.call_id], plain(result.content)) for result in unit.results]
            for name, text in texts:
                found[name] = found.get(name, 0) + size(text)
    return dict(sorted(found.items(), key=lambda each: -each[1]))
