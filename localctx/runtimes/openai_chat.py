"""The OpenAI chat dialect: streamed replies, and what its error bodies become."""

from __future__ import annotations

import re
from contextlib import aclosing
from typing import TYPE_CHECKING, NoReturn

import msgspec
from httpx_sse import EventSource

from localctx.core.accounting import Count, Usage
from localctx.core.overflow import Kind, Verdict, classify
from localctx.errors import (
    ModelMissing,
    NotARuntime,
    PromptRefused,
    RequestRefused,
    ServerFailed,
    ServerLoading,
    ToolsRefused,
    Unauthorized,
)
from localctx.ports import Delta, Drafted, Finished, Piece, Prefilled
from localctx.runtimes import openai, sglang, vllm
from localctx.runtimes.calls import Calls
from localctx.runtimes.grammar import grammar
from localctx.runtimes.http import LARGE_BYTES, address, ask, body_of, client, sendable, silent_for, translated
from localctx.runtimes.reported import number, seconds, usage
from localctx.runtimes.server import Pins, Server, pictured, probed

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Iterator, Mapping, Sequence

    import httpx

    from localctx.core.notes import Outline
    from localctx.core.outgoing import WireMessage
    from localctx.core.window import ServerReport
    from localctx.ports import Request
    from localctx.runtimes.server import Reader

__all__ = ["MISSING", "OpenAIServer", "conversation", "refuse", "stream", "thinking"]


class _Delta(msgspec.Struct):
    content: str | None = None
    reasoning_content: str | None = None
    reasoning: object = None
    tool_calls: list[object] | None = None


class _Choice(msgspec.Struct):
    delta: _Delta = msgspec.field(default_factory=_Delta)
    finish_reason: str | None = None


class _Chunk(msgspec.Struct):
    choices: list[_Choice] = []
    usage: object = None
    timings: object = None
    prompt_progress: object = None
    error: object = None


async def stream(
    http: httpx.AsyncClient, path: str, body: Mapping[str, object], silence: float | None = None
) -> AsyncGenerator[Piece, None]:
    """The pieces of a streamed reply; the last is `Finished`. Raises what `Runtime.chat` promises.

    `silence` is how many seconds the server may say nothing.
    """
    request = {**body, "stream": True, "stream_options": {"include_usage": True}}
    end, tools = _End(address(http)), bool(body.get("tools"))
    with translated(http, silence):
        async with http.stream("POST", path, timeout=silent_for(silence), **sendable(request)) as response:
            if response.status_code != 200 or "text/event-stream" not in response.headers.get("content-type", ""):  # noqa: PLR2004
                body_said = body_of(await response.aread())
                refuse(http, classify(response.status_code, body_said), response.status_code, tools=tools)
            response.encoding = "utf-8"  # as an event stream always is, whatever its header says
            async with aclosing(EventSource(response).aiter_sse()) as events:
                async for event in events:
                    if event.data == "[DONE]":
                        break
                    for piece in end.take(_decode(http, event.data, tools=tools)):
                        yield piece
    yield end.finished()


class _End:
    """What the chunks of a stream say about its end."""

    def __init__(self, where: str) -> None:
        self._where = where
        self._reason: str | None = None
        self._usage = Usage()
        self._calls = Calls(where)

    def take(self, chunk: _Chunk) -> Iterator[Delta | Prefilled | Drafted]:
        """Notes what a chunk says, and passes on its text, or how far the server is with the prompt, or the model with a call."""
        self._usage = _usage(chunk) or self._usage
        if progress := _progress(chunk.prompt_progress):
            yield progress
        for choice in chunk.choices:
            self._reason = choice.finish_reason or self._reason
            self._calls.take(choice.delta.tool_calls)
            if choice.delta.tool_calls:
                yield self._calls.drafted
            if piece := _said(choice.delta):
                yield piece

    def finished(self) -> Finished:
        """The end of the stream. `[DONE]` proves nothing: only a finish reason does."""
        if self._reason is None:
            raise ServerFailed(
                f"{self._where} ended its reply without a finish reason: it died or was stopped; look at its log"
            )
        return Finished(self._reason, self._usage, self._calls.called, self._calls.made())


def _said(delta: _Delta) -> Delta | None:
    """The text of a chunk; reasoning has one of two names (Ollama's and newer servers' is `reasoning`)."""
    thinking = delta.reasoning_content or (delta.reasoning if isinstance(delta.reasoning, str) else "")
    return Delta(delta.content or "", thinking) if delta.content or thinking else None


def _progress(said: object) -> Prefilled | None:
    """How far a llama-server is that was asked to say it; None where that cannot be."""
    numbers = [number(_fields(said).get(name)) for name in ("processed", "total", "cache")]
    match numbers:
        case [int(done), int(total), int(cached)] if cached <= done <= total:
            return Prefilled(done, total, cached)
    return None


def _decode(http: httpx.AsyncClient, data: str, *, tools: bool) -> _Chunk:
    try:
        chunk = msgspec.json.decode(data, type=_Chunk, strict=False)
    except (msgspec.DecodeError, RecursionError) as error:
        raise ServerFailed(
            f"{address(http)} sent a piece that is no chat chunk ({error}): {data[:60]!r}; look at its log"
        ) from error
    if chunk.error is not None:
        status = _stated(chunk.error)
        refuse(http, classify(status, {"error": chunk.error}), status, tools=tools)
    return chunk


def _stated(error: object) -> int:
    """The status of an error inside a stream: vLLM refuses a grammar behind the headers, with the 400 in its `code`."""
    return 400 if number(_fields(error).get("code")) == 400 else 200  # noqa: PLR2004  HTTP: a bad request


def _usage(chunk: _Chunk) -> Usage | None:
    said = _fields(chunk.usage)
    if not said:
        return None
    timings, details = _fields(chunk.timings), _fields(said.get("prompt_tokens_details"))
    return usage(
        said.get("prompt_tokens"),
        said.get("completion_tokens"),
        details.get("cached_tokens"),
        prefill_seconds=seconds(timings.get("prompt_ms"), _MILLISECOND),
        decode_seconds=seconds(timings.get("predicted_ms"), _MILLISECOND),
    )


def _fields(value: object) -> dict[str, object]:
    return value if isinstance(value, dict) else {}


_MILLISECOND = 1e-3


_NEXT = {
    Kind.POOL_EXHAUSTED: "its slots share one pool and another request fills it; wait for that one, or restart it with -np 1",
    Kind.SERVER_MEMORY: "it is out of memory; unload another model, or serve a smaller window",
    Kind.BAD_HISTORY: "its chat template refuses the list of messages",
}


_NO_TOOLS = (
    (r"does not support tools", "serve a model whose template has tools"),
    (r"requires --enable-auto-tool-choice", "start vLLM with --enable-auto-tool-choice and --tool-call-parser NAME"),
    (r"tools param requires --jinja", "start llama-server with --jinja"),
    (r"Unsupported param: tools", "update llama-server"),
    (r"does not support parameters: \[[^]]*'tools'", "let LiteLLM pass tools to a server that takes them"),
)
"""How a request with tools is refused, and what helps: Ollama 0.33 (HTTP 400, recorded), vLLM 0.32 (400, recorded),
llama-server b11549 without Jinja (500, seen) and those of 2024 (500, its issue 10920), LiteLLM (500, its source)."""


def refuse(http: httpx.AsyncClient, verdict: Verdict, status: int, *, tools: bool = False) -> NoReturn:
    """Raises the error that a verdict calls for; `tools` says whether the request had any."""
    where, said = address(http), " ".join(verdict.message.split())[:300] or "no message"
    if tools and (step := next((step for words, step in _NO_TOOLS if re.search(words, verdict.message)), None)):
        raise ToolsRefused(f"{where} takes no tools (HTTP {status}: {said}); {step}")
    match verdict.kind:
        case Kind.OK:
            raise NotARuntime(f"{where} answers a chat with something else (HTTP {status}); it is no model server")
        case Kind.OUTPUT_CAP if verdict.limit is None:
            raise ServerFailed(f"{where} allows no reply that long ({said}); pass a smaller --max-tokens")
        case Kind.PROMPT_TOO_LONG | Kind.OUTPUT_CAP:
            size = None if verdict.prompt_is_lower_bound else verdict.prompt
            raise PromptRefused(f"{where} refuses the request as too long: {said}", verdict.limit, size)
        case Kind.RETRY:
            raise ServerLoading(
                f"{where} is not ready (HTTP {status}: {said}); wait until the model is loaded, then try again"
            )
        case Kind.UNAUTHORIZED:
            raise Unauthorized(
                f"{where} refuses the key (HTTP {status}: {said}); set LOCALCTX_API_KEY or pass --api-key-env NAME"
            )
        case Kind.MODEL_MISSING:
            raise ModelMissing(f"{where} does not know that (HTTP {status}: {said}); see localctx probe for its models")
        case kind:
            step = _NEXT.get(kind, "look at its log")
            error = RequestRefused if kind is Kind.BAD_REQUEST else ServerFailed
            raise error(f"{where} answers with an error (HTTP {status}: {said}); {step}")


MISSING = {200, 404, 405, 501}
"""The statuses of a path that a server has not got; 200 is that of a program which says the same to everything."""


def conversation(messages: Sequence[WireMessage], tools: Sequence[WireMessage]) -> dict[str, object]:
    """What is said and what may be called, as this dialect has it."""
    return {"messages": list(messages), **({"tools": list(tools)} if tools else {})}


_MARGIN = 8
"""Tokens that vLLM and SGLang are not asked to fill: their templates and counts differ by a few (measured)."""

_COUNTING = {"vllm", "sglang"}
_CHAT = "/v1/chat/completions"


def thinking(*, wanted: bool | None) -> dict[str, object]:
    """What llama-server, vLLM and SGLang pass to a template, so that the model thinks or does not; others do not read it."""
    return {} if wanted is None else {"chat_template_kwargs": {"enable_thinking": wanted}}


_CUTS = {"vllm": vllm.cut_points, "sglang": sglang.cut_points}
_IMPOSED = {"vllm": vllm.imposed, "sglang": sglang.imposed}


class OpenAIServer:
    """A server that speaks the OpenAI dialect, as the engine sees it: vLLM, SGLang, LM Studio and the like.

    It is read by `reader`; `kind` says whether it counts (vLLM and SGLang do, at `/tokenize`).
    """

    def __init__(
        self,
        url: str,
        reader: Reader,
        *,
        kind: str,
        key: str | None = None,
        pins: Pins | None = None,
        transport: httpx.AsyncBaseTransport | None = None,
    ) -> None:
        self._http = client(url, key, transport)
        self._reader, self._pins = reader, pins or Pins()
        self.kind, self.url, self.model = kind, address(self._http), ""
        self._counts = kind in _COUNTING
        self._imposes = _IMPOSED.get(kind)
        self.steers_thinking = kind in _COUNTING
        self.thinks: bool | None = None

    async def probe(self) -> ServerReport:
        """What the server says now."""
        return await probed(Server(self._http), (self._reader,), self._pins, kind=self.kind)

    async def count(self, messages: Sequence[WireMessage], tools: Sequence[WireMessage] = ()) -> Count | None:
        """The server's own count of the rendered chat; None where it has none, or where there are images."""
        return None if pictured(messages) else await self._tokenized(conversation(messages, tools) | self._thinking())

    async def size(self, text: str) -> Count | None:
        """The server's own count of a text; None where it has none."""
        return await self._tokenized({"prompt": text, "add_special_tokens": False})

    def cut_points(self, window: int) -> tuple[int, ...]:
        """Where this kind of server cuts in silence."""
        return _CUTS.get(self.kind, openai.cut_points)(window)

    async def chat(self, request: Request) -> AsyncGenerator[Piece, None]:
        """Streams a reply. A server that refuses the form of an outline is asked again without, and for no form from then on."""
        body, form = self._body(request), self._form(request.outline)
        reply = stream(self._http, _CHAT, body | form, request.silence)
        try:
            first = await anext(reply)
        except RequestRefused:
            if not form:
                raise
            reply = stream(self._http, _CHAT, body, request.silence)
            first = await anext(reply)
            self._imposes = None
        async with aclosing(reply) as pieces:
            yield first
            async for piece in pieces:
                yield piece

    def _body(self, request: Request) -> dict[str, object]:
        wishes = {
            "max_tokens": max(request.max_tokens - (_MARGIN if self.kind in _COUNTING else 0), 1),
            "temperature": request.temperature,
            "frequency_penalty": request.frequency_penalty,
        }
        asked = {name: value for name, value in wishes.items() if value is not None}
        said = {"model": self.model, **conversation(request.messages, request.tools)}
        return said | asked | self._thinking(wanted=request.thinks)

    def _form(self, outline: Outline | None) -> dict[str, object]:
        """What imposes an outline, where this kind of server takes that; the prompt stays as it is, tools and all."""
        return self._imposes(grammar(outline)) if outline is not None and self._imposes is not None else {}

    def _thinking(self, *, wanted: bool | None = None) -> dict[str, object]:
        return thinking(wanted=self.thinks if wanted is None else wanted) if self.steers_thinking else {}

    async def _tokenized(self, asked: Mapping[str, object]) -> Count | None:
        """What `/tokenize` counts; None, and asked no more, where there is no such path.

        The `max_model_len` beside it is left alone: SGLang's is that of the tokenizer, not of the server.
        """
        if not self._counts:
            return None
        sent = {"model": self.model, **asked}
        answer = await ask(self._http, "POST", "/tokenize", sent=sent, seconds=60, most=LARGE_BYTES)
        if answer.status == 200 and (tokens := number(_fields(answer.body).get("count"))) is not None:  # noqa: PLR2004
            return Count(tokens, 0, f"{self.kind} /tokenize")
        self._counts = answer.status not in MISSING
        return None

    async def close(self) -> None:
        """Closes the connections."""
        await self._http.aclose()
