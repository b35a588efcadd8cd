"""Our bytes against those that llama.cpp itself logs, to the hundredth of a MiB that it prints."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from localctx.core.fit import Shape, kv_bytes, state_bytes
from localctx.hardware.gguf import read
from localctx.stores.models import DEFAULT, ModelStore
from tests.hardware.test_gguf import F32, I32, STRING, U32, array, file, pair, tensor

pytestmark = pytest.mark.live

SERVER = """
import json, os, sys, xllamacpp
params = xllamacpp.CommonParams()
params.model.path = sys.argv[1]
for name, value in json.loads(sys.argv[2]).items():
    setattr(params, name, value)
params.cache_type_k = params.cache_type_v = getattr(xllamacpp.ggml_type, "GGML_TYPE_" + sys.argv[3].upper())
params.cpuparams.n_threads = params.cpuparams_batch.n_threads = 1
params.hostnames, params.port, params.api_keys = ["127.0.0.1"], 0, ["unused"]
params.ui = params.fit_params = params.warmup = False
params.verbosity = 4  # what llama.cpp itself logs
server = xllamacpp.Server(params)
os._exit(0)  # nothing is asked of it
"""

CACHE = re.compile(r"llama_kv_cache: size = +([\d.]+) MiB \( *(\d+) cells, +(\d+) layers, +\d+/(\d+) seqs\)")
MIB = 2**20


@dataclass(frozen=True)
class Logged:
    """`caches`: of each, MiB in all, cells, layers and streams."""

    caches: list[tuple[str, int, int, int]]
    buffers: list[str]
    states: list[str]
    weights: str


def logged(path: Path, kv: str, **params: object) -> Logged:
    done = subprocess.run(
        [sys.executable, "-c", SERVER, str(path), json.dumps(params), kv],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return Logged(
        [(mib, int(cells), int(layers), int(streams)) for mib, cells, layers, streams in CACHE.findall(done.stderr)],
        re.findall(r"KV buffer size = +([\d.]+) MiB", done.stderr),
        re.findall(r"RS buffer size = +([\d.]+) MiB", done.stderr),
        re.findall(r"file size += +([\d.]+) MiB", done.stderr)[0],
    )


def mib(count: int) -> str:
    return f"{count / MIB:.2f}"


def parts(shape: Shape) -> list[Shape]:
    """The layers of each of llama.cpp's caches: those that keep the whole window, and those that slide."""
    kept = [layer for layer in shape.layers if layer.key]
    split = [tuple(layer for layer in kept if layer.sliding is slides) for slides in (False, True)]
    return [replace(shape, layers=layers) for layers in split if layers]


def compare(path: Path, kv: str, window: int, parallel: int, *, unified: bool, ubatch: int = 512) -> None:
    shape = Shape.of(read(path).metadata)
    assert shape.doubts == ()
    pool = window if unified else window * parallel
    found = logged(path, kv, n_ctx=pool, n_parallel=parallel, kv_unified=unified, n_ubatch=ubatch)
    options: dict[str, Any] = {"parallel": parallel, "unified": unified, "kv": kv, "ubatch": ubatch}
    expected = [mib(kv_bytes(part, window, **options)) for part in parts(shape)]
    assert [size for size, *_ in found.caches] == expected
    assert found.buffers == expected
    assert [layers for _, _, layers, _ in found.caches] == [len(part.layers) for part in parts(shape)]
    assert {streams for *_, streams in found.caches} == {1 if unified else parallel}
    assert found.states == ([mib(states)] if (states := state_bytes(shape, parallel)) else [])
    assert found.weights == mib(read(path).weights.total)


SETTINGS = [
    ("f16", 4096, 1, False),
    ("f16", 2048, 2, False),
    ("f16", 4096, 2, True),
    ("q8_0", 4096, 1, False),
    ("q8_0", 2048, 2, False),
    ("q8_0", 4096, 2, True),
    ("q5_1", 1000, 1, False),
    ("q4_0", 8192, 3, True),
]


@pytest.mark.parametrize(("kv", "window", "parallel", "unified"), SETTINGS)
def test_a_plain_model(home: Path, kv: str, window: int, parallel: int, *, unified: bool) -> None:
    compare(ModelStore(home).path(DEFAULT), kv, window, parallel, unified=unified)


@pytest.fixture
def gemma(home: Path) -> Path:
    """Gemma 3 270M: named by LOCALCTX_TEST_GGUF, or fetched by an earlier test of the slow ones."""
    named = os.environ.get("LOCALCTX_TEST_GGUF")
    path = Path(named) if named else home / "gemma-3-270m-q4_k_m.gguf"
    if not path.exists():
        pytest.skip("Gemma is not here: run tests/live/test_embedded.py -m slow, which fetches it")
    return path


@pytest.mark.slow
@pytest.mark.parametrize("ubatch", [512, 128])
@pytest.mark.parametrize(("kv", "window", "parallel", "unified"), [*SETTINGS, ("f16", 32768, 1, False)])
def test_a_model_with_sliding_layers(
    gemma: Path, kv: str, window: int, parallel: int, ubatch: int, *, unified: bool
) -> None:
    compare(gemma, kv, window, parallel, unified=unified, ubatch=ubatch)


# --- architectures of which there is no small model: files of zeros that llama.cpp loads ------------------------------

WIDTH, HEADS, HEAD, FEED = 128, 4, 64, 64


def vocabulary() -> list[bytes]:
    tokens = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256))]
    return [
        pair("tokenizer.ggml.model", STRING, "llama"),
        array("tokenizer.ggml.tokens", STRING, tokens),
        array("tokenizer.ggml.scores", F32, [0.0] * len(tokens)),
        array("tokenizer.ggml.token_type", I32, [2, 3, 3, *[6] * 256]),
    ]


def write(path: Path, architecture: str, given: dict[str, int | list[int]], shapes: dict[str, tuple[int, ...]]) -> Path:
    usual = {
        "context_length": 4096,
        "embedding_length": WIDTH,
        "feed_forward_length": FEED,
        "attention.head_count": HEADS,
        "attention.key_length": HEAD,
        "attention.value_length": HEAD,
        "rope.dimension_count": HEAD,
    }
    pairs = [pair("general.architecture", STRING, architecture), *vocabulary()]
    for name, value in {**usual, **given}.items():
        key = f"{architecture}.{name}"
        pairs.append(array(key, I32, value) if isinstance(value, list) else pair(key, U32, value))
    pairs.append(pair(f"{architecture}.attention.layer_norm_rms_epsilon", F32, 1e-6))
    tensors, offset = [], 0
    for name, sizes in shapes.items():
        tensors.append(tensor(name, sizes, 0, offset))
        count = 4
        for size in sizes:
            count *= size
        offset += -(-count // 32) * 32
    path.write_bytes(file(pairs, tensors, offset))
    return path


def common(layer: int) -> dict[str, tuple[int, ...]]:
    return {
        f"blk.{layer}.attn_norm.weight": (WIDTH,),
        f"blk.{layer}.ffn_norm.weight": (WIDTH,),
        f"blk.{layer}.ffn_gate.weight": (WIDTH, FEED),
        f"blk.{layer}.ffn_up.weight": (WIDTH, FEED),
        f"blk.{layer}.ffn_down.weight": (FEED, WIDTH),
    }


def attention(layer: int, heads: int, head: int = HEAD) -> dict[str, tuple[int, ...]]:
    return {
        f"blk.{layer}.attn_q.weight": (WIDTH, HEADS * head),
        f"blk.{layer}.attn_k.weight": (WIDTH, heads * head),
        f"blk.{layer}.attn_v.weight": (WIDTH, heads * head),
        f"blk.{layer}.attn_output.weight": (HEADS * head, WIDTH),
    }


OUTSIDE: dict[str, tuple[int, ...]] = {"token_embd.weight": (WIDTH, 259), "output_norm.weight": (WIDTH,)}


def hybrid(path: Path) -> Path:
    """Granite's hybrid: two layers of Mamba 2, and one that attends."""
    inner, size, groups, convolved, steps = 2 * WIDTH, 256, 2, 4, 4
    wide = inner + 2 * groups * size
    heads = [0, 2, 0]
    shapes = dict(OUTSIDE)
    for layer, held in enumerate(heads):
        shapes |= common(layer) | (attention(layer, held) if held else {})
        if not held:
            shapes |= {
                f"blk.{layer}.ssm_in.weight": (WIDTH, inner + wide + steps),
                f"blk.{layer}.ssm_conv1d.weight": (convolved, wide),
                f"blk.{layer}.ssm_conv1d.bias": (wide,),
                f"blk.{layer}.ssm_dt.bias": (steps,),
                f"blk.{layer}.ssm_a": (1, steps),
                f"blk.{layer}.ssm_d": (1, steps),
                f"blk.{layer}.ssm_norm.weight": (inner // groups, groups),
                f"blk.{layer}.ssm_out.weight": (inner, WIDTH),
            }
    given: dict[str, int | list[int]] = {
        "block_count": len(heads),
        "attention.head_count_kv": heads,
        "ssm.conv_kernel": convolved,
        "ssm.inner_size": inner,
        "ssm.state_size": size,
        "ssm.time_step_rank": steps,
        "ssm.group_count": groups,
    }
    return write(path, "granitehybrid", given, shapes)


def delta(path: Path) -> Path:
    """Qwen 3.5: three layers of a gated delta net, and one that attends."""
    size, groups, steps, convolved = 64, 2, 4, 4
    inner, wide = steps * size, steps * size + 2 * groups * size
    shapes = dict(OUTSIDE)
    for layer in range(4):
        shapes |= common(layer) | {f"blk.{layer}.post_attention_norm.weight": (WIDTH,)}
        del shapes[f"blk.{layer}.ffn_norm.weight"]
        if layer == 3:
            shapes |= attention(layer, 2) | {f"blk.{layer}.attn_q.weight": (WIDTH, 2 * HEADS * HEAD)}
            shapes |= {f"blk.{layer}.attn_q_norm.weight": (HEAD,), f"blk.{layer}.attn_k_norm.weight": (HEAD,)}
        else:
            shapes |= {
                f"blk.{layer}.attn_qkv.weight": (WIDTH, wide),
                f"blk.{layer}.attn_gate.weight": (WIDTH, inner),
                f"blk.{layer}.ssm_conv1d.weight": (convolved, wide),
                f"blk.{layer}.ssm_dt.bias": (steps,),
                f"blk.{layer}.ssm_a": (steps,),
                f"blk.{layer}.ssm_beta.weight": (WIDTH, steps),
                f"blk.{layer}.ssm_alpha.weight": (WIDTH, steps),
                f"blk.{layer}.ssm_norm.weight": (size,),
                f"blk.{layer}.ssm_out.weight": (inner, WIDTH),
            }
    given: dict[str, int | list[int]] = {
        "block_count": 4,
        "attention.head_count_kv": 2,
        "rope.dimension_sections": [11, 11, 10, 0],
        "ssm.conv_kernel": convolved,
        "ssm.inner_size": inner,
        "ssm.state_size": size,
        "ssm.time_step_rank": steps,
        "ssm.group_count": groups,
    }
    return write(path, "qwen35", given, shapes)


def shared(path: Path) -> Path:
    """Gemma 4: sliding layers with smaller heads and more of them, and layers that use an earlier one's cache."""
    slides, held = [1, 1, 1, 0, 1, 0], [2, 2, 2, 1, 2, 1]
    own = 4
    shapes = OUTSIDE | {"rope_freqs.weight": (HEAD,)}
    for layer, sliding in enumerate(slides):
        head = HEAD if sliding else 2 * HEAD
        shapes |= common(layer) | attention(layer, held[layer], head)
        shapes |= {
            f"blk.{layer}.attn_q_norm.weight": (head,),
            f"blk.{layer}.attn_k_norm.weight": (head,),
            f"blk.{layer}.post_attention_norm.weight": (WIDTH,),
            f"blk.{layer}.post_ffw_norm.weight": (WIDTH,),
        }
    given: dict[str, int | list[int]] = {
        "block_count": len(slides),
        "attention.head_count_kv": held,
        "attention.key_length": 2 * HEAD,
        "attention.value_length": 2 * HEAD,
        "attention.key_length_swa": HEAD,
        "attention.value_length_swa": HEAD,
        "attention.sliding_window": 300,
        "attention.sliding_window_pattern": slides,
        "attention.shared_kv_layers": len(slides) - own,
        "embedding_length_per_layer_input": 0,
        "rope.dimension_count": 2 * HEAD,
        "rope.dimension_count_swa": HEAD,
    }
    return write(path, "gemma4", given, shapes)


@pytest.mark.parametrize("make", [hybrid, delta, shared])
@pytest.mark.parametrize(("kv", "window", "parallel", "unified"), SETTINGS[1:6])
def test_models_with_layers_of_several_kinds(
    tmp_path: Path, make: Callable[[Path], Path], kv: str, window: int, parallel: int, *, unified: bool
) -> None:
    compare(make(tmp_path / "made.gguf"), kv, window, parallel, unified=unified)
