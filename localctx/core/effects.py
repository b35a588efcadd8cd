"""What a rung, or the user, does to a history, as data: what changes (stub texts, a cut, a checkpoint), never the parameters that led to it.

So a replay does not depend on the constants of the day.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypeAlias

from localctx.core.messages import Checkpoint, History, Step, ToolCycle

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["Cleared", "Compacted", "Effect", "Stub", "Withdrawn", "apply", "stubbed"]


@dataclass(frozen=True, slots=True)
class Stub:
    """What stands in a cleared place: of the result on line `seq`, or of the arguments of `call_id` in that cycle."""

    seq: int
    text: str
    call_id: str | None = None


@dataclass(frozen=True, slots=True)
class Cleared:
    """Old bodies were replaced by stubs."""

    stubs: tuple[Stub, ...]


@dataclass(frozen=True, slots=True)
class Compacted:
    """All that ends at or before line `checkpoint.through` is now the checkpoint."""

    checkpoint: Checkpoint


@dataclass(frozen=True, slots=True)
class Withdrawn:
    """What came from line `since` on was taken back; it stays in the journal."""

    since: int


Effect: TypeAlias = Cleared | Compacted | Withdrawn


def apply(history: History, effect: Effect) -> History:
    """The history after an effect: the one way in which a rung changes anything, live and in a replay."""
    match effect:
        case Compacted(checkpoint):
            return replace(history.split(checkpoint.through)[1], checkpoint=checkpoint)
        case Withdrawn(since):
            return history.before(since)
        case Cleared(stubs):
            texts = {(stub.seq, stub.call_id): stub.text for stub in stubs}
            turns = (replace(t, steps=tuple(stubbed(s, texts) for s in t.steps)) for t in history.turns)
            return replace(history, turns=tuple(turns))


def stubbed(step: Step, texts: Mapping[tuple[int, str | None], str]) -> Step:
    """A step with stubs in the cleared places: by its line for a result, by line and call for arguments."""
    if not isinstance(step, ToolCycle):
        return step
    results = tuple(
        replace(r, content=texts[r.seq, None], cleared=True) if (r.seq, None) in texts else r for r in step.results
    )
    calls = tuple(replace(c, arguments=texts.get((step.seq, c.id), c.arguments)) for c in step.calls)
    return replace(step, results=results, calls=calls)
