"""The history that a model will read: a tree of turns and steps, never a flat list.

A `Turn` is what a user opened and the ordered steps that followed. Tool results live inside the cycle of the call
that asked for them, so a result without its call cannot be written down, and a cut between steps never splits a pair.
Each leaf carries `seq`, the number of the journal line that brought it; a history lists its leaves by rising `seq`.
`extra` holds, as JSON text, the fields of the wire message that have no place of their own, so that nothing is lost.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from itertools import takewhile
from typing import TYPE_CHECKING, TypeAlias

from localctx.core.work import WorkState

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = [
    "Checkpoint",
    "Content",
    "Facts",
    "Growing",
    "History",
    "Interjection",
    "Item",
    "Leaf",
    "Mark",
    "Message",
    "Part",
    "Said",
    "Step",
    "ToolCall",
    "ToolCycle",
    "ToolResult",
    "Turn",
    "Words",
    "end_of",
    "plain",
]


@dataclass(frozen=True, slots=True)
class Part:
    """One typed part of a content: its `kind`, its `text` if it has one, and `raw`, the wire's JSON, unless it is plain text."""

    kind: str
    text: str = ""
    raw: str = ""


Content: TypeAlias = str | tuple[Part, ...] | None


def plain(content: Content) -> str:
    """The text of a content; a part that is not text stands as its kind in brackets."""
    if content is None or isinstance(content, str):
        return content or ""
    return "\n".join(part.text or f"[{part.kind}]" for part in content)


@dataclass(frozen=True, slots=True)
class Message:
    """Words that are not the model's: of the user, the system, a developer, or of a role that nobody knows."""

    role: str
    content: Content
    extra: str = ""
    seq: int = 0


@dataclass(frozen=True, slots=True)
class ToolCall:
    """One call that the model made; `arguments` is JSON text as the model wrote it, perhaps malformed."""

    id: str
    name: str
    arguments: str
    extra: str = ""


@dataclass(frozen=True, slots=True)
class ToolResult:
    """What a tool answered. `cleared`: the body was replaced by a stub and lives in the journal only."""

    call_id: str
    content: Content
    extra: str = ""
    seq: int = 0
    cleared: bool = False


@dataclass(frozen=True, slots=True)
class ToolCycle:
    """The calls of one assistant message with their results, in the order in which those came."""

    content: Content
    calls: tuple[ToolCall, ...]
    results: tuple[ToolResult, ...] = ()
    thinking: str | None = None
    extra: str = ""
    seq: int = 0

    def answered(self, result: ToolResult) -> ToolCycle:
        """The cycle with one result more."""
        results = (*self.results, result)
        return ToolCycle(self.content, self.calls, results, self.thinking, self.extra, self.seq)

    @property
    def pending(self) -> tuple[ToolCall, ...]:
        """The calls that have no result yet."""
        answered = {result.call_id for result in self.results}
        return tuple(call for call in self.calls if call.id not in answered)


@dataclass(frozen=True, slots=True)
class Said:
    """Text of the model without calls; not `complete` when it was interrupted."""

    content: Content
    thinking: str | None = None
    complete: bool = True
    extra: str = ""
    seq: int = 0


@dataclass(frozen=True, slots=True)
class Interjection:
    """Words in the middle of a turn."""

    message: Message

    @property
    def seq(self) -> int:
        """The journal line of its message."""
        return self.message.seq


Step: TypeAlias = ToolCycle | Said | Interjection
Leaf: TypeAlias = Message | Said | ToolCycle | ToolResult
Item: TypeAlias = Leaf | Interjection


def end_of(step: Step | Message) -> int:
    """The last `seq` inside a step or a message."""
    if isinstance(step, ToolCycle) and step.results:
        return step.results[-1].seq
    return step.seq


@dataclass(frozen=True, slots=True)
class Turn:
    """One or more opening messages of the user (none where a history begins in the middle) and what followed."""

    opening: tuple[Message, ...] = ()
    steps: tuple[Step, ...] = ()


@dataclass(frozen=True, slots=True)
class Words:
    """A user's message kept word for word (or by head and tail, where it is long), and the journal line it came from."""

    seq: int
    text: str


@dataclass(frozen=True, slots=True)
class Facts:
    """What the tool calls themselves say, in the order in which it was first seen."""

    read: tuple[str, ...] = ()
    modified: tuple[str, ...] = ()
    commands: tuple[str, ...] = ()
    sources: tuple[str, ...] = ()
    errors: tuple[str, ...] = ()
    last_action: str = ""


@dataclass(frozen=True, slots=True)
class Mark:
    """Where an earlier checkpoint ended: at journal line `through`, with so many of each list of facts, in their order."""

    through: int
    facts: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """Stands for everything up to journal line `through`. `author` is `model`, or `machine` where no model wrote notes.

    `words` are the user's, the first task first; `unsaid` counts those that found no room. `work` is the work state as
    it was. `shed` counts the notes that found no room. `marks` are of the earlier checkpoints whose words and facts all
    still stand: each of them is read as it was, with what came since behind it.
    """

    through: int
    author: str
    sections: tuple[tuple[str, tuple[str, ...]], ...] = ()
    facts: Facts = Facts()
    words: tuple[Words, ...] = ()
    unsaid: int = 0
    work: str = ""
    shed: int = 0
    marks: tuple[Mark, ...] = ()


_NO_WORK = WorkState()


@dataclass(frozen=True, slots=True)
class History:
    """The system's words, an optional checkpoint that stands for older turns, the turns, and where the work stands."""

    system: tuple[Message, ...] = ()
    checkpoint: Checkpoint | None = None
    turns: tuple[Turn, ...] = ()
    work: WorkState = _NO_WORK

    def add(self, item: Item) -> History:
        """The history with one item more, placed where it belongs; every item has a place."""
        growing = Growing(self)
        growing.add(item)
        return growing.history()

    def units(self) -> Iterator[tuple[int, Message | Step]]:
        """Each opening message and each step in order, with the index of its turn: a cut may fall between any two."""
        for index, turn in enumerate(self.turns):
            for unit in (*turn.opening, *turn.steps):
                yield index, unit

    @property
    def last_seq(self) -> int:
        """The `seq` of the newest leaf of a turn; 0 where there is none."""
        return next((end_of(unit) for unit in self.newest_first()), 0)

    def since(self, seq: int) -> list[Leaf]:
        """The leaves of turns that came after line `seq`, in order; costs what is new, not what there is.

        A tool cycle stands for its calls alone: its results follow it, each on its own.
        """
        found = list[Leaf]()
        for unit in takewhile(lambda unit: end_of(unit) > seq, self.newest_first()):
            leaf = unit.message if isinstance(unit, Interjection) else unit
            results = reversed(leaf.results) if isinstance(leaf, ToolCycle) else ()
            found += [each for each in (*results, leaf) if each.seq > seq]
        return found[::-1]

    def newest_first(self) -> Iterator[Message | Step]:
        """Each step and each opening message, from the end."""
        for turn in reversed(self.turns):
            yield from reversed(turn.steps)
            yield from reversed(turn.opening)

    def messages(self) -> int:
        """How many messages the wire would carry, the checkpoint left out."""
        inside = sum(1 + (len(unit.results) if isinstance(unit, ToolCycle) else 0) for _, unit in self.units())
        return len(self.system) + inside

    def split(self, cut: int) -> tuple[History, History]:
        """What ends at or before `cut`, and the rest; the checkpoint goes with the older part, the system with both."""
        older = tuple(kept for turn in self.turns if (kept := _filtered(turn, cut, older=True)) is not None)
        newer = tuple(kept for turn in self.turns if (kept := _filtered(turn, cut, older=False)) is not None)
        return replace(self, turns=older), replace(self, checkpoint=None, turns=newer)

    def before(self, seq: int) -> History:
        """The history without the items from `seq` on."""
        turns = tuple(kept for turn in self.turns if (kept := _truncated(turn, seq)) is not None)
        return replace(self, system=tuple(m for m in self.system if m.seq < seq), turns=turns)


class Growing:
    """A history that items are added to, each where it belongs; what is there already is not copied for it."""

    def __init__(self, history: History = History()) -> None:
        last = history.turns[-1] if history.turns else Turn()
        self._fixed, self._over = replace(history, turns=()), list(history.turns[:-1])
        self._opening, self._steps = list(last.opening), list(last.steps)

    def add(self, item: Item) -> None:
        """Adds an item; every item has a place."""
        match item:
            case Message(role="user"):
                self._open(item)
            case Message(role="system" | "developer") if self._is_blank():
                self._fixed = replace(self._fixed, system=(*self._fixed.system, item))
            case Message():
                self._steps.append(Interjection(item))
            case ToolResult():
                self._answer(item)
            case _:
                self._steps.append(item)

    @property
    def newest(self) -> Step | None:
        """The last step of the turn that is not over."""
        return self._steps[-1] if self._steps else None

    def history(self) -> History:
        """What it has grown to."""
        last = Turn(tuple(self._opening), tuple(self._steps))
        return replace(self._fixed, turns=(*self._over, *([last] if last != Turn() else [])))

    def _is_blank(self) -> bool:
        return not (self._over or self._opening or self._steps or self._fixed.checkpoint)

    def _open(self, message: Message) -> None:
        if self._steps:
            self._over.append(Turn(tuple(self._opening), tuple(self._steps)))
            self._opening, self._steps = [], []
        self._opening.append(message)

    def _answer(self, result: ToolResult) -> None:
        cycle = self.newest
        if isinstance(cycle, ToolCycle) and result.call_id in {call.id for call in cycle.pending}:
            self._steps[-1] = cycle.answered(result)
        else:
            self._steps.append(Interjection(Message("tool", result.content, _with_id(result), result.seq)))


def _with_id(result: ToolResult) -> str:
    """The extra fields of a result that answers no open call, its id among them."""
    return json.dumps({"tool_call_id": result.call_id, **json.loads(result.extra or "{}")})


def _filtered(turn: Turn, cut: int, *, older: bool) -> Turn | None:
    opening = tuple(message for message in turn.opening if (message.seq <= cut) is older)
    steps = tuple(step for step in turn.steps if (end_of(step) <= cut) is older)
    return Turn(opening, steps) if opening or steps else None


def _truncated(turn: Turn, seq: int) -> Turn | None:
    opening = tuple(message for message in turn.opening if message.seq < seq)
    steps = tuple(_shortened(step, seq) for step in turn.steps if step.seq < seq)
    return Turn(opening, steps) if opening or steps else None


def _shortened(step: Step, seq: int) -> Step:
    if isinstance(step, ToolCycle):
        return replace(step, results=tuple(result for result in step.results if result.seq < seq))
    return step
