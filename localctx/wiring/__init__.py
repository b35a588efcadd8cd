"""The composition root: the only modules that know the concrete classes."""

from localctx.wiring.chatting import connect, open_chat
from localctx.wiring.compacting import settle
from localctx.wiring.places import catalog, home, journal, model_store, policy, settings
from localctx.wiring.probing import ask_all, probe, verify_all

__all__ = [
    "ask_all",
    "catalog",
    "connect",
    "home",
    "journal",
    "model_store",
    "open_chat",
    "policy",
    "probe",
    "settings",
    "settle",
    "verify_all",
]
