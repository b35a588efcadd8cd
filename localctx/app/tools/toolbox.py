"""The tools that a model is offered, called by what it wrote: whatever that is, it gets an answer."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from localctx.core.results import RETRIEVE
from localctx.core.stubs import named_by
from localctx.errors import LocalctxError
from localctx.ports import Outcome

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from localctx.core.messages import ToolCall
    from localctx.core.outgoing import WireMessage
    from localctx.ports import Tool

__all__ = ["Toolbox"]


class Toolbox:
    """Some tools, by their names."""

    def __init__(self, tools: Sequence[Tool] = ()) -> None:
        self._tools = {tool.name: tool for tool in tools}

    @property
    def schemas(self) -> list[WireMessage]:
        """What a request says of them."""
        return [tool.schema for tool in self._tools.values()]

    def sizes(self, size: Callable[[str], int]) -> dict[str, int]:
        """What each schema takes in a request, in tokens."""
        return {name: size(json.dumps(tool.schema)) for name, tool in self._tools.items()}

    async def run(self, call: ToolCall) -> Outcome:
        """What a call comes to; a mistake of the model's is answered with an error that says what would be right."""
        if (line := named_by(call.arguments)) is not None:
            return Outcome(
                f"error: the arguments hold a note of cleared text; {RETRIEVE} with id {line} gives the text"
            )
        tool = self._tools.get(call.name)
        if tool is None:
            return Outcome(f"error: there is no tool {call.name[:60]!r}; there are {', '.join(self._tools) or 'none'}")
        try:
            return await tool.run(_arguments(call.arguments))
        except ValueError as error:
            return Outcome(f"error: {error}")
        except LocalctxError:
            raise
        except Exception as error:  # noqa: BLE001  a tool is somebody else's: whatever it does, the turn goes on
            return Outcome(f"error: the tool failed ({type(error).__name__}: {error})")


def _arguments(text: str) -> Mapping[str, object]:
    """The arguments of a call. Raises `ValueError`, worded for a model."""
    try:
        arguments = json.loads(text or "{}")
    except (ValueError, RecursionError) as error:
        raise ValueError(f"the arguments are no JSON ({error}); call again with a JSON object") from error
    if not isinstance(arguments, dict):
        raise ValueError(f"the arguments are {type(arguments).__name__}; call again with a JSON object")  # noqa: TRY004  a model's mistake
    return arguments
