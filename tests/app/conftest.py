from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, TypeVar

import pytest

from localctx.app.chat import Chat, Wishes
from localctx.core.events import Event
from localctx.core.journal import project
from localctx.core.ladder import POLICIES, Policy
from localctx.core.outgoing import defects
from localctx.core.window import Reading, Source
from localctx.ports import Journal
from localctx.runtimes.llama_server import LlamaServer
from localctx.runtimes.server import Pins
from localctx.stores.journal import MemoryJournal
from localctx.tokenizers.estimate import ClassEstimate
from tests.fakes.llama_server import Fake, running

NOTES = """## Goal
- The user wants the manual read.
## Covered So Far
- The first pieces of the manual were read.
## Next Steps
- Read the next piece.
"""

E = TypeVar("E")


def answering(reply: str, notes: str = NOTES) -> Callable[[dict[str, Any]], str]:
    """A model that writes notes where they are asked for, and else always says the same."""
    return lambda body: notes if "grammar" in body else reply


@dataclass
class Talk:
    """A chat with a fake server, and all that happened."""

    chat: Chat
    fake: Fake
    journal: Journal
    events: list[Event] = field(default_factory=list)

    def of(self, kind: type[E]) -> list[E]:
        return [event for event in self.events if isinstance(event, kind)]

    @property
    def turns(self) -> list[dict[str, Any]]:
        """The requests that were no summary requests."""
        return [body for body in self.fake.chats if "grammar" not in body]

    def check(self) -> None:
        """What holds whatever happened: every list valid, every request within the window, the journal true."""
        for body in self.fake.chats:
            assert defects(body["messages"]) == []
            assert self.fake.prompt_tokens(body) + body["max_tokens"] <= self.fake.n_ctx
        assert project(self.journal.entries()) == self.chat.session.history


Start = Callable[..., AbstractAsyncContextManager[Talk]]


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
def talk() -> Start:
    @asynccontextmanager
    async def start(
        fake: Fake,
        *,
        system: str = "",
        wishes: Wishes | None = None,
        policy: Policy = POLICIES["ladder"],
        pin: int | None = None,
        journal: Journal | None = None,
    ) -> AsyncIterator[Talk]:
        with running(fake) as server:
            pins = Pins(Reading(Source.PINNED, pin, "--num-ctx") if pin else None)
            runtime = LlamaServer(server.url, key=fake.api_key, pins=pins)
            (model,) = (await runtime.probe()).models
            kept = journal or MemoryJournal()
            events: list[Event] = []
            chat = Chat(
                runtime,
                model,
                journal=kept,
                counter=ClassEstimate(),
                policy=policy,
                emit=events.append,
                system=system,
                wishes=wishes or Wishes(),
            )
            yield Talk(chat, fake, kept, events)
            await runtime.close()

    return start
