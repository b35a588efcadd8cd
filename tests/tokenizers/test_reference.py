"""llama.cpp itself as the reference: its ids against ours, over vocabularies made here. It needs llama-cpp-python."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from localctx.core.vocabulary import Vocabulary
from localctx.errors import MissingExtra, ModelMissing
from localctx.hardware.gguf import vocabulary
from localctx.tokenizers.gguf import tokenizer
from localctx.tokenizers.reference import ReferenceTokenizer, reference
from tests.hardware.test_gguf import BOOL, F32, I32, STRING, U32, array, file, pair
from tests.tokenizers.test_gguf import BYTES, DIGESTS, ORDINARY, TEXTS, described, digest, pairs, pieces


def written(path: Path, metadata: dict[str, object]) -> Path:
    """The metadata as a file."""
    kinds = {str: STRING, bool: BOOL, int: U32}
    pairs = [pair("general.architecture", STRING, "llama")]
    for key, value in metadata.items():
        if isinstance(value, list):
            kind = STRING if not value or isinstance(value[0], str) else F32 if isinstance(value[0], float) else I32
            pairs.append(array(key, kind, value))
        else:
            pairs.append(pair(key, kinds[type(value)], value))
    path.write_bytes(file(pairs))
    return path


def both(path: Path) -> tuple[ReferenceTokenizer, Any]:
    read, theirs = vocabulary(path), reference(path)
    assert read is not None
    assert theirs is not None
    return theirs, tokenizer(read)


SPECIAL = {
    "<unk>": 2,
    "<|endoftext|>": 3,
    "</s>": 1,
    "<|im_end|>": 4,
    "<tool>": 4,
    "\n\n": 4,
    "\n\n\n": 4,
    "<fim_pad>": 1,
    "<|channel|>": 3,
}
SCORES = {
    text: -float(place)
    for place, text in enumerate(["▁", *"abcdehlotx=-.", "he", "ll", "▁h", "▁he", "ello", "▁hello", "==", "====", "▁t", "th", ">▁<"])
}  # fmt: skip


def spm(**given: object) -> dict[str, object]:
    metadata = pieces(SCORES, **given)
    tokens: Any = metadata["tokenizer.ggml.tokens"]
    kinds: Any = metadata["tokenizer.ggml.token_type"]
    scores: Any = metadata["tokenizer.ggml.scores"]
    new = {text: kind for text, kind in SPECIAL.items() if text not in tokens}
    return metadata | {
        "tokenizer.ggml.tokens": [*tokens, *new],
        "tokenizer.ggml.token_type": [*kinds, *new.values()],
        "tokenizer.ggml.scores": [*scores, *([-1000.0] * len(new))],
    }


MIXED = [
    "hello the hello  a   b\n\n\n\n\nx <tool> <|im_end|></s><s>",
    " <|channel|><tool><tool>he<fim_pad>ll",
    "=" * 17 + "> <" + "-" * 9,
    *("=" * number for number in range(1, 40)),
    "<|im_<|im_end|>end|>",
]


@pytest.mark.parametrize("pre", DIGESTS)
def test_it_gives_the_ids_that_were_noted(tmp_path: Path, pre: str) -> None:
    pytest.importorskip("llama_cpp")
    found = ReferenceTokenizer(written(tmp_path / "model.gguf", pairs(pre)))
    assert digest(found.ids(text) for text in TEXTS) == DIGESTS[pre]


@pytest.mark.parametrize(
    "metadata",
    [
        pytest.param(pairs("smollm") | {"tokenizer.ggml.add_bos_token": True}, id="bytes"),
        pytest.param(spm(), id="llama"),
        pytest.param(spm(add_space_prefix=False, add_eos_token=True), id="gemma"),
        pytest.param(
            described(["<s>", *BYTES, *"▁aehlo", "\n", "he", "ll"], ["h e", "l l"], model="gemma4"), id="gemma4"
        ),
    ],
)
def test_texts_and_prompts_are_counted_alike(tmp_path: Path, metadata: dict[str, object]) -> None:
    pytest.importorskip("llama_cpp")
    theirs, ours = both(written(tmp_path / "model.gguf", metadata))
    for text in [*ORDINARY, *MIXED, "hello the x\n" * 3000]:
        assert ours.ids(text) == theirs.ids(text)
        assert ours.ids(text, parse=True) == theirs.ids(text, parse=True)
        assert ours.size(text) == theirs.size(text) == len(theirs.ids(text))
        for prompt in (text, f"<s>{text}", f"{text}</s>"):
            assert ours.rendered(prompt) == theirs.rendered(prompt)


def test_special_tokens_are_the_same(tmp_path: Path) -> None:
    pytest.importorskip("llama_cpp")
    path = written(tmp_path / "model.gguf", spm() | {"general.name": "phi3"})
    read = vocabulary(path)
    assert read is not None
    for ours, theirs in zip(read.specials(), ReferenceTokenizer(path)._model.specials(), strict=True):
        assert ours.ids == theirs.ids
        assert list(ours.cut("a</s>  b<tool>\n c")) == list(theirs.cut("a</s>  b<tool>\n c"))


@pytest.mark.parametrize("prefix", [True, False])
def test_dividing_a_long_text_changes_nothing(tmp_path: Path, *, prefix: bool) -> None:
    pytest.importorskip("llama_cpp")
    found = ReferenceTokenizer(written(tmp_path / "model.gguf", spm(add_space_prefix=prefix)))
    text = "hello the x " * 2000
    assert len(list(found._model.parts(text))) > 1
    assert found.size(text) == len(found.ids(text))


def test_a_text_that_tokens_reach_over_is_not_divided(tmp_path: Path) -> None:
    pytest.importorskip("llama_cpp")
    metadata = described(["<end>", *(chr(number) for number in range(33, 127)), "Ċ", "Ċa"], ["Ċ a"], pre="superbpe")
    found = ReferenceTokenizer(written(tmp_path / "model.gguf", metadata))
    assert list(found._model.parts("b\na" * 3000)) == ["b\na" * 3000]


def test_it_says_nothing(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("llama_cpp")
    (tmp_path / "torn.gguf").write_bytes(b"GGUF" + bytes(100))
    assert reference(tmp_path / "torn.gguf") is None
    assert reference(tmp_path / "none.gguf") is None
    found = reference(written(tmp_path / "model.gguf", spm()))
    assert found is not None
    assert found.how == "llama.cpp vocabulary"
    assert found.rendered("<s><s>hello") > 0
    del found
    assert capfd.readouterr() == ("", "")
    with pytest.raises(ModelMissing, match=r"none\.gguf"):
        ReferenceTokenizer(tmp_path / "none.gguf")


def test_without_the_package_there_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "llama_cpp", None)
    path = written(tmp_path / "model.gguf", spm())
    assert Vocabulary.of(spm()) == vocabulary(path)
    assert reference(path) is None
    with pytest.raises(MissingExtra, match="llama-cpp-python"):
        ReferenceTokenizer(path)
