"""What must outlive a compaction, a kill and a resume: the user's rules, the files, the todos, and what nobody verified."""

from __future__ import annotations

import json
import signal
from typing import Any

import pytest

from localctx.core.outgoing import defects
from localctx.core.work import as_json
from tests.app.conftest import NOTES
from tests.fakes.llama_server import Calls
from tests.killed.checks import check_journal, check_projection, turn_requests
from tests.killed.conftest import Place, asks_for_notes

RULES = ("Always pnpm, never npm.", "Never touch the folder legacy/, whatever happens.")
TASK = f"Port the billing module to TypeScript. {' '.join(RULES)}"
LATER = "One rule more: amounts are in cents."
PATCH = {
    "goal": "port the billing module",
    "todos": [
        {"text": "port the tax tables", "status": "done", "verified_by": "pnpm test tax"},
        {"text": "fix the rounding", "status": "done"},
        {"text": "migrate the fixtures", "status": "pending"},
        {"text": "write the changelog", "status": "in_progress"},
    ],
}
_PLAN = [
    ("read_file", {"path": "src/billing.py"}),
    ("read_file", {"path": "src/tax.py"}),
    ("write_file", {"path": "src/billing.ts", "content": "export const cents = 100;"}),
    ("update_work_state", PATCH),
]
FILLER = [f"Step {number}: go on with the port, please." for number in range(9)]
"""So short that the rules before them stay within what is kept of the user's words."""

HOSTILE = f"{NOTES}## Done\n- Fix the rounding.\n"
"""Notes that take a claim for a fact."""


class Porter:
    """A model that does the task's work once, and then only talks."""

    def __init__(self, notes: str = NOTES) -> None:
        self.notes = notes

    def __call__(self, body: dict[str, Any]) -> str | Calls:
        if asks_for_notes(body):
            return self.notes
        last = str(body["messages"][-1]["content"])
        made = [call for message in body["messages"] for call in message.get("tool_calls") or ()]
        if last.startswith(TASK) or (body["messages"][-1]["role"] == "tool" and len(made) < len(_PLAN)):
            name, arguments = _PLAN[len(made)]
            return Calls("", [(name, json.dumps(arguments))])
        return "The module is ported step by step, as was asked. " * 25


DO = [["ask", text] for text in (TASK, LATER, *FILLER)]


@pytest.fixture
def port(place: Place) -> Place:
    place.fake.reply = Porter()
    return place


def resumed(place: Place) -> list[str]:
    """The texts of the first request of a program that goes on with what is there."""
    before = len(place.chats)
    place.done(["ask", "What is left to do?"])
    body = turn_requests(place.chats[before:])[0]
    assert defects(body["messages"]) == []
    assert "What is left to do?" in body["messages"][-1]["content"]
    return [str(message.get("content")) for message in body["messages"]]


def check_seeds(place: Place, said: str, *words: str) -> None:
    """All that was planted is there, and nothing claims more than was verified."""
    for text in (TASK, *words):
        assert text in said
    for path in ("src/billing.py", "src/tax.py", "src/billing.ts"):
        assert path in said
    assert "pending: migrate the fixtures" in said
    assert "in progress: write the changelog" in said
    assert "done (verified by pnpm test tax): port the tax tables" in said
    check_claim(said)
    history = check_projection(check_journal(place))
    assert as_json(history.work) == PATCH


def check_claim(said: str) -> None:
    """The todo that nobody verified is shown, and every time as a claim."""
    shown = [line for line in said.splitlines() if "fix the rounding" in line.lower()]
    assert shown
    assert [line for line in shown if "claimed done, not verified: fix the rounding" not in line] == []


def killed_by(place: Place, event: str, nth: int, after: float = 0.0) -> None:
    with place.child(*DO) as child:
        assert child.until_event(event, nth)
        assert child.end(signal.SIGKILL, after) == -signal.SIGKILL
    assert check_projection(check_journal(place)).checkpoint is not None


def test_after_a_committed_compaction(port: Place) -> None:
    killed_by(port, "RungTaken", 1)
    check_seeds(port, "\n".join(resumed(port)), LATER)


def test_while_the_notes_of_the_next_compaction_stream(port: Place) -> None:
    port.fake.delay = 0.03
    killed_by(port, "RungBegun", 2, after=0.1)
    port.fake.delay = 0
    check_seeds(port, "\n".join(resumed(port)), LATER)


@pytest.mark.parametrize("share", [0.0, 0.5, 1.0])
def test_around_the_commit_of_the_next_compaction(port: Place, share: float) -> None:
    port.killed_while_writing(*DO, line="commit", nth=2, share=share)
    check_seeds(port, "\n".join(resumed(port)), LATER)


def test_in_the_middle_of_a_reply(port: Place) -> None:
    with port.child(*DO) as child:
        assert child.until_event("RungTaken")
        assert child.until_event("Text", 3)
        assert child.end(signal.SIGKILL) == -signal.SIGKILL
    check_seeds(port, "\n".join(resumed(port)), LATER)


def test_before_anything_was_compacted_the_claim_is_a_claim_all_the_same(port: Place) -> None:
    port.killed_while_writing(*DO, line="begin")
    assert check_projection(check_journal(port)).checkpoint is None
    check_seeds(port, "\n".join(resumed(port)), LATER)


def test_killed_again_and_again(port: Place) -> None:
    for nth in range(1, 4):
        port.killed_while_writing(*DO[2:] if nth > 1 else DO, line="commit", nth=nth, share=0.5)
    check_seeds(port, "\n".join(resumed(port)), LATER)


def test_notes_of_a_model_make_no_fact_of_a_claim(port: Place) -> None:
    port.fake.reply = Porter(HOSTILE)
    killed_by(port, "RungTaken", 1)
    check_claim("\n".join(resumed(port)))


def test_the_work_state_that_people_read_is_that_of_the_journal_after_a_kill(port: Place) -> None:
    port.killed_while_writing(*DO[:1], line="work", share=1.0)
    port.fake.reply = "I stop here."
    port.done(["ask", "Stop."])
    history = check_projection(check_journal(port))
    assert as_json(history.work) == PATCH
    path = port.home / "data" / "work" / "s" / "state.json"
    assert path.exists()
    assert json.loads(path.read_text(encoding="utf-8"))["todos"] == PATCH["todos"]
