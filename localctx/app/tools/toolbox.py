"""The tools that a model is offered, called by what it wrote: whatever that is, it gets an answer.

Where there is no room for all of their schemas, some are offered only once `search_tools` was asked for them, or one of
them was called. What is offered once stays, and comes last, so that what is before it stays the same.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from localctx.core.arguments import described, fitted
from localctx.core.offering import MOST_OF_WINDOW, Plan, planned
from localctx.core.results import RETRIEVE, SEARCH_TOOLS
from localctx.core.secrets import masked
from localctx.core.stubs import named_by
from localctx.errors import LocalctxError
from localctx.ports import Outcome

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from localctx.core.messages import ToolCall
    from localctx.core.outgoing import WireMessage
    from localctx.ports import Tool

__all__ = ["Shelf", "Toolbox"]


@dataclass(frozen=True, slots=True)
class Shelf:
    """Where a tool stands: `offered`, `deferred` or `left out`, and the tokens of its schema."""

    name: str
    tokens: int
    state: str


class Toolbox:
    """Some tools, by their names, of which those of a plan are offered; without a plan, all.

    `size` gives the tokens of a text, `room` those that all schemas may take. The `hidden` texts are masked in all results.
    """

    def __init__(
        self,
        tools: Sequence[Tool] = (),
        plan: Plan | None = None,
        *,
        size: Callable[[str], int] = lambda text: len(text) // 4,
        room: float = float("inf"),
        hidden: Sequence[str] = (),
    ) -> None:
        self._tools = {tool.name: tool for tool in tools}
        self._size, self._room, self._hidden = size, room, hidden
        plan = plan or Plan(tuple(self._tools))
        self._offered, self._deferred = list(plan.now), list(plan.deferred)
        if plan.deferred:
            search = SearchTools(self, plan.deferred)
            self._tools[search.name] = search
            self._offered.append(search.name)

    @classmethod
    def fitting(
        cls,
        tools: Sequence[Tool],
        window: int,
        size: Callable[[str], int],
        *,
        insisted: bool = False,
        hidden: Sequence[str] = (),
    ) -> Toolbox:
        """The tools, the most useful first, as many as a window of so many tokens has room for."""
        sizes = {tool.name: _weight(tool, size) for tool in tools}
        search = _weight(SearchTools(cls(), tuple(sizes)), size)
        plan = planned(sizes, window, search, insisted=insisted)
        room = float("inf") if insisted else window * MOST_OF_WINDOW
        return cls(tools, plan, size=size, room=room, hidden=hidden)

    @property
    def schemas(self) -> list[WireMessage]:
        """What a request says of those that are offered."""
        return [self._tools[name].schema for name in self._offered]

    @property
    def shelves(self) -> list[Shelf]:
        """Every tool, those that are offered first."""
        names = [*self._offered, *self._deferred]
        names += [name for name in self._tools if name not in names]
        return [Shelf(name, _weight(self._tools[name], self._size), self._state(name)) for name in names]

    def _state(self, name: str) -> str:
        return "offered" if name in self._offered else "deferred" if name in self._deferred else "left out"

    def waiting(self) -> list[Tool]:
        """The tools that are offered once they are asked for."""
        return [self._tools[name] for name in self._deferred]

    def offer(self, name: str) -> bool:
        """Offers a deferred tool from the next request on; whether there is room for it, or it is offered already."""
        if name in self._deferred:
            taken = sum(_weight(self._tools[each], self._size) for each in self._offered)
            if taken + _weight(self._tools[name], self._size) > self._room:
                return False
            self._deferred.remove(name)
            self._offered.append(name)
        return name in self._offered

    def sizes(self, size: Callable[[str], int]) -> dict[str, int]:
        """What each schema that is offered takes in a request, in tokens."""
        return {name: _weight(self._tools[name], size) for name in self._offered}

    async def run(self, call: ToolCall) -> Outcome:
        """What a call comes to; a mistake of the model's is answered with an error that says what would be right."""
        outcome = await self._run(call)
        return replace(outcome, text=masked(outcome.text, self._hidden))

    async def _run(self, call: ToolCall) -> Outcome:
        if (line := named_by(call.arguments)) is not None:
            return Outcome(
                f"error: the arguments hold a note of cleared text; {RETRIEVE} with id {line} gives the text"
            )
        tool = self._tools.get(call.name)
        if tool is None:
            return Outcome(f"error: there is no tool {call.name[:60]!r}; there are {', '.join(self._tools) or 'none'}")
        self.offer(call.name)
        try:
            arguments = fitted(tool.schema, call.arguments)
        except ValueError as error:
            return Outcome(f"error: {error}", malformed=True)
        try:
            return await tool.run(arguments)
        except ValueError as error:
            return Outcome(f"error: {error}")
        except LocalctxError:
            raise
        except Exception as error:  # noqa: BLE001  a tool is somebody else's: whatever it does, the turn goes on
            return Outcome(f"error: the tool failed ({type(error).__name__}: {error})")


@dataclass(frozen=True, slots=True)
class SearchTools:
    """Offers tools for which there was no room from the start; `names` are theirs."""

    toolbox: Toolbox
    names: tuple[str, ...]
    name = SEARCH_TOOLS

    @property
    def schema(self) -> WireMessage:
        """What a request says of it: the same whatever was found, so that nothing behind it moves."""
        about = f"Get more tools: {', '.join(self.names)}."
        return described(self.name, about, {"query": {"type": "string"}}, "query")

    async def run(self, arguments: Mapping[str, Any]) -> Outcome:
        """The tools that were found, from now on offered."""
        waiting = self.toolbox.waiting()
        if not (found := _best(waiting, re.findall(r"[a-z]{3,}", arguments["query"].lower()))):
            names = "; ".join(map(_said_of, waiting))
            return Outcome(f"no tool is described by these words; there are {names or 'no more'}")
        offered = {tool.name: self.toolbox.offer(tool.name) for tool in found}
        return Outcome(
            "\n".join(f"{_said_of(tool)}{'' if offered[tool.name] else ' (no room for it)'}" for tool in found)
        )


def _best(tools: Sequence[Tool], words: Sequence[str]) -> list[Tool]:
    """The tools that have most of these words in what is said of them; none where none has any."""
    scores = [sum(word in _said_of(tool).lower() for word in words) for tool in tools]
    best = max(scores, default=0)
    return [tool for tool, score in zip(tools, scores, strict=True) if score == best > 0]


def _said_of(tool: Tool) -> str:
    function: Any = tool.schema["function"]
    return f"{tool.name}: {function.get('description', '')}"


def _weight(tool: Tool, size: Callable[[str], int]) -> int:
    return size(json.dumps(tool.schema))
