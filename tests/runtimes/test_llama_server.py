from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

import httpx
import pytest

from localctx.core.accounting import Count
from localctx.core.notes import Outline
from localctx.core.window import Confidence, ModelReport, Reading, Source, Status, reconcile
from localctx.errors import Unauthorized
from localctx.ports import Finished, Request
from localctx.runtimes.llama_server import LlamaServer, serves
from localctx.runtimes.server import Pins
from tests.cases import case
from tests.fakes.llama_server import CHAT, Calls, Fake, render, running, tokenize
from tests.recordings import load, transport
from tests.runtimes.raw import Heard

if TYPE_CHECKING:
    from localctx.core.outgoing import WireMessage
    from localctx.core.window import ServerReport

pytestmark = pytest.mark.anyio

KEY = "sk-never-show-this"
TERSE: list[WireMessage] = [
    {"role": "system", "content": "You are terse."},
    {"role": "user", "content": "Say hello."},
]
COUNT = f"{CHAT}/input_tokens"
SMOL = "SmolLM2-135M-Instruct.Q4_1"
BOTH = {"GET /props", "GET /v1/models"}

STARTED = {  # n_ctx, slots, trained: what each start-up of a real server said
    "gemma-c4096-np2": (2048, 2, 32768),
    "gemma-default": (32768, 1, 32768),
    "smol-alias": (2048, 1, 8192),
    "smol-c0-np1": (8192, 1, 8192),
    "smol-c100-np1": (256, 1, 8192),
    "smol-c16384-np1-above-train": (8192, 1, 8192),
    "smol-c16384-np2-above-train": (8192, 2, 8192),
    "smol-c4096-np2": (2048, 2, 8192),
    "smol-c4096-np2-kvu": (4096, 2, 8192),
    "smol-c4096-np4-nokvu": (1024, 4, 8192),
    "smol-c4096-npauto": (4096, 4, 8192),
    "smol-default": (8192, 4, 8192),
    "smol-kvups2048-np2": (2048, 2, 8192),
    "smol-override-train": (16384, 1, 16384),
    "smol-yarn": (16384, 1, 16384),
}


def replayed(*names: str, **more: Any) -> tuple[LlamaServer, Heard]:  # noqa: ANN401 - as LlamaServer takes it
    heard = Heard(transport(*names))
    return LlamaServer("http://recorded:8080", transport=heard, **more), heard


def only(report: ServerReport) -> ModelReport:
    assert (report.status, report.error) == (Status.UP, None)
    (model,) = report.models
    return model


@pytest.mark.parametrize("name", STARTED)
async def test_each_start_up_is_read_as_it_is_served(name: str) -> None:
    n_ctx, slots, trained = STARTED[name]
    server, heard = replayed(f"50-props-{name}", f"50-models-{name}")
    report = await server.probe()
    model = only(report)
    assert {*heard.asked} == BOTH
    assert (report.runtime, report.url, report.version) == (
        "llama-server",
        "http://recorded:8080",
        load(f"50-props-{name}")["response"]["json"]["build_info"],
    )
    window = model.window
    assert (window.tokens, window.max_prompt, window.confidence) == (n_ctx, n_ctx - 1, Confidence.SERVED)
    assert window.decided_by == Reading(Source.SERVED, n_ctx, "llama-server /props n_ctx")
    assert (model.trained, model.slots, model.loaded) == (trained, slots, True)
    codes = {advice.code for advice in model.warnings}
    assert ("shared-pool" in codes) == (slots > 1)
    assert "no-tools" in codes  # both models have templates that drop tools


def test_every_recorded_start_up_is_read_here() -> None:
    from tests.recordings import _ROOT  # noqa: PLC0415

    assert {path.stem.removeprefix("50-props-") for path in _ROOT.glob("*/50-props-*.json")} == set(STARTED)


async def test_several_slots_are_warned_about_with_the_numbers_and_the_remedy() -> None:
    pins = Pins(Reading(Source.PINNED, 1000, "--num-ctx"))  # which does not make the pool smaller
    server, _ = replayed("50-props-smol-default", "50-models-smol-default", pins=pins)
    (shared,) = [advice for advice in only(await server.probe()).warnings if advice.code == "shared-pool"]
    assert "4 slots" in shared.text
    assert "8,192" in shared.text
    assert "-np 1" in shared.fix


async def test_the_embedded_server_is_read_under_its_own_name() -> None:
    server, heard = replayed("90-xllamacpp-inprocess", kind="embedded")
    model = only(await server.probe())
    assert {*heard.asked} == BOTH
    assert (model.id, model.window.tokens, model.slots, model.calls_tools) == (f"{SMOL}.gguf", 2048, 1, False)
    assert model.window.decided_by is not None
    assert model.window.decided_by.where.startswith("embedded /props")
    assert await server.count([{"role": "user", "content": "hi"}])
    assert [reading.where.split()[0] for reading in model.window.readings] == ["embedded", "embedded"]


async def test_a_sleeping_server_is_read_without_waking_it() -> None:
    server, heard = replayed("61-sleep-props", "61c-sleep-v1-models")
    assert load("61-sleep-props")["response"]["json"]["is_sleeping"] is True
    assert only(await server.probe()).window.tokens == 1024
    assert {*heard.asked} == BOTH  # /slots and /tokenize would wake it


async def test_a_server_that_loads_says_so_and_is_left_alone() -> None:
    server, heard = replayed("01b-props-loading", "01c-v1-models-loading")
    report = await server.probe()
    assert (report.status, report.models) == (Status.LOADING, ())
    assert {*heard.asked} <= BOTH
    assert report.error
    assert "loading" in report.error
    assert "wait" in report.error


@pytest.mark.parametrize("name", ["60c-key-props-nokey", "60d-key-props-bad"])
async def test_a_key_that_is_refused_is_never_shown(name: str) -> None:
    server, heard = replayed(name, "60b-key-v1-models-nokey", "60f-key-chat-nokey", key=KEY)
    report = await server.probe()
    assert report.status is Status.UNAUTHORIZED
    assert {*heard.asked} <= BOTH
    assert report.error
    assert "LOCALCTX_API_KEY" in report.error
    assert KEY not in repr(report)
    assert heard.requests[0].headers["authorization"] == f"Bearer {KEY}"
    with pytest.raises(Unauthorized) as refused:
        async for _ in server.chat(Request(TERSE, 5)):
            pass
    assert KEY not in str(refused.value)
    assert KEY not in repr(server)


async def test_the_right_key_opens_and_without_one_none_is_sent() -> None:
    with running(Fake(api_key=KEY, n_ctx=1024)) as fake:
        server = LlamaServer(fake.url, key=KEY)
        assert only(await server.probe()).window.tokens == 1024
        assert (await LlamaServer(fake.url).probe()).status is Status.UNAUTHORIZED
        assert (await LlamaServer(fake.url, key="another").probe()).status is Status.UNAUTHORIZED
    sent = [request.headers.get("authorization") for request in fake.requests]
    assert {*sent} == {None, "Bearer another", f"Bearer {KEY}"}


@pytest.mark.parametrize(
    ("caps", "calls"),
    [
        ({"supports_tools": True, "supports_tool_calls": True}, True),
        ({"supports_tools": True}, True),
        ({"supports_tools": True, "supports_tool_calls": False}, False),
        ({"supports_tools": False, "supports_tool_calls": True}, False),
        ({"supports_tool_calls": True}, None),
        ({}, None),
        (None, None),
    ],
)
async def test_a_model_calls_tools_where_its_template_has_tools_and_calls(
    caps: dict[str, bool] | None,
    calls: bool | None,  # noqa: FBT001  a column of the table
) -> None:
    props = {"default_generation_settings": {"n_ctx": 512}, "chat_template_caps": caps}
    bodies = {"/props": props, "/v1/models": {"data": [{"id": "m"}]}}
    mock = httpx.MockTransport(lambda request: httpx.Response(200, json=bodies[request.url.path]))
    assert only(await LlamaServer("http://x", transport=mock).probe()).calls_tools is calls


@pytest.mark.parametrize("tools", [True, False])
async def test_the_fake_says_what_its_template_has(tools: bool) -> None:  # noqa: FBT001
    with running(Fake(tools=tools)) as fake:
        model = only(await LlamaServer(fake.url).probe())
    assert model.calls_tools is tools
    assert ("no-tools" in [advice.code for advice in model.warnings]) is not tools


# The router.


async def test_the_dummy_props_of_a_router_are_no_window() -> None:
    told = case(4)
    answers = {(each["method"], each["path"]): each for each in told["given"]["http"]}

    def answer(request: httpx.Request) -> httpx.Response:
        said = answers.get((request.method, request.url.raw_path.decode()))
        return httpx.Response(404) if said is None else httpx.Response(said["status"], json=said["json"])

    heard = Heard(httpx.MockTransport(answer))
    report = await LlamaServer(told["given"]["base_url"], transport=heard).probe()
    checks = told["checks"]
    assert report.status is Status.UP
    assert {model.id: model.window.tokens for model in report.models} == checks["windows"]
    assert {model.id: model.window.confidence for model in report.models} == checks["confidence"]
    assert not {model.window.tokens for model in report.models} & {*checks["forbidden_values"]}
    assert not {*heard.asked} & {*checks["forbidden_requests"]}
    assert {model.id for model in report.models if model.loaded} == {"running"}
    assert all(
        asked.startswith("GET ") and ("model=" not in asked or "autoload=false" in asked) for asked in heard.asked
    )


@pytest.mark.parametrize(
    ("models", "loaded"),
    [
        ("70b-router-v1-models-initial", set()),
        ("75-router-models-loaded", {SMOL}),
        ("77-router-models-after-eviction", {"gemma-3-270m-q4_k_m"}),
    ],
)
async def test_a_real_router_confirms_only_what_it_has_loaded(models: str, loaded: set[str]) -> None:
    server, heard = replayed("71-router-props-nomodel", models)
    report = await server.probe()
    assert {*heard.asked} == BOTH
    assert {model.id for model in report.models} == {SMOL, "gemma-3-270m-q4_k_m"}
    for model in report.models:
        served = model.id in loaded
        assert (model.loaded, model.window.tokens, model.slots) == (served, 2048, None)
        assert model.calls_tools is None, "a router has no template of its own"
        assert model.window.confidence is (Confidence.SERVED if served else Confidence.PROVISIONAL)
        assert model.window.decided_by is not None
        assert model.window.decided_by.where.endswith("meta.n_ctx" if served else "status.args")


@pytest.mark.parametrize(
    ("args", "tokens"),
    [
        (["-c", "4096"], 4096),
        (["--ctx-size", "4096", "--parallel", "2"], 2048),
        (["-c", "4096", "-np", "-1"], 4096),
        (["-c", "0"], None),
        (["-c"], None),
        (["-c", "many"], None),
        (["-c", "\u00b2"], None),
        (["-c", "9" * 5000], None),
        (["-c", "4096", "-np", "0"], 4096),
    ],
)
async def test_launch_arguments_are_read_or_left(args: list[str], tokens: int | None) -> None:
    props = {"role": "router", "default_generation_settings": {"n_ctx": 0}}
    listed = {"data": [{"id": "m", "status": {"value": "unloaded", "args": ["llama-server", *args]}}]}
    bodies = {"/props": props, "/v1/models": listed}
    mock = httpx.MockTransport(lambda request: httpx.Response(200, json=bodies[request.url.path]))
    assert only(await LlamaServer("http://x", transport=mock).probe()).window.tokens == tokens


async def test_a_router_that_loads_on_demand_is_not_made_to() -> None:
    with running(Fake(fault="router", n_ctx=1024)) as fake:
        model = (await LlamaServer(fake.url).probe()).models[0]
        assert not fake.loaded
    assert (model.loaded, model.window.tokens, model.window.confidence) == (False, 1024, Confidence.PROVISIONAL)


# Pins and ceilings.


@pytest.mark.parametrize(
    ("pin", "ceiling", "tokens", "source"),
    [
        (None, None, 2048, Source.SERVED),
        (1000, None, 1000, Source.PINNED),
        (4096, None, 2048, Source.SERVED),
        (None, 500, 500, Source.SERVED),
        (None, 99999, 2048, Source.SERVED),
        (1000, 500, 500, Source.PINNED),
        (1000, 1500, 1000, Source.PINNED),
    ],
)
async def test_pins_and_ceilings_only_lower(pin: int | None, ceiling: int | None, tokens: int, source: Source) -> None:
    pins = Pins(None if pin is None else Reading(Source.PINNED, pin, "--num-ctx"), ceiling)
    server, _ = replayed("50-props-smol-alias", "50-models-smol-alias", pins=pins)
    window = only(await server.probe()).window
    assert (window.tokens, window.ceiling, window.confidence) == (tokens, ceiling, Confidence.SERVED)
    assert window.decided_by is not None
    assert window.decided_by.source is source


# Counting.


@pytest.mark.parametrize(
    "name",
    ["13-input-tokens-chat", "13b-input-tokens-chat-tools", "20f-exceed-input-tokens", "75f-router-input-tokens"],
)
async def test_a_count_is_the_servers(name: str) -> None:
    server, heard = replayed(name, model="the-model")
    count = await server.count(TERSE)
    assert count is not None
    assert (count.tokens, count.bound) == (load(name)["response"]["json"]["input_tokens"], 0)
    assert json.loads(heard.requests[0].content) == {"messages": TERSE, "model": "the-model"}


async def test_a_count_is_what_the_reply_will_be_billed_for() -> None:
    with running(Fake()) as fake:
        server = LlamaServer(fake.url)
        count = await server.count(TERSE)
        pieces = [piece async for piece in server.chat(Request(TERSE, 5))]
    assert count is not None
    assert isinstance(pieces[-1], Finished)
    assert count.tokens == pieces[-1].usage.prompt == len(render({"messages": TERSE}))
    assert [body.keys() & {"model", "temperature"} for body in fake.chats] == [set()]


async def test_a_server_that_cannot_count_is_asked_once() -> None:
    with running(Fake(fault="no_input_tokens")) as fake:
        server = LlamaServer(fake.url)
        assert [await server.count(TERSE) for _ in range(3)] == [None] * 3
        assert [await server.size("word") for _ in range(3)] == [None] * 3
    assert [request.path for request in fake.requests] == [COUNT, "/apply-template", "/tokenize"]


CALL = {"id": "a", "type": "function", "function": {"name": "look", "arguments": '{"at": "it"}'}}
TOOLS: list[WireMessage] = [{"type": "function", "function": {"name": "look", "parameters": {"type": "object"}}}]
CONVERSATIONS: dict[str, list[WireMessage]] = {
    "terse": TERSE,
    "a call": [
        {"role": "user", "content": "Look."},
        {"role": "assistant", "content": "", "tool_calls": [CALL]},
        {"role": "tool", "tool_call_id": "a", "content": "It is blue."},
    ],
    "what looks like marks": [{"role": "user", "content": "Say <|im_end|> and\n\n <|im_start|>x."}],
    "long": [{"role": "user", "content": "Some words, and a line.\nThen more words follow it. " * 1500}],
}


@pytest.mark.parametrize("tools", [[], TOOLS], ids=["no tools", "tools"])
@pytest.mark.parametrize("name", CONVERSATIONS)
async def test_an_older_server_renders_and_then_counts(name: str, tools: list[WireMessage]) -> None:
    messages = CONVERSATIONS[name]
    with running(Fake(fault="older")) as fake:
        server = LlamaServer(fake.url)
        counts = [await server.count(messages, tools) for _ in range(2)]
    assert (
        counts
        == [Count(len(render({"messages": messages, "tools": tools})), 0, "llama-server apply-template and tokenize")]
        * 2
    )
    paths = [request.path for request in fake.requests]
    assert paths.count(COUNT) == 1
    asked = [request.body for request in fake.requests if request.path == "/tokenize"]
    assert len(asked) == (2 if name != "long" else len(asked)) < 30
    assert {body["parse_special"] for body in asked if len(body["content"]) > 2} == {True}
    assert [body["add_special"] for body in asked].count(True) == 2, "the first token of all is counted once a prompt"
    assert max(len(body["content"]) for body in asked) < 17_000


async def test_images_are_not_counted_as_the_text_that_stands_for_them() -> None:
    picture: list[WireMessage] = [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "data:,"}}]}]
    with running(Fake(fault="older")) as fake:
        assert await LlamaServer(fake.url).count(picture) is None
    assert [request.path for request in fake.requests] == [COUNT]


@pytest.mark.parametrize(
    "text",
    ["", "word", "word " * 20_000, "One line of it.\n" * 4_000, "x" * 100_000, "字" * 30_000],
    ids=["nothing", "a word", "words", "lines", "one long word", "no spaces"],
)
async def test_a_size_is_the_same_in_pieces(text: str) -> None:
    with running(Fake()) as fake:
        size = await LlamaServer(fake.url).size(text)
    assert size is not None
    assert size.tokens == len(tokenize(text))
    sent = [request.body["content"] for request in fake.requests]
    assert sent.count("a") + sent.count("a\n") == (1 if len(sent) > 2 else 0), "a guard is asked once"
    assert {request.body["add_special"] for request in fake.requests} == {False}


async def test_a_text_that_no_piece_can_hold_is_not_counted() -> None:
    with running(Fake()) as fake:
        assert await LlamaServer(fake.url).size("x" * 200_000) is None
    assert fake.requests == []


@pytest.mark.parametrize("refused", range(3))
async def test_a_piece_that_is_refused_leaves_no_count(refused: int) -> None:
    turns = iter(range(6))

    def answer(_: httpx.Request) -> httpx.Response:
        return httpx.Response(503 if next(turns) == refused else 200, json={"tokens": [1, 2]})

    server = LlamaServer("http://x", transport=httpx.MockTransport(answer))
    assert await server.size("word " * 5_000) is None
    assert await server.size("word") is not None, "one refusal ends nothing"


async def test_a_vocabulary_that_puts_a_space_in_front_does_so_once() -> None:
    """As Llama 2's does: a text alone has it, and so would every piece."""

    def answer(request: httpx.Request) -> httpx.Response:
        text = " " + json.loads(request.content)["content"]
        return httpx.Response(200, json={"tokens": re.findall(r" ?[a-z]+|.", text, re.DOTALL)})

    server = LlamaServer("http://x", transport=httpx.MockTransport(answer))
    for text in ("some words " * 5_000, "lines.\n" * 8_000):
        size = await server.size(text)
        assert size is not None
        assert size.tokens == len(re.findall(r" ?[a-z]+|.", " " + text, re.DOTALL))


@pytest.mark.parametrize("name", ["75d-router-tokenize", "61f-sleep-tokenize"])
async def test_a_size_wakes_a_server_and_names_the_model_of_a_router(name: str) -> None:
    said = load(name)
    server, heard = replayed(name, model=said["request"]["body"].get("model", ""))
    size = await server.size(said["request"]["body"]["content"])
    assert size is not None
    assert size.tokens == len(said["response"]["json"]["tokens"])
    body = json.loads(heard.requests[0].content)
    assert {key: body[key] for key in said["request"]["body"]} == said["request"]["body"]


@pytest.mark.parametrize("name", ["60h-key-tokenize-nokey", "75e-router-tokenize-nomodel"])
async def test_a_size_that_is_refused_is_none_this_time(name: str) -> None:
    server, heard = replayed(name)
    assert [await server.size("hi there") for _ in range(2)] == [None, None]
    assert len(heard.requests) == 2


async def test_recorded_special_tokens_are_text_in_a_text_and_tokens_in_a_prompt() -> None:
    as_text, as_token = "08c-tokenize-noparse", "08b-tokenize-pieces-special"
    assert load(as_text)["request"]["body"]["parse_special"] is False
    size = await replayed(as_text)[0].size("<|im_start|>Hello")
    assert size is not None
    assert size.tokens == 8
    assert load(as_token)["response"]["json"]["tokens"][0] == {"id": 1, "piece": "<|im_start|>"}


@pytest.mark.parametrize("status", [400, 401, 429, 500, 503])
async def test_one_refusal_does_not_end_exact_counts(status: int) -> None:
    answers = iter(
        [httpx.Response(status, json={"error": {"message": "no"}}), httpx.Response(200, json={"input_tokens": 7})]
    )
    server = LlamaServer("http://x", transport=httpx.MockTransport(lambda _: next(answers)))
    assert await server.count(TERSE) is None
    count = await server.count(TERSE)
    assert count is not None
    assert count.tokens == 7


# Replies.


async def test_wishes_are_sent_and_only_those() -> None:
    with running(Fake()) as fake:
        server = LlamaServer(fake.url, model="m")
        for request in (Request(TERSE, 7, temperature=0.25), Request(TERSE, 9)):
            assert [piece async for piece in server.chat(request)]
    first, second = fake.chats
    assert (first["model"], first["max_tokens"], first["temperature"], first["stream"]) == ("m", 7, 0.25, True)
    assert second == {key: value for key, value in first.items() if key != "temperature"} | {"max_tokens": 9}


@pytest.mark.parametrize(
    ("server", "request_", "told"),
    [(None, None, None), (None, False, False), (None, True, True), (True, None, True), (True, False, False)],
)
async def test_a_model_thinks_as_the_request_says_else_as_the_server_was_set(
    *, server: bool | None, request_: bool | None, told: bool | None
) -> None:
    with running(Fake()) as fake:
        talking = LlamaServer(fake.url)
        talking.thinks = server
        assert [piece async for piece in talking.chat(Request(TERSE, 7, thinks=request_))]
    assert fake.chats[0].get("chat_template_kwargs") == (None if told is None else {"enable_thinking": told})


async def test_an_outline_leaves_the_prompt_as_it_is_and_calls_no_tools() -> None:
    """llama.cpp refuses a grammar beside tools that may be called; what it renders does not depend on that."""
    form = Outline(("Goal",), 1, 50)
    with running(Fake(tools=True, reply=lambda _: Calls("## Goal", [("look", "{}")]))) as fake:
        server = LlamaServer(fake.url)
        ends = []
        for request in (
            Request(TERSE, 9, TOOLS),
            Request(TERSE, 9, TOOLS, outline=form),
            Request(TERSE, 9, outline=form),
        ):
            *_, end = [piece async for piece in server.chat(request)]
            assert isinstance(end, Finished)
            ends.append(end)
    assert [bool(end.calls) for end in ends] == [True, False, False]
    assert [body.get("tool_choice") for body in fake.chats] == [None, "none", None]
    assert ends[1].usage.prompt == ends[0].usage.prompt
    assert fake.prefilled[1] == 1, "the prefix is still there"


async def test_two_replies_in_a_row_need_no_kept_connection() -> None:
    with running(Fake(fault="drop_after_stream")) as fake:
        server = LlamaServer(fake.url)
        for _ in range(3):
            assert isinstance([piece async for piece in server.chat(Request(TERSE, 5))][-1], Finished)
            assert await server.count(TERSE)


# Names.


@pytest.mark.parametrize(
    ("id_", "wanted", "is_it"),
    [
        (f"{SMOL}.gguf", "", True),
        (f"{SMOL}.gguf", f"{SMOL}.gguf", True),
        (f"{SMOL}.gguf", SMOL, True),
        (f"{SMOL}.gguf", SMOL.lower(), False),
        (f"{SMOL}.gguf", "SmolLM2-135M-Instruct", False),
        ("org/model-GGUF:Q4_K_M", "model-GGUF:Q4_K_M", True),
        ("org/model-GGUF:Q4_K_M", "model", False),
        ("family2.5-7b", "family2.5-7b", True),
        ("family2.5-7b", "family2", False),
        ("", "x", False),
    ],
)
def test_a_model_is_known_by_its_id_or_its_file(id_: str, wanted: str, is_it: bool) -> None:  # noqa: FBT001
    assert serves(ModelReport(id_, loaded=True, window=reconcile([])), wanted) is is_it


@pytest.mark.parametrize(
    ("started", "id_"),
    [("smol-alias", "my-alias"), ("smol-default", f"{SMOL}.gguf"), ("gemma-default", "gemma-3-270m-q4_k_m.gguf")],
)
async def test_a_model_goes_by_its_alias_or_its_file_not_by_a_path(started: str, id_: str) -> None:
    server, _ = replayed(f"50-props-{started}", f"50-models-{started}")
    assert only(await server.probe()).id == id_


async def test_a_router_s_launch_arguments_are_warned_of() -> None:
    args = ["llama-server", "-m", "m.gguf", "-c", "65536", "-np", "4", "--context-shift"]
    listed = {"object": "list", "data": [{"id": "m", "object": "model", "status": {"value": "unloaded", "args": args}}]}
    props = {"role": "router", "default_generation_settings": {"n_ctx": 0}}

    def answer(request: httpx.Request) -> httpx.Response:
        return httpx.Response(200, json={"/props": props, "/v1/models": listed}[request.url.path])

    server = LlamaServer("http://127.0.0.1:1", transport=httpx.MockTransport(answer))
    (model,) = (await server.probe()).models
    assert model.window.tokens == 16384
    assert [advice.code for advice in model.warnings] == ["split-slots", "context-shift"]
    await server.close()
