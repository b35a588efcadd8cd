"""The program: runs a command and turns errors into one line and an exit code."""

from __future__ import annotations

import sys

from localctx.errors import LocalctxError

_INTERRUPTED = 130


def main() -> None:
    """Runs the command line. Exit codes: 0 done, 1 failed, 2 wrong usage, 3 nothing found, 4 does not fit, 130 interrupted."""
    from localctx.cli.app import app  # noqa: PLC0415  a broken option should not wait for imports
    from localctx.cli.render import complain  # noqa: PLC0415

    try:
        app()
    except LocalctxError as error:
        complain(str(error), error.exit_code)
        sys.exit(error.exit_code)
    except KeyboardInterrupt:
        complain("interrupted", _INTERRUPTED)
        sys.exit(_INTERRUPTED)
    except BrokenPipeError:
        sys.stderr.close()
        sys.exit(1)


if __name__ == "__main__":
    main()
