"""What the use cases need from outside, as protocols, and the values that cross the border."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, TypeAlias

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Iterable, Mapping, Sequence

    from localctx.core.accounting import Count, Makeup, Usage
    from localctx.core.approval import Verdict, Wish
    from localctx.core.calibration import Calibration
    from localctx.core.journal import Entry
    from localctx.core.messages import ToolCall
    from localctx.core.notes import Outline
    from localctx.core.outgoing import WireMessage
    from localctx.core.recall import Document, Found
    from localctx.core.results import Provenance
    from localctx.core.window import ServerReport

__all__ = [
    "Approval",
    "Counter",
    "Delta",
    "Drafted",
    "Finished",
    "Index",
    "Journal",
    "Outcome",
    "Page",
    "Piece",
    "Prefilled",
    "Prober",
    "Request",
    "Runtime",
    "ServerCounter",
    "Tokenizer",
    "Tool",
    "Web",
]


@dataclass(frozen=True, slots=True)
class Request:
    """One chat request. `max_tokens` bounds the reply; `tools` are schemas as the OpenAI dialect has them.

    `outline` is the form that the reply should have, where the server can impose it. `thinks` is whether the model is to
    think before it answers, where the server lets one say so; None leaves it to the runtime's own setting. `silence` is how many seconds
    the server may say nothing; None is the adapter's own.
    """

    messages: Sequence[WireMessage]
    max_tokens: int
    tools: Sequence[WireMessage] = ()
    temperature: float | None = None
    frequency_penalty: float | None = None
    outline: Outline | None = None
    thinks: bool | None = None
    silence: float | None = None


@dataclass(frozen=True, slots=True)
class Delta:
    """A piece of a reply: text, or reasoning."""

    text: str = ""
    thinking: str = ""


@dataclass(frozen=True, slots=True)
class Prefilled:
    """How far the server is with reading a prompt: tokens `done` of `total`, `cached` of which it had already."""

    done: int
    total: int
    cached: int


@dataclass(frozen=True, slots=True)
class Drafted:
    """How far the model is with writing a call: its tool, as far as it is named, and the characters of its arguments."""

    name: str
    characters: int


@dataclass(frozen=True, slots=True)
class Finished:
    """The end of a complete reply: the server's finish reason, what it reported, and the calls that the model made.

    `calls` is empty where a server's calls could not be read; `called_tools` tells of those as well.
    """

    reason: str
    usage: Usage
    called_tools: bool = False
    calls: tuple[ToolCall, ...] = ()


Piece: TypeAlias = Delta | Prefilled | Drafted | Finished


class Counter(Protocol):
    """Counts requests in this process, by classes of content whose rates it can be taught."""

    @property
    def how(self) -> str:
        """What it counts with, for people: `estimate`, `GGUF vocabulary`."""
        ...

    @property
    def prior(self) -> Calibration:
        """What it believes of its classes before any server has reported."""
        ...

    def size(self, text: str) -> int:
        """About how many tokens a text is, before anything was learned; memoised, so that only new text costs anything."""
        ...

    def text(self, text: str) -> Makeup:
        """What a text on its own is made of."""
        ...

    def message(self, message: Mapping[str, object]) -> Makeup:
        """What a wire message is made of: all of it that is sent, its place in the template included."""
        ...

    def frame(self, tools: Sequence[Mapping[str, object]] = ()) -> Makeup:
        """What a request is made of beside its messages: the template's own words, and the schemas of tools."""
        ...


class Tokenizer(Protocol):
    """The vocabulary of a model, in this process."""

    @property
    def how(self) -> str:
        """What it counts with, for people: `GGUF vocabulary`, `tiktoken o200k_base`."""
        ...

    def size(self, text: str) -> int:
        """The tokens of a text on its own; what looks like a special token in it is text."""
        ...

    def rendered(self, prompt: str) -> int:
        """The tokens of a prompt that a chat template rendered: special tokens are single tokens, the first one included."""
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


class ServerCounter(Protocol):
    """What counts whole requests."""

    async def count(self, messages: Sequence[WireMessage], tools: Sequence[WireMessage] = ()) -> Count | None:
        """The tokens of a request by this server's own count; None where it cannot count."""
        ...


class Runtime(Prober, ServerCounter, Protocol):
    """A server program with one model, as the engine sees it."""

    @property
    def kind(self) -> str:
        """The runtime's name, as `--runtime` takes it."""
        ...

    async def size(self, text: str) -> Count | None:
        """The tokens of a text by this server's own count, without any template; None where it cannot count."""
        ...

    def cut_points(self, window: int) -> tuple[int, ...]:
        """The prompt sizes that this server reports when it has cut a prompt in silence at a window; none where it never does."""
        ...

    def chat(self, request: Request) -> AsyncGenerator[Piece, None]:
        """Streams a reply; the last piece is `Finished`.

        Raises `PromptRefused`, `ServerLoading`, `Unauthorized`, `Unreachable`, `ModelMissing`, `RequestRefused` or `ServerFailed`;
        a stream that ends without a finish reason is a failure.
        """
        ...

    async def close(self) -> None:
        """Gives back connections and, where this runtime was started here, stops it."""
        ...


class Journal(Protocol):
    """Where what happened is kept. An entry is on disk before it counts, or `trouble` says why it is not."""

    @property
    def name(self) -> str | None:
        """The session's name; None where nobody can go on with it."""
        ...

    @property
    def trouble(self) -> str:
        """Why what happened lately is not on disk; empty where it is, or was never to be."""
        ...

    @property
    def last_seq(self) -> int:
        """The number of the last entry; 0 before the first."""
        ...

    def entries(self) -> Iterable[Entry]:
        """All entries so far, in order; to be gone through as often as wanted. Raises `JournalDamaged`."""
        ...

    def append(self, kind: str, body: Mapping[str, object], *, sync: bool = False) -> Entry:
        """Writes one entry; `sync` waits until it would survive a power failure."""
        ...

    def whole(self, entry: Entry) -> str | None:
        """What a tool returned, where the message of its result holds less; None as well where that is gone."""
        ...

    def shrink(self, pointed_at: Iterable[int]) -> int:
        """Removes the oldest bodies of results where they take more than they may, none of the lines in `pointed_at`.

        How many went.
        """
        ...


class Index(Protocol):
    """What finds lines of a journal by their words; whatever is wrong with its file, it works."""

    @property
    def through(self) -> int:
        """The last line of the journal that is in it; 0 where nothing is."""
        ...

    def add(self, documents: Iterable[Document], through: int) -> None:
        """Takes in what came up to line `through`."""
        ...

    def search(self, query: str, most: int) -> list[Found]:
        """The best matches first; any text is a query."""
        ...


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a call came to: the whole text, and where it comes from if nobody here wrote it. `error: ` begins a failure.

    `malformed`: nothing was done, as the arguments could not be read.
    """

    text: str
    provenance: Provenance | None = None
    malformed: bool = False


class Tool(Protocol):
    """Something that a model may call."""

    @property
    def name(self) -> str:
        """What the model calls it."""
        ...

    @property
    def schema(self) -> WireMessage:
        """What a request says of it, as the OpenAI dialect has it."""
        ...

    async def run(self, arguments: Mapping[str, object]) -> Outcome:
        """Does it. Raises `ValueError`, worded for the model, where the arguments are of no use.

        Whatever else it raises is told to the model as a failure; but a `LocalctxError` ends the turn.
        """
        ...


class Approval(Protocol):
    """Who is asked before something is done that a person may want to see first."""

    async def of(self, wish: Wish) -> Verdict:
        """Whether a wish is granted; waits for a person where one is to be asked."""
        ...


@dataclass(frozen=True, slots=True)
class Page:
    """What an address answered: its status, the type and the text of its body, and where it sends us on to, if it does."""

    status: int
    kind: str
    text: str
    onward: str = ""


class Web(Protocol):
    """The pages that anybody can read."""

    async def get(self, url: str) -> Page:
        """One answer, bounded in size and time. Raises `ValueError`, worded for a model, where there is none, or none for us."""
        ...
