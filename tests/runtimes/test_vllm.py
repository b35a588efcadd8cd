from __future__ import annotations

import httpx
import pytest

from localctx.core.window import Confidence, ModelReport, Reading, Source, Status
from localctx.runtimes.detect import Detector
from localctx.runtimes.server import Pins
from tests.recordings import body, transport

pytestmark = pytest.mark.anyio

INFO = next(
    line for line in body("vllm-0.32.0/07-metrics-before").splitlines() if line.startswith("vllm:cache_config_info{")
)


async def recorded(*names: str, pin: int | None = None) -> list[ModelReport]:
    replay = transport(*(f"vllm-0.32.0/{name}" for name in names))
    pins = Pins(Reading(Source.PINNED, pin, "--num-ctx") if pin else None)
    report = await Detector("http://recorded", pins=pins, transport=replay).probe()
    assert (report.runtime, report.status, report.error) == ("vllm", Status.UP, None)
    return list(report.models)


async def saying(metrics: str, *, stated: object = 2048) -> ModelReport:
    listed = {"data": [{"id": "m", "owned_by": "vllm", "max_model_len": stated}]}

    def answer(request: httpx.Request) -> httpx.Response:
        match request.url.path:
            case "/v1/models":
                return httpx.Response(200, json=listed)
            case "/metrics":
                return httpx.Response(200, text=metrics)
        return httpx.Response(404)

    (model,) = (await Detector("http://x", transport=httpx.MockTransport(answer)).probe()).models
    return model


def codes(model: ModelReport) -> set[str]:
    return {advice.code for advice in model.warnings}


async def test_the_pool_is_told_without_the_block_that_is_kept_back() -> None:
    (model,) = await recorded("01-models", "02-version", "07-metrics-before")
    assert model.shared_pool == 363 * 128 == 46_464
    assert codes(model) == set()


async def test_aliases_and_adapters_have_the_window_of_what_they_stand_for() -> None:
    models = await recorded("21-models-multi-lora", "20e-version-noauth", "20d-metrics-noauth")
    assert [model.id for model in models] == ["smol", "smollm2:135m", "acme/smol", "tiny-lora"]
    for model in models:
        assert (model.window.tokens, model.window.max_prompt) == (2048, 2047)
        assert model.window.confidence is Confidence.SERVED
        assert model.window.decided_by is not None
        assert model.window.decided_by.note == ("of smol, whose adapter it is" if model.id == "tiny-lora" else None)


async def test_a_window_that_was_fitted_to_the_pool_has_room_for_one_request() -> None:
    (model,) = await recorded("50-autofit-models", "02-version", "50b-autofit-metrics")
    assert (model.window.tokens, model.window.max_prompt, model.shared_pool) == (1920, 1919, 1920)
    (shared,) = [advice for advice in model.warnings if advice.code == "shared-pool"]
    assert "1,920 tokens holds 1.0 requests of 1,920" in shared.text


@pytest.mark.parametrize(("pin", "tokens", "warned"), [(None, 2048, False), (1000, 1000, False), (4096, 2048, True)])
async def test_a_pin_lowers(pin: int | None, tokens: int, *, warned: bool) -> None:
    (model,) = await recorded("01-models", "02-version", pin=pin)
    assert (model.window.tokens, model.window.confidence) == (tokens, Confidence.SERVED)
    assert (codes(model) == {"clamped"}) == warned
    assert not warned or "4,096 tokens were asked for (--num-ctx), 2,048 are served" in model.warnings[0].text


async def test_without_version_and_metrics_the_window_is_still_known() -> None:
    (model,) = await recorded("01-models")
    assert (model.window.tokens, model.shared_pool) == (2048, None)


@pytest.mark.parametrize(
    ("change", "pool"),
    [
        (("", ""), 46_464),
        (('kv_cache_size_tokens="46592"', 'kv_cache_size_tokens="None"'), 46_464),
        (('kv_cache_size_tokens="46592"', 'kv_cache_size_tokens="30000"'), 30_000),  # layers that differ
        (('kv_cache_dtype_skip_layers="[]"', "kv_cache_dtype_skip_layers=\"{'a': 1}\""), 46_464),
        (('num_gpu_blocks="364"', 'num_gpu_blocks="None"'), 46_592),
        (('num_gpu_blocks="364"', 'num_gpu_blocks="1"'), 46_592),
        (('block_size="128"', 'block_size="0"'), 46_592),
        (("vllm:cache_config_info", "vllm:other_info"), None),
        (("{", ""), None),
    ],
    ids=str,
)
async def test_the_pool_is_what_the_metrics_say(change: tuple[str, str], pool: int | None) -> None:
    text = f"# HELP vllm:cache_config_info Information\n{INFO.replace(*change)}\nvllm:other 1.0\n"
    assert (await saying(text)).shared_pool == pool


@pytest.mark.parametrize(("blocks", "warned"), [(17, True), (32, True), (33, False), (364, False)])
async def test_a_pool_for_less_than_two_requests_is_warned_about(blocks: int, *, warned: bool) -> None:
    text = f'vllm:cache_config_info{{block_size="128",num_gpu_blocks="{blocks}"}} 1.0'
    model = await saying(text)
    assert model.shared_pool == (blocks - 1) * 128
    assert (codes(model) == {"shared-pool"}) == warned


async def test_each_engine_has_its_own_pool() -> None:
    second = INFO.replace('engine="0"', 'engine="1"')
    assert (await saying(f"{INFO}\n{second}\n")).shared_pool == 46_464


async def test_an_unknown_window_has_no_share_of_the_pool() -> None:
    model = await saying(INFO, stated=None)
    assert (model.window.tokens, model.shared_pool, codes(model)) == (None, 46_464, {"unknown-window"})


async def test_a_server_that_is_starting_is_loading() -> None:
    def answer(request: httpx.Request) -> httpx.Response:
        if request.url.path == "/version":
            return httpx.Response(200, json={"version": "0.32.0"})
        return httpx.Response(503, json={"error": "starting"})

    report = await Detector("http://x", transport=httpx.MockTransport(answer)).probe()
    assert (report.runtime, report.status, report.models) == ("vllm", Status.LOADING, ())
