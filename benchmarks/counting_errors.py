"""How far off the estimate is, before and after servers have reported; the seed's counter on the same texts beside it."""

from __future__ import annotations

import statistics
from dataclasses import dataclass, field
from random import Random
from typing import TYPE_CHECKING

from localctx.app.bench.corpus import GROUPS, sample
from localctx.app.meter import Meter
from localctx.core.messages import History, Message, Said
from localctx.core.outgoing import outgoing
from localctx.tokenizers.estimate import ClassEstimate, SeedRatio

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from localctx.core.accounting import Count
    from localctx.core.outgoing import WireMessage
    from localctx.ports import Tokenizer

__all__ = ["Silent", "calibrated", "uncalibrated"]

_TEMPLATE = 4
"""Tokens that the simulated template spends on a request and on each message."""


def uncalibrated(truths: Mapping[str, Tokenizer], *, size: int, seeds: int) -> Iterator[dict[str, object]]:
    """Single texts of each group against each vocabulary."""
    estimate, seed_ratio = ClassEstimate(), SeedRatio()
    for group, kinds in GROUPS.items():
        ours, theirs, inside = list[float](), list[float](), list[bool]()
        for text in (sample(kind, size, seed) for kind in kinds for seed in range(seeds)):
            count = estimate.prior.count(estimate.text(text), "")
            for truth in truths.values():
                tokens = truth.size(text)
                ours.append(count.tokens / tokens)
                theirs.append(seed_ratio.size(text) / tokens)
                inside.append(count.lower <= tokens <= count.upper)
        yield {
            "texts": group,
            "estimate": f"{min(ours):.2f} to {max(ours):.2f}",
            "inside the bound": f"{sum(inside) / len(inside):.1%}",
            "seed": f"{min(theirs):.2f} to {max(theirs):.2f}",
        }


@dataclass(slots=True)
class _Errors:
    shares: list[float] = field(default_factory=list)
    inside: int = 0

    def add(self, count: Count, tokens: int) -> None:
        self.shares.append(abs(count.tokens - tokens) / tokens)
        self.inside += count.lower <= tokens <= count.upper

    def row(self, name: str, counter: str, *, bounded: bool) -> dict[str, object]:
        ranked = sorted(self.shares)
        return {
            "vocabulary": name,
            "counter": counter,
            "requests": len(ranked),
            "median error": f"{statistics.median(ranked):.2%}",
            "99th percentile": f"{ranked[int(len(ranked) * 0.99)]:.1%}",
            "inside the bound": f"{self.inside / len(ranked):.1%}" if bounded else "states none",
        }


def calibrated(truths: Mapping[str, Tokenizer], *, count: int, seed: int = 0) -> Iterator[dict[str, object]]:
    """The prompt of each request of simulated sessions, once two were reported."""
    for name, truth in truths.items():
        ledger, scratch, seeds = _Errors(), _Errors(), _Errors()
        for session in _sessions(count, seed):
            _simulate(session, truth, ledger, scratch, seeds)
        yield ledger.row(name, "last report and what is new", bounded=True)
        yield scratch.row(name, "from scratch, calibrated", bounded=True)
        yield seeds.row(name, "seed", bounded=False)


def _sessions(count: int, seed: int) -> Iterator[list[tuple[str, str]]]:
    """Sessions of a person who writes one language, and pastes code, logs and data; (asked, answered) a turn."""
    random = Random(seed)  # noqa: S311  a sample, no secret
    pasted = [kind for group in ("code", "json", "hex", "logs", "other formats", "signs") for kind in GROUPS[group]]
    languages = [*GROUPS["other scripts"], *GROUPS["other latin"]]
    for _ in range(count):
        language = random.choice(["english", random.choice(languages)])
        session = []
        for _ in range(random.randrange(6, 20)):
            asked = sample(language, random.choice((60, 300, 1_000)), random.randrange(10**6))
            body = sample(random.choice(pasted), random.choice((200, 800, 3_000)), random.randrange(10**6))
            answered = sample(language, random.choice((60, 300, 1_000)), random.randrange(10**6))
            session.append((random.choice((asked, f"{asked}\n\n{body}")), answered))
        yield session


def _simulate(
    session: list[tuple[str, str]], truth: Tokenizer, ledger: _Errors, scratch: _Errors, seeds: _Errors
) -> None:
    meter, seed_ratio, history, tokens = Meter(Silent(), ClassEstimate()), SeedRatio(), History(), _TEMPLATE
    for turn, (asked, answered) in enumerate(session):
        seq = 2 * turn + 1
        history = history.add(Message("user", asked, seq=seq))
        tokens += truth.size(asked) + _TEMPLATE
        wire = outgoing(history)
        if turn > 1:
            ledger.add(meter.rough(history), tokens)
            scratch.add(meter.alone(wire), tokens)
            seeds.add(seed_ratio.request(wire), tokens)
        meter.rough(history)
        meter.measured(tokens, seq)
        seed_ratio.learn(wire, tokens)
        size = truth.size(answered)
        history = history.add(Said(answered, seq=seq + 1))
        meter.replied(answered, size, seq + 1)
        tokens += size + _TEMPLATE


class Silent:
    """A server that counts nothing: what is measured is what is known without it."""

    async def count(self, messages: Sequence[WireMessage], tools: Sequence[WireMessage] = ()) -> None:
        """Nothing."""
