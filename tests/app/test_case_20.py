"""Case 20: every request for a summary fits the window of the model that writes it, and the session goes on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pytest

from localctx.app.compaction import Helper
from localctx.app.meter import Meter
from localctx.core.outgoing import WireMessage, defects
from localctx.core.window import Budget
from localctx.ports import Outcome
from localctx.tokenizers.estimate import ClassEstimate
from tests.app.test_seed_engine import Conversation, Scribe, asked, chatting, cycle, said, size
from tests.cases import case

pytestmark = pytest.mark.anyio

CASE = case(20)
ROWS: list[dict[str, Any]] = CASE["given"]["rows"]
CHECKS: dict[str, Any] = CASE["checks"]
TASK = "Read the whole manual, part one to part nine. Never mention Perl."


@dataclass(frozen=True)
class Padded:
    """A tool whose schema takes so many tokens."""

    tokens: int
    name: str = "read_file"

    @property
    def schema(self) -> WireMessage:
        about = ("reads a file " * self.tokens)[: self.tokens * 4 - 120]
        return {"type": "function", "function": {"name": self.name, "description": about, "parameters": {}}}

    async def run(self, _arguments: Mapping[str, object]) -> Outcome:
        return Outcome("nothing")


def history(row: dict[str, Any]) -> list[WireMessage]:
    """A conversation of as many tokens as the row says, its largest message where it has one in the middle."""
    wire = [asked(TASK)]
    largest = [asked("Here it is. " + "x y " * row.get("largest_message_tokens", 0)), said("part one is noted")]
    left, number = row["history_tokens"] - (size(largest) if "largest_message_tokens" in row else 0) - 400, 0
    while left > 0:
        words = "of the manual, said the user. " * 6
        more = [*cycle(number, 150), said(f"part {number} was read {words}"), asked(f"part {number} is next {words}")]
        wire, left, number = [*wire, *more], left - size(more), number + 1
    half = len(wire) // 8 * 4 + 1
    wire = [*wire[:half], *(largest if "largest_message_tokens" in row else []), *wire[half:]]
    return [*wire, said("part one was read")]


def begun(row: dict[str, Any]) -> tuple[Conversation, Scribe]:
    """The conversation of a row, and the model that writes its summaries."""
    extra = row.get("tools_and_system_tokens", 0)
    system = [{"role": "system", "content": "Be brief. " * (extra // 5)}] if extra else []
    window = row.get("main_window", row["summarizer_window"])
    it = chatting(Scribe(window), [*system, *history(row)])
    if extra:
        it.chat.offer([Padded(extra // 2)])
    if row["summarizer_window"] == window:
        return it, it.scribe
    helper = Scribe(row["summarizer_window"])
    budget = Budget.of(row["summarizer_window"], output_limit=row["summary_output_budget"])
    it.chat.engine.summarizer = Helper(helper, Meter(helper, ClassEstimate()), budget)
    return it, helper


@pytest.mark.parametrize("index", range(4), ids=[row["name"] for row in ROWS])
async def test_case_the_summarizer_fits_its_own_window(index: int) -> None:
    row, most = ROWS[index], int(CHECKS["max_request_tokens"][index].removeprefix("<= "))
    it, writer = begun(row)
    used = (await it.chat.engine.measure()).tokens
    stated = row["history_tokens"] + row.get("tools_and_system_tokens", 0)
    assert abs(used - stated) < 0.03 * stated, "the history is as long as the case has it"

    await it.chat.engine.settle()
    if not it.of_rungs:
        assert await it.chat.engine.compact()
    await it.chat.ask("Which part is next?")

    assert writer.summaries
    for request in writer.summaries:
        prompt = size(request.messages, request.tools)
        assert prompt <= most + max(row["summary_output_budget"] - request.max_tokens, 0), "notes of a tenth are less"
        assert prompt + request.max_tokens <= row["summarizer_window"]
    texts = [str(request.messages[-1]["content"]) for request in writer.summaries]
    assert ["Notes so far:" in text for text in texts] == [number > 0 for number in range(len(texts))]
    assert (len(texts) > 1) is (row["history_tokens"] > row["summarizer_window"])
    assert [event.how for event in it.of_rungs] == ["model"]
    assert it.scribe.refused + writer.refused == CHECKS["refused_requests"]
    (answered,) = it.scribe.talk
    assert (defects(answered.messages) == []) is CHECKS["session_usable_after"]
    assert TASK in str(answered.messages)
    if "largest_message_tokens" in row:
        (piece,) = [text for text in texts if "Here it is." in text]
        head, tail = piece.split("\n[...]\n")
        assert set(head[-100:]) == set(tail[:100]) == set("x y"), "shortened in its middle"
