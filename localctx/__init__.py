"""Finds out how much context a local model is really served with, and keeps a long run inside it.

Importing loads nothing: each name below is fetched from its module when it is first used.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from localctx.app.chat import Chat
    from localctx.core.events import (
        Drafting,
        Event,
        Notice,
        Prefilling,
        PressureRaised,
        RequestSent,
        RungBegun,
        RungTaken,
        Text,
        Thinking,
        ToolAnswered,
        ToolCalled,
        Truncated,
        TurnEnded,
        UsageReported,
        WindowProbed,
    )
    from localctx.core.ladder import Policy
    from localctx.core.messages import History
    from localctx.core.window import EffectiveWindow, ModelReport, ServerReport
    from localctx.errors import LocalctxError
    from localctx.ports import Counter, Request
    from localctx.wiring import connect, probe, settle

__all__ = [
    "Chat",
    "Counter",
    "Drafting",
    "EffectiveWindow",
    "Event",
    "History",
    "LocalctxError",
    "ModelReport",
    "Notice",
    "Policy",
    "Prefilling",
    "PressureRaised",
    "Request",
    "RequestSent",
    "RungBegun",
    "RungTaken",
    "ServerReport",
    "Text",
    "Thinking",
    "ToolAnswered",
    "ToolCalled",
    "Truncated",
    "TurnEnded",
    "UsageReported",
    "WindowProbed",
    "connect",
    "probe",
    "settle",
]
__version__ = "0.1.0"

_HOMES = {
    "Chat": "localctx.app.chat",
    "Counter": "localctx.ports",
    "EffectiveWindow": "localctx.core.window",
    "History": "localctx.core.messages",
    "LocalctxError": "localctx.errors",
    "ModelReport": "localctx.core.window",
    "Policy": "localctx.core.ladder",
    "Request": "localctx.ports",
    "ServerReport": "localctx.core.window",
    "connect": "localctx.wiring",
    "probe": "localctx.wiring",
    "settle": "localctx.wiring",
}


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module 'localctx' has no attribute {name!r}")
    return getattr(import_module(_HOMES.get(name, "localctx.core.events")), name)
