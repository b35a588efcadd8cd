"""Servers that say exactly the given bytes, and a transport that remembers what it was asked."""

from __future__ import annotations

import threading
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from socketserver import StreamRequestHandler, ThreadingTCPServer
from typing import TYPE_CHECKING, TypeAlias

import httpx

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

Say: TypeAlias = "Callable[[str], Iterable[bytes]]"


@dataclass
class Raw:
    url: str
    heads: list[str] = field(default_factory=list)


@contextmanager
def saying(say: Say) -> Iterator[Raw]:
    """Answers each request with the bytes that `say` gives for its path, then closes the connection."""

    class Handler(StreamRequestHandler):
        timeout = 10

        def handle(self) -> None:
            with suppress(OSError):
                head = "".join(iter(lambda: self.rfile.readline().decode("latin-1"), "\r\n"))
                raw.heads.append(head)
                fields = dict(line.lower().split(": ", 1) for line in head.splitlines()[1:])
                self.rfile.read(int(fields.get("content-length", 0)))
                for part in say(head.split()[1]):
                    self.wfile.write(part)

    class Server(ThreadingTCPServer):
        request_queue_size = 50
        daemon_threads = False  # so that closing waits for them

    with Server(("127.0.0.1", 0), Handler) as server:
        raw = Raw(f"http://127.0.0.1:{server.server_address[1]}")
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield raw
        finally:
            server.shutdown()
            thread.join()


def http(*fields: str, status: str = "200 OK", body: bytes = b"") -> bytes:
    return "\r\n".join([f"HTTP/1.1 {status}", *fields, "", ""]).encode("latin-1") + body


def json(body: bytes) -> bytes:
    return http("Content-Type: application/json", f"Content-Length: {len(body)}", body=body)


def events(*data: str, more: str = "") -> bytes:
    text = "".join(f"data: {each}\n\n" for each in data)
    return http(f"Content-Type: text/event-stream{more}", "Connection: close", body=text.encode())


class Heard(httpx.AsyncBaseTransport):
    """Passes requests on, and keeps them."""

    def __init__(self, inner: httpx.AsyncBaseTransport) -> None:
        self._inner = inner
        self.requests: list[httpx.Request] = []

    @property
    def asked(self) -> list[str]:
        return [f"{request.method} {request.url.raw_path.decode()}" for request in self.requests]

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        self.requests.append(request)
        return await self._inner.handle_async_request(request)
