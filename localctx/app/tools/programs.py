"""Running a program with an end: by itself, by its time, by its output, or with the turn.

Nothing of it stays behind but what made itself a daemon: left both its group and its parents, and was left alone until then.
"""

from __future__ import annotations

import os
import signal
import subprocess
from collections import deque
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import anyio
import psutil

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from anyio.abc import Process

__all__ = ["Ran", "run_program"]

_LEFT_OVER_SECONDS = 0.3
"""How long what a program leaves running may go on writing once the program itself has ended."""


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

    It is ended with all its children after `seconds`, above `most` bytes, and when the caller is cancelled; what it leaves
    running in its group is ended as well. Raises `OSError` where it cannot be started.
    """
    process = await anyio.open_process(
        command,
        stdin=subprocess.DEVNULL if sent is None else subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=errors,
        cwd=folder,
        env=environment,
        start_new_session=True,
    )
    output, stopped = _Kept(kept), ""
    try:
        with anyio.move_on_after(seconds) as deadline:
            stopped = await _watched(process, output, most, sent)
        if deadline.cancelled_caught:
            stopped = f"stopped after {seconds:g} s"
    finally:
        with anyio.CancelScope(shield=True):
            _end(process)
            code = await process.wait()
            await process.aclose()
    return output.ran(code, stopped)


async def _watched(process: Process, output: _Kept, most: int, sent: bytes | None) -> str:
    """Reads until the program ends; why it is to be ended, where it has written too much."""
    if sent is not None and process.stdin is not None:
        with suppress(anyio.BrokenResourceError):
            await process.stdin.send(sent)
        await process.stdin.aclose()
    stopped = ""
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
            await process.wait()
            await anyio.sleep(_LEFT_OVER_SECONDS)
            group.cancel_scope.cancel()

        group.start_soon(wait)
        await read()
        await process.wait()
        group.cancel_scope.cancel()
    return stopped


def _end(process: Process) -> None:
    """Kills the group of a program, and its children that left the group."""
    children = list[psutil.Process]()
    with suppress(psutil.Error):
        children = psutil.Process(process.pid).children(recursive=True)
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    for child in children:
        with suppress(psutil.Error):
            child.kill()
