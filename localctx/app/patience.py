"""Waiting for a model that is loading: the one failure that time mends."""

from __future__ import annotations

from typing import TYPE_CHECKING

import stamina

from localctx.core.events import Notice
from localctx.errors import ServerLoading

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from localctx.core.events import Event

__all__ = ["while_loading"]

_SECONDS = 120.0


async def while_loading(url: str, emit: Callable[[Event], None]) -> AsyncIterator[stamina.Attempt]:
    """Attempts, each a context for one try, until one does not raise `ServerLoading`; the wait is announced once."""
    attempts = stamina.retry_context(on=ServerLoading, attempts=None, timeout=_SECONDS, wait_initial=0.5, wait_max=2.0)
    async for attempt in attempts:
        if attempt.num == 2:  # noqa: PLR2004  the first try has failed
            emit(Notice("loading", f"{url} is still loading its model; waiting"))
        yield attempt
