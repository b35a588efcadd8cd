"""About how many tokens a history and its parts take in a request, by the size of their texts."""

from __future__ import annotations

from math import ceil
from typing import TYPE_CHECKING, TypeVar

from localctx.core.checkpoint import render
from localctx.core.messages import History, Interjection, Message, Said, Step, ToolCycle, plain
from localctx.core.portions import MEDIA_TOKENS, medium

if TYPE_CHECKING:
    from collections.abc import Callable

    from localctx.core.messages import Content

__all__ = ["Sizer", "history_size", "unit_size", "unseen"]


_Unit = TypeVar("_Unit")


class Sizer:
    """The size of a text by `base`, times `scale`; what it worked out of a unit it keeps in `known`, as units never change."""

    def __init__(
        self, base: Callable[[str], int], scale: Callable[[], float], known: dict[tuple[str, int], tuple[object, int]]
    ) -> None:
        self.base, self._scale, self._known = base, scale, known

    def __call__(self, text: str) -> int:
        """The tokens of a text."""
        return ceil(self.base(text) * self._scale())

    def of(self, unit: _Unit, what: str, work: Callable[[_Unit, Callable[[str], int]], int]) -> int:
        """The tokens that `work` finds in a unit by the size of its texts; `what` tells works apart."""
        found = self._known.get(key := (what, id(unit)))
        if found is None:
            found = self._known[key] = unit, work(unit, self.base)  # with the unit, so that nothing else gets its id
        return ceil(found[1] * self._scale())


_FRAMING = 5


def unit_size(unit: Message | Step, size: Callable[[str], int]) -> int:
    """About how many tokens a unit takes in a request."""
    if isinstance(size, Sizer):
        return size.of(unit, "size", unit_size)
    match unit:
        case Interjection():
            return unit_size(unit.message, size)
        case Message():
            return _FRAMING + _content_size(unit.content, size) + size(unit.extra)
        case Said():
            return _FRAMING + _content_size(unit.content, size) + size(unit.thinking or "")
        case ToolCycle():
            calls = sum(size(call.name) + size(call.arguments) for call in unit.calls)
            results = sum(_FRAMING + _content_size(result.content, size) for result in unit.results)
            return _FRAMING + _content_size(unit.content, size) + size(unit.thinking or "") + calls + results


def _content_size(content: Content, size: Callable[[str], int]) -> int:
    media = [part for part in content if part.kind != "text"] if isinstance(content, tuple) else []
    return size(plain(content)) + sum(MEDIA_TOKENS[medium(part.kind)] for part in media if not part.text)


def history_size(history: History, size: Callable[[str], int]) -> int:
    """About how many tokens a history takes in a request."""
    lead = size(render(history.checkpoint)) if history.checkpoint else 0
    system = sum(unit_size(message, size) for message in history.system)
    return lead + system + sum(unit_size(unit, size) for _, unit in history.units())


def unseen(history: History, kept: int, size: Callable[[str], int]) -> int:
    """About how many messages a model did not see of a history that a server cut to `kept` tokens.

    Servers keep the system's words, and the end.
    """
    room = kept - sum(unit_size(message, size) for message in history.system)
    missed = 0
    for _, unit in reversed([*history.units()]):
        room -= unit_size(unit, size)
        missed += (1 + (len(unit.results) if isinstance(unit, ToolCycle) else 0)) if room < 0 else 0
    return missed
