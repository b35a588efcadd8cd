"""`localctx count` and the benchmark's exact counters, against what the real server reports."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from benchmarks import counting_exact
from localctx.hardware.machine import worker_threads
from localctx.runtimes import embedded
from localctx.runtimes.llama_server import LlamaServer
from localctx.stores.models import DEFAULT, ModelStore

pytestmark = [pytest.mark.live, pytest.mark.anyio]

CHAT: list[dict[str, object]] = [
    {"role": "system", "content": "Be brief. 数えてください。"},
    {"role": "user", "content": "What is in notes.txt?\n\n```\nx = {'a': [1, 2.5]}\n```"},
    {"role": "assistant", "content": "Ten words 🎉."},
    {"role": "user", "content": ""},
]


@pytest.fixture
def model(home: Path) -> Path:
    return ModelStore(home).path(DEFAULT)


def count(chat: Path, home: Path, *args: str, **environment: str) -> dict[str, Any]:
    done = subprocess.run(
        [sys.executable, "-m", "localctx", "count", str(chat), "--json", *args],
        capture_output=True,
        text=True,
        env=os.environ | {"LOCALCTX_HOME": str(home)} | environment,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    (counted,) = json.loads(done.stdout)["files"]
    assert isinstance(counted, dict)
    return counted


@pytest.fixture
def chat(tmp_path: Path) -> Path:
    path = tmp_path / "chat.json"
    path.write_text(json.dumps(CHAT))
    return path


async def test_a_file_counts_as_its_server_does(home: Path, model: Path, chat: Path) -> None:
    pytest.importorskip("tokenizers")
    server = await embedded.start(model, name=DEFAULT, window=2048, threads=worker_threads())
    runtime = LlamaServer(server.url, key=server.key)
    try:
        exact = await runtime.count(CHAT)
        assert exact is not None
        served = count(chat, home, "--url", server.url, LOCALCTX_API_KEY=server.key)
        assert (served["tokens"], served["bound"], served["how"]) == (exact.tokens, 0, exact.how)
        small = count(chat, home, "--model", DEFAULT)
        assert (small["tokens"], small["how"]) == (exact.tokens, "GGUF vocabulary and chat template")
        parts = sum(message["tokens"] for message in small["messages"]) + small["beside"]["tokens"]
        assert parts == exact.tokens
    finally:
        await runtime.close()
        server.stop()


def test_a_model_of_an_ollama_that_does_not_run_is_counted_by_its_blob(
    home: Path, model: Path, chat: Path, tmp_path: Path
) -> None:
    pytest.importorskip("tokenizers")
    digest = hashlib.sha256(b"the blob").hexdigest()
    manifest = tmp_path / "manifests" / "registry.ollama.ai" / "library" / "smollm2" / "135m"
    manifest.parent.mkdir(parents=True)
    layer = {"mediaType": "application/vnd.ollama.image.model", "digest": f"sha256:{digest}"}
    manifest.write_text(json.dumps({"layers": [layer]}))
    (tmp_path / "blobs").mkdir()
    (tmp_path / "blobs" / f"sha256-{digest}").symlink_to(model)
    blob = count(chat, home, "--model", "smollm2:135m", OLLAMA_MODELS=str(tmp_path))
    assert blob["tokens"] == count(chat, home, "--model", str(model))["tokens"]
    assert blob["how"].startswith("GGUF vocabulary")


@pytest.mark.slow
def test_two_hundred_conversations_are_counted_exactly(model: Path) -> None:
    rows = list(counting_exact.conversations_of({DEFAULT: model}, count=200))
    assert [row["counter"] for row in rows] == ["server's count", "template and /tokenize", "GGUF vocabulary"]
    assert [row["conversations"] for row in rows[:2]] == [200, 200]
    assert [row["wrong"] for row in rows] == [0, 0, 0]
