"""Pages are fetched hop by hop, from hosts that were approved, and read as text."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest

from localctx.app.tools.toolbox import Toolbox
from localctx.app.tools.web import FetchUrl, plain_text
from localctx.core.messages import ToolCall
from localctx.core.results import Provenance
from localctx.ports import Outcome, Page
from tests.app.tools.conftest import Person

pytestmark = pytest.mark.anyio


@dataclass
class Pages:
    """A web of these pages."""

    pages: dict[str, Page]
    got: list[str] = field(default_factory=list)

    async def get(self, url: str) -> Page:
        self.got.append(url)
        return self.pages[url]


async def fetched(web: Pages, url: str, person: Person | None = None) -> Outcome:
    tool = FetchUrl(web, person or Person())
    return await Toolbox([tool]).run(ToolCall("1", tool.name, f'{{"url": "{url}"}}'))


async def test_a_page_is_its_text_and_marked_as_from_outside() -> None:
    web = Pages({"https://a.example/": Page(200, "text/html", "<p>Hello <b>you</b></p><script>x()</script>")})
    outcome = await fetched(web, "https://a.example/")
    assert outcome == Outcome("Hello you", Provenance("external", "https://a.example/"))


async def test_each_host_on_the_way_is_asked_for() -> None:
    web = Pages(
        {
            "http://a.example/x": Page(302, "", "", "https://b.example/y"),
            "https://b.example/y": Page(301, "", "", "z?q=1"),
            "https://b.example/z?q=1": Page(404, "text/plain", "not here"),
        }
    )
    person = Person()
    assert (await fetched(web, "http://a.example/x", person)).text == "[status 404]\nnot here"
    assert [wish.subject for wish in person.wishes] == ["a.example", "b.example", "b.example"]
    assert [wish.details for wish in person.wishes] == web.got


async def test_a_no_fetches_nothing() -> None:
    web = Pages({})
    assert (await fetched(web, "http://a.example/", Person(no="the user said no"))).text == "error: the user said no"
    assert web.got == []


@pytest.mark.parametrize(
    ("onward", "said"),
    [
        ("http://b.example/", "which is not encrypted"),
        ("ftp://b.example/", "cannot be fetched"),
        ("file:///etc/passwd", "cannot be fetched"),
        ("https://user:word@b.example/", "cannot be fetched"),
        ("https://b.example:99999/", "is no address"),
        ("https://[b", "which is no address"),
        ("/", "more than 5 times"),
    ],
)
async def test_a_way_that_leads_astray_is_left(onward: str, said: str) -> None:
    web = Pages({"https://a.example/": Page(302, "", "", onward)})
    assert said in (await fetched(web, "https://a.example/")).text


@pytest.mark.parametrize("url", ["example.org", "javascript:x", "http://", "http://a b/", "http:///x", "x" * 3000])
async def test_what_is_no_address_is_not_fetched(url: str) -> None:
    web = Pages({})
    assert (await fetched(web, url)).text.startswith("error: ")
    assert web.got == []


@pytest.mark.parametrize(
    ("html", "text"),
    [
        ("<title>T</title><h1>One</h1><ul><li>a<li>b</ul>", "T\n\nOne\n\na\nb"),
        ("<head><title>x</title><body class='a'>kept", "x\n\nkept"),
        ("if a < b and b<3: <br/>x", "if a < b and b<3:\nx"),
        ("<b", ""),
        ("a &amp; b &lt;c&gt;", "a & b <c>"),
        ("<style>p{}</style><svg><text>no</text></svg>yes", "yes"),
        ("<script>never closed", ""),
        ("plain", "plain"),
        ("<!-- hidden --><p>a<!doctype x>b", "ab"),
    ],
)
def test_a_page_without_its_tags(html: str, text: str) -> None:
    assert plain_text(html) == text


@pytest.mark.parametrize(
    "piece",
    ["<!", "<a ", "<![CDATA[", "<!--", "</", "<a x='", "&", "<script>", "<svg>", "<p>", "<?", "<a b=c ", "\n<", "&#"],
)
def test_a_page_that_is_made_to_take_long_does_not(piece: str) -> None:
    plain_text(piece * (2_000_000 // len(piece)))
