"""What GPUs use, asked by NVIDIA's own package of a driver that is a fake: this machine may have none."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from localctx.hardware.gpu import gpu_use
from tests.fakes.nvml import built

ASKED = """
from localctx.hardware.gpu import gpu_use
for use in gpu_use():
    print(use.name, use.used_bytes, use.watts)
"""


def test_memory_and_power_are_read_and_what_a_gpu_does_not_say_is_unknown(tmp_path: Path) -> None:
    environment = {**os.environ, **built(tmp_path)}
    done = subprocess.run([sys.executable, "-c", ASKED], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == ["Fake GPU 0 900 71.5", "Fake GPU 1 901 None", "Fake GPU 2 None 71.5"]


def test_without_the_library_there_is_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", None)
    assert gpu_use() == ()
