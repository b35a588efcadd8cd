from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given

from localctx.core.effects import Compacted, apply
from localctx.core.journal import project
from localctx.core.ladder import Policy, checkpoint_at, trim
from localctx.core.messages import History
from localctx.core.outgoing import NO_REPLY, NO_RESULT, WireMessage, defects, outgoing, texts
from localctx.core.transcript import parse
from localctx.core.window import Budget
from tests.cases import case
from tests.core.strategies import Move, Wire, lives, play, sessions, wires

if TYPE_CHECKING:
    from collections.abc import Callable

BUDGET = Budget.of(4_096)
CALL = {"id": "a", "type": "function", "function": {"name": "read", "arguments": "{}"}}
SYSTEM = {"role": "system", "content": "be kind"}
ASKED = {"role": "user", "content": "?"}
SAID = {"role": "assistant", "content": "hm"}
CALLED = {"role": "assistant", "content": None, "tool_calls": [CALL]}
ANSWER = {"role": "tool", "tool_call_id": "a", "content": "done"}


MISSING = {"role": "tool", "tool_call_id": "a", "content": NO_RESULT}
UNSAID = {"role": "assistant", "content": NO_REPLY}
GOES_ON = {"role": "user", "content": "(The conversation goes on.)"}
IMAGE = {"type": "image_url", "image_url": {}}


def sent(wire: list[object], ask: str = "", nudge: str = "") -> list[WireMessage]:
    return outgoing(parse(wire).history, ask=ask, nudge=nudge)


# --- the validator itself -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("messages", "found"),
    [
        pytest.param([SYSTEM, ASKED, CALLED, ANSWER, SAID, ASKED], [], id="a clean list"),
        pytest.param([ASKED, SAID, ASKED, {"role": "assistant", "content": ""}], [], id="a reply that has not begun"),
        pytest.param([ASKED, CALLED], [], id="calls in flight"),
        pytest.param([SYSTEM], ["no user message"], id="nobody asks"),
        pytest.param([ASKED, SYSTEM], ["a system message after the first"], id="late system"),
        pytest.param([ASKED, {"role": "critic", "content": ""}], ["unknown role critic"], id="role"),
        pytest.param([SYSTEM, SAID, ASKED], ["begins with assistant"], id="begins with an answer"),
        pytest.param([ASKED, ASKED], ["two user messages in a row at 1"], id="user twice"),
        pytest.param([ASKED, SAID, SAID], ["two assistant messages in a row at 2"], id="assistant twice"),
        pytest.param([ASKED, ANSWER], ["the result at 1 answers no open call (a)"], id="orphan"),
        pytest.param(
            [ASKED, CALLED, ANSWER, ANSWER], ["the result at 3 answers no open call (a)"], id="answered twice"
        ),
        pytest.param([ASKED, CALLED, ASKED], ["call a has no result before message 2"], id="abandoned"),
        pytest.param([{"role": "user"}], ["the user message at 0 has no content"], id="no content"),
        pytest.param(
            [ASKED, CALLED, ANSWER, ASKED], ["no reply between the results and the user message at 3"], id="no reply"
        ),
        pytest.param(
            [ASKED, {"role": "assistant", "content": ""}, ASKED],
            ["the assistant message at 1 says nothing"],
            id="an empty reply",
        ),
    ],
)
def test_defects(messages: list[WireMessage], found: list[str]) -> None:
    assert defects(messages) == found


# --- no history makes a list that a server refuses ------------------------------------------------------------------


@given(wires())
def test_any_list_of_messages_is_repaired(wire: list[object]) -> None:
    history = parse(wire).history
    assert defects(outgoing(history, ask="Go on.")) == []
    assert defects(outgoing(history, nudge="Soon full.")) == []
    if history.turns:
        assert defects(outgoing(history)) == []


@given(lives())
def test_a_history_stays_fit_to_be_sent_whatever_happens_to_it(size: Callable[[str], int], moves: list[Move]) -> None:
    history = project(play(moves, size))
    assert defects(outgoing(history, ask="Go on.")) == []
    assert defects(outgoing(history, nudge="Soon full.")) == []
    if history.turns or history.checkpoint:
        assert defects(outgoing(history)) == []


@given(sessions())
def test_every_word_of_a_clean_conversation_is_sent(wire: list[Wire]) -> None:
    everything = "\n".join(texts(outgoing(parse(wire).history)))
    assert [text for text in texts(list(wire)) if text not in everything] == []


@given(sessions())
def test_each_request_begins_with_the_one_before(wire: list[Wire]) -> None:
    history, before = History(), list[WireMessage]()
    for index, message in enumerate(wire):
        history = parse(wire[: index + 1]).history
        now = outgoing(history)
        if before:
            *settled, last = before
            assert now[: len(settled)] == settled
            assert str(now[len(settled)]["content"] or "").startswith(str(last["content"] or ""))
        before = now if message["role"] != "assistant" else before


# --- what the repairs look like -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("wire", "ask", "expected"),
    [
        pytest.param(
            [SYSTEM, {"role": "developer", "content": "be brief"}, ASKED],
            "",
            [{"role": "system", "content": "be kind\n\nbe brief"}, ASKED],
            id="system words become one message",
        ),
        pytest.param(
            [ASKED, {"role": "user", "content": "and?"}],
            "now",
            [{"role": "user", "content": "?\n\nand?\n\nnow"}],
            id="neighbours are joined",
        ),
        pytest.param(
            [ASKED, {"role": "user", "content": [IMAGE]}],
            "",
            [{"role": "user", "content": [{"type": "text", "text": "?"}, IMAGE]}],
            id="neighbours of two kinds become parts",
        ),
        pytest.param(
            [ASKED, {"role": "user", "content": [{"type": "text", "text": "this?"}, IMAGE]}],
            "now",
            [
                {
                    "role": "user",
                    "content": [{"type": "text", "text": "?\n\nthis?"}, IMAGE, {"type": "text", "text": "now"}],
                }
            ],
            id="texts that meet are one part",
        ),
        pytest.param(
            [{"role": "user", "content": None}, ASKED, SAID],
            "now",
            [ASKED, SAID, {"role": "user", "content": "now"}],
            id="nothing is joined to nothing",
        ),
        pytest.param([SAID], "", [GOES_ON, SAID], id="somebody asked first"),
        pytest.param(
            [ASKED, {"role": "assistant", "reasoning_content": "so"}],
            "",
            [ASKED, {"role": "assistant", "reasoning_content": "so", "content": ""}],
            id="an answer has content",
        ),
        pytest.param(
            [ASKED, {"role": "system", "content": "stop"}, {"role": "critic", "content": "no"}, 7],
            "",
            [{"role": "user", "content": "?\n\n[system] stop\n\n[critic] no\n\n[foreign] 7"}],
            id="other roles become notes",
        ),
        pytest.param(
            [ASKED, CALLED, {"role": "tool", "tool_call_id": "a"}],
            "",
            [ASKED, CALLED, {"role": "tool", "tool_call_id": "a", "content": ""}],
            id="a result has content",
        ),
        pytest.param([ASKED, CALLED, ASKED], "", [ASKED, CALLED, MISSING, UNSAID, ASKED], id="an abandoned call"),
        pytest.param([ASKED, CALLED], "", [ASKED, CALLED], id="a call in flight is not answered"),
        pytest.param(
            [ASKED, CALLED],
            "now",
            [ASKED, CALLED, MISSING, UNSAID, {"role": "user", "content": "now"}],
            id="unless the user speaks",
        ),
        pytest.param(
            [ASKED, CALLED, ANSWER, ASKED, CALLED, ANSWER],
            "now",
            [ASKED, CALLED, ANSWER, UNSAID, ASKED, CALLED, ANSWER, UNSAID, {"role": "user", "content": "now"}],
            id="somebody replied to the user",
        ),
        pytest.param(
            [ASKED, {**SAID, "content": None, "reasoning_content": "so"}, ASKED],
            "",
            [ASKED, {**UNSAID, "reasoning_content": "so"}, ASKED],
            id="if without a word",
        ),
        pytest.param([ASKED, SAID, SAID], "", [ASKED, {**SAID, "content": "hm\n\nhm"}], id="replies are joined"),
        pytest.param(
            [ASKED, SAID, CALLED, ANSWER],
            "",
            [ASKED, SAID, GOES_ON, CALLED, ANSWER],
            id="but not to calls, beside which words are dropped",
        ),
        pytest.param(
            [ASKED, {**SAID, "content": "", "reasoning_content": "so"}, CALLED, ANSWER],
            "",
            [ASKED, {**CALLED, "content": "", "reasoning_content": "so"}, ANSWER],
            id="thoughts are",
        ),
        pytest.param(
            [ASKED, {**SAID, "content": "", "reasoning_content": "so"}, {**CALLED, "content": "hm"}, ANSWER],
            "",
            [ASKED, {**UNSAID, "reasoning_content": "so"}, GOES_ON, {**CALLED, "content": "hm"}, ANSWER],
            id="but not thoughts to words with calls",
        ),
    ],
)
def test_repairs(wire: list[object], ask: str, expected: list[WireMessage]) -> None:
    assert sent(wire, ask) == expected


@pytest.mark.parametrize(
    ("wire", "last"),
    [
        pytest.param([ASKED], [{"role": "user", "content": "?\n\nsoon"}], id="behind the user's words"),
        pytest.param([ASKED, CALLED, ANSWER], [CALLED, {**ANSWER, "content": "done\n\nsoon"}], id="behind results"),
        pytest.param([ASKED, SAID], [SAID, {"role": "user", "content": "soon"}], id="behind a reply"),
        pytest.param([ASKED, CALLED], [CALLED, {**MISSING, "content": f"{NO_RESULT}\n\nsoon"}], id="behind a call"),
    ],
)
def test_a_nudge_is_the_last_that_is_read(wire: list[object], last: list[WireMessage]) -> None:
    assert sent(wire, nudge="soon")[-len(last) :] == last


def test_the_checkpoint_is_folded_into_the_first_user_message(size: Callable[[str], int]) -> None:
    history = parse([SYSTEM, ASKED, SAID, {"role": "user", "content": "next"}]).history
    history = apply(history, Compacted(checkpoint_at(history, 3, BUDGET, size)))
    system, user = outgoing(history)
    assert system == SYSTEM
    assert str(user["content"]).endswith("(end of notes)\n\nnext")


def test_texts_are_found_at_any_depth() -> None:
    assert list(texts([{"a": "x", "b": [{"c": "y"}, 7, None]}])) == ["x", "y"]


# --- parallel calls stay together -----------------------------------------------------------------------------------

PARALLEL = case(17)


@pytest.mark.parametrize("cuts", [*((cut,) for cut in PARALLEL["checks"]["cuts_tested"]), (3, 5), (4, 7)])
def test_parallel_calls_stay_together_wherever_a_cut_is_wished(
    size: Callable[[str], int], cuts: tuple[int, ...]
) -> None:
    history = parse(PARALLEL["given"]["messages"]).history
    for cut in cuts:
        history = apply(history, Compacted(checkpoint_at(history, cut, BUDGET, size)))
    assert in_flight(outgoing(history)) == PARALLEL["checks"]["in_flight_kept"]


def test_trimming_keeps_a_call_in_flight(size: Callable[[str], int]) -> None:
    long = [{"role": role, "content": "x" * 8_000} for role in ("user", "assistant")]
    history = parse([*long, *PARALLEL["given"]["messages"]]).history
    effect = trim(history, BUDGET, Policy(), size)
    assert effect is not None
    assert in_flight(outgoing(apply(history, effect))) == PARALLEL["checks"]["in_flight_kept"]


def in_flight(messages: list[WireMessage]) -> list[str]:
    assert defects(messages) == []
    calls = messages[-1]["tool_calls"]
    assert isinstance(calls, list)
    return [call["id"] for call in calls]
