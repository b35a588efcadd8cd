"""What every reader promises, whichever server it reads."""

from __future__ import annotations

import re
from dataclasses import dataclass
from json import dumps
from time import monotonic
from typing import TYPE_CHECKING, Any

import httpx
import pytest

from localctx.core.window import Confidence, Reading, Source, Status
from localctx.errors import Misuse
from localctx.runtimes.detect import READERS, Detector
from localctx.runtimes.http import client
from localctx.runtimes.server import Pins, Server
from tests.recordings import body, load, transport
from tests.runtimes.raw import Heard, http, saying

if TYPE_CHECKING:
    from collections.abc import Callable

    from localctx.core.window import ModelReport, ServerReport

pytestmark = pytest.mark.anyio

KEY = "sk-never-show-this"
OLLAMA, VLLM, SGLANG, ROUTERS = "ollama-0.33.0-rc2", "vllm-0.32.0", "sglang-0.5.23", "routers"
HELLO = ["GET /v1/models", "GET /props", "GET /api/version"]
LM_STUDIO = {  # in the form that its documentation gives; the models are made up
    "object": "list",
    "data": [
        {
            "id": "small-coder-7b",
            "object": "model",
            "type": "llm",
            "publisher": "somebody",
            "arch": "llama",
            "compatibility_type": "gguf",
            "quantization": "Q4_K_M",
            "state": "loaded",
            "capabilities": ["tool_use"],
            "max_context_length": 131072,
            "loaded_context_length": 4096,
        },
        {"id": "eyes-3b", "object": "model", "type": "vlm", "state": "not-loaded", "max_context_length": 32768},
        {
            "id": "embed-text",
            "object": "model",
            "type": "embeddings",
            "state": "not-loaded",
            "max_context_length": 2048,
        },
    ],
}


def plainly(answers: dict[str, object]) -> httpx.MockTransport:
    """Says these bodies, by path, and 404 elsewhere."""

    def answer(request: httpx.Request) -> httpx.Response:
        path = request.url.path
        return httpx.Response(200, json=answers[path]) if path in answers else httpx.Response(404, json={"error": "no"})

    return httpx.MockTransport(answer)


@dataclass(frozen=True, kw_only=True)
class Known:
    """A server as it was recorded, and what has to be read out of it."""

    runtime: str
    model: str
    tokens: int | None
    margin: int = 1
    confidence: Confidence = Confidence.SERVED
    where: str = ""
    asks: tuple[str, ...] = ()  # besides `HELLO`, in any order
    recordings: tuple[str, ...] = ()
    answers: tuple[tuple[str, Any], ...] = ()
    holds: tuple[str, ...] = ()  # the fields that decide
    codes: frozenset[str] = frozenset()
    calls_tools: bool | None = None

    def transport(self) -> httpx.AsyncBaseTransport:
        return transport(*self.recordings) if self.recordings else plainly(dict(self.answers))

    def read(self, **pins: Any) -> Detector:  # noqa: ANN401  as Pins takes them
        return Detector("http://recorded", pins=Pins(**pins), transport=self.transport())


_SGLANG = (
    *("01-models", "05-ollama-tags", "05b-ollama-show", "05c-ollama-version", "05d-ollama-ps", "04-version"),
    "03-server_info",
)
_OTHERS = ("GET /api/v0/models",)

SERVERS = {
    "llama-server": Known(
        runtime="llama-server",
        model="my-alias",
        tokens=2048,
        where="llama-server /props n_ctx",
        recordings=("50-props-smol-alias", "50-models-smol-alias", "40e-ollama-api-show", "40f-ollama-api-tags"),
        holds=("n_ctx",),
        codes=frozenset({"no-tools"}),
        calls_tools=False,
    ),
    "ollama, resident": Known(
        runtime="ollama",
        model="smollm2:latest",
        tokens=4096,
        where="ollama /api/ps context_length",
        recordings=tuple(
            f"{OLLAMA}/{name}" for name in ("01-version", "15-v1-models", "11-tags", "12-show", "21-ps-default")
        ),
        asks=("GET /api/ps", "GET /api/tags", "POST /api/show"),
        holds=("context_length", "num_ctx"),
        codes=frozenset({"unpinned", "half-window"}),
        calls_tools=False,
    ),
    "ollama, cold": Known(
        runtime="ollama",
        model="smollm2:latest",
        tokens=None,
        confidence=Confidence.UNKNOWN,
        recordings=tuple(
            f"{OLLAMA}/{name}" for name in ("01-version", "15-v1-models", "11-tags", "12-show", "04-ps-empty")
        ),
        asks=("GET /api/ps", "GET /api/tags", "POST /api/show"),
        codes=frozenset({"unpinned"}),
        calls_tools=False,
    ),
    "vllm": Known(
        runtime="vllm",
        model="/models/smollm2-hf",
        tokens=2048,
        where="vllm /v1/models max_model_len",
        recordings=tuple(f"{VLLM}/{name}" for name in ("01-models", "02-version", "07-metrics-before")),
        asks=("GET /version", "GET /metrics"),
        holds=("max_model_len",),
    ),
    "vllm-router": Known(
        runtime="vllm",
        model="smol",
        tokens=2048,
        where="vllm /v1/models max_model_len",
        recordings=tuple(
            f"{ROUTERS}/vllm-router-0.1.17/{name}" for name in ("01-models", "02-get-version", "02-get-metrics")
        ),
        asks=("GET /version", "GET /metrics"),
        holds=("max_model_len",),
    ),
    "sglang": Known(
        runtime="sglang",
        model="smol",
        tokens=2047,
        margin=6,
        where="sglang /server_info max_req_input_len + 5",
        recordings=tuple(f"{SGLANG}/{name}" for name in _SGLANG),
        asks=("GET /server_info",),
        holds=("max_req_input_len", "max_total_num_tokens", "max_model_len"),
    ),
    "lmstudio": Known(
        runtime="lmstudio",
        model="small-coder-7b",
        tokens=4096,
        confidence=Confidence.PROVISIONAL,
        where="lmstudio /api/v0/models loaded_context_length",
        answers=(("/v1/models", {"object": "list", "data": [{"id": "small-coder-7b"}]}), ("/api/v0/models", LM_STUDIO)),
        asks=_OTHERS,
        holds=("loaded_context_length",),
        calls_tools=True,
    ),
    "litellm": Known(
        runtime="openai",
        model="smol",
        tokens=2048,
        confidence=Confidence.PROVISIONAL,
        where="openai /v1/models max_input_tokens",
        recordings=tuple(f"{ROUTERS}/litellm-1.108.7/{name}" for name in ("01-models", "02-get-version")),
        asks=_OTHERS,
        holds=("max_input_tokens",),
    ),
    "sglang-router over sglang": Known(
        runtime="openai",
        model="smol",
        tokens=None,
        confidence=Confidence.UNKNOWN,
        recordings=tuple(
            f"{ROUTERS}/sglang-router-0.3.2_over_sglang/{name}" for name in ("01-models", "02-get-server_info")
        ),
        asks=_OTHERS,
        codes=frozenset({"unknown-window"}),
    ),
    "sglang-router over vllm": Known(
        runtime="openai",
        model="unknown",
        tokens=None,
        confidence=Confidence.UNKNOWN,
        recordings=tuple(
            f"{ROUTERS}/sglang-router-0.3.2_over_vllm/{name}" for name in ("01-models", "02-get-server_info")
        ),
        asks=_OTHERS,
        codes=frozenset({"unknown-window"}),
    ),
}
STATED = [name for name, known in SERVERS.items() if known.holds]

every = pytest.mark.parametrize("name", SERVERS)


def first(report: ServerReport, known: Known) -> ModelReport:
    assert (report.status, report.error, report.runtime) == (Status.UP, None, known.runtime)
    assert report.models[0].id == known.model
    return report.models[0]


def pin(tokens: int | None) -> Reading | None:
    return None if tokens is None else Reading(Source.PINNED, tokens, "--num-ctx")


@every
async def test_one_reader_claims_it_and_the_others_do_not(name: str) -> None:
    known = SERVERS[name]
    special = {kind: reader for kind, reader in READERS.items() if kind != "openai"}  # which takes what is left
    for kind, reader in special.items():
        report = await reader(Server(client("http://recorded", transport=known.transport())), Pins())
        assert (report.runtime if report else None) == (kind if kind == known.runtime else None)
    assert (await known.read().probe()).runtime == known.runtime
    named = Detector("http://recorded", kind=known.runtime, transport=known.transport())
    first(await named.probe(), known)


@every
async def test_it_is_read_as_it_was_recorded(name: str) -> None:
    known = SERVERS[name]
    model = first(await known.read().probe(), known)
    longest = None if known.tokens is None else known.tokens - known.margin
    window = model.window
    assert (window.tokens, window.max_prompt, window.confidence) == (known.tokens, longest, known.confidence)
    assert (window.decided_by.where if window.decided_by else "") == known.where
    assert window.decided_by is None or window.decided_by in window.readings
    for reading in window.readings:
        assert reading.tokens > 0
        assert reading.where.startswith(f"{known.runtime} ")
    assert {advice.code for advice in model.warnings} == known.codes
    assert model.calls_tools is known.calls_tools


@every
async def test_nothing_but_these_questions_is_asked(name: str) -> None:
    known = SERVERS[name]
    heard = Heard(known.transport())
    await Detector("http://recorded", transport=heard).probe()
    assert sorted(heard.asked) == sorted([*HELLO, *known.asks])
    assert "/tokenize" not in dumps(heard.asked)
    alone = Heard(known.transport())
    await Detector("http://recorded", kind=known.runtime, transport=alone).probe()
    mine = {"GET /props"} if known.runtime == "llama-server" else set(known.asks) - {*_OTHERS}
    mine |= {"GET /api/version"} if known.runtime == "ollama" else {*_OTHERS} if known.runtime == "lmstudio" else set()
    assert sorted(alone.asked) == sorted({"GET /v1/models"} | mine)


ABSENT = object()


def changed(value: Any, fields: tuple[str, ...], to: object) -> Any:  # noqa: ANN401  JSON
    """The same JSON, with these fields set to something else, or left out."""
    match value:
        case dict():
            kept = {key: each for key, each in value.items() if to is not ABSENT or key not in fields}
            return {key: to if key in fields else changed(each, fields, to) for key, each in kept.items()}
        case list():
            return [changed(each, fields, to) for each in value]
    return value


class Altered(httpx.AsyncBaseTransport):
    """Changes what a recorded server says."""

    def __init__(self, inner: httpx.AsyncBaseTransport, change: Callable[[httpx.Response], httpx.Response]) -> None:
        self._inner, self._change = inner, change

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        response = await self._inner.handle_async_request(request)
        await response.aread()
        return self._change(response)


def saying_instead(known: Known, to: object, fields: tuple[str, ...] = ()) -> Altered:
    def change(response: httpx.Response) -> httpx.Response:
        if "json" not in response.headers.get("content-type", ""):
            return httpx.Response(404)  # no metrics, which may say it too
        said = changed(response.json(), fields or known.holds, to)
        return httpx.Response(response.status_code, content=dumps(said).encode(), headers={"Server": "some"})

    return Altered(known.transport(), change)


@pytest.mark.parametrize("name", STATED)
@pytest.mark.parametrize(
    "odd",
    [0, -1, None, ABSENT, "", "many", 4096.5, True, [], {}, 2**31, 2**63, 2**64, "9" * 5000, 1e300],
    ids=lambda odd: "absent" if odd is ABSENT else repr(odd)[:12],
)
async def test_what_is_no_number_of_tokens_is_unknown(name: str, odd: object) -> None:
    known = SERVERS[name]
    report = await Detector("http://recorded", transport=saying_instead(known, odd)).probe()
    if report.status is not Status.UP:  # llama-server, whose readers say that they cannot read it
        assert known.runtime == "llama-server"
        return
    model = first(report, known)
    assert (model.window.tokens, model.window.max_prompt) == (None, None)
    assert model.window.confidence is Confidence.UNKNOWN
    assert known.runtime == "llama-server" or {"unpinned", "unknown-window"} & {each.code for each in model.warnings}


SAYING = [name for name, known in SERVERS.items() if known.calls_tools is not None]


@pytest.mark.parametrize("name", SAYING)
@pytest.mark.parametrize(
    "odd", [None, ABSENT, "tools", 7, {}], ids=lambda odd: "absent" if odd is ABSENT else repr(odd)
)
async def test_what_says_nothing_about_tools_leaves_them_unknown(name: str, odd: object) -> None:
    known = SERVERS[name]
    replay = saying_instead(known, odd, ("chat_template_caps", "capabilities"))
    report = await Detector("http://recorded", transport=replay).probe()
    if report.status is Status.UP:
        assert first(report, known).calls_tools is None
    else:  # llama-server, whose readers say that they cannot read it
        assert known.runtime == "llama-server"
        assert odd in ("tools", 7)


@pytest.mark.parametrize("name", STATED)
@pytest.mark.parametrize("way", [str, float])
async def test_a_number_may_be_written_in_other_ways(name: str, way: Callable[[int], object]) -> None:
    known = SERVERS[name]
    report = await Detector("http://recorded", transport=saying_instead(known, way(1234))).probe()
    assert first(report, known).window.tokens == (1239 if known.runtime == "sglang" else 1234)


@pytest.mark.parametrize("name", STATED)
@pytest.mark.parametrize(
    ("asked", "ceiling"), [(1000, None), (99_999, None), (None, 500), (None, 99_999), (1000, 500), (500, 1000), (0, 0)]
)
async def test_pins_and_ceilings_only_lower(name: str, asked: int | None, ceiling: int | None) -> None:
    known = SERVERS[name]
    if known.runtime == "ollama":
        pytest.skip("a pin replaces what is resident there; see its own tests")
    window = first(await known.read(pin=pin(asked), ceiling=ceiling).probe(), known).window
    assert known.tokens is not None
    assert window.tokens == min(known.tokens, asked or known.tokens, ceiling or known.tokens)
    assert window.max_prompt == window.tokens - known.margin
    assert (window.confidence, window.ceiling) == (known.confidence, ceiling or None)


@every
async def test_a_ceiling_makes_nothing_known(name: str) -> None:
    known = SERVERS[name]
    window = first(await known.read(ceiling=700).probe(), known).window
    assert window.tokens == (None if known.tokens is None else 700)
    assert window.confidence is known.confidence


@every
@pytest.mark.parametrize("asked", [None, 512, 1000, 99_999])
async def test_every_warning_has_a_code_a_text_and_a_fix(name: str, asked: int | None) -> None:
    for model in (await SERVERS[name].read(pin=pin(asked)).probe()).models:
        for advice in model.warnings:
            assert re.fullmatch(r"[a-z]+(-[a-z]+)*", advice.code)
            for line in (advice.text, advice.fix):
                assert 10 < len(line) < 250
                assert line == line.strip().rstrip(".")
                assert "\n" not in line
        codes = [advice.code for advice in model.warnings]
        assert len(codes) == len(set(codes))


# Keys.

CLOSED = {
    "llama-server": ("llama-server", ("60c-key-props-nokey", "60b-key-v1-models-nokey")),
    "vllm": ("vllm", (f"{VLLM}/20-models-noauth", f"{VLLM}/20e-version-noauth", f"{VLLM}/20d-metrics-noauth")),
    "vllm, another key": ("vllm", (f"{VLLM}/20b-models-badauth", f"{VLLM}/20e-version-noauth")),
    "sglang": ("sglang", (f"{SGLANG}/40-models-noauth", f"{SGLANG}/40c-server_info-noauth")),
    "sglang, another key": ("sglang", (f"{SGLANG}/40b-models-badauth", f"{SGLANG}/40c-server_info-noauth")),
}


def refused(report: ServerReport) -> None:
    assert (report.status, report.models) == (Status.UNAUTHORIZED, ())
    assert report.error
    assert "LOCALCTX_API_KEY" in report.error
    assert "\n" not in report.error
    assert KEY not in repr(report)


@pytest.mark.parametrize("name", CLOSED)
async def test_a_key_that_is_refused_is_said_and_never_shown(name: str) -> None:
    runtime, names = CLOSED[name]
    heard = Heard(transport(*names))
    report = await Detector("http://recorded", key=KEY, transport=heard).probe()
    refused(report)
    assert report.runtime == runtime
    assert {request.headers["authorization"] for request in heard.requests} == {f"Bearer {KEY}"}


@pytest.mark.parametrize("status", [401, 403])
async def test_whoever_it_is_a_refused_key_is_no_other_error(status: int) -> None:
    """As a proxy before any server does it: who is behind it cannot be said."""
    said = {"error": {"message": "No api key passed in.", "code": str(status)}}
    answer = httpx.MockTransport(lambda _: httpx.Response(status, json=said, headers={"Server": "uvicorn"}))
    report = await Detector("http://recorded", key=KEY, transport=answer).probe()
    refused(report)
    assert report.runtime is None


@pytest.mark.parametrize("kind", ["ollama", "vllm", "sglang", "lmstudio", "openai"])
async def test_each_reader_alone_is_told_about_the_key(kind: str) -> None:
    answer = httpx.MockTransport(lambda _: httpx.Response(401, json={"error": "Unauthorized"}))
    report = await Detector("http://recorded", key=KEY, kind=kind, transport=answer).probe()
    assert report.status in {Status.UNAUTHORIZED, Status.ERROR}
    assert report.error
    assert "401" in report.error


# Servers that are broken, or none at all.


@every
@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"<html>Sign in</html>",
        b"[]",
        b"null",
        b'"text"',
        b'{"data":null,"models":null}',
        b'{"data":[1,null,{"id":7}],"models":[1,null,{"name":7}]}',
        b'{"data":{"id":"m"},"models":{"name":"m"},"version":7}',
        b'{"data":' * 50_000,
        b'{"data":[{"id":"\\ud800","owned_by":"vllm"}],"models":[{"name":"\xff"}]}',
    ],
    ids=lambda content: repr(content[:24]),
)
async def test_an_odd_answer_to_any_question_is_survived(name: str, content: bytes) -> None:
    known = SERVERS[name]
    for path in {line.split()[1] for line in (*HELLO, *known.asks)}:
        inner = known.transport()

        class Odd(httpx.AsyncBaseTransport):
            async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
                if request.url.path == path:  # noqa: B023  used within this turn
                    return httpx.Response(200, content=content)
                return await inner.handle_async_request(request)  # noqa: B023

        report = await Detector("http://recorded", transport=Odd()).probe()
        assert report.status in {Status.UP, Status.ERROR}
        assert (report.error is None) == (report.status is Status.UP)
        assert "\n" not in (report.error or "")
        windows = [(model.window.tokens, model.window.confidence) for model in report.models]
        assert all(tokens is None or 0 < tokens <= 8192 for tokens, _ in windows)


@every
async def test_a_list_that_is_cut_off_is_no_server(name: str) -> None:
    def cut(response: httpx.Response) -> httpx.Response:
        return httpx.Response(response.status_code, content=response.content[: len(response.content) // 2])

    report = await Detector("http://recorded", transport=Altered(SERVERS[name].transport(), cut)).probe()
    assert (report.status, report.models) == (Status.ERROR, ())
    assert report.error
    assert "check the port" in report.error


ENDLESS: dict[str, tuple[str, str, dict[str, object]]] = {
    "adapters without a parent": ("/v1/models", "vllm", {"parent": "nobody"}),
    "models": ("/v1/models", "vllm", {"max_model_len": 4096}),
    "sglang models": ("/v1/models", "sglang", {"max_model_len": 4096}),
    "openai models": ("/v1/models", "somebody", {"max_model_len": 4096}),
}


@pytest.mark.parametrize("name", ENDLESS)
async def test_as_many_models_as_fit_into_an_answer_take_seconds_at_most(name: str) -> None:
    path, owner, more = ENDLESS[name]
    listed = {"data": [{"id": f"m{number}", "owned_by": owner, **more} for number in range(20_000)]}
    began = monotonic()
    report = await Detector("http://recorded", transport=plainly({path: listed})).probe()
    assert monotonic() - began < 10
    assert len(report.models) == 20_000


@pytest.mark.parametrize("filling", ["a", 'a="1",', "{", "}", " ", '"', ","])
@pytest.mark.parametrize("kind", ["vllm", "sglang"])
async def test_metrics_that_try_patience_are_read_in_time(kind: str, filling: str) -> None:
    beginning = {"vllm": "vllm:cache_config_info{", "sglang": "sglang:max_total_num_tokens{"}[kind]
    text = beginning + filling * (3_000_000 // len(filling)) + "\n" + (beginning + "\n") * 10_000
    listed = {"data": [{"id": "m", "owned_by": kind, "max_model_len": 4096}]}

    def answer(request: httpx.Request) -> httpx.Response:
        if request.url.path == "/metrics":
            return httpx.Response(200, text=text)
        return httpx.Response(200, json=listed) if request.url.path == "/v1/models" else httpx.Response(404)

    began = monotonic()
    (model,) = (await Detector("http://recorded", transport=httpx.MockTransport(answer)).probe()).models
    assert monotonic() - began < 10
    assert (model.window.tokens, model.shared_pool) == (4096, None)


@pytest.mark.parametrize("kind", [None, *READERS])
async def test_a_web_page_is_no_model_server(kind: str | None) -> None:
    page = http("Content-Type: text/html", "Connection: close", body=b"<html><form action=/login>")
    with saying(lambda _: [page]) as raw:
        report = await Detector(raw.url, key=KEY, kind=kind).probe()
    assert (report.status, report.models) == (Status.ERROR, ())
    assert report.error
    assert "text/html" in report.error
    assert "check the port" in report.error


async def test_a_server_that_says_the_same_to_everything_is_no_special_one() -> None:
    said = {"data": [{"id": "m", "object": "model"}], "models": [], "version": "1"}
    report = await Detector(
        "http://recorded", transport=httpx.MockTransport(lambda _: httpx.Response(200, json=said))
    ).probe()
    assert report.runtime in {"openai", "ollama"}
    assert [model.window.tokens for model in report.models] in ([None], [])


def test_an_unknown_runtime_is_misuse() -> None:
    with pytest.raises(Misuse, match=r"'tgi'; known: llama-server, ollama"):
        Detector("http://recorded", kind="tgi")


def test_a_recording_is_read_whichever_way_it_was_written_down() -> None:
    assert body(f"{OLLAMA}/01-version") == {"version": "0.33.0-rc2"}
    assert body(f"{OLLAMA}/02-root") == "Ollama is running"
    assert body(f"{VLLM}/07-metrics-before").count("\nvllm:") > 1
    assert load("60c-key-props-nokey")["response"]["status"] == 401
