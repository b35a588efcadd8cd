"""Ollama: what is resident (`/api/ps`), what is set up (Modelfile), what is trained; and why nobody says the rest."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import anyio
import msgspec

from localctx.core.window import Advice, ModelReport, Reading, ServerReport, Source, Status, reconcile
from localctx.errors import LocalctxError
from localctx.runtimes.server import clamped, decoded

if TYPE_CHECKING:
    from localctx.runtimes.server import Pins, Server

__all__ = ["load", "read"]


class _Version(msgspec.Struct):
    version: str


class _Details(msgspec.Struct):
    context_length: int = 0


class _Entry(msgspec.Struct):
    name: str = ""
    context_length: int = 0
    size: int = 0
    size_vram: int | None = None
    details: _Details | None = None


class _List(msgspec.Struct):
    models: list[_Entry] | None = None


class _Show(msgspec.Struct):
    modelfile: str = ""
    parameters: str = ""
    model_info: dict[str, object] | None = None


_MOST_MODELS = 200
_AT_ONCE = 8
_BLOB = re.compile(r"^FROM \S*(sha256[-:][0-9a-f]{64})\s*$", re.MULTILINE)
_NUM_CTX = re.compile(r"^num_ctx\s+(\d{1,9})\s*$", re.MULTILINE)


async def read(server: Server, pins: Pins) -> ServerReport | None:
    """The report of an Ollama; None where another program answers. Loads nothing.

    Told by `/api/version`: SGLang answers `/api/tags` and `/api/show` as well, but not this.
    """
    version = await server.json("/api/version", _Version)
    resident = await server.json("/api/ps", _List) if version else None
    if version is None or resident is None:
        return None
    known = await server.json("/api/tags", _List) or _List()
    entries = {entry.name: entry for entry in (known.models or [])[:_MOST_MODELS]}
    entries |= {entry.name: entry for entry in resident.models or [] if entry.name not in entries}
    shows = await _shows(server, list(entries))
    blobs = {_blob(shows.get(entry.name)): entry for entry in resident.models or []}
    loaded = {entry.name: entry for entry in resident.models or []}
    models = tuple(
        _model(entry, loaded.get(name) or blobs.get(_blob(shows.get(name)) or "-"), shows.get(name), pins)
        for name, entry in entries.items()
    )
    return ServerReport("ollama", server.url, Status.UP, version.version, models=models)


async def load(server: Server, model: str, pins: Pins) -> None:
    """Loads a model with the pin, if there is one, so that `/api/ps` says what is served. Raises `LocalctxError`."""
    options = {"num_ctx": pins.pin.tokens} if pins.pin else {}
    answer = await server.post("/api/generate", {"model": model, "options": options, "stream": False}, seconds=300)
    if answer.status != 200:  # noqa: PLR2004
        raise LocalctxError(
            f"{server.url} did not load {model} (HTTP {answer.status}: {str(answer.body)[:200]}); look at its log"
        )


async def _shows(server: Server, names: list[str]) -> dict[str, _Show]:
    found: dict[str, _Show] = {}
    limiter = anyio.CapacityLimiter(_AT_ONCE)

    async def one(name: str) -> None:
        async with limiter:
            try:
                answer = await server.post("/api/show", {"model": name})
                if answer.status == 200:  # noqa: PLR2004
                    found[name] = decoded(answer, _Show)
            except (LocalctxError, msgspec.ValidationError):
                return  # this model's Modelfile stays unknown; what is resident is known without it

    async with anyio.create_task_group() as group:
        for name in names:
            group.start_soon(one, name)
    return found


def _blob(show: _Show | None) -> str | None:
    found = _BLOB.search(show.modelfile) if show else None
    return found[1] if found else None


def _model(entry: _Entry, resident: _Entry | None, show: _Show | None, pins: Pins) -> ModelReport:
    trained = _trained(entry, show)
    configured = _NUM_CTX.search(show.parameters) if show else None
    readings = [Reading(Source.TRAINED, trained or 0, "ollama /api/show model_info")]
    if resident is not None:
        note = None if resident.name == entry.name else f"resident as {resident.name}, which shares its weights"
        readings.append(Reading(Source.SERVED, resident.context_length, "ollama /api/ps context_length", note))
    if configured:
        readings.append(Reading(Source.CONFIGURED, int(configured[1]), "ollama Modelfile num_ctx"))
    if pins.pin:
        readings.append(pins.pin)
    window = reconcile(readings, ceiling=pins.ceiling, pin_reloads=True)
    return ModelReport(
        id=entry.name,
        loaded=resident is not None,
        window=window,
        trained=trained,
        model_bytes=(resident or entry).size or None,
        in_vram_bytes=resident.size_vram if resident else None,
        warnings=(
            *_unpinned(window.tokens, trained, resident, pinned=pins.pin is not None or configured is not None),
            *clamped(pins.pin, trained, "are trained"),
            *_spilled(resident),
            *_reloads(resident, pins),
            *(_HALF if resident else ()),
        ),
    )


def _trained(entry: _Entry, show: _Show | None) -> int | None:
    info = (show.model_info if show else None) or {}
    lengths = [value for key, value in info.items() if key.endswith(".context_length") and isinstance(value, int)]
    said = lengths[0] if lengths else entry.details.context_length if entry.details else 0
    return said if said > 0 else None


def _unpinned(window: int | None, trained: int | None, resident: _Entry | None, *, pinned: bool) -> tuple[Advice, ...]:
    if pinned:
        return ()
    most = f"; up to {trained:,} are trained" if trained else ""
    fix = "pass --num-ctx N, or put PARAMETER num_ctx N into its Modelfile, or set OLLAMA_CONTEXT_LENGTH for the server"
    if resident is None:
        text = "no endpoint says with which window it would be loaded" + most
        return (Advice("unpinned", text, f"{fix}; --load --model NAME loads it to see"),)
    if trained and window and window < trained:
        return (Advice("unpinned", f"nobody pinned its window: {window:,} is the server's default{most}", fix),)
    return ()


def _spilled(resident: _Entry | None) -> tuple[Advice, ...]:
    if resident is None or resident.size_vram is None or not 0 < resident.size_vram < resident.size:
        return ()
    share = resident.size_vram * 100 // resident.size
    text = f"{share}% of it is in GPU memory ({resident.size_vram:,} of {resident.size:,} bytes), the rest on the CPU"
    return (Advice("spilled", text, "serve a smaller window or model, or free GPU memory"),)


def _reloads(resident: _Entry | None, pins: Pins) -> tuple[Advice, ...]:
    if resident is None or pins.pin is None or pins.pin.tokens == resident.context_length:
        return ()
    text = f"it is resident with {resident.context_length:,}: a call with num_ctx {pins.pin.tokens:,} loads it again"
    return (Advice("reloads", text, f"ask for {resident.context_length:,}, or let every client send the same num_ctx"),)


_HALF = (
    Advice(
        "half-window",
        "through /v1, and without truncate: false, what is too long is cut in silence, a single message to half the window",
        "use the native API with truncate: false and shift: false",
    ),
)
