"""What requests say beside the conversation: at the end of one request each, and never stored."""

from __future__ import annotations

from typing import TYPE_CHECKING

from localctx.core.accounting import Count
from localctx.core.checkpoint import summary_cap
from localctx.core.nudges import CRITICAL, pressure, resumed
from localctx.core.work import preamble

if TYPE_CHECKING:
    from localctx.app.compaction import Engine

__all__ = ["Nudges"]

_MOST_RECOVERED = 2_000
"""The tokens of what a resumed run reads first (seed)."""


class Nudges:
    """What the next request of one engine's session says beside it. `steps` is what is to be said of the turn's steps."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._recovered = self._recover() if engine.session.history.messages() else ""
        self.steps = ""

    def due(self, used: Count, room: int) -> str:
        """What there is to say after `used` tokens; nothing that takes more than `room`."""
        said = list[str]()
        for part in filter(None, (self._recovered, self._of_the_window(used), self.steps)):
            takes = self.weight(part).upper
            if takes <= room:
                said.append(part)
                room -= takes
        return "\n\n".join(said)

    def weight(self, nudge: str) -> Count:
        """What a nudge takes in a request, with what joins it to the words before it."""
        return self._engine.meter.text(f"\n\n{nudge}") if nudge else Count(0, 0, "")

    def told(self, nudge: str) -> None:
        """Notes that a request with this nudge was answered: what it said is not said again."""
        self._recovered = "" if self._recovered in nudge else self._recovered
        self._engine.compacted = False

    def _recover(self) -> str:
        """What a resumed run reads with its first request: the work state, as claims."""
        most = min(summary_cap(self._engine.budget.window), _MOST_RECOVERED)
        return preamble(self._engine.session.history.work, most, self._engine.meter.size)

    def _of_the_window(self, used: Count) -> str:
        """What a model with tools is told of its window: that it was compacted, or how full it is."""
        engine, budget, policy = self._engine, self._engine.budget, self._engine.policy
        if not engine.meter.tools or not policy.rungs:
            return ""
        critical = min(CRITICAL, budget.prompt / budget.window)
        if engine.compacted:
            return resumed(used.tokens, budget.window, engine.session.history, critical=critical)
        return pressure(used.tokens, budget.window, policy.compact, warning=policy.warn, critical=critical)
