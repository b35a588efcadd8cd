from __future__ import annotations

import json
import socket
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner, Result

from localctx.cli import fit
from localctx.core.window import ServerReport, Status
from localctx.errors import DoesNotFit, Misuse, ModelMissing
from localctx.hardware import machine as hardware
from localctx.hardware.machine import Gpu, Machine
from localctx.stores.models import DEFAULT, ModelStore
from tests.fakes.llama_server import Fake, running
from tests.hardware.test_gguf import F16, F32, STRING, U32, file, pair, tensor
from tests.hardware.test_ollama import DIGEST, MANIFEST, manifest

MIB = 2**20
RAM = Machine("cpu", 4, 8 * 1024 * MIB, 4 * 1024 * MIB, ())


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine with 4 GiB of RAM free and no GPU, where no server answers and nothing is installed."""
    monkeypatch.setattr(hardware, "machine", lambda: RAM)
    monkeypatch.setattr("localctx.wiring.probing.DEFAULT_ADDRESSES", ("http://127.0.0.1:9",))
    for name in ("OLLAMA_HOST", "OLLAMA_MODELS", "NO_COLOR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("LOCALCTX_HOME", str(tmp_path / "data"))
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def small(tmp_path: Path) -> Path:
    return written(tmp_path / "small model.gguf")


def written(path: Path, architecture: str = "llama", *, key_length: int = 64, **more: int) -> Path:
    """Four layers of 6,144 bytes a token; 1 MiB of weights."""
    numbers = {
        "block_count": 4,
        "context_length": 8192,
        "embedding_length": 512,
        "attention.head_count": 8,
        "attention.head_count_kv": 6,
        "attention.key_length": key_length,
        "attention.value_length": 64,
        **more,
    }
    pairs = [
        pair("general.architecture", STRING, architecture),
        pair("general.name", STRING, "A small\nmodel"),
        *(pair(f"{architecture}.{name}", U32, value) for name, value in numbers.items()),
        pair(f"{architecture}.epsilon", F32, 1e-6),
    ]
    tensors = [tensor(f"blk.{layer}.x", (512, 256), F16, layer * MIB // 4) for layer in range(4)]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(file(pairs, tensors, MIB))
    return path


def call(*arguments: object) -> Result:
    app = typer.Typer()
    app.command()(fit.command)
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def test_the_table_says_what_fits_and_how_to_serve_it(small: Path) -> None:
    done = call(small)
    assert done.exit_code == 0
    assert done.stderr == ""
    lines = done.stdout.splitlines()
    assert lines[0] == "A small model: llama, 4 layers, trained for 8,192 tokens"
    assert "  weights  1.00 MiB" in lines
    assert "  memory   4.00 GiB of RAM available, less 512.0 MiB that are left free" in lines
    assert "> f16           6,144   8,192  48.0 MiB  49.0 MiB  as trained" in lines
    assert "  q8_0          3,264   8,192  25.5 MiB  26.5 MiB  as trained" in lines
    assert f"  llama-server -m '{small}' -c 8192 -np 1" in lines
    assert f"  localctx run --runtime embedded --model '{small}' --num-ctx 8192" in lines
    assert all(len(line) <= 80 for line in lines if str(small) not in line)


def test_json_says_the_same(small: Path) -> None:
    document = json.loads(call(small, "--json", "--kv", "q4_0", "--parallel", 2, "--memory", "20MiB").stdout)
    assert document["schema"] == 1
    assert document["model"]["weights_bytes"] == MIB
    assert document["memory"] == {
        "bytes": 20 * MIB,
        "what": "given by --memory",
        "margin_bytes": 20 * MIB // 8,
        "spare_bytes": 0,
    }
    assert (document["kv"], document["parallel"], document["exact"]) == ("q4_0", 2, True)
    each = {row["kv"]: row for row in document["fits"]}
    assert list(each) == ["f16", "q8_0", "q5_1", "q4_0"]
    chosen = each["q4_0"]
    assert document["window"] == chosen["window"] == 4864
    assert chosen["kv_bytes"] == 2 * 4864 * 1728
    assert chosen["total_bytes"] == MIB + chosen["kv_bytes"]
    assert document["commands"] == [f"llama-server -m '{small}' -c 9728 -np 2 -ctk q4_0 -ctv q4_0"]


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("24G", 24 * 2**30),
        ("512MiB", 2**29),
        ("1.5 GiB", 3 * 2**29),
        ("24GB", 24 * 10**9),
        ("1t", 2**40),
        ("64k", 2**16),
    ],
)
def test_sizes(text: str, size: int) -> None:
    assert fit._bytes(text) == size


@pytest.mark.parametrize("text", ["", "24", "G", "-1G", "0G", "1e9G", "24 gigabytes", "9" * 99 + "G"])
def test_what_is_no_size_is_refused(small: Path, text: str) -> None:
    error = call(small, f"--memory={text}").exception
    assert isinstance(error, Misuse)
    assert "24G" in str(error)


def test_what_does_not_fit_ends_with_4_and_the_arithmetic(small: Path) -> None:
    done = call(small, "--memory", "1M")
    assert isinstance(done.exception, DoesNotFit)
    assert "weights 1.00 MiB and at least 1.50 MiB of cache need 1.62 MiB more" in str(done.exception)
    assert "does not fit" in done.stdout
    assert "serve it" not in done.stdout
    document = json.loads(call(small, "--memory", "1M", "--json").stdout)
    assert (document["window"], document["commands"]) == (None, [])


def test_the_gpu_s_free_memory_counts_where_there_is_one(small: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gpus = (Gpu("Card", 24 * MIB, 24 * MIB), Gpu("Card", 24 * MIB, 16 * MIB))
    monkeypatch.setattr(hardware, "machine", lambda: Machine("cpu", 4, 0, 2**33, gpus))
    done = call(small)
    assert "40.0 MiB free on 2 x Card, less 5.00 MiB that are left free" in done.stdout
    assert "5,632" in done.stdout
    assert "embedded" not in done.stdout, "it runs on the CPU"


def test_what_exceeds_the_gpu_spills(small: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hardware, "machine", lambda: Machine("cpu", 4, 0, 2**33, (Gpu("Card", 2**30, MIB),)))
    done = call(small)
    assert "spills to the CPU" in done.stdout
    assert "1 of 5 layers stay there (-ngl), 49.0 MiB go to the CPU" in " ".join(done.stdout.split())
    assert "-c 8192 -np 1 -ngl 1" in done.stdout
    (row, *_) = json.loads(call(small, "--json", "--memory", "16M").stdout)["fits"]
    assert row["spill"] is None


def test_a_gpu_that_cannot_be_asked_is_mentioned(small: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hardware, "machine", lambda: Machine("cpu", 4, 0, 2**33, None))
    assert "localctx[gpu]" in call(small).stdout


def test_a_machine_that_does_not_say_wants_a_size(small: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hardware, "machine", lambda: Machine("cpu", 4, 0, 0, ()))
    error = call(small).exception
    assert isinstance(error, Misuse)
    assert "--memory 24G" in str(error)


def test_what_is_unknown_is_said(tmp_path: Path) -> None:
    path = written(tmp_path / "new.gguf", "newcomer")
    assert "not known here" in call(path).stdout
    document = json.loads(call(path, "--json").stdout)
    assert document["exact"] is False
    assert "upper bounds" in document["notes"][0]


def test_layers_of_other_kinds_are_explained(tmp_path: Path) -> None:
    slides = written(tmp_path / "a.gguf", "gpt-oss", **{"attention.sliding_window": 128})
    assert "2 layers keep the last 128 tokens: at most 2.25 MiB a slot" in call(slides).stdout
    both = written(tmp_path / "b.gguf", "falcon-h1", **{"ssm.inner_size": 1024, "ssm.state_size": 256})
    assert "4 layers are recurrent: 4.00 MiB a slot, whatever the window" in call(both, "--parallel", 3).stdout


def test_a_cache_that_the_heads_cannot_have_is_refused(tmp_path: Path) -> None:
    path = written(tmp_path / "odd.gguf", key_length=80)
    assert "q8_0" not in call(path).stdout
    error = call(path, "--kv", "q8_0").exception
    assert isinstance(error, Misuse)
    assert "one of: f16" in str(error)


@pytest.mark.parametrize("arguments", [["--kv", "q2"], ["--parallel", "0"], ["--parallel", "257"]])
def test_wrong_options_end_with_2(small: Path, arguments: list[str]) -> None:
    assert call(small, *arguments).exit_code == 2


# --- which model ------------------------------------------------------------------------------------------------------


def said(*arguments: object) -> str:
    error = call(*arguments).exception
    assert isinstance(error, ModelMissing)
    return str(error)


def test_a_known_small_model_goes_by_its_name(tmp_path: Path) -> None:
    assert said(DEFAULT) == f"{DEFAULT} is not here; fetch it with: localctx models pull {DEFAULT}"
    store = ModelStore(tmp_path / "data")
    path = written(store.path(DEFAULT))
    with path.open("r+b") as opened:
        opened.truncate(store.find(DEFAULT).gguf_bytes)
    assert str(path) in call(f"embedded/{DEFAULT}").stdout


def test_ollama_s_models_go_by_their_names(tmp_path: Path) -> None:
    folder = tmp_path / ".ollama" / "models"
    manifest(folder, "registry.ollama.ai/library/qwen3.6/27b", MANIFEST)
    assert f"sha256-{DIGEST}" in said("qwen3.6:27b")
    blob = written(folder / "blobs" / f"sha256-{DIGEST}")
    done = call("qwen3.6:27b")
    assert f"llama-server -m {blob} -c 8192" in done.stdout
    assert "embedded" not in done.stdout, "it takes files that end with .gguf"


def test_a_name_that_nothing_has_says_what_was_tried() -> None:
    assert "no model 'nope'" in said("nope")
    assert "nothing answers" in said("nope")


def test_a_server_s_model_is_read_where_its_file_is_here(monkeypatch: pytest.MonkeyPatch, small: Path) -> None:
    with running(Fake(model="served")) as server:
        assert "/models/served.gguf, which cannot be read from here" in said(server.url)
        monkeypatch.setattr("localctx.wiring.probing.DEFAULT_ADDRESSES", (server.url,))
        assert "cannot be read from here" in said("served")
        assert "no model 'other'" in said("other")
        assert fit._its_file(report(server.url), str(small)) == small


def report(url: str) -> ServerReport:
    return ServerReport("llama-server", url, Status.UP)


def test_a_server_on_another_machine_or_without_a_path_is_said(small: Path) -> None:
    with pytest.raises(ModelMissing, match="on another machine"):
        fit._its_file(report("http://192.0.2.1:8080"), str(small))
    with pytest.raises(ModelMissing, match="does not say where its file is"):
        fit._its_file(report("http://127.0.0.1:8080"), None)


def test_an_address_where_nothing_answers_is_said() -> None:
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{bound.getsockname()[1]}"
        assert f"{url} serves no model: nothing answers" in said(url)
