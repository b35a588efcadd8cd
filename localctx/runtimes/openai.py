"""Any other OpenAI-compatible server: what `/v1/models` happens to say, which nobody has confirmed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import msgspec

from localctx.core.window import Advice, ModelReport, Reading, ServerReport, Source, Status, reconcile
from localctx.errors import LocalctxError
from localctx.runtimes.server import half_cuts, trouble

if TYPE_CHECKING:
    from localctx.core.window import EffectiveWindow
    from localctx.runtimes.server import Pins, Server

__all__ = ["cut_points", "read", "tokens", "unknown"]

_FIELDS = ("max_model_len", "context_length", "max_context_length", "context_window", "max_input_tokens")
"""Where proxies and servers put a window; LiteLLM's `max_input_tokens` is what it read from the server behind it."""


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
            named = [card for card in cards if isinstance(card, dict) and isinstance(card.get("id"), str)]
            models = tuple(_model(card, pins) for card in named)
            return ServerReport("openai", server.url, Status.UP, models=models)
    return None


def cut_points(window: int) -> tuple[int, ...]:
    """Where an unknown server may cut in silence: at the window, or, as Ollama behind `/v1` does, to half of it."""
    return half_cuts(window)


_Tokens = Annotated[int, msgspec.Meta(gt=0, lt=2**31)]


def tokens(value: object) -> int:
    """A number of tokens as a server says it; 0 where it is none: absent, null, negative, odd or beyond any window."""
    try:
        return msgspec.convert(value, _Tokens, strict=False)
    except msgspec.ValidationError:
        return 0


def unknown(window: EffectiveWindow) -> tuple[Advice, ...]:
    """The warning that nobody says the window."""
    if window.tokens is not None:
        return ()
    text, fix = "the server states no window for it", "pass --num-ctx with what it was started with"
    return (Advice("unknown-window", text, fix),)


def _model(card: dict[str, object], pins: Pins) -> ModelReport:
    readings = [Reading(Source.CONFIGURED, tokens(card.get(name)), f"openai /v1/models {name}") for name in _FIELDS]
    readings += [pins.pin] if pins.pin else []
    window = reconcile(readings, ceiling=pins.ceiling)
    return ModelReport(str(card["id"]), loaded=True, window=window, warnings=unknown(window))
