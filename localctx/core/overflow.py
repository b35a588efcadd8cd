"""What a server's error body means: a prompt too long, an output cap, a full pool, or something else altogether.

Only error bodies are classified, never content. Structured fields win over text; the status alone proves nothing.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from enum import StrEnum

__all__ = ["Kind", "Verdict", "classify"]


class Kind(StrEnum):
    """What went wrong."""

    PROMPT_TOO_LONG = "prompt_too_long"
    OUTPUT_CAP = "output_cap"
    POOL_EXHAUSTED = "pool_exhausted"
    SERVER_MEMORY = "server_memory"
    BAD_HISTORY = "bad_history"
    BAD_REQUEST = "bad_request"
    UNAUTHORIZED = "unauthorized"
    MODEL_MISSING = "model_missing"
    RETRY = "retry"
    SERVER_ERROR = "server_error"
    OK = "ok"


@dataclass(frozen=True, slots=True)
class Verdict:
    """The kind, the window that the server states (`exclusive`: it is itself refused), the prompt's size, the message."""

    kind: Kind
    message: str = ""
    limit: int | None = None
    exclusive: bool = False
    prompt: int | None = None
    prompt_is_lower_bound: bool = False
    output: int | None = None

    @property
    def output_that_fits(self) -> int | None:
        """The `max_tokens` that the server's own numbers leave, for an output cap."""
        return None if self.limit is None or self.prompt is None else self.limit - self.prompt


_TOO_LONG = (
    r"request \((?P<prompt>\d+) tokens\) exceeds the available context size \((?P<limit>\d+) tokens\)",
    r"exceeds the available context size",
    r"the prompt is longer than the context length currently available",
    r"n_keep: (?P<prompt>\d+) >= n_ctx: (?P<limit>\d+)",
    r"maximum context length is (?P<limit>\d+) tokens\. However, your prompt contains \d+ characters",
    r"maximum context length is (?P<limit>\d+) tokens\. However, you requested 0 output tokens and your prompt contains at least (?P<least>\d+)",
    r"maximum context length is (?P<limit>\d+) tokens\. However, your prompt contains at least (?P<least>\d+)",
    r"input \((?P<prompt>\d+) tokens\) is longer than the model's context length \((?P<limit>\d+) tokens\)",
    r"Input length \((?P<prompt>\d+) tokens\) exceeds the maximum allowed length \((?P<exclusive>\d+) tokens\)",
    r"Prompt too long: (?P<prompt>\d+) tokens exceeds max context window of (?P<limit>\d+)",
    r"max_tokens must be at least 1, got 0",
)

_CAPPED = (
    r"is too large: (?P<output>\d+)\. This model's maximum context length is (?P<limit>\d+) tokens and your request has (?P<prompt>\d+) input",
    r"maximum context length of (?P<limit>\d+) tokens\. You requested a total of \d+ tokens: (?P<prompt>\d+) tokens from the input messages and (?P<output>\d+)",
    r"maximum context length is (?P<limit>\d+) tokens\. However, you requested (?P<output>[1-9]\d*) output tokens and your prompt contains at least (?P<least>\d+)",
    r"maximum context length is (?P<limit>\d+) tokens\. However, you requested \d+ tokens \((?P<prompt>\d+) in the messages, (?P<output>\d+) in the completion\)",
    r"max_tokens=(?P<output>\d+) cannot be greater than max_model_len=(?P<limit>\d+)",
    r"max_completion_tokens is too large: (?P<output>\d+)\.\s*This model supports at most \d+",
)

_OTHER = (
    (Kind.POOL_EXHAUSTED, r"^Context size has been exceeded\.?$"),
    (
        Kind.SERVER_MEMORY,
        r"out of memory|free memory|insufficient memory|memory .{0,40}ceiling|unable to allocate|CUDA error",
    ),
    (
        Kind.BAD_HISTORY,
        r"Jinja Exception|conversation roles must alternate|No tool call found|tool_call_id|role .{0,20}alternat",
    ),
    (Kind.RETRY, r"^Loading model|model is loading|is not ready"),
)


def classify(status: int, body: object) -> Verdict:
    """What an error body says. `body` is its JSON, or its text; a body without an error and a good status is `OK`."""
    error = _error(body)
    if error is None and status < 400:  # noqa: PLR2004  HTTP: from 400 on, errors
        return Verdict(Kind.OK)
    text, fields = _unwrap(error if error is not None else body)
    limit, prompt = fields.get("n_ctx"), fields.get("n_prompt_tokens")
    if isinstance(limit, int) and isinstance(prompt, int):
        return Verdict(Kind.PROMPT_TOO_LONG, text, limit, prompt=prompt)
    for kind, patterns in ((Kind.OUTPUT_CAP, _CAPPED), (Kind.PROMPT_TOO_LONG, _TOO_LONG)):
        if verdict := _numbers(kind, patterns, text):
            return verdict
    other = next((kind for kind, pattern in _OTHER if re.search(pattern, text, re.IGNORECASE)), None)
    return Verdict(other or _by_status(status, text), text)


def _numbers(kind: Kind, patterns: tuple[str, ...], text: str) -> Verdict | None:
    found = next((match for pattern in patterns if (match := re.search(pattern, text))), None)
    if found is None:
        return None
    said = {name: int(value) for name, value in found.groupdict().items()}
    limit, prompt = said.get("limit", said.get("exclusive")), said.get("prompt", said.get("least"))
    if kind is Kind.OUTPUT_CAP and prompt is not None and limit is not None and prompt >= limit:
        kind = Kind.PROMPT_TOO_LONG
    return Verdict(kind, text, limit, "exclusive" in said, prompt, "least" in said, said.get("output"))


def _by_status(status: int, text: str) -> Kind:
    if status in {401, 403}:
        return Kind.UNAUTHORIZED
    if status == 404:  # noqa: PLR2004
        return Kind.MODEL_MISSING
    if re.search(r"model .{0,80}not found", text):
        return Kind.MODEL_MISSING
    if status in {429, 502, 503, 504}:
        return Kind.RETRY
    return Kind.BAD_REQUEST if 400 <= status < 500 else Kind.SERVER_ERROR  # noqa: PLR2004


def _error(body: object) -> object:
    """The part of a body that is an error: `error`, or a body that calls itself one."""
    match body:
        case {"error": (str() | dict()) as error} if error:
            return error
        case {"object": "error"} | {"type": "error"}:
            return body
        case {"detail": (str() | list() | dict()) as detail}:
            return detail if isinstance(detail, dict) else str(detail)
    return None


_DEPTH = 4


def _unwrap(error: object, depth: int = 0) -> tuple[str, dict[str, object]]:
    """The innermost message and its fields: proxies and Ollama wrap one error's JSON in another's text."""
    fields = error if isinstance(error, dict) else {}
    text = str(fields.get("message", "")) if fields else error if isinstance(error, str) else str(error)
    start = text.find("{")
    if start < 0 or depth >= _DEPTH:
        return text[:2000], dict(fields)
    try:
        inner, _ = json.JSONDecoder().raw_decode(text[start:])
    except (ValueError, RecursionError):
        return text[:2000], dict(fields)
    nested = _error(inner)
    return _unwrap(nested, depth + 1) if nested is not None else (text[:2000], dict(fields))
