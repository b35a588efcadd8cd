"""Where things are kept, and what was set."""

from __future__ import annotations

import os
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import mkdtemp
from typing import TYPE_CHECKING

from platformdirs import user_config_path, user_data_path

from localctx.config import Settings, Thresholds, load
from localctx.core.ladder import POLICIES, Policy, tuned
from localctx.core.window import Reading, Source
from localctx.errors import JournalDamaged, Misuse, StoreUnusable
from localctx.runtimes.server import Pins
from localctx.stores.calibration import Calibrations
from localctx.stores.catalog import Catalog
from localctx.stores.journal import FileJournal, MemoryJournal, in_file
from localctx.stores.models import ModelStore
from localctx.stores.recall import RecallIndex
from localctx.stores.sessions import Sessions, header_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from localctx.ports import Journal

__all__ = [
    "calibrations",
    "catalog",
    "home",
    "journal",
    "located",
    "model_store",
    "pins",
    "policy",
    "recall_index",
    "sessions",
    "settings",
    "text_or_file",
]


def home() -> Path:
    """The data directory: LOCALCTX_HOME, or the user's usual one."""
    named = os.environ.get("LOCALCTX_HOME")
    return Path(named).expanduser() if named else user_data_path("localctx")


def model_store() -> ModelStore:
    """The small models in the data directory."""
    return ModelStore(home())


def calibrations() -> Calibrations:
    """What was learned of how servers count, in the data directory."""
    return Calibrations(home() / "localctx.db")


def catalog() -> Catalog:
    """The models.dev listings in the data directory, or the bundled ones."""
    return Catalog(home() / "catalog.json")


def journal(
    *, session: str | None = None, resume: str | None = None, go_on: bool = False, ephemeral: bool = False
) -> FileJournal | MemoryJournal:
    """The journal of a new session, of one by name, of the newest, or one that is kept nowhere. At most one may be named.

    A new session that cannot be kept is one in memory, which says so; one that was named raises `StoreUnusable`.
    """
    if sum((session is not None, resume is not None, go_on, ephemeral)) > 1:
        raise Misuse("--session, --resume, --continue and --ephemeral exclude each other; pass one")
    if ephemeral:
        return MemoryJournal(folder=_temporary())
    if resume is not None:
        return sessions().resume(resume)
    if go_on:
        return sessions().newest()
    try:
        return sessions().create(session)
    except StoreUnusable as error:
        if session is not None:
            raise
        return MemoryJournal(str(error))


def _temporary() -> Path | None:
    """A private folder for long results; None where there can be none."""
    with suppress(OSError):
        return Path(mkdtemp(prefix="localctx-"))
    return None


def sessions() -> Sessions:
    """The sessions in the data directory."""
    return Sessions(home())


@contextmanager
def located(kept: Journal) -> Iterator[None]:
    """Names the file and the line of damage that is found in a journal meanwhile."""
    try:
        yield
    except JournalDamaged as error:
        raise (in_file(kept.path, error) if isinstance(kept, FileJournal) else error) from error


def recall_index(kept: Journal) -> RecallIndex:
    """What finds the lines of a journal by their words: beside it, or in memory."""
    if not isinstance(kept, FileJournal):
        return RecallIndex(None)
    index = RecallIndex(kept.path.with_name("recall.db"), str(header_of(kept.path).get("created")))
    index.forget(kept.last_seq)
    return index


def settings(flags: Mapping[str, object]) -> Settings:
    """What files, environment and flags add up to."""
    return load(flags, environment=os.environ, project=Path.cwd(), user=user_config_path("localctx"))


def policy(given: Settings) -> tuple[Policy, tuple[str, ...]]:
    """The policy by its name with the thresholds that were set, and what is said of those that are of no use.

    Raises `Misuse` for a name that is none.
    """
    name = given.policy or "ladder"
    if name not in POLICIES:
        raise Misuse(f"unknown policy {name!r} ({given.origins['policy']}); known: {', '.join(POLICIES)}")
    wanted = given.thresholds or Thresholds()
    return tuned(POLICIES[name], clear=wanted.clear, warn=wanted.warn, compact=wanted.compact, trim=wanted.trim)


def pins(given: Settings) -> Pins:
    """What the settings ask of every window."""
    pin = Reading(Source.PINNED, given.num_ctx, given.origins["num_ctx"]) if given.num_ctx else None
    return Pins(pin, given.max_context_tokens)


_MOST_SYSTEM = 4 * 2**20


def text_or_file(text: str) -> str:
    """The text, or for `@FILE` what the file holds."""
    if not text.startswith("@"):
        return text
    try:
        with Path(text[1:]).expanduser().open(encoding="utf-8", errors="replace") as file:
            return file.read(_MOST_SYSTEM).strip()
    except OSError as error:
        raise Misuse(
            f"cannot read the system prompt {text[1:]} ({error.strerror or error}); name a file that is there"
        ) from error
