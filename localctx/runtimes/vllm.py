"""vLLM: `/v1/models` says the window, `/metrics` the pool of cache that all requests share."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import msgspec

from localctx.core.window import Advice, ModelReport, Reading, ServerReport, Source, Status, reconcile
from localctx.errors import LocalctxError
from localctx.runtimes.openai import tokens, unknown
from localctx.runtimes.server import clamped, trouble

if TYPE_CHECKING:
    from localctx.runtimes.server import Pins, Server

__all__ = ["Card", "cut_points", "imposed", "owned", "read", "windows"]


class Card(msgspec.Struct):
    """A model as vLLM and SGLang list it; an adapter has a parent, and no `max_model_len`."""

    id: str = ""
    owned_by: str | None = None
    parent: str | None = None
    max_model_len: object = None


class _Cards(msgspec.Struct):
    data: list[Card] = []


class _Version(msgspec.Struct):
    version: str


async def read(server: Server, pins: Pins) -> ServerReport | None:
    """The report of a vLLM; None where another program answers."""
    cards = await owned(server, "vllm")
    if not cards and (await server.get("/v1/models")).status not in _CLOSED:
        return None
    version = await server.json("/version", _Version)
    if not cards:  # with a key vLLM guards /v1 alone
        return trouble("vllm", server.url, await server.get("/v1/models")) if version else None
    pool = await _pool(server)
    models = tuple(_model(card, window, pool, pins) for card, window in zip(cards, windows(cards), strict=True))
    return ServerReport("vllm", server.url, Status.UP, version.version if version else None, models=models)


_CLOSED = {401, 403, 503}


async def owned(server: Server, owner: str) -> list[Card]:
    """The models that are listed, where `owner` is the program that lists them; else none."""
    listed = await server.json("/v1/models", _Cards)
    cards = listed.data if listed else []
    return cards if any(card.owned_by == owner for card in cards) else []


def windows(cards: list[Card]) -> list[int]:
    """The window of each card: its own, or, for an adapter that states none, its parent's; 0 where nobody says it."""
    stated = {card.id: tokens(card.max_model_len) for card in cards}
    return [tokens(card.max_model_len) or stated.get(card.parent or "", 0) for card in cards]


def cut_points(_window: int) -> tuple[int, ...]:
    """None: a prompt that is too long is refused (HTTP 400, also in streams), unless a client asks for a cut, as none here does."""
    return ()


def imposed(grammar: str) -> dict[str, object]:
    """How a request says the grammar of its reply. Releases that do not know the field do not read it."""
    return {"structured_outputs": {"grammar": grammar}}


_INFO = re.compile(r"^vllm:cache_config_info\{(.*)\}", re.MULTILINE)
_LABEL = re.compile(r'(?:^|,)(\w+)="(\d{1,12})"')


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
    blocks, size, said = (labels.get(key, 0) for key in ("num_gpu_blocks", "block_size", "kv_cache_size_tokens"))
    if said and said != blocks * size:
        return said
    return (blocks - 1) * size if blocks > 1 and size else None


def _model(card: Card, stated: int, pool: int | None, pins: Pins) -> ModelReport:
    note = None if tokens(card.max_model_len) or not stated else f"of {card.parent}, whose adapter it is"
    readings = [Reading(Source.SERVED, stated, "vllm /v1/models max_model_len", note)]
    readings += [pins.pin] if pins.pin else []
    window = reconcile(readings, ceiling=pins.ceiling)
    return ModelReport(
        id=card.id,
        loaded=True,
        window=window,
        shared_pool=pool,
        warnings=(*unknown(window), *clamped(pins.pin, stated, "are served"), *_shared(pool, stated)),
    )


def _shared(pool: int | None, window: int) -> tuple[Advice, ...]:
    if pool is None or window <= 0 or pool >= 2 * window:
        return ()
    text = f"its cache of {pool:,} tokens holds {pool / window:.1f} requests of {window:,}: more wait, or are put off mid-stream"
    return (Advice("shared-pool", text, "raise --gpu-memory-utilization, or lower --max-model-len or --max-num-seqs"),)
