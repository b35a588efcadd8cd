"""Talking to Ollama through its native API: one `num_ctx` on every call, and nothing cut in silence."""

from __future__ import annotations

import re
from itertools import accumulate
from typing import TYPE_CHECKING

import anyio.to_thread
import msgspec

from localctx.core.accounting import Count, Usage
from localctx.core.overflow import Kind, classify
from localctx.core.window import Confidence, ServerReport
from localctx.errors import LocalctxError, ModelMissing, ServerFailed
from localctx.ports import Delta, Finished, Piece
from localctx.runtimes import ollama
from localctx.runtimes.calls import Calls
from localctx.runtimes.http import LARGE_BYTES, Answer, address, ask, body_of, client, sendable, silent_for, translated
from localctx.runtimes.openai_chat import refuse
from localctx.runtimes.reported import seconds, usage
from localctx.runtimes.server import Pins, Server, probed

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Iterator, Mapping, Sequence

    import httpx

    from localctx.core.outgoing import WireMessage
    from localctx.core.window import ModelReport
    from localctx.ports import Request, Tokenizer

__all__ = ["OllamaServer"]

_GRAIN = 256

_HELLO: WireMessage = {"role": "user", "content": "Hello"}


class _Message(msgspec.Struct):
    content: str | None = None
    thinking: str | None = None
    tool_calls: list[object] | None = None


class _Line(msgspec.Struct):
    message: _Message = msgspec.field(default_factory=_Message)
    done: bool = False
    done_reason: str | None = None
    prompt_eval_count: object = None
    eval_count: object = None
    prompt_eval_duration: object = None
    eval_duration: object = None
    error: object = None


class _Rendered(msgspec.Struct):
    rendered_template: str
    image_count: int = 0


class _Shown(msgspec.Struct):
    debug: _Rendered = msgspec.field(name="_debug_info")


class OllamaServer:
    """One Ollama and one model on it.

    A call with another `num_ctx`, or without one, would load the model again: the first number that is found is sent on
    every call of the session. `tokenizer` is the model's vocabulary in this process, without which nothing is counted; it
    may come later.
    """

    kind = "ollama"
    steers_thinking = True

    def __init__(
        self,
        url: str,
        *,
        key: str | None = None,
        pins: Pins | None = None,
        tokenizer: Tokenizer | None = None,
        transport: httpx.AsyncBaseTransport | None = None,
    ) -> None:
        self._http = client(url, key, transport)
        self._pins = pins or Pins()
        self._num_ctx: int | None = None
        self._version: str | None = None
        self._renders: bool | None = None
        self.thinks: bool | None = None
        self.tokenizer = tokenizer
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

    async def count(self, messages: Sequence[WireMessage], tools: Sequence[WireMessage] = ()) -> Count | None:
        """The tokens of the prompt as Ollama renders it; None without a vocabulary, or where Ollama does not show it."""
        if self.tokenizer is None or not messages or not await self._shows_prompts():
            return None
        answer = await self._render(await self._body(messages, tools, num_predict=1))
        shown = _shown(answer)
        if shown is not None:
            if shown.image_count:
                return None
            tokens = await anyio.to_thread.run_sync(self.tokenizer.rendered, shown.rendered_template)
            return Count(tokens, 0, f"Ollama's rendered prompt and {self.tokenizer.how}")
        self._renders = answer.status != 200  # noqa: PLR2004  it generated, which it did not a while ago
        refusal = classify(answer.status, answer.body)
        if refusal.kind is not Kind.PROMPT_TOO_LONG or refusal.prompt is None or refusal.prompt_is_lower_bound:
            return None
        return Count(refusal.prompt, 0, "Ollama's refusal")

    async def size(self, text: str) -> Count | None:
        """The tokens of a text by the vocabulary; None without one."""
        if self.tokenizer is None:
            return None
        return Count(await anyio.to_thread.run_sync(self.tokenizer.size, text), 0, self.tokenizer.how)

    def cut_points(self, window: int) -> tuple[int, ...]:
        """Where it cuts, should `truncate: false` not be heeded."""
        return ollama.cut_points(window)

    async def vocabulary(self) -> Mapping[str, object] | None:
        """The model's metadata with its whole vocabulary, as GGUF names it; loads nothing. None where nobody says it."""
        sent = {"model": self.model, "verbose": True}
        try:
            answer = await ask(self._http, "POST", "/api/show", sent=sent, seconds=60, most=LARGE_BYTES)
        except LocalctxError:
            return None
        match answer.body:
            case {"model_info": dict(info)} if answer.status == 200:  # noqa: PLR2004
                return info
        return None

    async def chat(self, request: Request) -> AsyncGenerator[Piece, None]:
        """Streams a reply; a prompt that is too long is refused, never cut."""
        wishes = {"temperature": request.temperature, "frequency_penalty": request.frequency_penalty}
        body = await self._body(request.messages, request.tools, num_predict=request.max_tokens, **wishes)
        body |= {"stream": True} | ({} if request.thinks is None else {"think": request.thinks})
        end: _Line | None = None
        calls = Calls(self.url)
        timeout = silent_for(request.silence)
        with translated(self._http, request.silence):
            async with self._http.stream("POST", "/api/chat", timeout=timeout, **sendable(body)) as response:
                if response.status_code != 200:  # noqa: PLR2004
                    said = body_of(await response.aread())
                    verdict = classify(response.status_code, said)
                    refuse(self._http, verdict, response.status_code, tools=bool(request.tools))
                async for text in response.aiter_lines():
                    line = self._decode(text)
                    calls.take_whole(line.message.tool_calls)
                    if line.message.content or line.message.thinking:
                        yield Delta(line.message.content or "", line.message.thinking or "")
                    if line.done:
                        end = line
        if end is None:
            raise ServerFailed(
                f"{self.url} ended its reply without saying done: it died or was stopped; look at its log"
            )
        yield Finished(end.done_reason or "stop", _usage(end), calls.called, calls.made())

    async def close(self) -> None:
        """Closes the connections; the model stays as long as the server keeps it."""
        await self._http.aclose()

    async def _body(
        self, messages: Sequence[WireMessage], tools: Sequence[WireMessage], **options: float | None
    ) -> dict[str, object]:
        """What every call about a conversation carries: anything else would render or load differently."""
        if self._num_ctx is None:
            await self.settle_window()
        options = {"num_ctx": self._num_ctx, **options}
        return {
            "model": self.model,
            "messages": list(_native(messages)),
            **({"tools": list(tools)} if tools else {}),
            **({} if self.thinks is None else {"think": self.thinks}),
            "truncate": False,
            "shift": False,
            "options": {name: value for name, value in options.items() if value is not None},
        }

    async def _shows_prompts(self) -> bool:
        """Whether it renders a prompt whole and without generating; tried once, with a prompt that costs next to nothing."""
        if self._renders is None:
            body = await self._body([_HELLO], (), num_predict=1)  # which finds out the release
            if _takes_truncate(self._version):
                answer = await self._render(body)
                self._renders = None if answer.status != 200 else _shown(answer) is not None  # noqa: PLR2004
            else:
                self._renders = False
        return bool(self._renders)

    async def _render(self, body: Mapping[str, object]) -> Answer:
        """The prompt that a chat would have. An Ollama that does not know this option generates: one token, then."""
        sent = {**body, "stream": False, "_debug_render_only": True}
        return await ask(self._http, "POST", "/api/chat", sent=sent, seconds=ollama.LOAD_SECONDS, most=LARGE_BYTES)

    async def _report(self) -> ModelReport:
        report = await self.probe()
        self._version = report.version
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


def _shown(answer: Answer) -> _Rendered | None:
    try:
        return msgspec.convert(answer.body, _Shown).debug if answer.status == 200 else None  # noqa: PLR2004
    except msgspec.ValidationError:
        return None


_TRUNCATE_SINCE = (0, 12, 6)
"""Before this release a prompt was cut before it was rendered, whatever was asked (its git history)."""


def _takes_truncate(version: str | None) -> bool:
    """Whether a release heeds `truncate: false`; one that was built by hand says 0.0.0, and is believed to be new."""
    found = re.match(r"(\d{1,6})\.(\d{1,6})\.(\d{1,6})", version or "")
    release = tuple(int(part) for part in found.groups()) if found else (0, 0, 1)
    return release == (0, 0, 0) or release >= _TRUNCATE_SINCE


_NANOSECOND = 1e-9


def _usage(line: _Line) -> Usage:
    return usage(
        line.prompt_eval_count,
        line.eval_count,
        prefill_seconds=seconds(line.prompt_eval_duration, _NANOSECOND),
        decode_seconds=seconds(line.eval_duration, _NANOSECOND),
    )


def _native(messages: Sequence[WireMessage]) -> Iterator[WireMessage]:
    """Messages as the native API takes them: text as one string, images beside it, the arguments of calls as objects.

    A result says the name of its tool besides the id of its call: templates have one or the other.
    """
    names = dict[str, object]()
    for message in messages:
        native = {key: value for key, value in message.items() if key != "reasoning_content"}
        if isinstance(parts := message.get("content"), list):
            native |= _plain(parts)
        if isinstance(calls := message.get("tool_calls"), list):
            made = [_native_call(call) for call in calls if isinstance(call, dict)]
            names |= {str(call.get("id")): call["function"].get("name") for call in made}
            native["tool_calls"] = made
        if name := names.get(str(message.get("tool_call_id"))):
            native["tool_name"] = name
        if "reasoning_content" in message:
            native["thinking"] = message["reasoning_content"]
        yield native


def _plain(parts: list[object]) -> dict[str, object]:
    """The text and the images of a message. Ollama fetches nothing: an image that is elsewhere is only mentioned."""
    texts, images = [], []
    for part in parts:
        match part:
            case {"image_url": {"url": str(url)}} | {"image_url": str(url)}:
                head, _, data = url.partition(";base64,")
                if head.startswith("data:") and data:
                    images.append(data)
                else:
                    texts.append("[image]")
            case {"text": str(text)}:
                texts.append(text)
    return {"content": "\n".join(texts), **({"images": images} if images else {})}


def _native_call(call: dict[str, dict[str, object]]) -> dict[str, dict[str, object]]:
    function = dict(call.get("function", {}))
    function["arguments"] = _arguments(str(function.get("arguments") or "{}"))
    return {**({"id": call["id"]} if "id" in call else {}), "function": function}


_DEEPEST = 100
"""The levels of arguments; ten times as many would exceed the stack when the request is written."""

_TEXT = re.compile(r'"(?:[^"\\]|\\.)*+"?', re.DOTALL)
_LEVEL = {"{": 1, "[": 1, "}": -1, "]": -1}


def _arguments(text: str) -> dict[str, object]:
    """The object that Ollama wants, or one around what is none."""
    levels = accumulate(_LEVEL.get(letter, 0) for letter in _TEXT.sub("", text))
    try:
        if max(levels, default=0) <= _DEEPEST:
            return msgspec.json.decode(text, type=dict[str, object])
    except ValueError:  # of msgspec too
        pass
    return {"text": text}
