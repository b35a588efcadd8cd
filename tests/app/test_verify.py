from __future__ import annotations

from typing import Any

import pytest

from localctx.app.verify import Verdict, verify
from localctx.core.events import Event, Notice
from localctx.core.window import Reading, Source, reconcile
from localctx.runtimes.llama_server import LlamaServer
from tests.fakes.llama_server import Fake, running

pytestmark = pytest.mark.anyio


async def measured(fake: Fake, *, seconds: float = 20.0) -> tuple[Verdict, list[Event]]:
    events: list[Event] = []
    with running(fake) as server:
        runtime = LlamaServer(server.url)
        (model,) = (await runtime.probe()).models
        verdict = await verify(runtime, model.window, events.append, seconds=seconds)
        await runtime.close()
    return verdict, events


@pytest.mark.parametrize("window", [512, 2048, 8192])
async def test_a_refusal_gives_the_window_and_the_edge_is_tried(window: int) -> None:
    fake = Fake(n_ctx=window)
    verdict, events = await measured(fake)
    assert verdict.reading is not None
    assert verdict.reading.tokens == window
    assert verdict.text == f"it takes {window - 1:,} tokens and refuses {window:,}"
    assert all(body["max_tokens"] == 1 for body in fake.chats)
    assert len(fake.chats) <= 6
    assert isinstance(events[0], Notice), "what it costs is said first"
    assert events[0].code == "verify-cost"


async def test_a_server_that_lies_is_unmasked() -> None:
    fake = Fake(n_ctx=131072, fault="cut_silently", keep=4096)
    verdict, _ = await measured(fake)
    assert verdict.reading is not None
    assert verdict.reading.tokens == 4096
    assert "cuts in silence" in verdict.text


async def test_a_server_that_claims_twice_what_it_takes_is_measured() -> None:
    verdict, _ = await measured(Fake(n_ctx=1024, fault="lying"))
    assert verdict.reading is not None
    assert verdict.reading.tokens == 1024


async def test_time_that_runs_out_leaves_a_labelled_part() -> None:
    verdict, _ = await measured(Fake(n_ctx=2048, delay=5.0), seconds=1.0)
    assert verdict.partial
    assert verdict.reading is None
    assert "not enough" in verdict.text


async def test_a_server_that_drops_the_middle_and_reports_all_is_told_by_its_canaries() -> None:
    def forgetful(body: dict[str, Any]) -> str:
        """A model that was shown the end alone."""
        return "Otter-7758" if "code words" in body["messages"][0]["content"] else "ok"

    fake = Fake(n_ctx=16384, reply=forgetful)
    with running(fake) as server:
        runtime = LlamaServer(server.url)
        claimed = reconcile([Reading(Source.SERVED, 2048, "a lie")])
        verdict = await verify(runtime, claimed, lambda _event: None, seconds=20)
        await runtime.close()
    assert verdict.partial
    assert verdict.text.endswith("it gave back: end")
