"""Who grants what a model wishes to do: the user's flag, the user's rules, or the person who is asked."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, TypeAlias

from localctx.app.tools.place import visible
from localctx.core.approval import COMMAND, Verdict, Wish
from localctx.core.events import Notice
from localctx.core.secrets import masked

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from localctx.core.approval import Rule
    from localctx.core.events import Event
    from localctx.ports import Approval

__all__ = ["Answer", "Approver", "Ask", "Reply", "permitted"]


class Reply(Enum):
    """What a person says to a wish."""

    YES = "yes"
    ALWAYS = "always"
    """Yes, and the same again without being asked, in this run."""
    NO = "no"


@dataclass(frozen=True, slots=True)
class Answer:
    """A person's reply; a no may have a reason, which the model is told."""

    reply: Reply
    reason: str = ""


Ask: TypeAlias = "Callable[[Wish], Awaitable[Answer]]"


async def permitted(approval: Approval, wish: Wish) -> None:
    """Raises `ValueError`, worded for the model, where a wish is not granted."""
    verdict = await approval.of(wish)
    if not verdict.granted:
        raise ValueError(verdict.reason)


@dataclass(slots=True)
class Approver:
    """Grants by rules, by `--yes` (`yes`), by what was said before, and else asks. Nothing of it outlives the run.

    `--yes` grants no look into files that may hold secrets: who wants that says so in a rule.
    """

    emit: Callable[[Event], None]
    rules: Sequence[Rule] = ()
    yes: bool = False
    ask: Ask | None = None
    _granted: set[tuple[str, str]] = field(default_factory=set)
    _noticed: bool = False

    async def of(self, wish: Wish) -> Verdict:
        """Whether a wish is granted; waits for a person where one is to be asked."""
        if self._is_granted(wish):
            return Verdict(granted=True)
        if self.ask is None:
            return self._refused(wish)
        said = await self.ask(wish)
        if said.reply is Reply.NO:
            reason = f": {said.reason}" if said.reason else ""
            return Verdict(granted=False, reason=f"the user said no{reason}; do not try the same again")
        if said.reply is Reply.ALWAYS or wish.tool == _BY_HOST:
            self._granted.add((wish.tool, wish.subject))
        return Verdict(granted=True)

    def _is_granted(self, wish: Wish) -> bool:
        yes = self.yes and wish.tool != _OF_SECRETS
        return yes or (wish.tool, wish.subject) in self._granted or any(rule.allows(wish) for rule in self.rules)

    def _refused(self, wish: Wish) -> Verdict:
        """Nobody can be asked: the model is told, and once the person, too."""
        allow = f'allow = ["{wish.tool}:..."] in your localctx.toml'
        allow += (
            " (* there stands for none of ; & | < > ( ) { } ! $, nor for options such as -c, -o and --exec)"
            if wish.tool == COMMAND
            else ""
        )
        if not self._noticed:
            self._noticed = True
            subject = visible(masked(wish.subject))
            subject = subject if len(subject) <= _MOST_TOLD else f"{subject[:_MOST_TOLD]}..."
            flag = "" if wish.tool == _OF_SECRETS else "--yes or "
            self.emit(
                Notice(
                    "not-approved",
                    f"{wish.tool} {subject} was refused: nobody can be asked here; {flag}{allow} lets it",
                )
            )
        return Verdict(granted=False, reason="the user has not allowed this, and cannot be asked now; do without it")


_MOST_TOLD = 80
"""The characters of a subject that a notice holds."""

_BY_HOST, _OF_SECRETS = "fetch_url", "read_file"
"""The tool of which a yes lasts for the run, and the one that asks only for files that may hold secrets."""
