"""llama.cpp's server (`llama-server`, and the embedded one): its readings, its exact counts, its chat."""

from __future__ import annotations

import hashlib
import itertools
import re
from contextlib import aclosing, suppress
from functools import partial
from pathlib import PurePath
from typing import TYPE_CHECKING, Annotated, TypeVar

import anyio.to_thread
import msgspec

from localctx.core.accounting import Count
from localctx.core.window import Advice, ModelReport, Reading, ServerReport, Source, Status, reconcile
from localctx.errors import LocalctxError, NotARuntime
from localctx.runtimes import openai_chat
from localctx.runtimes.grammar import grammar
from localctx.runtimes.http import LARGE_BYTES, Answer, address, ask, client
from localctx.runtimes.launch import arguments
from localctx.runtimes.pieces import guard, pieces
from localctx.runtimes.server import Pins, Server, decoded, pictured, probed, served, trouble

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Iterator, Mapping, Sequence

    import httpx

    from localctx.core.outgoing import WireMessage
    from localctx.ports import Piece, Request

__all__ = ["LlamaServer", "read", "serves"]


_Tokens = Annotated[int, msgspec.Meta(lt=2**31)]
"""As llama.cpp holds them: anything larger is nonsense."""

_NUMBER = re.compile(r"[0-9]{1,9}")


class _Settings(msgspec.Struct):
    n_ctx: _Tokens = 0


class _Props(msgspec.Struct):
    default_generation_settings: _Settings = msgspec.field(default_factory=_Settings)
    role: str | None = None
    total_slots: int | None = None
    model_alias: str | None = None
    model_path: str | None = None
    build_info: str | None = None
    chat_template: str | None = None
    chat_template_caps: dict[str, bool] | None = None
    modalities: dict[str, bool] | None = None


class _Meta(msgspec.Struct):
    n_ctx: _Tokens = 0
    n_ctx_train: _Tokens = 0
    size: int = 0


class _Launch(msgspec.Struct):
    value: str = "loaded"
    args: list[str] = []


class _Model(msgspec.Struct):
    id: str = ""
    aliases: list[str] = []
    meta: _Meta | None = None
    status: _Launch | None = None


class _Models(msgspec.Struct):
    data: list[_Model] = []


class _Counted(msgspec.Struct):
    input_tokens: Annotated[int, msgspec.Meta(gt=0, lt=2**31)]


class _Rendered(msgspec.Struct):
    prompt: str


class _Tokenized(msgspec.Struct):
    tokens: list[object]


_PROPS = "/props n_ctx"
_COUNT, _RENDER, _TOKENIZE = "/v1/chat/completions/input_tokens", "/apply-template", "/tokenize"

_T = TypeVar("_T")


class LlamaServer:
    """One llama-server at `url`; `model` is checked against what it serves, empty takes whatever is there."""

    kind = "llama-server"
    steers_thinking = True

    def __init__(
        self,
        url: str,
        *,
        model: str = "",
        key: str | None = None,
        pins: Pins | None = None,
        kind: str = "llama-server",
        transport: httpx.AsyncBaseTransport | None = None,
    ) -> None:
        self._http = client(url, key, transport)
        self._pins = pins or Pins()
        self._missing: set[str] = set()
        self._guards: dict[str, int] = {}
        self.thinks: bool | None = None
        self.kind, self.model, self.url = kind, model, address(self._http)

    async def probe(self) -> ServerReport:
        """What the server says now; loads and wakes nothing."""
        reader = partial(read, kind=self.kind)
        return await probed(Server(self._http), (reader,), self._pins, hello="/props", kind=self.kind)

    async def count(self, messages: Sequence[WireMessage], tools: Sequence[WireMessage] = ()) -> Count | None:
        """The server's own count of the rendered chat; None where it cannot count. An older one renders, then counts."""
        body = self._body(messages, tools)
        if counted := await self._asked(_COUNT, body, _Counted):
            return Count(counted.input_tokens, 0, "llama-server input_tokens")
        if _COUNT not in self._missing or pictured(messages):
            return None
        rendered = await self._asked(_RENDER, body, _Rendered)
        tokens = await self._tokens(rendered.prompt, special=True) if rendered else None
        return None if tokens is None else Count(tokens, 0, "llama-server apply-template and tokenize")

    async def size(self, text: str) -> Count | None:
        """The tokens of a text by the server's vocabulary; wakes a server that sleeps. None where it cannot count."""
        tokens = await self._tokens(text, special=False)
        return None if tokens is None else Count(tokens, 0, "llama-server tokenize")

    def cut_points(self, window: int) -> tuple[int, ...]:  # noqa: ARG002  the port's signature
        """None: a prompt that is too long is refused, with `--context-shift` too (that drops context while it answers)."""
        return ()

    async def chat(self, request: Request) -> AsyncGenerator[Piece, None]:
        """Streams a reply. Under an outline no tool is called, as llama.cpp has no grammar for both; the prompt stays as it is."""
        body = self._body(request.messages, request.tools)
        body |= {"max_tokens": request.max_tokens, "return_progress": True}
        wishes = {"temperature": request.temperature, "frequency_penalty": request.frequency_penalty}
        body |= {name: value for name, value in wishes.items() if value is not None}
        body |= openai_chat.thinking(wanted=request.thinks)
        if request.outline is not None:
            body |= {"grammar": grammar(request.outline), **({"tool_choice": "none"} if request.tools else {})}
        async with aclosing(openai_chat.stream(self._http, "/v1/chat/completions", body, request.silence)) as pieces:
            async for piece in pieces:
                yield piece

    async def close(self) -> None:
        """Closes the connections."""
        await self._http.aclose()

    def _body(self, messages: Sequence[WireMessage], tools: Sequence[WireMessage]) -> dict[str, object]:
        return openai_chat.conversation(messages, tools) | self._named() | openai_chat.thinking(wanted=self.thinks)

    def _named(self) -> dict[str, object]:
        return {"model": self.model} if self.model else {}

    async def _asked(self, path: str, body: Mapping[str, object], kind: type[_T]) -> _T | None:
        """What a path answers; None where it refuses, and without asking again where there is no such path."""
        if path in self._missing:
            return None
        answer = await ask(self._http, "POST", path, sent=body, seconds=60, most=LARGE_BYTES)
        with suppress(NotARuntime, msgspec.ValidationError):
            if answer.status == 200:  # noqa: PLR2004
                return decoded(answer, kind)
        if answer.status in openai_chat.MISSING:
            self._missing.add(path)
        return None

    async def _tokens(self, text: str, *, special: bool) -> int | None:
        """The tokens of a text, or, with `special`, of a rendered prompt, whose special tokens are more than their letters."""
        parts, total = pieces(text), 0
        for place, part in enumerate(parts or ()):
            count = self._behind_guard if place else self._tokenize
            tokens = await count(part, special=special)
            if tokens is None:
                return None
            total += tokens
        return None if parts is None else total

    async def _behind_guard(self, part: str, *, special: bool) -> int | None:
        """The tokens that a later piece adds: it is sent behind a guard, whose own tokens are taken off again."""
        before = guard(part)
        if before not in self._guards and (own := await self._tokenize(before, special=False)) is not None:
            self._guards[before] = own
        told = await self._tokenize(before + part, special=special, first=False)
        return None if told is None or before not in self._guards else told - self._guards[before]

    async def _tokenize(self, text: str, *, special: bool, first: bool = True) -> int | None:
        body = {"content": text, "add_special": special and first, "parse_special": special}
        told = await self._asked(_TOKENIZE, body | self._named(), _Tokenized)
        return None if told is None else len(told.tokens)


async def read(server: Server, pins: Pins, kind: str = "llama-server") -> ServerReport | None:
    """The report of a llama-server; None where another program answers. Loads and wakes nothing."""
    try:
        answer = await server.get("/props")
    except LocalctxError:
        return None
    if answer.headers.get("server", "").startswith("llama.cpp") and (report := trouble(kind, server.url, answer)):
        return report
    if not _is_llama(answer):
        return None
    try:
        props, listed = decoded(answer, _Props), decoded(await server.get("/v1/models"), _Models)
    except (LocalctxError, msgspec.ValidationError) as error:
        text = f"{server.url} answers /props or /v1/models in a form that cannot be read ({error}); check the port"
        return ServerReport(kind, server.url, Status.ERROR, error=text)
    several = kind == "llama-server" and (props.total_slots or 1) > 1
    started = await anyio.to_thread.run_sync(arguments, server.url) if several else []
    models = tuple(_model(model, props, pins, kind, started) for model in listed.data)
    return ServerReport(kind, server.url, Status.UP, _version(props), models=models)


def _model(model: _Model, props: _Props, pins: Pins, kind: str, started: Sequence[str]) -> ModelReport:
    router = props.role == "router"
    meta, launch = model.meta or _Meta(), model.status or _Launch()
    loaded = launch.value in {"loaded", "sleeping"}
    readings = [_served(meta, props, kind, router=router)] if loaded else []
    slots = None if router else max(props.total_slots or 0, 0) or None
    launched = _Arguments(launch.args if router else started, slots)
    readings += [launched.reading] if router and not loaded else []
    readings += [Reading(Source.TRAINED, meta.n_ctx_train, f"{kind} /v1/models meta.n_ctx_train")]
    readings += [pins.pin] if pins.pin else []
    window = reconcile(readings, ceiling=pins.ceiling)
    tokens = served(window.readings)
    return ModelReport(
        id=_name(model, props),
        loaded=loaded,
        window=window,
        trained=max(meta.n_ctx_train, 0) or None,
        slots=slots,
        aliases=tuple(model.aliases),
        template=None if router else _template(props),
        model_bytes=max(meta.size, 0) or None,
        shared_pool=tokens if launched.known and launched.slots > 1 and not launched.split else None,
        calls_tools=_calls_tools(props.chat_template_caps),
        sees_images=None if router else (props.modalities or {}).get("vision"),
        warnings=(*launched.advice(tokens), *_advice(props.chat_template_caps)),
    )


def _version(props: _Props) -> str | None:
    """The build; a server that does not know its own says `b0-unknown`."""
    return None if "unknown" in (props.build_info or "unknown") else props.build_info


def _served(meta: _Meta, props: _Props, kind: str, *, router: bool) -> Reading:
    if router:
        return Reading(Source.SERVED, meta.n_ctx, f"{kind} /v1/models meta.n_ctx")
    return Reading(Source.SERVED, props.default_generation_settings.n_ctx, f"{kind} {_PROPS}")


def serves(report: ModelReport, wanted: str) -> bool:
    """Whether a model is the one that was asked for: by its id, or by its file, with or without folder and ending."""
    return not wanted or any(wanted == name or _stem(wanted) == _stem(name) for name in (report.id, *report.aliases))


def _stem(name: str) -> str:
    return PurePath(name).name.removesuffix(".gguf")


def _is_llama(answer: Answer) -> bool:
    return answer.status == 200 and isinstance(answer.body, dict) and "default_generation_settings" in answer.body  # noqa: PLR2004


def _name(model: _Model, props: _Props) -> str:
    """What people call the model: its alias, or the name of its file rather than the path."""
    name = model.id or props.model_alias or props.model_path or "?"
    return PurePath(name).name if "/" in name and name.endswith(".gguf") else name


class _Arguments:
    """What a server's launch arguments say about its window. A router shows them; a program on this machine has them."""

    def __init__(self, args: Sequence[str], slots: int | None) -> None:
        given = {flag: value for flag, value in itertools.pairwise(args) if _NUMBER.fullmatch(value)}
        parallel = next((int(given[flag]) for flag in ("-np", "--parallel") if flag in given), None)
        self.known = any("llama-server" in PurePath(arg).name for arg in args[:1])
        self.size = next((int(given[flag]) for flag in ("-c", "--ctx-size") if flag in given), 0)
        self.slots = max(parallel or slots or 1, 1)
        self.split = "--no-kv-unified" in args or (parallel is not None and not {"--kv-unified", "-kvu"} & set(args))
        self.shifts = "--context-shift" in args

    @property
    def reading(self) -> Reading:
        """What one request would be served with."""
        tokens = self.size // self.slots if self.split else self.size
        return Reading(Source.CONFIGURED, tokens, "llama-server /v1/models status.args")

    def advice(self, tokens: int | None) -> Iterator[Advice]:
        """What is worth a warning; `tokens` is what one request is served with."""
        if self.slots > 1 and self.known and self.split:
            yield Advice(
                "split-slots",
                f"its tokens are split among {self.slots} slots: one request gets {tokens or self.reading.tokens:,}",
                "start it with -np 1, or with --kv-unified to share them",
            )
        elif self.slots > 1 and tokens is not None:
            yield Advice(
                "shared-pool",
                f"{self.slots} slots {'' if self.known else 'may '}share one pool of {tokens:,} tokens: the window holds "
                "only while nobody else uses it",
                "restart llama-server with -np 1, or with --no-kv-unified to split it",
            )
        if self.shifts:
            yield Advice(
                "context-shift",
                "a long answer goes on past the window while the oldest half of its context is dropped in silence",
                "start it without --context-shift",
            )


def _template(props: _Props) -> str | None:
    """The chat template's fingerprint: it is part of what a count depends on."""
    if not props.chat_template:
        return None
    return hashlib.sha256(props.chat_template.encode("utf-8", "surrogatepass")).hexdigest()[:12]


def _calls_tools(caps: dict[str, bool] | None) -> bool | None:
    """Whether the chat template has both the tools and the calls of them. A router has no template of its own."""
    said = caps or {}
    return said["supports_tools"] and said.get("supports_tool_calls", True) if "supports_tools" in said else None


def _advice(caps: dict[str, bool] | None) -> tuple[Advice, ...]:
    if caps is None or caps.get("supports_tools") is not False:
        return ()
    return (Advice("no-tools", "its chat template drops tools in silence", "serve a model whose template has tools"),)
