"""Settling a saved conversation once, into one window: what each rung did to it, and what is left to send."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from localctx.app.compaction import Engine
from localctx.app.session import Session
from localctx.core.events import RungTaken
from localctx.core.filling import fills
from localctx.core.journal import message as line
from localctx.core.messages import Interjection, Message, ToolCycle, plain
from localctx.core.outgoing import defects, outgoing
from localctx.core.results import RESULTS_SHARE, share, shown
from localctx.core.transcript import parse
from localctx.errors import LocalctxError, Misuse

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from localctx.app.compaction import Helper
    from localctx.app.meter import Meter
    from localctx.core.accounting import Count
    from localctx.core.events import Event
    from localctx.core.formats import Conversation
    from localctx.core.ladder import Policy
    from localctx.core.messages import Content, History
    from localctx.core.outgoing import WireMessage
    from localctx.core.window import Budget
    from localctx.ports import Journal, Runtime

__all__ = ["Means", "Settled", "Sized", "compact"]


@dataclass(frozen=True, slots=True)
class Means:
    """What a conversation is settled with. Without `runtime` and `summarizer` no model is asked for a summary."""

    meter: Meter
    policy: Policy
    budget: Budget
    runtime: Runtime | None = None
    summarizer: Helper | None = None


@dataclass(frozen=True, slots=True)
class Sized:
    """A history with its count, its messages, and about how many tokens each kind of content takes."""

    count: Count
    messages: int
    fills: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Settled:
    """What became of a conversation, and the `messages` to send now.

    `shaped` results were longer than a run lets in. The sizes of `rungs` are counts of the whole history. Of the user's
    messages, `words_shortened` are kept by head and tail and `words_left_out` not at all; all others are there word for
    word.
    """

    before: Sized
    shaped: int
    rungs: tuple[RungTaken, ...]
    after: Sized
    words_shortened: int
    words_left_out: int
    fits: bool
    messages: tuple[WireMessage, ...]


async def compact(conversation: Conversation, journal: Journal, means: Means, emit: Callable[[Event], None]) -> Settled:
    """Settles a conversation once. `journal` is empty: message N goes on line N, by which stubs name it.

    Raises `Misuse` where nobody but the system says anything, and what `Engine.settle` raises.
    """
    history = parse(conversation.messages).history
    if not history.turns:
        raise Misuse("nobody but the system speaks in it, so there is nothing to compact; name a conversation")
    means.meter.tools = conversation.tools
    before = _sized(history, await means.meter.exact(outgoing(history)), means.meter)
    shaped = dict(_shaped(history, int(means.budget.prompt * RESULTS_SHARE), means.meter.size))
    for number, message in enumerate(conversation.messages, 1):
        journal.append(*line({**message, "content": shaped[number]} if number in shaped else message))
    rungs = list[RungTaken]()

    def told(event: Event) -> None:
        if isinstance(event, RungTaken):
            rungs.append(event)
        emit(event)

    session = Session(journal, emit)
    engine = Engine(session, means.runtime, means.meter, means.policy, means.budget, told, means.summarizer)
    used = await engine.settle(None if shaped else before.count)
    messages = outgoing(session.history)
    if found := defects(messages):
        raise LocalctxError(f"this is a defect of localctx: the list to send is not valid ({'; '.join(found)})")
    after = _sized(session.history, used, means.meter)
    cut, fits = _words_cut(history, session.history), used.upper <= means.budget.prompt
    return Settled(before, len(shaped), tuple(_counted(rungs, used)), after, *cut, fits, tuple(messages))


def _sized(history: History, count: Count, meter: Meter) -> Sized:
    return Sized(count, history.messages(), fills(history, meter.sizer(history, count)))


def _counted(rungs: list[RungTaken], last: Count) -> Iterator[RungTaken]:
    """The rungs, each with the count that was taken after it in place of what it was likely to leave."""
    after = [*(rung.tokens_before for rung in rungs[1:]), last.tokens]
    for rung, tokens in zip(rungs, after, strict=False):
        yield replace(rung, tokens_after=tokens)


def _shaped(history: History, room: int, size: Callable[[str], int]) -> Iterator[tuple[int, str]]:
    """The number of each result that is longer than a cycle of `room` tokens lets in, and its text as a run shapes it."""
    for _, unit in history.units():
        if isinstance(unit, ToolCycle):
            names = {call.id: call.name for call in unit.calls}
            each = share(room, [call.arguments for call in unit.calls], size)
            for result in unit.results:
                yield from _shortened(names[result.call_id], result.content, result.seq, each, size)
        elif isinstance(unit, Interjection) and unit.message.role == "tool":
            yield from _shortened("tool", unit.message.content, unit.seq, room, size)


def _shortened(
    tool: str, content: Content, seq: int, room: int, size: Callable[[str], int]
) -> Iterator[tuple[int, str]]:
    body = plain(content)
    if size(body) > room:
        yield seq, shown(tool, body, room, size, seq=seq)


def _words_cut(before: History, after: History) -> tuple[int, int]:
    """How many of the user's messages are kept by head and tail, and how many not at all."""
    if after.checkpoint is None:
        return 0, 0
    said = {unit.seq: plain(unit.content) for _, unit in before.units() if isinstance(unit, Message)}
    shortened = sum(words.text != said.get(words.seq, words.text) for words in after.checkpoint.words)
    return shortened, after.checkpoint.unsaid
