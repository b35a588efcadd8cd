"""The program that is killed: it opens the session `s` and does there what it was asked to, in order (see `_ACTIONS`).

It may be asked to end itself in the middle of a write of the journal, as a kill would. What happens is told as it happens.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import TYPE_CHECKING, Any

from localctx import wiring
from localctx.app.chat import Chat
from localctx.app.tools.toolbox import Toolbox
from localctx.core.events import Event, RungBegun
from localctx.core.journal import Entry
from localctx.core.results import RECALL, RETRIEVE
from localctx.core.work import UPDATE
from localctx.ports import Outcome
from localctx.wiring.places import sessions
from tests.killed.script import GO_ON, SYSTEM, TURNS, file_text

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

__all__ = ["following", "main"]


def following(entries: Iterable[Entry]) -> str | None:
    """What the script has to say next in a session: its next turn, or a nudge where the last one was not answered."""
    said, answered = -1, True
    for entry in entries:
        match entry.body.get("message"):
            case {"role": "user", "content": str(text)} if text in TURNS:
                said, answered = TURNS.index(text), False
            case {"role": "assistant", **more} if not more.get("tool_calls"):
                answered = answered or entry.body.get("complete") is not False
    if not answered:
        return GO_ON
    return TURNS[said + 1] if said + 1 < len(TURNS) else None


@dataclass(frozen=True)
class ReadFile:
    """Reads a file of the script, in a moment."""

    name = "read_file"

    @property
    def schema(self) -> dict[str, object]:
        return _schema(self.name, "path")

    async def run(self, arguments: Mapping[str, object]) -> Outcome:
        await asyncio.sleep(_A_MOMENT)
        return Outcome(file_text(str(arguments.get("path"))))


@dataclass(frozen=True)
class WriteFile:
    """Says that it wrote a file, in a moment."""

    name = "write_file"

    @property
    def schema(self) -> dict[str, object]:
        return _schema(self.name, "path", "content")

    async def run(self, arguments: Mapping[str, object]) -> Outcome:
        await asyncio.sleep(_A_MOMENT)
        return Outcome(f"wrote {len(str(arguments.get('content')))} characters")


_A_MOMENT = 0.02


def _schema(name: str, *fields: str) -> dict[str, object]:
    parameters = {"type": "object", "properties": {field: {"type": "string"} for field in fields}}
    return {"type": "function", "function": {"name": name, "parameters": parameters}}


def die_while_writing(path: Path, *, line: str, nth: int, share: float) -> None:
    """Ends this program in the middle of the write that brings the nth line of a type into a journal."""
    write, left = os.write, [nth]

    def fatal(fd: int, data: ReadableBuffer) -> int:
        raw = bytes(data)
        if path.exists() and os.path.samestat(os.fstat(fd), path.stat()) and line in {"any", _type_of(raw)}:
            left[0] -= 1
            if left[0] == 0:
                write(fd, raw[: int(len(raw) * share)])
                os.kill(os.getpid(), signal.SIGKILL)
        return write(fd, data)

    os.write = fatal


def _type_of(line: bytes) -> str:
    return str(json.loads(line).get("type", "header"))


_TOLD = ("code", "id", "rung", "how", "tokens_before", "tokens_after", "used", "text")


class Shell:
    """Tells whoever started this program what a chat emits, and lets others wait for it."""

    def __init__(self, teller: Connection) -> None:
        self._teller, self.began = teller, asyncio.Event()

    def __call__(self, event: Event) -> None:
        self.tell(type(event).__name__, **{name: getattr(event, name) for name in _TOLD if hasattr(event, name)})
        if isinstance(event, RungBegun):
            self.began.set()

    def tell(self, event: str, **fields: object) -> None:
        """Tells of something, at once."""
        self._teller.send({"event": event, **fields})


async def _script(chat: Chat, _shell: Shell) -> None:
    while (text := following(chat.session.journal.entries())) is not None:
        await chat.ask(text)


async def _ask(chat: Chat, _shell: Shell, text: str) -> None:
    await chat.ask(text)


async def _compact(chat: Chat, shell: Shell) -> None:
    shell.tell("compacted", done=await chat.engine.compact())


async def _idle(chat: Chat, _shell: Shell) -> None:
    await chat.idle()


async def _asked_in_the_middle(chat: Chat, shell: Shell, meanwhile: str, text: str) -> None:
    """A message comes while the notes stream: they are given up, and it is answered."""
    working = asyncio.create_task(chat.idle() if meanwhile == "idle" else chat.engine.compact())
    await shell.began.wait()
    await asyncio.sleep(_A_MOMENT)
    working.cancel()
    await asyncio.wait([working])
    shell.tell("given_up", cancelled=working.cancelled())
    await chat.ask(text)


async def _asked_beside_compacting(chat: Chat, shell: Shell, text: str) -> None:
    """A message comes while the notes stream, and nobody gives anything up."""
    compacting = asyncio.create_task(chat.engine.compact())
    await shell.began.wait()
    await asyncio.gather(compacting, chat.ask(text))


async def _undo(chat: Chat, shell: Shell) -> None:
    shell.tell("undone", said=chat.undo())


async def _filled(chat: Chat, shell: Shell) -> None:
    used = (await chat.filling()).used
    budget, policy = chat.engine.budget, chat.engine.policy
    due = [int(budget.window * share) for share in (policy.warn, policy.compact, policy.trim)]
    messages, source = chat.session.history.messages(), chat.window.decided_by and chat.window.decided_by.source
    about = {"window": budget.window, "source": source, "thresholds": due, "prompt": budget.prompt}
    shell.tell("filled", tokens=used, messages=messages, **about)


async def _stay(_chat: Chat, _shell: Shell) -> None:
    await asyncio.Event().wait()


_ACTIONS: Mapping[str, Callable[..., Awaitable[None]]] = {
    "script": _script,
    "ask": _ask,
    "compact": _compact,
    "idle": _idle,
    "asked_in_the_middle": _asked_in_the_middle,
    "asked_beside_compacting": _asked_beside_compacting,
    "undo": _undo,
    "filled": _filled,
    "stay": _stay,
}


async def _done(url: str, shell: Shell, do: Sequence[Sequence[str]], die: Mapping[str, Any] | None) -> None:
    if die:
        die_while_writing(sessions().folder("s") / "journal.jsonl", **die)
    journal = wiring.journal(session="s")
    given = wiring.settings({"url": url, "tools": "session", "system": SYSTEM})
    async with wiring.open_chat(given, journal, shell, lambda _done, _total: None) as chat:
        recorded = [tool for tool in chat.tools._tools.values() if tool.name in {RECALL, RETRIEVE, UPDATE}]
        chat.offer(Toolbox([*recorded, ReadFile(), WriteFile()]))
        for action, *arguments in do:
            await _ACTIONS[action](chat, shell, *arguments)
            shell.tell("did", action=action)
    journal.leave()
    shell.tell("end")


def main(
    home: Path, url: str, teller: Connection, do: Sequence[Sequence[str]], die: Mapping[str, Any] | None = None
) -> None:
    """Does it all in the session of a new user's data directory; `die` says in which write it ends itself."""
    with (home / "stderr").open("ab") as complaints:
        os.dup2(complaints.fileno(), 2)
    os.chdir(home)
    for name in [name for name in os.environ if name.startswith("LOCALCTX_")]:
        del os.environ[name]
    os.environ |= {"HOME": str(home), "LOCALCTX_HOME": str(home / "data"), "LOCALCTX_OFFLINE": "1"}
    asyncio.run(_done(url, Shell(teller), do, die))
