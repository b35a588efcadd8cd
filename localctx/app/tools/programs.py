"""Running a program with an end: by itself, by its time, by its output, with the turn, or with this process.

Nothing of it stays behind: a supervisor runs it, which sees the end of this process too, be it killed. On Linux that takes
along what made itself a daemon; elsewhere what left both its group and its parents is left alone.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections import deque
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import anyio
import psutil

from localctx.app.tools import supervising

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from anyio.abc import Process

__all__ = ["Ran", "run_program"]

_LEFT_OVER_SECONDS = 0.3
"""How long what a program leaves running may go on writing once the program itself has ended."""

_SUPERVISOR = (sys.executable, "-I", "-S", supervising.__file__)

_ENDING_SECONDS = 6.0
"""How long the supervisor has to end everything before it is ended itself."""


@dataclass(frozen=True, slots=True)
class Ran:
    """What a program wrote, its head and its tail with `dropped` bytes between them, and how it ended.

    `code` is what it ended with, a signal as a negative number. `stopped` says why it was ended from here; empty where it
    ended by itself.
    """

    head: bytes
    tail: bytes
    dropped: int
    code: int
    stopped: str = ""


@dataclass(slots=True)
class _Kept:
    """The first and the last `most` bytes of a stream."""

    most: int
    head: bytearray = field(default_factory=bytearray)
    tail: deque[bytes] = field(default_factory=deque)
    in_tail: int = 0
    total: int = 0

    def take(self, piece: bytes) -> None:
        self.total += len(piece)
        room = self.most - len(self.head)
        self.head += piece[:room]
        if rest := piece[room:]:
            self.tail.append(rest)
            self.in_tail += len(rest)
        while self.tail and self.in_tail - len(self.tail[0]) >= self.most:
            self.in_tail -= len(self.tail.popleft())

    def ran(self, code: int, stopped: str) -> Ran:
        tail = b"".join(self.tail)[-self.most :]
        return Ran(bytes(self.head), tail, self.total - len(self.head) - len(tail), code, stopped)


async def run_program(
    command: Sequence[str],
    *,
    folder: Path,
    environment: Mapping[str, str],
    seconds: float,
    kept: int,
    most: int,
    sent: bytes | None = None,
    errors: int = subprocess.STDOUT,
) -> Ran:
    """Runs a program without a terminal, in a session of its own; of its output, `kept` bytes of head and of tail stay.

    What it complains of is a part of its output, unless `errors` says otherwise (as `stderr` of `subprocess`).

    It is ended with all that it started after `seconds`, above `most` bytes, when the caller is cancelled and when this
    process ends; what it leaves running is ended as well. Raises `OSError` where it cannot be started.
    """
    ours, its = socket.socketpair()
    with ours:
        with its:
            process = await anyio.open_process(
                [*_SUPERVISOR, str(its.fileno()), environment.get("LC_CTYPE", ""), *command],
                stdin=subprocess.DEVNULL if sent is None else subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                cwd=folder,
                env=environment,
                start_new_session=True,
                pass_fds=(its.fileno(),),
            )
        output, end, stopped = _Kept(kept), _End(ours), ""
        try:
            with anyio.move_on_after(seconds) as deadline:
                stopped = await _watched(process, end, output, most, sent)
            if deadline.cancelled_caught:
                stopped = f"stopped after {seconds:g} s"
        finally:
            with anyio.CancelScope(shield=True):
                ours.close()
                await _ended(process)
                await process.aclose()
    if end.error:
        raise OSError(end.error, os.strerror(end.error), command[0])
    return output.ran(end.code, stopped)


@dataclass(slots=True)
class _End:
    """How a program ended, as its supervisor says it; killed, where that says nothing."""

    told: socket.socket
    code: int = -signal.SIGKILL
    error: int = 0

    async def come(self) -> None:
        """Waits for it."""
        await anyio.wait_readable(self.told)
        said = self.told.recv(32)
        if said.startswith(b"!"):
            self.error = int(said.split(b"!")[1])
        elif said:
            self.code = int(said)


async def _watched(process: Process, end: _End, output: _Kept, most: int, sent: bytes | None) -> str:
    """Reads until the program ends; why it is to be ended, where it has written too much."""
    if sent is not None and process.stdin is not None:
        with suppress(anyio.BrokenResourceError):
            await process.stdin.send(sent)
        await process.stdin.aclose()
    stopped, ended = "", anyio.Event()
    async with anyio.create_task_group() as group:

        async def read() -> None:
            nonlocal stopped
            assert process.stdout is not None  # noqa: S101  a pipe, as was asked
            async for piece in process.stdout:
                output.take(piece)
                if output.total > most:
                    stopped = f"stopped after {most:,} bytes of output"
                    group.cancel_scope.cancel()

        async def wait() -> None:
            await end.come()
            ended.set()
            await anyio.sleep(_LEFT_OVER_SECONDS)
            group.cancel_scope.cancel()

        group.start_soon(wait)
        await read()
        await ended.wait()
        group.cancel_scope.cancel()
    return stopped


async def _ended(process: Process) -> None:
    """Waits for the end of a supervisor; what stopped it is no match for a kill of all that is below."""
    with anyio.move_on_after(_ENDING_SECONDS):
        await process.wait()
    if process.returncode is None:
        _kill(process)
        await process.wait()


def _kill(process: Process) -> None:
    """Kills a supervisor and all below it."""
    children = list[psutil.Process]()
    with suppress(psutil.Error):
        children = psutil.Process(process.pid).children(recursive=True)
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    for child in children:
        with suppress(psutil.Error):
            child.kill()
