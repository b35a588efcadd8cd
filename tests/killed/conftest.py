from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from localctx.core.journal import Entry
from localctx.stores.journal import Lines
from tests.fakes.llama_server import Fake, running
from tests.killed.script import WINDOW, reply_to

Told = dict[str, Any]
"""What a child told of one event."""

_SECONDS = 60
"""After these a child is ended, whatever it waits for; it takes three."""


@dataclass
class Child:
    """A running program: what it told so far, and how it ends."""

    process: subprocess.Popen[bytes]
    told: list[Told] = field(default_factory=list)

    def until(self, wanted: Callable[[Told], bool]) -> bool:
        """Reads on until an event that is wanted; False where the program ended before."""
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.told.append(json.loads(line))
            if wanted(self.told[-1]):
                return True
        return False

    def until_event(self, event: str, nth: int = 1) -> bool:
        """Reads on until the nth event of a kind from now."""
        left = iter(range(nth - 1, -1, -1))
        return self.until(lambda told: told["event"] == event and next(left) == 0)

    def end(self, number: int | None = None, after: float = 0.0) -> int:
        """Sends a signal, if any, after some seconds; reads to the end, and returns how the program ended."""
        if number is not None:
            time.sleep(after)
            self.process.send_signal(number)
        self.until(lambda _told: False)
        return self.process.wait(_SECONDS)

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
    def child(self, *do: list[str], die: dict[str, Any] | None = None) -> Iterator[Child]:
        """Starts the program that does this; however the block ends, it has ended by then."""
        asked = {"url": self.fake.url, "session": "s", "do": do, "die": die}
        with self.program("-m", "tests.killed.child", json.dumps(asked)) as child:
            yield child

    @contextmanager
    def program(self, *arguments: str) -> Iterator[Child]:
        """Starts Python with these arguments; however the block ends, it has ended by then."""
        complaints = self.home / "stderr"
        with (
            complaints.open("ab") as errors,
            subprocess.Popen(
                [sys.executable, *arguments],
                env=self.environment,
                cwd=self.home,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=errors,
            ) as process,
        ):
            guard = threading.Timer(_SECONDS, process.kill)
            guard.start()
            try:
                yield Child(process)
            finally:
                guard.cancel()
                process.kill()
        assert b"Traceback" not in complaints.read_bytes(), complaints.read_text(encoding="utf-8")

    def done(self, *do: list[str]) -> Child:
        """Does it all, to the end."""
        with self.child(*do) as child:
            assert child.end() == 0
        assert child.told[-1] == {"event": "end"}
        return child

    def killed_while_writing(self, *do: list[str], line: str, nth: int = 1, share: float = 0.0) -> Child:
        """Begins to do it, and dies in the middle of writing a line of its journal."""
        with self.child(*do, die={"line": line, "nth": nth, "share": share}) as child:
            assert child.end() == -signal.SIGKILL
        return child


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    with running(scripted()) as fake:
        yield Place(tmp_path, fake)


def scripted() -> Fake:
    """The server of the script: slow enough that something can happen meanwhile."""
    return Fake(n_ctx=WINDOW, tools=True, reply=reply_to, delay=0.002, tokens_per_piece=12)


@pytest.fixture(scope="session")
def reference(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Place, Child]]:
    """The script, asked by a program that nobody killed."""
    with running(scripted()) as fake:
        place = Place(tmp_path_factory.mktemp("reference"), fake)
        yield place, place.done(["script"])
