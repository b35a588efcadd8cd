from __future__ import annotations

import re
import tracemalloc
from contextlib import contextmanager
from time import monotonic
from typing import TYPE_CHECKING, Any

import anyio
import httpx
import pytest

from localctx.core.window import Confidence, Reading, Source, Status
from localctx.errors import Misuse, ServerFailed
from localctx.runtimes.detect import Detector
from localctx.runtimes.http import client
from localctx.runtimes.llama_server import serves
from localctx.runtimes.ollama import load
from localctx.runtimes.server import Pins, Server
from tests.cases import case
from tests.fakes.ollama import Fake, Model, running
from tests.recordings import transport
from tests.runtimes.raw import Heard

if TYPE_CHECKING:
    from collections.abc import Iterator

    from localctx.core.window import ModelReport, ServerReport

pytestmark = pytest.mark.anyio

BASE = ("01-version", "15-v1-models", "11-tags", "12-show")
SERVED, PINNED, CONFIGURED, TRAINED = Source.SERVED, Source.PINNED, Source.CONFIGURED, Source.TRAINED


def pinned(tokens: int | None, ceiling: int | None = None) -> Pins:
    return Pins(None if tokens is None else Reading(PINNED, tokens, "--num-ctx"), ceiling)


async def recorded(*names: str, pins: Pins | None = None, base: tuple[str, ...] = BASE) -> dict[str, ModelReport]:
    replay = transport(*(f"ollama-0.33.0-rc2/{name}" for name in (*base, *names)))
    return by_name(await Detector("http://recorded", pins=pins, transport=replay).probe())


def by_name(report: ServerReport) -> dict[str, ModelReport]:
    assert (report.runtime, report.status, report.error) == ("ollama", Status.UP, None)
    return {model.id: model for model in report.models}


async def asked(fake: Fake, pins: Pins | None = None, wanted: str | None = None) -> ServerReport:
    detector = Detector(fake.url, pins=pins, load=wanted)
    try:
        return await detector.probe()
    finally:
        await detector.close()


def codes(model: ModelReport) -> set[str]:
    return {advice.code for advice in model.warnings}


def said(model: ModelReport, code: str) -> str:
    (advice,) = [advice for advice in model.warnings if advice.code == code]
    return f"{advice.text} | {advice.fix}"


def readings(model: ModelReport) -> dict[Source, int]:
    return {reading.source: reading.tokens for reading in model.window.readings}


# What was recorded.


@pytest.mark.parametrize(
    ("ps", "tokens", "warned"),
    [
        ("21-ps-default", 4096, True),
        ("171-ps", 2048, True),
        ("36-ps-numctx20000", 8192, False),
        ("61-ps-1000", 1000, True),
        ("112-env-ctx3000-ps", 3000, True),
        ("121-par2-ps", 4096, True),  # OLLAMA_NUM_PARALLEL=2: the window is that of one request
        ("177-ps-numctx0", 4, True),
    ],
)
async def test_what_is_resident_is_served(ps: str, tokens: int, *, warned: bool) -> None:
    model = (await recorded(ps))["smollm2:latest"]
    window = model.window
    assert (window.tokens, window.max_prompt, window.confidence) == (tokens, tokens - 1, Confidence.SERVED)
    assert window.decided_by == Reading(SERVED, tokens, "ollama /api/ps context_length")
    assert (model.loaded, model.trained) == (True, 8192)
    assert ("unpinned" in codes(model)) == warned
    assert not warned or f"{tokens:,}" in said(model, "unpinned")
    assert "half-window" in codes(model)


async def test_a_modelfile_sets_the_window_until_it_is_loaded() -> None:
    names = ("142-tags-several", "81-show-derived", "12-show", "198-show-sys")
    base = ("01-version", "15-v1-models", *names)
    cold = await recorded("04-ps-empty", base=base)
    assert len(cold) == 6
    derived = cold["smollm2-6k:latest"]
    assert (derived.window.tokens, derived.window.confidence) == (6000, Confidence.PROVISIONAL)
    assert derived.window.decided_by == Reading(CONFIGURED, 6000, "ollama Modelfile num_ctx")
    assert (derived.loaded, codes(derived)) == (False, set())
    for name in ("smollm2:latest", "smollm2-sys:latest"):
        assert (cold[name].window.tokens, cold[name].window.confidence) == (None, Confidence.UNKNOWN)
        assert "8,192 are trained" in said(cold[name], "unpinned")
        assert "--load" in said(cold[name], "unpinned")
    assert cold["smol-tools:latest"].trained == 8192, "no details of it were recorded: the list says it"
    warm = (await recorded("83-ps-derived", base=base))["smollm2-6k:latest"]
    assert (warm.window.tokens, warm.window.confidence, warm.loaded) == (6000, Confidence.SERVED, True)


async def test_names_that_share_their_weights_share_what_is_resident() -> None:
    base = ("01-version", "15-v1-models", "142-tags-several", "81-show-derived", "12-show", "198-show-sys")
    models = await recorded("88-ps-derived-sys", base=base)
    assert next(iter(models)) == "smollm2:latest", "what is resident comes first"
    for name, note in {
        "smollm2:latest": None,
        "smollm2-sys:latest": "resident as smollm2:latest, which shares its weights",
        "smollm2-6k:latest": "resident as smollm2:latest, which shares its weights",
    }.items():
        decided = models[name].window.decided_by
        assert decided == Reading(SERVED, 4096, "ollama /api/ps context_length", note)
        assert models[name].loaded
    assert not models["smol-tools:latest"].loaded


async def test_two_at_once() -> None:
    base = ("01-version", "15-v1-models", "142-tags-several", "12-show")
    models = await recorded("149-ps-two-models", base=base)
    assert {name for name, model in models.items() if model.loaded} == {"smol-tools:latest", "smol-think:latest"}


async def test_none_at_all() -> None:
    assert await recorded("04-ps-empty", base=("01-version", "05-v1-models-empty", "03-tags-empty")) == {}


# Pins.


@pytest.mark.parametrize(
    ("pin", "ceiling", "tokens", "confidence", "warned"),
    [
        (None, None, 4096, Confidence.SERVED, {"unpinned"}),
        (4096, None, 4096, Confidence.SERVED, set()),
        (2048, None, 2048, Confidence.PROVISIONAL, {"reloads"}),
        (6144, None, 6144, Confidence.PROVISIONAL, {"reloads"}),
        (20_000, None, 8192, Confidence.PROVISIONAL, {"reloads", "clamped"}),
        (None, 1000, 1000, Confidence.SERVED, {"unpinned"}),
        (None, 99_999, 4096, Confidence.SERVED, {"unpinned"}),
        (6144, 1000, 1000, Confidence.PROVISIONAL, {"reloads"}),
        (0, None, 4096, Confidence.SERVED, {"unpinned"}),
        (-1, None, 4096, Confidence.SERVED, {"unpinned"}),
    ],
)
async def test_a_pin_replaces_what_is_resident_once_it_is_confirmed(
    pin: int | None, ceiling: int | None, tokens: int, confidence: Confidence, warned: set[str]
) -> None:
    model = (await recorded("21-ps-default", pins=pinned(pin, ceiling)))["smollm2:latest"]
    assert (model.window.tokens, model.window.confidence) == (tokens, confidence)
    assert codes(model) == warned | {"half-window"}


async def test_a_pin_above_what_is_trained_is_confirmed_by_what_is_trained() -> None:
    """The server lowers it in silence, and a second call with it does not load again."""
    model = (await recorded("36-ps-numctx20000", pins=pinned(20_000)))["smollm2:latest"]
    assert (model.window.tokens, model.window.confidence) == (8192, Confidence.SERVED)
    assert codes(model) == {"clamped", "half-window"}
    assert "20,000 tokens were asked for (--num-ctx), 8,192 are trained" in said(model, "clamped")


async def test_a_ceiling_is_not_taken_for_the_servers_default() -> None:
    model = (await recorded("36-ps-numctx20000", pins=pinned(None, 1000)))["smollm2:latest"]
    assert (model.window.tokens, codes(model)) == (1000, {"half-window"})


# Cases from the field.


def told(rows: list[dict[str, Any]], tags: dict[str, Any] | None = None) -> Heard:
    answers = {(row["method"], row["path"]): row for row in rows}
    bodies = {"/api/version": {"version": "0.34.2"}, "/v1/models": {"object": "list", "data": None}, "/api/tags": tags}

    def answer(request: httpx.Request) -> httpx.Response:
        row = answers.get((request.method, request.url.path))
        if row is not None:
            return httpx.Response(row["status"], json=row["json"])
        said = bodies.get(request.url.path)
        return httpx.Response(404) if said is None else httpx.Response(200, json=said)

    return Heard(httpx.MockTransport(answer))


async def test_case_what_is_served_beats_the_card() -> None:
    given, checks = case(1)["given"], case(1)["checks"]
    heard = told(given["http"])
    report = await Detector(given["base_url"], transport=heard).probe()
    (model,) = report.models
    assert (model.id, model.window.tokens, model.trained) == (
        given["model"],
        checks["effective_window"],
        checks["upper_bound"],
    )
    assert model.window.decided_by is not None
    assert model.window.decided_by.where == checks["source"].replace(":", " ") + " context_length"
    text = said(model, "unpinned")
    assert "131,072" in text
    assert "--num-ctx" in text
    assert {*heard.asked} == {
        *("GET /v1/models", "GET /props", "GET /api/version", "GET /api/ps", "GET /api/tags", "POST /api/show")
    }


async def test_case_a_pin_is_lowered_to_what_is_trained() -> None:
    given, checks = case(2)["given"], case(2)["checks"]
    pins = pinned(given["config"]["num_ctx"], given["config"]["maxContextTokens"])
    tags = {"models": [{"name": given["model"]}]}
    for name, confidence in {
        "http_before_first_turn": Confidence.PROVISIONAL,
        "http_after_first_turn": Confidence.SERVED,
    }.items():
        rows = [*given["http_before_first_turn"], *given[name]]
        (model,) = (await Detector("http://recorded", pins=pins, transport=told(rows, tags)).probe()).models
        assert (model.window.tokens, model.window.confidence) == (checks["effective_window"], confidence)
        notices = [advice for advice in model.warnings if advice.code == "clamped"]
        assert len(notices) == checks["notice_count"]
        assert "65,536" in notices[0].text
        assert "40,960" in notices[0].text
        assert "reloads" not in codes(model)


async def test_case_a_cold_model_is_provisional() -> None:
    given, checks = case(3)["given"], case(3)["checks"]
    tags = {"models": [{"name": given["model"]}]}
    for name, check in {
        "http_cold": checks["cold"],
        "http_warm": checks["warm"],
        "http_warm_after_oom_stepdown": checks["after_stepdown"],
    }.items():
        rows = [*given["http_cold"], *given[name]]
        (model,) = (await Detector("http://recorded", transport=told(rows, tags)).probe()).models
        assert model.window.tokens == check["effective_window"]
        assert model.window.confidence == check.get("confidence", Confidence.SERVED)
        assert readings(model)[TRAINED] == 262_144


# Nothing is loaded, unless it is asked for, and then once.


async def test_probing_loads_nothing_and_reloads_nothing() -> None:
    models = [Model(name="a"), Model(name="b", num_ctx=2048), Model(name="c", weights="a")]
    with running(Fake(models=models)) as fake:
        for pins in (None, pinned(1024), pinned(99_999)):
            await asked(fake, pins)
        assert (fake.loads, fake.resident) == ([], {})
        fake.use(models[0], {"options": {"num_ctx": 512}})
        for pins in (None, pinned(512), pinned(1024)):
            found = by_name(await asked(fake, pins))
            assert found["a:latest"].loaded
            assert found["c:latest"].loaded
            assert not found["b:latest"].loaded
        assert fake.loads == [("a:latest", 512)]
        questions = {line for line, _ in fake.requests}
    assert questions == {
        *("GET /v1/models", "GET /props", "GET /api/version", "GET /api/ps", "GET /api/tags", "POST /api/show")
    }


@pytest.mark.parametrize(("pin", "tokens"), [(None, 4096), (1024, 1024), (8192, 8192), (20_000, 8192)], ids=str)
@pytest.mark.parametrize("wanted", ["smollm2", "smollm2:latest", "ollama/smollm2"])
async def test_loading_loads_once_and_confirms(pin: int | None, tokens: int, wanted: str) -> None:
    with running(Fake()) as fake:
        for _ in range(3):
            (model,) = (await asked(fake, pinned(pin), wanted)).models
            assert (model.window.tokens, model.window.confidence) == (tokens, Confidence.SERVED)
            assert serves(model, "smollm2")
            assert serves(model, "smollm2:latest")
        assert fake.loads == [("smollm2:latest", tokens)]
        sent = [body for line, body in fake.requests if line == "POST /api/generate"]
    options = {} if pin is None else {"num_ctx": pin}
    assert sent == [{"model": "smollm2:latest", "options": options, "truncate": False, "shift": False, "stream": False}]


async def test_what_is_resident_is_kept_without_a_pin() -> None:
    """A call without num_ctx would load it again, with the server's default."""
    with running(Fake()) as fake:
        fake.use(fake.models[0], {"options": {"num_ctx": 2048}})
        (model,) = (await asked(fake, None, "smollm2")).models
        assert (model.window.tokens, fake.loads) == (2048, [("smollm2:latest", 2048)])


async def test_a_pin_that_differs_loads_again_once() -> None:
    with running(Fake()) as fake:
        fake.use(fake.models[0], {})
        for _ in range(2):
            (model,) = (await asked(fake, pinned(1024), "smollm2")).models
        assert (model.window.tokens, model.window.confidence) == (1024, Confidence.SERVED)
        assert fake.loads == [("smollm2:latest", 4096), ("smollm2:latest", 1024)]


async def test_a_modelfile_decides_what_a_load_without_a_pin_gives() -> None:
    with running(Fake(models=[Model(name="six", num_ctx=6000)])) as fake:
        (model,) = (await asked(fake, None, "six")).models
        assert (model.window.tokens, model.window.confidence, fake.loads) == (
            6000,
            Confidence.SERVED,
            [("six:latest", 6000)],
        )


async def test_a_model_that_is_not_there_is_not_asked_for() -> None:
    with running(Fake()) as fake:
        report = await asked(fake, None, "another")
        assert (report.status, fake.loads) == (Status.UP, [])
        assert all(line != "POST /api/generate" for line, _ in fake.requests)
        with pytest.raises(ServerFailed, match=r"HTTP 404: .*not found.*look at its log"):
            await load(Server(client(fake.url)), "another", Pins())


async def test_a_load_that_fails_is_an_error_with_its_reason() -> None:
    with running(Fake(fault="load_fails")) as fake:
        report = await asked(fake, pinned(1024), "smollm2")
    assert (report.runtime, report.status) == ("ollama", Status.ERROR)
    assert report.error
    assert "more system memory than is available" in report.error.replace("\\n", " ")
    assert "\n" not in report.error


@pytest.mark.parametrize("tokens", [0, -1])
async def test_a_pin_that_is_no_window_is_refused(tokens: int) -> None:
    with running(Fake()) as fake:
        with pytest.raises(Misuse, match=r"is no window"):
            await load(Server(client(fake.url)), "smollm2", pinned(tokens))
        assert fake.requests == []


# What servers may hold, or not say.


@pytest.mark.parametrize(("share", "warned"), [(0.0, False), (0.25, True), (0.999, True), (1.0, False)])
async def test_what_spills_to_the_cpu(share: float, *, warned: bool) -> None:
    with running(Fake(vram_share=share)) as fake:
        fake.use(fake.models[0], {})
        (model,) = (await asked(fake)).models
    assert ("spilled" in codes(model)) == warned
    assert model.model_bytes
    assert model.in_vram_bytes == int(model.model_bytes * share)
    assert not warned or re.search(r"^(24|25|99)% of it is in GPU memory", said(model, "spilled"))


async def test_an_old_ollama_does_not_say_the_window() -> None:
    with running(Fake(fault="old", version="0.9.6")) as fake:
        fake.use(fake.models[0], {})
        (model,) = (await asked(fake)).models
        assert (model.loaded, model.window.tokens, model.window.confidence) == (True, None, Confidence.UNKNOWN)
        assert "does not say" in said(model, "unpinned")
        assert "update it" in said(model, "unpinned")
        (pin,) = (await asked(fake, pinned(2048))).models
        assert (pin.window.tokens, pin.window.confidence) == (2048, Confidence.PROVISIONAL)
        assert codes(pin) == {"half-window"}
        assert fake.loads == [("smollm2:latest", 4096)]


async def test_without_details_the_list_says_what_is_trained() -> None:
    with running(Fake(fault="no_show", models=[Model(name="a"), Model(name="b", num_ctx=2048)])) as fake:
        fake.use(fake.models[0], {})
        models = by_name(await asked(fake))
    assert readings(models["a:latest"]) == {SERVED: 4096, TRAINED: 8192}
    assert readings(models["b:latest"]) == {TRAINED: 8192}
    assert "/api/tags" in models["b:latest"].window.readings[0].where


async def test_a_list_that_lies_does_not_make_it_another_server() -> None:
    with running(Fake(fault="lying")) as fake:
        fake.use(fake.models[0], {})
        (model,) = (await asked(fake)).models
    assert (model.window.tokens, model.window.confidence) == (4096, Confidence.SERVED)


async def test_an_adapter_makes_the_same_weights_another_model() -> None:
    weights, adapter = "sha256-" + "a" * 64, "sha256-" + "b" * 64
    files = {"plain": f"FROM /x/{weights}\n", "tuned": f"FROM /x/{weights}\nADAPTER /x/{adapter}\n"}

    def answer(request: httpx.Request) -> httpx.Response:
        match request.url.path:
            case "/api/version":
                return httpx.Response(200, json={"version": "1"})
            case "/v1/models" | "/api/tags":
                return httpx.Response(200, json={"data": [], "models": [{"name": f"{name}:latest"} for name in files]})
            case "/api/ps":
                return httpx.Response(200, json={"models": [{"name": "plain:latest", "context_length": 512}]})
            case "/api/show":
                name = request.content.decode().split('"')[3].partition(":")[0]
                return httpx.Response(200, json={"modelfile": files[name]})
        return httpx.Response(404)

    models = by_name(await Detector("http://x", transport=httpx.MockTransport(answer)).probe())
    assert {name: model.loaded for name, model in models.items()} == {"plain:latest": True, "tuned:latest": False}


@pytest.mark.parametrize("name", ["m", "m:7b", "registry.example:5000/team/m", "registry.example:5000/team/m:7b"])
async def test_a_name_without_a_tag_means_the_latest(name: str) -> None:
    listed = {"models": [{"name": name, "context_length": 512}]}
    replay = told([{"method": "GET", "path": "/api/ps", "status": 200, "json": listed}], {"models": [{"name": name}]})
    (model,) = (await Detector("http://x", transport=replay).probe()).models
    assert model.id == (name if name.endswith(":7b") else f"{name}:latest")
    assert (model.window.tokens, model.aliases) == (512, () if name.endswith(":7b") else (name,))


# Time and size.


@contextmanager
def bounded(mebibytes: int, seconds: float) -> Iterator[None]:
    tracemalloc.start()
    began = monotonic()
    try:
        yield
        assert tracemalloc.get_traced_memory()[1] < mebibytes * 2**20
        assert monotonic() - began < seconds
    finally:
        tracemalloc.stop()


async def test_two_hundred_models_are_listed_with_details_and_more_without(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("localctx.runtimes.ollama._SHOW_SECONDS", 60)  # for a busy machine; half a second will do
    models = [Model(name=f"m{number}", num_ctx=1024 + number) for number in range(300)]
    with running(Fake(models=models)) as fake:
        fake.use(models[250], {})
        found = by_name(await asked(fake))
        shows = [body["model"] for line, body in fake.requests if line == "POST /api/show"]
    assert len(found) == 300
    assert len(shows) == len({*shows}) == 200
    assert next(iter(found)) == "m250:latest"
    assert "m250:latest" in shows[:8], "what is resident is asked for first, eight at a time"
    assert found["m7:latest"].window.tokens == 1031
    assert found["m299:latest"].trained == 8192


async def test_what_hangs_costs_seconds_and_not_what_is_known() -> None:
    reports: dict[str, ServerReport] = {}

    async def one(fake: Fake) -> None:
        reports[fake.fault or ""] = await asked(fake)

    models = [Model(name=f"m{number}") for number in range(100)]
    with running(Fake(fault="hang")) as all_of_it, running(Fake(fault="hanging_show", models=models)) as details:
        details.use(models[3], {})
        began = monotonic()
        async with anyio.create_task_group() as group:
            group.start_soon(one, all_of_it)
            group.start_soon(one, details)
        assert monotonic() - began < 12
    assert reports["hang"].status is Status.ERROR
    assert "no answer within 5 s" in (reports["hang"].error or "")
    found = by_name(reports["hanging_show"])
    assert len(found) == 100
    assert readings(found["m3:latest"]) == {SERVED: 4096, TRAINED: 8192}


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        ("html", "is no model server .*text/html.*check the port"),
        ("truncated_json", "is no model server .*check the port"),
        ("huge_json", "larger than any that a runtime gives.*check the port"),
    ],
)
async def test_what_is_broken_is_called_so_in_time(fault: str, message: str) -> None:
    with running(Fake(fault=fault)) as fake, bounded(mebibytes=40, seconds=10):
        report = await asked(fake, None, "smollm2")
        assert fake.loads == []
    assert (report.status, report.models) == (Status.ERROR, ())
    assert report.error
    assert "\n" not in report.error
    assert len(report.error) < 400
    assert re.search(message, report.error), report.error


async def test_a_slow_one_is_waited_for() -> None:
    with running(Fake(fault="slow")) as fake, bounded(mebibytes=40, seconds=10):
        assert len(by_name(await asked(fake))) == 1


async def test_a_question_without_an_answer_is_an_error_and_no_other_server() -> None:
    """Were it taken for any OpenAI-compatible server, its windows would be called unknown."""

    def answer(request: httpx.Request) -> httpx.Response:
        if request.url.path == "/api/ps":
            raise httpx.ReadError("gone")
        bodies = {"/api/version": {"version": "1"}, "/v1/models": {"data": [{"id": "m"}]}}
        said = bodies.get(request.url.path)
        return httpx.Response(200, json=said) if said else httpx.Response(404)

    report = await Detector("http://x", transport=httpx.MockTransport(answer)).probe()
    assert (report.status, report.models) == (Status.ERROR, ())


async def test_another_program_with_a_version_is_no_ollama() -> None:
    bodies = {"/api/version": {"version": "0.6.5"}, "/v1/models": {"data": [{"id": "m"}]}}
    replay = httpx.MockTransport(
        lambda request: (
            httpx.Response(200, json=bodies[request.url.path])
            if request.url.path in bodies
            else httpx.Response(200, text="<html>")
        )
    )
    assert (await Detector("http://x", transport=replay).probe()).runtime == "openai"


async def test_the_digest_of_a_model_is_its_manifests() -> None:
    models = await recorded("21-ps-default")
    digest = "fd5f44c0b5aff6453726119fc560d73a8a995a55b4a49804bc24b1969ecf1794"
    assert models["smollm2:latest"].digest == digest


@pytest.mark.parametrize(
    ("said", "digest"),
    [
        ("sha256:" + "ab" * 32, "ab" * 32),
        ("ab" * 6, "ab" * 6),
        ("ab" * 33, None),
        ("AB" * 32, None),
        ("xyz", None),
        ("", None),
        (7, None),
        (None, None),
    ],
)
async def test_a_digest_of_another_form_is_none(said: object, digest: str | None) -> None:
    answers = {
        "/api/version": {"version": "0.33.0"},
        "/api/ps": {"models": []},
        "/api/tags": {"models": [{"name": "m", "digest": said}]},
    }

    def answer(request: httpx.Request) -> httpx.Response:
        path = request.url.path
        return httpx.Response(200, json=answers[path]) if path in answers else httpx.Response(404, json={})

    report = await Detector("http://x", kind="ollama", transport=httpx.MockTransport(answer)).probe()
    assert [model.digest for model in report.models] == [digest]


# Tools.


@pytest.mark.parametrize(
    ("said", "calls"),
    [
        ({"capabilities": ["completion", "tools"]}, True),
        ({"capabilities": ["completion"]}, False),
        ({"capabilities": []}, False),
        ({"capabilities": ["completion", 7, {}, None]}, False),
        ({"capabilities": None}, None),
        ({"capabilities": "tools"}, None),
        ({"capabilities": {"tools": True}}, None),
        ({}, None),
        ({"modelfile": 7, "capabilities": ["tools"]}, None),
    ],
)
async def test_a_model_calls_tools_where_that_is_listed(said: dict[str, Any], calls: bool | None) -> None:  # noqa: FBT001
    answers = {
        "/api/version": {"version": "0.6.4"},
        "/api/ps": {"models": []},
        "/api/tags": {"models": [{"name": "m"}]},
        "/api/show": said,
    }
    replay = httpx.MockTransport(lambda request: httpx.Response(200, json=answers.get(request.url.path, {})))
    report = await Detector("http://x", kind="ollama", transport=replay).probe()
    assert by_name(report)["m:latest"].calls_tools is calls


async def test_each_model_has_its_own_tools() -> None:
    with running(
        Fake(models=[Model(name="one", tools=False), Model(name="two"), Model(name="x", weights="one")])
    ) as fake:
        models = by_name(await asked(fake))
        assert {name: model.calls_tools for name, model in models.items()} == {
            "one:latest": False,
            "two:latest": True,
            "x:latest": True,
        }
        fake.fault = "no_show"
        assert {model.calls_tools for model in by_name(await asked(fake)).values()} == {None}
