"""The tools by which a model looks at its own window, and makes room in it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from localctx.core.arguments import described
from localctx.core.results import CONTEXT_INFO, RECALL, SUMMARIZE
from localctx.ports import Outcome

if TYPE_CHECKING:
    from collections.abc import Mapping

    from localctx.app.compaction import Engine
    from localctx.core.outgoing import WireMessage

__all__ = ["ContextInfo", "SummarizeContext"]

_ADVICE = ((50, "there is room"), (80, "keep results short"), (101, f"{SUMMARIZE}, or finish soon"))
"""What to do below these per cent of the window (seed)."""

_MOST_HINT = 500
"""The characters of what a summary is to note above all."""


@dataclass(frozen=True, slots=True)
class ContextInfo:
    """Says how full the window is."""

    engine: Engine
    name = CONTEXT_INFO

    @property
    def schema(self) -> WireMessage:
        """What a request says of it."""
        return described(self.name, "How full your context window is.", {})

    async def run(self, arguments: Mapping[str, object]) -> Outcome:  # noqa: ARG002  the port's signature
        """The tokens used, left, and kept for the reply, and what that calls for."""
        used, budget = await self.engine.measure(), self.engine.budget
        percent = used.tokens * 100 // budget.window
        advice = next(said for below, said in _ADVICE if percent < below or below > 100)  # noqa: PLR2004  per cent
        left = max(budget.window - used.tokens, 0)
        sizes = f"{used.tokens:,} of {budget.window:,} tokens used ({percent}%), {left:,} left"
        return Outcome(f"{sizes}, {budget.reserve:,} of them kept for your reply: {advice}")


@dataclass(frozen=True, slots=True)
class SummarizeContext:
    """Has older messages summarized before the next request."""

    engine: Engine
    name = SUMMARIZE

    @property
    def schema(self) -> WireMessage:
        """What a request says of it."""
        about = "Have older messages replaced by notes now, when they are no longer needed word for word."
        return described(self.name, about, {"keep": {"type": "string", "description": "what the notes must hold"}})

    async def run(self, arguments: Mapping[str, object]) -> Outcome:
        """Notes the wish; this answer is in the history before anything is summarized."""
        self.engine.wanted = str(arguments.get("keep") or "")[:_MOST_HINT]
        return Outcome(f"older messages are summarized before your next step; {RECALL} finds them then")
