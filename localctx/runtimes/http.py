"""The one place that makes HTTP clients: bounded in size and time, no redirects, no proxies, keys for one origin only."""

from __future__ import annotations

import json
import re
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypedDict

import anyio
import httpx
import msgspec

from localctx.errors import Misuse, NotARuntime, ServerFailed, Unreachable

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

__all__ = ["LARGE_BYTES", "LOCATION", "Answer", "ask", "client", "sendable", "silent_for", "translated"]

CONNECT_SECONDS = 1.0
SILENCE_SECONDS = 120.0
"""How long a stream may be silent: llama-server sends a comment every 30 s while it prefills."""

_LIMITS = httpx.Limits(max_keepalive_connections=0)
"""A connection serves one exchange: llama-server closes a kept one 5 s after its last request *began*, so that the next
use of it, right after a long reply, would look like a crash. A new one costs little."""

_ANSWER_BYTES = 4 * 2**20
_STREAM_BYTES = 64 * 2**20

LARGE_BYTES = 32 * 2**20
"""The bound of the few answers that grow with a prompt (its text, its tokens) or hold a vocabulary (1 to 20 MB)."""

_MOST = "localctx_bytes"
"""The extension by which a request names another bound for its answer."""

LOCATION = "localctx_location"
"""The extension in which an answer keeps where it would have sent us."""

_KEY = re.compile(r"[!-~]+")


class _Bounded(httpx.AsyncByteStream):
    def __init__(self, stream: httpx.AsyncByteStream, limit: int) -> None:
        self._stream, self._left = stream, limit

    async def __aiter__(self) -> AsyncIterator[bytes]:
        async for chunk in self._stream:
            self._left -= len(chunk)
            if self._left < 0:
                raise httpx.DecodingError("the answer is larger than any that a runtime gives")
            yield chunk

    async def aclose(self) -> None:
        await self._stream.aclose()


class _BoundedTransport(httpx.AsyncBaseTransport):
    """Stops an answer that is too large, or packed so that it could become so."""

    def __init__(self, inner: httpx.AsyncBaseTransport) -> None:
        self._inner = inner

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        response = await self._inner.handle_async_request(request)
        if response.headers.get("content-encoding", "identity") != "identity" or not isinstance(
            response.stream, httpx.AsyncByteStream
        ):
            await response.aclose()
            raise httpx.DecodingError("the answer is compressed, which was not asked for")
        if location := response.headers.pop("location", None):  # httpx would read it, though it is never followed
            response.extensions[LOCATION] = location
        kind = response.headers.get("content-type", "")
        streamed = "text/event-stream" in kind or "application/x-ndjson" in kind
        limit = _STREAM_BYTES if streamed else request.extensions.get(_MOST, _ANSWER_BYTES)
        response.stream = _Bounded(response.stream, limit)
        return response

    async def aclose(self) -> None:
        await self._inner.aclose()


def client(url: str, key: str | None = None, transport: httpx.AsyncBaseTransport | None = None) -> httpx.AsyncClient:
    """A client for one server. Raises `Misuse` where `url` is no http or https address, or the key cannot be sent."""
    try:
        base = httpx.URL(_without_v1(url if "://" in url else f"http://{url}"))
        usable = base.scheme in {"http", "https"} and base.host and 0 < (base.port or 80) < 2**16
    except (httpx.InvalidURL, ValueError) as error:  # the latter for a host that IDNA does not take
        raise _no_address(url) from error
    if not usable:
        raise _no_address(url)
    if key and not _KEY.fullmatch(key):
        raise Misuse("the key holds a space, a line end or a letter that no header takes; set its variable anew")
    secure = base.scheme == "https"  # else nothing needs the certificates, which take 50 ms to load
    headers = {"Accept-Encoding": "identity"} | ({"Authorization": f"Bearer {key}"} if key else {})
    return httpx.AsyncClient(
        base_url=base,
        headers=headers,
        timeout=httpx.Timeout(SILENCE_SECONDS, connect=CONNECT_SECONDS),
        transport=_BoundedTransport(transport or httpx.AsyncHTTPTransport(limits=_LIMITS, verify=secure)),
        follow_redirects=False,
        trust_env=False,
    )


def _without_v1(url: str) -> str:
    """The address of the server, where people give the base of its OpenAI dialect."""
    return url.rstrip("/").removesuffix("/v1")


def _no_address(url: str) -> Misuse:
    shown = re.sub(r"^(\w+://)?.*@", r"\1", url, flags=re.DOTALL)[:100]  # without credentials
    return Misuse(f"{shown!r} is no http address; write it like http://127.0.0.1:8080")


@dataclass(frozen=True, slots=True)
class Answer:
    """A whole answer: status, headers, and the body as JSON, or as text where it is none."""

    status: int
    headers: httpx.Headers
    body: object


async def ask(
    http: httpx.AsyncClient,
    method: str,
    path: str,
    *,
    sent: object = None,
    seconds: float = 5.0,
    most: int = _ANSWER_BYTES,
) -> Answer:
    """One exchange with a deadline, and with an answer of at most `most` bytes.

    Raises `Unreachable`, `NotARuntime` or `ServerFailed`.
    """
    with translated(http):
        with anyio.move_on_after(seconds):
            response = await http.request(method, path, extensions={_MOST: most}, **sendable(sent))
            return Answer(response.status_code, response.headers, body_of(response.content))
    raise ServerFailed(f"{address(http)}{path} gave no answer within {seconds:g} s; it may be busy or hung: try again")


class Body(TypedDict, total=False):
    """The arguments of httpx that carry a JSON body."""

    content: bytes
    headers: dict[str, str]


def sendable(value: object) -> Body:
    """A JSON body, if there is one; a half of a surrogate pair, which no UTF-8 holds, goes as a question mark."""
    if value is None:
        return {}
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    return {"content": text.encode("utf-8", "replace"), "headers": {"Content-Type": "application/json"}}


def silent_for(silence: float | None) -> httpx.Timeout:
    """The time-outs of a stream whose server may be silent for so many seconds, never less than as usual."""
    return httpx.Timeout(max(silence or 0.0, SILENCE_SECONDS), connect=CONNECT_SECONDS)


@contextmanager
def translated(http: httpx.AsyncClient, silence: float | None = None) -> Iterator[None]:
    """Turns the errors of the connection into ours; `silence` is what `silent_for` was given."""
    try:
        yield
    except (httpx.ConnectError, httpx.ConnectTimeout) as error:
        raise Unreachable(
            f"nothing answers at {address(http)} ({_reason(error)}); start a server there or pass another --url"
        ) from error
    except httpx.ReadTimeout as error:
        raise ServerFailed(
            f"{address(http)} was silent for {max(silence or 0.0, SILENCE_SECONDS):,.0f} s; it may be hung: look at its log"
        ) from error
    except (httpx.RemoteProtocolError, httpx.DecodingError) as error:
        if "disconnected" in str(error) or "closed connection" in str(error):
            raise ServerFailed(
                f"{address(http)} broke off without an answer; it may have died: look at its log"
            ) from error
        raise NotARuntime(
            f"{address(http)} does not talk as a model server does ({_reason(error)}); check the port"
        ) from error
    except httpx.TransportError as error:
        raise ServerFailed(f"{address(http)} broke off ({_reason(error)}); look at its log, then try again") from error


def address(http: httpx.AsyncClient) -> str:
    """The address of a client, for people: without credentials."""
    url = http.base_url.copy_with(username=None, password=None)
    return str(url).rstrip("/")


def body_of(content: bytes) -> object:
    """A body as JSON, or as text where it is none."""
    try:
        return msgspec.json.decode(content)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return content.decode("utf-8", "replace")


def _reason(error: Exception) -> str:
    text = str(error) or type(error).__name__
    return "connection refused" if "All connection attempts failed" in text else text
