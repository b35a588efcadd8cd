"""What counting costs: a turn in a short and in a long history."""

from __future__ import annotations

import statistics
from time import perf_counter
from typing import TYPE_CHECKING

from benchmarks.counting_errors import Silent
from localctx.app.bench.corpus import sample
from localctx.app.meter import Meter
from localctx.core.messages import History, Message, Said
from localctx.tokenizers.estimate import ClassEstimate

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["turns"]


def turns(*, rounds: int) -> Iterator[dict[str, object]]:
    """Microseconds that a message more costs, and what is left when the tokenizing of its text is taken off."""
    for messages in (10, 100, 1_000, 10_000):
        history = _grown(messages)
        counter = ClassEstimate()
        meter = Meter(Silent(), counter)
        meter.rough(history)
        meter.measured(1_000, messages)
        costs, beyond = list[float](), list[float]()
        for turn in range(rounds):
            text = f"{turn} {sample('english', 400, turn)}"
            started = perf_counter()
            counter.text(text)
            tokenized = perf_counter() - started
            history = history.add(Message("user", text, seq=messages + turn + 1))
            started = perf_counter()
            meter.rough(history)
            added = perf_counter() - started
            costs.append(tokenized + added)
            beyond.append(added)
        yield {
            "messages before": f"{messages:,}",
            "a message more, us": statistics.median(costs) * 1e6,
            "beyond tokenizing it, us": statistics.median(beyond) * 1e6,
        }


def _grown(messages: int) -> History:
    history = History()
    for seq in range(1, messages + 1):
        text = f"message {seq} of a long conversation about nothing in particular"
        history = history.add(Message("user", text, seq=seq) if seq % 2 else Said(text, seq=seq))
    return history
