"""What the GPUs of this machine are using now, by NVIDIA's management library (the extra `gpu`)."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from typing import Any

__all__ = ["GpuUse", "gpu_use"]


@dataclass(frozen=True, slots=True)
class GpuUse:
    """One GPU: memory in use, in bytes, by whatever program, and power in watts; None where it does not say."""

    name: str
    used_bytes: int | None
    watts: float | None


def gpu_use() -> tuple[GpuUse, ...]:
    """What each GPU uses at this moment; empty where there is none, or it cannot be asked."""
    with suppress(Exception):  # no pynvml, or no driver
        return _nvidia()
    return ()


def _nvidia() -> tuple[GpuUse, ...]:
    import pynvml  # noqa: PLC0415  an optional package

    pynvml.nvmlInit()
    try:
        handles = [pynvml.nvmlDeviceGetHandleByIndex(number) for number in range(pynvml.nvmlDeviceGetCount())]
        return tuple(_use(pynvml, handle) for handle in handles)
    finally:
        pynvml.nvmlShutdown()


def _use(pynvml: Any, handle: object) -> GpuUse:  # noqa: ANN401  the library has no types
    used = watts = None
    with suppress(Exception):  # some have no memory of their own
        used = int(pynvml.nvmlDeviceGetMemoryInfo(handle).used)
    with suppress(Exception):  # some do not measure it
        watts = pynvml.nvmlDeviceGetPowerUsage(handle) / 1000
    return GpuUse(str(pynvml.nvmlDeviceGetName(handle)), used, watts)
