"""Talking to Ollama through its native API: one `num_ctx` on every call, and nothing cut in silence."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import msgspec

from localctx.core.accounting import Usage
from localctx.core.overflow import classify
from localctx.core.window import Confidence, ServerReport
from localctx.errors import ModelMissing, ServerFailed
from localctx.ports import Delta, Finished, Piece
from localctx.runtimes import ollama
from localctx.runtimes.http import address, body_of, client, sendable, translated
from localctx.runtimes.openai_chat import refuse
from localctx.runtimes.server import Pins, Server, probed

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Sequence

    import httpx

    from localctx.core.accounting import Count
    from localctx.core.outgoing import WireMessage
    from localctx.core.window import ModelReport
    from localctx.ports import Request

__all__ = ["OllamaServer"]

_GRAIN = 256


class _Message(msgspec.Struct):
    content: str | None = None
    thinking: str | None = None
    tool_calls: list[object] | None = None


class _Line(msgspec.Struct):
    message: _Message = msgspec.field(default_factory=_Message)
    done: bool = False
    done_reason: str | None = None
    prompt_eval_count: int | None = None
    eval_count: int | None = None
    prompt_eval_duration: int | None = None
    eval_duration: int | None = None
    error: object = None


class OllamaServer:
    """One Ollama and one model on it.

    A call with another `num_ctx`, or without one, would load the model again: the first number that is found is sent on
    every call of the session.
    """

    kind = "ollama"

    def __init__(
        self,
        url: str,
        *,
        key: str | None = None,
        pins: Pins | None = None,
        transport: httpx.AsyncBaseTransport | None = None,
    ) -> None:
        self._http = client(url, key, transport)
        self._pins = pins or Pins()
        self._num_ctx: int | None = None
        self.url, self.model = address(self._http), ""

    async def probe(self) -> ServerReport:
        """What the server says now; loads nothing."""
        return await probed(Server(self._http), (ollama.read,), self._pins, hello="/api/version", kind=self.kind)

    async def settle_window(self) -> ModelReport:
        """The model with a window that is served: loaded once without a pin where nobody says what it would get."""
        report = await self._report()
        if report.window.confidence is Confidence.UNKNOWN:
            await ollama.load(Server(self._http), self.model, self._pins)
            report = await self._report()
        self._num_ctx = _sent(report)
        return report

    async def count(self, messages: Sequence[WireMessage]) -> Count | None:  # noqa: ARG002  the port's signature
        """None: Ollama has no such endpoint."""
        return None

    async def chat(self, request: Request) -> AsyncGenerator[Piece, None]:
        """Streams a reply; a prompt that is too long is refused, never cut."""
        if self._num_ctx is None:
            await self.settle_window()
        options = {
            "num_ctx": self._num_ctx,
            "num_predict": request.max_tokens,
            "temperature": request.temperature,
            "frequency_penalty": request.frequency_penalty,
        }
        body = {
            "model": self.model,
            "messages": [_native(message) for message in request.messages],
            "stream": True,
            "truncate": False,
            "shift": False,
            "options": {name: value for name, value in options.items() if value is not None},
        }
        end: Finished | None = None
        called = False
        with translated(self._http):
            async with self._http.stream("POST", "/api/chat", **sendable(body)) as response:
                if response.status_code != 200:  # noqa: PLR2004
                    said = body_of(await response.aread())
                    refuse(self._http, classify(response.status_code, said), response.status_code)
                async for text in response.aiter_lines():
                    line = self._decode(text)
                    called = called or bool(line.message.tool_calls)
                    if line.message.content or line.message.thinking:
                        yield Delta(line.message.content or "", line.message.thinking or "")
                    if line.done:
                        end = Finished(line.done_reason or "stop", _usage(line), called)
        if end is None:
            raise ServerFailed(
                f"{self.url} ended its reply without saying done: it died or was stopped; look at its log"
            )
        yield end

    async def close(self) -> None:
        """Closes the connections; the model stays as long as the server keeps it."""
        await self._http.aclose()

    async def _report(self) -> ModelReport:
        report = await self.probe()
        found = [model for model in report.models if _tagged(model.id) == _tagged(self.model)]
        if not found:
            raise ModelMissing(report.error or f"{self.url} has no {self.model!r} any more; see: localctx probe")
        return found[0]

    def _decode(self, text: str) -> _Line:
        try:
            line = msgspec.json.decode(text.encode("utf-8", "replace"), type=_Line, strict=False)
        except (msgspec.DecodeError, RecursionError) as error:
            raise ServerFailed(f"{self.url} sent a line that is no chat answer ({error}): {text[:60]!r}") from error
        if line.error is not None:
            refuse(self._http, classify(200, {"error": line.error}), 200)
        return line


def _sent(report: ModelReport) -> int | None:
    """The `num_ctx` to send: what is resident goes back unchanged, what we choose is a multiple of 256."""
    tokens = report.window.tokens
    if tokens is None or report.window.confidence is Confidence.SERVED:
        readings = [reading.tokens for reading in report.window.readings if reading.source == "served"]
        return readings[0] if readings else None
    return max(tokens // _GRAIN * _GRAIN, _GRAIN)


def _tagged(name: str) -> str:
    return name if ":" in name else f"{name}:latest"


def _usage(line: _Line) -> Usage:
    return Usage(
        line.prompt_eval_count,
        line.eval_count,
        None,
        None if line.prompt_eval_duration is None else line.prompt_eval_duration / 1e9,
        None if line.eval_duration is None else line.eval_duration / 1e9,
    )


def _native(message: WireMessage) -> WireMessage:
    """A message as the native API takes it: text as one string, the arguments of calls as objects."""
    native = {key: value for key, value in message.items() if key not in {"reasoning_content", "tool_call_id"}}
    if isinstance(parts := message.get("content"), list):
        native["content"] = "\n".join(str(part.get("text", "")) for part in parts if isinstance(part, dict))
    if isinstance(calls := message.get("tool_calls"), list):
        native["tool_calls"] = [_native_call(call) for call in calls if isinstance(call, dict)]
    if "reasoning_content" in message:
        native["thinking"] = message["reasoning_content"]
    return native


def _native_call(call: dict[str, dict[str, object]]) -> dict[str, object]:
    function = dict(call.get("function", {}))
    try:
        function["arguments"] = json.loads(str(function.get("arguments") or "{}"))
    except ValueError:
        function["arguments"] = {"text": function.get("arguments")}
    return {"function": function}
