"""One address as the readers of all runtimes see it: each question is asked once, whoever wants the answer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias, TypeVar

import anyio
import msgspec

from localctx.core.window import Advice, Reading, ServerReport, Source, Status
from localctx.errors import LocalctxError, NotARuntime, Unreachable
from localctx.runtimes.http import Answer, address, ask

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence

    import httpx

    from localctx.core.outgoing import WireMessage

__all__ = ["Pins", "Reader", "Server", "clamped", "decoded", "half_cuts", "pictured", "probed", "served", "trouble"]

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class Pins:
    """What the user asks of a window, with the place it was asked in: a pin and a ceiling."""

    pin: Reading | None = None
    ceiling: int | None = None


class Server:
    """Exchanges with one address. What a question was answered is kept for every reader."""

    def __init__(self, http: httpx.AsyncClient) -> None:
        self.http, self.url = http, address(http)
        self._answers: dict[str, Answer | LocalctxError] = {}

    async def get(self, path: str) -> Answer:
        """The answer to a GET. Raises what `http.ask` raises, again for each reader."""
        if path not in self._answers:
            try:
                self._answers[path] = await ask(self.http, "GET", path)
            except LocalctxError as error:
                self._answers[path] = error
        answer = self._answers[path]
        if isinstance(answer, LocalctxError):
            raise answer
        return answer

    async def post(self, path: str, body: Mapping[str, object], *, seconds: float = 5.0) -> Answer:
        """The answer to a POST; asked each time."""
        return await ask(self.http, "POST", path, sent=body, seconds=seconds)

    async def prefetch(self, *paths: str) -> None:
        """Asks several questions at once, so that the readers need not wait for one after the other."""

        async def one(path: str) -> None:
            try:
                await self.get(path)
            except LocalctxError:
                return  # kept, and raised again for whoever wants this answer

        async with anyio.create_task_group() as group:
            for path in paths:
                group.start_soon(one, path)

    async def json(self, path: str, kind: type[_T]) -> _T | None:
        """The good answer to a GET as a `kind`; None where there is none, or where it is of another form."""
        try:
            answer = await self.get(path)
            return decoded(answer, kind) if answer.status == 200 else None  # noqa: PLR2004
        except (LocalctxError, msgspec.ValidationError):
            return None


def decoded(answer: Answer, kind: type[_T]) -> _T:
    """A body as a `kind`. Raises `msgspec.ValidationError`, and `NotARuntime` for what is no JSON object."""
    if not isinstance(answer.body, dict):
        raise NotARuntime("the answer is no JSON object")
    return msgspec.convert(answer.body, kind, strict=False)


Reader: TypeAlias = "Callable[[Server, Pins], Awaitable[ServerReport | None]]"
"""Reads one kind of server: its report, or None where another program answers."""


async def probed(
    server: Server, readers: Sequence[Reader], pins: Pins, *, hello: str = "/v1/models", kind: str | None = None
) -> ServerReport:
    """What the first reader that knows the server makes of it; never raises for what a server does.

    `hello` is asked first, to see whether anybody is there; `kind` names the runtime that is expected.
    """
    try:
        answer = await server.get(hello)
    except Unreachable as error:
        return ServerReport(None, server.url, Status.DOWN, error=str(error))
    except LocalctxError as error:
        return ServerReport(kind, server.url, Status.ERROR, error=str(error))
    for reader in readers:
        try:
            report = await reader(server, pins)
        except LocalctxError as error:
            return ServerReport(kind, server.url, Status.ERROR, error=str(error))
        if report is not None:
            return report
    if kind is not None and (closed := trouble(kind, server.url, answer)):
        return closed
    what = answer.headers.get("content-type", "no content type").partition(";")[0][:60]
    text = f"{server.url} answers, but is no {kind or 'model server'} ({hello}: HTTP {answer.status}, {what})"
    return ServerReport(None, server.url, Status.ERROR, error=f"{text}; check the port")


_TROUBLE = {
    Status.LOADING: "{url} is still loading its model (HTTP {http}); wait and ask again",
    Status.UNAUTHORIZED: "{url} wants another key (HTTP {http}); set LOCALCTX_API_KEY or pass --api-key-env NAME",
}


def trouble(runtime: str | None, url: str, answer: Answer) -> ServerReport | None:
    """The report of a server that wants another key, or that is still loading; None for all others."""
    status = {401: Status.UNAUTHORIZED, 403: Status.UNAUTHORIZED, 503: Status.LOADING}.get(answer.status)
    if status is None:
        return None
    return ServerReport(runtime, url, status, error=_TROUBLE[status].format(url=url, http=answer.status))


def clamped(pin: Reading | None, limit: int | None, what: str) -> tuple[Advice, ...]:
    """The warning that a pin asks for more than `limit` tokens, which is what is trained, or served."""
    if pin is None or limit is None or limit <= 0 or pin.tokens <= limit:
        return ()
    text = f"{pin.tokens:,} tokens were asked for ({pin.where}), {limit:,} {what}"
    return (Advice("clamped", text, f"ask for at most {limit:,}"),)


def served(readings: tuple[Reading, ...]) -> int | None:
    """The tokens that are served now, if anybody says so."""
    return next((reading.tokens for reading in readings if reading.source is Source.SERVED), None)


def pictured(messages: Sequence[WireMessage]) -> bool:
    """Whether there is more in messages than text: what an image takes is known to no tokenizer."""
    contents = (message.get("content") for message in messages)
    parts = (part for content in contents if isinstance(content, list) for part in content)
    return any(isinstance(part, dict) and part.get("type", "text") != "text" for part in parts)


_KEPT = (4, 5)
"""The tokens at the head of a prompt that stay when Ollama cuts it: `num_keep` is 4, and the first token of all is one more."""


def half_cuts(window: int) -> tuple[int, ...]:
    """The window, and what is left of a prompt that is cut to half of it behind its head."""
    return tuple(sorted({window, *(window - max(window - kept, 0) // 2 for kept in _KEPT)}))
