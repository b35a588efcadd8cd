from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, settings

if TYPE_CHECKING:
    from collections.abc import Callable

settings.register_profile(
    "ci", derandomize=True, deadline=None, max_examples=60, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("ci")
os.environ["LOCALCTX_OFFLINE"] = "1"


@pytest.fixture(scope="session")
def size() -> Callable[[str], int]:
    """Tokens as four characters each: exact enough to reason about, and the same everywhere."""
    return lambda text: len(text) // 4 + (1 if text else 0)
