"""Answers of real servers, as they were on the wire, and a transport that replays them."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TypeAlias

import httpx

Json: TypeAlias = dict[str, Any]

_ROOT = Path(__file__).parent
_NOT_FOUND = "llama-server-b11434/40-404"
_FRAMING = {"content-length", "transfer-encoding", "content-encoding", "connection"}


def load(name: str) -> Json:
    """One recording, by file name without its suffix; the folder may be left out where the name is unique."""
    found = sorted(_ROOT.glob(f"{name}.json" if "/" in name else f"*/{name}.json"))
    if len(found) != 1:
        raise LookupError(f"{len(found)} recordings are named {name!r}")
    recording: Json = json.loads(found[0].read_text(encoding="utf-8"))
    return recording


def transport(*names: str) -> httpx.MockTransport:
    """Replays the recordings by method, path and query.

    Several answers to the same request come in the order of `names`, and the last one repeats. A request that was not
    recorded gets the 404 of a real llama-server.
    """
    answers: dict[tuple[str, str], list[Json]] = {}
    for name in names:
        for method, path, said in _exchanges(load(name)):
            answers.setdefault((method, path), []).append(said)
    not_found: Json = load(_NOT_FOUND)["response"]

    def answer(request: httpx.Request) -> httpx.Response:
        queue = answers.get((request.method, request.url.raw_path.decode()), [not_found])
        return _response(queue.pop(0) if len(queue) > 1 else queue[0])

    return httpx.MockTransport(answer)


def _exchanges(recording: Json) -> Iterator[tuple[str, str, Json]]:
    if "request" in recording:
        yield recording["request"]["method"], recording["request"]["path"], recording["response"]
    for request, answer in recording.get("responses", {}).items():
        method, path, *variant = request.split()
        if not variant:  # a variant of a request that is already there, such as an over-long one, is only for `load`
            yield method, path, {"status": answer["status"], "headers": answer["headers"], "json": answer["body"]}


def _response(answer: Json) -> httpx.Response:
    if "sse" in answer:
        content = "".join(f"{line}\n\n" for line in answer["sse"])
    elif "text" in answer:
        content = answer["text"]
    else:
        content = json.dumps(answer["json"], ensure_ascii=False, separators=(",", ":"))
    headers = {key: value for key, value in answer["headers"].items() if key.lower() not in _FRAMING}
    return httpx.Response(answer["status"], headers=headers, content=content.encode())
