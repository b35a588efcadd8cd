"""Reading pages of the web as text."""

from __future__ import annotations

import re
from dataclasses import dataclass
from html.parser import HTMLParser
from typing import TYPE_CHECKING, Any
from urllib.parse import urljoin, urlsplit

from localctx.app.tools.reading import permitted
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
                return Outcome(_told(page), Provenance("external", url))
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


def plain_text(html: str) -> str:
    """What a page says, without its tags, scripts and styles; blocks are lines."""
    reader = _Reader()
    reader.feed(html)
    reader.close()
    lines = (" ".join(line.split()) for line in "".join(reader.said).split("\n"))
    return re.sub(r"\n{3,}", "\n\n", "\n".join(lines)).strip()


_UNSEEN = {"script", "style", "template", "noscript", "svg", "head", "iframe"}
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
    *("h1", "h2", "h3", "h4", "h5", "h6", "blockquote", "dt", "dd", "hr"),
}


class _Reader(HTMLParser):
    """Collects what is to be seen of a page."""

    def __init__(self) -> None:
        super().__init__()
        self.said, self._unseen = list[str](), list[str]()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:  # noqa: ARG002  of the base class
        if tag in _UNSEEN:
            self._unseen.append(tag)
        if tag == "body":
            self._unseen.clear()
        self.said += ["\n"] if tag in _BLOCKS else []

    def handle_endtag(self, tag: str) -> None:
        if tag in self._unseen:
            del self._unseen[self._unseen.index(tag) :]
        self.said += ["\n"] if tag in _BLOCKS else []

    def handle_data(self, data: str) -> None:
        if not self._unseen:
            self.said.append(data)
