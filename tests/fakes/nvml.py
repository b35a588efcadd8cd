"""A driver for GPUs that are not there: NVIDIA's own Python package loads it, and asks it as it would ask a real one."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

__all__ = ["built"]


def built(folder: Path) -> dict[str, str]:
    """Builds it there; the environment in which programs find it. Skips the test where there is no C compiler."""
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("no C compiler")
    source = Path(__file__).with_suffix(".c")
    subprocess.run([compiler, "-shared", "-fPIC", "-o", folder / "libnvidia-ml.so.1", source], check=True)
    return {"LD_LIBRARY_PATH": str(folder)}
