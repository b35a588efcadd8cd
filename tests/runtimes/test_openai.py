from __future__ import annotations

from typing import Any

import httpx
import pytest

from localctx.core.window import Confidence, Reading, ServerReport, Source, Status
from localctx.runtimes.detect import Detector
from localctx.runtimes.openai import tokens
from localctx.runtimes.server import Pins
from tests.recordings import transport

pytestmark = pytest.mark.anyio


async def listing(*cards: Any, pin: int | None = None) -> ServerReport:  # noqa: ANN401  JSON
    replay = httpx.MockTransport(
        lambda request: (
            httpx.Response(200, json={"object": "list", "data": list(cards)})
            if request.url.path == "/v1/models"
            else httpx.Response(404)
        )
    )
    pins = Pins(None if pin is None else Reading(Source.PINNED, pin, "--num-ctx"))
    report = await Detector("http://x", pins=pins, transport=replay).probe()
    assert (report.runtime, report.status, report.error) == ("openai", Status.UP, None)
    return report


async def test_litellm_repeats_what_it_read_from_the_server_behind() -> None:
    replay = transport("routers/litellm-1.108.7/01-models")
    models = (await Detector("http://x", transport=replay).probe()).models
    assert [(model.id, model.window.tokens) for model in models] == [("smol", 2048), ("smol-sgl", 512)]
    assert {model.window.confidence for model in models} == {Confidence.PROVISIONAL}


@pytest.mark.parametrize("backend", ["sglang", "vllm"])
async def test_a_router_that_hides_the_window_leaves_it_unknown(backend: str) -> None:
    replay = transport(f"routers/sglang-router-0.3.2_over_{backend}/01-models")
    (model,) = (await Detector("http://x", transport=replay).probe()).models
    assert (model.window.tokens, model.window.confidence) == (None, Confidence.UNKNOWN)
    (advice,) = model.warnings
    assert (advice.code, "--num-ctx" in advice.fix) == ("unknown-window", True)


@pytest.mark.parametrize(
    "field", ["max_model_len", "context_length", "max_context_length", "context_window", "max_input_tokens"]
)
async def test_a_window_is_found_where_servers_put_it(field: str) -> None:
    (model,) = (await listing({"id": "m", field: 4096})).models
    assert (model.window.tokens, model.window.confidence) == (4096, Confidence.PROVISIONAL)
    assert model.window.decided_by == Reading(Source.CONFIGURED, 4096, f"openai /v1/models {field}")
    assert model.warnings == ()


async def test_of_two_statements_the_lower_is_believed() -> None:
    (model,) = (await listing({"id": "m", "context_length": 4096, "max_input_tokens": 3000})).models
    assert model.window.tokens == 3000


async def test_a_pin_stands_where_nothing_is_said() -> None:
    (model,) = (await listing({"id": "m"}, pin=2048)).models
    assert (model.window.tokens, model.window.confidence, model.warnings) == (2048, Confidence.PROVISIONAL, ())


async def test_entries_that_are_no_models_are_left_out() -> None:
    report = await listing(None, 7, "m", {}, {"id": None}, {"id": "m", "max_model_len": 4096}, [{"id": "n"}])
    assert [model.id for model in report.models] == ["m"]


@pytest.mark.parametrize("cards", [(), ({"object": "model"},)])
async def test_a_server_without_models_is_up(cards: tuple[object, ...]) -> None:
    assert (await listing(*cards)).models == ()


async def test_a_server_that_is_not_ready_is_loading() -> None:
    replay = httpx.MockTransport(lambda _: httpx.Response(503, json={"error": "not ready"}))
    report = await Detector("http://x", transport=replay).probe()
    assert (report.runtime, report.status) == (None, Status.LOADING)


@pytest.mark.parametrize(
    ("value", "number"), [(1, 1), ("12", 12), (12.0, 12), (2**31 - 1, 2**31 - 1), (0, 0), (-5, 0), (None, 0), (True, 0)]
)
def test_a_number_of_tokens(value: object, number: int) -> None:
    assert tokens(value) == number
