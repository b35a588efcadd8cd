"""Tools are offered as there is room for them, found, called and answered."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import pytest

from localctx.app.tools.toolbox import Toolbox
from localctx.core.arguments import described
from localctx.core.messages import ToolCall
from localctx.core.outgoing import WireMessage
from localctx.core.results import SEARCH_TOOLS
from localctx.ports import Outcome

pytestmark = pytest.mark.anyio


@dataclass(frozen=True)
class Says:
    """A tool whose schema takes as many tokens as it is told to."""

    name: str
    about: str = "Says a thing."
    text: str = "said"

    @property
    def schema(self) -> WireMessage:
        return described(self.name, self.about, {"count": {"type": "integer"}})

    async def run(self, arguments: Mapping[str, object]) -> Outcome:
        return Outcome(f"{self.text} {arguments.get('count', '')}".strip())


def size(text: str) -> int:
    """A hundred tokens a schema, whatever is in it."""
    return 100 if text else 0


TOOLS = [
    Says("one"),
    Says("two", "Copies things."),
    Says("three", "Deletes things."),
    Says("four", "Copies and deletes."),
]


def states(box: Toolbox) -> dict[str, str]:
    return {shelf.name: shelf.state for shelf in box.shelves}


def offered(box: Toolbox) -> list[str]:
    return [shelf.name for shelf in box.shelves if shelf.state == "offered"]


async def call(box: Toolbox, name: str, arguments: str = "{}") -> str:
    return (await box.run(ToolCall("1", name, arguments))).text


def test_where_there_is_room_all_are_offered_and_nothing_is_searched_for() -> None:
    box = Toolbox.fitting(TOOLS, 4_000, size)
    assert offered(box) == ["one", "two", "three", "four"]
    assert {shelf.tokens for shelf in box.shelves} == {100}


async def test_what_has_no_room_is_offered_once_it_was_searched_for_and_stays() -> None:
    box = Toolbox.fitting(TOOLS, 2_000, size)
    assert states(box) == {
        "one": "offered",
        "two": "offered",
        SEARCH_TOOLS: "offered",
        "three": "deferred",
        "four": "deferred",
    }
    before = box.schemas
    assert "three, four" in str(before[-1])
    assert (
        await call(box, SEARCH_TOOLS, '{"query": "delete a file"}')
        == "three: Deletes things.\nfour: Copies and deletes."
    )
    assert offered(box) == ["one", "two", SEARCH_TOOLS, "three", "four"]
    assert box.schemas[: len(before)] == before, "what was offered before stays as it was"
    assert (
        await call(box, SEARCH_TOOLS, '{"query": "delete"}') == "no tool is described by these words; there are no more"
    )


async def test_a_search_offers_the_best_and_says_where_there_is_no_room() -> None:
    box = Toolbox.fitting(TOOLS, 1_400, size)  # 210 from the start, 350 in the end
    assert states(box) == {
        "one": "offered",
        SEARCH_TOOLS: "offered",
        "two": "deferred",
        "three": "deferred",
        "four": "deferred",
    }
    assert await call(box, SEARCH_TOOLS, '{"query": "delete and copy"}') == "four: Copies and deletes."
    assert await call(box, SEARCH_TOOLS, '{"query": "copies"}') == "two: Copies things. (no room for it)"
    assert await call(box, SEARCH_TOOLS, '{"query": "sing"}') == (
        "no tool is described by these words; there are two: Copies things.; three: Deletes things."
    )
    assert offered(box) == ["one", SEARCH_TOOLS, "four"]


async def test_a_deferred_tool_that_is_called_is_offered_and_run() -> None:
    box = Toolbox.fitting(TOOLS, 2_000, size)
    assert await call(box, "four", '{"count": "2"}') == "said 2"
    assert offered(box) == ["one", "two", SEARCH_TOOLS, "four"]


async def test_a_tool_that_was_left_out_is_run_all_the_same() -> None:
    box = Toolbox.fitting(TOOLS, 300, size)
    assert states(box) == dict.fromkeys(["one", "two", "three", "four"], "left out")
    assert box.schemas == []
    assert await call(box, "four") == "said"
    assert box.schemas == []


def test_who_insists_gets_something_however_small_the_window() -> None:
    assert states(Toolbox.fitting(TOOLS, 300, size, insisted=True)) == {
        "one": "offered",
        SEARCH_TOOLS: "offered",
        "two": "deferred",
        "three": "deferred",
        "four": "deferred",
    }


async def test_secrets_are_masked_in_whatever_a_tool_says() -> None:
    box = Toolbox([Says("one", text="the key is my-very-own-value")], hidden=["my-very-own-value"])
    assert await call(box, "one") == "the key is [masked secret]"
