from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from localctx.app.session import Session
from localctx.core.checkpoint import render
from localctx.core.effects import Compacted
from localctx.core.messages import Checkpoint
from localctx.stores.sessions import Sessions, keep_state
from tests.cli.conftest import Run
from tests.cli.test_sessions import within

NOTES = Checkpoint(1, "model", (("goal", ("Move the tests. " * 60,)),), work="- goal: move the tests")


@pytest.fixture
def sessions(tmp_path: Path) -> Sessions:
    return Sessions(tmp_path / "data")


@pytest.fixture
def here(environment: dict[str, str], tmp_path: Path) -> Run:
    """Runs the program within this one."""
    return partial(within, environment, tmp_path)


def begun(sessions: Sessions, name: str, do: Callable[[Session], object] = lambda _session: None) -> None:
    journal = sessions.create(name)
    session = Session(journal, on_work=lambda state: keep_state(sessions.state_file(name), state))
    session.add({"role": "user", "content": "Move the tests."})
    do(session)
    journal.close()


def worked(session: Session) -> None:
    session.work({"goal": "move the tests", "todos": [{"text": "lexer", "status": "done"}], "next_step": "parser"})


def compacted(session: Session) -> None:
    worked(session)
    session.commit(Compacted(NOTES))


def test_nothing_recorded_is_said(here: Run, sessions: Sessions) -> None:
    begun(sessions, "mine")
    done = here("work", "show")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == "No task state recorded yet.\nNo compaction has happened in session mine.\n"
    shown = json.loads(here("work", "show", "--json").stdout)
    assert shown == {"schema": 1, "session": "mine", "work": {}, "compactions": 0, "latest": None, "checkpoint": None}


def test_the_state_and_the_latest_checkpoint_are_shown(here: Run, sessions: Sessions) -> None:
    begun(sessions, "mine", compacted)
    told = here("work", "show", "mine").stdout
    assert told.startswith(
        "goal: move the tests\nclaimed done, not verified: lexer\nnext step: parser\n\n1 compaction, "
    )
    assert told.endswith(f":\n{render(NOTES)[:500]}…\n")
    shown = json.loads(here("work", "show", "--json").stdout)
    assert (shown["work"]["next_step"], shown["compactions"]) == ("parser", 1)
    assert shown["checkpoint"] == render(NOTES)
    assert shown["latest"]


def test_a_compaction_that_was_undone_does_not_count(here: Run, sessions: Sessions) -> None:
    begun(sessions, "mine", compacted)
    here("sessions", "undo")
    assert "No compaction has happened" in here("work", "show").stdout


def test_clear_forgets_the_state_of_one_session(here: Run, sessions: Sessions) -> None:
    begun(sessions, "other", worked)
    begun(sessions, "mine", compacted)
    before = sessions.state_file("other").read_bytes()
    done = here("work", "clear", "mi")
    assert (done.returncode, done.stdout) == (0, "the work state of session mine is empty\n")
    told = here("work", "show", "mine").stdout
    assert told.startswith("No task state recorded yet.\n")
    assert "goal: move the tests" not in told, "nor does the checkpoint say it"
    assert not sessions.state_file("mine").parent.exists()
    assert sessions.state_file("other").read_bytes() == before
    assert "goal: move the tests" in here("work", "show", "other").stdout
    assert here("work", "clear", "mine").returncode == 0


def test_the_newest_session_is_meant_where_none_is_named(here: Run, sessions: Sessions) -> None:
    assert here("work", "show").returncode == 3
    begun(sessions, "mine", worked)
    assert here("work", "clear").stdout == "the work state of session mine is empty\n"


def test_a_session_that_is_open_or_damaged_is_not_cleared(here: Run, sessions: Sessions) -> None:
    begun(sessions, "mine", worked)
    journal = sessions.resume("mine")
    done = here("work", "clear")
    assert done.returncode == 2
    assert "open in another program" in done.stderr
    journal.close()
    with journal.path.open("a", encoding="utf-8") as file:
        file.write("not json\n")
    assert here("work", "clear").returncode == 1
    done = here("work", "show")
    assert done.returncode == 1
    assert done.stdout.startswith("goal: move the tests\n")
    assert "line 4 is no journal entry" in done.stderr


@pytest.mark.parametrize("name", ["../mine", "-x", "a/b", ""])
def test_a_name_that_is_none_is_wrong_usage(here: Run, sessions: Sessions, name: str) -> None:
    begun(sessions, "mine", worked)
    for command in ("show", "clear"):
        assert here("work", command, "--", name).returncode == 2
