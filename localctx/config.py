"""Settings as frozen values that remember where they came from.

Later places win: the user's `localctx.toml`, the project folder's, `LOCALCTX_*`, then flags. A project's file may come
from somebody else: it may not name a key, tools or what they may do, and an address of its own that is not this
machine gets no key.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping  # noqa: TC003  msgspec reads the annotation
from ipaddress import ip_address
from math import inf
from typing import TYPE_CHECKING, Any, Literal, get_args
from urllib.parse import urlsplit

import msgspec

from localctx.core.approval import rule
from localctx.errors import Misuse

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["TOOL_SETS", "Settings", "Thresholds", "load", "this_machine"]

FILE = "localctx.toml"
_MOST_BYTES = 16 * 1024
"""A configuration is small, and reading TOML takes quadratic time and memory in the depth of its keys."""

_SPELLINGS = {
    "maxContextTokens": "max_context_tokens",
    "numCtx": "num_ctx",
    "maxTokens": "max_tokens",
    "summarizerModel": "summarizer_model",
}

Runtime = Literal["llama-server", "ollama", "vllm", "sglang", "lmstudio", "openai", "embedded"]
"""The runtimes that can be named; `openai` is any OpenAI-compatible server."""


TOOL_SETS = ("session", "read", "write", "command", "web")
"""What a model may be offered to call: what reaches the whole session, what reads and what changes files, commands, the web."""


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
    patience: float | None = None
    summarizer_model: str | None = None
    tools: str | None = None
    allow: tuple[str, ...] = ()
    max_steps: int | None = None
    api_key_env: str | None = None
    thresholds: Thresholds | None = None


_SIZES = ("num_ctx", "max_context_tokens", "max_tokens", "max_steps")
_MOST_TOKENS = 2**31 - 1
"""The largest number that a server can hold."""


class Settings(_File, frozen=True):
    """What was set, and for each value that is set the place it came from. Sizes are tokens, `patience` is seconds."""

    origins: Mapping[str, str] = {}

    def tool_sets(self, usual: str) -> frozenset[str]:
        """The sets of tools that were asked for, or the usual ones: a list with commas, `all` but the web, or `none`."""
        return _tool_sets(self.tools or usual)

    def key(self, environment: Mapping[str, str]) -> str | None:
        """The key to send, if there is one and the address may have it. Raises `Misuse` for a named key that is not set."""
        if self.url and self.origins["url"].startswith("project ") and not this_machine(self.url):
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
        (f"project {project / FILE}", {} if project == user else _project(project / FILE)),
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
            return "--" + {"max_context_tokens": "max-context", "summarizer_model": "summarizer"}.get(
                name, name.replace("_", "-")
            )
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
        return tomllib.loads(raw.decode("utf-8-sig"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise Misuse(f"{path} is no TOML: {error}") from error


def _project(path: Path) -> dict[str, object]:
    table = _read(path)
    if refused := [name for name in ("api_key_env", "tools", "allow") if name in table]:
        raise Misuse(
            f"{path}: {refused[0]} is not taken from a project's file, which may come from somebody else; set it in your own"
        )
    return table


_AS_FLAG = {"max_context_tokens": "LOCALCTX_MAX_CONTEXT"}
"""A variable may also be called as its flag is."""


def _environment(environment: Mapping[str, str]) -> dict[str, object]:
    names = (name for name in _File.__struct_fields__ if name not in {"thresholds", "allow"})
    return {
        name: text
        for name in names
        if (text := environment.get(f"LOCALCTX_{name.upper()}") or environment.get(_AS_FLAG.get(name, "")))
    }


def _checked(layer: Mapping[str, object], place: str) -> dict[str, object]:
    named = {_SPELLINGS.get(name, name): value for name, value in layer.items()}
    try:
        table = msgspec.convert(named, _File, strict=place not in {"environment", "flag"})
    except msgspec.ValidationError as error:
        raise Misuse(_explained(str(error), place)) from error
    for name in _SIZES:
        value = getattr(table, name)
        if value is not None and not 0 < value <= _MOST_TOKENS:
            raise Misuse(f"{_origin(place, name)}: {name} must be above 0 and at most {_MOST_TOKENS:,}, not {value}")
    for name in ("temperature", "patience"):
        value = getattr(table, name)
        if value is not None and not 0 <= value < inf:
            raise Misuse(f"{_origin(place, name)}: {name} must be a number from 0 up, not {value}")
    try:
        _tool_sets(table.tools or "none")
        for text in table.allow:
            rule(text)
    except ValueError as error:
        raise Misuse(f"{_origin(place, 'allow' if table.allow else 'tools')}: {error}") from None
    return {name: value for name in _File.__struct_fields__ if (value := getattr(table, name)) not in (None, ())}


def _tool_sets(text: str) -> frozenset[str]:
    """The sets that a text names. Raises `ValueError` for one that is none."""
    named = {part.strip() for part in text.split(",")} - {""}
    if unknown := sorted(named - {*TOOL_SETS, "all", "none"}):
        raise ValueError(f"tools: unknown set {unknown[0]!r}; it is a list of {', '.join(TOOL_SETS)}, or all, or none")
    return frozenset((named - {"all", "none"}) | ({*TOOL_SETS} - {"web"} if "all" in named else set()))


def _explained(error: str, place: str) -> str:
    """A decoding error with the place and the key that it is about."""
    text, _, where = error.partition(" - at `$")
    name = where.strip(".`")
    if "unknown field" in text:
        known = Thresholds if name else _File
        return f"{place}: {text}{f' in {name}' if name else ''}; known are {', '.join(known.__struct_fields__)}"
    choices = f"; it is one of {', '.join(get_args(Runtime))}" if name == "runtime" else ""
    for raw, plainly in _PLAINLY.items():
        text = text.replace(raw, plainly)
    return f"{_origin(place, name)}: {name}: {text}{choices}"


_PLAINLY = {
    "Expected `int | null`": "a whole number is wanted",
    "Expected `float | null`": "a number is wanted",
    "Expected `str | null`": "text is wanted",
    "got `str`": "not text",
    "got `bool`": "not true or false",
    "Invalid enum value": "unknown value",
}
"""What the decoder says, in words for people."""


def this_machine(url: str) -> bool:
    """Whether an address is a loopback one."""
    try:
        host = urlsplit(url if "://" in url else f"http://{url}").hostname or ""
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False
