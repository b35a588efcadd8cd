from __future__ import annotations

from typing import Any

import httpx
import pytest

from localctx.core.window import Confidence, ModelReport, Reading, Source, Status
from localctx.runtimes.detect import Detector
from localctx.runtimes.server import Pins
from tests.runtimes.test_contract import LM_STUDIO

pytestmark = pytest.mark.anyio


def answering(listed: object) -> httpx.MockTransport:
    bodies = {"/v1/models": {"data": [{"id": "m", "object": "model"}]}, "/api/v0/models": listed}
    return httpx.MockTransport(
        lambda request: (
            httpx.Response(200, json=bodies[request.url.path])
            if request.url.path in bodies
            else httpx.Response(200, json={"error": "Unexpected endpoint or method."})
        )
    )


async def one(pin: int | None = None, **more: Any) -> ModelReport:  # noqa: ANN401  JSON
    pins = Pins(None if pin is None else Reading(Source.PINNED, pin, "--num-ctx"))
    listed = {"data": [{"id": "m", "type": "llm", "state": "loaded", "max_context_length": 32768, **more}]}
    report = await Detector("http://x", pins=pins, transport=answering(listed)).probe()
    assert (report.runtime, report.status) == ("lmstudio", Status.UP)
    (model,) = report.models
    return model


async def test_what_the_documentation_shows_is_read_and_stays_provisional() -> None:
    report = await Detector("http://x", transport=answering(LM_STUDIO)).probe()
    coder, eyes = report.models  # what makes no text has no window to speak of
    assert (coder.id, coder.loaded, coder.trained) == ("small-coder-7b", True, 131_072)
    assert (coder.window.tokens, coder.window.max_prompt) == (4096, 4095)
    assert coder.window.confidence is Confidence.PROVISIONAL
    assert (eyes.id, eyes.loaded, eyes.trained, eyes.window.tokens) == ("eyes-3b", False, 32_768, None)
    assert eyes.window.confidence is Confidence.UNKNOWN
    assert [advice.code for advice in eyes.warnings] == ["unknown-window"]


@pytest.mark.parametrize("loaded", [None, 0, 8192])
async def test_a_loaded_model_may_not_say_its_window(loaded: int | None) -> None:
    """Releases before that field do not."""
    model = await one(**({} if loaded is None else {"loaded_context_length": loaded}))
    assert (model.loaded, model.window.tokens) == (True, loaded or None)
    assert model.window.confidence is (Confidence.PROVISIONAL if loaded else Confidence.UNKNOWN)


async def test_what_was_loaded_once_is_not_what_is_loaded() -> None:
    model = await one(state="not-loaded", loaded_context_length=4096)
    assert (model.loaded, model.window.tokens) == (False, None)


@pytest.mark.parametrize(("pin", "tokens"), [(2048, 2048), (99_999, 32_768)])
async def test_a_pin_of_a_model_that_is_not_loaded_is_capped_by_the_weights(pin: int, tokens: int) -> None:
    model = await one(pin=pin, state="not-loaded")
    assert (model.window.tokens, model.window.confidence) == (tokens, Confidence.PROVISIONAL)


@pytest.mark.parametrize(
    "listed", [{}, {"data": None}, {"data": [{"id": "m"}]}, {"error": "Unexpected endpoint or method."}, [], "no"]
)
async def test_another_list_is_another_server(listed: object) -> None:
    assert (await Detector("http://x", transport=answering(listed)).probe()).runtime == "openai"


@pytest.mark.parametrize(
    ("said", "calls"),
    [
        (["tool_use"], True),
        (["vision", "tool_use"], True),
        (["vision"], None),
        ([], None),
        (None, None),
        ("tool_use", None),
    ],
)
async def test_what_is_listed_as_using_tools_calls_them(said: object, calls: bool | None) -> None:  # noqa: FBT001
    """Others are given tools too, by LM Studio's own words, which may work or not."""
    assert (await one(capabilities=said)).calls_tools is calls
    assert (await one()).calls_tools is None
