"""What GPUs use while a benchmark runs."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, TypeVar

import anyio.to_thread

from localctx.hardware.gpu import GpuUse, gpu_use
from localctx.hardware.machine import machine

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable

__all__ = ["not_watched", "rows", "watched"]

_SAMPLE_SECONDS = 0.5

_Number = TypeVar("_Number", int | None, float | None)


def not_watched() -> str | None:
    """Why no GPU can be watched here; None where one can."""
    if gpu_use():
        return None
    hidden = machine().gpus is None
    text = "a GPU may be here, but cannot be asked (pip install 'localctx[gpu]')" if hidden else "no GPU here"
    return f"{text}: its memory and power are not measured"


@asynccontextmanager
async def watched() -> AsyncIterator[dict[int, GpuUse]]:
    """The most that each GPU used meanwhile, whatever used it; empty where none can be watched."""
    most: dict[int, GpuUse] = {}
    task = asyncio.create_task(_watch(most)) if gpu_use() else None
    try:
        yield most
    finally:
        if task:
            task.cancel()


def rows(most: Iterable[GpuUse]) -> list[dict[str, object]]:
    """The rows of a table of them."""
    return [
        {"GPU": gpu.name, "memory, MiB": None if gpu.used_bytes is None else gpu.used_bytes / 2**20, "watts": gpu.watts}
        for gpu in most
    ]


async def _watch(most: dict[int, GpuUse]) -> None:
    while True:
        for place, use in enumerate(await anyio.to_thread.run_sync(gpu_use)):
            known = most.get(place, use)
            most[place] = GpuUse(use.name, _larger(known.used_bytes, use.used_bytes), _larger(known.watts, use.watts))
        await asyncio.sleep(_SAMPLE_SECONDS)


def _larger(one: _Number, other: _Number) -> _Number:
    return max((each for each in (one, other) if each is not None), default=None)
