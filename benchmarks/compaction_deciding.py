"""What deciding costs: which rung is due in a short and in a long history, and settling a turn in which none is."""

from __future__ import annotations

from time import process_time
from typing import TYPE_CHECKING

import anyio

from benchmarks.counting_errors import Silent
from localctx.app.compaction import Engine
from localctx.app.meter import Meter
from localctx.app.session import Session
from localctx.core import journal as lines
from localctx.core.ladder import POLICIES, Rung, next_rung, standing
from localctx.core.sizes import Sizer, history_size
from localctx.core.window import Budget
from localctx.stores.journal import MemoryJournal
from localctx.tokenizers.estimate import ClassEstimate

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from localctx.core.messages import History

__all__ = ["decided", "long_session"]

_POLICY = POLICIES["ladder"]

_USED = {Rung.CLEAR: 0.6, Rung.COMPACT: 0.82}
"""The shares of the window at which each is due."""


def decided(*, rounds: int, sizes: tuple[int, ...] = (100, 1_000, 10_000)) -> Iterator[dict[str, object]]:
    """Milliseconds of this process: of a decision where clearing is due and where compacting is, and of a quiet turn."""
    for messages in sizes:
        session = long_session(messages)
        row: dict[str, object] = {"messages": f"{messages:,}"}
        for rung in _USED:
            row[f"{rung} due, ms"] = _cost(_decision(session.history, rung), rounds)
        yield row | {"quiet turn, ms": anyio.run(_quiet, session, rounds)}


def long_session(messages: int) -> Session:
    """A session of so many messages: questions, calls with their results, answers."""
    journal = MemoryJournal()
    for number in range(messages // 4):
        call = {"name": "read_file", "arguments": f'{{"path": "{number}.txt"}}'}
        for message in (
            {"role": "user", "content": f"What does file {number} say about the harbour?"},
            {
                "role": "assistant",
                "content": None,
                "tool_calls": [{"id": f"c{number}", "type": "function", "function": call}],
            },
            {"role": "tool", "tool_call_id": f"c{number}", "content": f"line {number} of the harbour book\n" * 60},
            {"role": "assistant", "content": f"File {number} says that the harbour was full, and nothing else."},
        ):
            journal.append(*lines.message(message))
    return Session(journal)


def _decision(history: History, due: Rung) -> Callable[[], object]:
    """The decision about a history for which this rung is due, with sizes remembered as in a run.

    Clearing is as good as taken where compacting is due, but what it would free is worked out all the same.
    """
    size = Sizer(ClassEstimate().size, lambda: 1.0, {})
    used = history_size(history, size)
    budget = Budget.of(int(used / _USED[due]))
    taken = frozenset(rung for rung in _USED if rung is not due)
    return lambda: next_rung(standing(history, used, budget, _POLICY, size), budget, _POLICY, taken)


def _cost(work: Callable[[], object], rounds: int) -> float:
    work()
    started = process_time()
    for _ in range(rounds):
        work()
    return (process_time() - started) / rounds * 1e3


async def _quiet(session: Session, rounds: int) -> float:
    """Settling after a message more, where the window is far from full."""
    meter = Meter(Silent(), ClassEstimate())
    window = 4 * meter.rough(session.history).tokens
    engine = Engine(session, None, meter, _POLICY, Budget.of(window), lambda _event: None)
    meter.measured(window // 4, session.history.last_seq)
    spent = 0.0
    for number in range(rounds):
        session.add({"role": "user", "content": f"And what about file {number}?"})
        started = process_time()
        await engine.settle()
        spent += process_time() - started
    return spent / rounds * 1e3
