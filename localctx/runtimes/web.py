"""Pages of the public web, and of nothing else: the address that was checked is the one that is connected to."""

from __future__ import annotations

import re
from ipaddress import IPv6Address, ip_address, ip_network
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import anyio
import httpx

from localctx.errors import Misuse
from localctx.ports import Page
from localctx.runtimes.http import LOCATION, client

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence
    from ipaddress import IPv4Address

__all__ = ["PublicWeb", "is_public", "resolved"]

_SECONDS, _CONNECT = 30.0, 5.0
_ONWARD = {301, 302, 303, 307, 308}
_TEXT = ("text/", "json", "xml", "javascript", "yaml", "toml")
"""What the type of a text holds."""


class PublicWeb:
    """Gets one page at a time, sends nothing of ours, and follows nothing.

    `resolve` gives the addresses of a host and a port, `may` says which of them may be asked.
    """

    def __init__(
        self,
        resolve: Callable[[str, int], Awaitable[Sequence[str]]] | None = None,
        may: Callable[[str], bool] | None = None,
    ) -> None:
        self._resolve, self._may = resolve or resolved, may or is_public

    async def get(self, url: str) -> Page:
        """One answer. Raises `ValueError`, worded for a model, where there is none, or none that is a text."""
        host = urlsplit(url).hostname
        try:
            with anyio.fail_after(_SECONDS):
                return await self._got(httpx.URL(url))
        except TimeoutError:
            raise ValueError(f"{host} gave no answer within {_SECONDS:g} s") from None
        except (httpx.HTTPError, httpx.InvalidURL, Misuse) as error:
            raise ValueError(f"{host} cannot be read ({str(error) or type(error).__name__})") from None

    async def _got(self, url: httpx.URL) -> Page:
        port = url.port or (443 if url.scheme == "https" else 80)
        response = await self._answered(url, port, await self._checked(url.host, port))
        kind = response.headers.get("content-type", "").partition(";")[0].strip().lower()
        onward = response.extensions.get(LOCATION, "") if response.status_code in _ONWARD else ""
        if kind and not any(each in kind for each in _TEXT) and not onward:
            raise ValueError(f"{url.host} answers with {kind[:60]}, which is no text")
        return Page(response.status_code, kind, "" if onward else _decoded(response), onward)

    async def _answered(self, url: httpx.URL, port: int, addresses: Sequence[str]) -> httpx.Response:
        """The answer of the first address that can be connected to. Raises `httpx.HTTPError`."""
        extensions = {
            "sni_hostname": url.raw_host.decode(),
            "timeout": httpx.Timeout(_SECONDS, connect=_CONNECT).as_dict(),
        }
        headers = {"Host": url.netloc.decode(), "Accept": "text/*, application/json;q=0.9"}
        for at, address in enumerate(addresses, 1):
            async with client(f"{url.scheme}://{f'[{address}]' if ':' in address else address}:{port}") as http:
                try:
                    whole = f"{str(http.base_url).rstrip('/')}{url.raw_path.decode()}"
                    return await http.get(whole, headers=headers, extensions=extensions)
                except (httpx.ConnectError, httpx.ConnectTimeout):
                    if at == len(addresses):
                        raise
        raise httpx.ConnectError("it has no address")

    async def _checked(self, host: str, port: int) -> Sequence[str]:
        """The addresses of a host. Raises `ValueError` where one of them may not be asked: it may be a trap."""
        try:
            found = await self._resolve(host, port)
        except OSError as error:
            raise ValueError(f"{host} cannot be resolved ({error.strerror or error})") from None
        if not found or not all(map(self._may, found)):
            raise ValueError(f"{host} is not in the public web, and only that may be asked")
        return found


def _decoded(response: httpx.Response) -> str:
    said = (response.charset_encoding or "").lower().replace("_", "-")
    return response.content.decode(said if _CHARACTERS.fullmatch(said) else "utf-8", "replace")


_CHARACTERS = re.compile(
    r"utf-?(8|16|32)(-?[lb]e)?|us-ascii|latin-?1|iso-?8859-(1?[0-9]|1[0-6])|windows-125[0-8]|koi8-[ru]|gb(k|2312|18030)|big5|shift-jis"
    r"|euc-(jp|kr)|iso-2022-jp"
)
"""The character sets of pages. Python knows more, among them some that take quadratic time, or do something else."""


async def resolved(host: str, port: int) -> list[str]:
    """The addresses of a host. Raises `OSError`."""
    return [str(where[0]) for *_, where in await anyio.getaddrinfo(host, port, proto=6)]  # TCP


def is_public(address: str) -> bool:
    """Whether an address is one of the public internet: neither this machine, nor its network, nor reserved for anything.

    Of addresses that hold another one (mapped, 6to4, Teredo, NAT64), that one counts, too.
    """
    try:
        ip = ip_address(address.partition("%")[0])
    except ValueError:
        return False
    held = _within(ip)
    outside = isinstance(ip, IPv6Address) and ip not in _UNICAST and not held
    return not outside and all(each.is_global and not each.is_multicast for each in (ip, *held))


def _within(ip: IPv4Address | IPv6Address) -> list[IPv4Address | IPv6Address]:
    """The IPv4 addresses that an IPv6 address stands for."""
    if not isinstance(ip, IPv6Address):
        return []
    held = [ip.ipv4_mapped, ip.sixtofour, *(ip.teredo or ())]
    nat64 = ip_address(int(ip) & 0xFFFFFFFF) if int(ip) >> 32 == _NAT64 else None
    return [each for each in (*held, nat64) if each is not None]


_UNICAST = ip_network("2000::/3")
"""The only addresses of IPv6 that are given to anybody (IANA)."""

_NAT64 = int(IPv6Address("64:ff9b::")) >> 32
