"""What the rungs would cost for a history as it stands: which of them pays, and what a person is told of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from localctx.core.checkpoint import record, summary_cap, words_budget
from localctx.core.cost import Asked, Price, Speeds, explained, pays, price
from localctx.core.ladder import Rung, clear_gain, kept_tail, system_size, untouched
from localctx.core.messages import Message
from localctx.core.notes import INSTRUCTION
from localctx.core.sizes import unit_size

if TYPE_CHECKING:
    from collections.abc import Callable

    from localctx.core.ladder import Policy
    from localctx.core.messages import History
    from localctx.core.window import Budget

__all__ = ["Outlook"]


@dataclass(frozen=True, slots=True)
class Outlook:
    """A history of `used` tokens on a server of these speeds; `size` is that of a text, and agrees with the count.

    `asks`: whether a compaction would ask a model for a summary.
    """

    history: History
    used: int
    budget: Budget
    policy: Policy
    size: Callable[[str], int]
    speeds: Speeds
    asks: bool = True

    @property
    def clearing(self) -> Price:
        """The price of clearing now."""
        seen = self.history, self.budget, self.policy, self.size
        after = max(self.used - clear_gain(*seen), 0)
        return price(self.speeds, before=self.used, after=after, first_changed=min(untouched(*seen), self.used))

    @property
    def compaction(self) -> Price:
        """The price of a compaction in place, now or when it is due, whichever is later."""
        system, cap = system_size(self.history, self.size), summary_cap(self.budget.window)
        before = max(self.used, self.budget.due(self.policy.compact))
        tail = kept_tail(self.history, self.budget, self.policy, self.size)
        after = min(system + cap + self._words(words_budget(self.budget.window - system)) + tail, before)
        summary = Asked(before + self.size(INSTRUCTION), before, cap) if self.asks else Asked()
        stays = system + (self.size(record(self.history.checkpoint)) if self.history.checkpoint else 0)
        return price(self.speeds, before=before, after=after, first_changed=stays, summary=summary)

    def _words(self, most: int) -> int:
        """About the tokens of the user's words that a checkpoint would keep."""
        kept = sum(self.size(words.text) for words in self.history.checkpoint.words) if self.history.checkpoint else 0
        for unit in self.history.newest_first():
            if kept >= most:
                return most
            kept += unit_size(unit, self.size) if isinstance(unit, Message) else 0
        return kept

    @property
    def clearing_pays(self) -> bool:
        """Whether clearing now is cheaper than waiting for the compaction; a policy that asks for no gain clears anyway."""
        return not self.policy.clear_gain or pays(self.clearing, self.compaction)

    def predicted(self, rung: Rung) -> float | None:
        """The seconds that a rung is likely to cost, the next request's prefill among them; None where that is not known."""
        if rung is Rung.CLEAR:
            return self.clearing.seconds
        return self.compaction.seconds if rung is Rung.COMPACT else None

    def told(self) -> list[str]:
        """What the next rungs would do, a line each, for a person."""
        lines = list[str]()
        due = self.budget.due(self.policy.compact) / self.budget.window
        if Rung.CLEAR in self.policy.rungs and self.clearing.freed:
            lines.append(explained("clearing", self.clearing, until=None if self.clearing_pays else due))
        if Rung.COMPACT in self.policy.rungs:
            later = self.used < self.budget.due(self.policy.compact)
            lines.append(explained("compacting", self.compaction, due=due if later else None))
        return lines
