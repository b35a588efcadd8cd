from __future__ import annotations

import pytest

from localctx.core.accounting import Count
from localctx.tokenizers.remote import RemoteTokenizer

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


async def test_each_text_is_asked_once() -> None:
    asked = list[str]()

    async def size(text: str) -> Count | None:
        asked.append(text)
        return Count(len(text), 0, "server")

    remote = RemoteTokenizer("a server", size)
    assert await remote.prepare(["one", "three", "one"])
    assert await remote.prepare(["three", "", "five"])
    assert asked == ["one", "three", "five"]
    assert [remote.size(text) for text in ("one", "three", "five", "")] == [3, 5, 4, 0]


async def test_a_text_that_the_server_cannot_count_is_said() -> None:
    async def size(text: str) -> Count | None:
        return None if text == "two" else Count(1, 0, "server")

    remote = RemoteTokenizer("a server", size)
    assert not await remote.prepare(["one", "two"])
    assert await remote.prepare(["one"])
