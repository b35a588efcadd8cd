"""The speeds that `localctx bench server` measured of one model on one server from this machine, kept for runs to begin with."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING

from localctx.core.cost import Speeds
from localctx.hardware.machine import processors
from localctx.wiring.places import calibrations

if TYPE_CHECKING:
    from localctx.core.window import ModelReport
    from localctx.stores.calibration import Calibrations
    from localctx.wiring.probing import Talking

__all__ = ["keep_speeds", "measured_speeds", "speeds_key"]


def speeds_key(runtime: Talking, model: ModelReport, version: str | None, here: str | None = None) -> str:
    """What speeds are kept by: the server's address and build, the weights, and what computes `here`, on this machine by default.

    The embedded runtime, whose port is another each time, goes by its kind alone.
    """
    where = runtime.kind if runtime.kind == "embedded" else f"{runtime.kind} {runtime.url}"
    weights = model.digest or f"{model.id} {model.model_bytes}"
    return f"{where} {version} {weights} {model.template} {here or processors()}"


def measured_speeds(key: str) -> Speeds | None:
    """What was measured last, quickly only where nothing else was; None where nothing was, or it cannot be read."""
    with closing(calibrations()) as store:
        return _kept(store, _WHOLE, key) or _kept(store, _QUICK, key)


def keep_speeds(key: str, speeds: Speeds, *, quick: bool) -> str:
    """Keeps what was measured, in place of what was before, but never a quick measuring in place of a whole one; what runs do now."""
    with closing(calibrations()) as store:
        if quick and _kept(store, _WHOLE, key):
            return "runs with this model begin with the speeds of an earlier benchmark that was not quick"
        if not store.save(f"{_QUICK if quick else _WHOLE} {key}", speeds.kept()):
            return "these speeds could not be kept for runs to begin with"
    return "runs with this model begin with these speeds"


_WHOLE, _QUICK = "speeds", "quick speeds"


def _kept(store: Calibrations, what: str, key: str) -> Speeds | None:
    return Speeds.restored(store.load(f"{what} {key}") or "")
