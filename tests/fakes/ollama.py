"""An Ollama without models that still loads, reloads and forgets them as a real one does.

What it says has the form of the recordings; what it does was measured on a real server, as far as a client of its
native API can see it. It replies with greetings, unless it is told what to say, and counts words as tokens. Run it by hand with `python -m tests.fakes.ollama --port 11434 --fault slow`.
"""

import argparse
import json
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from hashlib import sha256
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, TypeAlias

from tests.fakes.llama_server import Calls, tokenize_prompt

Json: TypeAlias = dict[str, Any]

FAULTS = (
    *("hang", "slow", "html", "truncated_json", "huge_json"),  # whatever is asked
    *("hanging_show", "no_show", "load_fails"),  # in one place
    *("lying", "old"),  # /v1/models claims a window and another program's name; before 0.10 ps had no context_length
    "generates",  # where it should render, as before 0.11.5
)


def tagged(name: str) -> str:
    return name if ":" in name else f"{name}:latest"


@dataclass(kw_only=True)
class Model:
    """A model on disk; `num_ctx` is its Modelfile's. Names with the same weights share one place in memory."""

    name: str
    trained: int = 8192
    num_ctx: int | None = None
    weights: str = ""
    size: int = 98_362_745
    vocabulary: tuple[str, ...] = ("<|im_start|>", "<|im_end|>", "Hel", "lo")
    about_vocabulary: Json = field(default_factory=dict)
    tools: bool = True

    @property
    def digest(self) -> str:
        return sha256(f"{self.blob} {self.parameters}".encode()).hexdigest()

    @property
    def blob(self) -> str:
        return "sha256-" + sha256((self.weights or self.name).encode()).hexdigest()

    @property
    def parameters(self) -> str:
        return "" if self.num_ctx is None else f"num_ctx                        {self.num_ctx}"


def rendered(messages: list[Json], tools: list[Json] | None) -> str:
    """The prompt by the template of the recorded model, and the tools as text before it."""
    listed = [{"role": "system", "content": f"Tools: {json.dumps(tools)}"}] if tools else []
    said = "".join(f"<|im_start|>{each['role']}\n{spoken(each)}<|im_end|>\n" for each in [*listed, *messages])
    return f"{said}<|im_start|>assistant\n"


def called(index: int, name: str, arguments: str) -> Json:
    """A call in the native form, where the arguments are an object."""
    function = {"index": index, "name": name, "arguments": json.loads(arguments)}
    return {"id": f"call_{sha256(f'{index}{name}{arguments}'.encode()).hexdigest()[:8]}", "function": function}


def spoken(message: Json) -> str:
    return "".join([message.get("content") or "", *(json.dumps(call) for call in message.get("tool_calls") or [])])


@dataclass(frozen=True)
class Resident:
    """What runs: the name that loaded it, and with which options."""

    name: str
    num_ctx: int
    shift: bool | None


@dataclass(kw_only=True, eq=False)
class Fake:
    """How the server behaves, and what happened to it."""

    models: list[Model] = field(default_factory=lambda: [Model(name="smollm2:latest")])
    default: int = 4096
    version: str = "0.33.0-rc2"
    vram_share: float = 0.0
    fault: str | None = None
    reply: Callable[[Json], str | Calls | None] = lambda _: None  # None leaves it to the fake

    url: str = field(default="", init=False)
    resident: dict[str, Resident] = field(default_factory=dict, init=False)  # by blob
    loads: list[tuple[str, int]] = field(default_factory=list, init=False)
    prefilled: list[int] = field(default_factory=list, init=False)  # prompt tokens, reply by reply
    requests: list[tuple[str, Any]] = field(default_factory=list, init=False)
    stopping: threading.Event = field(default_factory=threading.Event, init=False)

    def __post_init__(self) -> None:
        if self.fault not in (None, *FAULTS):
            raise ValueError(f"no such fault: {self.fault}")

    def find(self, name: object) -> Model | None:
        return next((model for model in self.models if tagged(model.name) == tagged(str(name))), None)

    def use(self, model: Model, body: Json) -> None:
        """Loads a model, and again if it is resident with other options: one that is absent is an option as well."""
        asked = body.get("options", {}).get("num_ctx", model.num_ctx or self.default)
        wanted = Resident(tagged(model.name), min(asked, model.trained) if asked > 0 else 4, body.get("shift"))
        there = self.resident.get(model.blob)
        if there is None or (there.num_ctx, there.shift) != (wanted.num_ctx, wanted.shift):
            self.resident[model.blob] = wanted
            self.loads.append((wanted.name, wanted.num_ctx))

    def listed(self, model: Model, **more: object) -> Json:
        name = tagged(model.name)
        about = {"name": name, "model": name, "size": model.size, "digest": model.digest}
        return {**about, "details": {"format": "gguf"}, **more}

    def ps(self) -> Json:
        found = []
        for blob, there in self.resident.items():
            model = next(model for model in self.models if model.blob == blob)
            size = model.size + there.num_ctx * 30_000
            window = {} if self.fault == "old" else {"context_length": there.num_ctx}
            entry = self.listed(model, size_vram=int(size * self.vram_share), **window)
            found.append(entry | {"name": there.name, "model": there.name, "size": size})
        return {"models": found}

    def tags(self) -> Json:
        listed = [self.listed(model) for model in self.models]
        for entry, model in zip(listed, self.models, strict=True):
            entry["details"] |= {} if self.fault == "old" else {"context_length": model.trained}
        return {"models": listed}

    def show(self, model: Model, *, verbose: bool) -> Json:
        tokens = list(model.vocabulary) if verbose else None
        pinned = "" if model.num_ctx is None else f"PARAMETER num_ctx {model.num_ctx}\n"
        return {
            "modelfile": f"# FROM {model.name}\n\nFROM /home/user/.ollama/models/blobs/{model.blob}\n{pinned}",
            "parameters": model.parameters,
            "capabilities": ["completion", *(["tools"] if model.tools else [])],
            "model_info": {
                "general.architecture": "llama",
                "llama.context_length": model.trained,
                "tokenizer.ggml.tokens": tokens,
            }
            | (model.about_vocabulary if verbose else {}),
        }

    def chat(self, model: Model, body: Json) -> tuple[int, Json | list[Json]]:
        """Renders, or replies with as many words as it may; what is too long is refused, or cut to half the window."""
        if body.get("tools") and not model.tools:
            return 400, {"error": f"registry.ollama.ai/library/{tagged(model.name)} does not support tools"}
        self.use(model, body)
        prompt, window = rendered(body["messages"], body.get("tools")), self.resident[model.blob].num_ctx
        said = {"model": body["model"], "message": {"role": "assistant", "content": ""}, "done": False}
        if body.get("_debug_render_only") and self.fault != "generates":
            images = sum(len(message.get("images", [])) for message in body["messages"])
            return 200, said | {
                "_debug_info": {"rendered_template": prompt} | ({"image_count": images} if images else {})
            }
        size = len(tokenize_prompt(prompt))
        if size >= window and body.get("truncate") is False:
            text = f"request ({size} tokens) exceeds the available context size ({window} tokens), try increasing it"
            inner = {"code": 400, "message": text, "type": "exceed_context_size_error"}
            return 400, {"error": json.dumps({"error": inner | {"n_prompt_tokens": size, "n_ctx": window}})}
        size = window - (window - 4) // 2 if size >= window else size
        self.prefilled.append(size)
        told = self.reply(body)
        reply = Calls(told) if isinstance(told, str) else told
        words = ["Hello"] * min(body.get("options", {}).get("num_predict", 3), 3) if reply is None else [reply.text]
        calls = [called(index, *call) for index, call in enumerate(reply.calls if reply and body.get("tools") else [])]
        end: Json = {"done": True, "done_reason": "stop" if reply else "length"}
        end |= {"prompt_eval_count": size, "eval_count": len(words) + len(calls)}
        if body.get("stream", True):
            pieces: list[Json] = [
                *({"content": word} for word in words),
                *({"content": "", "tool_calls": [c]} for c in calls),
            ]
            return 200, [*({**said, "message": {"role": "assistant"} | piece} for piece in pieces), said | end]
        whole = {"role": "assistant", "content": "".join(words)} | ({"tool_calls": calls} if calls else {})
        return 200, said | end | {"message": whole}

    def v1_models(self) -> Json:
        lie = {"owned_by": "vllm", "max_model_len": 131_072} if self.fault == "lying" else {"owned_by": "library"}
        return {
            "object": "list",
            "data": [{"id": tagged(model.name), "object": "model"} | lie for model in self.models],
        }


class Http(BaseHTTPRequestHandler):
    """One connection of a client."""

    server: "Server"

    def answer(self) -> None:
        fake = self.server.fake
        raw = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        body = json.loads(raw) if raw else None
        fake.requests.append((f"{self.command} {self.path}", body))
        if fake.fault == "hang" or (fake.fault == "hanging_show" and self.path == "/api/show"):
            fake.stopping.wait(60)
            return
        if fake.fault == "slow":
            fake.stopping.wait(0.2)
        if fake.fault == "html":
            self.send(200, "<html>Sign in</html>", "text/html")
        elif fake.fault == "huge_json":
            self.send(200, "9" * 2**20, times=50)
        else:
            status, said = self.route(fake, body)
            lines = "".join(f"{json.dumps(line)}\n" for line in said) if isinstance(said, list) else None
            content = said if isinstance(said, str) else lines or json.dumps(said)
            kind = "application/json; charset=utf-8" if lines is None else "application/x-ndjson"
            self.send(status, content[: len(content) // 2] if fake.fault == "truncated_json" else content, kind)

    do_GET = do_POST = answer  # noqa: N815  the names that the base class calls

    def route(self, fake: Fake, body: Any) -> tuple[int, Json | list[Json] | str]:  # noqa: ANN401  JSON
        if f"{self.command} {self.path}" in {"POST /api/show", "POST /api/generate", "POST /api/chat"}:
            return self.about(fake, body)
        said: dict[str, Json | str] = {
            "/": "Ollama is running",
            "/api/version": {"version": fake.version},
            "/api/ps": fake.ps(),
            "/api/tags": fake.tags(),
            "/v1/models": fake.v1_models(),
        }
        return (200, said[self.path]) if self.path in said else (404, "404 page not found")

    def about(self, fake: Fake, body: Json) -> tuple[int, Json | list[Json]]:
        model = fake.find(body.get("model"))
        if model is None:
            return 404, {"error": f"model '{tagged(str(body.get('model')))}' not found"}
        if self.path == "/api/show":
            verbose = body.get("verbose") is True
            return (
                (500, {"error": "no such blob"})
                if fake.fault == "no_show"
                else (200, fake.show(model, verbose=verbose))
            )
        if fake.fault == "load_fails":
            return 500, {"error": "model requires more system memory\nthan is available"}
        if not isinstance(body.get("options", {}).get("num_ctx", 1), int):
            return 500, {"error": 'option "num_ctx" must be of type integer'}
        if self.path == "/api/chat" and body.get("messages"):
            return fake.chat(model, body)
        if leaves := body.get("keep_alive") == 0:
            fake.resident.pop(model.blob, None)
        else:
            fake.use(model, body)
        return 200, {
            "model": body["model"],
            "response": "",
            "done": True,
            "done_reason": "unload" if leaves else "load",
        }

    def send(self, status: int, content: str, kind: str = "application/json; charset=utf-8", times: int = 1) -> None:
        self.send_response_only(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(content) * times))
        self.end_headers()
        with suppress(OSError):  # a client that has heard enough leaves
            for _ in range(times):
                self.wfile.write(content.encode())

    def log_message(self, *_: object) -> None:
        pass


class Server(ThreadingHTTPServer):
    """Keeps the fake, and threads that end with it."""

    request_queue_size = 50
    daemon_threads = False

    def __init__(self, fake: Fake, port: int) -> None:
        super().__init__(("127.0.0.1", port), Http)
        self.fake = fake
        fake.url = f"http://127.0.0.1:{self.server_port}"


@contextmanager
def running(fake: Fake, port: int = 0) -> Iterator[Fake]:
    """Serves until the block ends."""
    with Server(fake, port) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield fake
        finally:
            fake.stopping.set()
            server.shutdown()
            thread.join()


def main() -> None:
    parser = argparse.ArgumentParser(description="Serve a fake Ollama.")
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--fault", choices=FAULTS)
    options = parser.parse_args()
    with running(Fake(fault=options.fault), options.port) as fake, suppress(KeyboardInterrupt):
        sys.stdout.write(f"{fake.url}\n")
        sys.stdout.flush()
        threading.Event().wait()


if __name__ == "__main__":
    main()
