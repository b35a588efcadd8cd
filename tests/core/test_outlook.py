"""What the next rungs would do and cost."""

from __future__ import annotations

from dataclasses import replace

import pytest

from localctx.core.checkpoint import record
from localctx.core.cost import Speeds
from localctx.core.ladder import POLICIES, Rung, clear, freed
from localctx.core.messages import Checkpoint, History, Words
from localctx.core.outlook import Outlook
from localctx.core.sizes import history_size
from localctx.core.transcript import parse
from localctx.core.window import Budget

MEASURED = Speeds(prefill=100.0, decode=10.0)
NO_CACHE = Speeds(prefill=100.0, decode=10.0, reuses=0.0, rewinds=0.0)


def size(text: str) -> int:
    return -(-len(text) // 4)


def cycles(number: int, characters: int) -> History:
    """A turn of so many calls, each with a result of so many characters."""
    wire: list[object] = [{"role": "user", "content": "Read all of it."}]
    for each in range(number):
        call = {"id": f"c{each}", "type": "function", "function": {"name": "read_file", "arguments": "{}"}}
        wire += [{"role": "assistant", "content": None, "tool_calls": [call]}]
        wire += [{"role": "tool", "tool_call_id": f"c{each}", "content": "x" * characters}]
    return parse(wire).history


def outlook(speeds: Speeds = MEASURED, policy: str = "ladder", window: int = 16_384, number: int = 20) -> Outlook:
    history = cycles(number, 2_400)
    return Outlook(history, history_size(history, size), Budget.of(window), POLICIES[policy], size, speeds)


def test_clearing_is_priced_by_what_it_would_free() -> None:
    at = outlook()
    effect = clear(at.history, at.budget, at.policy, size)
    assert at.clearing.freed == freed(at.history, effect, size) > 0
    assert at.predicted(Rung.CLEAR) == at.clearing.seconds == at.clearing.prefilled / 100


def test_a_compaction_is_priced_as_when_it_is_due_and_reads_little_where_the_prefix_is_kept() -> None:
    at = outlook()
    kept, lost = at.compaction, replace(at, speeds=NO_CACHE).compaction
    assert kept.freed == lost.freed > at.budget.window // 3
    assert kept.prefilled < lost.prefilled // 2
    assert kept.written == lost.written > 0
    assert at.predicted(Rung.COMPACT) == pytest.approx(kept.prefilled / 100 + kept.written / 10)


def test_where_no_model_is_asked_a_compaction_writes_nothing_and_reads_what_it_moves() -> None:
    asking = outlook()
    alone = replace(asking, asks=False)
    assert alone.compaction.written == 0
    assert 0 < alone.compaction.prefilled < asking.compaction.prefilled
    assert alone.compaction.freed == asking.compaction.freed


def test_what_stands_of_a_checkpoint_is_not_read_again() -> None:
    at = replace(outlook(), asks=False)
    stands = Checkpoint(1, "machine", words=(Words(1, "Read all of it. " * 40),))
    behind = replace(at, history=replace(at.history, checkpoint=stands))
    words = size("Read all of it. " * 40)
    assert behind.compaction.prefilled == at.compaction.prefilled + words - size(record(stands))


def test_without_a_prefix_cache_clearing_always_pays_and_costs_nothing() -> None:
    at = outlook(NO_CACHE)
    assert at.clearing_pays
    assert at.clearing.seconds == 0
    assert at.clearing.saved == pytest.approx(at.clearing.freed / 100)


def test_where_the_prefix_is_kept_clearing_little_does_not_pay() -> None:
    assert not outlook(number=6).clearing_pays


def test_a_policy_that_asks_for_no_gain_clears_whatever_it_costs() -> None:
    assert outlook(policy="micro", number=6).clearing_pays


@pytest.mark.parametrize("rung", [Rung.WARN, Rung.TRIM])
def test_what_costs_nothing_that_could_be_known_is_not_predicted(rung: Rung) -> None:
    assert outlook().predicted(rung) is None


def test_nothing_is_predicted_in_seconds_before_a_speed_was_measured() -> None:
    at = outlook(Speeds())
    assert at.predicted(Rung.COMPACT) is None
    assert "s of prefill" not in "".join(at.told())


@pytest.mark.parametrize(
    ("policy", "doings"), [("ladder", ["clearing", "compacting"]), ("gate", ["compacting"]), ("none", [])]
)
def test_a_person_is_told_of_the_rungs_that_the_policy_has(policy: str, doings: list[str]) -> None:
    assert [line.split()[0] for line in outlook(policy=policy).told()] == doings


def test_a_person_is_told_until_when_waiting_is_cheaper() -> None:
    (clearing, compacting) = outlook(number=6).told()
    assert clearing.endswith("waiting is cheaper until 80%")
    assert compacting.startswith("compacting is due at 80%: it frees ")
    assert "waiting" not in compacting
