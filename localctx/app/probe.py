"""Probing: every address at once, about as long as the slowest live server's answer."""

from __future__ import annotations

from typing import TYPE_CHECKING

import anyio

from localctx.core.window import ServerReport, Status

if TYPE_CHECKING:
    from collections.abc import Sequence

    from localctx.ports import Prober

__all__ = ["probe"]

_SECONDS = 10.0


async def probe(targets: Sequence[Prober]) -> list[ServerReport]:
    """What each target answers, in the order given; a target that takes longer than 10 s is reported as an error."""
    reports: dict[int, ServerReport] = {}

    async def one(index: int, target: Prober) -> None:
        error = f"{target.url} gave no whole answer within {_SECONDS:g} s; it may be busy or hung"
        reports[index] = ServerReport(None, target.url, Status.ERROR, error=error)
        with anyio.move_on_after(_SECONDS):
            reports[index] = await target.probe()

    async with anyio.create_task_group() as group:
        for index, target in enumerate(targets):
            group.start_soon(one, index, target)
    return [reports[index] for index in range(len(targets))]
