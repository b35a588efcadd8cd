"""What there is to count with for a model: its server, its vocabulary, or an estimate."""

from __future__ import annotations

import os
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import anyio.to_thread
from msgspec import structs

from localctx.app.count import Means
from localctx.core.events import Notice
from localctx.core.window import EffectiveWindow, reconcile
from localctx.errors import LocalctxError, MissingExtra, Misuse, NothingFound
from localctx.hardware import ollama
from localctx.runtimes.ollama_chat import OllamaServer
from localctx.stores.models import DEFAULT
from localctx.tokenizers.counting import by_tokenizer
from localctx.tokenizers.estimate import ClassEstimate, SeedCounter, SeedRatio
from localctx.tokenizers.remote import RemoteTokenizer
from localctx.tokenizers.rendering import TemplateProgram
from localctx.wiring.chatting import answering, reached
from localctx.wiring.inside import PREFIX, cold
from localctx.wiring.places import model_store, pins
from localctx.wiring.vocabularies import encoded, ollama_tokenizer, tokenizer_of

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from localctx.config import Settings
    from localctx.core.events import Event
    from localctx.core.window import ModelReport
    from localctx.ports import Counter
    from localctx.wiring.probing import Talking

__all__ = ["Footing", "counting"]


@dataclass(frozen=True, slots=True)
class Footing:
    """What is counted with, for which model, and the window that it is served with."""

    means: Means
    model: str | None
    runtime: str | None
    url: str | None
    window: EffectiveWindow


@asynccontextmanager
async def counting(given: Settings, emit: Callable[[Event], None], counter: str = "auto") -> AsyncIterator[Footing]:
    """What there is to count with, best first: the server that has the model, the model's file, tiktoken, an estimate.

    `counter` may be `estimate` or `baseline` (the seed's) instead, whatever there is. Loads no model. Raises what is
    wrong with a server that was named, or with a file.
    """
    async with _best(given, emit) as footing:
        match counter:
            case "estimate":
                yield replace(footing, means=Means(ClassEstimate()))
            case "baseline":
                yield replace(footing, means=Means(SeedCounter(SeedRatio(footing.model or ""))))
            case _:
                yield footing


@asynccontextmanager
async def _best(given: Settings, emit: Callable[[Event], None]) -> AsyncIterator[Footing]:
    path = await anyio.to_thread.run_sync(_file_of, given)
    url = None if path or given.runtime == "embedded" else given.url or await _somewhere(given)
    if url is None:
        program = TemplateProgram()
        try:
            yield await anyio.to_thread.run_sync(_alone, given, path, emit, program)
        finally:
            await program.close()
        return
    async with reached(given, url, emit) as (runtime, model, report):
        means = await _by_server(runtime, model, emit)
        yield Footing(means, model.id, report.runtime, report.url, model.window)


async def _somewhere(given: Settings) -> str | None:
    """The usual address that has the model; None where none has."""
    try:
        return next(iter(await answering(given)), None)
    except NothingFound:
        return None


# --- a server -----------------------------------------------------------------------------------------------------


async def _by_server(runtime: Talking, model: ModelReport, emit: Callable[[Event], None]) -> Means:
    if isinstance(runtime, OllamaServer):
        return await _by_ollama(runtime, model, emit)
    if not model.loaded:
        emit(Notice("not-loaded", f"{model.id} is not loaded, and counting loads nothing: this is an estimate"))
        return Means(ClassEstimate())
    remote = RemoteTokenizer(f"{runtime.kind}'s own count", runtime.size)
    if not await remote.prepare(["a"]):
        emit(Notice("counts-no-texts", f"{runtime.url} does not count texts (it cannot, or wants another key)"))
        return Means(_encoded(model.id, emit))
    return Means(by_tokenizer(remote), remote.prepare, runtime.count, ClassEstimate())


async def _by_ollama(runtime: OllamaServer, model: ModelReport, emit: Callable[[Event], None]) -> Means:
    """With the vocabulary alone: to render a prompt would load the model, or, with other options than its own, load it again."""
    tokenizer = await ollama_tokenizer(runtime, model)
    return Means(by_tokenizer(tokenizer) if tokenizer else _encoded(model.id, emit))


# --- no server ----------------------------------------------------------------------------------------------------


def _file_of(given: Settings) -> Path | None:
    """The file of the model that was named: a GGUF, or a small model that is here. Raises `Misuse` for one that is not there."""
    inside = given.runtime == "embedded"
    name = (given.model or (DEFAULT if inside else "")).removeprefix(PREFIX)
    if given.origins.get("url") == "--url" and not inside:
        return None
    if name.endswith(".gguf"):
        path = Path(name).expanduser()
        if not path.is_file():
            raise Misuse(f"{path} is not there ({given.origins['model']}); name a GGUF file, or a model of a server")
        return path
    store = model_store()
    return store.path(name) if any(known.name == name for known in store.known) and store.has(name) else None


def _alone(given: Settings, path: Path | None, emit: Callable[[Event], None], program: TemplateProgram) -> Footing:
    """What counts without a server."""
    if path is not None:
        window = cold(structs.replace(given, model=str(path)))[0].window
        return Footing(_by_file(path, emit, program), given.model, None, None, window)
    pin = pins(given)
    window = reconcile([pin.pin] if pin.pin else [], ceiling=pin.ceiling)
    blob = _blob(given.model or "", emit)
    means = _by_file(blob, emit, program) if blob else Means(_encoded(given.model or "", emit))
    return Footing(means, given.model, None, None, window)


def _blob(name: str, emit: Callable[[Event], None]) -> Path | None:
    """The file of one of the Ollama's models on this machine, whether it runs or not."""
    try:
        return ollama.model_file(name, ollama.folders(os.environ)) if name else None
    except LocalctxError as error:
        emit(Notice("no-vocabulary", str(error)))
        return None


def _by_file(path: Path, emit: Callable[[Event], None], program: TemplateProgram) -> Means:
    tokenizer, vocabulary = tokenizer_of(path)
    if tokenizer is None or vocabulary is None:
        why = "its kind was never compared with llama.cpp's" if find_spec("tokenizers") else str(_LACKING)
        emit(Notice("no-vocabulary", f"the vocabulary of {path.name} cannot be used ({why}): this is an estimate"))
        return Means(ClassEstimate())
    return Means(by_tokenizer(tokenizer), whole=partial(program.count, tokenizer, vocabulary))


_LACKING = MissingExtra("gguf", "tokenizers jinja2", "it")


def _encoded(model: str, emit: Callable[[Event], None]) -> Counter:
    """By tiktoken where it knows the model and its ranks are here, else the estimate."""
    if (counter := encoded(model)) is not None:
        return counter
    if model:
        known = any(model.removeprefix(PREFIX) == small.name for small in model_store().known)
        hint = f"; localctx models pull {model} fetches it" if known else ""
        hint = hint or ("" if find_spec("tiktoken") else "; for OpenAI's install the extra: pip install '.[tiktoken]'")
        emit(Notice("no-vocabulary", f"nothing here has the vocabulary of {model}: this is an estimate{hint}"))
    return ClassEstimate()
