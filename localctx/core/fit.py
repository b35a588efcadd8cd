"""How large a window fits into memory: the arithmetic of llama.cpp's caches, checked against what it logs.

A `Shape` says what each layer keeps. Where an architecture's cache is not known here, the shape is an upper bound and
says so in `doubts`; nothing is guessed in silence. What llama.cpp decides by architecture rather than by a file's
metadata stands in tables here, as read in its release b11549 (src/llama-model.cpp and src/models/*.cpp).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from localctx.errors import ModelMissing

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

__all__ = [
    "KV_TYPES",
    "STEP",
    "Fit",
    "Layer",
    "Memory",
    "Shape",
    "Spill",
    "Weights",
    "fit",
    "kv_bytes",
    "largest_window",
    "per_token",
    "state_bytes",
    "takes",
]

STEP = 256
"""llama.cpp rounds a window, and a sliding layer's cache, up to a multiple of this."""

KV_TYPES = {"f16": (1, 2), "q8_0": (32, 34), "q5_1": (32, 24), "q4_0": (32, 18)}
"""Elements and bytes of a block of each type that a cache can be kept in."""

_UBATCH = 512
"""Tokens that llama-server evaluates at once unless `-ub` says otherwise; a sliding layer keeps room for them."""

_STATE_ELEMENT_BYTES = 4
_MOST_LAYERS = 512
_MOST = 2**31


@dataclass(frozen=True, slots=True)
class Layer:
    """What one layer keeps: `key` and `value` elements for each token, and `state` bytes for each slot.

    A sliding layer keeps the last tokens only. A recurrent layer keeps a state and no tokens; some keep both.
    """

    key: int = 0
    value: int = 0
    sliding: bool = False
    state: int = 0


@dataclass(frozen=True, slots=True)
class Shape:
    """What a model's caches depend on. `head_lengths` are the keys' and values' of one head, for block sizes.

    `doubts` says, in sentences, what is not known; the layers are then an upper bound.
    """

    architecture: str
    trained: int
    layers: tuple[Layer, ...]
    sliding_window: int = 0
    head_lengths: frozenset[int] = frozenset()
    doubts: tuple[str, ...] = ()

    @classmethod
    def of(cls, metadata: Mapping[str, object]) -> Shape:
        """The shape that a GGUF's metadata describes.

        Raises:
            ModelMissing: the metadata lacks what llama.cpp needs as well, or is nonsense.
        """
        return _shape(_Facts(metadata))


@dataclass(frozen=True, slots=True)
class Weights:
    """Bytes of a model's weights: by layer, and the rest (embeddings, output)."""

    layers: tuple[int, ...]
    rest: int

    @property
    def total(self) -> int:
        """All of them."""
        return sum(self.layers) + self.rest


def takes(shape: Shape, kv: str) -> bool:
    """Whether llama.cpp can keep this model's cache in a type: its blocks must divide each head."""
    return all(length % KV_TYPES[kv][0] == 0 for length in shape.head_lengths)


def kv_bytes(
    shape: Shape, window: int, *, parallel: int = 1, unified: bool = False, kv: str = "f16", ubatch: int = _UBATCH
) -> int:
    """The bytes of the KV cache that llama.cpp allocates, as it logs them ("KV buffer size").

    `window` is what one of the `parallel` slots gets, or, `unified`, the pool that all of them share.
    """
    cells = _padded(window)
    streams, sharing = (1, parallel) if unified else (parallel, 1)
    sliding = _padded(min(cells, shape.sliding_window * sharing + ubatch))
    rows = _rows(shape, kv, sliding=False) * cells + _rows(shape, kv, sliding=True) * sliding
    return rows * streams


def per_token(shape: Shape, kv: str) -> int:
    """The bytes that one more token of one slot's window costs, once the sliding layers are full."""
    return _rows(shape, kv, sliding=False)


def state_bytes(shape: Shape, parallel: int = 1) -> int:
    """The bytes of the recurrent layers' states, whatever the window is ("RS buffer size")."""
    return sum(layer.state for layer in shape.layers) * parallel


def largest_window(shape: Shape, room: int, *, parallel: int = 1, unified: bool = False, kv: str = "f16") -> int:
    """The largest window whose caches fit into `room` bytes; 0 where none does.

    A multiple of 256, and never above the trained window: what lies above would be allocated, but not served.
    """
    room -= state_bytes(shape, parallel)
    low, high = 0, shape.trained // STEP
    while low < high:
        middle = (low + high + 1) // 2
        if kv_bytes(shape, middle * STEP, parallel=parallel, unified=unified, kv=kv) <= room:
            low = middle
        else:
            high = middle - 1
    return low * STEP


def _padded(cells: int) -> int:
    return -(-cells // STEP) * STEP


def _rows(shape: Shape, kv: str, *, sliding: bool) -> int:
    return sum(_row(layer, kv) for layer in shape.layers if layer.sliding is sliding)


def _row(layer: Layer, kv: str) -> int:
    block, size = KV_TYPES[kv]
    return (layer.key + layer.value) * size // block


# --- what fits ----------------------------------------------------------------------------------------------------

_DEVICE_MARGIN = 2**30
_MARGIN_SHARE = 8


@dataclass(frozen=True, slots=True)
class Memory:
    """What may be used: the free bytes of each device, what they are, and the RAM behind them that may be spilled to."""

    devices: tuple[int, ...]
    what: str
    spare: int = 0

    @property
    def total(self) -> int:
        """The bytes of all devices."""
        return sum(self.devices)

    @property
    def margin(self) -> int:
        """What is left free for compute buffers and others: on each device an eighth, at most 1 GiB.

        1 GiB a device is the margin that llama.cpp keeps when it fits a model itself (`--fit-target`).
        """
        return sum(map(_margin, self.devices))

    @property
    def room(self) -> int:
        """What weights and caches may take."""
        return self.total - self.margin


def _margin(free: int) -> int:
    return min(_DEVICE_MARGIN, free // _MARGIN_SHARE)


@dataclass(frozen=True, slots=True)
class Spill:
    """What does not fit on the devices: `layers` of `of` stay there, `cpu_bytes` of weights and caches go to the CPU."""

    layers: int
    of: int
    cpu_bytes: int


@dataclass(frozen=True, slots=True)
class Fit:
    """What fits with one type of cache: the largest window of a slot (0: none), and the bytes that it costs."""

    kv: str
    parallel: int
    window: int
    per_token: int
    weights: int
    kv_bytes: int
    state_bytes: int
    spill: Spill | None = None

    @property
    def total(self) -> int:
        """Weights and caches together."""
        return self.weights + self.kv_bytes + self.state_bytes


def fit(shape: Shape, weights: Weights, memory: Memory, *, kv: str = "f16", parallel: int = 1) -> Fit:
    """The largest window for each of `parallel` slots, which split the cache between them.

    Only where not even the smallest window fits on the devices, the RAM behind them is used as well.
    """
    window = largest_window(shape, memory.room - weights.total, parallel=parallel, kv=kv)
    spilled = window == 0 and memory.spare > 0
    if spilled:
        room = memory.room + memory.spare - _margin(memory.spare)
        window = largest_window(shape, room - weights.total, parallel=parallel, kv=kv)
    found = Fit(
        kv,
        parallel,
        window,
        per_token(shape, kv),
        weights.total,
        kv_bytes(shape, window, parallel=parallel, kv=kv),
        state_bytes(shape, parallel),
    )
    return replace(found, spill=_spill(shape, weights, memory, found)) if spilled and window else found


def _spill(shape: Shape, weights: Weights, memory: Memory, found: Fit) -> Spill:
    """How many of the last layers stay on the devices, as `-ngl` counts them: the output first, then from the back."""
    caches = [
        kv_bytes(_alone(shape, layer), found.window, parallel=found.parallel, kv=found.kv)
        + layer.state * found.parallel
        for layer in shape.layers
    ]
    count = max(len(weights.layers), len(caches))
    sizes = [_at(weights.layers, index) + _at(caches, index) for index in range(count)]
    used, kept = 0, 0
    for size in (weights.rest, *reversed(sizes)):
        if used + size > memory.room:
            break
        used, kept = used + size, kept + 1
    return Spill(kept, count + 1, found.total - used)


def _alone(shape: Shape, layer: Layer) -> Shape:
    return Shape(shape.architecture, shape.trained, (layer,), shape.sliding_window)


def _at(sizes: Sequence[int], index: int) -> int:
    return sizes[index] if index < len(sizes) else 0


# --- what an architecture's layers keep ---------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Sliding:
    """Which layers slide, where the file does not list them: all but one in `period`, the first or the last of each.

    A `period` of 0 means that the file must list them. `window` is taken where the file names none; with `forced`,
    always. `only` names the one number of layers for which it holds.
    """

    period: int
    dense_first: bool = False
    window: int = 0
    forced: bool = False
    only: int = 0


_SLIDING = {
    "afmoe": _Sliding(4),
    "cohere2": _Sliding(4),
    "cohere2moe": _Sliding(4, dense_first=True),
    "exaone-moe": _Sliding(4),
    "exaone4": _Sliding(4, window=4096, only=64),
    "gemma2": _Sliding(2, window=4096),
    "gemma3": _Sliding(6),
    "gemma3n": _Sliding(5),
    "gemma4": _Sliding(0),
    "gpt-oss": _Sliding(2),
    "granite_swa": _Sliding(0),
    "laguna": _Sliding(4, dense_first=True),
    "llama4": _Sliding(4, window=8192, forced=True),
    "maple": _Sliding(0),
    "mellum": _Sliding(4),
    "mimo2": _Sliding(0),
    "muse-glimmer": _Sliding(4),
    "olmo2": _Sliding(4),
    "plamo3": _Sliding(8),
    "smallthinker": _Sliding(4, dense_first=True, window=4096, forced=True),
    "spark2_5": _Sliding(0),
    "step35": _Sliding(0),
}
"""`load_swa_pattern` and its like in src/models/*.cpp."""

_PLAIN_NAMES = """
apertus arcee arctic baichuan bailingmoe bailingmoe2 bitnet bloom chameleon chatglm codeshell cogvlm command-r dbrx
deci deepseek deepseek2 deepseek2-ocr dots1 ernie4_5 ernie4_5-moe exaone falcon gemma glm4 glm4moe gpt2 gptj gptneox
granite granitemoe grok grovemoe hunyuan-dense hunyuan-moe hunyuan_vl hy_v3 internlm2 jais jais2 llama maincoder
minicpm minicpm3 minimax-m2 mistral3 mistral4 mpt nanbeige nemotron olmo olmoe openelm orion paddleocr
pangu-embedded phi2 phi3 phimoe plamo plm qwen qwen2 qwen2moe qwen2vl qwen3 qwen3moe qwen3vl qwen3vlmoe refact
seed_oss smollm3 stablelm starcoder starcoder2 xverse
"""
_PLAIN = frozenset(_PLAIN_NAMES.split())
"""Every layer attends to the whole window, whatever the file says of a sliding one."""

_RECURRENT = frozenset({"arwkv7", "mamba", "mamba2", "rwkv6", "rwkv6qwen2", "rwkv7"})
_RECURRENT_WITHOUT_HEADS = frozenset(
    {"bailingmoe3", "granitehybrid", "jamba", "kimi-k3", "kimi-linear", "lfm2", "lfm2moe", "plamo2"}
)
_NEMOTRON = frozenset({"nemotron_h", "nemotron_h_moe"})
_INTERVAL = {"minimax-01": 8, "qwen35": 4, "qwen35moe": 4, "qwen3next": 4}
"""One layer in so many attends, unless the file says otherwise."""
_BOTH = frozenset({"falcon-h1"})

_KNOWN = {*_PLAIN, *_SLIDING, *_RECURRENT, *_RECURRENT_WITHOUT_HEADS, *_NEMOTRON, *_INTERVAL, *_BOTH}


class _Facts:
    """Metadata, read with suspicion."""

    def __init__(self, metadata: Mapping[str, object]) -> None:
        self._metadata = metadata
        named = metadata.get("general.architecture")
        if not isinstance(named, str):
            raise ModelMissing("the file does not name its architecture; it holds no model that llama.cpp would load")
        self.architecture = named

    def number(self, key: str, default: int = 0) -> int:
        """A number, or the default; of an array the first."""
        match self._metadata.get(f"{self.architecture}.{key}"):
            case None | []:
                return default
            case [first, *_]:
                return self._checked(key, first)
            case number:
                return self._checked(key, number)

    def required(self, key: str) -> int:
        found = self.number(key)
        if not found:
            raise ModelMissing(f"the file lacks {self.architecture}.{key}; llama.cpp would not load it either")
        return found

    def listed(self, key: str) -> tuple[int, ...] | None:
        """An array, if it is there as one."""
        match self._metadata.get(f"{self.architecture}.{key}"):
            case [*numbers]:
                return tuple(self._checked(key, number) for number in numbers)
        return None

    def by_layer(self, key: str, count: int, default: int = 0) -> list[int]:
        """A number for each layer; a single one stands for all, and what an array lacks is 0."""
        given = self.listed(key)
        if given is None:
            return [self.number(key, default)] * count
        return [given[index] if index < len(given) else 0 for index in range(count)]

    def has(self, key: str) -> bool:
        return f"{self.architecture}.{key}" in self._metadata

    def _checked(self, key: str, value: object) -> int:
        if isinstance(value, int) and 0 <= value < _MOST:
            return int(value)
        raise ModelMissing(
            f"the file says {self.architecture}.{key} = {value!s:.40}, which is nonsense; fetch it again"
        )


def _shape(facts: _Facts) -> Shape:
    count = _layer_count(facts)
    window, sliding = _sliding_layers(facts, count)
    doubts = _doubts(facts)
    recurrent = _recurrent_layers(facts, count)
    attending = _attending_layers(facts, count, recurrent)
    keys, values = _heads(facts, ""), _heads(facts, "_swa")
    heads = facts.by_layer("attention.head_count_kv", count, facts.number("attention.head_count"))
    indexer = facts.number("attention.indexer.key_length")
    state = _state(facts)
    layers = []
    for index in range(count):
        slides = sliding[index] and window > 0
        key, value = values if slides else keys
        held = heads[index] if attending[index] else 0
        layers.append(
            Layer(
                key=key * held + (indexer if attending[index] else 0),
                value=value * held,
                sliding=slides,
                state=state if recurrent[index] or facts.architecture not in _KNOWN else 0,
            )
        )
    lengths = {length for layer in layers for length in (values if layer.sliding else keys)}
    return Shape(
        architecture=facts.architecture,
        trained=facts.required("context_length"),
        layers=tuple(layers),
        sliding_window=window,
        head_lengths=frozenset(lengths - {0}),
        doubts=doubts,
    )


def _layer_count(facts: _Facts) -> int:
    """The layers of the model proper: those that draft further tokens keep nothing unless they are used."""
    count = facts.required("block_count")
    loops = facts.number("num_loops", 1) if facts.architecture == "nanbeige" else 1
    drafting = facts.number("nextn_predict_layers")
    count = (count - drafting if drafting < count else count) * max(loops, 1)
    if count > _MOST_LAYERS:
        raise ModelMissing(f"the file says that the model has {count:,} layers; llama.cpp loads {_MOST_LAYERS} at most")
    return count


def _heads(facts: _Facts, ending: str) -> tuple[int, int]:
    """Elements of a head's key and value; with multi-head latent attention the value is a part of the key."""
    heads = facts.number("attention.head_count")
    usual = facts.required("embedding_length") // heads if heads else 0
    key = facts.number("attention.key_length", usual)
    value = facts.number("attention.value_length", usual)
    if ending:
        key = facts.number(f"attention.key_length{ending}", key)
        value = facts.number(f"attention.value_length{ending}", value)
    latent = facts.number("attention.key_length_mla") and facts.number("attention.value_length_mla")
    return key, 0 if latent else value


def _sliding_layers(facts: _Facts, count: int) -> tuple[int, list[bool]]:
    """How far back sliding layers look, and which they are."""
    rule = _SLIDING.get(facts.architecture)
    window = facts.number("attention.sliding_window", rule.window if rule else 0)
    if facts.architecture in {"lfm2", "lfm2moe"}:
        return (window, [True] * count) if facts.architecture == "lfm2" else (0, [False] * count)
    if rule is None or not window or rule.only not in {0, count}:
        return 0, [False] * count
    if rule.forced:
        window = rule.window
    key = "attention.sliding_window_pattern"
    if facts.listed(key) is not None or not rule.period:
        return window, [bool(slides) for slides in facts.by_layer(key, count)]
    period = facts.number(key, rule.period)
    whole = 0 if rule.dense_first else period - 1
    return window, [not period or index % period != whole for index in range(count)]


def _recurrent_layers(facts: _Facts, count: int) -> list[bool]:
    name = facts.architecture
    if name in _RECURRENT or name in _BOTH:
        return [True] * count
    heads = facts.by_layer("attention.head_count_kv", count, facts.number("attention.head_count"))
    if name in _NEMOTRON:
        wide = facts.by_layer("feed_forward_length", count)
        return [not held and not width for held, width in zip(heads, wide, strict=True)]
    if name in _INTERVAL:
        if facts.has("attention.recurrent_layers"):
            return [bool(each) for each in facts.by_layer("attention.recurrent_layers", count)]
        interval = max(facts.number("full_attention_interval", _INTERVAL[name]), 1)
        return [(index + 1) % interval != 0 for index in range(count)]
    return [name in _RECURRENT_WITHOUT_HEADS and not held for held in heads]


def _attending_layers(facts: _Facts, count: int, recurrent: list[bool]) -> list[bool]:
    """Which layers keep tokens of their own: not the recurrent ones, nor those that use an earlier layer's."""
    name = facts.architecture
    if name in _BOTH:
        return [True] * count
    attending = [not each for each in recurrent]
    if name in _NEMOTRON:
        wide = facts.by_layer("feed_forward_length", count)
        return [each and not width for each, width in zip(attending, wide, strict=True)]
    own = {"gemma3n": 20, "gemma4": count - facts.number("attention.shared_kv_layers")}.get(name, count)
    return [each and index < own for index, each in enumerate(attending)]


def _state(facts: _Facts) -> int:
    """The bytes of a recurrent layer's state for one slot (`n_embd_r` and `n_embd_s` in src/llama-hparams.cpp)."""
    embedding, heads = facts.number("embedding_length"), facts.number("attention.head_count")
    inner, size = facts.number("ssm.inner_size"), facts.number("ssm.state_size")
    convolved = max(facts.number("ssm.conv_kernel") - 1, 0)
    if wkv := facts.number("wkv.head_size"):
        elements = embedding * (facts.number("token_shift_count", 2) + wkv)
    elif short := facts.number("shortconv.l_cache"):
        elements = embedding * (short - 1) + size * inner
    elif delta := facts.number("kda.head_dim"):
        elements = 3 * (convolved or 3) * heads * delta + delta * delta * heads
    else:
        linear = facts.number("attention.key_length", embedding // heads if heads else 0)
        kept = linear * linear * heads if facts.architecture == "minimax-01" else size * inner
        elements = convolved * (inner + 2 * facts.number("ssm.group_count") * size) + kept
    return elements * _STATE_ELEMENT_BYTES


def _doubts(facts: _Facts) -> tuple[str, ...]:
    name, found = facts.architecture, []
    if name not in _KNOWN:
        found.append(
            f"how the architecture {name!r} keeps its context is not known here: the numbers are upper bounds, as if "
            "every layer kept the whole window"
        )
    rule = _SLIDING.get(name)
    if rule and not rule.period and facts.listed("attention.sliding_window_pattern") is None:
        found.append("the file does not say which layers slide: the numbers are upper bounds, as if none did")
    if name in _NEMOTRON | {"bailingmoe3"} and facts.number("nextn_predict_layers"):
        found.append("the cache of the layers that draft tokens is not counted")
    return tuple(found)
