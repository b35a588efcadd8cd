"""Reading pages of the web as text."""

from __future__ import annotations

import re
from dataclasses import dataclass
from html import unescape
from typing import TYPE_CHECKING, Any
from urllib.parse import urljoin, urlsplit

import anyio

from localctx.app.tools.approval import permitted
from localctx.core.approval import Wish
from localctx.core.arguments import described
from localctx.core.results import Provenance
from localctx.ports import Outcome

if TYPE_CHECKING:
    from collections.abc import Mapping

    from localctx.core.outgoing import WireMessage
    from localctx.ports import Approval, Page, Web

__all__ = ["FetchUrl", "plain_text"]

_MOST_HOPS = 5
_LONGEST = 2000


@dataclass(frozen=True, slots=True)
class FetchUrl:
    """Gets a page; every host on the way is approved first."""

    web: Web
    approval: Approval
    name = "fetch_url"

    @property
    def schema(self) -> WireMessage:
        """What a request says of it."""
        return described(self.name, "Get a web page as text.", {"url": {"type": "string"}}, "url")

    async def run(self, arguments: Mapping[str, Any]) -> Outcome:
        """Its text. Raises `ValueError` where it cannot be had, or may not."""
        url = arguments["url"].strip()
        for _ in range(_MOST_HOPS):
            await permitted(self.approval, Wish(self.name, _host(url), url))
            page = await self.web.get(url)
            if not page.onward:
                told = await anyio.to_thread.run_sync(_told, page, abandon_on_cancel=True)
                return Outcome(told, Provenance("external", url))
            url = _next(url, page.onward)
        raise ValueError(f"it sends us on more than {_MOST_HOPS} times, at last to {url[:200]}")


def _host(url: str) -> str:
    """The host of an address. Raises `ValueError`, worded for a model, for one that is not to be asked."""
    if not url.isprintable() or " " in url or "\\" in url or len(url) > _LONGEST:
        raise ValueError(
            f"{url[:60]!r} is no address; it has a blank or the like in it, or is longer than {_LONGEST:,}"
        )
    try:
        parts = urlsplit(url)
        parts.port  # noqa: B018  reading it checks it
    except ValueError:
        raise ValueError(f"{url[:60]!r} is no address") from None
    if parts.scheme not in {"http", "https"} or not parts.hostname or "@" in parts.netloc:
        raise ValueError(
            f"{url[:60]!r} cannot be fetched; an address is like https://example.org/page, without a name and password"
        )
    return parts.hostname


def _next(url: str, onward: str) -> str:
    try:
        to = urljoin(url, onward)
    except ValueError:
        raise ValueError(f"it sends us on to {onward[:60]!r}, which is no address") from None
    if url.startswith("https:") and to.startswith("http:"):
        raise ValueError(f"it sends us on to {to[:200]}, which is not encrypted; fetch that by itself if you want it")
    return to


def _told(page: Page) -> str:
    text = plain_text(page.text) if "html" in page.kind else page.text
    return text if page.status < 400 else f"[status {page.status}]\n{text}"  # noqa: PLR2004  where errors begin


def plain_text(page: str) -> str:
    """What a page in HTML says, without its tags, scripts and styles; blocks are lines.

    By looking for the next mark only, which takes linear time of any text, as no parser of the standard library does.
    """
    said, at = list[str](), 0
    while (mark := page.find("<", at)) >= 0:
        said.append(page[at:mark])
        found = _TAG.match(page, mark)
        if page.startswith("<!--", mark):
            at = _behind(page, "-->", mark)
        elif found is None:
            said.append("<")
            at = mark + 1
        else:
            name = found[1].lower()
            said += ["\n"] if name in _BLOCKS else []
            at = _behind(page, ">", mark)
            if name in _UNSEEN and page[mark + 1] != "/":
                end = re.compile(f"</{name}", re.IGNORECASE).search(page, at)
                at = end.start() if end else len(page)
    said.append(page[at:])
    lines = (" ".join(line.split()) for line in unescape("".join(said)).split("\n"))
    return re.sub(r"\n{3,}", "\n\n", "\n".join(lines)).strip()


_TAG = re.compile(r"<[/!?]?([A-Za-z][A-Za-z0-9]{0,20})")
_UNSEEN = {"script", "style", "template", "noscript", "svg", "iframe"}
_BLOCKS = {
    *(
        "p",
        "div",
        "br",
        "li",
        "tr",
        "ul",
        "ol",
        "table",
        "section",
        "article",
        "header",
        "footer",
        "main",
        "nav",
        "pre",
    ),
    *("h1", "h2", "h3", "h4", "h5", "h6", "blockquote", "dt", "dd", "hr", "title", "body"),
}


def _behind(page: str, end: str, start: int) -> int:
    """The place behind the next `end`; the end of the page where there is none."""
    found = page.find(end, start)
    return len(page) if found < 0 else found + len(end)
