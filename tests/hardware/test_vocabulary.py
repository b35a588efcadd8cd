from __future__ import annotations

import struct
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from localctx.errors import ModelMissing
from localctx.hardware.gguf import read, vocabulary
from tests.hardware.test_gguf import ARRAY, BOOL, F32, I32, STRING, U32, array, file, head, pair, tensor, text

TOKENS = ["<s>", "</s>", "a", "ü", "日本"]
PAIRS = [
    pair("general.architecture", STRING, "llama"),
    pair("tokenizer.ggml.model", STRING, "llama"),
    array("tokenizer.ggml.tokens", STRING, TOKENS),
    array("tokenizer.ggml.scores", F32, [0.0, 0.0, -1.0, -2.5, -3.0]),
    array("tokenizer.ggml.token_type", I32, [3, 3, 1, 1, 1]),
    array("tokenizer.ggml.merges", STRING, ["a ü"]),
    pair("tokenizer.ggml.bos_token_id", U32, 0),
    pair("tokenizer.ggml.eos_token_id", U32, 1),
    pair("tokenizer.ggml.add_bos_token", BOOL, value=True),
    pair("tokenizer.chat_template", STRING, "{{ messages }}" + "x" * 50_000),
]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "model.gguf"


@pytest.mark.parametrize("version", [2, 3])
def test_a_file_says_what_its_tokens_are(path: Path, version: int) -> None:
    path.write_bytes(file(PAIRS, [tensor("blk.0.x", (32,), 0, 0)], 128, version))
    found = vocabulary(path)
    assert found is not None
    assert (found.model, found.tokens, found.types) == ("llama", tuple(TOKENS), (3, 3, 1, 1, 1))
    assert (found.scores, found.merges) == ((0.0, 0.0, -1.0, -2.5, -3.0), ("a ü",))
    assert (found.bos, found.eos, found.add_bos) == ("<s>", "</s>", True)
    assert found.template is not None
    assert len(found.template) == 50_014
    assert "tokenizer.chat_template" not in read(path).metadata, "the header alone is read without it"


def test_weights_that_are_cut_short_or_unknown_do_not_matter(path: Path) -> None:
    path.write_bytes(file(PAIRS, [tensor("blk.0.x", (32,), 99, 2**40)]))
    assert vocabulary(path) is not None


@pytest.mark.parametrize(
    "pairs",
    [
        pytest.param([], id="no vocabulary"),
        pytest.param(PAIRS[:2], id="no tokens"),
        pytest.param([*PAIRS[:3], array("tokenizer.ggml.token_type", I32, [1])], id="too few types"),
        pytest.param([*PAIRS[:3], pair("tokenizer.ggml.bos_token_id", U32, 5)], id="no such token"),
        pytest.param([*PAIRS[:2], array("tokenizer.ggml.tokens", I32, [1, 2])], id="tokens of numbers"),
        pytest.param([*PAIRS[:2], array("tokenizer.ggml.tokens", STRING, ["a"] * (2**20 + 1))], id="too many"),
        pytest.param([*PAIRS[:2], array("tokenizer.ggml.tokens", STRING, [""] * (2**21 + 1))], id="far too many"),
    ],
)
def test_a_file_without_tokens_that_can_be_true_has_no_vocabulary(path: Path, pairs: list[bytes]) -> None:
    path.write_bytes(file(pairs))
    assert vocabulary(path) is None


KEY = text("tokenizer.ggml.tokens")
LIST = struct.pack("<II", ARRAY, STRING)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        pytest.param(b"", "begins with nothing", id="empty"),
        pytest.param(head(0, 1, KEY + LIST + struct.pack("<Q", 9)), "ends within", id="cut short"),
        pytest.param(head(0, 1, KEY + LIST + struct.pack("<QQ", 9, 99)), "ends within", id="cut within a text"),
        pytest.param(head(0, 1, KEY + LIST + struct.pack("<QQ", 9, 2**62)), "longer than", id="an endless text"),
        pytest.param(head(0, 1, KEY + LIST + struct.pack("<Q", 2**62)), "more than", id="endless texts"),
        pytest.param(
            head(0, 1, KEY + LIST + struct.pack("<QQ", 2, 2**25) + bytes(2**25) + struct.pack("<Q", 2**26) + bytes(2**26)),
            "longer than 67,108,864 bytes",
            id="too much together",
        ),
        pytest.param(head(0, 1, text("tokenizer.x") + struct.pack("<IQ", STRING, 2**40)), "ends within", id="a template"),
    ],
)  # fmt: skip
def test_a_hostile_or_torn_file_is_refused_at_once(path: Path, content: bytes, said: str) -> None:
    path.write_bytes(content)
    started = time.process_time()
    with pytest.raises(ModelMissing, match=said):
        vocabulary(path)
    assert time.process_time() - started < 1


def test_what_is_not_there_or_no_file_is_refused(tmp_path: Path) -> None:
    for name, said in (("none.gguf", "No such file"), (".", "is no file")):
        with pytest.raises(ModelMissing, match=said):
            vocabulary(tmp_path / name)


@given(st.data())
def test_whatever_a_file_holds_it_is_read_or_refused(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    whole = file(PAIRS[:-1])
    torn = bytearray(whole[: data.draw(st.integers(0, len(whole)))])
    for _ in range(data.draw(st.integers(0, 4))):
        if torn:
            torn[data.draw(st.integers(0, len(torn) - 1))] = data.draw(st.integers(0, 255))
    path = tmp_path_factory.mktemp("fuzz") / "model.gguf"
    path.write_bytes(torn)
    try:
        vocabulary(path)
    except ModelMissing as error:
        assert str(path) in str(error)  # noqa: PT017  both ends are fine


def test_the_largest_vocabularies_take_about_a_second(path: Path) -> None:
    tokens = [f"word{number}" for number in range(262_144)]
    merges = [f"wo rd{number}" for number in range(514_906)]
    pairs = [array("tokenizer.ggml.tokens", STRING, tokens), array("tokenizer.ggml.merges", STRING, merges)]
    path.write_bytes(file([pair("tokenizer.ggml.model", STRING, "gpt2"), *pairs]))
    started = time.process_time()
    found = vocabulary(path)
    assert found is not None
    assert (len(found.tokens), len(found.merges)) == (262_144, 514_906)
    assert time.process_time() - started < 3
