"""The program: runs a command and turns errors into one line and an exit code.

It imports next to nothing before it takes Ctrl-C, and what else tells it to end.
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
_ENDING = [getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name)]


def main() -> None:
    """Runs the command line.

    Exit codes: 0 done, 1 failed, 2 wrong usage, 3 nothing found, 4 does not fit, 130 interrupted, 143 and 129 ended by SIGTERM
    and SIGHUP.
    """
    signal.signal(signal.SIGINT, _interrupt)
    for number in _ENDING:
        if signal.getsignal(number) != signal.SIG_IGN:  # as nohup has it
            signal.signal(number, _interrupt)
    try:
        from localctx.cli.app import app  # noqa: PLC0415  an interrupt may come while this is imported
        from localctx.cli.render import complain  # noqa: PLC0415

        try:
            app()
        except LocalctxError as error:
            complain(str(error), error.exit_code)
            sys.exit(error.exit_code)
    except Interrupted as wish:
        _leave("localctx: interrupted", wish.code)
    except KeyboardInterrupt:
        _leave("localctx: interrupted", _INTERRUPTED)
    except OSError as error:
        if isinstance(error.__context__, Interrupted):  # the terminal is gone
            _leave("", error.__context__.code)
        _leave(f"localctx: cannot write or read ({error.strerror or error}); look at where the output goes", _FAILED)


def _interrupt(number: int, _frame: FrameType | None) -> NoReturn:
    """The first Ctrl-C, or other signal to end, ends the program; those after it are the same wish, and must not disturb that.

    What an event loop has to say about tasks that ended so is of no use to anybody.
    """
    _take_no_more()
    sys.unraisablehook = _lost
    if logging := sys.modules.get("logging"):
        logging.getLogger("asyncio").disabled = True
    raise Interrupted(number)


def _take_no_more() -> None:
    for number in (signal.SIGINT, *_ENDING):
        signal.signal(number, signal.SIG_IGN)


def _lost(raised: UnraisableHookArgs) -> None:
    """Ends the program where the wish to end it came as an object was freed, or a module was found: there it gets lost."""
    if isinstance(raised.exc_value, Interrupted):
        _leave("localctx: interrupted", raised.exc_value.code)


def _leave(text: str, code: int) -> NoReturn:
    """Ends the program at once: a thread that loads a model, or an output that is gone, must not hold it up."""
    _take_no_more()
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
