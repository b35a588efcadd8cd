from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from localctx.app.compact import Means, Settled, compact
from localctx.app.meter import Meter
from localctx.core.accounting import Count
from localctx.core.events import Event, PressureRaised, RungTaken
from localctx.core.formats import Conversation, Format
from localctx.core.ladder import POLICIES, Rung
from localctx.core.outgoing import WireMessage, defects
from localctx.core.results import RESULTS_SHARE, shown
from localctx.core.window import Budget
from localctx.errors import Misuse
from localctx.stores.journal import MemoryJournal
from localctx.tokenizers.estimate import ClassEstimate
from tests.core import strategies

TASK = "Read the manual, a chapter at a time. Never mention Perl."
REPAIRS = 40
"""More tokens than what a shorter list may need in places where the longer one needed nothing."""
TOOL: WireMessage = {
    "type": "function",
    "function": {"name": "read", "description": "Reads a chapter. " * 20, "parameters": {"type": "object"}},
}


@dataclass
class Server:
    """Counts four characters a token, tools included, and says how sure it is."""

    bound: int = 0

    async def count(self, messages: Sequence[WireMessage], tools: Sequence[WireMessage] = ()) -> Count | None:
        return Count(len(json.dumps([*messages, *tools])) // 4, self.bound, "a server")


@dataclass
class Nobody:
    """A server that cannot count."""

    async def count(self, messages: Sequence[WireMessage], tools: Sequence[WireMessage] = ()) -> Count | None:  # noqa: ARG002  the port's signature
        return None


@dataclass
class Settling:
    """Settles conversations into one window, and keeps what was told."""

    window: int
    policy: str = "ladder"
    server: Server | Nobody = field(default_factory=Server)
    events: list[Event] = field(default_factory=list)

    @property
    def means(self) -> Means:
        return Means(Meter(self.server, ClassEstimate()), POLICIES[self.policy], Budget.of(self.window))

    def __call__(self, messages: Sequence[WireMessage], *tools: WireMessage) -> Settled:
        conversation = Conversation(Format.OPENAI, tuple(messages), tools)
        return asyncio.run(compact(conversation, MemoryJournal(), self.means, self.events.append))


def said(role: str, text: str) -> WireMessage:
    return {"role": role, "content": text}


def chapter(number: int, words: int) -> str:
    return f"Chapter {number} begins. " + " ".join(f"w{number}x{word}" for word in range(words)) + f" End of {number}."


def cycle(number: int, *sizes: int) -> list[WireMessage]:
    """One message with a call for each size, and their results of so many words."""
    ids = [f"c{number}_{index}" for index, _ in enumerate(sizes)]
    calls = [
        {"id": each, "type": "function", "function": {"name": "read", "arguments": json.dumps({"chapter": number})}}
        for each in ids
    ]
    results: list[WireMessage] = [
        {"role": "tool", "tool_call_id": each, "content": chapter(number, words)}
        for each, words in zip(ids, sizes, strict=True)
    ]
    return [{"role": "assistant", "content": None, "tool_calls": calls}, *results]


def reading(chapters: int, words: int) -> list[WireMessage]:
    """An agent's run: the system's words, one task, and many cycles."""
    cycles = [message for number in range(chapters) for message in cycle(number, words)]
    return [said("system", "Be brief."), said("user", TASK), *cycles, said("assistant", "All is read.")]


def talking(turns: int, words: int = 60) -> list[WireMessage]:
    """A talk without tools."""
    pairs = ((said("user", chapter(turn, words)), said("assistant", f"Noted {turn}.")) for turn in range(turns))
    return [said("user", TASK), said("assistant", "Go on."), *(message for pair in pairs for message in pair)]


def results(settled: Settled) -> list[str]:
    return [str(message["content"]) for message in settled.messages if message["role"] == "tool"]


# --- what is not due is left alone --------------------------------------------------------------------------------


def test_a_conversation_that_is_short_enough_stays_as_it_is() -> None:
    messages = reading(2, 30)
    settled = Settling(8192)(messages)
    assert list(settled.messages) == messages
    assert (settled.rungs, settled.shaped, settled.fits) == ((), 0, True)
    assert (settled.words_shortened, settled.words_left_out) == (0, 0)
    assert settled.before == settled.after
    assert settled.before.messages == len(messages)


def test_sizes_by_kind_add_up_to_the_count() -> None:
    settled = Settling(1024)(reading(8, 60))
    for sized in (settled.before, settled.after):
        assert sum(sized.fills.values()) == pytest.approx(sized.count.tokens, abs=len(sized.fills) + sized.messages)
    assert settled.before.fills["tools"] > settled.after.fills["tools"]
    assert settled.before.fills["checkpoint"] == 0 < settled.after.fills["checkpoint"]


def test_tools_count_before_and_after() -> None:
    bare, offering = Settling(8192)(talking(3)), Settling(8192)(talking(3), TOOL)
    cost = len(json.dumps(TOOL)) // 4
    assert offering.before.count.tokens - bare.before.count.tokens == pytest.approx(cost, abs=1)
    assert offering.after.count == offering.before.count


# --- results, as a run lets them in -------------------------------------------------------------------------------


@pytest.mark.parametrize("server", [Server(), Nobody()], ids=["counted by a server", "estimated"])
def test_a_long_result_is_shaped_as_in_a_run(server: Server | Nobody) -> None:
    messages = [said("user", TASK), *cycle(1, 900), said("assistant", "Read.")]
    settling = Settling(4096, "none", server)
    meter, room = settling.means.meter, int(Budget.of(4096).prompt * RESULTS_SHARE)
    asked = meter.size(json.dumps({"chapter": 1}))
    settled = settling(messages)
    assert results(settled) == [shown("read", chapter(1, 900), room - asked, meter.size, seq=3)]
    assert "retrieve_tool_result 3]" in results(settled)[0]
    assert settled.shaped == 1
    assert settled.after.count.tokens < settled.before.count.tokens
    assert settled.before.messages == settled.after.messages == 4


def test_results_of_one_cycle_share_its_room() -> None:
    alone = Settling(4096, "none")([said("user", TASK), *cycle(1, 200)])
    beside = Settling(4096, "none")([said("user", TASK), *cycle(1, 200, 200, 10)])
    assert alone.shaped == 0
    assert beside.shaped == 2
    assert results(beside)[2] == chapter(1, 10)


def test_a_result_without_a_call_is_shaped_too() -> None:
    stray: WireMessage = {"role": "tool", "tool_call_id": "nobody", "content": chapter(1, 2000)}
    settled = Settling(2048, "none")([said("user", TASK), said("assistant", "Hm."), stray])
    assert settled.shaped == 1
    assert "retrieve_tool_result 3]" in str(settled.messages)


def test_in_a_larger_window_the_same_result_stays_whole() -> None:
    messages = [said("user", TASK), *cycle(1, 900)]
    assert Settling(2048, "none")(messages).shaped == 1
    assert Settling(32768, "none")(messages).shaped == 0


# --- rungs --------------------------------------------------------------------------------------------------------


def test_stubs_name_the_message_of_the_file() -> None:
    messages = reading(12, 200)
    settled = Settling(8192, "micro")(messages)
    assert [rung.rung for rung in settled.rungs] == [Rung.CLEAR]
    stubs = [text for text in results(settled) if text.startswith("[cleared: ")]
    assert stubs
    for stub in stubs:
        found = re.search(r"begins '(Chapter \d+ begins\.).*message #(\d+)\]", stub)
        assert found is not None, stub
        original = messages[int(found[2]) - 1]
        assert original["role"] == "tool"
        assert str(original["content"]).startswith(found[1])
    assert results(settled)[-1] == chapter(11, 200), "the newest results stay"


@pytest.mark.parametrize("policy", ["ladder", "replace", "micro", "gate"])
@pytest.mark.parametrize("messages", [reading(20, 120), talking(40)], ids=["with tools", "without"])
def test_every_policy_makes_it_fit(policy: str, messages: list[WireMessage]) -> None:
    settled = Settling(2048, policy)(messages)
    assert settled.before.count.tokens > 2048
    assert settled.fits
    assert settled.after.count.upper <= Budget.of(2048).prompt
    assert defects(settled.messages) == []
    assert TASK in str(settled.messages), "the first task stays whatever happens"


@pytest.mark.parametrize("server", [Server(), Nobody()], ids=["counted by a server", "estimated"])
@pytest.mark.parametrize("policy", ["ladder", "replace", "micro", "gate"])
def test_the_sizes_of_the_rungs_are_a_chain(policy: str, server: Server | Nobody) -> None:
    settled = Settling(2048, policy, server)(reading(20, 100))
    assert settled.rungs
    assert settled.shaped == 0
    assert settled.rungs[0].tokens_before == settled.before.count.tokens
    assert settled.rungs[0].messages_before == settled.before.messages
    for one, other in pairwise(settled.rungs):
        assert (one.tokens_after, one.messages_after) == (other.tokens_before, other.messages_before)
    assert settled.rungs[-1].tokens_after == settled.after.count.tokens
    assert settled.rungs[-1].messages_after == settled.after.messages


@pytest.mark.parametrize("policy", ["ladder", "replace", "micro", "gate"])
def test_what_is_settled_stays_as_it_is(policy: str) -> None:
    once = Settling(2048, policy)(reading(20, 120))
    again = Settling(2048, policy)(once.messages)
    assert (again.rungs, again.shaped, again.before) == ((), 0, again.after)
    assert again.messages == once.messages


def test_without_a_model_the_record_is_the_summary() -> None:
    settling = Settling(1024)
    settled = settling(talking(40))
    assert {rung.how for rung in settled.rungs} == {"machine"}
    assert [event.rung for event in settling.events if isinstance(event, RungTaken)] == [
        rung.rung for rung in settled.rungs
    ]


def test_what_is_left_may_raise_pressure() -> None:
    settling = Settling(1024)
    messages = talking(8)
    share = asyncio.run(Server().count(messages))
    assert share is not None
    settling.window = int(share.tokens / 0.75)
    assert settling(messages).rungs == ()
    assert [type(event) for event in settling.events] == [PressureRaised]


# --- the user's words ---------------------------------------------------------------------------------------------


def test_words_are_kept_shortened_or_left_out_and_counted() -> None:
    messages = talking(40)
    settled = Settling(1024)(messages)
    text = str(settled.messages)
    words = [str(message["content"]) for message in messages if message["role"] == "user"]
    whole = sum(each in text for each in words)
    assert settled.words_left_out > 0
    assert whole + settled.words_shortened + settled.words_left_out == len(words)


def test_a_long_message_of_the_user_is_shortened_and_counted() -> None:
    long = chapter(7, 800)
    messages = [said("user", long), said("assistant", "Read."), *talking(60, words=15)[2:]]
    settled = Settling(2048)(messages)
    text = str(settled.messages)
    assert settled.words_shortened == 1
    assert long not in text
    assert "Chapter 7 begins." in text
    assert "message #1, shortened" in text


# --- what does not fit --------------------------------------------------------------------------------------------


def test_what_does_not_fit_is_said_and_given_all_the_same() -> None:
    messages = talking(40)
    settled = Settling(1024, "none")(messages)
    assert (settled.fits, settled.rungs) == (False, ())
    assert list(settled.messages) == messages


@pytest.mark.parametrize("policy", ["ladder", "none"])
def test_words_that_nobody_answered_are_never_cut(policy: str) -> None:
    last = said("user", chapter(1, 2000))
    settled = Settling(1024, policy)([*talking(4), last])
    assert not settled.fits
    assert settled.messages[-1]["role"] == "user"
    assert str(settled.messages[-1]["content"]).endswith(str(last["content"]))


def test_a_count_fits_only_at_its_worst() -> None:
    messages = talking(8)
    exact = asyncio.run(Server().count(messages))
    assert exact is not None
    window = int(exact.tokens / 0.84)
    assert Settling(window, "none")(messages).fits
    assert not Settling(window, "none", Server(bound=int(window * 0.02)))(messages).fits


def test_a_conversation_of_the_system_alone_is_refused() -> None:
    with pytest.raises(Misuse, match="nobody but the system speaks"):
        Settling(1024)([said("system", "Be brief.")])


# --- whatever a file holds ----------------------------------------------------------------------------------------


@given(
    messages=strategies.wires() | strategies.sessions(turns=4),
    window=st.sampled_from([64, 512, 2048]),
    policy=st.sampled_from(list(POLICIES)),
    counts=st.booleans(),
)
def test_whatever_a_file_holds_the_list_is_valid_and_the_figures_agree(
    messages: list[object],
    window: int,
    policy: str,
    counts: bool,  # noqa: FBT001  hypothesis passes it by name
) -> None:
    wire = [message for message in messages if isinstance(message, dict)]
    settling = Settling(window, policy, Server() if counts else Nobody())
    try:
        settled = settling(wire)
    except Misuse:
        assert all(message.get("role") in {"system", "developer"} for message in wire)
        return
    assert defects(settled.messages) == []
    assert settled.fits == (settled.after.count.upper <= Budget.of(window).prompt)
    assert settled.after.count.tokens <= settled.before.count.tokens + REPAIRS
    recount = asyncio.run(settling.means.meter.exact(list(settled.messages)))
    assert recount == settled.after.count
