"""Every error that localctx raises on purpose.

A message gives the number, its source and the next step, in one line. `exit_code` is what the command line ends with.

    LocalctxError                1  the run failed
    +-- Misuse                   2  wrong usage or configuration
    |   +-- MissingExtra         2  an optional package is not installed
    |   +-- StoreUnusable        2  the data directory cannot be used
    |   +-- Unauthorized         2  the server wants another key
    +-- NothingFound             3  no runtime or model found
    |   +-- Unreachable          3  nothing answers at the address
    |   +-- NotARuntime          3  something else answers there
    |   +-- ModelMissing         3  the model is not there
    +-- DoesNotFit               4  the request cannot be made to fit the window
    +-- ServerFailed             1  the server answered with an error or died
    |   +-- ServerLoading        1  the model was still loading when patience ended
    |   +-- PromptRefused        1  the server says that the prompt is too long
    |   +-- ToolsRefused         1  the server cannot call tools with this model
    |   +-- RequestRefused       1  the server does not take the request for another reason
    +-- JournalDamaged           1  a journal cannot be read further
    +-- FetchFailed              1  a model could not be fetched
"""

from __future__ import annotations

__all__ = [
    "DoesNotFit",
    "FetchFailed",
    "Interrupted",
    "JournalDamaged",
    "LocalctxError",
    "MissingExtra",
    "Misuse",
    "ModelMissing",
    "NotARuntime",
    "NothingFound",
    "PromptRefused",
    "RequestRefused",
    "ServerFailed",
    "ServerLoading",
    "StoreUnusable",
    "ToolsRefused",
    "Unauthorized",
    "Unreachable",
]


class Interrupted(SystemExit):
    """The user wants to stop. Not a `KeyboardInterrupt`, which command-line libraries turn into an exit of their own.

    An event loop lets no other exception pass that is raised between two of its steps. The `code` that the program ends with
    is 128 and the signal's number; 2, SIGINT, unless given.
    """

    code: int

    def __init__(self, number: int = 2) -> None:
        super().__init__(128 + number)


class LocalctxError(Exception):
    """The root: anything that localctx raises on purpose."""

    exit_code = 1


class Misuse(LocalctxError):
    """The command, an option or the configuration is wrong."""

    exit_code = 2


class MissingExtra(Misuse):
    """An optional package is needed and not installed."""

    def __init__(self, extra: str, package: str, why: str) -> None:
        super().__init__(
            f"{why} needs the extra [{extra}], which is not installed; install it with: pip install {package}"
        )
        self.extra = extra


class StoreUnusable(Misuse):
    """The data directory cannot be created, read or written."""


class Unauthorized(Misuse):
    """The server refuses the key, or wants one."""


class NothingFound(LocalctxError):
    """No runtime or model was found."""

    exit_code = 3


class Unreachable(NothingFound):
    """Nothing answers at the address."""


class NotARuntime(NothingFound):
    """Something answers, but it is not a runtime that localctx knows."""


class ModelMissing(NothingFound):
    """The runtime is there, the model is not."""


class DoesNotFit(LocalctxError):
    """The request cannot be made to fit the window."""

    exit_code = 4


class ServerFailed(LocalctxError):
    """The server answered with an error, or went away while it answered."""


class ServerLoading(ServerFailed):
    """The model was still loading when patience ended."""


class PromptRefused(ServerFailed):
    """The server refuses the prompt as too long; `limit` and `prompt` are the tokens that it stated, if it did."""

    def __init__(self, message: str, limit: int | None, prompt: int | None = None) -> None:
        super().__init__(message)
        self.limit, self.prompt = limit, prompt


class ToolsRefused(ServerFailed):
    """The server refuses a request because tools are offered in it."""


class RequestRefused(ServerFailed):
    """The server does not take a request for something else in it: it read it, and did nothing (HTTP 400 and its like)."""


class JournalDamaged(LocalctxError):
    """A journal cannot be read further. `seq` is the entry at fault, where the message does not name its line yet."""

    def __init__(self, message: str, seq: int | None = None) -> None:
        super().__init__(message)
        self.seq = seq


class FetchFailed(LocalctxError):
    """A model or the catalog could not be fetched."""
