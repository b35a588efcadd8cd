"""What the GPUs of this machine are and use, by NVIDIA's management library (the extra `gpu`)."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["GpuUse", "asked", "gpu_use"]

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class GpuUse:
    """One GPU: memory in use, in bytes, by whatever program, and power in watts; None where it does not say."""

    name: str
    used_bytes: int | None
    watts: float | None


def gpu_use() -> tuple[GpuUse, ...]:
    """What each GPU uses at this moment; empty where there is none, or it cannot be asked."""
    with suppress(Exception):  # no pynvml, or no driver
        return asked(_use)
    return ()


def asked(read: Callable[[Any, Any], T]) -> tuple[T, ...]:
    """What `read` finds of each GPU, given NVIDIA's library and a GPU's handle. Raises what the library does, or its lack."""
    import pynvml  # noqa: PLC0415  an optional package

    pynvml.nvmlInit()
    try:
        return tuple(
            read(pynvml, pynvml.nvmlDeviceGetHandleByIndex(number)) for number in range(pynvml.nvmlDeviceGetCount())
        )
    finally:
        pynvml.nvmlShutdown()


def _use(pynvml: Any, handle: Any) -> GpuUse:  # noqa: ANN401  the library has no types
    used = watts = None
    with suppress(Exception):  # some have no memory of their own
        used = int(pynvml.nvmlDeviceGetMemoryInfo(handle).used)
    with suppress(Exception):  # some do not measure it
        watts = pynvml.nvmlDeviceGetPowerUsage(handle) / 1000
    return GpuUse(str(pynvml.nvmlDeviceGetName(handle)), used, watts)
