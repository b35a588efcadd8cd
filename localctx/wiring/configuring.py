"""What is set, where, and whether it is of any use."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import to_builtins
from platformdirs import user_config_path

from localctx.app.chat import MOST_STEPS
from localctx.app.compaction import PATIENCE_SECONDS
from localctx.config import FILE, KEYS, Settings, file_layer, places, settled, unread
from localctx.core.ladder import POLICIES
from localctx.errors import Misuse
from localctx.runtimes.http import client
from localctx.wiring.places import policy, settings, text_or_file

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from localctx.config import Layer

__all__ = ["Checked", "Value", "check", "user_file", "values"]


@dataclass(frozen=True, slots=True)
class Value:
    """A setting that is set, and the place that it comes from. Passwords in addresses are left out."""

    name: str
    value: object
    place: str


@dataclass(frozen=True, slots=True)
class Checked:
    """A place that settings come from, how many are set there, and what is wrong with them."""

    place: str
    found: int
    wrong: tuple[str, ...] = ()


def user_file() -> Path:
    """The user's own file, whether it is there or not."""
    return user_config_path("localctx") / FILE


def values() -> list[Value]:
    """What a run that is started here goes by, its flags apart, defaults last. Raises `Misuse` for what cannot be used."""
    given = settings({})
    usual = [Value(name, value, "default") for name, value in _USUAL.items() if name not in given.origins]
    found = [
        Value(name, _shown(name, getattr(given, name)), given.origins[name]) for name in KEYS if name in given.origins
    ]
    return found + usual


_USUAL: dict[str, object] = {
    "policy": "ladder",
    "patience": PATIENCE_SECONDS,
    "tools": "all",
    "max_steps": MOST_STEPS,
    "thresholds": {name: getattr(POLICIES["ladder"], name) for name in ("clear", "warn", "compact", "trim")},
}
"""What a run goes by where nothing is set."""


_CREDENTIALS = re.compile(r"^(\w+://)?.*@", re.DOTALL)
"""All that may be a name and a password, as `runtimes.http` leaves it out of an address that it cannot use."""

_ADDRESSES = {"url", "summarizer_model"}


def _shown(name: str, value: object) -> object:
    match to_builtins(value):
        case str(text) if name in _ADDRESSES:
            return _CREDENTIALS.sub(r"\1***@", text)
        case dict(table):
            return {name: each for name, each in table.items() if each is not None}
        case other:
            return other


def check(files: Sequence[Path] = ()) -> list[Checked]:
    """What is wrong with each place, and with all of them together; of `files`, where some are named, with each alone.

    Nothing is asked of any server.
    """
    if files:
        return [_checked(f"file {path}", partial(_named, path), alone=True) for path in files]
    where = places(environment=os.environ, project=Path.cwd(), user=user_file().parent)
    found = [_checked(place, read) for place, read in where.items()]
    found = [*found, *(Checked("environment", 0, (said,)) for said in unread(os.environ))]
    if any(each.wrong for each in found):
        return found
    given = settings({})
    return [*found, Checked("all together", len(given.origins), tuple(_unusable(given)))]


def _named(path: Path) -> Layer:
    if not path.is_file():
        raise Misuse(f"there is no file {path}; localctx config path names yours")
    return file_layer(path, "file")


def _checked(place: str, read: Callable[[], Layer], *, alone: bool = False) -> Checked:
    try:
        given = settled([read()])
    except Misuse as error:
        return Checked(place, 0, (str(error),))
    return Checked(place, len(given.origins), tuple(_unusable(given)) if alone else ())


def _unusable(given: Settings) -> Iterator[str]:
    """What cannot be used although it is written as it should be."""
    try:
        _, unfit = policy(given)
        yield from (f"{given.origins['thresholds']}: {said}" for said in unfit)
    except Misuse as error:
        yield str(error)
    checks: list[tuple[str, Callable[[], object]]] = [
        ("url", lambda: client(given.url or "")),
        ("system", lambda: text_or_file(given.system or "")),
        ("api_key_env", lambda: given.key(os.environ)),
    ]
    for name, use in checks:
        try:
            if name in given.origins:
                use()
        except Misuse as error:
            yield f"{given.origins[name]}: {error}"
