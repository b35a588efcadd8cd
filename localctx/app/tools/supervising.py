"""A program that runs another one, and ends it with all that it started as soon as whoever wanted it is gone or has enough.

Started by its path, so that nothing is imported, with a socket, the `LC_CTYPE` of the environment (which Python changes as it
starts; empty for none) and a command. It says on the socket how the command ended (a number, a signal as a negative one)
or why it could not be started (the number of the error between `!`). At the socket's end, whatever brought that about, it kills the group of the command and, on Linux,
all that comes from it: what loses its parent is handed to this program there. Elsewhere the group alone is killed.
"""

from __future__ import annotations

import os
import select
import signal
import sys
import time
from contextlib import suppress

__all__ = ["serve"]

_SUBREAPER = 36
"""PR_SET_CHILD_SUBREAPER of <linux/prctl.h>."""

_ENDING_SECONDS, _PAUSE_SECONDS = 4.0, 0.01
"""How long it is tried to end everything, and between two tries."""


def _adopt() -> None:
    """Becomes the parent of all below that lose theirs, where the system knows that."""
    with suppress(ImportError, OSError, AttributeError):
        from ctypes import CDLL  # noqa: PLC0415  not everywhere

        CDLL(None).prctl(_SUBREAPER, 1, 0, 0, 0)


def _started(socket: int, command: list[str]) -> int:
    """The process of a command, in a session of its own."""
    if process := os.fork():
        return process
    try:
        os.setsid()
        for number in (signal.SIGPIPE, signal.SIGXFSZ):
            signal.signal(number, signal.SIG_DFL)
        os.execvp(command[0], command)  # noqa: S606  the very command that was allowed
    except OSError as error:
        os.write(socket, f"!{error.errno}!".encode())
    finally:
        os._exit(127)


def _reaped(process: int) -> tuple[bool, int | None]:
    """Whether there are children still, and how a process ended, if it did just now."""
    code = None
    with suppress(ChildProcessError):
        while True:
            ended, status = os.waitpid(-1, os.WNOHANG)
            if ended == 0:
                return True, code
            if ended == process:
                code = os.waitstatus_to_exitcode(status)
    return False, code


def _watch(socket: int, process: int, bell: int) -> None:
    """Until the socket's end: says how a process ended."""
    while True:
        ready, _, _ = select.select([socket, bell], [], [])
        if socket in ready:
            return
        os.read(bell, 4096)
        _, code = _reaped(process)
        if code is not None:
            with suppress(OSError):
                os.write(socket, str(code).encode())


def _children() -> list[int]:
    """Whose parent this program is, where the system tells."""
    found, own = list[int](), str(os.getpid())
    with suppress(OSError):
        for name in filter(str.isdecimal, os.listdir("/proc")):  # noqa: PTH208  imports little
            with suppress(OSError, IndexError), open(f"/proc/{name}/stat", encoding="utf-8", errors="replace") as file:  # noqa: PTH123  imports little
                if file.read().rpartition(")")[2].split()[1] == own:
                    found.append(int(name))
    return found


def _end(process: int) -> None:
    """Kills the group of a process and every child, until there is none."""
    until = time.monotonic() + _ENDING_SECONDS
    with suppress(OSError):
        os.killpg(process, signal.SIGKILL)
    while _reaped(process)[0] and time.monotonic() < until:
        for child in _children():
            with suppress(OSError):
                os.kill(child, signal.SIGKILL)
        time.sleep(_PAUSE_SECONDS)


def serve(socket: int, characters: str, command: list[str]) -> None:
    """Runs a command until its end or that of `socket`, and ends all that it started; `characters` is the `LC_CTYPE` that it gets."""
    os.set_inheritable(socket, False)  # noqa: FBT003  takes no name
    os.environ.pop("LC_CTYPE", None)
    if characters:
        os.environ["LC_CTYPE"] = characters
    _adopt()
    bell, rung = os.pipe()
    os.set_blocking(rung, False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(rung, warn_on_full_buffer=False)
    process = _started(socket, command)
    nowhere = os.open(os.devnull, os.O_RDWR)
    for own in range(3):  # else the output would have no end
        os.dup2(nowhere, own)
    _watch(socket, process, bell)
    _end(process)


if __name__ == "__main__":
    serve(int(sys.argv[1]), sys.argv[2], sys.argv[3:])
