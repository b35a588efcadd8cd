"""Settings as frozen values that remember where they came from.

Later places win: the user's `localctx.toml`, the project folder's, `LOCALCTX_*`, then flags. A project's file may come
from somebody else: it may not name a key, tools or what they may do, and an address of its own that is not this
machine gets no key.
"""

from __future__ import annotations

import re
import stat
import tomllib
from collections.abc import Mapping  # noqa: TC003  msgspec reads the annotation
from dataclasses import dataclass, field
from difflib import get_close_matches
from functools import partial
from ipaddress import ip_address
from itertools import chain
from math import inf
from typing import TYPE_CHECKING, Any, Literal, get_args
from urllib.parse import urlsplit

import msgspec

from localctx.core.approval import rule
from localctx.errors import Misuse

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

__all__ = [
    "KEYS",
    "MOST_TOKENS",
    "TOOL_SETS",
    "Layer",
    "Settings",
    "Thresholds",
    "file_layer",
    "load",
    "places",
    "settled",
    "this_machine",
    "unread",
]

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


Think = Literal["on", "off"]
"""Whether a model that can think before it answers is to; not set leaves it to the model."""

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
    think: Think | None = None
    system: str | None = None
    policy: str | None = None
    patience: float | None = None
    summarizer_model: str | None = None
    tools: str | None = None
    allow: tuple[str, ...] = ()
    max_steps: int | None = None
    api_key_env: str | None = None
    thresholds: Thresholds | None = None


KEYS = _File.__struct_fields__
"""The names of all settings."""

_SIZES = ("num_ctx", "max_context_tokens", "max_tokens", "max_steps")
MOST_TOKENS = 2**31 - 1
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


@dataclass(frozen=True, slots=True)
class Layer:
    """What one place sets, as it says it. `place` is `user FILE`, `project FILE`, `environment` or `flag`.

    `lines` and `variables` say where its keys are.
    """

    place: str
    table: Mapping[str, object] = field(default_factory=dict)
    lines: Mapping[str, int] = field(default_factory=dict)
    variables: Mapping[str, str] = field(default_factory=dict)

    def origin(self, name: str) -> str:
        """Where a value comes from, for people: the flag, the variable, or the file with the line of its key."""
        match self.place:
            case "flag":
                return "--" + _FLAGS.get(name, name.replace("_", "-"))
            case "environment":
                return self.variables.get(name) or f"LOCALCTX_{name.upper()}"
        spelled = [name, *(other for other, own in _SPELLINGS.items() if own == name)]
        line = next((self.lines[each] for each in spelled if each in self.lines), None)
        return self.place if line is None else f"{self.place}:{line}"


_FLAGS = {"max_context_tokens": "max-context", "summarizer_model": "summarizer"}


def load(flags: Mapping[str, object], *, environment: Mapping[str, str], project: Path, user: Path) -> Settings:
    """The settings that files, environment and flags add up to; a flag that is None was not given.

    Raises `Misuse` with the file, the line, the key and what is wrong.
    """
    kept = [read() for read in places(environment=environment, project=project, user=user).values()]
    return settled([*kept, Layer("flag", {name: value for name, value in flags.items() if value is not None})])


def settled(layers: Sequence[Layer]) -> Settings:
    """What places add up to, the weakest first. Raises `Misuse` with the place, the key and what is wrong."""
    values, origins = dict[str, Any](), dict[str, str]()
    for layer in layers:
        for name, value in _checked(layer).items():
            before = values.get(name)
            values[name] = _joined(before, value) if isinstance(before, Thresholds) else value
            origins[name] = layer.origin(name)
    return Settings(**values, origins=origins)


def _joined(before: Thresholds, after: Thresholds) -> Thresholds:
    """The thresholds of two places, those of the second first."""
    wanted = {name: getattr(after, name) for name in Thresholds.__struct_fields__}
    return msgspec.structs.replace(before, **{name: value for name, value in wanted.items() if value is not None})


def places(*, environment: Mapping[str, str], project: Path, user: Path) -> dict[str, Callable[[], Layer]]:
    """What reads each place, by its name, the weakest first. Each raises `Misuse` for what cannot be read, or is no TOML."""
    own = {} if project == user else {f"project {project / FILE}": partial(_project, project / FILE)}
    return {
        f"user {user / FILE}": partial(file_layer, user / FILE),
        **own,
        "environment": lambda: _environment(environment),
    }


def file_layer(path: Path, kind: str = "user") -> Layer:
    """What a file sets; nothing where there is none. Raises `Misuse` where it cannot be read, or is no TOML."""
    text = _read(path)
    try:
        return Layer(f"{kind} {path}", tomllib.loads(text), _lines(text))
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise Misuse(f"{path} is no TOML: {error}") from error


def _read(path: Path) -> str:
    try:
        if not stat.S_ISREG(path.stat().st_mode):
            raise Misuse(f"{path} is no file; remove it, or put a file there")
        with path.open("rb") as file:
            raw = file.read(_MOST_BYTES + 1)
    except (FileNotFoundError, NotADirectoryError):
        return ""
    except OSError as error:
        raise Misuse(f"cannot read {path} ({error.strerror or error}); make it readable, or remove it") from error
    if len(raw) > _MOST_BYTES:
        raise Misuse(f"{path} is larger than {_MOST_BYTES:,} bytes, which no configuration is; look at what it is")
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise Misuse(f"{path} is no TOML: {error}") from error


_KEY = re.compile(r"""\s*(\[?)\s*["']?([\w-]+)["']?\s*(?:[.=\]]\s*["']?([\w-]+)?)""")


_LONG_QUOTE = re.compile(r"\"{3}|'{3}")


def _lines(text: str) -> dict[str, int]:
    """The line on which each key begins, by its name, or by table and name."""
    found, table, quoted = dict[str, int](), "", False
    for number, line in enumerate(text.splitlines(), 1):
        inside, quoted = quoted, quoted ^ (len(_LONG_QUOTE.findall(line)) % 2 == 1)
        if not inside and (match := _KEY.match(line)):
            opens, name, below = match.groups()
            table = name if opens else table
            path = name if opens else f"{table}.{name}" if table else name
            found.setdefault(path, number)
            if below and "." in match[0] and not opens:
                found.setdefault(f"{path}.{below}", number)
    return found


def _project(path: Path) -> Layer:
    layer = file_layer(path, "project")
    if refused := [name for name in ("api_key_env", "tools", "allow") if name in layer.table]:
        raise Misuse(
            f"{layer.origin(refused[0])}: {refused[0]} is not taken from a project's file, which may come from "
            "somebody else; set it in your own"
        )
    return layer


def _variables() -> dict[str, list[str]]:
    """The variables of each setting that has some, called as its key or as its flag is."""
    names = [name for name in _File.__struct_fields__ if name not in {"thresholds", "allow"}]
    called = {name: (name, _FLAGS[name].replace("-", "_")) if name in _FLAGS else (name,) for name in names}
    return {name: [f"LOCALCTX_{each.upper()}" for each in called[name]] for name in names}


_NO_SETTINGS = ("LOCALCTX_API_KEY", "LOCALCTX_HOME", "LOCALCTX_OFFLINE")
"""Variables that are read elsewhere."""


def unread(environment: Mapping[str, str]) -> list[str]:
    """What is said of each variable that is called as ours are, and that nothing reads."""
    known = [*_NO_SETTINGS, *chain(*_variables().values())]
    others = sorted(name for name in environment if name.startswith("LOCALCTX_") and name not in known)
    near = {name: get_close_matches(name, known, 1) for name in others}
    return [f"{name}: nothing reads it" + (f"; did you mean {near[name][0]}?" if near[name] else "") for name in others]


def _environment(environment: Mapping[str, str]) -> Layer:
    variables = _variables()
    found = {name: next((each for each in own if environment.get(each)), "") for name, own in variables.items()}
    table = {name: environment[variable] for name, variable in found.items() if variable}
    return Layer("environment", table, variables=found)


def _checked(layer: Layer) -> dict[str, Any]:
    named = {_SPELLINGS.get(name, name): value for name, value in layer.table.items()}
    try:
        table = msgspec.convert(named, _File, strict=layer.place not in {"environment", "flag"})
    except msgspec.ValidationError as error:
        raise Misuse(_explained(str(error), layer)) from error
    for name in _SIZES:
        value = getattr(table, name)
        if value is not None and not 0 < value <= MOST_TOKENS:
            raise Misuse(f"{layer.origin(name)}: {name} must be above 0 and at most {MOST_TOKENS:,}, not {value}")
    for name in ("temperature", "patience"):
        value = getattr(table, name)
        if value is not None and not 0 <= value < inf:
            raise Misuse(f"{layer.origin(name)}: {name} must be a number from 0 up, not {value}")
    for name, texts, read in (("tools", (table.tools or "none",), _tool_sets), ("allow", table.allow, rule)):
        try:
            for text in texts:
                read(text)
        except ValueError as error:
            raise Misuse(f"{layer.origin(name)}: {error}") from None
    return {name: value for name in _File.__struct_fields__ if (value := getattr(table, name)) not in (None, ())}


def _tool_sets(text: str) -> frozenset[str]:
    """The sets that a text names. Raises `ValueError` for one that is none."""
    named = {part.strip() for part in text.split(",")} - {""}
    if unknown := sorted(named - {*TOOL_SETS, "all", "none"}):
        raise ValueError(f"tools: unknown set {unknown[0]!r}; it is a list of {', '.join(TOOL_SETS)}, or all, or none")
    return frozenset((named - {"all", "none"}) | ({*TOOL_SETS} - {"web"} if "all" in named else set()))


def _explained(error: str, layer: Layer) -> str:
    """A decoding error with the place and the key that it is about."""
    text, _, where = error.partition(" - at `$")
    name = where.strip(".`")
    if "unknown field" in text:
        known = Thresholds if name else _File
        key = text.rpartition("`")[0].rpartition("`")[2]
        place = layer.origin(f"{name}.{key}" if name else key)
        near = get_close_matches(key, known.__struct_fields__, 1)
        meant = f"did you mean {near[0]}?" if near else f"known are {', '.join(known.__struct_fields__)}"
        return f"{place}: there is no setting `{key}`{f' in {name}' if name else ''}; {meant}"
    choices = f"; it is one of {', '.join(get_args(_CHOICES[name]))}" if name in _CHOICES else ""
    for raw, plainly in _PLAINLY.items():
        text = text.replace(raw, plainly)
    return f"{layer.origin(name)}: {name}: {text}{choices}"


_CHOICES: Mapping[str, Any] = {"runtime": Runtime, "think": Think}

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
