"""The composition root: the only module that knows the concrete classes."""

from __future__ import annotations

import os
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import anyio.from_thread
import anyio.to_thread
from platformdirs import user_config_path, user_data_path

from localctx.app.probe import probe as probe_all
from localctx.config import Settings, load
from localctx.core.ladder import POLICIES, Policy
from localctx.core.window import ModelReport, Reading, ServerReport, Source, Status, reconcile
from localctx.errors import (
    MissingExtra,
    Misuse,
    ModelMissing,
    NothingFound,
    ServerFailed,
    ServerLoading,
    Unauthorized,
    Unreachable,
)
from localctx.hardware.machine import worker_threads
from localctx.runtimes import embedded
from localctx.runtimes.llama_server import LlamaServer, Pins, serves
from localctx.stores.journal import Sessions
from localctx.stores.models import DEFAULT, ModelStore

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Mapping, Sequence

    from localctx.ports import Prober

__all__ = ["Connection", "connect", "home", "model_store", "policy", "probe", "sessions", "settings"]

DEFAULT_ADDRESSES = tuple(f"http://127.0.0.1:{port}" for port in (11434, 8080, 8000, 30000, 1234))
"""Where Ollama, llama-server, vLLM, SGLang and LM Studio listen unless told otherwise; any may be a llama-server."""

_PREFIX = "embedded/"


def home() -> Path:
    """The data directory: LOCALCTX_HOME, or the user's usual one."""
    named = os.environ.get("LOCALCTX_HOME")
    return Path(named).expanduser() if named else user_data_path("localctx")


def model_store() -> ModelStore:
    """The small models in the data directory."""
    return ModelStore(home())


def sessions() -> Sessions:
    """The sessions in the data directory."""
    return Sessions(home())


def settings(flags: Mapping[str, object]) -> Settings:
    """What files, environment and flags add up to."""
    return load(flags, environment=os.environ, project=Path.cwd(), user=user_config_path("localctx"))


def policy(given: Settings) -> Policy:
    """The policy by its name, with the thresholds that were set. Raises `Misuse` for a name or an order that is wrong."""
    name = given.policy or "ladder"
    if name not in POLICIES:
        raise Misuse(f"unknown policy {name!r} ({given.origins['policy']}); known: {', '.join(POLICIES)}")
    wanted = given.thresholds
    changed = (
        {}
        if wanted is None
        else {key: value for key in ("clear", "warn", "compact", "trim") if (value := getattr(wanted, key)) is not None}
    )
    return replace(POLICIES[name], **changed)


@dataclass(frozen=True, slots=True)
class Connection:
    """A runtime, the model on it, and what was said about how it was chosen."""

    runtime: LlamaServer
    model: ModelReport
    notice: str | None = None


# --- probing ------------------------------------------------------------------------------------------------------


async def probe(given: Settings, urls: Sequence[str] = (), *, start: bool = False) -> list[ServerReport]:
    """What the named addresses answer, or all the usual ones; `start` starts the embedded runtime to see its window."""
    addresses = list(urls) or ([given.url] if given.url else [])
    targets: list[Prober] = []
    if given.runtime != "embedded":
        targets += [_server(given, url) for url in addresses or DEFAULT_ADDRESSES]
    if given.runtime == "embedded" or not addresses:
        targets.append(_EmbeddedProbe(given, start=start))
    try:
        return await probe_all(targets)
    finally:
        for target in targets:
            if isinstance(target, LlamaServer):
                await target.close()


class _EmbeddedProbe:
    """What the embedded runtime would serve, or, where it may be started, what it serves."""

    url = "in-process"

    def __init__(self, given: Settings, *, start: bool) -> None:
        self._given, self._start = given, start

    async def probe(self) -> ServerReport:
        if not embedded.available():
            error = str(MissingExtra("embedded", "the embedded runtime"))
            return ServerReport("embedded", self.url, Status.DOWN, error=error)
        if self._start:
            async with _started(self._given, lambda _done, _total: None) as runtime:
                return await runtime.probe()
        store = model_store()
        models = tuple(_cold(self._given, m.name, m.trained) for m in store.known if store.has(m.name))
        return ServerReport("embedded", self.url, Status.UP, models=models)


def _cold(given: Settings, name: str, trained: int) -> ModelReport:
    readings = [
        Reading(
            Source.CONFIGURED, min(embedded.DEFAULT_WINDOW, trained), "localctx's default for the embedded runtime"
        ),
        Reading(Source.TRAINED, trained, "the model's card"),
    ]
    readings += [pin] if (pin := _pins(given).pin) else []
    return ModelReport(
        name, loaded=False, window=reconcile(readings, ceiling=given.max_context_tokens), trained=trained, slots=1
    )


def _server(given: Settings, url: str) -> LlamaServer:
    return LlamaServer(url, key=given.key(os.environ), pins=_pins(given))


def _pins(given: Settings) -> Pins:
    pin = Reading(Source.PINNED, given.num_ctx, given.origins["num_ctx"]) if given.num_ctx else None
    return Pins(pin, given.max_context_tokens)


# --- connecting ---------------------------------------------------------------------------------------------------


@asynccontextmanager
async def connect(given: Settings, progress: Callable[[int, int], None]) -> AsyncIterator[Connection]:
    """The runtime that the settings name, or the one that answers, or, where nothing was named, the embedded one.

    `progress` is told bytes done and in all while a model is fetched. What was started here is stopped at the end.
    Raises `NothingFound`, `ModelMissing`, `Unauthorized`, `MissingExtra` and their kin.
    """
    if _means_embedded(given):
        async with _started(given, progress) as runtime:
            yield await _chosen(runtime, given, None)
        return
    found, tried = await _answering(given)
    if found is not None:
        try:
            yield await _chosen(found, given, None)
        finally:
            await found.close()
        return
    if given.model or given.url:
        raise NothingFound(f"no server has {given.model or 'a model'}: {tried}; start one, or try --runtime embedded")
    async with _started(given, progress) as runtime:
        yield await _chosen(runtime, given, "no server answers at the usual addresses: using the embedded runtime")


def _means_embedded(given: Settings) -> bool:
    if given.runtime is not None:
        return given.runtime == "embedded"
    name = (given.model or "").removeprefix(_PREFIX)
    known = name in {model.name for model in model_store().known}
    return given.url is None and (known or name.endswith(".gguf") or (given.model or "").startswith(_PREFIX))


async def _answering(given: Settings) -> tuple[LlamaServer | None, str]:
    """The first server that is up and has the model, and what was tried. A named address must be right."""
    servers = [_server(given, url) for url in ([given.url] if given.url else DEFAULT_ADDRESSES)]
    reports = await probe_all(servers)
    chosen = None
    for server, report in zip(servers, reports, strict=True):
        fits = report.status is Status.UP and any(serves(model, given.model or "") for model in report.models)
        if chosen is None and fits:
            chosen = server
            continue
        await server.close()
        if given.url:
            _complain(report, given)
    return chosen, "; ".join(f"{report.url} {_tried(report)}" for report in reports)


def _tried(report: ServerReport) -> str:
    return (
        "has " + (", ".join(model.id for model in report.models) or "no model")
        if report.status is Status.UP
        else report.status
    )


def _complain(report: ServerReport, given: Settings) -> None:
    """Raises what is wrong with the one address that was named."""
    said = report.error or ""
    match report.status:
        case Status.UNAUTHORIZED:
            raise Unauthorized(said)
        case Status.LOADING:
            raise ServerLoading(said)
        case Status.DOWN:
            raise Unreachable(said)
        case Status.ERROR:
            raise NothingFound(said) if report.runtime is None else ServerFailed(said)
        case Status.UP:
            raise ModelMissing(
                f"{report.url} {_tried(report)}, not {given.model!r} ({given.origins.get('model', 'asked for')}); pass --model with one it has"
            )


async def _chosen(runtime: LlamaServer, given: Settings, notice: str | None) -> Connection:
    report = await runtime.probe()
    wanted = "" if runtime.kind == "embedded" else given.model or ""
    model = next((model for model in report.models if serves(model, wanted)), None)
    if report.status is not Status.UP or model is None:
        raise ServerFailed(report.error or f"{report.url} lists no model any more; look at its log")
    runtime.model = model.id
    return Connection(runtime, model, notice)


@asynccontextmanager
async def _started(given: Settings, progress: Callable[[int, int], None]) -> AsyncIterator[LlamaServer]:
    """The embedded runtime with its model loaded; fetched first where it is not there."""
    if not embedded.available():
        raise MissingExtra(
            "embedded",
            "no server answers, and the embedded runtime" if given.runtime is None else "the embedded runtime",
        )
    path, name = await anyio.to_thread.run_sync(_model_file, given, progress)
    window = given.num_ctx or embedded.DEFAULT_WINDOW
    server = await embedded.start(path, name=name, window=window, threads=worker_threads())
    try:
        runtime = LlamaServer(server.url, key=server.key, pins=_pins(given), kind="embedded")
        try:
            yield runtime
        finally:
            await runtime.close()
    finally:
        server.stop()


def _model_file(given: Settings, progress: Callable[[int, int], None]) -> tuple[Path, str]:
    """The file to load and the name it goes by; a known model that is not there is fetched, until cancelled."""

    def cancellable(done: int, total: int) -> None:
        anyio.from_thread.check_cancelled()
        progress(done, total)

    name = (given.model or DEFAULT).removeprefix(_PREFIX)
    if name.endswith(".gguf"):
        path = Path(name).expanduser()
        return path, path.stem
    return model_store().pull(name, cancellable), name
