"""Ollama: what is resident (`/api/ps`), what is set up (Modelfile), what is trained; and why nobody says the rest."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import anyio
import msgspec

from localctx.core.window import Advice, Confidence, ModelReport, Reading, ServerReport, Source, Status, reconcile
from localctx.errors import LocalctxError, Misuse, ServerFailed
from localctx.runtimes.openai import tokens
from localctx.runtimes.server import clamped, decoded, half_cuts

if TYPE_CHECKING:
    from localctx.runtimes.server import Pins, Server

__all__ = ["LOAD_SECONDS", "cut_points", "load", "read", "to_load"]


class _Version(msgspec.Struct):
    version: str


class _Details(msgspec.Struct):
    context_length: object = None


class _Entry(msgspec.Struct):
    name: str
    context_length: object = None
    size: int | None = None
    size_vram: int | None = None
    details: _Details | None = None
    digest: object = None


class _List(msgspec.Struct):
    models: list[_Entry] | None


class _Show(msgspec.Struct):
    modelfile: str = ""
    parameters: str = ""
    model_info: dict[str, object] | None = None
    capabilities: object = None


_MOST_SHOWN = 200
_AT_ONCE = 8
_SHOW_SECONDS = 4.0
"""How long all the questions after details may take together; a model without an answer is reported without them."""

_BLOB = re.compile(r"^(?:FROM|ADAPTER) \S*(sha256[-:][0-9a-f]{64})\s*$", re.MULTILINE)
_NUM_CTX = re.compile(r"^num_ctx\s+(\d{1,9})\s*$", re.MULTILINE)


async def read(server: Server, pins: Pins) -> ServerReport | None:
    """The report of an Ollama; None where another program answers. Loads nothing.

    Told by `/api/version`: SGLang answers `/api/tags` and `/api/show` as well, but not this.
    """
    version = await server.json("/api/version", _Version)
    if version is None:
        return None
    await server.prefetch("/api/ps", "/api/tags")
    await server.get("/api/ps")  # raises where it gives no answer: this is an Ollama, or nearly
    resident = await server.json("/api/ps", _List)
    if resident is None:
        return None
    known = await server.json("/api/tags", _List) or _List(None)
    loaded = {_tagged(entry.name): entry for entry in resident.models or []}
    listed = {_tagged(entry.name): entry for entry in known.models or []}
    entries = loaded | listed  # in this order: what is resident comes first
    shows = await _shows(server, list(entries)[:_MOST_SHOWN])
    blobs = {blob: entry for name, entry in loaded.items() if (blob := _blobs(shows.get(name)))}
    models = tuple(
        _model(name, entry, loaded.get(name) or blobs.get(_blobs(shows.get(name))), shows.get(name), pins)
        for name, entry in entries.items()
    )
    return ServerReport("ollama", server.url, Status.UP, version.version, models=models)


def to_load(report: ServerReport, wanted: str, pins: Pins) -> str | None:
    """The name of the model that must be loaded before anybody can say its window.

    None where it is resident as it is wanted, and so must be left alone, or not there at all.
    """
    name = _tagged(wanted.removeprefix("ollama/"))
    model = next((each for each in report.models if each.id == name), None)
    if model is None or (model.loaded and (pins.pin is None or model.window.confidence is Confidence.SERVED)):
        return None
    return name


async def load(server: Server, model: str, pins: Pins) -> None:
    """Loads a model with the pin, if there is one, so that `/api/ps` says what is served. Raises `LocalctxError`.

    Every call of ours has the same options, since each change of them loads the model again.
    """
    if pins.pin is not None and pins.pin.tokens <= 0:
        raise Misuse(f"{pins.pin.tokens} ({pins.pin.where}) is no window: Ollama would make it 4 tokens; pass more")
    options = {"num_ctx": pins.pin.tokens} if pins.pin else {}
    body = {"model": model, "options": options, "truncate": False, "shift": False, "stream": False}
    answer = await server.post("/api/generate", body, seconds=LOAD_SECONDS)
    if answer.status != 200:  # noqa: PLR2004
        said = " ".join(str(answer.body).split())[:200]
        raise ServerFailed(f"{server.url} did not load {model} (HTTP {answer.status}: {said}); look at its log")


LOAD_SECONDS = 300.0
"""How long a question may take that loads a model first."""


def cut_points(window: int) -> tuple[int, ...]:
    """The window (before 0.30.11), and half of it behind the head (measured: 850 to 258 of 512, 5,050 to 2,050 of 4,096).

    Where only older messages are dropped, any size below the window may be left.
    """
    return half_cuts(window)


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

    with anyio.move_on_after(_SHOW_SECONDS):
        async with anyio.create_task_group() as group:
            for name in names:
                group.start_soon(one, name)
    return found


def _tagged(name: str) -> str:
    return name if ":" in name.rpartition("/")[2] else f"{name}:latest"


def _blobs(show: _Show | None) -> tuple[str, ...]:
    """What a model is made of: models that share all of it share one place in memory."""
    return tuple(_BLOB.findall(show.modelfile)) if show else ()


def _model(name: str, entry: _Entry, resident: _Entry | None, show: _Show | None, pins: Pins) -> ModelReport:
    trained = _trained(entry, show)
    configured = _NUM_CTX.search(show.parameters) if show else None
    now = tokens(resident.context_length) if resident else 0
    note = (
        f"resident as {resident.name}, which shares its weights"
        if resident and name != _tagged(resident.name)
        else None
    )
    readings = [
        Reading(Source.SERVED, now, "ollama /api/ps context_length", note),
        Reading(Source.CONFIGURED, int(configured[1]) if configured else 0, "ollama Modelfile num_ctx"),
        trained,
    ]
    readings += [pins.pin] if pins.pin else []
    asked = max(pins.pin.tokens, 0) if pins.pin else 0
    confirmed = now == min(asked, trained.tokens or asked)  # it lowers a pin to what is trained
    return ModelReport(
        id=name,
        loaded=resident is not None,
        window=reconcile(readings, ceiling=pins.ceiling, pin_reloads=not confirmed),
        trained=trained.tokens or None,
        aliases=(name.removesuffix(":latest"),) if name.endswith(":latest") else (),
        digest=_digest(entry),
        model_bytes=(resident or entry).size or None,
        in_vram_bytes=resident.size_vram if resident else None,
        calls_tools=_is_listed("tools", show),
        sees_images=_is_listed("vision", show),
        warnings=(
            *(() if asked or configured else _unpinned(now, trained.tokens, loaded=resident is not None)),
            *clamped(pins.pin, trained.tokens, "are trained"),
            *_spilled(resident),
            *(_reloads(now, asked) if asked and now and not confirmed else ()),
            *(_HALF if resident else ()),
        ),
    )


def _is_listed(capability: str, show: _Show | None) -> bool | None:
    """Whether this is among the capabilities that `/api/show` lists (since 0.6.4)."""
    listed = show.capabilities if show else None
    return capability in listed if isinstance(listed, list) else None


_DIGEST = re.compile(r"(?:sha256:)?([0-9a-f]{12,64})")


def _digest(entry: _Entry) -> str | None:
    """The SHA-256 of the model's manifest, which names weights, template and parameters."""
    found = _DIGEST.fullmatch(entry.digest) if isinstance(entry.digest, str) else None
    return found[1] if found else None


def _trained(entry: _Entry, show: _Show | None) -> Reading:
    info = (show.model_info if show else None) or {}
    if said := tokens(info.get(f"{info.get('general.architecture')}.context_length")):
        return Reading(Source.TRAINED, said, "ollama /api/show model_info")
    listed = tokens(entry.details.context_length) if entry.details else 0
    return Reading(Source.TRAINED, listed, "ollama /api/tags details.context_length")


def _unpinned(now: int, trained: int, *, loaded: bool) -> tuple[Advice, ...]:
    most = f"; up to {trained:,} are trained" if trained else ""
    fix = "pass --num-ctx N, or put PARAMETER num_ctx N into its Modelfile, or set OLLAMA_CONTEXT_LENGTH for the server"
    if not loaded:
        text = "no endpoint says with which window it would be loaded" + most
        return (Advice("unpinned", text, f"{fix}; --load --model NAME loads it to see"),)
    if not now:
        text = "this Ollama does not say with which window it is loaded (0.10 and later do)" + most
        return (Advice("unpinned", text, f"update it, or {fix}"),)
    if now < trained:
        text = f"its window of {now:,} is the server's default, or what another client asked for{most}"
        return (Advice("unpinned", text, fix),)
    return ()


def _spilled(resident: _Entry | None) -> tuple[Advice, ...]:
    size, inside = (resident.size or 0, resident.size_vram or 0) if resident else (0, 0)
    if not 0 < inside < size:  # 0: there may be no GPU at all
        return ()
    text = f"{inside * 100 // size}% of it is in GPU memory ({inside:,} of {size:,} bytes), the rest on the CPU"
    return (Advice("spilled", text, "serve a smaller window or model, or free GPU memory"),)


def _reloads(now: int, asked: int) -> tuple[Advice, ...]:
    text = f"it is resident with {now:,}: a call with num_ctx {asked:,} loads it again"
    return (Advice("reloads", text, f"ask for {now:,}, or let every client send the same num_ctx"),)


_HALF = (
    Advice(
        "half-window",
        "through /v1, and without truncate: false, what is too long is cut in silence, a single message to half the window",
        "use the native API with truncate: false and shift: false",
    ),
)
