"""The embedded runtime: llama.cpp's own server in this process, on a free loopback port, behind a key of its own."""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import anyio.to_thread

from localctx.errors import MissingExtra, ModelMissing, ServerFailed

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["DEFAULT_WINDOW", "Embedded", "available", "missing", "start", "version"]

DEFAULT_WINDOW = 8192
"""The window that is asked for without a pin: what the default model was trained with. llama.cpp lowers it to a shorter
trained window, and rounds it up to a multiple of 256."""

_MAGIC = b"GGUF"


def available() -> bool:
    """Whether the package that brings the server is installed."""
    from importlib.util import find_spec  # noqa: PLC0415

    return find_spec("xllamacpp") is not None


def version() -> str | None:
    """The version of the package that brings the server."""
    from importlib import metadata  # noqa: PLC0415  only for people who look

    try:
        return metadata.version("xllamacpp")
    except metadata.PackageNotFoundError:
        return None


def missing(why: str) -> MissingExtra:
    """The error that says how to install that package."""
    return MissingExtra("embedded", "xllamacpp", why)


@dataclass(slots=True)
class Embedded:
    """A server that runs in this process until `stop`; its key keeps other programs and web pages out."""

    url: str
    key: str
    _server: Any

    def stop(self) -> None:
        """Ends the server and frees its memory, once it has done what it is doing."""
        self._server = None

    def abandon(self) -> None:
        """Lets go of the server without waiting for what it is doing; it ends with the program."""
        _ABANDONED.append(self._server)
        self._server = None


_ABANDONED: list[Any] = []
"""Servers that were let go of: to free one is to wait for the batch that it computes."""


async def start(path: Path, *, name: str, window: int, threads: int) -> Embedded:
    """Loads a GGUF file and serves it to this program alone, under `name`, with one slot of `window` tokens.

    Raises `MissingExtra` without the package, `ModelMissing` for a file that is not there or is no GGUF, `ServerFailed`
    where llama.cpp cannot load it.
    """
    _check(path)
    return await anyio.to_thread.run_sync(_start, path, name, window, threads, abandon_on_cancel=True)


def _check(path: Path) -> None:
    if not available():
        raise missing("the embedded runtime")
    try:
        with path.open("rb") as file:
            magic = file.read(len(_MAGIC))
    except OSError as error:
        raise ModelMissing(
            f"cannot read the model {path} ({error.strerror or error}); pass a GGUF file, or see: localctx models list"
        ) from error
    if magic != _MAGIC:
        raise ModelMissing(
            f"{path} is no GGUF file (it begins with {magic!r}); pass a GGUF file, or see: localctx models list"
        )


def _start(path: Path, name: str, window: int, threads: int) -> Embedded:
    import xllamacpp  # noqa: PLC0415  100 MB of native code: only when it is used

    key = secrets.token_urlsafe(24)
    params = xllamacpp.CommonParams()
    params.model.path = str(path)
    params.model_alias = {name}
    params.n_ctx, params.n_parallel = window, 1
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = threads
    params.hostnames, params.port, params.api_keys = ["127.0.0.1"], 0, [key]
    params.ui = params.endpoint_slots = False
    params.fit_params = False
    params.verbosity = 0
    try:
        server = xllamacpp.Server(params)
    except RuntimeError as error:
        size = path.stat().st_size / 2**20
        raise ServerFailed(
            f"llama.cpp cannot load {path} ({size:,.0f} MB, window {window:,}): {error} "
            "The file may be damaged or of a newer kind, or memory may be short: try a smaller --num-ctx"
        ) from error
    return Embedded(server.listening_address, key, server)
