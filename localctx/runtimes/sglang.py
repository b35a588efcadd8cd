"""SGLang: the window is what its memory pool holds (`/server_info`), whatever `/v1/models` says."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import msgspec

from localctx.core.window import Advice, ModelReport, Reading, ServerReport, Source, Status, reconcile
from localctx.errors import LocalctxError
from localctx.runtimes.server import clamped, decoded, trouble
from localctx.runtimes.vllm import Card, Cards, own_or_parent

if TYPE_CHECKING:
    from localctx.runtimes.server import Pins, Server

__all__ = ["read"]

_BEYOND_INPUT = 5
"""Prompt and reply may together take this many tokens more than `max_req_input_len` (measured: pool 1,000, limit 994)."""

_REPLY_MARGIN = 6
"""`max_req_input_len` itself is refused already, so that the longest prompt is the window less 6."""


class _Info(msgspec.Struct):
    max_req_input_len: int = 0
    max_total_num_tokens: int = 0
    allow_auto_truncate: bool = False
    version: str | None = None


async def read(server: Server, pins: Pins) -> ServerReport | None:
    """The report of an SGLang; None where another program answers."""
    info = await server.json("/server_info", _Info)
    try:
        answer = await server.get("/v1/models")
        cards = decoded(answer, Cards).data
    except (LocalctxError, msgspec.ValidationError):
        return None
    if await _asks_for_a_key(server):
        return trouble("sglang", server.url, answer)
    if not any(card.owned_by == "sglang" for card in cards):
        return None
    pool = info.max_total_num_tokens if info else await _pool(server)
    models = tuple(_model(card, own_or_parent(card, cards), info, pool, pins) for card in cards)
    return ServerReport("sglang", server.url, Status.UP, info.version if info else None, models=models)


async def _asks_for_a_key(server: Server) -> bool:
    """With a key SGLang guards `/` and `/server_info` too, which no other server does with this answer."""
    try:
        answers = [await server.get(path) for path in ("/v1/models", "/server_info")]
    except LocalctxError:
        return False
    return all(answer.status == 401 and answer.body == {"error": "Unauthorized"} for answer in answers)  # noqa: PLR2004


_METRIC = re.compile(r"^sglang:max_total_num_tokens\{[^}\n]*\} (\d{1,12})(?:\.0)?$", re.MULTILINE)


async def _pool(server: Server) -> int:
    """The pool as `/metrics` says it, where `/server_info` cannot be had; 0 where nobody says it."""
    try:
        answer = await server.get("/metrics")
    except LocalctxError:
        return 0
    found = _METRIC.search(answer.body) if isinstance(answer.body, str) else None
    return int(found[1]) if found else 0


def _model(card: Card, stated: int, info: _Info | None, pool: int, pins: Pins) -> ModelReport:
    readings = [Reading(Source.CONFIGURED, stated, "sglang /v1/models max_model_len", "the flag, not the memory pool")]
    if info is not None and info.max_req_input_len > 0:
        tokens = info.max_req_input_len + _BEYOND_INPUT
        readings.append(Reading(Source.SERVED, tokens, "sglang /server_info max_req_input_len + 5"))
    elif pool > 0:
        readings.append(Reading(Source.CONFIGURED, pool - 2, "sglang /metrics max_total_num_tokens - 2"))
    readings += [pins.pin] if pins.pin else []
    window = reconcile(readings, ceiling=pins.ceiling, reply_margin=_REPLY_MARGIN)
    return ModelReport(
        id=card.id,
        loaded=True,
        window=window,
        shared_pool=pool or None,
        warnings=(
            *clamped(pins.pin, window.tokens, "are served"),
            *_small_pool(pool, stated),
            *(_TRUNCATES if info and info.allow_auto_truncate else ()),
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
