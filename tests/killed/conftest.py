from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from multiprocessing import get_context
from multiprocessing.connection import Connection
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from typing import Any

import pytest

from localctx.core.journal import Entry
from localctx.stores.journal import Lines
from tests.fakes.llama_server import Fake, running
from tests.killed.child import main
from tests.killed.script import WINDOW, reply_to

Told = dict[str, Any]
"""What a child told of one event."""

_SECONDS = 60
"""After these a child is ended, whatever it waits for; it takes three."""

_STARTER = get_context("forkserver")
_STARTER.set_forkserver_preload(["tests.killed.preloaded"])
"""Starts programs that have imported all by then, which else takes them longer than the rest."""


@dataclass
class Child:
    """A running program: what it told so far, and how it ends."""

    process: ForkServerProcess
    _listener: Connection
    told: list[Told] = field(default_factory=list)

    def until(self, wanted: Callable[[Told], bool]) -> bool:
        """Listens until an event that is wanted; False where the program ended before."""
        with suppress(EOFError, ConnectionResetError):
            while True:
                self.told.append(self._listener.recv())
                if wanted(self.told[-1]):
                    return True
        return False

    def until_event(self, event: str, nth: int = 1) -> bool:
        """Listens until the nth event of a kind from now."""
        left = iter(range(nth - 1, -1, -1))
        return self.until(lambda told: told["event"] == event and next(left) == 0)

    def end(self, number: int | None = None, after: float = 0.0) -> int:
        """Sends a signal, if any, after some seconds; listens to the end, and returns how the program ended."""
        if number is not None:
            time.sleep(after)
            self.send(number)
        self.until(lambda _told: False)
        self.process.join(_SECONDS)
        assert self.process.exitcode is not None
        return self.process.exitcode

    def send(self, number: int) -> None:
        """Sends a signal, unless the program has ended."""
        if self.process.is_alive() and self.process.pid:
            os.kill(self.process.pid, number)

    def of(self, event: str) -> list[Told]:
        """What was told of one kind of event."""
        return [told for told in self.told if told["event"] == event]


@dataclass
class Place:
    """A data directory, a server, and the session `s` that children work on in both."""

    home: Path
    fake: Fake

    @property
    def environment(self) -> dict[str, str]:
        """A new user's."""
        kept = {name: value for name, value in os.environ.items() if not name.startswith("LOCALCTX_")}
        root = str(Path(__file__).parents[2])
        own = {"HOME": str(self.home), "LOCALCTX_HOME": str(self.home / "data"), "LOCALCTX_OFFLINE": "1"}
        return kept | own | {"PYTHONPATH": root, "NO_COLOR": "1"}

    @property
    def folder(self) -> Path:
        return self.home / "data" / "sessions" / "s"

    @property
    def path(self) -> Path:
        return self.folder / "journal.jsonl"

    @property
    def chats(self) -> list[dict[str, Any]]:
        """The requests that reached the server whole: a kill may come in the middle of one."""
        bodies: list[object] = list(self.fake.chats)
        return [body for body in bodies if isinstance(body, dict)]

    @property
    def complete(self) -> bytes:
        """The complete lines on disk."""
        raw = self.path.read_bytes() if self.path.exists() else b""
        return raw[: raw.rfind(b"\n") + 1]

    @property
    def torn(self) -> bool:
        """Whether the last line has no end."""
        return self.path.exists() and self.path.stat().st_size > len(self.complete)

    def entries(self) -> list[Entry]:
        """What the complete lines hold."""
        return list(Lines(self.path)) if self.complete else []

    @contextmanager
    def child(self, *do: Sequence[str], die: Mapping[str, Any] | None = None) -> Iterator[Child]:
        """Starts the program that does this; however the block ends, it has ended by then."""
        listener, teller = _STARTER.Pipe(duplex=False)
        process = _STARTER.Process(target=main, args=(self.home, self.fake.url, teller, do, die))
        process.start()
        guard = threading.Timer(_SECONDS, process.kill)
        guard.start()
        teller.close()
        try:
            yield Child(process, listener)
        finally:
            guard.cancel()
            process.kill()
            process.join()
            process.close()
            listener.close()
        complaints = self.home / "stderr"
        said = complaints.read_text(encoding="utf-8") if complaints.exists() else ""
        assert "Traceback" not in said, said

    def done(self, *do: Sequence[str]) -> Child:
        """Does it all, to the end."""
        with self.child(*do) as child:
            assert child.end() == 0
        assert child.told[-1] == {"event": "end"}
        return child

    def killed_while_writing(self, *do: Sequence[str], line: str, nth: int = 1, share: float = 0.0) -> Child:
        """Begins to do it, and dies in the middle of writing a line of its journal."""
        with self.child(*do, die={"line": line, "nth": nth, "share": share}) as child:
            assert child.end() == -signal.SIGKILL
        return child

    def until_asked(self, wanted: Callable[[dict[str, Any]], bool]) -> None:
        """Waits until the server was asked something that is wanted."""
        deadline = time.monotonic() + _SECONDS
        while not any(map(wanted, self.chats)):
            assert time.monotonic() < deadline, "nothing like that was asked"
            time.sleep(0.005)

    def until_notes_asked(self, child: Child, nth: int) -> None:
        """Waits until the server was asked for notes so many times from now, or the program has ended."""
        before = len(self.chats)
        while sum(map(asks_for_notes, self.chats[before:])) < nth and child.process.is_alive():
            time.sleep(0.001)


def asks_for_notes(body: dict[str, Any]) -> bool:
    """Whether a request is one for notes."""
    return "grammar" in body


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    with running(scripted()) as fake:
        yield Place(tmp_path, fake)


def scripted() -> Fake:
    """The server of the script: slow enough that something can happen meanwhile."""
    return Fake(n_ctx=WINDOW, tools=True, reply=reply_to, delay=0.003, tokens_per_piece=24)


@dataclass(frozen=True)
class Whole:
    """The script, asked by a program that nobody killed: what that left and told, and how long it took."""

    place: Place
    child: Child
    seconds: float


@pytest.fixture(scope="session")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Whole]:
    with running(scripted()) as fake:
        place = Place(tmp_path_factory.mktemp("whole"), fake)
        place.done()
        began = time.monotonic()
        child = place.done(["script"])
        yield Whole(place, child, time.monotonic() - began)
