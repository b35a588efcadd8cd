"""Settings as frozen values that remember where they came from.

Later places win: the user's `localctx.toml`, the project folder's, `LOCALCTX_*`, then flags. A project's file may come
from somebody else: it may not name a key, and an address of its own that is not this machine gets none.
"""

from __future__ import annotations

import tomllib
from dataclasses import dataclass, field
from ipaddress import ip_address
from typing import TYPE_CHECKING, Any, Literal
from urllib.parse import urlsplit

import msgspec

from localctx.errors import Misuse

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

__all__ = ["Settings", "Thresholds", "load"]

FILE = "localctx.toml"
_MOST_BYTES = 1 << 20

_SPELLINGS = {"maxContextTokens": "max_context_tokens", "numCtx": "num_ctx", "maxTokens": "max_tokens"}

Runtime = Literal["llama-server", "embedded"]
"""The runtimes that this version reads."""


class Thresholds(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """When the rungs are due, as shares of the window; None leaves the default."""

    clear: float | None = None
    warn: float | None = None
    compact: float | None = None
    trim: float | None = None


class _File(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    model: str | None = None
    url: str | None = None
    runtime: Runtime | None = None
    num_ctx: int | None = None
    max_context_tokens: int | None = None
    max_tokens: int | None = None
    temperature: float | None = None
    system: str | None = None
    policy: str | None = None
    api_key_env: str | None = None
    thresholds: Thresholds | None = None


_POSITIVE = ("num_ctx", "max_context_tokens", "max_tokens")


@dataclass(frozen=True, slots=True)
class Settings:
    """What was set, and for each value that is set the place it came from. Sizes are tokens."""

    model: str | None = None
    url: str | None = None
    runtime: Runtime | None = None
    num_ctx: int | None = None
    max_context_tokens: int | None = None
    max_tokens: int | None = None
    temperature: float | None = None
    system: str | None = None
    policy: str | None = None
    api_key_env: str | None = None
    thresholds: Thresholds | None = None
    origins: Mapping[str, str] = field(default_factory=dict)

    def key(self, environment: Mapping[str, str]) -> str | None:
        """The key to send, if there is one and the address may have it. Raises `Misuse` for a named key that is not set."""
        if self.url and self.origins["url"].startswith("project ") and not _this_machine(self.url):
            return None
        if self.api_key_env is None:
            return environment.get("LOCALCTX_API_KEY") or None
        if not environment.get(self.api_key_env):
            raise Misuse(
                f"the key's variable {self.api_key_env} ({self.origins['api_key_env']}) is not set; set it, or name another"
            )
        return environment[self.api_key_env]


def load(flags: Mapping[str, object], *, environment: Mapping[str, str], project: Path, user: Path) -> Settings:
    """The settings that files, environment and flags add up to; a flag that is None was not given.

    Raises `Misuse` with the file, the key and what is wrong.
    """
    layers = [
        (f"user {user / FILE}", _read(user / FILE)),
        (f"project {project / FILE}", _project(project / FILE)),
        ("environment", _environment(environment)),
        ("flag", {name: value for name, value in flags.items() if value is not None}),
    ]
    values, origins = dict[str, Any](), dict[str, str]()
    for place, layer in layers:
        for name, value in _checked(layer, place).items():
            values[name], origins[name] = value, _origin(place, name)
    return Settings(**values, origins=origins)


def _origin(place: str, name: str) -> str:
    match place:
        case "flag":
            return "--" + {"max_context_tokens": "max-context"}.get(name, name.replace("_", "-"))
        case "environment":
            return f"LOCALCTX_{name.upper()}"
    return place


def _read(path: Path) -> dict[str, object]:
    try:
        with path.open("rb") as file:
            raw = file.read(_MOST_BYTES + 1)
    except (FileNotFoundError, NotADirectoryError):
        return {}
    except OSError as error:
        raise Misuse(f"cannot read {path} ({error.strerror or error}); make it readable, or remove it") from error
    if len(raw) > _MOST_BYTES:
        raise Misuse(f"{path} is larger than {_MOST_BYTES:,} bytes, which no configuration is; look at what it is")
    try:
        return tomllib.loads(raw.decode())
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise Misuse(f"{path} is no TOML: {error}") from error


def _project(path: Path) -> dict[str, object]:
    table = _read(path)
    if "api_key_env" in table:
        raise Misuse(
            f"{path}: api_key_env is not taken from a project's file, which may come from somebody else; set it in your own"
        )
    return table


def _environment(environment: Mapping[str, str]) -> dict[str, object]:
    names = (name for name in _File.__struct_fields__ if name != "thresholds")
    return {name: text for name in names if (text := environment.get(f"LOCALCTX_{name.upper()}"))}


def _checked(layer: Mapping[str, object], place: str) -> dict[str, object]:
    named = {_SPELLINGS.get(name, name): value for name, value in layer.items()}
    try:
        table = msgspec.convert(named, _File, strict=place not in {"environment", "flag"})
    except msgspec.ValidationError as error:
        raise Misuse(f"{place}: {error}".replace(" - at `$.", " - at `")) from error
    for name in _POSITIVE:
        value = getattr(table, name)
        if value is not None and value <= 0:
            raise Misuse(f"{_origin(place, name)}: {name} must be above 0, not {value}")
    return {name: value for name in _File.__struct_fields__ if (value := getattr(table, name)) is not None}


def _this_machine(url: str) -> bool:
    host = urlsplit(url if "://" in url else f"http://{url}").hostname or ""
    try:
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False
