"""vLLM: `/v1/models` says the window, `/metrics` the pool of cache that all requests share."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import msgspec

from localctx.core.window import Advice, ModelReport, Reading, ServerReport, Source, Status, reconcile
from localctx.errors import LocalctxError
from localctx.runtimes.server import clamped, decoded, trouble

if TYPE_CHECKING:
    from localctx.runtimes.server import Pins, Server

__all__ = ["Card", "Cards", "own_or_parent", "read"]


class Card(msgspec.Struct):
    """A model as an OpenAI-compatible server lists it; `max_model_len` is None for an adapter."""

    id: str = ""
    owned_by: str = ""
    parent: str | None = None
    max_model_len: int | None = None


class Cards(msgspec.Struct):
    """The answer of `/v1/models`."""

    data: list[Card] = []


class _Version(msgspec.Struct):
    version: str


async def read(server: Server, pins: Pins) -> ServerReport | None:
    """The report of a vLLM; None where another program answers."""
    version = await server.json("/version", _Version)
    try:
        answer = await server.get("/v1/models")
        cards = decoded(answer, Cards).data
    except (LocalctxError, msgspec.ValidationError):
        return None
    if version is not None and (closed := trouble("vllm", server.url, answer)):
        return closed
    if not any(card.owned_by == "vllm" for card in cards):
        return None
    pool = await _pool(server)
    models = tuple(_model(card, own_or_parent(card, cards), pool, pins) for card in cards)
    return ServerReport("vllm", server.url, Status.UP, version.version if version else None, models=models)


def own_or_parent(card: Card, cards: list[Card]) -> int:
    """The window that a card states; an adapter without one has its parent's. 0 where nobody says it."""
    if card.max_model_len is None and card.parent is not None:
        return next((each.max_model_len or 0 for each in cards if each.id == card.parent), 0)
    return card.max_model_len or 0


_INFO = re.compile(r"^vllm:cache_config_info\{([^}\n]*)\}", re.MULTILINE)
_LABEL = re.compile(r'(\w+)="(\d{1,12})"')


async def _pool(server: Server) -> int | None:
    """The tokens of cache that requests share; None where the server does not say.

    One block of the pool is kept back. Where layers differ (sliding windows), blocks are no tokens, and the server's
    own number is taken.
    """
    try:
        answer = await server.get("/metrics")
    except LocalctxError:
        return None
    found = _INFO.search(answer.body) if isinstance(answer.body, str) else None
    labels = {name: int(value) for name, value in _LABEL.findall(found[1])} if found else {}
    blocks, size, tokens = (labels.get(key, 0) for key in ("num_gpu_blocks", "block_size", "kv_cache_size_tokens"))
    if tokens and tokens != blocks * size:
        return tokens
    return (blocks - 1) * size if blocks > 1 and size else None


def _model(card: Card, window: int, pool: int | None, pins: Pins) -> ModelReport:
    note = f"of {card.parent}, whose adapter it is" if card.max_model_len is None and card.parent else None
    readings = [Reading(Source.SERVED, window, "vllm /v1/models max_model_len", note)]
    readings += [pins.pin] if pins.pin else []
    return ModelReport(
        id=card.id,
        loaded=True,
        window=reconcile(readings, ceiling=pins.ceiling),
        shared_pool=pool,
        warnings=(*clamped(pins.pin, window, "are served"), *_shared(pool, window)),
    )


def _shared(pool: int | None, window: int) -> tuple[Advice, ...]:
    if pool is None or window <= 0 or pool >= 2 * window:
        return ()
    text = f"its cache of {pool:,} tokens holds {pool / window:.1f} requests of {window:,}: more wait, or are put off mid-stream"
    return (Advice("shared-pool", text, "raise --gpu-memory-utilization, or lower --max-model-len or --max-num-seqs"),)
