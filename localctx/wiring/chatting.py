"""A chat with the model that the settings name, wherever that is."""

from __future__ import annotations

import asyncio
import os
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec.structs import replace

from localctx.app.chat import MOST_STEPS, Chat, Wishes
from localctx.app.compaction import PATIENCE_SECONDS, Helper
from localctx.app.meter import Meter
from localctx.app.patience import while_loading
from localctx.app.probe import probe as probe_all
from localctx.app.tools.approval import Approver
from localctx.app.tools.context import ContextInfo, SummarizeContext
from localctx.app.tools.record import Recall, Retrieve, UpdateWorkState
from localctx.config import this_machine, unread
from localctx.core.advice import cannot_call
from localctx.core.approval import rule
from localctx.core.events import Notice
from localctx.core.window import Budget, ModelReport, ServerReport, Status, assume
from localctx.errors import (
    Misuse,
    ModelMissing,
    NotARuntime,
    NothingFound,
    ServerFailed,
    ServerLoading,
    Unauthorized,
    Unreachable,
)
from localctx.hardware.machine import on_battery
from localctx.runtimes import embedded
from localctx.runtimes.ollama_chat import OllamaServer
from localctx.runtimes.openai_chat import OpenAIServer
from localctx.stores.sessions import keep_state
from localctx.tokenizers.estimate import ClassEstimate
from localctx.wiring.inside import PREFIX, started
from localctx.wiring.places import (
    calibrations,
    catalog,
    journal,
    located,
    model_store,
    policy,
    recall_index,
    sessions,
    settings,
    text_or_file,
)
from localctx.wiring.probing import Talking, detector, runtime_of, usual_addresses, wanted
from localctx.wiring.speeds import measured_speeds, speeds_key
from localctx.wiring.tooling import chosen, introduction, offer, secrets_of
from localctx.wiring.vocabularies import encoded, ollama_tokenizer

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from localctx.app.tools.approval import Ask
    from localctx.config import Settings
    from localctx.core.calibration import Calibration
    from localctx.core.events import Event
    from localctx.core.work import WorkState
    from localctx.ports import Counter, Index, Journal, Prober, Tool

__all__ = [
    "answering",
    "complain",
    "connect",
    "connection",
    "first_address",
    "identity",
    "means_embedded",
    "open_chat",
    "reached",
]


@asynccontextmanager
async def connect(
    emit: Callable[[Event], None] = lambda _event: None, *, ephemeral: bool = True, **flags: object
) -> AsyncIterator[Chat]:
    """A chat with the model that `flags` name (as the settings are called), told to `emit` as it happens."""
    kept = journal(ephemeral=ephemeral)
    try:
        async with open_chat(settings(flags), kept, emit, lambda _done, _total: None, usual_tools="session") as chat:
            yield chat
    finally:
        kept.leave()


@asynccontextmanager
async def open_chat(
    given: Settings,
    kept: Journal,
    emit: Callable[[Event], None],
    progress: Callable[[int, int], None],
    *,
    ask: Ask | None = None,
    yes: bool = False,
    usual_tools: str = "all",
) -> AsyncIterator[Chat]:
    """A chat with the model that the settings name, kept in a journal.

    `ask` puts a question to a person where a tool needs a yes that neither `yes` nor the user's rules give.
    """
    async with connection(given, emit, progress) as (runtime, model, version), _helper(given, runtime, emit) as helper:
        counter = (encoded(model.id) if isinstance(runtime, OpenAIServer) else None) or ClassEstimate()
        who = identity(runtime, model, version)
        learned = _Learned(counter, who)
        _set_thinking(runtime, given, emit)
        rules, unfit = policy(given)
        for said in unfit:
            emit(Notice("threshold", said))
        for said in unread(os.environ):
            emit(Notice("environment", said))
        sets = given.tool_sets(usual_tools)
        works = bool(sets - {"session"}) and kept.last_seq == 0 and (model.calls_tools is not False)
        with located(kept):
            chat = Chat(
                runtime,
                model,
                journal=kept,
                counter=counter,
                policy=rules,
                emit=emit,
                system=text_or_file(given.system or "") or (introduction(Path.cwd()) if works else ""),
                wishes=Wishes(given.max_tokens, given.temperature, given.max_steps or MOST_STEPS),
                calibration=learned.calibration,
                on_work=_shown_state(kept),
            )
        chat.engine.summarizer = helper
        chat.engine.patience = PATIENCE_SECONDS if given.patience is None else given.patience
        if (measured := measured_speeds(speeds_key(runtime, model, version))) is not None:
            chat.engine.start_from(measured)
        chat.idles = _is_ours(runtime, model) and not on_battery()
        index = recall_index(kept)
        if sets and _may_call(model, emit, insisted=given.tools is not None):
            approver = Approver(emit, [rule(text) for text in given.allow], yes=yes, ask=ask)
            secrets = secrets_of(given)
            tools = chosen(sets, _recorded(chat, index), Path.cwd(), approver, chat.fit, secrets=secrets)
            offer(chat, tools, emit, secrets, insisted=given.tools is not None)
        chat.preflight()
        beside = [asyncio.create_task(_refresh()), asyncio.create_task(_find_vocabulary(runtime, model))]
        try:
            yield chat
        finally:
            index.close()
            learned.keep(chat.meter.calibration)
            for task in beside:
                task.cancel()


def _set_thinking(runtime: Talking, given: Settings, emit: Callable[[Event], None]) -> None:
    """Has the model think, or not, as far as its server can be told so."""
    if given.think is not None:
        runtime.thinks = given.think == "on"
        if not runtime.steers_thinking:
            text = f"{runtime.kind} has no known way to turn thinking {given.think}: the model decides"
            emit(Notice("think", text))


def _may_call(model: ModelReport, emit: Callable[[Event], None], *, insisted: bool) -> bool:
    """Whether tools are worth offering; says so where the server says that its model cannot call them."""
    if model.calls_tools is not False:
        return True
    emit(cannot_call(model.id, insisted=insisted))
    return insisted


def _recorded(chat: Chat, index: Index) -> list[Tool]:
    """The set `session`: what reaches all of the session, and the window."""
    return [
        Retrieve(chat.session, chat.fit),
        Recall(chat.session, index, chat.fit),
        UpdateWorkState(chat.session),
        ContextInfo(chat.engine),
        SummarizeContext(chat.engine),
    ]


def identity(runtime: Talking, model: ModelReport, version: str | None) -> str:
    """One model on one server, as what is learned of them is kept by: its build, the weights, the template, as far as it says them."""
    known = model.digest or model.template
    who = model.digest or f"{model.id} {model.model_bytes} {'' if known else runtime.url}"
    return f"{runtime.kind} {version} {who} {model.template}"


@asynccontextmanager
async def _helper(given: Settings, main: Talking, emit: Callable[[Event], None]) -> AsyncIterator[Helper | None]:
    """The model that writes the summaries, where another one was named; in its own window, with its own counting."""
    url, _, name = (given.summarizer_model or "").rpartition("#")
    if not name:
        if given.summarizer_model:
            said = f"summarizer {given.summarizer_model!r} ({given.origins['summarizer_model']}) names no model"
            emit(Notice("summarizer", f"{said}: the model itself writes the summaries"))
        yield None
        return
    if not url and name == main.model:
        yield None
        return
    where = url or ("" if means_embedded(replace(given, model=name, url=None, runtime=None)) else main.url)
    if not url and where and main.kind == "embedded":
        raise Misuse(f"the embedded runtime serves {main.model} alone: name the address of {name} too, as URL#{name}")
    origins = {**given.origins, **dict.fromkeys(("url", "model"), given.origins["summarizer_model"])}
    own = replace(
        given, url=where or None, model=name, runtime=None, num_ctx=None, max_context_tokens=None, origins=origins
    )
    async with connection(own, emit, lambda _done, _total: None) as (runtime, model, _):
        window = assume(model.window)
        budget = Budget.of(window.tokens or 0, max_prompt=window.max_prompt)
        yield Helper(runtime, Meter(runtime, encoded(model.id) or ClassEstimate()), budget)


def _is_ours(runtime: Talking, model: ModelReport) -> bool:
    """Whether nobody but this program is likely to wait for the server: it is on this machine, with one slot."""
    return this_machine(runtime.url) and model.slots == 1


def _shown_state(kept: Journal) -> Callable[[WorkState], None]:
    """What keeps the work state of a session where people can read it."""
    if kept.name is None:
        return lambda _state: None
    path = sessions().state_file(kept.name)
    return lambda state: keep_state(path, state)


class _Learned:
    """What earlier runs learned of how one model on one server counts, and where this run's is kept.

    Another build, other weights or another template count anew.
    """

    def __init__(self, counter: Counter, model: str) -> None:
        self._store, self._key = calibrations(), f"{counter.how} {model}"
        self.calibration = counter.prior.restored(self._store.load(self._key) or "") or counter.prior

    def keep(self, calibration: Calibration) -> None:
        """Keeps it where something was learned; what cannot be kept is learned again."""
        if calibration != self.calibration:
            self._store.save(self._key, calibration.kept())
        self._store.close()


async def _find_vocabulary(runtime: Talking, model: ModelReport) -> None:
    """Lets an Ollama's prompts be counted exactly, once its model's vocabulary is read."""
    if isinstance(runtime, OllamaServer):
        runtime.tokenizer = await ollama_tokenizer(runtime, model)


async def _refresh() -> None:
    """Asks for newer listings, at most once a day; whatever comes of it, the chat goes on."""
    if not os.environ.get("LOCALCTX_OFFLINE"):
        await catalog().refresh(datetime.now(UTC))


@asynccontextmanager
async def connection(
    given: Settings, emit: Callable[[Event], None], progress: Callable[[int, int], None]
) -> AsyncIterator[tuple[Talking, ModelReport, str | None]]:
    """The runtime that the settings name, or the one that answers, or, where nothing was named, the embedded one.

    With its model, and the server's build.

    `progress` is told bytes done and in all while a model is fetched. What was started here is stopped at the end.
    Raises `NothingFound`, `ModelMissing`, `Unauthorized`, `MissingExtra` and their kin.
    """
    url = await first_address(given)
    if url is None:
        if not means_embedded(given):
            emit(Notice("embedded", "no server answers at the usual addresses: using the embedded runtime"))
        async with started(given, progress) as inside:
            _, model = await _model_at(inside, "", given, emit)
            inside.model = model.id
            yield inside, model, embedded.version()
        return
    async with reached(given, url, emit) as (runtime, model, report):
        yield (
            runtime,
            await runtime.settle_window() if isinstance(runtime, OllamaServer) else model,
            report.version,
        )


@asynccontextmanager
async def reached(
    given: Settings, url: str, emit: Callable[[Event], None]
) -> AsyncIterator[tuple[Talking, ModelReport, ServerReport]]:
    """A server with the model that the settings name, once it is loaded; closed at the end.

    Raises what is wrong with the server, or `ModelMissing`.
    """
    target = detector(given, url)
    try:
        report, model = await _model_at(target, given.model or "", given, emit)
    finally:
        await target.close()
    runtime = runtime_of(given, report)
    runtime.model = model.id
    try:
        yield runtime, model, report
    finally:
        await runtime.close()


def means_embedded(given: Settings) -> bool:
    """Whether the settings name the embedded runtime, or a model of its own. Raises `Misuse` where they contradict each other."""
    if given.runtime == "embedded" and given.url is not None:
        raise Misuse(
            f"--runtime embedded and the address {given.url} ({given.origins['url']}) exclude each other; drop one"
        )
    if given.runtime is not None:
        return given.runtime == "embedded"
    name = (given.model or "").removeprefix(PREFIX)
    known = name in {model.name for model in model_store().known}
    return given.url is None and (known or name.endswith(".gguf") or (given.model or "").startswith(PREFIX))


async def first_address(given: Settings) -> str | None:
    """The address that the settings name, or the first that answers; None for the embedded runtime. Raises as `answering` does."""
    return None if means_embedded(given) else given.url or next(iter(await answering(given)), None)


async def answering(given: Settings) -> list[str]:
    """The usual addresses that have the model and can be talked to; where there is none, those that may have it but do not say.

    Raises `NothingFound` where a model was named in vain.
    """
    detectors = [detector(given, url) for url in usual_addresses()]
    try:
        reports = await probe_all(detectors)
    finally:
        for each in detectors:
            await each.close()
    fit = [report.url for report in reports if wanted(report, given.model or "").models]
    fit = fit or [report.url for report in reports if report.status in {Status.LOADING, Status.UNAUTHORIZED}]
    if not fit and (given.model or given.runtime):
        tried = "; ".join(f"{report.url} {_tried(report)}" for report in reports)
        raise NothingFound(
            f"no {given.runtime or 'server'} has {given.model or 'a model'}: {tried}; start one, or name another"
        )
    return fit


def _tried(report: ServerReport) -> str:
    if report.status is not Status.UP:
        return report.status
    return "has " + (", ".join(model.id for model in report.models) or "no model")


async def _model_at(
    target: Prober, name: str, given: Settings, emit: Callable[[Event], None]
) -> tuple[ServerReport, ModelReport]:
    """A server and the model on it, once that is loaded. Raises what is wrong with the server, or `ModelMissing`."""
    async for attempt in while_loading(target.url, emit):
        with attempt:
            report = await target.probe()
            complain(report)
    models = wanted(report, name).models
    if not models:
        raise ModelMissing(
            f"{report.url} {_tried(report)}, not {name!r} ({given.origins.get('model', 'asked for')}); pass --model with one it has"
        )
    return report, models[0]


_WRONG = {
    Status.UNAUTHORIZED: Unauthorized,
    Status.LOADING: ServerLoading,
    Status.DOWN: Unreachable,
    Status.ERROR: ServerFailed,
}


def complain(report: ServerReport) -> None:
    """Raises what is wrong with an address."""
    if report.status is not Status.UP:
        unknown = report.status is Status.ERROR and report.runtime is None
        raise (NotARuntime if unknown else _WRONG[report.status])(report.error or report.url)
