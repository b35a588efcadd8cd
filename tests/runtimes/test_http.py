from __future__ import annotations

import gzip
import re
import tracemalloc
from contextlib import contextmanager
from json import dumps
from time import monotonic
from typing import TYPE_CHECKING, Any

import anyio
import httpx
import pytest

from localctx.core.window import Confidence, ServerReport, Status
from localctx.errors import LocalctxError, Misuse, NotARuntime, ServerFailed, Unreachable
from localctx.ports import Request
from localctx.runtimes.http import ask, body_of, client
from localctx.runtimes.llama_server import LlamaServer
from tests.fakes.llama_server import Fake, running
from tests.recordings import load
from tests.runtimes.raw import http, saying

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.anyio

KEY = "sk-never-show-this"
HELLO = Request([{"role": "user", "content": "Say hello."}], 5)
NEXT = re.compile(r"check the port|try again|look at its log|pass another --url|start a server|wait and ask")
PROPS: dict[str, Any] = load("03-props-smol-c4096-np1")["response"]["json"]
MODELS: dict[str, Any] = load("04-v1-models-smol-c4096")["response"]["json"]


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


def told(report: ServerReport) -> str:
    """The error of a report: one line, not endless, and with a next step."""
    assert report.models == ()
    assert report.error is not None
    assert "\n" not in report.error
    assert len(report.error) < 400
    assert NEXT.search(report.error), report.error
    return report.error


async def asked(url: str) -> ServerReport:
    server = LlamaServer(url, key=KEY)
    try:
        return await server.probe()
    finally:
        await server.close()


async def chat(url: str) -> LocalctxError:
    with pytest.raises(LocalctxError) as failed:
        async for _ in LlamaServer(url, key=KEY).chat(HELLO):
            pass
    assert "\n" not in str(failed.value)
    return failed.value


# Servers that are broken, or none at all.


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        ("html", "is no (llama-|model )server.*text/html"),
        ("garbage", "is no (llama-|model )server"),
        ("not_http", "does not talk as a model server does|broke off without an answer"),
        ("truncated_json", "is no (llama-|model )server"),
        ("huge_json", "larger than any that a runtime gives"),
        ("redirect_loop", "is no (llama-|model )server.*HTTP 302"),
    ],
)
async def test_what_is_no_model_server_is_called_so(fault: str, message: str) -> None:
    with running(Fake(fault=fault)) as fake, bounded(mebibytes=40, seconds=4):
        report = await asked(fake.url)
        assert report.status is Status.ERROR
        assert re.search(message, told(report))
        assert len(fake.requests) <= 2
        assert isinstance(await chat(fake.url), (NotARuntime, ServerFailed))
        with pytest.raises(LocalctxError) if fault in {"not_http", "huge_json"} else nothing_raised():
            assert await LlamaServer(fake.url).count(HELLO.messages) is None


@contextmanager
def nothing_raised() -> Iterator[None]:
    yield


async def test_a_wrong_content_type_does_not_hide_what_is_said() -> None:
    with running(Fake(fault="wrong_content_type", n_ctx=1024)) as fake:
        report = await asked(fake.url)
    assert (report.status, report.models[0].window.tokens) == (Status.UP, 1024)


async def test_silence_is_given_up_in_time() -> None:
    reports: list[ServerReport] = []

    async def one(url: str) -> None:
        reports.append(await asked(url))

    with running(Fake(fault="hang")) as hanging, running(Fake(fault="slow_headers")) as slow:
        began = monotonic()
        async with anyio.create_task_group() as group:
            group.start_soon(one, hanging.url)
            group.start_soon(one, slow.url)
        assert monotonic() - began < 8
    assert [report.status for report in reports] == [Status.ERROR] * 2
    assert all("no answer within 5 s" in told(report) for report in reports)


async def test_the_deadline_of_one_question_is_the_callers() -> None:
    with running(Fake(fault="slow_headers")) as fake:
        connection = client(fake.url)
        began = monotonic()
        with pytest.raises(ServerFailed, match=r"/props gave no answer within 0\.2 s.*try again"):
            await ask(connection, "GET", "/props", seconds=0.2)
        assert monotonic() - began < 2


@pytest.mark.parametrize(
    ("size", "most", "comes"), [(5, None, False), (3, None, True), (5, 8, True), (9, 8, False), (2, 1, False)]
)
async def test_one_question_may_have_a_larger_answer_than_the_others(size: int, most: int | None, comes: bool) -> None:  # noqa: FBT001
    """In MiB; without a bound of its own it is 4."""
    given = {} if most is None else {"most": most * 2**20}
    with saying(lambda _: [http("Content-Type: application/json", "Connection: close"), b"9" * (size * 2**20)]) as raw:
        async with client(raw.url) as opened:
            with nothing_raised() if comes else pytest.raises(NotARuntime, match="larger than any"):
                assert len(str((await ask(opened, "GET", "/x", **given)).body)) == size * 2**20


@pytest.mark.parametrize("kind", ["text/event-stream", "application/x-ndjson"])
async def test_a_stream_may_be_longer_than_an_answer(kind: str) -> None:
    with saying(lambda _: [http(f"Content-Type: {kind}", "Connection: close"), b"x" * (5 * 2**20)]) as raw:
        async with client(raw.url) as opened, opened.stream("POST", "/x") as response:
            assert len(await response.aread()) == 5 * 2**20


async def test_nothing_there() -> None:
    with running(Fake()) as fake:
        url = fake.url
    report = await asked(url)
    assert report.status is Status.DOWN
    assert f"nothing answers at {url} (connection refused)" in told(report)
    with pytest.raises(Unreachable):
        await LlamaServer(url).count(HELLO.messages)


async def test_a_packed_answer_is_not_unpacked() -> None:
    bomb = gzip.compress(b" " * 50 * 2**20)
    fields = ("Content-Type: application/json", "Content-Encoding: gzip", f"Content-Length: {len(bomb)}")
    with saying(lambda _: [http(*fields, body=bomb)]) as raw, bounded(mebibytes=8, seconds=4):
        assert "compressed" in told(await asked(raw.url))
        assert "compressed" in str(await chat(raw.url))
    assert all("accept-encoding: identity\r\n" in head.lower() for head in raw.heads)


@pytest.mark.parametrize(
    "head",
    [
        b"",
        b"HTTP/1.1 200 OK\r\n",
        b"HTTP/1.1 abc OK\r\n\r\n",
        http("Content-Length: -5"),
        http("Content-Length: 5", "Content-Length: 6"),
        http("Content-Length: " + "9" * 5000, body=b"{}"),
        http("Content-Length: 100", body=b"{"),
        http("Transfer-Encoding: chunked", body=b"zz\r\n"),
        http("Upgrade: x", "Connection: upgrade", status="101 Switching"),
        http(*["X: " + "y" * 1000] * 500),
        http("Location: http://xn--a/", "Content-Length: 0", status="302 Found"),
        http("Location: http://[::1", "Content-Length: 0", status="302 Found"),
        http("Content-Length: 0", status="999 Odd"),
        http("Set-Cookie: a=b; expires=\xff; max-age=" + "9" * 50, "Content-Length: 0"),
        http("Content-Type: te\x1b[2Jxt/html; charset=undefined", body=b"\xff\xfe"),
    ],
    ids=lambda head: repr(head[:40]),
)
async def test_broken_http_is_an_error_like_another(head: bytes) -> None:
    with saying(lambda _: [head]) as raw:
        report = await asked(raw.url)
        assert report.status is Status.ERROR
        assert raw.url in told(report)
        assert isinstance(await chat(raw.url), (NotARuntime, ServerFailed))


# What an answer may hold.


def with_n_ctx(text: str) -> bytes:
    return dumps(PROPS | {"default_generation_settings": {"n_ctx": "HERE"}}).replace('"HERE"', text).encode()


async def said(props: bytes, models: bytes = dumps(MODELS).encode()) -> ServerReport:
    bodies = {"/props": props, "/v1/models": models}
    return await LlamaServer(
        "http://x", transport=httpx.MockTransport(lambda request: httpx.Response(200, content=bodies[request.url.path]))
    ).probe()


@pytest.mark.parametrize(
    ("n_ctx", "tokens"),
    [("4096", 4096), ('"4096"', 4096), ("4096.0", 4096), ("0", None), ("-1", None), ("2147483647", 2147483647)],
)
async def test_a_window_is_a_positive_number_or_unknown(n_ctx: str, tokens: int | None) -> None:
    report = await said(with_n_ctx(n_ctx))
    assert report.status is Status.UP
    window = report.models[0].window
    assert window.tokens == tokens
    assert window.confidence is (Confidence.UNKNOWN if tokens is None else Confidence.SERVED)


@pytest.mark.parametrize(
    "n_ctx",
    [
        "4096.5",
        "null",
        "true",
        '"many"',
        "[]",
        "{}",
        "1e300",
        "1e999",
        "NaN",
        "2147483648",
        "18446744073709551615",
        "9" * 5000,
        '"' + "9" * 5000 + '"',
    ],
    ids=lambda n_ctx: n_ctx[:12],
)
async def test_a_window_that_is_no_number_of_tokens_is_an_error(n_ctx: str) -> None:
    report = await said(with_n_ctx(n_ctx))
    assert report.status is Status.ERROR
    told(report)


async def test_numbers_that_mean_unknown_are_not_shown() -> None:
    models = {"data": [{"id": "m", "meta": {"n_ctx_train": -1, "size": -1}}]}
    model = (await said(dumps(PROPS | {"total_slots": -1}).encode(), dumps(models).encode())).models[0]
    assert (model.trained, model.slots, model.model_bytes, model.warnings[:-1]) == (None, None, None, ())


@pytest.mark.parametrize(
    ("props", "models"),
    [
        (b"", b"{}"),
        (b"[]", b"{}"),
        (b'"text"', b"{}"),
        (b'{"default_generation_settings":[]}', b"{}"),
        (b'{"default_generation_settings":' + b"[" * 50_000 + b"]" * 50_000 + b"}", b"{}"),
        (b'{"default_generation_settings":{"n_ctx":1},"model_alias":"\xff"}', b"{}"),
        (b'{"default_generation_settings":{"n_ctx":1},"chat_template":"\\ud800"}', b"{}"),
        (b'{"default_generation_settings":{"n_ctx":1}}', b'{"data":' * 50_000),
        (b'{"default_generation_settings":{"n_ctx":1}}', b'{"data":[{"id":"\xff"}]}'),
        (b'{"default_generation_settings":{"n_ctx":1}}', b'{"data":null}'),
        (b'{"default_generation_settings":{"n_ctx":1}}', b'{"data":[1]}'),
        (b'{"default_generation_settings":{"n_ctx":1}}', b"<html>"),
    ],
)
async def test_odd_bodies_are_an_error_with_a_next_step(props: bytes, models: bytes) -> None:
    report = await said(props, models)
    assert report.status is Status.ERROR
    told(report)


async def test_ten_thousand_models_are_listed_soon() -> None:
    listed = [{"id": f"m{number}", "meta": {"n_ctx": 4096, "n_ctx_train": 8192}} for number in range(10_000)]
    with bounded(mebibytes=100, seconds=8):
        report = await said(dumps(PROPS).encode(), dumps({"data": listed}).encode())
        assert len(report.models) == 10_000
        assert {model.window.tokens for model in report.models} == {4096}


async def test_a_server_without_a_model_is_up() -> None:
    report = await said(dumps(PROPS).encode(), b'{"data":[]}')
    assert (report.status, report.models, report.error) == (Status.UP, (), None)


@pytest.mark.parametrize(
    ("content", "body"), [(b'{"a":1}', {"a": 1}), (b"{", "{"), (b"\xff", "\ufffd"), (b"[" * 9999, "[" * 9999)], ids=str
)
def test_a_body_is_json_or_text(content: bytes, body: object) -> None:
    assert body_of(content) == body


# Keys and addresses.


async def test_a_redirect_is_not_followed_and_takes_no_key_along() -> None:
    with running(Fake()) as other:
        moved = http(f"Location: {other.url}/props", "Content-Length: 0", status="307 Moved")
        with saying(lambda _: [moved]) as raw:
            assert "HTTP 307" in told(await asked(raw.url))
            assert isinstance(await chat(raw.url), NotARuntime)
            assert await LlamaServer(raw.url, key=KEY).count(HELLO.messages) is None
    assert other.requests == []
    assert len(raw.heads) >= 3


async def test_proxies_in_the_environment_are_ignored(monkeypatch: pytest.MonkeyPatch) -> None:
    with running(Fake(n_ctx=512)) as fake, running(Fake(n_ctx=1024)) as proxy:
        for name in ("http_proxy", "HTTP_PROXY", "https_proxy", "all_proxy", "ALL_PROXY"):
            monkeypatch.setenv(name, proxy.url)
        monkeypatch.delenv("no_proxy", raising=False)
        monkeypatch.delenv("NO_PROXY", raising=False)
        assert (await asked(fake.url)).models[0].window.tokens == 512
    assert proxy.requests == []


@pytest.mark.parametrize("fault", [None, "html", "not_http", "unauthorized", "no_finish", "down"])
async def test_credentials_in_an_address_are_not_shown(fault: str | None) -> None:
    with running(Fake(fault=None if fault == "down" else fault)) as fake:
        url = fake.url.replace("//", "//somebody:hunter2@")
        server = LlamaServer(url)
        if fault != "down":
            report = await server.probe()
            shown = repr(report) + (str(await chat(url)) if fault else "")
    if fault == "down":
        shown = repr(await server.probe()) + str(await chat(url))
    assert server.url == fake.url
    assert fake.url in shown
    assert "hunter2" not in shown
    assert "somebody" not in shown


@pytest.mark.parametrize(
    "url",
    [
        "http://[::1",
        "ftp://x",
        "",
        "localhost:99999",
        "localhost:0x50",
        "http://",
        "http://:8080",
        "://x",
        " http://x",
        "http://a\nb",
        "http://host:-1",
        "http://host:abc",
        "http://xn--a",
        "http://somebody:hunter2@host:99999",
        "http://somebody:hunter2@[::1",
        "ftp://somebody:hunter2@x",
        "somebody:hunter2@host:99999",
        "http://somebody:hun/ter2@host",
        "http://" + "a" * 70_000,
    ],
    ids=lambda url: repr(url[:30]),
)
def test_a_malformed_address_is_misuse(url: str) -> None:
    with pytest.raises(Misuse, match=r"write it like http://127\.0\.0\.1:8080") as wrong:
        client(url)
    assert "ter2" not in str(wrong.value)
    assert "\n" not in str(wrong.value)
    assert len(str(wrong.value)) < 200


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("localhost:8080", "http://localhost:8080"),
        ("http://127.0.0.1:8080/", "http://127.0.0.1:8080"),
        ("HTTPS://Example.org", "https://example.org"),
        ("http://[::1]:8080", "http://[::1]:8080"),
        ("http://host/prefix/", "http://host/prefix"),
    ],
)
def test_an_address_may_be_written_in_many_ways(url: str, shown: str) -> None:
    assert LlamaServer(url).url == shown


@pytest.mark.parametrize("key", ["two words", "secret\n", "\r", "\u00e9t\u00e9", "nul\0", " "])
def test_a_key_that_no_header_takes_is_misuse_and_not_shown(key: str) -> None:
    with pytest.raises(Misuse, match="key") as wrong:
        client("http://x", key)
    assert not key.strip() or key.strip() not in str(wrong.value)
