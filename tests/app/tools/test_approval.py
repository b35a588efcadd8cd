"""What needs a yes gets one from the flag, a rule, or the person; nothing is remembered beyond the run."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest

from localctx.app.tools.approval import Answer, Approver, Reply
from localctx.core.approval import Verdict, Wish, rule
from localctx.core.events import Event, Notice

pytestmark = pytest.mark.anyio

YES = Verdict(granted=True)


@dataclass
class Answers:
    """A person who gives these answers, the last for ever."""

    said: list[Answer]
    asked: list[Wish] = field(default_factory=list)

    async def __call__(self, wish: Wish) -> Answer:
        self.asked.append(wish)
        return self.said.pop(0) if len(self.said) > 1 else self.said[0]


def ignore(_event: Event) -> None:
    return


async def test_yes_grants_everything_but_a_look_at_secrets() -> None:
    approver = Approver(ignore, yes=True)
    for tool in ("write_file", "edit_file", "run_command", "fetch_url"):
        assert await approver.of(Wish(tool, "x")) == YES
    assert not (await approver.of(Wish("read_file", ".env"))).granted


async def test_a_rule_grants_what_it_means_and_the_rest_is_asked_for() -> None:
    person = Answers([Answer(Reply.NO, "use tabs")])
    approver = Approver(ignore, [rule("write_file:src/*"), rule("read_file:.env")], ask=person)
    assert await approver.of(Wish("write_file", "src/a.py")) == YES
    assert await approver.of(Wish("read_file", ".env")) == YES
    refused = await approver.of(Wish("edit_file", "src/a.py"))
    assert refused == Verdict(granted=False, reason="the user said no: use tabs; do not try the same again")
    assert person.asked == [Wish("edit_file", "src/a.py")]


async def test_always_is_the_same_again_and_nothing_else() -> None:
    person = Answers([Answer(Reply.ALWAYS), Answer(Reply.NO)])
    approver = Approver(ignore, ask=person)
    assert await approver.of(Wish("run_command", "make", "")) == YES
    assert await approver.of(Wish("run_command", "make")) == YES
    assert not (await approver.of(Wish("run_command", "make install"))).granted
    assert not (await approver.of(Wish("write_file", "make"))).granted
    assert not (await Approver(ignore, ask=person).of(Wish("run_command", "make"))).granted, "another run"


async def test_yes_to_a_host_lasts_and_yes_to_a_command_does_not() -> None:
    person = Answers([Answer(Reply.YES)])
    approver = Approver(ignore, ask=person)
    for _ in range(2):
        assert await approver.of(Wish("fetch_url", "example.org")) == YES
        assert await approver.of(Wish("run_command", "make")) == YES
    assert [wish.tool for wish in person.asked] == ["fetch_url", "run_command", "run_command"]


async def test_where_nobody_can_be_asked_the_model_is_told_each_time_and_the_person_once() -> None:
    events: list[Event] = []
    approver = Approver(events.append)
    for command in ("make", "make install"):
        verdict = await approver.of(Wish("run_command", command))
        assert verdict == Verdict(
            granted=False, reason="the user has not allowed this, and cannot be asked now; do without it"
        )
    (notice,) = events
    assert isinstance(notice, Notice)
    assert notice.code == "not-approved"
    assert "run_command make was refused" in notice.text
    assert "--yes or allow = " in notice.text


async def test_the_notice_holds_one_line_without_keys() -> None:
    events: list[Event] = []
    await Approver(events.append).of(Wish("run_command", f"curl\n-u ghp_{'a1' * 18} {'x' * 200}"))
    (notice,) = events
    assert isinstance(notice, Notice)
    assert notice.text.startswith(f"run_command curl\\n-u [masked secret] {'x' * 55}... was refused")
    assert "\n" not in notice.text
