"""The benchmarks of compaction as far as they need no model: a short conversation, a few decisions, planted facts."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path

import pytest

from benchmarks.compaction import main
from benchmarks.compaction_conversation import played
from benchmarks.compaction_deciding import _decision, decided, long_session
from benchmarks.compaction_script import conversation
from benchmarks.compaction_scripted import tokens
from benchmarks.compaction_survival import survived
from localctx.app.bench.facts import FACTS, holds, plainly, planted
from localctx.app.bench.script import Turn
from localctx.core.ladder import Rung
from localctx.errors import MissingExtra


@pytest.fixture(scope="module", autouse=True)
def _ranks() -> None:
    try:
        tokens([{"role": "user", "content": "word"}])
    except MissingExtra as missing:
        pytest.skip(str(missing))


def test_nothing_is_refused_cut_or_invalid_and_the_goal_and_each_rule_are_in_every_request() -> None:
    rows = [row for row in played(45, (4_096,)) if row["policy"] != "none"]
    assert [row["policy"] for row in rows[::2]] == ["ladder", "replace", "micro", "gate"]
    for row in rows:
        assert "compact" in str(row["rungs"]), row
        for never in ("turns refused", "above the window", "invalid lists", "of them above", "results unseen"):
            assert row[never] == 0, (never, row)
        assert (row["without the goal"], row["without a rule"]) == (0, 0), row


def test_the_free_rungs_alone_have_little_more_prefilled_than_what_is_new() -> None:
    _, row = islice(played(60, (4_096,)), 2)
    assert (row["policy"], row["notes"]) == ("ladder", "machine")
    prefilled, floor = row["prefilled"], row["floor"]
    assert isinstance(prefilled, int)
    assert isinstance(floor, int)
    assert floor < prefilled <= 1.2 * floor


def test_without_compaction_turns_are_refused() -> None:
    *_, row = played(4, (2_048,))
    assert row["policy"] == "none"
    assert isinstance(row["turns refused"], int)
    assert row["turns refused"] > 0


def test_the_whole_conversation_is_larger_than_its_windows() -> None:
    turns = conversation()
    assert len(turns) == 60
    assert 50_000 < len(tokens([{"role": "user", "content": "\n".join(_texts(turns))}])) < 65_000
    assert sum(len(turn.standing) for turn in turns) == 7, "the goal and six rules"


def test_what_is_timed_is_a_decision_for_the_rung_that_is_due() -> None:
    session = long_session(100)
    assert [_decision(session.history, rung)() for rung in (Rung.CLEAR, Rung.COMPACT)] == [Rung.CLEAR, Rung.COMPACT]
    (row,) = decided(rounds=3, sizes=(100,))
    assert all(value > 0 for value in row.values() if isinstance(value, float))


def test_what_the_machine_records_survives_and_nothing_is_invented() -> None:
    assert len(FACTS) == 40
    rows = list(survived(None, turns=24))
    assert [row["policy"] for row in rows] == ["ladder", "replace", "micro", "gate"]
    for row in rows:
        for kind in ("files", "commands", "constraints", "todos"):
            assert row[kind] == "6 of 6", row
        assert (row["errors"], row["last action"]) == ("4 of 4", "kept"), row
        assert (row["invented"], row["turns refused"]) == (0, 0), row
        found = re.match(r"(\d+) \(", str(row["compactions"]))
        assert found
        assert int(found[1]) >= 4, row


def test_every_fact_is_said_before_the_last_turns() -> None:
    *said, last = planted()
    told = plainly("\n".join(_texts(said[:-7])))
    assert [fact for fact in FACTS if not holds(told, fact)] == []
    assert not any(holds(plainly("\n".join(_texts([turn]))), fact) for turn in (*said[-7:], last) for fact in FACTS)


def _texts(turns: Sequence[Turn]) -> Iterator[str]:
    for turn in turns:
        yield turn.asked
        for reply in turn.replies:
            yield reply.text
            yield from (f"{json.dumps(call.arguments)}\n{call.result}" for call in reply.calls)


def test_the_tables_are_kept_as_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main(["--only", "deciding", "--quick", "--out", str(tmp_path / "figures.json")])
    (table,) = json.loads((tmp_path / "figures.json").read_text())["tables"]
    assert [row["messages"] for row in table["rows"]] == ["100", "1,000"]
    assert "### Deciding" in capsys.readouterr().out
