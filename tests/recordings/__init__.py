"""Answers of real servers, as they were on the wire, and a transport that replays them."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TypeAlias

import httpx

Json: TypeAlias = dict[str, Any]

_ROOT = Path(__file__).parent
_NOT_FOUND = {
    "ollama": "ollama-0.33.0-rc2/54-unknown-path-tokenize",
    "vllm": "vllm-0.32.0/15d-unknown-route",
    "sglang": "sglang-0.5.23/04-version",
    "routers": "routers/litellm-1.108.7/02-get-version",
}
"""How each server says that it has no such path, by the beginning of a recording's name; others do as llama-server."""

_FRAMING = {"content-length", "transfer-encoding", "content-encoding", "connection"}


def load(name: str) -> Json:
    """One recording, by file name without its suffix; the folder may be left out where the name is unique."""
    found = sorted(_ROOT.glob(f"{name}.json" if "/" in name else f"*/{name}.json"))
    if len(found) != 1:
        raise LookupError(f"{len(found)} recordings are named {name!r}")
    recording: Json = json.loads(found[0].read_text(encoding="utf-8"))
    return recording


def body(name: str) -> Any:  # noqa: ANN401  JSON
    """What the recorded answer says, whichever way it was written down."""
    return _said(load(name)["response"])


def transport(*names: str) -> httpx.MockTransport:
    """Replays the recordings by method, path and query, and a POST about one model by that model too.

    Several answers to the same request come in the order of `names`, and the last one repeats. A request that was not
    recorded gets the 404 of a real server: of the one that the first recording comes from.
    """
    answers: dict[tuple[str, str, str], list[Json]] = {}
    for name in names:
        for method, path, asked, said in _exchanges(load(name)):
            answers.setdefault((method, path, _subject(asked)), []).append(said)
    not_found: Json = load(_NOT_FOUND.get(names[0].partition("-")[0].partition("/")[0], "llama-server-b11434/40-404"))

    def answer(request: httpx.Request) -> httpx.Response:
        method, path = request.method, request.url.raw_path.decode()
        asked = json.loads(request.content) if request.content else None
        queue = answers.get((method, path, _subject(asked))) or answers.get((method, path, ""))
        queue = queue or [not_found["response"]]
        return _response(queue.pop(0) if len(queue) > 1 else queue[0])

    return httpx.MockTransport(answer)


def _subject(asked: object) -> str:
    """The model that a request is about, where it says nothing else, as Ollama's `/api/show`."""
    match asked:
        case {"model": str(model), **more} if not more:
            return model.removesuffix(":latest")
    return ""


def _exchanges(recording: Json) -> Iterator[tuple[str, str, object, Json]]:
    if "request" in recording:
        request = recording["request"]
        yield request["method"], request["path"], request.get("body"), recording["response"]
    for line, answer in recording.get("responses", {}).items():
        method, path, *variant = line.split()
        if not variant:  # a variant of a request that is already there, such as an over-long one, is only for `load`
            yield method, path, None, {"status": answer["status"], "headers": answer["headers"], "json": answer["body"]}


def _said(answer: Json) -> Any:  # noqa: ANN401  JSON
    match answer:
        case {"body": {"ndjson": list(lines)}}:
            return "".join(f"{json.dumps(line)}\n" for line in lines)
        case {"json": said} | {"text": str(said)} | {"body": {"text": str(said)}} | {"body": said}:
            return said
        case {"text_lines": list(lines)}:
            return "\n".join(lines)
        case {"sse_raw_lines": list(lines)}:
            return "\n".join(lines)
        case {"sse": list(lines)}:
            return "".join(f"{line}\n\n" for line in lines)
    raise LookupError(f"this answer holds none of the known bodies: {sorted(answer)}")


def _response(answer: Json) -> httpx.Response:
    said = _said(answer)
    plain = isinstance(said, str) and "json" not in answer
    content = said if plain else json.dumps(said, ensure_ascii=False, separators=(",", ":"))
    headers = {key: value for key, value in answer["headers"].items() if key.lower() not in _FRAMING}
    return httpx.Response(answer["status"], headers=headers, content=content.encode())
