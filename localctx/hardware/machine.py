"""What this machine has, and how many threads an in-process model may use on it.

Every function that reads the machine takes `root`, the folder under which /proc, /sys and /dev lie.
"""

from __future__ import annotations

import math
import os
import platform
import re
import sys
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil

from localctx.hardware.gpu import asked

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = [
    "Gpu",
    "Machine",
    "load",
    "machine",
    "on_battery",
    "processors",
    "threads_for",
    "usable_cores",
    "worker_threads",
]

_ROOT = Path("/")
_GPU_NODES = ("nvidia[0-9]*", "dxg", "kfd")  # NVIDIA's driver, any GPU under WSL, AMD's driver


@dataclass(frozen=True, slots=True)
class Gpu:
    """One graphics processor; memory in bytes, `memory_free_bytes` at the time of asking."""

    name: str
    memory_bytes: int
    memory_free_bytes: int


@dataclass(frozen=True, slots=True)
class Machine:
    """The machine as this process sees it.

    `cores` are the logical processors that this process may use. Memory is the system's, in bytes; 0 where the
    system does not tell. `gpus` is None where there may be one that could not be asked.
    """

    cpu: str
    cores: int
    memory_bytes: int
    memory_available_bytes: int
    gpus: tuple[Gpu, ...] | None


def machine(root: Path = _ROOT) -> Machine:
    """Look at the machine; never raises: what cannot be read is 0, or None for the GPUs."""
    total, available = _memory()
    return Machine(_cpu_name(root), usable_cores(root), total, available, _gpus(root))


def processors(root: Path = _ROOT) -> str:
    """What computes here: the processor's name, how many of it this process may use, and the GPUs, where they can be asked."""
    return ", ".join([f"{_cpu_name(root)} x {usable_cores(root)}", *(gpu.name for gpu in _gpus(root) or ())])


def on_battery() -> bool:
    """Whether this machine runs on its battery; False where nobody can tell."""
    with suppress(Exception):  # psutil has no such sensor on some systems
        battery = psutil.sensors_battery()
        return battery is not None and battery.power_plugged is False
    return False


def usable_cores(root: Path = _ROOT) -> int:
    """Logical processors that this process may use, at least 1: its affinity and its control group's quota."""
    return _within_quota(len(_affinity()), root)


def worker_threads(root: Path = _ROOT) -> int:
    """Threads that an in-process llama.cpp should use now, by `threads_for`.

    Counts physical cores, because two threads of one core share the arithmetic units that decoding waits for. The
    load is the system's average over one minute; its share that falls on our processors counts, so that a busy host
    does not starve a container that may use a few of its many processors.
    """
    cores = _within_quota(_physical(_affinity(), root), root)
    total = os.cpu_count() or 1
    return threads_for(cores, load() * usable_cores(root) / total)


def threads_for(cores: int, load: float) -> int:
    """Threads for decoding on `cores` usable cores of which `load` are busy: 1 at least, `cores` at most.

    The threads of llama.cpp wait for each other at every layer, so one thread without a free core holds up all:
    with two threads on two cores and one busy process, SmolLM2-135M wrote 10 tokens a second instead of 60. A thread
    too few costs its share, a thread too many costs nearly everything. With two cores or more, one is left to the
    program itself.
    """
    free = cores - math.floor(load + 0.5)
    return max(1, min(free, cores - 1))


def _within_quota(cores: int, root: Path) -> int:
    return max(1, math.floor(min(cores, _quota(root))))


def _affinity() -> set[int]:
    try:
        return os.sched_getaffinity(0)
    except (AttributeError, OSError):  # only Linux has it
        return set(range(os.cpu_count() or 1))


def _physical(processors: set[int], root: Path) -> int:
    topology = "sys/devices/system/cpu/cpu{}/topology/thread_siblings_list"
    cores = {_read(root / topology.format(number)) for number in processors} - {""}
    known = len(cores) or psutil.cpu_count(logical=False) or len(processors)
    return min(int(known), len(processors))


def _quota(root: Path) -> float:
    """Processors' worth of time that the control group, or one above it, allows; infinite without a limit."""
    return min(map(_limit, _control_groups(root)), default=math.inf)


def _control_groups(root: Path) -> Iterator[Path]:
    """The folders that may limit this process's processor time, of control groups v2 (no controllers named) and v1."""
    for controllers, group in re.findall(r"^\d+:(.*?):/(.*)$", _read(root / "proc/self/cgroup"), re.MULTILINE):
        if controllers and "cpu" not in controllers.split(","):
            continue
        mount = root / "sys/fs/cgroup" / controllers
        names = group.split("/")
        yield from (mount.joinpath(*names[:depth]) for depth in range(len(names) + 1))


def _limit(folder: Path) -> float:
    """One group's limit: `cpu.max` of v2 is 'quota period' or 'max period', v1 has two files and a quota of -1."""
    text = _read(folder / "cpu.max") or f"{_read(folder / 'cpu.cfs_quota_us')} {_read(folder / 'cpu.cfs_period_us')}"
    match re.findall(r"-?\d+", text):
        case [quota, period] if int(quota) > 0 and int(period) > 0:
            return int(quota) / int(period)
    return math.inf


def load() -> float:
    """The system's load, the average over one minute; 0 where nobody tells."""
    with suppress(OSError):
        return float(psutil.getloadavg()[0])
    return 0.0


def _memory() -> tuple[int, int]:
    with suppress(Exception):  # psutil raises various errors where /proc is closed
        memory = psutil.virtual_memory()
        return int(memory.total), int(memory.available)
    return 0, 0


def _cpu_name(root: Path) -> str:
    named = re.search(r"^model name\s*:\s*(.+)$", _read(root / "proc/cpuinfo"), re.MULTILINE)
    return named[1].strip() if named else platform.processor() or platform.machine() or "unknown"


def _gpus(root: Path) -> tuple[Gpu, ...] | None:
    with suppress(Exception):  # no pynvml, no driver, or a GPU without memory of its own
        return asked(_gpu)
    nodes = any(next((root / "dev").glob(pattern), None) for pattern in _GPU_NODES)
    return None if nodes or sys.platform != "linux" else ()


def _gpu(pynvml: Any, handle: Any) -> Gpu:  # noqa: ANN401  the library has no types
    memory = pynvml.nvmlDeviceGetMemoryInfo(handle)
    return Gpu(str(pynvml.nvmlDeviceGetName(handle)), int(memory.total), int(memory.free))


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return ""
