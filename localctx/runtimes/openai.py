"""Any other OpenAI-compatible server: what `/v1/models` happens to say, which nobody has confirmed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from localctx.core.window import Advice, ModelReport, Reading, ServerReport, Source, Status, reconcile
from localctx.errors import LocalctxError
from localctx.runtimes.server import trouble

if TYPE_CHECKING:
    from localctx.runtimes.server import Pins, Server

__all__ = ["read"]

_FIELDS = ("max_model_len", "context_length", "max_context_length", "context_window", "max_input_tokens")
"""Where proxies and servers put a window; LiteLLM's `max_input_tokens` is what it read from the server behind it."""

_MOST_MODELS = 1000


async def read(server: Server, pins: Pins) -> ServerReport | None:
    """The report of a server that lists models as OpenAI does; None where it does not."""
    try:
        answer = await server.get("/v1/models")
    except LocalctxError:
        return None
    if closed := trouble(None, server.url, answer):
        return closed
    match answer.body:
        case {"data": list(cards)} if answer.status == 200:  # noqa: PLR2004
            named = [
                card for card in cards[:_MOST_MODELS] if isinstance(card, dict) and isinstance(card.get("id"), str)
            ]
            models = tuple(_model(card, pins) for card in named)
            return ServerReport("openai", server.url, Status.UP, models=models)
    return None


def _model(card: dict[str, object], pins: Pins) -> ModelReport:
    stated = ((name, card.get(name)) for name in _FIELDS)
    readings = [
        Reading(Source.CONFIGURED, value, f"/v1/models {name}")
        for name, value in stated
        if isinstance(value, int) and not isinstance(value, bool)
    ]
    readings += [pins.pin] if pins.pin else []
    window = reconcile(readings, ceiling=pins.ceiling)
    unknown = Advice(
        "unknown-window", "the server states no window for it", "pass --num-ctx with what it was started with"
    )
    return ModelReport(str(card["id"]), loaded=True, window=window, warnings=() if window.tokens else (unknown,))
