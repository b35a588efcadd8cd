"""LM Studio, from its documentation: nothing here was seen on the wire, so its readings stay provisional."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from localctx.core.window import ModelReport, Reading, ServerReport, Source, Status, reconcile
from localctx.runtimes.openai import tokens, unknown

if TYPE_CHECKING:
    from localctx.runtimes.server import Pins, Server

__all__ = ["read"]


class _Model(msgspec.Struct):
    id: str
    state: str
    type: str = ""
    max_context_length: object = None
    loaded_context_length: object = None
    capabilities: object = None


class _Models(msgspec.Struct):
    data: list[_Model]


async def read(server: Server, pins: Pins) -> ServerReport | None:
    """The report of an LM Studio; None where another program answers."""
    listed = await server.json("/api/v0/models", _Models)
    if listed is None:
        return None
    models = tuple(_model(model, pins) for model in listed.data if model.type != "embeddings")
    return ServerReport("lmstudio", server.url, Status.UP, models=models)


def _model(model: _Model, pins: Pins) -> ModelReport:
    loaded, trained = model.state == "loaded", tokens(model.max_context_length)
    now = tokens(model.loaded_context_length) if loaded else 0
    readings = [
        Reading(Source.CONFIGURED, now, "lmstudio /api/v0/models loaded_context_length"),
        Reading(Source.TRAINED, trained, "lmstudio /api/v0/models max_context_length"),
    ]
    readings += [pins.pin] if pins.pin else []
    window = reconcile(readings, ceiling=pins.ceiling)
    return ModelReport(
        id=model.id,
        loaded=loaded,
        window=window,
        trained=trained or None,
        calls_tools=_calls_tools(model.capabilities),
        warnings=unknown(window),
    )


def _calls_tools(capabilities: object) -> bool | None:
    """True where `tool_use` is listed (since 0.3.16). Others are given tools as well, in words: how well they call them is unknown."""
    return True if isinstance(capabilities, list) and "tool_use" in capabilities else None
