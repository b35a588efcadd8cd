"""Running commands of a shell in the working folder."""

from __future__ import annotations

import os
import re
import signal
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from localctx.app.tools.approval import permitted
from localctx.app.tools.place import explained, visible
from localctx.app.tools.programs import run_program
from localctx.core.approval import COMMAND, Wish
from localctx.core.arguments import described
from localctx.core.results import Provenance
from localctx.ports import Outcome

if TYPE_CHECKING:
    from collections.abc import Mapping

    from localctx.app.tools.place import Place
    from localctx.app.tools.programs import Ran
    from localctx.core.outgoing import WireMessage
    from localctx.core.secrets import Secrets
    from localctx.ports import Approval

__all__ = ["RunCommand"]

_USUAL_SECONDS, _MOST_SECONDS = 60, 600
_KEPT_BYTES, MOST_BYTES = 64 << 10, 64 << 20
"""What is kept of each end of the output, and how much a command may write before it is ended."""

_LONGEST = 20_000
_QUIET = {"TERM": "dumb", "NO_COLOR": "1", "PAGER": "cat", "GIT_PAGER": "cat", "GIT_TERMINAL_PROMPT": "0"}
"""Nobody is there to page, to see colours or to type a password."""

_STEERING = re.compile(r"\x1b(?:\[[0-?]{0,64}[ -/]{0,8}[@-~]|\][^\x07\x1b]{0,2000}(?:\x07|\x1b\\)|[@-Z\\-_])")
"""What colours a terminal and moves its cursor."""


@dataclass(frozen=True, slots=True)
class RunCommand:
    """Runs a command line by `/bin/sh`, without a terminal, input or secrets in its environment."""

    place: Place
    approval: Approval
    secrets: Secrets
    name = COMMAND

    @property
    def schema(self) -> WireMessage:
        """What a request says of it."""
        seconds = {"type": "integer", "description": f"time limit, {_USUAL_SECONDS} unless given"}
        fields = {"command": {"type": "string"}, "seconds": seconds}
        return described(self.name, "Run a shell command; no input.", fields, "command")

    async def run(self, arguments: Mapping[str, Any]) -> Outcome:
        """Its output, and how it ended. Raises `ValueError` where it cannot be run, or may not."""
        command, seconds = arguments["command"].strip(), arguments.get("seconds") or _USUAL_SECONDS
        if not command or "\0" in command or len(command) > _LONGEST:
            raise ValueError(f"a command has from 1 to {_LONGEST:,} characters, none of them a NUL")
        if not 0 < seconds <= _MOST_SECONDS:
            raise ValueError(f"seconds is from 1 to {_MOST_SECONDS}")
        with explained("."):
            self.place.demand_there()
        await permitted(self.approval, Wish(self.name, command))
        try:
            ran = await run_program(
                ["/bin/sh", "-c", command],
                folder=self.place.root,
                environment={**self.secrets.left_of(os.environ), **_QUIET},
                seconds=seconds,
                kept=_KEPT_BYTES,
                most=MOST_BYTES,
            )
        except (OSError, UnicodeEncodeError) as error:
            raise ValueError(f"the command cannot be started ({error})") from None
        return Outcome(_told(ran), Provenance("command", visible(command)))


def _told(ran: Ran) -> str:
    """The output with how it ended in its last line."""
    head, tail = (
        _STEERING.sub("", part.decode("utf-8", "replace")).replace("\r\n", "\n") for part in (ran.head, ran.tail)
    )
    left_out = f"\n[{ran.dropped:,} bytes left out here]\n" if ran.dropped else ""
    text = f"{head}{left_out}{tail}"
    return f"{text}{'' if text.endswith(chr(10)) or not text else chr(10)}[{_ended(ran)}]"


def _ended(ran: Ran) -> str:
    if ran.stopped:
        return f"{ran.stopped}; it was ended with all that it had started"
    if ran.code >= 0:
        return f"exit code {ran.code}"
    try:
        return f"ended by {signal.Signals(-ran.code).name}"
    except ValueError:
        return f"ended by signal {-ran.code}"
