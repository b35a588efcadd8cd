from __future__ import annotations

import json

import pytest

from localctx.core.messages import History
from localctx.core.nudges import pressure, progress, resumed
from localctx.core.transcript import parse


def history(*calls: tuple[str, object], result: str = "ok") -> History:
    """One user message and a cycle a call; arguments that are text stand as they are."""
    wire: list[object] = [{"role": "user", "content": "go"}]
    for number, (name, arguments) in enumerate(calls):
        text = arguments if isinstance(arguments, str) else json.dumps(arguments)
        function = {"name": name, "arguments": text}
        wire.append(
            {
                "role": "assistant",
                "content": None,
                "tool_calls": [{"id": f"c{number}", "type": "function", "function": function}],
            }
        )
        wire.append({"role": "tool", "tool_call_id": f"c{number}", "content": result})
    return parse(wire).history


@pytest.mark.parametrize(
    ("used", "window", "begin"),
    [
        (699, 1_000, ""),
        (700, 1_000, "[CONTEXT WARNING: 70% of the 1,000-token"),
        (899, 1_000, "[CONTEXT WARNING: 90% of the 1,000-token"),
        (900, 1_000, "[CONTEXT CRITICAL: 90% of the 1,000-token"),
        (1_020, 1_000, "[CONTEXT CRITICAL: 102% of the 1,000-token"),
        (5, 0, ""),
    ],
)
def test_an_agent_is_warned(used: int, window: int, begin: str) -> None:
    told = pressure(used, window, 0.8)
    assert told.startswith(begin)
    assert bool(told) == bool(begin)
    assert ("at 80%" in told) == ("WARNING" in told)


def test_what_was_read_is_listed_once_in_order() -> None:
    told = progress(
        history(
            ("read_file", {"path": "a"}),
            ("grep", {"path": "/repo"}),
            ("read_file", {"path": "a"}),
            ("read_file", {"path": "b"}),
        )
    )
    assert "Looked at: a; /repo; b\n" in told
    assert told.endswith("Most recent action: read_file(b)")


def test_fifteen_are_listed_and_the_rest_counted() -> None:
    told = progress(history(*[("read_file", {"path": f"/f/{number}.txt"}) for number in range(20)]))
    assert "/f/14.txt; +5 more\n" in told
    assert "/f/19.txt;" not in told


def test_what_was_modified_and_run() -> None:
    told = progress(
        history(("edit_file", {"path": "/f/0.txt"}), ("mv", {"source": "/a"}), ("execute_command", {"command": "make"}))
    )
    assert "Files modified: /f/0.txt; /a\n" in told
    assert "Commands run: make -> ok\n" in told


@pytest.mark.parametrize("calls", [(), (("read_file", '{"path": '),), (("recall", {"query": "x"}),)], ids=str)
def test_where_there_is_nothing_nothing_is_said(calls: tuple[tuple[str, object], ...]) -> None:
    assert progress(history(*calls)) == ""


def test_a_failed_call_is_no_progress() -> None:
    assert "Files" not in progress(history(("read_file", {"path": "a"}), result="error: no such file"))


def test_after_a_compaction_the_note_takes_the_place_of_a_warning() -> None:
    done = history(("read_file", {"path": "a"}), ("read_file", {"path": "b"}))
    told = resumed(950, 1_000, done)
    assert told.startswith("[CONTEXT COMPACTED: ")
    assert "still 95% of 1,000 tokens" in told
    assert told.endswith("Looked at: a\nMost recent action: read_file(a)"), (
        "the result of the last call stands above it"
    )
    assert "still" not in resumed(500, 1_000, done)
