"""The speeds that `localctx bench server` measured of one model on one server from this machine, kept for runs to begin with."""

from __future__ import annotations

from contextlib import closing

from localctx.core.cost import Speeds
from localctx.hardware.machine import processors
from localctx.wiring.places import calibrations

__all__ = ["keep_speeds", "measured_speeds"]


def measured_speeds(identity: str) -> Speeds | None:
    """What was measured last; None where nothing was, or it cannot be read."""
    with closing(calibrations()) as store:
        return Speeds.restored(store.load(_key(identity)) or "")


def keep_speeds(identity: str, speeds: Speeds) -> bool:
    """Keeps what was measured, in place of what was before; whether it is kept."""
    with closing(calibrations()) as store:
        return store.save(_key(identity), speeds.kept())


def _key(identity: str) -> str:
    return f"speeds {identity} {processors()}"
