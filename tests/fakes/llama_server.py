"""A llama-server without a model, which can break in every way that a client has to survive.

Bodies come from the recordings of a real server wherever there is one; only the numbers and names in them are set
here. Run it by hand with `python -m tests.fakes.llama_server --port 8080 --fault hang`.
"""

import argparse
import json
import re
import socket
import sys
import threading
import time
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import takewhile
from pathlib import Path
from typing import Any, TypeAlias
from urllib.parse import parse_qsl
from uuid import uuid4

Json: TypeAlias = dict[str, Any]

CHAT = "/v1/chat/completions"
JSON = "application/json; charset=utf-8"
_RECORDINGS = Path(__file__).parent.parent / "recordings" / "llama-server-b11434"


def recorded(name: str) -> Json:
    body: Json = json.loads((_RECORDINGS / f"{name}.json").read_text(encoding="utf-8"))["response"]["json"]
    return body


def parse(text: str) -> Any:  # noqa: ANN401 - any JSON, or None if it is none
    with suppress(ValueError):
        return json.loads(text)
    return None


def tokenize(text: str) -> list[str]:
    """Words and punctuation marks, each with the space before it; joined they give the text again."""
    return re.findall(r"\s*(?:\w+|[^\w\s])|\s+$", text)


_MARKS = re.compile(r"(<\|im_start\|>)(\w+)(\n)|(<\|im_end\|>\n)")


def tokenize_prompt(prompt: str) -> list[str]:
    """A rendered prompt as tokens: those that `render` put together."""
    parts = enumerate(_MARKS.split(prompt))  # in turn what lies between marks, and the four groups of a mark
    return [token for at, part in parts if part for token in ([part] if at % 5 else tokenize(part))]


def render(body: Json) -> list[str]:
    """The prompt as tokens: the tools as JSON, 4 tokens around each message, 3 that ask for the answer."""
    tokens = tokenize(json.dumps(body["tools"])) if body.get("tools") else []
    for message in body["messages"]:
        content = message.get("content") or ""
        parts = [content] if isinstance(content, str) else [part.get("text", "") for part in content]
        calls = [call["function"] for call in message.get("tool_calls") or []]
        text = "".join([*parts, *(f" {call['name']} {call['arguments']}" for call in calls)])
        tokens += ["<|im_start|>", message["role"], "\n", *tokenize(text), "<|im_end|>\n"]
    return [*tokens, "<|im_start|>", "assistant", "\n"]


def instance(schema: Json) -> Any:  # noqa: ANN401 - any JSON
    """The smallest value that satisfies a plain JSON schema."""
    match schema:
        case {"enum": [first, *_]}:
            return first
        case {"anyOf": [first, *_]}:
            return instance(first)
        case {"type": "array"}:
            return [instance(schema["items"])] * schema.get("minItems", 0)
        case {"type": "string"}:
            return "x" * max(1, schema.get("minLength", 1))
        case {"type": "boolean" | "integer" | "number" as kind}:
            return schema.get("minimum", 0) if kind != "boolean" else False
    return {name: instance(schema["properties"][name]) for name in schema.get("required", [])}


@dataclass(frozen=True)
class Calls:
    """A reply with calls: their names, and their arguments as the text that a model writes."""

    text: str = ""
    calls: list[tuple[str, str]] = field(default_factory=list)


@dataclass
class Request:
    """What a client sent; `aborted` if it left, or was cut off, before the end of the answer."""

    method: str
    path: str
    headers: dict[str, str]
    body: Any
    time: float
    aborted: bool = False


@dataclass(kw_only=True, eq=False)
class Fake:
    """How the server behaves, and what happened to it. Fields but `slots` may be changed while it runs.

    `reply` strings answer requests without a schema. A request with a schema takes the next one only if that is JSON,
    and else gets a minimal instance; a callable may return None to leave the answer to the fake, or `Calls`, of which a
    request without tools, or a model whose template has none, gets the text alone. As on the real server the
    end-of-text token counts: a reply of n tokens that ends by itself has n + 1 completion tokens.
    """

    n_ctx: int = 4096
    slots: int = 1
    n_ctx_train: int = 8192
    model: str = "fake-model"
    api_key: str | None = None
    metrics: bool = False
    tools: bool = False  # whether the chat template has them; then it also reads the arguments of former calls
    vision: bool = False
    batch: int = 2048  # prompt tokens that it reads at once: after each it says how far it is, where that was asked for
    batch_delay: float = 0.0
    reply: str | list[str] | Callable[[Json], str | Calls | None] = "Done."
    reply_thinking: str = ""
    prompt_tokens: Callable[[Json], int] = lambda body: len(render(body))
    tokens_per_piece: int = 1
    delay: float = 0.0
    loading_for: float = 0.0
    fault: str | None = None
    keep: int = 2048  # prompt tokens that "cut_silently" leaves

    url: str = field(default="", init=False)
    loaded: bool = field(default=False, init=False)  # the router's model
    requests: list[Request] = field(default_factory=list, init=False)
    prefilled: list[int] = field(default_factory=list, init=False)  # prompt tokens computed, chat by chat
    errors: list[BaseException] = field(default_factory=list, init=False)  # of the fake itself
    _seen: list[list[str]] = field(default_factory=list, init=False)
    _lock: threading.Lock = field(default_factory=threading.Lock, init=False)

    def __post_init__(self) -> None:
        if self.fault not in (None, *FAULTS):
            raise ValueError(f"no such fault: {self.fault}")

    @property
    def chats(self) -> list[Json]:
        return [request.body for request in self.requests if request.path == CHAT]

    @property
    def claimed(self) -> int:
        return self.n_ctx * 2 if self.fault == "lying" else self.n_ctx

    def said(self, body: Json) -> Calls:
        if self.fault == "empty":
            return Calls()
        said = self.text(body)
        if isinstance(said, str):
            return Calls(said)
        return said if self.tools and body.get("tools") and body.get("tool_choice") != "none" else Calls(said.text)

    def text(self, body: Json) -> str | Calls:
        wanted: Json = body.get("response_format") or {"type": "text"}
        schema = wanted.get("json_schema", wanted).get("schema", {})
        minimal = None if wanted["type"] == "text" else json.dumps(instance(schema))
        if callable(self.reply):
            text = self.reply(body)
            return (minimal or "Done.") if text is None else text
        text = self.reply if isinstance(self.reply, str) else self.reply[0]
        if minimal is not None and parse(text) is None:
            return minimal
        if isinstance(self.reply, list) and len(self.reply) > 1:
            del self.reply[0]
        return text

    def answer(self, body: Json, prompt: int) -> "Answer":
        with self._lock:
            said = self.said(body)
            thinking, text = tokenize(self.reply_thinking), tokenize(said.text)
            calls = [(name, tokenize(arguments)) for name, arguments in said.calls]
            limits = (body.get(name) for name in ("max_tokens", "max_completion_tokens", "n_predict"))
            asked = next((limit for limit in limits if limit is not None and limit >= 0), self.n_ctx)
            limit = max(1, min(asked, self.n_ctx - prompt))
            whole = len(thinking) + len(text) + sum(1 + len(arguments) for _, arguments in calls)  # a name is a token
            thinking, text = thinking[:limit], text[: max(0, limit - len(thinking))]
            calls = cut(calls, limit - len(thinking) - len(text))
            rendered = render(body)
            shared = max((_common(rendered, seen) for seen in self._seen), default=0) * prompt // len(rendered)
            cached = max(0, min(shared, prompt - 1)) if body.get("cache_prompt", True) else 0
            spoken = [token for name, arguments in calls for token in tokenize(f" {name} {''.join(arguments)}")]
            self._seen.append([*rendered, *thinking, *text, *spoken])
            self.prefilled.append(prompt - cached)
        ended = "tool_calls" if calls else "stop"
        finish = None if self.fault == "no_finish" else ended if whole < limit else "length"
        return Answer(self.model, prompt, cached, thinking, text, calls, finish, min(whole + 1, limit))


def cut(calls: list[tuple[str, list[str]]], limit: int) -> list[tuple[str, list[str]]]:
    """As much of the calls as fits into this many tokens."""
    kept = []
    for name, arguments in calls:
        if limit > 0:
            kept.append((name, arguments[: limit - 1]))
        limit -= 1 + len(arguments)
    return kept


def _common(left: list[str], right: list[str]) -> int:
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(left, right, strict=False)))


def joined(tokens: list[str], size: int) -> list[str]:
    return ["".join(tokens[start : start + size]) for start in range(0, len(tokens), size)]


@dataclass
class Answer:
    """One chat completion, in the pieces that both ways to send it share."""

    model: str
    prompt: int
    cached: int
    thinking: list[str]
    text: list[str]
    calls: list[tuple[str, list[str]]]
    finish: str | None
    completion: int
    id: str = field(default_factory=lambda: f"chatcmpl-{time.monotonic_ns():032d}")

    def body(self, kind: str, choice: Json | None, **more: object) -> Json:
        names = {"id": self.id, "model": self.model, "system_fingerprint": "b11434-fake", "object": kind}
        choices = [] if choice is None else [{"finish_reason": None, "index": 0, **choice}]
        return {"choices": choices, "created": int(time.time()), **names, **more}

    def event(self, choice: Json | None, **more: object) -> Json:
        return self.body("chat.completion.chunk", choice, **more)

    def progress(self, done: int) -> Json:
        said = {"total": self.prompt, "cache": self.cached, "processed": done, "time_ms": done - self.cached}
        return self.event({"delta": {"role": "assistant", "content": None}}, prompt_progress=said)

    def deltas(self, size: int) -> list[Json]:
        words = [
            {kind: piece}
            for kind, tokens in (("reasoning_content", self.thinking), ("content", self.text))
            for piece in joined(tokens, size)
        ]
        return words + [
            {"tool_calls": [piece]} for index in range(len(self.calls)) for piece in self._call(index, size)
        ]

    def _call(self, index: int, size: int) -> list[Json]:
        """The pieces of one call: the first says whose they are, the others only go on with its arguments."""
        name, tokens = self.calls[index]
        first, *rest = joined(tokens, size) or [""]
        head = {"index": index, "id": uuid4().hex, "type": "function", "function": {"name": name, "arguments": first}}
        return [head, *({"index": index, "function": {"arguments": piece}} for piece in rest)]

    def whole(self) -> Json:
        message: Json = {"role": "assistant", "content": "".join(self.text)}
        if self.thinking:
            message["reasoning_content"] = "".join(self.thinking)
        if self.calls:
            message["tool_calls"] = [
                {"type": "function", "function": {"name": name, "arguments": "".join(tokens)}, "id": uuid4().hex}
                for name, tokens in self.calls
            ]
        return self.body("chat.completion", {"finish_reason": self.finish, "message": message}, **self.costs())

    def costs(self) -> Json:
        """As if a prompt token took 1 ms and a generated one 10 ms."""
        timings: Json = {"cache_n": self.cached}
        for name, n, ms in (("prompt", self.prompt - self.cached, 1.0), ("predicted", self.completion, 10.0)):
            timings |= {f"{name}_n": n, f"{name}_ms": n * ms}
            timings |= {f"{name}_per_token_ms": ms, f"{name}_per_second": 1000 / ms}
        usage = {"completion_tokens": self.completion, "prompt_tokens": self.prompt}
        usage["total_tokens"] = self.prompt + self.completion
        return {"usage": usage | {"prompt_tokens_details": {"cached_tokens": self.cached}}, "timings": timings}


class RefusedError(Exception):
    """Answered with this status and this body."""


def bad_request(message: str) -> RefusedError:
    return RefusedError(400, {"error": {"code": 400, "message": message, "type": "invalid_request_error"}})


def server_error(message: str) -> RefusedError:
    return RefusedError(500, {"error": {"code": 500, "message": message, "type": "server_error"}})


class Http(BaseHTTPRequestHandler):
    """One connection of a client."""

    server: "Server"
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    request_now: Request | None = None
    body: Any = None
    query: Json
    streamed = False

    @property
    def fake(self) -> Fake:
        return self.server.fake

    def handle(self) -> None:
        try:
            if self.fake.fault == "not_http":
                self.connection.sendall(b"SSH-2.0-OpenSSH_9.6\r\n")
                self.connection.recv(65536)
            else:
                super().handle()
        except ConnectionError:
            if self.request_now:
                self.request_now.aborted = True

    def answer(self) -> None:
        raw = self.rfile.read(int(self.headers.get("Content-Length") or 0)).decode(errors="replace")
        self.body = raw if (parsed := parse(raw)) is None else parsed
        headers = {name.lower(): value for name, value in self.headers.items()}
        self.request_now = Request(self.command, self.path, headers, self.body, time.monotonic())
        self.fake.requests.append(self.request_now)
        path, _, query = self.path.partition("?")
        self.query = dict(parse_qsl(query))
        try:
            if self.streamed and self.fake.fault == "drop_after_stream":
                raise ConnectionAbortedError
            route = BROKEN.get(self.fake.fault or "") or self._route(path)
            if (answer := route(self)) is not None:
                self.send(json.dumps(answer))
        except RefusedError as refused:
            status, body = refused.args
            self.send(json.dumps(body), status=status)

    do_GET = do_POST = do_PUT = do_DELETE = answer  # noqa: N815 - the names that the base class calls

    def _route(self, path: str) -> Callable[["Http"], object]:
        fake = self.fake
        keys = {self.headers.get("Authorization", "").removeprefix("Bearer "), self.headers.get("X-Api-Key")}
        locked = fake.fault == "unauthorized" or (fake.api_key is not None and fake.api_key not in keys)
        if locked and not path.endswith("/health"):
            raise RefusedError(401, recorded("60b-key-v1-models-nokey"))
        if time.monotonic() < self.server.started + fake.loading_for:
            raise RefusedError(503, recorded("01-health-loading"))
        route = ROUTES.get((self.command, path))
        if route is None or route in LACKING.get(fake.fault or "", ()):
            raise RefusedError(404, recorded("40-404"))
        if self.command == "POST" and not isinstance(self.body, dict):
            raise bad_request("[json.exception.parse_error.101] parse error at line 1, column 1")
        if fake.fault == "router" and route not in (health, models) and (route is not props or "model" in self.query):
            self._pick_model((self.query if self.command == "GET" else self.body).get("model"))
        return route

    def _pick_model(self, name: str | None) -> None:
        if name is None:
            raise bad_request("model name is missing from the request")
        if name != self.fake.model:
            raise bad_request(f"model '{name}' not found")
        if self.query.get("autoload") == "false" and not self.fake.loaded:
            raise bad_request("model is not loaded")
        self.fake.loaded = True

    def send(self, text: str | bytes, kind: str = JSON, status: int = 200) -> None:
        content = text.encode() if isinstance(text, str) else text
        if self.fake.fault == "truncated_json":
            content = content[: len(content) // 2]
        self.head(kind, status, {"Content-Length": str(len(content))})
        if self.fake.fault == "die_mid_stream" and self.path == CHAT:
            content, self.close_connection = content[: len(content) // 2], True
        self.wfile.write(content)

    def head(self, kind: str, status: int, headers: dict[str, str]) -> None:
        kind = "text/plain" if self.fake.fault == "wrong_content_type" else kind
        fixed = {"Server": "llama.cpp", "Access-Control-Allow-Origin": "", "Content-Type": kind}
        last = {"Keep-Alive": "timeout=5, max=100"} if status < 400 else {"Connection": "close"}
        self.send_response_only(status)
        for name, value in (fixed | headers | last).items():
            self.send_header(name, value)
        self.end_headers()

    def chunk(self, data: bytes) -> None:
        self.wfile.write(b"%x\r\n%b\r\n" % (len(data), data))

    def event(self, data: Json) -> None:
        self.chunk(f"data: {json.dumps(data)}\n\n".encode())

    def pause(self, seconds: float | None) -> None:
        if self.server.stopping.wait(seconds):
            raise ConnectionAbortedError

    def log_message(self, *_: object) -> None:
        pass


def health(_: Http) -> Json:
    return {"status": "ok"}


def props(http: Http) -> Json:
    fake = http.fake
    if fake.fault == "router" and "model" not in http.query:
        return recorded("71-router-props-nomodel")
    said = recorded("50-props-smol-alias")
    said["default_generation_settings"]["n_ctx"] = fake.claimed
    caps = ("supports_tools", "supports_tool_calls", "supports_object_arguments")
    said["chat_template_caps"] |= dict.fromkeys(caps, fake.tools)
    said["modalities"] |= {"vision": fake.vision}
    mine = {"model_alias": fake.model, "model_path": f"/models/{fake.model}.gguf", "endpoint_metrics": fake.metrics}
    return said | mine | {"total_slots": fake.slots}


def models(http: Http) -> Json:
    fake = http.fake
    window = {"n_ctx": fake.claimed, "n_ctx_train": fake.n_ctx_train}
    if fake.fault == "router":
        said = recorded("75-router-models-loaded" if fake.loaded else "70b-router-v1-models-initial")
        said["data"][0]["id"] = fake.model
        said["data"][0].get("meta", {}).update(window)
        launch = said["data"][0]["status"]["args"]
        for option, value in (("--alias", fake.model), ("--ctx-size", fake.n_ctx), ("--parallel", fake.slots)):
            launch[launch.index(option) + 1] = str(value)
        return said
    said = recorded("50-models-smol-alias")
    said["models"][0] |= {"name": fake.model, "model": fake.model}
    said["data"][0] |= {"id": fake.model, "aliases": [fake.model], "created": int(time.time())}
    said["data"][0]["meta"] |= window
    return said


def slots(http: Http) -> list[Json]:
    fake, busy = http.fake, http.fake.slots - http.server.free._value
    state = {"n_ctx": fake.claimed, "speculative": False}
    return [{"id": number, **state, "is_processing": number < busy} for number in range(fake.slots)]


def metrics(http: Http) -> None:
    if not http.fake.metrics:
        raise RefusedError(501, recorded("51b-metrics-disabled"))
    http.send(f"llamacpp:prompt_tokens_total {sum(http.fake.prefilled)}\n", "text/plain; version=0.0.4")


def tokens_of(http: Http) -> Json:
    pieces = (tokenize_prompt if http.body.get("parse_special", True) else tokenize)(http.body.get("content", ""))
    tokens = [{"id": zlib.crc32(piece.encode()) % 49152, "piece": piece} for piece in pieces]
    return {"tokens": tokens if http.body.get("with_pieces") else [token["id"] for token in tokens]}


def conversation(http: Http) -> Json:
    body: Json = http.body
    if "messages" not in body:
        raise bad_request("'messages' is required")
    if not isinstance(body["messages"], list):
        raise bad_request("Expected 'messages' to be an array")
    if body.get("tools") and http.fake.fault == "no_tools":
        raise server_error("tools param requires --jinja flag")
    if body.get("tools") and body.get("grammar") and body.get("tool_choice") != "none":
        raise bad_request("Cannot use custom grammar constraints with tools.")
    calls = [call for message in body["messages"] for call in message.get("tool_calls") or []]
    if http.fake.tools and any(parse(call["function"]["arguments"]) is None for call in calls):
        raise server_error("Failed to parse tool call arguments as JSON: [json.exception.parse_error.101] parse error")
    return body


def apply_template(http: Http) -> Json:
    return {"prompt": "".join(render(conversation(http)))}


def input_tokens(http: Http) -> Json:
    return {"input_tokens": http.fake.prompt_tokens(conversation(http)), "object": "response.input_tokens"}


def chat(http: Http) -> Json | None:
    fake, body = http.fake, conversation(http)
    prompt = fake.prompt_tokens(body)
    if fake.fault == "cut_silently":
        prompt = min(prompt, fake.keep)
    if prompt >= fake.n_ctx:
        error = recorded("20-exceed-chat")["error"] | {"n_prompt_tokens": prompt, "n_ctx": fake.n_ctx}
        available = f"the available context size ({fake.n_ctx} tokens)"
        error["message"] = f"request ({prompt} tokens) exceeds {available}, try increasing it"
        raise RefusedError(400, {"error": error})
    with http.server.free:
        answer = fake.answer(body, prompt)
        if fake.fault == "boasts":
            answer = replace(answer, prompt=100_000)
        if body.get("stream"):
            stream(http, answer)
            return None
        http.pause(fake.delay * len(answer.deltas(fake.tokens_per_piece)))
        if fake.fault == "error_mid_stream":
            raise RefusedError(500, recorded("24-kvunified-pool-overflow-0"))
        return answer.whole()


def stream(http: Http, answer: Answer) -> None:
    fault, costs = http.fake.fault, answer.costs()
    pieces = [answer.event({"delta": delta}) for delta in answer.deltas(http.fake.tokens_per_piece)]
    end: Json = {"finish_reason": answer.finish, "delta": {}}
    if (http.body.get("stream_options") or {}).get("include_usage"):
        tail = [answer.event(end), answer.event(None, **costs)]
    else:
        tail = [answer.event(end, timings=costs["timings"])]
    if fault == "no_finish":
        del tail[0]
    if fault in ("die_mid_stream", "error_mid_stream", "truncated_json"):
        pieces, tail = pieces[: (len(pieces) + 1) // 2], []
    http.head("text/event-stream", 200, {"X-Accel-Buffering": "no", "Transfer-Encoding": "chunked"})
    for done in range(answer.cached, answer.prompt + http.fake.batch, http.fake.batch):
        http.pause(http.fake.batch_delay if done > answer.cached else 0.0)
        if http.body.get("return_progress"):
            http.event(answer.progress(min(done, answer.prompt)))
    for event in [answer.event({"delta": {"role": "assistant", "content": None}}), *pieces, *tail]:
        http.pause(http.fake.delay)
        http.event(event)
    if fault == "die_mid_stream":
        http.close_connection = True
        return
    if fault == "error_mid_stream":  # the real server says no [DONE] after it
        http.event(recorded("24-kvunified-pool-overflow-0"))
    else:
        http.chunk(b'data: {"choices":[{"fin' if fault == "truncated_json" else b"data: [DONE]\n\n")
    http.chunk(b"")
    http.streamed = True


ROUTES: dict[tuple[str, str], Callable[[Http], object]] = {
    ("GET", "/health"): health,
    ("GET", "/v1/health"): health,
    ("GET", "/props"): props,
    ("GET", "/models"): models,
    ("GET", "/v1/models"): models,
    ("GET", "/slots"): slots,
    ("GET", "/metrics"): metrics,
    ("POST", "/tokenize"): tokens_of,
    ("POST", "/apply-template"): apply_template,
    ("POST", CHAT): chat,
    ("POST", f"{CHAT}/input_tokens"): input_tokens,
}


def html(http: Http) -> None:
    http.send("<!doctype html><title>Sign in</title><form><input name=password></form>", "text/html")


def garbage(http: Http) -> None:
    http.send(bytes(range(128, 256)) * 4)


def huge_json(http: Http) -> None:
    http.head(JSON, 200, {"Transfer-Encoding": "chunked"})
    http.chunk(b'{"data": "')
    while True:
        http.chunk(b"x" * 65536)


def redirect_loop(http: Http) -> None:
    http.head("text/html", 302, {"Location": http.path, "Content-Length": "0"})


def hang(http: Http) -> None:
    http.pause(None)


def slow_headers(http: Http) -> None:
    http.wfile.write(b"HTTP/1.1 200 OK\r\n")
    while True:
        http.pause(0.05)
        http.wfile.write(b"X-Wait: 1\r\n")


# These answer every request; the other faults change one answer of a server that works otherwise. The last one is what
# a real server does now and then to a request that follows a stream at once on the same connection.
BROKEN: dict[str, Callable[[Http], None]] = {
    function.__name__: function for function in (html, garbage, huge_json, redirect_loop, hang, slow_headers)
}
LACKING: dict[str, tuple[Callable[[Http], object], ...]] = {
    "older": (input_tokens,),
    "no_input_tokens": (input_tokens, apply_template, tokens_of),  # nor anything else that counts
}
FAULTS = (
    *BROKEN,
    *LACKING,
    *("not_http", "truncated_json", "wrong_content_type", "unauthorized", "router", "lying"),
    *("die_mid_stream", "error_mid_stream", "no_finish", "empty", "cut_silently", "drop_after_stream"),
    "boasts",  # reports far more prompt tokens than its window holds
    "no_tools",  # refuses requests with tools, whatever its template has, as one that was started with --no-jinja
)


class Server(ThreadingHTTPServer):
    """Keeps hold of its connections, so that stopping leaves neither threads nor sockets behind."""

    def __init__(self, fake: Fake, port: int) -> None:
        super().__init__(("127.0.0.1", port), Http)
        self.fake, self.started = fake, time.monotonic()
        self.free, self.stopping = threading.Semaphore(fake.slots), threading.Event()
        self.connections: list[tuple[socket.socket, threading.Thread]] = []
        fake.url = f"http://127.0.0.1:{self.server_port}"

    def process_request(self, request: Any, client_address: Any) -> None:  # noqa: ANN401 - as in the base class
        thread = threading.Thread(target=self.process_request_thread, args=(request, client_address), daemon=True)
        self.connections.append((request, thread))
        thread.start()

    def handle_error(self, *_: object) -> None:
        self.fake.errors.extend(filter(None, [sys.exception()]))

    def stop(self) -> None:
        self.stopping.set()
        self.shutdown()
        for connection, thread in self.connections:
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
            thread.join(5)
        self.server_close()


@contextmanager
def running(fake: Fake, port: int = 0) -> Iterator[Fake]:
    """Serves until the block ends; then an error inside the fake itself fails the test."""
    server = Server(fake, port)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        yield fake
    finally:
        server.stop()
        thread.join(5)
    if fake.errors:
        raise fake.errors[0]


def main() -> None:
    parser = argparse.ArgumentParser(description="Serve a fake llama-server.")
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--fault", choices=FAULTS)
    names = "n_ctx slots n_ctx_train model api_key reply reply_thinking tokens_per_piece delay loading_for keep"
    for name in names.split():
        default = getattr(Fake, name)
        parser.add_argument(f"--{name.replace('_', '-')}", type=type(default or ""), default=default)
    options = vars(parser.parse_args())
    port = options.pop("port")
    with running(Fake(**options), port) as server, suppress(KeyboardInterrupt):
        sys.stdout.write(f"{server.url}\n")
        sys.stdout.flush()
        threading.Event().wait()


if __name__ == "__main__":
    main()
