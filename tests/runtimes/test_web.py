"""Only the public web is asked, at the address that was checked, and nothing large or odd comes back."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from localctx.ports import Page
from localctx.runtimes.web import PublicWeb, is_public

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.mark.parametrize("address", ["8.8.8.8", "1.1.1.1", "2606:4700::1111", "64:ff9b::808:808"])
def test_the_public_internet_may_be_asked(address: str) -> None:
    assert is_public(address)


@pytest.mark.parametrize(
    "address",
    [
        *("127.0.0.1", "127.9.9.9", "0.0.0.0", "10.0.0.1", "172.16.0.1", "192.168.1.1", "169.254.169.254"),  # noqa: S104  told apart
        *(
            "100.64.0.1",
            "224.0.0.1",
            "255.255.255.255",
            "192.0.2.1",
            "198.18.0.1",
            "::",
            "::1",
            "fe80::1",
            "fe80::1%eth0",
        ),
        *("fc00::1", "fd12::1", "ff02::1", "::ffff:127.0.0.1", "::ffff:10.0.0.1", "2002:7f00:1::", "64:ff9b::7f00:1"),
        *("2001:db8::1", "localhost", "", "8.8.8.8.8"),
        "::127.0.0.1",
        "::ffff:0:127.0.0.1",
        "fec0::1",
        "5f00::1",
        "64:ff9b:1::7f00:1",
    ],
)
def test_nothing_else_may(address: str) -> None:
    assert not is_public(address)


Answer = tuple[int, dict[str, str], bytes]


@contextmanager
def serving(answer: Callable[[BaseHTTPRequestHandler], Answer]) -> Iterator[int]:
    class Http(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            status, headers, body = answer(self)
            self.send_response(status)
            for name, value in {"Content-Length": str(len(body)), **headers}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            return

    server = ThreadingHTTPServer(("127.0.0.1", 0), Http)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        yield server.server_port
    finally:
        server.shutdown()
        server.server_close()
        thread.join(5)


def here(*addresses: str) -> PublicWeb:
    """A web in which every host has these addresses, and this machine may be asked."""

    async def resolve(_host: str, _port: int) -> Sequence[str]:
        return addresses or ("127.0.0.1",)

    return PublicWeb(resolve, lambda address: address == "127.0.0.1")


async def test_a_page_is_got_with_the_name_of_its_host_and_nothing_of_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOCALCTX_API_KEY", "sk-key")
    seen: list[dict[str, str]] = []

    def answer(asked: BaseHTTPRequestHandler) -> Answer:
        seen.append({name.lower(): value for name, value in asked.headers.items()} | {"path": asked.path})
        return 200, {"Content-Type": "text/plain; charset=latin-1"}, b"caf\xe9"

    with serving(answer) as port:
        page = await here().get(f"http://docs.example:{port}/a/b?c=%20d")
    assert page == Page(200, "text/plain", "café")
    assert (seen[0]["host"], seen[0]["path"]) == (f"docs.example:{port}", "/a/b?c=%20d")
    assert {"authorization", "cookie"} & set(seen[0]) == set()


async def test_a_way_onward_is_told_and_not_gone() -> None:
    asked: list[str] = []

    def answer(request: BaseHTTPRequestHandler) -> Answer:
        asked.append(request.path)
        return 302, {"Location": "http://127.0.0.1:1/secret"}, b"x"

    with serving(answer) as port:
        assert await here().get(f"http://a.example:{port}/x") == Page(302, "", "", "http://127.0.0.1:1/secret")
    assert asked == ["/x"]


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        ((200, {"Content-Type": "image/png"}, b"\x89PNG"), "answers with image/png, which is no text"),
        ((200, {"Content-Type": "text/html"}, b"x" * (5 << 20)), "is larger than any"),
        ((200, {"Content-Type": "text/html", "Content-Encoding": "gzip"}, b"x"), "compressed"),
        ((200, {"Content-Length": "99"}, b"cut"), "cannot be read"),
    ],
)
async def test_what_is_no_text_of_a_page_s_size_is_refused(answer: Answer, said: str) -> None:
    def once(request: BaseHTTPRequestHandler) -> Answer:
        request.close_connection = True
        return answer

    with serving(once) as port, pytest.raises(ValueError, match=said):
        await here().get(f"http://a.example:{port}/")


@pytest.mark.parametrize("addresses", [("127.0.0.1", "10.0.0.1"), ("10.0.0.1",), ("::1",)])
async def test_a_host_with_an_address_that_is_not_public_is_not_asked(addresses: tuple[str, ...]) -> None:
    with pytest.raises(ValueError, match="is not in the public web"):
        await here(*addresses).get("http://a.example:9/")


@pytest.mark.parametrize(
    "url", ["http://127.0.0.1:9/", "http://localhost:9/", "http://[::1]:9/", "http://2130706433/", "http://0x7f.1/"]
)
async def test_this_machine_is_not_asked_however_it_is_written(url: str) -> None:
    with pytest.raises(ValueError, match=r"is not in the public web|cannot be resolved"):
        await PublicWeb().get(url)


async def test_a_host_that_nobody_knows_is_told() -> None:
    async def resolve(_host: str, _port: int) -> Sequence[str]:
        raise OSError(8, "no such host")

    with pytest.raises(ValueError, match=r"a.example cannot be resolved .no such host."):
        await PublicWeb(resolve).get("http://a.example/")


@pytest.mark.parametrize("path", ["//evil.example/x", "//", "/a//b"])
async def test_the_path_that_is_asked_for_is_the_one_that_was_meant(path: str) -> None:
    seen: list[str] = []

    def answer(asked: BaseHTTPRequestHandler) -> Answer:
        seen.append(asked.requestline.split()[1])
        return 200, {"Content-Type": "text/plain"}, b"x"

    with serving(answer) as port:
        await here().get(f"http://docs.example:{port}{path}")
    assert seen == [path]


@pytest.mark.parametrize("charset", ["punycode", "unicode_escape", "idna", "rot13", "nothing"])
async def test_a_page_in_no_character_set_of_pages_is_utf_8(charset: str) -> None:
    def answer(_asked: BaseHTTPRequestHandler) -> Answer:
        return 200, {"Content-Type": f"text/plain; charset={charset}"}, "é \\x41".encode()

    with serving(answer) as port:
        page = await here().get(f"http://docs.example:{port}/")
    assert page.text == "é \\x41"
