from __future__ import annotations

import json
import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from localctx.core.vocabulary import Specials, Vocabulary

NORMAL, UNKNOWN, CONTROL, USER_DEFINED, BYTE = 1, 2, 3, 4, 6


def metadata(**given: object) -> dict[str, object]:
    """Metadata of four tokens; None takes a key away."""
    values = {
        "model": "gpt2",
        "pre": "smollm",
        "tokens": ["<s>", "</s>", "a", "b"],
        "token_type": [CONTROL, CONTROL, NORMAL, NORMAL],
        "merges": ["a b"],
        "bos_token_id": 0,
        "eos_token_id": 1,
    } | given
    return {f"tokenizer.ggml.{name}": value for name, value in values.items() if value is not None}


def read(**given: object) -> Vocabulary:
    vocabulary = Vocabulary.of(metadata(**given))
    assert vocabulary is not None
    return vocabulary


def test_a_vocabulary_is_what_the_metadata_says() -> None:
    given = metadata(
        scores=[0.0, 0, -1.5, -2], add_bos_token=True, add_eos_token=True, add_space_prefix=True, fim_pre_token_id=2
    )
    others = {"tokenizer.chat_template": "{{ x }}", "tokenizer.chat_template.tool_use": "{{ y }}", "general.name": "Me"}
    assert Vocabulary.of(given | others) == Vocabulary(
        model="gpt2",
        pre="smollm",
        tokens=("<s>", "</s>", "a", "b"),
        types=(3, 3, 1, 1),
        scores=(0.0, 0.0, -1.5, -2.0),
        merges=("a b",),
        ids={"bos": 0, "eos": 1, "fim_pre": 2},
        add_bos=True,
        add_eos=True,
        add_space_prefix=True,
        template="{{ x }}",
        tool_template="{{ y }}",
        name="Me",
    )


def test_it_reads_the_same_from_a_file_and_from_json() -> None:
    said = metadata(scores=[0.0, 0.0, -1.0, -2.0])
    kept = {key: tuple(value) if isinstance(value, list) else value for key, value in said.items()}
    assert Vocabulary.of(kept) == Vocabulary.of(json.loads(json.dumps(said))) is not None


TWELVE = list("abcdefghijkl")


@pytest.mark.parametrize(
    ("given", "bos", "eos", "begins", "spaced"),
    [
        pytest.param({"model": "llama", "pre": None, "merges": None}, "b", "c", True, True, id="llama"),
        pytest.param({"pre": "qwen2"}, "l", "l", False, False, id="gpt2"),
        pytest.param({"pre": None}, "l", "l", False, False, id="without a pre-tokenizer"),
        pytest.param({"pre": "llama-bpe"}, "l", "l", True, False, id="llama3"),
        pytest.param({"pre": "tekken"}, "l", "l", True, False, id="tekken"),
        pytest.param({"pre": "tekken", "add_bos_token": False}, "l", "l", False, False, id="it says no"),
        pytest.param({"pre": "glm4"}, "", "l", False, False, id="no BOS"),
        pytest.param({"pre": "glm4", "bos_token_id": 3}, "d", "l", False, False, id="a BOS after all"),
        pytest.param({"model": "gemma4", "bos_token_id": 2}, "c", "", True, False, id="gemma4"),
        pytest.param(
            {"pre": "gemma4", "bos_token_id": 2, "add_bos_token": False}, "c", "l", True, False, id="always a BOS"
        ),
    ],
)
def test_what_it_does_not_say_is_as_in_llama_cpp(
    given: dict[str, object], bos: str, eos: str, *, begins: bool, spaced: bool
) -> None:
    vocabulary = read(**({"tokens": TWELVE, "token_type": None, "bos_token_id": None, "eos_token_id": None} | given))
    assert (vocabulary.bos, vocabulary.eos) == (bos, eos)
    assert (vocabulary.add_bos, vocabulary.add_eos, vocabulary.add_space_prefix) == (begins, False, spaced)
    assert (vocabulary.types, vocabulary.scores) == ((NORMAL,) * 12, (0.0,) * 12)
    assert vocabulary.whole == (vocabulary.pre in {"llama-bpe", "tekken", "glm4"})


def test_a_token_without_a_text_gets_a_name() -> None:
    assert read(tokens=["<s>", "", "a", "b"]).tokens == ("<s>", "[EMPTY_1]", "a", "b")


def test_a_token_for_a_use_that_is_none_is_left_out() -> None:
    assert read(padding_token_id=2**32 - 1, eot_token_id=-1, fim_sep_token_id=True).ids == {"bos": 0, "eos": 1}


def test_a_request_with_tools_may_have_a_template_of_its_own_and_chatml_serves_where_there_is_none() -> None:
    both = Vocabulary.of(
        metadata() | {"tokenizer.chat_template": "{{ x }}", "tokenizer.chat_template.tool_use": "{{ y }}"}
    )
    assert both is not None
    assert (both.chat_template(tools=False), both.chat_template(tools=True)) == ("{{ x }}", "{{ y }}")
    one = Vocabulary.of(metadata() | {"tokenizer.chat_template": "{{ x }}"})
    assert one is not None
    assert one.chat_template(tools=True) == "{{ x }}"
    assert "<|im_start|>" in read().chat_template(tools=False)


def test_a_template_that_is_none_or_absurd_is_left_out() -> None:
    for template in (None, 7, ["x"], "x" * 2_000_000):
        vocabulary = Vocabulary.of(metadata() | {"tokenizer.chat_template": template, "general.name": template})
        assert vocabulary is not None
        assert vocabulary.template is None


WRONG: list[dict[str, Any]] = [
    {"model": None},
    {"model": 3},
    {"pre": 3},
    {"pre": ["smollm"]},
    {"tokens": None},
    {"tokens": []},
    {"tokens": "abcd"},
    {"tokens": {"a": 1}},
    {"tokens": ["<s>", "</s>", "a", None]},
    {"tokens": ["<s>", "</s>", "a", b"b"]},
    {"tokens": ["<s>", "</s>", "a", "a"]},
    {"tokens": ["a"] * (2**20 + 1)},
    {"tokens": ["<s>", "</s>", "a", "b" * 2**26]},
    {"token_type": "3311"},
    {"token_type": "...49152 ints..."},
    {"token_type": [3, 3, 1]},
    {"token_type": [3, 3, 1, 1, 1]},
    {"token_type": [3, 3, 1, 1.0]},
    {"token_type": [3, 3, 1, True]},
    {"tokens": ["<s>", "</s>", "a", "b" * 2**21], "token_type": [3, 3, 1, 3]},
    {"scores": [0.0]},
    {"scores": [0.0, 0.0, 0.0, "0"]},
    {"scores": [0.0, 0.0, 0.0, float("nan")]},
    {"scores": [0.0, 0.0, 0.0, float("inf")]},
    {"scores": [0.0, 0.0, 0.0, 10**400]},
    {"token_type": [3, 3, 1, 10**400]},
    {"tokens": ["<s>", "</s>", "a", "\ud800"]},
    {"merges": ["a \udfff"]},
    {"merges": 7},
    {"merges": [7]},
    {"merges": ["a b"] * (2**21 + 1)},
    {"bos_token_id": 4},
    {"bos_token_id": -1},
    {"bos_token_id": 2**32 - 1},
    {"bos_token_id": True},
    {"bos_token_id": "0"},
    {"eos_token_id": 2**63},
    {"add_bos_token": 1},
    {"add_eos_token": "true"},
    {"add_space_prefix": []},
    {"add_bos_token": True, "bos_token_id": None},
]


@pytest.mark.parametrize("given", WRONG, ids=lambda given: repr(given)[:60])
def test_metadata_that_cannot_be_true_is_no_vocabulary(given: dict[str, object]) -> None:
    started = time.process_time()
    assert Vocabulary.of(metadata(**given)) is None
    assert time.process_time() - started < 1


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=3),
    lambda some: st.lists(some, max_size=4),
)


@given(st.dictionaries(st.sampled_from(sorted(metadata(scores=1, pre="x", add_bos_token=1))), VALUES))
def test_whatever_metadata_holds_it_is_a_vocabulary_or_none(given: dict[str, object]) -> None:
    vocabulary = Vocabulary.of(metadata() | given)
    if vocabulary is not None:
        assert len(vocabulary.tokens) == len(vocabulary.types) == len(vocabulary.scores) == len(set(vocabulary.tokens))
        list(vocabulary.specials()[1].cut("<s>ab</s>"))


# --- which tokens are special ---------------------------------------------------------------------------------------------


def special(types: dict[str, int], **given: object) -> tuple[set[str], set[str]]:
    """What is cut out of any text, and what out of a prompt."""
    usual: dict[str, object] = {
        "tokens": list(types),
        "token_type": list(types.values()),
        "bos_token_id": None,
        "eos_token_id": None,
    }
    found = Vocabulary.of(metadata(**(usual | given)) | {"general.name": given.get("name")})
    assert found is not None
    in_text, in_prompt = found.specials()
    return set(in_text.ids), set(in_prompt.ids)


def test_control_tokens_are_text_but_in_prompts() -> None:
    types = {"<unk>": UNKNOWN, "<s>": CONTROL, "<tool>": USER_DEFINED, "a": NORMAL, "<0x0A>": BYTE, "<unused>": 5}
    assert special(types) == ({"<tool>"}, {"<unk>", "<s>", "<tool>"})


@pytest.mark.parametrize("kind", [NORMAL, USER_DEFINED, 5])
def test_what_ends_an_answer_is_a_control_token_whatever_its_type(kind: int) -> None:
    types = {"<|im_end|>": kind, "</s>": kind, "<end_of_turn>": kind, "<｜end▁of▁sentence｜>": kind, "x": NORMAL}  # noqa: RUF001
    assert special(types) == (set(), set(types) - {"x"})


def test_what_fills_a_gap_is_a_control_token_unless_the_file_names_one_of_its_use() -> None:
    types = {"<fim_prefix>": USER_DEFINED, "<|file_sep|>": NORMAL, "<PAD>": NORMAL, "x": NORMAL}
    assert special(types) == (set(), {"<fim_prefix>", "<|file_sep|>", "<PAD>"})
    named = {"prefix_token_id": 3, "fim_sep_token_id": 3, "fim_pad_token_id": 3}
    assert special(types, **named) == ({"<fim_prefix>"}, {"<fim_prefix>"})


def test_what_gpt_oss_shows_is_user_defined() -> None:
    types = dict.fromkeys(("<|channel|>", "<|start|>", "<|end|>", "<|return|>", "<|call|>"), CONTROL)
    shown = {"<|channel|>", "<|start|>"}
    assert special(types) == (shown | {"<|end|>"}, set(types))
    assert special({text: kind for text, kind in types.items() if text != "<|call|>"})[0] == shown


def test_gemma_4_has_an_end_that_is_text() -> None:
    assert special({"</s>": NORMAL, "<|tool_response>": CONTROL, "x": NORMAL}) == (set(), {"<|tool_response>"})


def test_phi_3_swallows_white_space_behind_special_tokens() -> None:
    given = metadata(tokens=["<|end|>", "<s>", "<|user|>"], token_type=[3, 3, 4], merges=None)
    for name, cut in (("Phi-3 mini", ["a", 0, "b ", 1, " c", 2, "d"]), ("Phi", ["a", 0, " \n b ", 1, " c", 2, "\nd"])):
        vocabulary = Vocabulary.of(given | {"general.name": name})
        assert vocabulary is not None
        assert list(vocabulary.specials()[1].cut("a<|end|> \n b <s> c<|user|>\nd")) == cut
        assert list(vocabulary.specials()[0].cut("<|user|> ")) == ([2] if name != "Phi" else [2, " "])


def test_phi_3_without_its_name_cannot_be_followed() -> None:
    given = metadata(model="llama", merges=None) | {"general.architecture": "phi3"}
    assert Vocabulary.of(given) is None
    assert Vocabulary.of(given | {"general.name": "Phi3"}) is not None
    assert Vocabulary.of(metadata() | {"general.architecture": "phi3"}) is not None


# --- cutting --------------------------------------------------------------------------------------------------------------


def one_after_another(texts: list[str], text: str) -> list[str | int]:
    """The rule, word for word: the longest first, each from left to right in what the ones before it left."""
    fragments: list[str | int] = [text] if text else []
    for place in sorted(range(len(texts)), key=lambda place: (-len(texts[place].encode()), place)):
        split = list[str | int]()
        for fragment in fragments:
            if isinstance(fragment, int):
                split.append(fragment)
                continue
            for number, part in enumerate(fragment.split(texts[place])):
                split += [place] * (number > 0) + [part] * (part != "")
        fragments = split
    return fragments


@given(
    st.lists(st.text(alphabet="ab<é ", min_size=1, max_size=5), unique=True, max_size=8),
    st.text(alphabet="ab<é ", max_size=40),
)
def test_special_tokens_are_cut_out_the_longest_first(texts: list[str], text: str) -> None:
    ids = {special: place for place, special in enumerate(texts)}
    assert list(Specials(ids).cut(text)) == one_after_another(texts, text)


@pytest.mark.parametrize("text", ["\n" * 7, " \n\n\n\nx\n", "x" + "\n" * 100, "  a  \n \n"])
def test_runs_of_one_character_are_cut_alike(text: str) -> None:
    texts = ["\n\n", "\n\n\n", "  ", "    ", "<x>"]
    assert list(Specials({special: place for place, special in enumerate(texts)}).cut(text)) == one_after_another(
        texts, text
    )


def test_without_special_tokens_a_text_stays_whole() -> None:
    assert list(Specials({}).cut("abc")) == ["abc"]
    assert list(Specials({}).cut("")) == []


@pytest.mark.parametrize("text", ["ab" * 3_000, "a" * 6_000, "<" * 20_000])
def test_special_tokens_that_overlap_without_end_cost_little(text: str) -> None:
    texts = ["ab" * number for number in range(1, 60)] + ["a" * number for number in range(1, 60)] + ["<x"]
    specials = Specials({special: place for place, special in enumerate(texts)})
    started = time.process_time()
    assert sum(len(texts[part]) if isinstance(part, int) else len(part) for part in specials.cut(text)) == len(text)
    assert time.process_time() - started < 5
