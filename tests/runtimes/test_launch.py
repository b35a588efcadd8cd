"""What the command line of a server on this machine says, read from real processes."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from localctx.core.window import ModelReport
from localctx.runtimes.launch import arguments
from localctx.runtimes.llama_server import LlamaServer

SERVER = """
import time
from tests.fakes.llama_server import Fake, running
with running(Fake(n_ctx=2048, slots=2)) as server:
    print(server.url, flush=True)
    time.sleep(30)
"""


@contextmanager
def started(*flags: str) -> Iterator[str]:
    """A fake server in a process of its own that is called llama-server."""
    command = ["llama-server", "-c", SERVER, *flags]
    with subprocess.Popen(command, executable=sys.executable, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        yield process.stdout.readline().strip()
        process.kill()


async def read(url: str) -> ModelReport:
    server = LlamaServer(url)
    (model,) = (await server.probe()).models
    await server.close()
    return model


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("flags", "codes", "pool"),
    [
        (("-c", "4096", "-np", "2"), ["split-slots"], None),
        (("-c", "4096", "-np", "2", "--kv-unified"), ["shared-pool"], 2048),
        (("-c", "2048"), ["shared-pool"], 2048),
        (("-c", "4096", "--no-kv-unified", "--context-shift"), ["split-slots", "context-shift"], None),
    ],
)
async def test_shared_pools_are_told_from_split_ones(
    flags: tuple[str, ...], codes: list[str], pool: int | None
) -> None:
    with started(*flags) as url:
        model = await read(url)
    assert [advice.code for advice in model.warnings if advice.code != "no-tools"] == codes
    assert model.shared_pool == pool
    assert model.window.tokens == 2048
    assert not any("may share" in advice.text for advice in model.warnings)


@pytest.mark.parametrize(
    "url", ["http://192.0.2.1:8080", "http://example.invalid:80", "http://127.0.0.1:9", "http://x"]
)
def test_what_cannot_be_seen_is_nothing(url: str) -> None:
    assert arguments(url) == []
