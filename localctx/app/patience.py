"""Waiting for a model that is loading, or a server that comes back: the failures that time mends."""

from __future__ import annotations

from time import monotonic
from typing import TYPE_CHECKING

import stamina

from localctx.core.events import Notice
from localctx.errors import ServerLoading, Unreachable

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from localctx.core.events import Event

__all__ = ["while_loading"]

_SECONDS = 120.0


async def while_loading(
    url: str, emit: Callable[[Event], None], *, away_seconds: float = 0.0
) -> AsyncIterator[stamina.Attempt]:
    """Attempts, each a context for one try, until one does not raise `ServerLoading`; the wait is announced once.

    A server that was there, and is not reached any more, is waited for as well, for `away_seconds`.
    """
    began, why = monotonic(), "is still loading its model"

    def mends(error: Exception) -> bool:
        nonlocal why
        if isinstance(error, Unreachable) and monotonic() - began < away_seconds:
            why = "is gone, perhaps to be restarted"
            return True
        return isinstance(error, ServerLoading)

    attempts = stamina.retry_context(on=mends, attempts=None, timeout=_SECONDS, wait_initial=0.5, wait_max=2.0)
    async for attempt in attempts:
        if attempt.num == 2:  # noqa: PLR2004  the first try has failed
            emit(Notice("loading", f"{url} {why}; waiting"))
        yield attempt
