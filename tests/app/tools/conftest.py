from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from ctypes import CDLL
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Event, Thread

import pytest

from localctx.app.tools.place import Place
from localctx.app.tools.toolbox import Toolbox
from localctx.core.approval import Verdict, Wish
from localctx.core.messages import ToolCall
from localctx.ports import Tool

OUTSIDE = "what nobody may read"


@dataclass
class Person:
    """Who is asked: says yes, or no with a reason, and may do something before."""

    no: str | None = None
    meanwhile: Callable[[], None] = lambda: None
    wishes: list[Wish] = field(default_factory=list)

    async def of(self, wish: Wish) -> Verdict:
        self.wishes.append(wish)
        self.meanwhile()
        return Verdict(self.no is None, self.no or "")


@dataclass
class Bench:
    """A working folder beside one that nobody may reach, and a person."""

    root: Path
    outside: Path
    person: Person

    @property
    def place(self) -> Place:
        return Place(self.root)

    async def call(self, tool: Tool, **arguments: object) -> str:
        return (await Toolbox([tool]).run(ToolCall("1", tool.name, json.dumps(arguments)))).text


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    root, outside = tmp_path / "work", tmp_path / "outside"
    root.mkdir()
    outside.mkdir()
    (outside / "file").write_text(OUTSIDE, encoding="utf-8")
    return Bench(root, outside, Person())


@pytest.fixture
def locked() -> Iterator[Bench]:
    """A working folder with a file and a folder that nobody may read, and a folder that may only be passed; root becomes somebody else."""
    import_module("pathspec")  # while it can be read: an environment may be closed to others
    with TemporaryDirectory() as name:
        root = Path(name)
        root.chmod(0o755)
        (root / "sub").mkdir()
        (root / "open").mkdir()
        (root / "open" / "file").write_text("inside", encoding="utf-8")
        (root / "file").write_text("locked", encoding="utf-8")
        for locked, mode in {"sub": 0, "file": 0, "open": 0o111}.items():
            (root / locked).chmod(mode)
        root_itself = os.geteuid() == 0
        if root_itself:
            os.seteuid(65534)
        try:
            yield Bench(root.resolve(), root, Person())
        finally:
            if root_itself:
                os.seteuid(0)
            (root / "sub").chmod(0o700)
            (root / "open").chmod(0o700)


_EXCHANGE, _HERE = 2, -100
"""RENAME_EXCHANGE and AT_FDCWD of Linux."""


@contextmanager
def swapping(name: Path, target: Path) -> Iterator[None]:
    """Meanwhile a name is all the time swapped for a link to something else, and back, so that it is always one of both."""
    exchange = getattr(CDLL(None), "renameat2", None)
    if exchange is None:
        pytest.skip("this system cannot swap two names at once")
    stop, link = Event(), name.with_name("link")
    link.symlink_to(target)

    def swap() -> None:
        while not stop.is_set():
            assert exchange(_HERE, bytes(name), _HERE, bytes(link), _EXCHANGE) == 0

    thread = Thread(target=swap)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()
