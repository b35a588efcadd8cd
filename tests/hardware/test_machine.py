from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

import psutil  # type: ignore[import-untyped, unused-ignore] # its stubs are a package of their own
import pytest
from hypothesis import given
from hypothesis import strategies as st

from localctx.hardware.machine import Gpu, machine, processors, threads_for, usable_cores, worker_threads

if TYPE_CHECKING:
    from pathlib import Path

NVML = """
from types import SimpleNamespace
NAMES = {names!r}
def nvmlInit(): pass
def nvmlShutdown(): open({closed!r}, "w").close()
def nvmlDeviceGetCount(): return len(NAMES)
def nvmlDeviceGetHandleByIndex(index): return index
def nvmlDeviceGetName(index): return NAMES[index]
def nvmlDeviceGetMemoryInfo(index):
    if NAMES[index] == "unified":
        raise RuntimeError("Not Supported")
    return SimpleNamespace(total=1000 + index, free=100 + index)
"""


@pytest.fixture(autouse=True)
def no_pynvml(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", None)


@pytest.fixture
def eight(monkeypatch: pytest.MonkeyPatch) -> None:
    """Eight idle processors, all of them allowed."""
    monkeypatch.setattr(os, "cpu_count", lambda: 8)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(8)))
    busy(monkeypatch, 0)


def busy(monkeypatch: pytest.MonkeyPatch, load: float) -> None:
    monkeypatch.setattr(psutil, "getloadavg", lambda: (load, 0, 0))


def put(root: Path, name: str, text: str = "") -> None:
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


def put_siblings(root: Path, pairs: int) -> None:
    for number in range(2 * pairs):
        first = number // 2 * 2
        name = f"sys/devices/system/cpu/cpu{number}/topology/thread_siblings_list"
        put(root, name, f"{first}-{first + 1}\n")


def put_nvml(root: Path, monkeypatch: pytest.MonkeyPatch, *names: str) -> Path:
    closed = root / "closed"
    put(root, "lib/pynvml.py", NVML.format(names=names, closed=str(closed)))
    monkeypatch.delitem(sys.modules, "pynvml")
    monkeypatch.syspath_prepend(str(root / "lib"))
    return closed


def test_this_machine() -> None:
    found = machine()
    assert found.cpu
    assert 1 <= found.cores <= (os.cpu_count() or 1)
    assert 0 < found.memory_available_bytes <= found.memory_bytes
    assert 1 <= worker_threads() <= found.cores


def test_the_processor_is_named_by_the_kernel(tmp_path: Path) -> None:
    put(tmp_path, "proc/cpuinfo", "processor\t: 0\nmodel name\t: Fast CPU 9000 \nmodel name\t: Other\n")
    assert machine(tmp_path).cpu == "Fast CPU 9000"


def test_a_processor_without_a_name_is_its_architecture(tmp_path: Path) -> None:
    assert machine(tmp_path).cpu


def test_memory_that_cannot_be_read_is_0(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def closed() -> None:
        raise PermissionError

    monkeypatch.setattr(psutil, "virtual_memory", closed)
    found = machine(tmp_path)
    assert (found.memory_bytes, found.memory_available_bytes) == (0, 0)


@pytest.mark.usefixtures("eight")
@pytest.mark.parametrize(
    ("group", "files", "cores"),
    [
        ("0::/", {}, 8),
        ("0::/", {"cpu.max": "max 100000"}, 8),
        ("0::/", {"cpu.max": "300000 100000"}, 3),
        ("0::/", {"cpu.max": "250000 100000"}, 2),
        ("0::/", {"cpu.max": "50000 100000"}, 1),
        ("0::/", {"cpu.max": "1600000 100000"}, 8),
        ("0::/a/b", {"cpu.max": "500000 100000", "a/cpu.max": "200000 100000", "a/b/cpu.max": "max 100000"}, 2),
        ("0::/not/visible/here", {"cpu.max": "400000 100000"}, 4),
        (
            "3:cpu,cpuacct:/x",
            {"cpu,cpuacct/x/cpu.cfs_quota_us": "200000", "cpu,cpuacct/x/cpu.cfs_period_us": "50000"},
            4,
        ),
        ("3:cpu:/", {"cpu/cpu.cfs_quota_us": "-1", "cpu/cpu.cfs_period_us": "100000"}, 8),
        ("3:cpu:/", {"cpu/cpu.cfs_quota_us": "200000", "cpu/cpu.cfs_period_us": "0"}, 8),
        ("3:cpuset:/", {"cpuset/cpu.max": "100000 100000"}, 8),
        ("nonsense", {"cpu.max": "100000 100000"}, 8),
    ],
)
def test_a_quota_limits_the_cores(tmp_path: Path, group: str, files: dict[str, str], cores: int) -> None:
    put(tmp_path, "proc/self/cgroup", f"9:name=other:/y\n{group}\n")
    for name, text in files.items():
        put(tmp_path, f"sys/fs/cgroup/{name}", f"{text}\n")
    assert usable_cores(tmp_path) == cores


@pytest.mark.usefixtures("eight")
def test_the_affinity_limits_the_cores(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {1, 5})
    assert usable_cores(tmp_path) == 2


@pytest.mark.usefixtures("eight")
def test_without_an_affinity_all_cores_are_usable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "sched_getaffinity")
    assert usable_cores(tmp_path) == 8


@pytest.mark.parametrize(
    ("cores", "load", "threads"),
    [(0, 0, 1), (1, 0, 1), (2, 0, 1), (2, 2, 1), (4, 0, 3), (4, 1.06, 3), (4, 1.5, 2), (4, 9, 1), (8, 3, 5)],
)
def test_threads_are_what_the_load_leaves(cores: int, load: float, threads: int) -> None:
    assert threads_for(cores, load) == threads


@given(st.integers(1, 512), st.floats(0, 1e6))
def test_threads_stay_within_the_cores_and_fall_with_the_load(cores: int, load: float) -> None:
    assert 1 <= threads_for(cores, load + 1) <= threads_for(cores, load) <= max(1, cores - 1)


@pytest.mark.usefixtures("eight")
def test_workers_count_physical_cores(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put_siblings(tmp_path, pairs=4)
    assert worker_threads(tmp_path) == 3
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1, 2, 4, 6})
    assert worker_threads(tmp_path) == 3
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1, 2, 3})
    assert worker_threads(tmp_path) == 1


@pytest.mark.usefixtures("eight")
@pytest.mark.parametrize(("told", "threads"), [(6, 5), (None, 7), (16, 7)])
def test_unknown_siblings_fall_back_to_the_library(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, told: int | None, threads: int
) -> None:
    monkeypatch.setattr(psutil, "cpu_count", lambda logical: None if logical else told)
    assert worker_threads(tmp_path) == threads


@pytest.mark.usefixtures("eight")
def test_only_our_share_of_the_load_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(psutil, "cpu_count", lambda logical: None if logical else 8)
    busy(monkeypatch, 4)
    assert worker_threads(tmp_path) == 4
    put(tmp_path, "proc/self/cgroup", "0::/\n")
    put(tmp_path, "sys/fs/cgroup/cpu.max", "400000 100000")
    assert worker_threads(tmp_path) == 2


@pytest.mark.usefixtures("eight")
def test_an_unknown_load_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown() -> None:
        raise OSError

    monkeypatch.setattr(psutil, "cpu_count", lambda logical: None if logical else 8)
    monkeypatch.setattr(psutil, "getloadavg", unknown)
    assert worker_threads(tmp_path) == 7


def test_gpus_are_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    closed = put_nvml(tmp_path, monkeypatch, "one", "two")
    assert machine(tmp_path).gpus == (Gpu("one", 1000, 100), Gpu("two", 1001, 101))
    assert closed.exists()


def test_what_computes_is_the_processor_and_the_gpus_that_can_be_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(tmp_path, "proc/cpuinfo", "model name\t: A processor\n")
    alone = processors(tmp_path)
    assert alone == f"A processor x {usable_cores(tmp_path)}"
    put_nvml(tmp_path, monkeypatch, "one", "two")
    assert processors(tmp_path) == f"{alone}, one, two"


def test_a_gpu_without_memory_of_its_own_is_unknown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put(tmp_path, "dev/nvidia0")
    closed = put_nvml(tmp_path, monkeypatch, "unified")
    assert machine(tmp_path).gpus is None
    assert closed.exists()


@pytest.mark.parametrize(
    ("node", "gpus"),
    [("null", ()), ("nvidia-caps", ()), ("nvidia0", None), ("nvidia12", None), ("dxg", None), ("kfd", None)],
)
def test_without_the_library_the_device_nodes_decide(tmp_path: Path, node: str, gpus: tuple[Gpu, ...] | None) -> None:
    put(tmp_path, f"dev/{node}")
    assert machine(tmp_path).gpus == gpus


def test_other_systems_may_have_a_gpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "darwin")
    assert machine(tmp_path).gpus is None
