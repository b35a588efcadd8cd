"""What GPUs use, by a stand-in for NVIDIA's library: this machine has none."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from localctx.hardware.gpu import GpuUse, gpu_use

NVML = """
class Memory:
    used = 12345
def nvmlInit(): pass
def nvmlShutdown(): open({closed!r}, "w").close()
def nvmlDeviceGetCount(): return 2
def nvmlDeviceGetHandleByIndex(index): return index
def nvmlDeviceGetName(index): return f"GPU {{index}}"
def nvmlDeviceGetMemoryInfo(index): return Memory
def nvmlDeviceGetPowerUsage(index):
    if index:
        raise RuntimeError("not supported")
    return 71_500
"""


def test_memory_and_power_are_read_and_the_library_is_closed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    closed = tmp_path / "closed"
    (tmp_path / "pynvml.py").write_text(NVML.format(closed=str(closed)), encoding="utf-8")
    monkeypatch.delitem(sys.modules, "pynvml", raising=False)
    monkeypatch.syspath_prepend(str(tmp_path))
    assert gpu_use() == (GpuUse("GPU 0", 12345, 71.5), GpuUse("GPU 1", 12345, None))
    assert closed.exists()


def test_without_the_library_there_is_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", None)
    assert gpu_use() == ()
