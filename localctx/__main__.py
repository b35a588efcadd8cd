"""The program: runs a command and turns errors into one line and an exit code.

It imports next to nothing before it takes Ctrl-C.
"""

from __future__ import annotations

import os
import signal
import sys
from typing import TYPE_CHECKING, NoReturn

from localctx.errors import Interrupted, LocalctxError

if TYPE_CHECKING:
    from sys import UnraisableHookArgs
    from types import FrameType

_FAILED, _INTERRUPTED = 1, 130


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

    What an event loop has to say about tasks that ended so is of no use to anybody.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    sys.unraisablehook = _lost
    if logging := sys.modules.get("logging"):
        logging.getLogger("asyncio").disabled = True
    raise Interrupted


def _lost(raised: UnraisableHookArgs) -> None:
    """Ends the program where the wish to end it came as an object was freed, or a module was found: there it gets lost."""
    if isinstance(raised.exc_value, Interrupted):
        _leave("localctx: interrupted", _INTERRUPTED)


def _leave(text: str, code: int) -> NoReturn:
    """Ends the program at once: a thread that loads a model, or an output that is gone, must not hold it up."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    said = {sys.stdout: "", sys.stderr: f"{text}\n" if text else ""}
    for stream, last in said.items():
        try:
            stream.write(last)
            stream.flush()
        except (OSError, ValueError, AttributeError):
            continue
    os._exit(code)


if __name__ == "__main__":
    main()
