"""Which servers are asked, and how one that was found is talked to."""

from __future__ import annotations

import os
import re
from dataclasses import replace
from typing import TYPE_CHECKING

import anyio
from msgspec import structs

from localctx.app.probe import probe as probe_all
from localctx.app.verify import verify
from localctx.core.events import Notice
from localctx.core.window import Advice, ModelReport, ServerReport, Status, reread
from localctx.errors import LocalctxError
from localctx.runtimes.detect import READERS, Detector
from localctx.runtimes.llama_server import LlamaServer, serves
from localctx.runtimes.ollama_chat import OllamaServer
from localctx.runtimes.openai_chat import OpenAIServer
from localctx.tokenizers.estimate import ClassEstimate
from localctx.wiring.inside import PREFIX, EmbeddedProbe
from localctx.wiring.places import catalog, pins, settings, text_or_file

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from localctx.config import Settings
    from localctx.core.events import Event
    from localctx.ports import Prober
    from localctx.stores.catalog import Catalog

__all__ = [
    "DEFAULT_ADDRESSES",
    "Talking",
    "ask_all",
    "detector",
    "probe",
    "runtime_of",
    "usual_addresses",
    "verify_all",
    "wanted",
]


DEFAULT_ADDRESSES = tuple(f"http://127.0.0.1:{port}" for port in (11434, 8080, 8000, 30000, 1234))
"""Where Ollama, llama-server, vLLM, SGLang and LM Studio listen unless told otherwise; any may be a llama-server."""


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
    servers = [] if inside else [detector(given, url, start=start) for url in addresses or usual_addresses()]
    targets: list[Prober] = [*servers, *([EmbeddedProbe(given, start=start)] if inside or not addresses else [])]
    try:
        listed, system = catalog(), text_or_file(given.system or "")
        reports = await probe_all(targets, seconds=_LOADING if start else _ANSWERING)
        return [_with_ours(wanted(report, given.model or ""), listed, system) for report in reports]
    finally:
        for server in servers:
            await server.close()


_ANSWERING, _LOADING = 10.0, 600.0
"""The seconds in which an address must have answered, and those that loading a model may take."""


def detector(given: Settings, url: str, *, start: bool = False) -> Detector:
    """The way to ask an address what it is; with `start`, an Ollama loads the model that the settings name."""
    load = given.model if start else None
    return Detector(url, key=given.key(os.environ), pins=pins(given), kind=given.runtime, load=load)


def usual_addresses() -> list[str]:
    """Where servers listen unless told otherwise, and where Ollama was told to."""
    named = os.environ.get("OLLAMA_HOST", "").strip().replace("0.0.0.0", "127.0.0.1")  # noqa: S104  not bound: asked
    if not named:
        return list(DEFAULT_ADDRESSES)
    url = named if "://" in named else f"http://{named}"
    url = url if re.search(r":\d+/?$", url) else f"{url.rstrip('/')}:11434"
    return list(dict.fromkeys([url, *DEFAULT_ADDRESSES]))


def _with_ours(report: ServerReport, listed: Catalog, system: str) -> ServerReport:
    """The report with what the catalog advertises for its models, and what the settings would make of them."""
    models = (_with_listings(model, listed) for model in report.models)
    return replace(report, models=tuple(_with_preflight(model, system) for model in models))


_MOST_OF_IT = 0.5


def _with_preflight(model: ModelReport, system: str) -> ModelReport:
    """The model with a warning where the system prompt alone takes most of its window."""
    size = ClassEstimate().size(system) if system else 0
    if model.window.tokens is None or size < model.window.tokens * _MOST_OF_IT:
        return model
    text = f"the system prompt alone takes about {size:,} of its {model.window.tokens:,} tokens"
    advice = Advice("too-small", text, "shorten the system prompt, or serve a larger window")
    return replace(model, warnings=(*model.warnings, advice))


def _with_listings(model: ModelReport, listed: Catalog) -> ModelReport:
    found = listed.advertised(model.id)
    if not found:
        return model
    window = reread(model.window, *found)
    advice = tuple(
        Advice("catalog-disagrees", f"{reading.where}: {reading.note}", "go by what the server serves")
        for reading in found
        if reading.note
    )
    return replace(model, window=window, warnings=(*model.warnings, *advice))


def wanted(report: ServerReport, model: str) -> ServerReport:
    """The report with the models alone that go by this name; all of them for an empty one."""
    return replace(report, models=tuple(each for each in report.models if serves(each, model.removeprefix(PREFIX))))


async def verify_all(
    given: Settings, reports: Sequence[ServerReport], emit: Callable[[Event], None]
) -> list[ServerReport]:
    """The reports with what measuring found: one loaded model on each server that is up; nothing is loaded for it."""
    return [await _verified(given, report, emit) for report in reports]


async def _verified(given: Settings, report: ServerReport, emit: Callable[[Event], None]) -> ServerReport:
    if report.status is not Status.UP:
        return report
    if report.runtime == "embedded":
        emit(Notice("not-verified", "the embedded runtime is started for a command alone: there is nothing to verify"))
        return report
    model = next((each for each in report.models if each.loaded), None)
    if model is None:
        emit(
            Notice(
                "not-loaded", f"{report.url}: no model is loaded, and verifying loads none; pass --load --model NAME"
            )
        )
        return report
    runtime = runtime_of(structs.replace(given, num_ctx=None), report)  # as it is served: a pin could load it again
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


Talking = LlamaServer | OpenAIServer | OllamaServer


def runtime_of(given: Settings, report: ServerReport) -> Talking:
    """The way to talk to a server that was found."""
    key, asked = given.key(os.environ), pins(given)
    if report.runtime == "llama-server":
        return LlamaServer(report.url, key=key, pins=asked)
    if report.runtime == "ollama":
        return OllamaServer(report.url, key=key, pins=asked)
    kind = report.runtime or "openai"
    return OpenAIServer(report.url, READERS[kind], kind=kind, key=key, pins=asked)
