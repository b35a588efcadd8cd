"""What the use cases need from outside, as protocols, and the values that cross the border."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, TypeAlias

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Iterable, Mapping, Sequence

    from localctx.core.accounting import Count, Usage
    from localctx.core.checkpoint import Outline
    from localctx.core.journal import Entry
    from localctx.core.outgoing import WireMessage
    from localctx.core.window import ServerReport

__all__ = ["Delta", "Estimator", "Finished", "Journal", "Piece", "Prober", "Request", "Runtime"]


@dataclass(frozen=True, slots=True)
class Request:
    """One chat request. `max_tokens` bounds the reply; `outline` is the form that it should have, where the server can impose it."""

    messages: Sequence[WireMessage]
    max_tokens: int
    temperature: float | None = None
    frequency_penalty: float | None = None
    outline: Outline | None = None


@dataclass(frozen=True, slots=True)
class Delta:
    """A piece of a reply: text, or reasoning."""

    text: str = ""
    thinking: str = ""


@dataclass(frozen=True, slots=True)
class Finished:
    """The end of a complete reply: the server's finish reason, and what it reported."""

    reason: str
    usage: Usage
    called_tools: bool = False


Piece: TypeAlias = Delta | Finished


class Estimator(Protocol):
    """Counts without a tokenizer."""

    def size(self, text: str) -> int:
        """About how many tokens a text is."""
        ...

    def request(self, messages: Iterable[Mapping[str, object]]) -> Count:
        """About how many tokens a chat request is."""
        ...


class Prober(Protocol):
    """Anything that can say which windows an address serves."""

    @property
    def url(self) -> str:
        """The address, for people."""
        ...

    async def probe(self) -> ServerReport:
        """What the address answers now; never raises for what a server does, and ends within its time-outs."""
        ...


class Runtime(Prober, Protocol):
    """A server program with one model, as the engine sees it."""

    @property
    def kind(self) -> str:
        """The runtime's name, as `--runtime` takes it."""
        ...

    async def count(self, messages: Sequence[WireMessage]) -> Count | None:
        """The tokens of a request by this server's own count; None where it cannot count."""
        ...

    def chat(self, request: Request) -> AsyncGenerator[Piece, None]:
        """Streams a reply; the last piece is `Finished`.

        Raises `PromptRefused`, `ServerLoading`, `Unauthorized`, `Unreachable`, `ModelMissing` or `ServerFailed`; a
        stream that ends without a finish reason is a failure.
        """
        ...

    async def close(self) -> None:
        """Gives back connections and, where this runtime was started here, stops it."""
        ...


class Journal(Protocol):
    """Where what happened is kept. An entry is on disk before it counts."""

    def entries(self) -> Sequence[Entry]:
        """All entries so far, in order."""
        ...

    def append(self, kind: str, body: Mapping[str, object], *, sync: bool = False) -> Entry:
        """Writes one entry; `sync` waits until it would survive a power failure. Raises `StoreUnusable`."""
        ...
