"""Probing: every address at once, about as long as the slowest live server's answer."""

from __future__ import annotations

from typing import TYPE_CHECKING

import anyio

from localctx.core.window import ServerReport, Status
from localctx.errors import LocalctxError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from localctx.ports import Prober

__all__ = ["probe"]

_SECONDS = 10.0


async def probe(targets: Sequence[Prober], *, seconds: float = _SECONDS) -> list[ServerReport]:
    """What each target answers, in the order given; one that fails, or takes longer than this, is reported as an error."""
    reports = [
        ServerReport(
            None,
            target.url,
            Status.ERROR,
            error=f"{target.url} gave no whole answer within {seconds:g} s; it may be busy or hung: try again",
        )
        for target in targets
    ]

    async def one(index: int, target: Prober) -> None:
        try:
            with anyio.move_on_after(seconds):
                reports[index] = await target.probe()
        except LocalctxError as failed:
            reports[index] = ServerReport(None, target.url, Status.ERROR, error=str(failed))

    async with anyio.create_task_group() as group:
        for index, target in enumerate(targets):
            group.start_soon(one, index, target)
    return reports
