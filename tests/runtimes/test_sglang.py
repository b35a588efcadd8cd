from __future__ import annotations

import httpx
import pytest

from localctx.core.window import Confidence, ModelReport, Reading, Source, Status
from localctx.runtimes.detect import Detector
from localctx.runtimes.server import Pins
from tests.cases import case
from tests.recordings import body, transport
from tests.runtimes.raw import Heard

pytestmark = pytest.mark.anyio


async def recorded(*names: str, pins: Pins | None = None) -> tuple[ModelReport, Heard]:
    heard = Heard(transport(*(f"sglang-0.5.23/{name}" for name in names)))
    report = await Detector("http://recorded", pins=pins, transport=heard).probe()
    assert (report.runtime, report.status, report.error) == ("sglang", Status.UP, None)
    assert report.version == ("0.5.23" if any("server_info" in name for name in names) else None)
    (model,) = report.models
    return model, heard


def codes(model: ModelReport) -> set[str]:
    return {advice.code for advice in model.warnings}


@pytest.mark.parametrize(
    ("name", "stated", "longest", "pool", "warned"),
    [
        ("03-server_info", 2048, 2041, 8192, set()),
        ("42-server_info-pool-smaller", 2048, 993, 1000, {"small-pool"}),
        ("50-server_info", 512, 505, 700, set()),
        ("60b-server_info", 8192, 293, 300, {"small-pool", "auto-truncate"}),
    ],
    ids=["by its context", "by its pool", "by its context, with little more", "by its pool, and cut in silence"],
)
async def test_the_window_is_what_the_server_accepts(
    name: str, stated: int, longest: int, pool: int, warned: set[str]
) -> None:
    """993 and 505 were accepted by real servers, 994 and 506 refused."""
    listed = body("sglang-0.5.23/01-models")
    listed["data"][0]["max_model_len"] = stated
    bodies = {"/v1/models": listed, "/server_info": body(f"sglang-0.5.23/{name}")}
    replay = httpx.MockTransport(
        lambda request: (
            httpx.Response(200, json=bodies[request.url.path]) if request.url.path in bodies else httpx.Response(404)
        )
    )
    report = await Detector("http://recorded", transport=replay).probe()
    (model,) = report.models
    limit = bodies["/server_info"]["max_req_input_len"]
    assert (report.runtime, report.version, longest) == ("sglang", "0.5.23", limit - 1)
    window = model.window
    assert (window.tokens, window.max_prompt, window.confidence) == (limit + 5, longest, Confidence.SERVED)
    assert window.decided_by == Reading(Source.SERVED, limit + 5, "sglang /server_info max_req_input_len + 5")
    assert [reading.tokens for reading in window.readings] == [limit + 5, stated, pool]
    assert (model.shared_pool, codes(model)) == (pool, warned)


@pytest.mark.parametrize(
    ("names", "tokens", "longest", "pool"),
    [
        (("41-models-pool-smaller", "44b-metrics-pool-smaller"), 1000, 993, 1000),
        (("41-models-pool-smaller",), 2048, 2041, None),
    ],
    ids=["metrics", "nothing but the list"],
)
async def test_without_server_info_the_window_is_provisional(
    names: tuple[str, ...], tokens: int, longest: int, pool: int | None
) -> None:
    model, heard = await recorded(*names)
    window = model.window
    assert (window.tokens, window.max_prompt, window.confidence) == (tokens, longest, Confidence.PROVISIONAL)
    assert (model.shared_pool, codes(model)) == (pool, {"small-pool"} if pool else set())
    assert [line for line in heard.asked if line in {"GET /server_info", "GET /metrics"}] == [
        "GET /server_info",
        "GET /metrics",
    ]


async def test_the_number_of_the_tokenizer_is_never_asked_for() -> None:
    names = ("41-models-pool-smaller", "42-server_info-pool-smaller", "43-tokenize-pool-smaller")
    model, heard = await recorded(*names)
    assert body("sglang-0.5.23/43-tokenize-pool-smaller")["max_model_len"] == 131_072
    assert not [line for line in heard.asked if "tokenize" in line or "POST" in line]
    assert 131_072 not in [reading.tokens for reading in model.window.readings]


@pytest.mark.parametrize(
    ("pin", "ceiling", "tokens", "warned"),
    [(500, None, 500, False), (2048, None, 999, True), (None, 500, 500, False), (800, 500, 500, False)],
)
async def test_pins_and_ceilings_lower(pin: int | None, ceiling: int | None, tokens: int, *, warned: bool) -> None:
    pins = Pins(Reading(Source.PINNED, pin, "--num-ctx") if pin else None, ceiling)
    model, _ = await recorded("41-models-pool-smaller", "42-server_info-pool-smaller", pins=pins)
    assert (model.window.tokens, model.window.max_prompt) == (tokens, tokens - 6)
    assert ("clamped" in codes(model)) == warned


@pytest.mark.parametrize(
    ("value", "pool"),
    [
        ("1000.0", 1000),
        ("1000", 1000),
        ("1e+06", 1_000_000),
        ("1.234567e+06", 1_234_567),
        ("0.0", None),
        ("NaN", None),
        ("+Inf", None),
        ("1e", None),
        ("1e+300", None),
        ("-1.0", None),
        ("", None),
    ],
)
async def test_the_pool_in_the_metrics_is_a_number_of_prometheus(value: str, pool: int | None) -> None:
    listed = {"data": [{"id": "m", "owned_by": "sglang", "max_model_len": 2_000_000}]}
    text = f'# TYPE x\nsglang:max_total_num_tokens{{model_name="{{m}}",tp_rank="0"}} {value}\nsglang:other 7.0\n'

    def answer(request: httpx.Request) -> httpx.Response:
        match request.url.path:
            case "/v1/models":
                return httpx.Response(200, json=listed)
            case "/metrics":
                return httpx.Response(200, text=text)
        return httpx.Response(404)

    (model,) = (await Detector("http://x", transport=httpx.MockTransport(answer)).probe()).models
    assert (model.shared_pool, model.window.tokens) == (pool, pool or 2_000_000)


async def test_case_a_pool_below_the_context() -> None:
    given, checks = case(7)["given"], case(7)["checks"]
    answers = {(row["method"], row["path"]): row for row in given["http"]}

    def answer(request: httpx.Request) -> httpx.Response:
        row = answers.get((request.method, request.url.path))
        return httpx.Response(404) if row is None else httpx.Response(row["status"], json=row["json"])

    report = await Detector("http://x", transport=httpx.MockTransport(answer)).probe()
    assert (report.runtime, [model.id for model in report.models]) == ("sglang", [given["model"], "demo-lora"])
    assert checks["lora_inherits"]
    for model in report.models:
        assert (model.window.tokens, model.window.max_prompt) == (checks["effective_window"], checks["max_input"])
        assert model.window.tokens not in checks["windows_ignored"]
        assert codes(model) == {"small-pool"}
        stated = {reading.tokens for reading in model.window.readings if reading.source is Source.CONFIGURED}
        assert 163_840 in stated
