from __future__ import annotations

import os
import struct
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from localctx.core.fit import Weights
from localctx.errors import ModelMissing
from localctx.hardware.gguf import read

U32, I32, F32, BOOL, STRING, ARRAY, U64 = 4, 5, 6, 7, 8, 9, 10
F16, Q4_0 = 1, 2
CODES = {U32: "I", I32: "i", F32: "f", BOOL: "?", U64: "Q"}


def text(value: str) -> bytes:
    return struct.pack("<Q", len(value.encode())) + value.encode()


def pair(key: str, kind: int, value: object) -> bytes:
    if kind == STRING:
        return text(key) + struct.pack("<I", kind) + text(str(value))
    return text(key) + struct.pack(f"<I{CODES[kind]}", kind, value)


def array(key: str, kind: int, values: list[Any]) -> bytes:
    body = b"".join(map(text, values)) if kind == STRING else struct.pack(f"<{len(values)}{CODES[kind]}", *values)
    return text(key) + struct.pack("<IIQ", ARRAY, kind, len(values)) + body


def tensor(name: str, sizes: tuple[int, ...], kind: int, offset: int) -> bytes:
    return text(name) + struct.pack(f"<I{len(sizes)}QIQ", len(sizes), *sizes, kind, offset)


def file(pairs: list[bytes], tensors: list[bytes] | None = None, data: int = 0, version: int = 3) -> bytes:
    tensors = tensors or []
    head = b"GGUF" + struct.pack("<IQQ", version, len(tensors), len(pairs)) + b"".join(pairs) + b"".join(tensors)
    return head + bytes(-len(head) % 32 + data)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "model.gguf"


@pytest.mark.parametrize("version", [2, 3])
def test_a_header_says_what_the_model_is_and_weighs(path: Path, version: int) -> None:
    pairs = [
        pair("general.architecture", STRING, "llama"),
        pair("llama.block_count", U32, 2),
        pair("llama.rope.freq_base", F32, 0.5),
        pair("llama.flag", BOOL, value=True),
        array("llama.attention.head_count_kv", I32, [4, 0]),
        array("llama.pattern", BOOL, [True, False]),
        pair("general.file_size", U64, 2**40),
    ]
    tensors = [
        tensor("token_embd.weight", (64, 10), F16, 0),
        tensor("blk.0.attn_q.weight", (64, 2), Q4_0, 1280),
        tensor("blk.1.attn_q.weight", (64, 2), Q4_0, 1376),
        tensor("blk.1.attn_norm.weight", (64,), 0, 1472),
        tensor("output_norm.weight", (), 0, 1728),
    ]
    path.write_bytes(file(pairs, tensors, 1732, version))
    header = read(path)
    assert header.path == path
    assert header.metadata == {
        "general.architecture": "llama",
        "llama.block_count": 2,
        "llama.rope.freq_base": 0.5,
        "llama.flag": True,
        "llama.attention.head_count_kv": (4, 0),
        "llama.pattern": (True, False),
        "general.file_size": 2**40,
    }
    assert header.weights == Weights((72, 72 + 256), 1280 + 4)


def test_long_texts_and_arrays_are_stepped_over(path: Path) -> None:
    pairs = [
        pair("tokenizer.chat_template", STRING, "x" * 5_000_000),
        array("tokenizer.ggml.tokens", STRING, ["token"] * 3000),
        array("tokenizer.ggml.scores", F32, [0.0] * 3000),
        pair("general.name", STRING, "after"),
    ]
    path.write_bytes(file(pairs))
    assert read(path).metadata == {"general.name": "after"}


def test_a_large_vocabulary_takes_well_under_a_second(path: Path) -> None:
    words = [f"word{number}" for number in range(262_144)]
    path.write_bytes(file([array("tokenizer.ggml.tokens", STRING, words), array("merges", STRING, words)]))
    started = time.process_time()
    assert read(path).metadata == {}
    assert time.process_time() - started < 0.8


# --- what is wrong ----------------------------------------------------------------------------------------------------


def head(tensors: int, pairs: int, rest: bytes = b"") -> bytes:
    return b"GGUF" + struct.pack("<IQQ", 3, tensors, pairs) + rest


KEY = text("k")


@pytest.mark.parametrize(
    ("content", "said"),
    [
        pytest.param(b"", "begins with nothing", id="empty"),
        pytest.param(b"GG", "no GGUF file", id="two bytes"),
        pytest.param(b"PK\3\4" + bytes(100), "begins with b'PK", id="a zip"),
        pytest.param(b"GGUF", "ends within its header", id="magic only"),
        pytest.param(b"GGUF" + struct.pack("<I", 1) + bytes(16), "version 1", id="version 1"),
        pytest.param(b"GGUF" + struct.pack(">I", 3) + bytes(16), "version 50331648", id="big-endian"),
        pytest.param(head(2**63, 0), "announces", id="too many tensors"),
        pytest.param(head(0, 2**63), "announces", id="too many values"),
        pytest.param(head(0, 1), "ends within its header", id="no value"),
        pytest.param(head(0, 1, struct.pack("<Q", 2**63)), "it ends within", id="endless key"),
        pytest.param(head(0, 1, KEY + struct.pack("<IQ", STRING, 2**62)), "it ends within", id="endless text"),
        pytest.param(head(0, 1, KEY + struct.pack("<I", 13) + bytes(99)), "unknown type 13", id="unknown type"),
        pytest.param(head(0, 1, KEY + struct.pack("<IIQ", ARRAY, ARRAY, 9)), "unknown type 9", id="nested arrays"),
        pytest.param(head(0, 1, KEY + struct.pack("<IIQ", ARRAY, U32, 2**62)), "it ends within", id="endless array"),
        pytest.param(head(0, 1, KEY + struct.pack("<IIQ", ARRAY, STRING, 2**62)), "more than", id="endless texts"),
        pytest.param(
            head(0, 1, KEY + struct.pack("<IIQQ", ARRAY, STRING, 9, 2**60)), "longer than the file", id="one of them"
        ),
        pytest.param(head(0, 1, KEY + struct.pack("<IIQ", ARRAY, STRING, 9)), "ends within", id="texts that end"),
        pytest.param(head(1, 0, KEY + struct.pack("<I", 5)), "5 dimensions", id="dimensions"),
        pytest.param(file([], [tensor("t", (32,), 99, 0)]), "number 99", id="unknown weights"),
        pytest.param(file([], [tensor("t", (32,), Q4_0, 0)], 17), "1 of its 82 bytes", id="cut short"),
        pytest.param(file([], [tensor("t", (2**62, 2**62), F16, 2**63)]), "are missing", id="endless weights"),
        pytest.param(
            file([pair("general.alignment", U32, 0)], [tensor("t", (32,), Q4_0, 2**40)]), "missing", id="alignment"
        ),
    ],
)
def test_a_hostile_or_torn_file_is_refused_at_once(path: Path, content: bytes, said: str) -> None:
    path.write_bytes(content)
    started = time.process_time()
    with pytest.raises(ModelMissing, match=said) as caught:
        read(path)
    assert str(path) in str(caught.value)
    assert time.process_time() - started < 1


def test_a_file_that_only_looks_large_is_refused_at_once(path: Path) -> None:
    """A sparse file of empty texts; each of them would be stepped over."""
    path.write_bytes(head(0, 1, KEY + struct.pack("<IIQ", ARRAY, STRING, 2**30)))
    os.truncate(path, 2**40)
    with pytest.raises(ModelMissing, match="more than"):
        read(path)


@given(st.data())
def test_whatever_a_file_holds_it_is_read_or_refused(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    whole = file(
        [pair("general.architecture", STRING, "llama"), array("a", STRING, ["b"] * 3), array("c", I32, [1, 2])],
        [tensor("blk.0.x", (64,), Q4_0, 0)],
        36,
    )
    torn = bytearray(whole[: data.draw(st.integers(0, len(whole)))])
    for _ in range(data.draw(st.integers(0, 4))):
        if torn:
            torn[data.draw(st.integers(0, len(torn) - 1))] = data.draw(st.integers(0, 255))
    path = tmp_path_factory.mktemp("fuzz") / "model.gguf"
    path.write_bytes(torn)
    try:
        read(path)
    except ModelMissing as error:
        assert str(path) in str(error)  # noqa: PT017  both ends are fine


def test_what_is_not_there_or_no_file_is_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.gguf")
    threads = threading.active_count()
    for name, said in (("none.gguf", "No such file"), (".", "is no file"), ("pipe.gguf", "is no file")):
        with pytest.raises(ModelMissing, match=said):
            read(tmp_path / name)
    assert threading.active_count() == threads


# --- parts ------------------------------------------------------------------------------------------------------------


def part(count: int, layer: int) -> bytes:
    pairs = [pair("split.count", U32, count), pair("general.architecture", STRING, "llama")]
    return file(pairs, [tensor(f"blk.{layer}.x", (32,), Q4_0, 0), tensor("rest", (32,), Q4_0, 32)], 50)


def test_all_parts_of_a_model_are_weighed(tmp_path: Path) -> None:
    for number in (1, 2, 3):
        (tmp_path / f"m-{number:05d}-of-00003.gguf").write_bytes(part(3, number // 2))
    assert read(tmp_path / "m-00001-of-00003.gguf").weights == Weights((18, 36), 54)


def test_a_part_that_is_missing_is_named(tmp_path: Path) -> None:
    first = tmp_path / "m-00001-of-00002.gguf"
    first.write_bytes(part(2, 0))
    with pytest.raises(ModelMissing, match=r"m-00002-of-00002\.gguf"):
        read(first)


@pytest.mark.parametrize("name", ["m.gguf", "m-00001-of-00007.gguf"])
def test_a_part_under_another_name_is_refused(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_bytes(part(2**31, 0))
    with pytest.raises(ModelMissing, match="one of 2147483648 parts"):
        read(tmp_path / name)


# --- Ollama -----------------------------------------------------------------------------------------------------------
