"""SGLang: the window is what its memory pool holds (`/server_info`), whatever `/v1/models` says."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import msgspec

from localctx.core.window import Advice, ModelReport, Reading, ServerReport, Source, Status, reconcile
from localctx.errors import LocalctxError
from localctx.runtimes.openai import tokens, unknown
from localctx.runtimes.server import clamped, served, trouble
from localctx.runtimes.vllm import owned, windows

if TYPE_CHECKING:
    from localctx.runtimes.server import Pins, Server
    from localctx.runtimes.vllm import Card

__all__ = ["cut_points", "imposed", "read"]

_BEYOND_INPUT = 5
"""Prompt and reply may together take this many tokens more than `max_req_input_len` (measured: pool 1,000, limit 994)."""

_MARGIN = 6
"""`max_req_input_len` itself is refused already, so that the longest prompt is the window less 6."""

_STATED_MARGIN = 7
"""The longest prompt is 7 less than the context or the pool, whichever is smaller; what they are, not what is served."""


class _Info(msgspec.Struct):
    max_req_input_len: object = None
    max_total_num_tokens: object = None
    allow_auto_truncate: object = None
    version: str | None = None


async def read(server: Server, pins: Pins) -> ServerReport | None:
    """The report of an SGLang; None where another program answers."""
    cards = await owned(server, "sglang")
    if not cards:
        return await _closed(server)
    info = await server.json("/server_info", _Info) or _Info()
    pool = tokens(info.max_total_num_tokens) or await _pool(server)
    models = tuple(_model(card, stated, info, pool, pins) for card, stated in zip(cards, windows(cards), strict=True))
    return ServerReport("sglang", server.url, Status.UP, info.version, models=models)


async def _closed(server: Server) -> ServerReport | None:
    """With a key SGLang guards `/server_info` as well, with the same words."""
    models = await server.get("/v1/models")
    if models.status != 401 or models.headers.get("server") != "uvicorn":  # noqa: PLR2004
        return None
    info = await server.get("/server_info")
    guarded = info.status == 401 and info.body == models.body == {"error": "Unauthorized"}  # noqa: PLR2004
    return trouble("sglang", server.url, models) if guarded else None


def cut_points(window: int) -> tuple[int, ...]:
    """With `--allow-auto-truncate`, `max_req_input_len`: the end is dropped (measured: 294 of 479 left at a window of 299)."""
    return (max(window - _BEYOND_INPUT, 1),)


def imposed(grammar: str) -> dict[str, object]:
    """How a request says the grammar of its reply (its own field, `ebnf` of `ChatCompletionRequest`)."""
    return {"ebnf": grammar}


_METRIC = re.compile(r"^sglang:max_total_num_tokens\{.*\} ([0-9.e+]{1,20})$", re.MULTILINE)


async def _pool(server: Server) -> int:
    """The pool as `/metrics` says it (a million is 1e+06 there); 0 where nobody says it."""
    try:
        answer = await server.get("/metrics")
        found = _METRIC.search(answer.body) if isinstance(answer.body, str) else None
        return tokens(float(found[1])) if found else 0
    except (LocalctxError, ValueError):
        return 0


def _model(card: Card, stated: int, info: _Info, pool: int, pins: Pins) -> ModelReport:
    limit = tokens(info.max_req_input_len)
    readings = [
        Reading(Source.SERVED, limit + _BEYOND_INPUT if limit else 0, "sglang /server_info max_req_input_len + 5"),
        Reading(Source.CONFIGURED, stated, "sglang /v1/models max_model_len", "its setting, not its memory pool"),
        Reading(Source.CONFIGURED, pool, "sglang max_total_num_tokens", "its memory pool"),
    ]
    readings += [pins.pin] if pins.pin else []
    window = reconcile(readings, ceiling=pins.ceiling, reply_margin=_MARGIN if limit else _STATED_MARGIN)
    return ModelReport(
        id=card.id,
        loaded=True,
        window=window,
        shared_pool=pool or None,
        warnings=(
            *unknown(window),
            *clamped(pins.pin, served(window.readings), "are served"),
            *_small_pool(pool, stated),
            *(_TRUNCATES if info.allow_auto_truncate is True else ()),
        ),
    )


def _small_pool(pool: int, stated: int) -> tuple[Advice, ...]:
    if not 0 < pool < stated:
        return ()
    text = f"/v1/models says {stated:,}, but its memory pool holds {pool:,} tokens"
    return (Advice("small-pool", text, "raise --mem-fraction-static, or lower --context-length to what is there"),)


_TRUNCATES = (
    Advice(
        "auto-truncate",
        "it cuts the end of what is too long in silence (--allow-auto-truncate)",
        "restart it without --allow-auto-truncate",
    ),
)
