"""Run them by `python -m benchmarks.micro --compare`; they are no part of the tests."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from benchmarks.compaction_deciding import long_session
from localctx.core.accounting import Usage
from localctx.core.checkpoint import capped, render, with_notes
from localctx.core.cost import Speeds, learned
from localctx.core.journal import project
from localctx.core.ladder import POLICIES, checkpoint_at, compaction_cut, next_rung, standing
from localctx.core.outgoing import outgoing
from localctx.core.overflow import classify
from localctx.core.results import shown
from localctx.core.sizes import Sizer, history_size
from localctx.core.transcript import parse
from localctx.core.window import Budget, Reading, Source, reconcile
from localctx.tokenizers.estimate import ClassEstimate

if TYPE_CHECKING:
    from pytest_benchmark.fixture import BenchmarkFixture

    from localctx.app.session import Session

_MESSAGES = 1_000
_LADDER = POLICIES["ladder"]


@pytest.fixture(scope="module")
def session() -> Session:
    """A thousand messages: questions, calls with their results, answers."""
    return long_session(_MESSAGES)


@pytest.fixture(scope="module")
def size() -> Sizer:
    """The size of a text by the estimate, remembered as in a run."""
    return Sizer(ClassEstimate().size, lambda: 1.0, {})


def test_reference(benchmark: BenchmarkFixture) -> None:
    """What the others are shares of: a JSON document of a thousand rows, written and read by the standard library."""
    rows = [{"number": number, "name": f"row {number}", "values": [number, number / 7]} for number in range(1_000)]
    assert benchmark(lambda: json.loads(json.dumps(rows))) == rows


def test_reconcile(benchmark: BenchmarkFixture) -> None:
    readings = [Reading(source, 4_096 + number, "somewhere") for number, source in enumerate(Source)]
    assert benchmark(reconcile, readings, ceiling=8_192).tokens


def test_parse(benchmark: BenchmarkFixture, session: Session) -> None:
    messages = outgoing(session.history)
    assert benchmark(parse, messages).history.messages() == _MESSAGES


def test_outgoing(benchmark: BenchmarkFixture, session: Session) -> None:
    assert len(benchmark(outgoing, session.history)) == _MESSAGES


def test_project(benchmark: BenchmarkFixture, session: Session) -> None:
    entries = list(session.journal.entries())
    assert benchmark(project, entries).messages() == _MESSAGES


def test_next_rung(benchmark: BenchmarkFixture, session: Session, size: Sizer) -> None:
    history, used = session.history, history_size(session.history, size)
    budget = Budget.of(int(used / 0.82))
    assert benchmark(lambda: next_rung(standing(history, used, budget, _LADDER, size), budget, _LADDER, frozenset()))


def test_checkpoint(benchmark: BenchmarkFixture, session: Session, size: Sizer) -> None:
    """The machine's half of a checkpoint, the notes merged into it, its caps, and its text."""
    history, used = session.history, history_size(session.history, size)
    budget = Budget.of(int(used / 0.82))
    cut = compaction_cut(history, budget, _LADDER, size)
    notes = {"goal": ("Read the harbour book.",), "covered": tuple(f"File {number} was read." for number in range(40))}

    def merged() -> str:
        machine = checkpoint_at(history, cut or 0, budget, size)
        return render(capped(with_notes(machine, notes, 2_000, size, history.work), 2_000, size))

    assert "harbour" in benchmark(merged)


def test_shown(benchmark: BenchmarkFixture) -> None:
    body = "\n".join(f"line {number} of a long listing" for number in range(5_000))
    assert "line 0" in benchmark(shown, "bash", body, 500, lambda text: len(text) // 4, seq=1)


def test_classify(benchmark: BenchmarkFixture) -> None:
    text = json.dumps(
        {"error": {"code": 400, "message": "the request exceeds the available context size (4096 tokens)"}}
    )
    assert benchmark(classify, 400, text)


def test_learned(benchmark: BenchmarkFixture) -> None:
    usage = Usage(1_000, 100, 500, 2.0, 3.0)
    assert benchmark(learned, Speeds(300.0, 30.0), usage, 600).prefill
