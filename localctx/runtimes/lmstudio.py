"""LM Studio, from its documentation: nothing here was seen on the wire, so its readings stay provisional."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from localctx.core.window import ModelReport, Reading, ServerReport, Source, Status, reconcile

if TYPE_CHECKING:
    from localctx.runtimes.server import Pins, Server

__all__ = ["read"]


class _Model(msgspec.Struct):
    id: str = ""
    type: str = ""
    state: str = ""
    max_context_length: int = 0
    loaded_context_length: int = 0


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
    readings = [
        Reading(Source.CONFIGURED, model.loaded_context_length, "lmstudio /api/v0/models loaded_context_length"),
        Reading(Source.TRAINED, model.max_context_length, "lmstudio /api/v0/models max_context_length"),
    ]
    readings += [pins.pin] if pins.pin else []
    return ModelReport(
        id=model.id,
        loaded=model.state == "loaded",
        window=reconcile(readings, ceiling=pins.ceiling),
        trained=max(model.max_context_length, 0) or None,
    )
