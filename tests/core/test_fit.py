from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from localctx.core.fit import (
    KV_TYPES,
    STEP,
    Layer,
    Memory,
    Shape,
    Weights,
    fit,
    kv_bytes,
    largest_window,
    per_token,
    state_bytes,
    takes,
)
from localctx.errors import ModelMissing

MIB = 2**20
GIB = 2**30


def metadata(architecture: str, **given: object) -> dict[str, object]:
    """Metadata of an architecture; `__` in a name stands for a dot."""
    usual = {
        "block_count": 4,
        "context_length": 8192,
        "embedding_length": 1024,
        "attention__head_count": 8,
        "attention__head_count_kv": 2,
    }
    values = {name: value for name, value in (usual | given).items() if value is not None}
    return {"general.architecture": architecture} | {
        f"{architecture}.{name.replace('__', '.')}": value for name, value in values.items()
    }


def shape(architecture: str, **given: object) -> Shape:
    return Shape.of(metadata(architecture, **given))


SMOL = shape("llama", block_count=30, embedding_length=576, attention__head_count=9, attention__head_count_kv=3)
"""SmolLM2-135M: no key_length, so a head is 576 / 9."""

GEMMA = shape(
    "gemma3",
    block_count=18,
    context_length=32768,
    embedding_length=640,
    attention__head_count=4,
    attention__head_count_kv=1,
    attention__key_length=256,
    attention__value_length=256,
    attention__sliding_window=512,
)
"""Gemma 3 270M: which layers slide is not in the file."""


# --- the settings of the specification, and more that llama.cpp b11549 logged -----------------------------------------


@pytest.mark.parametrize(
    ("model", "window", "options", "mib"),
    [
        pytest.param(SMOL, 4096, {}, 90.0, id="-c 4096 -np 1"),
        pytest.param(SMOL, 2048, {"parallel": 2}, 90.0, id="-c 4096 -np 2"),
        pytest.param(SMOL, 4096, {"parallel": 2, "unified": True}, 90.0, id="-c 4096 -np 2 --kv-unified"),
        pytest.param(SMOL, 1024, {"parallel": 4}, 90.0, id="-c 4096 -np 4 --no-kv-unified"),
        pytest.param(SMOL, 8192, {"parallel": 4, "unified": True}, 180.0, id="nothing"),
        pytest.param(SMOL, 16384, {}, 360.0, id="-c 16384: capped, but allocated"),
        pytest.param(SMOL, 100, {}, 5.625, id="-c 100"),
        pytest.param(SMOL, 4096, {"kv": "q8_0"}, 47.8125, id="-ctk q8_0 -ctv q8_0"),
        pytest.param(SMOL, 4096, {"kv": "q5_1"}, 33.75, id="-ctk q5_1 -ctv q5_1"),
        pytest.param(SMOL, 4096, {"kv": "q4_0"}, 25.3125, id="-ctk q4_0 -ctv q4_0"),
        pytest.param(GEMMA, 4096, {}, 27.0, id="sliding, -c 4096"),
        pytest.param(GEMMA, 32768, {}, 111.0, id="sliding, -c 32768"),
        pytest.param(GEMMA, 4096, {"ubatch": 4096}, 72.0, id="sliding, --swa-full or -ub 4096"),
        pytest.param(GEMMA, 2048, {"parallel": 2}, 42.0, id="sliding, -np 2"),
        pytest.param(GEMMA, 4096, {"parallel": 2, "unified": True, "kv": "q8_0"}, 18.328125, id="sliding, unified"),
    ],
)
def test_the_cache_has_the_bytes_that_llama_cpp_logs(
    model: Shape, window: int, options: dict[str, Any], mib: float
) -> None:
    assert kv_bytes(model, window, **options) / MIB == mib


@pytest.mark.parametrize(
    ("model", "each"),
    [
        (SMOL, {"f16": 23_040, "q8_0": 12_240, "q5_1": 8_640, "q4_0": 6_480}),
        (GEMMA, {"f16": 3_072, "q8_0": 1_632, "q5_1": 1_152, "q4_0": 864}),
    ],
)
def test_what_a_token_costs(model: Shape, each: dict[str, int]) -> None:
    assert {kv: per_token(model, kv) for kv in KV_TYPES} == each
    assert model.doubts == ()


# --- architectures ----------------------------------------------------------------------------------------------------


def sliding(made: Shape) -> str:
    return "".join("s" if layer.sliding else "." for layer in made.layers)


@pytest.mark.parametrize(
    ("architecture", "given", "window", "pattern"),
    [
        ("gemma2", {}, 4096, "s.s.s.s."),
        ("gemma3", {"attention__sliding_window": 512}, 512, "sssss.ss"),
        ("gemma3", {}, 0, "........"),
        ("gemma3", {"attention__sliding_window": 512, "attention__sliding_window_pattern": 2}, 512, "s.s.s.s."),
        ("gpt-oss", {"attention__sliding_window": 128}, 128, "s.s.s.s."),
        ("cohere2", {"attention__sliding_window": 4096}, 4096, "sss.sss."),
        ("cohere2moe", {"attention__sliding_window": 4096}, 4096, ".sss.sss"),
        ("smallthinker", {"attention__sliding_window": 1}, 4096, ".sss.sss"),
        ("llama4", {}, 8192, "sss.sss."),
        ("llama4", {"attention__sliding_window": 0}, 0, "........"),
        ("exaone4", {"attention__sliding_window": 4096}, 0, "........"),
        ("phi3", {"attention__sliding_window": 2047}, 0, "........"),
        ("qwen2", {"attention__sliding_window": 32768}, 0, "........"),
        (
            "gemma4",
            {"attention__sliding_window": 512, "attention__sliding_window_pattern": (True, True, False, True)},
            512,
            "ss.s....",
        ),
        ("gemma4", {"attention__sliding_window": 512, "attention__sliding_window_pattern": (False,)}, 512, "........"),
    ],
)
def test_which_layers_slide(architecture: str, given: dict[str, Any], window: int, pattern: str) -> None:
    made = shape(architecture, block_count=8, **given)
    assert (made.sliding_window if "s" in pattern else window, sliding(made)) == (window, pattern)
    assert made.doubts == ()


def test_the_one_exaone_that_slides() -> None:
    assert sliding(shape("exaone4", block_count=64)) == "sss." * 16


def test_sliding_layers_may_have_heads_of_their_own() -> None:
    made = shape(
        "gemma4",
        block_count=3,
        attention__key_length=512,
        attention__value_length=512,
        attention__key_length_swa=256,
        attention__value_length_swa=256,
        attention__head_count_kv=(8, 8, 1),
        attention__sliding_window=512,
        attention__sliding_window_pattern=(True, True, False),
        attention__shared_kv_layers=0,
    )
    assert made.layers == (Layer(2048, 2048, sliding=True), Layer(2048, 2048, sliding=True), Layer(512, 512))
    assert made.head_lengths == {256, 512}


@pytest.mark.parametrize(
    ("architecture", "given", "own"),
    [("gemma3n", {"attention__sliding_window": 512}, 20), ("gemma4", {"attention__shared_kv_layers": 18}, 12)],
)
def test_layers_that_use_another_s_cache_keep_none(architecture: str, given: dict[str, Any], own: int) -> None:
    made = shape(architecture, block_count=30, attention__sliding_window_pattern=(True, False) * 15, **given)
    assert [layer.key > 0 for layer in made.layers] == [True] * own + [False] * (30 - own)


def test_layers_without_attention_keep_nothing() -> None:
    made = shape("deci", attention__head_count_kv=(8, 0, 4, 0))
    assert [layer.key for layer in made.layers] == [1024, 0, 512, 0]
    assert state_bytes(made) == 0


def test_layers_that_draft_keep_nothing() -> None:
    assert len(shape("glm4moe", nextn_predict_layers=1).layers) == 3


def test_latent_attention_keeps_no_values() -> None:
    made = shape(
        "deepseek2",
        attention__head_count_kv=1,
        attention__key_length=576,
        attention__value_length=512,
        attention__key_length_mla=192,
        attention__value_length_mla=128,
    )
    assert made.layers == (Layer(576, 0),) * 4


MAMBA = {"ssm__conv_kernel": 4, "ssm__inner_size": 3072, "ssm__state_size": 128, "ssm__group_count": 1}


@pytest.mark.parametrize(
    ("architecture", "given", "attending", "state"),
    [
        pytest.param("granitehybrid", MAMBA | {"attention__head_count_kv": (0, 2, 0, 0)}, ".a..", 1612800, id="zeros"),
        pytest.param("qwen3next", MAMBA, "...a", 1612800, id="one in four"),
        pytest.param("qwen35", MAMBA | {"full_attention_interval": 2}, ".a.a", 1612800, id="one in two"),
        pytest.param(
            "qwen35", MAMBA | {"attention__recurrent_layers": (True, False, False)}, ".aaa", 1612800, id="listed"
        ),
        pytest.param("mamba", MAMBA | {"attention__head_count_kv": None}, "....", 1612800, id="all"),
        pytest.param("lfm2", {"shortconv__l_cache": 3, "attention__head_count_kv": (0, 2, 0, 2)}, ".a.a", 8192),
        pytest.param("rwkv7", {"wkv__head_size": 64}, "....", 1024 * 66 * 4),
        pytest.param(
            "kimi-linear",
            {"kda__head_dim": 128, "ssm__conv_kernel": 4, "attention__head_count_kv": (0, 0, 0, 1)},
            "...a",
            (3 * 3 * 8 * 128 + 128 * 128 * 8) * 4,
        ),
        pytest.param("minimax-01", {"full_attention_interval": 4}, "...a", 128 * 128 * 8 * 4),
        pytest.param(
            "nemotron_h",
            MAMBA | {"attention__head_count_kv": (0, 0, 2, 0), "feed_forward_length": (0, 4096, 0, 0)},
            ".-a.",
            1612800,
        ),
    ],
)
def test_recurrent_layers_keep_a_state_instead(
    architecture: str, given: dict[str, Any], attending: str, state: int
) -> None:
    made = shape(architecture, **given)
    assert "".join("a" if layer.key else "." if layer.state else "-" for layer in made.layers) == attending
    assert {layer.state for layer in made.layers} - {0} == {state}
    assert state_bytes(made, 3) == 3 * state * attending.count(".")
    assert made.doubts == ()


def test_a_layer_may_keep_both() -> None:
    made = shape("falcon-h1", **MAMBA)
    assert all(layer.key and layer.state for layer in made.layers)


def test_what_is_not_known_is_said_and_bounded_from_above() -> None:
    made = shape(
        "newcomer",
        attention__sliding_window=512,
        attention__sliding_window_pattern=2,
        attention__indexer__key_length=128,
        **MAMBA,
    )
    assert "'newcomer'" in made.doubts[0]
    assert "upper bounds" in made.doubts[0]
    assert not any(layer.sliding for layer in made.layers)
    assert all(layer.key == 256 + 128 and layer.state for layer in made.layers)
    (doubt,) = shape("gemma4", attention__sliding_window=512).doubts
    assert "does not say which layers slide" in doubt
    (doubt,) = shape("nemotron_h", nextn_predict_layers=1, **MAMBA).doubts
    assert "draft" in doubt


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"block_count": None}, "lacks llama.block_count"),
        ({"context_length": None}, "lacks llama.context_length"),
        ({"embedding_length": None}, "lacks llama.embedding_length"),
        ({"block_count": 513}, "513 layers"),
        ({"block_count": -1}, "block_count = -1"),
        ({"block_count": 2**31}, "nonsense"),
        ({"attention__head_count_kv": "many"}, "nonsense"),
        ({"attention__head_count_kv": (2, -2)}, "nonsense"),
        ({"context_length": 8192.0}, "nonsense"),
    ],
)
def test_nonsense_is_refused(given: dict[str, Any], said: str) -> None:
    with pytest.raises(ModelMissing, match=said):
        shape("llama", **given)


def test_a_file_without_an_architecture_is_refused() -> None:
    with pytest.raises(ModelMissing, match="does not name its architecture"):
        Shape.of({})


def test_heads_that_blocks_do_not_divide_cannot_be_quantized() -> None:
    odd = shape("llama", attention__key_length=80, attention__value_length=64)
    assert [kv for kv in KV_TYPES if takes(odd, kv)] == ["f16"]
    assert all(takes(SMOL, kv) for kv in KV_TYPES)


# --- what fits --------------------------------------------------------------------------------------------------------

layers = st.builds(
    Layer,
    key=st.integers(0, 64).map(lambda blocks: blocks * 32),
    value=st.integers(0, 64).map(lambda blocks: blocks * 32),
    sliding=st.booleans(),
    state=st.integers(0, 2**20),
)
shapes = st.builds(
    Shape,
    architecture=st.just("any"),
    trained=st.integers(1, 2**20),
    layers=st.lists(layers, min_size=1, max_size=6).map(tuple),
    sliding_window=st.integers(0, 8192),
)
options = st.fixed_dictionaries(
    {"parallel": st.integers(1, 8), "unified": st.booleans(), "kv": st.sampled_from(list(KV_TYPES))}
)


@given(shapes, st.integers(1, 2**20), st.integers(1, 2**18), options)
def test_a_larger_window_never_costs_less(made: Shape, window: int, more: int, given_options: dict[str, Any]) -> None:
    assert kv_bytes(made, window, **given_options) <= kv_bytes(made, window + more, **given_options)


@given(shapes, st.integers(0, 2**34), options)
def test_the_largest_window_fits_and_the_next_one_does_not(
    made: Shape, room: int, given_options: dict[str, Any]
) -> None:
    window = largest_window(made, room, **given_options)
    states = state_bytes(made, given_options["parallel"])
    assert window % STEP == 0
    assert 0 <= window <= made.trained
    if window:
        assert kv_bytes(made, window, **given_options) + states <= room
    if window + STEP <= made.trained:
        assert kv_bytes(made, window + STEP, **given_options) + states > room


@given(shapes, st.integers(1, 2**18), st.integers(1, 8), st.sampled_from(list(KV_TYPES)))
def test_split_slots_cost_each_what_one_costs(made: Shape, window: int, parallel: int, kv: str) -> None:
    assert kv_bytes(made, window, parallel=parallel, kv=kv) == parallel * kv_bytes(made, window, kv=kv)


WEIGHTS = Weights((100 * MIB,) * 30, 200 * MIB)


def test_a_margin_is_left_on_each_device() -> None:
    assert Memory((4 * GIB,), "").margin == GIB // 2
    assert Memory((24 * GIB, 80 * GIB), "").margin == 2 * GIB
    assert Memory((24 * GIB, 80 * GIB), "").room == 102 * GIB


def test_what_fits_is_counted_whole() -> None:
    found = fit(SMOL, WEIGHTS, Memory((4 * GIB,), "RAM"), kv="q8_0", parallel=2)
    assert WEIGHTS.total == 3200 * MIB
    assert (found.window, found.kv_bytes) == (8192, 2 * 8192 * 12_240)
    assert found.total == WEIGHTS.total + found.kv_bytes
    assert found.spill is None


def test_what_does_not_fit_has_no_window() -> None:
    found = fit(SMOL, WEIGHTS, Memory((3 * GIB,), "RAM"))
    assert (found.window, found.kv_bytes, found.spill) == (0, 0, None)


def test_weights_that_exceed_the_gpu_spill_into_ram() -> None:
    memory = Memory((2 * GIB,), "GPU", spare=16 * GIB)
    found = fit(SMOL, WEIGHTS, memory)
    assert found.window == 8192
    assert found.spill is not None
    each = 106 * MIB  # of a layer: 100 of weights, 6 of cache
    assert (found.spill.layers, found.spill.of) == (1 + (memory.room - WEIGHTS.rest) // each, 31)
    assert found.spill.cpu_bytes == found.total - WEIGHTS.rest - (found.spill.layers - 1) * each
    assert found.spill.cpu_bytes >= found.total - memory.room


def test_a_full_gpu_keeps_no_layer() -> None:
    found = fit(SMOL, WEIGHTS, Memory((0,), "GPU", spare=16 * GIB))
    assert found.spill is not None
    assert (found.spill.layers, found.spill.cpu_bytes) == (0, found.total)


def test_a_model_that_exceeds_gpu_and_ram_does_not_fit() -> None:
    found = fit(SMOL, WEIGHTS, Memory((2 * GIB,), "GPU", spare=GIB))
    assert (found.window, found.spill) == (0, None)


@given(shapes, st.integers(0, 2**32), st.integers(1, 4))
def test_more_memory_never_makes_the_window_smaller(made: Shape, free: int, parallel: int) -> None:
    weights = Weights((2**20,) * len(made.layers), 2**21)
    less, more = (fit(made, weights, Memory((size,), ""), parallel=parallel).window for size in (free, free + 2**24))
    assert less <= more


def test_a_shape_without_layers_that_attend_is_limited_by_its_training_only() -> None:
    made = replace(SMOL, layers=(Layer(state=100),))
    assert largest_window(made, 100) == 8192
    assert largest_window(made, 99) == 0
