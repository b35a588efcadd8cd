"""The program: runs a command and turns errors into one line and an exit code."""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import sys
import threading
from typing import TYPE_CHECKING, NoReturn

from localctx.errors import Interrupted, LocalctxError

if TYPE_CHECKING:
    from types import FrameType

_FAILED, _INTERRUPTED = 1, 130

_SECONDS_TO_END = 5.0
"""How long an interrupted program may take to put its things in order."""


def main() -> None:
    """Runs the command line. Exit codes: 0 done, 1 failed, 2 wrong usage, 3 nothing found, 4 does not fit, 130 interrupted."""
    signal.signal(signal.SIGINT, _interrupt)
    try:
        from localctx.cli.app import app  # noqa: PLC0415  an interrupt may come while this is imported
        from localctx.cli.render import complain  # noqa: PLC0415

        try:
            app()
        except LocalctxError as error:
            complain(str(error), error.exit_code)
            sys.exit(error.exit_code)
    except (Interrupted, KeyboardInterrupt):
        _leave("localctx: interrupted", _INTERRUPTED)
    except OSError as error:
        _leave(f"localctx: cannot write or read ({error.strerror or error}); look at where the output goes", _FAILED)


def _interrupt(_number: int, _frame: FrameType | None) -> NoReturn:
    """The first Ctrl-C ends the program; those after it are the same wish, and must not disturb that.

    What an event loop has to say about tasks that ended so is of no use to anybody. An exception that is raised where
    nobody can catch it, as when an object is freed, gets lost; then the program ends a little later.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    overdue = threading.Timer(_SECONDS_TO_END, _leave, ("localctx: interrupted", _INTERRUPTED))
    overdue.daemon = True
    overdue.start()
    logging.getLogger("asyncio").disabled = True
    raise Interrupted


def _leave(text: str, code: int) -> NoReturn:
    """Ends the program at once: a thread that loads a model, or an output that is gone, must not hold it up."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if text:
        with contextlib.suppress(OSError, ValueError, AttributeError):
            sys.stderr.write(f"{text}\n")
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError, AttributeError):
            stream.flush()
    os._exit(code)


if __name__ == "__main__":
    main()
