"""The tools of a chat: those of the sets that were asked for, as far as the window has room for them."""

from __future__ import annotations

import os
import platform
from datetime import datetime
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

from localctx.app.tools.commands import RunCommand
from localctx.app.tools.place import Place, can_confine
from localctx.app.tools.reading import ListDir, ReadFile
from localctx.app.tools.searching import Find, Grep
from localctx.app.tools.toolbox import Toolbox
from localctx.app.tools.writing import EditFile, WriteFile
from localctx.core.advice import waiting
from localctx.core.secrets import Secrets

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence
    from pathlib import Path

    from localctx.app.chat import Chat
    from localctx.config import Settings
    from localctx.core.events import Event
    from localctx.ports import Approval, Tool

__all__ = ["chosen", "introduction", "offer", "secrets_of"]

_ORDER = (
    *("read_file", "run_command", "edit_file", "retrieve_tool_result", "list_dir", "grep", "write_file"),
    *("recall", "find", "update_work_state", "context_info", "summarize_context", "fetch_url"),
)
"""Tools as they are worth their room: first those without which nothing can be done."""


def introduction(folder: Path) -> str:
    """What an agent is told that nobody else says anything to: where it is, when, and how to begin."""
    where = f"You work in the folder {folder} on {platform.system()}. Today is {datetime.now().astimezone():%Y-%m-%d}."
    return f"{where} Look with the tools before you answer or change anything, and say at the end what you did."


def secrets_of(given: Settings) -> Secrets:
    """What a run with these settings hides: besides what names give away, its keys and the passwords in its addresses."""
    names = {"LOCALCTX_API_KEY", *([given.api_key_env] if given.api_key_env else [])}
    addresses = (given.url, (given.summarizer_model or "").rpartition("#")[0], os.environ.get("OLLAMA_HOST"))
    return Secrets.of(os.environ, names, [text for address in addresses for text in _confided_in(address or "")])


def _confided_in(address: str) -> list[str]:
    """An address with a password, and the password; of one with a name alone, that. Nothing for any other."""
    try:
        netloc = urlsplit(address if "://" in address else f"//{address}").netloc
    except ValueError:
        return []
    who, at, _ = netloc.rpartition("@")
    name, _, password = who.partition(":")
    return [address, password or name, unquote(password or name)] if at else []


def chosen(
    sets: Collection[str],
    recorded: Sequence[Tool],
    folder: Path,
    approval: Approval,
    fit: Callable[[str], str],
    *,
    secrets: Secrets,
) -> list[Tool]:
    """The tools of some sets, the most useful first; `recorded` is the set `session`. Those of files and commands work in `folder`."""
    place = Place(folder)
    by_set: dict[str, list[Tool]] = {
        "session": list(recorded),
        "read": [ReadFile(place, approval, fit), ListDir(place), Grep(place, secrets), Find(place, secrets)],
        "write": [WriteFile(place, approval), EditFile(place, approval)],
        "command": [RunCommand(place, approval, secrets)],
        "web": [_fetching(approval)] if "web" in sets else [],
    }
    unfit = set() if can_confine() else {"read", "write", "command"}
    tools = [tool for name, each in by_set.items() if name in sets and name not in unfit for tool in each]
    return sorted(tools, key=lambda tool: _ORDER.index(tool.name) if tool.name in _ORDER else len(_ORDER))


def _fetching(approval: Approval) -> Tool:
    from localctx.app.tools.web import FetchUrl  # noqa: PLC0415  only who asks for the web needs it
    from localctx.runtimes.web import PublicWeb  # noqa: PLC0415  as above

    return FetchUrl(PublicWeb(), approval)


def offer(
    chat: Chat, tools: Sequence[Tool], emit: Callable[[Event], None], secrets: Secrets, *, insisted: bool
) -> None:
    """Offers tools as far as there is room, with secrets masked in their results; says which are left for later, and where there is none."""
    window = chat.engine.budget.window
    box = Toolbox.fitting(tools, window, chat.meter.size, insisted=insisted, hidden=secrets.values)
    by_state = {
        state: [each for each in box.shelves if each.state == state] for state in ("offered", "deferred", "left out")
    }
    if notice := waiting(window, *({each.name: each.tokens for each in shelves} for shelves in by_state.values())):
        emit(notice)
    if box.schemas:
        chat.offer(box)
