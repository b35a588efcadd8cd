from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from localctx.stores.models import DEFAULT, ModelStore


@pytest.fixture(scope="session")
def home(request: pytest.FixtureRequest) -> Iterator[Path]:
    """A data directory that holds the default model; kept between runs with pytest's own cache, never the user's."""
    assert request.config.cache is not None
    folder = request.config.cache.mkdir("localctx")
    ModelStore(folder).pull(DEFAULT, lambda _done, _total: None)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("LOCALCTX_HOME", str(folder))
        yield folder


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"
