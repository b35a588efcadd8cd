from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from localctx.app.meter import Meter
from localctx.core.accounting import Count, Makeup
from localctx.core.messages import History, Message, Said, ToolCall, ToolCycle, ToolResult
from localctx.core.outgoing import outgoing
from localctx.runtimes.llama_server import LlamaServer
from localctx.tokenizers.estimate import ClassEstimate
from tests.fakes.llama_server import Fake, running

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from localctx.core.messages import Item

pytestmark = pytest.mark.anyio

FAR = 10**9


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
def fake() -> Iterator[Fake]:
    given = Fake()
    with running(given):
        yield given


@pytest.fixture
def server(fake: Fake) -> LlamaServer:
    return LlamaServer(fake.url)


class Counting(ClassEstimate):
    """The estimate, keeping which messages it was asked for."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[Mapping[str, object]] = []

    def message(self, message: Mapping[str, object]) -> Makeup:
        self.asked.append(message)
        return super().message(message)


def grown(*items: Item) -> History:
    history = History()
    for item in items:
        history = history.add(item)
    return history


ASKED, SAID = Message("user", "What does it hold?", seq=1), Said("Ten words, more or less.", seq=2)


async def test_the_first_count_is_the_servers_and_later_ones_are_what_is_new(server: LlamaServer, fake: Fake) -> None:
    counter = Counting()
    meter = Meter(server, counter)
    history = grown(ASKED)
    exact = await meter.measure(history, enough_below=FAR)
    assert exact == Count(fake.prompt_tokens({"messages": outgoing(history)}), 0, "llama-server input_tokens")
    counter.asked.clear()
    later = await meter.measure(history.add(SAID), enough_below=FAR)
    assert [message["content"] for message in counter.asked] == [SAID.content]
    assert later.lower <= fake.prompt_tokens({"messages": outgoing(history.add(SAID))}) <= later.upper
    assert later.how == "last measure and calibrated estimate"


async def test_where_it_matters_the_server_is_asked_again(server: LlamaServer) -> None:
    meter = Meter(server, ClassEstimate())
    history = grown(ASKED, SAID)
    await meter.measure(history, enough_below=FAR)
    assert (await meter.measure(history.add(Message("user", "And now?", seq=3)), enough_below=0)).bound == 0


async def test_each_leaf_is_counted_once_however_often_it_is_asked(server: LlamaServer) -> None:
    counter = Counting()
    meter, history = Meter(server, counter), History()
    cycle = ToolCycle(None, (ToolCall("a", "read", "{}"), ToolCall("b", "read", "{}")), seq=3)
    for item in (ASKED, SAID, cycle, ToolResult("a", "one", seq=4), ToolResult("b", "two", seq=5)):
        history = history.add(item)
        meter.rough(history)
        meter.rough(history)
    contents = [message.get("content") for message in counter.asked]
    assert contents == [ASKED.content, SAID.content, None, "one", "two"]


async def test_a_report_is_the_new_start_and_teaches_the_estimate(server: LlamaServer) -> None:
    meter = Meter(server, ClassEstimate())
    history = grown(ASKED, Message("user", "word " * 500, seq=2))
    before = meter.rough(history)
    meter.measured(before.tokens * 2, 2)
    assert meter.rough(history) == Count(before.tokens * 2, 0, "last measure and calibrated estimate")
    meter.void()
    after = meter.rough(history)
    assert abs(after.tokens - before.tokens * 2) < before.tokens * 0.25, "learned, though the report itself is void"
    assert after.how == "calibrated estimate"


async def test_a_reply_to_a_prompt_that_nobody_measured_takes_nothing_from_it(server: LlamaServer) -> None:
    meter = Meter(server, ClassEstimate())
    meter.rough(grown(ASKED))
    meter.measured(40, 1)
    history = grown(ASKED, SAID, Message("user", "word " * 300, seq=3))
    before = meter.rough(history)
    meter.replied("Ten words, more or less.", 7, 4)
    after = meter.rough(history.add(Said("Ten words, more or less.", seq=4)))
    assert after.tokens >= before.tokens > 300


async def test_what_a_server_adds_of_its_own_is_counted_again_after_the_history_was_rewritten(
    server: LlamaServer,
) -> None:
    meter = Meter(server, ClassEstimate())
    history = grown(ASKED)
    before = meter.rough(history)
    meter.measured(before.tokens + 3_000, 1)
    meter.void()
    assert meter.rough(history).tokens == pytest.approx(before.tokens + 3_000, rel=0.05)


@pytest.mark.parametrize(("tokens", "believed"), [(6, True), (9_000, False)])
async def test_a_reply_is_as_long_as_the_server_says_where_that_is_likely(
    server: LlamaServer, tokens: int, *, believed: bool
) -> None:
    meter = Meter(server, ClassEstimate())
    meter.rough(grown(ASKED))
    meter.measured(40, 1)
    history = grown(ASKED, SAID)
    meter.replied(str(SAID.content), tokens, 2)
    counted = meter.rough(history)
    assert (40 + tokens <= counted.tokens < 40 + tokens + 10) is believed
    assert counted.tokens < 80


async def test_a_model_that_counts_otherwise_all_at_once_is_followed(server: LlamaServer) -> None:
    meter, history, tokens = Meter(server, ClassEstimate()), History(), 0
    for seq in range(1, 80):
        history = history.add(Message("user", "some more words for the model to read " * 20, seq=seq))
        tokens += 160 if seq < 40 else 260
        before = meter.rough(history)
        meter.measured(tokens, seq)
    assert before.lower <= tokens <= before.upper
    assert abs(before.tokens - tokens) < 20


@pytest.mark.parametrize(("share", "doubts"), [(0.6, True), (0.1, False)])
async def test_a_report_that_is_too_low_may_be_of_a_cheaper_vocabulary_but_not_of_any(
    server: LlamaServer, share: float, *, doubts: bool
) -> None:
    meter = Meter(server, ClassEstimate())
    history = grown(Message("user", "word " * 500, seq=1))
    meter.measured(meter.rough(history).tokens, 1)
    meter.void()
    sure = meter.rough(history)
    meter.distrust(int(sure.tokens * share))
    assert (meter.rough(history).bound > sure.bound) is doubts


async def test_a_count_and_a_report_are_not_compared(server: LlamaServer) -> None:
    meter = Meter(server, ClassEstimate())
    history = grown(ASKED)
    meter.rough(history)
    meter.measured(40, 1, "count")
    learned = meter.calibration
    history = history.add(Message("user", "word", seq=2))
    meter.rough(history)
    meter.measured(3_040, 2)
    assert meter.calibration == learned, "the server's own words are in its report, and not in its count"


async def test_a_count_of_another_list_leaves_the_ledger_alone(server: LlamaServer) -> None:
    meter = Meter(server, ClassEstimate())
    history = grown(ASKED)
    before = await meter.measure(history, enough_below=FAR)
    await meter.exact([{"role": "user", "content": "something else"}])
    assert (await meter.measure(history, enough_below=FAR)).tokens == before.tokens


async def test_tools_are_counted_before_the_first_request(server: LlamaServer) -> None:
    tool: dict[str, object] = {"type": "function", "function": {"name": "read", "description": "Reads a file. " * 50}}
    bare, with_tools = Meter(server, ClassEstimate()), Meter(server, ClassEstimate(), tools=[tool])
    assert with_tools.rough(grown(ASKED)).tokens > bare.rough(grown(ASKED)).tokens + 150


async def test_the_sizes_of_a_history_add_up_to_its_count(server: LlamaServer) -> None:
    meter = Meter(server, ClassEstimate())
    history = grown(ASKED, SAID)
    size = meter.sizer(history, Count(1_000, 0, ""))
    assert size(str(ASKED.content)) + size(str(SAID.content)) == pytest.approx(1_000, rel=0.5)
