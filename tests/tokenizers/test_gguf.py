from __future__ import annotations

import hashlib
import sys
import time
from functools import cache
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from localctx.core.vocabulary import Specials, Vocabulary
from localctx.tokenizers.gguf import SPLITS, ByParts, GgufTokenizer, tokenizer

if TYPE_CHECKING:
    from collections.abc import Iterable

    from localctx.ports import Tokenizer

BYTES = [f"<0x{byte:02X}>" for byte in range(256)]
LETTERS = [chr(byte) if 33 <= byte < 127 or (161 <= byte < 256 and byte != 173) else "" for byte in range(256)]
LETTERS = [letter or chr(256 + LETTERS[:byte].count("")) for byte, letter in enumerate(LETTERS)]
"""How byte-level vocabularies write a byte."""


def described(tokens: list[str], merges: Iterable[str] = (), /, **given: object) -> dict[str, object]:
    """Metadata of a vocabulary whose first token is its only special one."""
    usual = {
        "model": "gpt2",
        "pre": "gpt-2",
        "tokens": tokens,
        "token_type": [3] + [1] * (len(tokens) - 1),
        "merges": list(merges),
        "bos_token_id": 0,
        "eos_token_id": 0,
    }
    return {f"tokenizer.ggml.{name}": value for name, value in (usual | given).items() if value is not None}


def built(metadata: dict[str, object]) -> GgufTokenizer:
    vocabulary = Vocabulary.of(metadata)
    assert vocabulary is not None
    found = tokenizer(vocabulary)
    assert found is not None
    return found


def texts(found: GgufTokenizer, metadata: dict[str, object], text: str) -> list[str]:
    tokens: Any = metadata["tokenizer.ggml.tokens"]
    return [tokens[token] for token in found.ids(text)]


# --- splitting into words -------------------------------------------------------------------------------------------------


@cache
def pairs(pre: str) -> dict[str, object]:
    """A vocabulary of bytes and many pairs of bytes in no order, so that every end of a word shows in its ids."""
    common = b" \n\r\tabAB12.,'-/"
    order = sorted(range(65_536), key=lambda pair: pair * 40_503 % 65_536)
    chosen = [pair for at, pair in enumerate(order) if at < 12_000 or (pair >> 8 in common and pair & 255 in common)]
    both = [(LETTERS[pair >> 8], LETTERS[pair & 255]) for pair in chosen]
    words = ["Ġhello", "hello", "Ġ12", "999", "ĊĊ", "..."]
    tokens = ["<end>", *LETTERS, *(left + right for left, right in both)]
    tokens += [word for word in words if word not in tokens]
    return described(tokens, (f"{left} {right}" for left, right in both), pre=pre)


ORDINARY = [
    "The quick brown fox, and it's \"done\": we'Ll see; I'VE been there. don't! 'S 'x ''re x'd 'sun l'mother I'dx",
    '{"name": "web_fetch", "arguments": {"url": "https://x.y/z?a=b&c=d#e", "n": 12345.678e-9, "ok": true}}',
    "def f(x):\n    if x >= 10:\n        return x ** 2  # squared\n\n\nclass ABCdef(HTTPServer):\n\tpass\r\n\r\n",
    "1 22 333 4444 55555 666666 7777777 ½ ² Ⅷ ٣٤٥ १२३ 3.14159€ $100 -0x7F",
    "  two   three    tab\t\ttwo \n \n\n line\r\n\r\n  end \u00a0\u2003\u3000x\u0085y\u2028z\u200bw\ufeff  ",
    "こんにちは世界。カタカナ、漢字「引用」 你好，世界！这是一个测试。 안녕하세요 세계, 한국어 ㄱㄴ",  # noqa: RUF001  marks of full width
    "مرحبا بالعالم، كيف حالك؟ שלום עולם नमस्ते दुनिया क्ष สวัสดีชาวโลก ภาษาไทย ພາສາ ខ្មែរ မြန်မာ",
    "Привет, мир! Γειά σου Κόσμε. Ærøskøbing naïve café cafe\u0301 e\u0301a\u0300 \u0301 ǅ ß ſ K Ω Åå İı",  # noqa: RUF001  letters that look like others
    "👩‍👩‍👧‍👦 🏳️‍🌈 🇩🇪 ☃️ ✓ → ∑ ≠ © ® ™ … — – “quoted” ‘single’ «guillemets» ¡¿ § ¶ ° ± × ÷",  # noqa: RUF001  marks that look like others
    "===---___*** //// ///\n/// |||| ``` ~~~ ^^^ <<<>>> ((([[[{{{}}}]]])))&&&%%%@@@###!!!???;;;:::,,,...\\\\",
    "x  4   55\n\t6  ${7}  .8 hello hello 12 12 999 9999 99999 hello12hello\nhello\n\nhello ... ....",
    "<end> <|im_start|> <s></s>\x00\x01\x1b[31mred\x1b[0m\x7f",
]
RANGES = [
    (0x21, 0x250),
    (0x370, 0x530),
    (0x5D0, 0x5EB),
    (0x620, 0x670),
    (0x901, 0x970),
    (0xE01, 0xE3B),
    (0x1E00, 0x1EFA),
]
RANGES += [(0x2010, 0x2028), (0x2030, 0x205F), (0x2190, 0x2300), (0x3041, 0x3097), (0x30A1, 0x30FB), (0x4E00, 0x4F00)]
RANGES += [
    (0x9F00, 0x9FA6),
    (0xAC00, 0xAC80),
    (0xFF01, 0xFFBF),
    (0x1D400, 0x1D455),
    (0x1F600, 0x1F650),
    (0x20000, 0x20020),
]
SAMPLES = [
    f"a{chr(at)}b 1{chr(at)}2 .{chr(at)}. {chr(at)}{chr(at)}\n{chr(at)}\n" for ends in RANGES for at in range(*ends, 5)
]
LONG = "\n".join(ORDINARY * 6).replace("\n\n", "\nAnd ")
TEXTS = [*ORDINARY, *SAMPLES, LONG, "a\nb" * 4000]

DIGESTS = {
    "gpt-2": "2dc25973e7ed64af",
    "starcoder": "3b69990d97b9c874",
    "llama3": "d6e706514f58a19a",
    "dbrx": "d3a12b8cb34b610e",
    "qwen2": "aabd8ec939877a5d",
    "qwen35": "d7098d64ab239322",
    "minicpm5": "8c7995e1a44dce6a",
    "ufakzeka": "7b51861af112a2ae",
    "laguna": "7c499c8aa82a3c8c",
    "seed-coder": "f61ea7c1a4827a78",
    "bailingmoe": "aabd8ec939877a5d",
    "tekken": "1a5e64d19c7ca817",
    "gpt-4o": "b16682aac2506baf",
    "tiny_aya": "3dce28b73eb461bd",
    "youtu": "e0e37e43930d5b71",
    "deepseek-llm": "0f1c3390945ba40c",
    "deepseek-coder": "fcc835d61d6b6434",
    "deepseek-v3": "03959e3f390b7cff",
    "spark2_5": "09faf596a6f3ad96",
    "afmoe": "dee435e7543a2879",
    "falcon": "f96e36f2d0c36762",
    "default": "4bb8272620996849",
    "poro-chat": "1c9e9b16f41aec81",
    "viking": "03e89029acaaa135",
}


WHOLE = {pre for pre in SPLITS if (found := Vocabulary.of(described(["<end>"], pre=pre))) and found.whole}


def digest(ids: Iterable[list[int]]) -> str:
    return hashlib.sha256(repr(list(ids)).encode()).hexdigest()[:16]


@pytest.mark.parametrize("pre", DIGESTS)
def test_texts_are_split_as_by_llama_cpp(pre: str) -> None:
    """The digests are of llama.cpp's own ids (llama-cpp-python 0.3.36): tests/tokenizers/test_reference.py makes them."""
    pytest.importorskip("tokenizers")
    found = built(pairs(pre))
    assert digest(found.ids(text) for text in TEXTS) == DIGESTS[pre]
    assert sum(map(found.size, TEXTS)) == sum(len(found.ids(text)) for text in TEXTS)


def test_every_way_of_splitting_is_tried() -> None:
    """Of two names with the same expressions one is enough, unless words that are tokens are taken whole for one of them."""
    tried = {(SPLITS[pre], pre in WHOLE) for pre in DIGESTS}
    assert {(steps, pre in WHOLE) for pre, steps in SPLITS.items() if pre not in {"gemma4", "sarvam-moe"}} == tried


@pytest.mark.parametrize("pre", DIGESTS)
def test_dividing_a_long_text_changes_nothing(pre: str) -> None:
    pytest.importorskip("tokenizers")
    found = built(pairs(pre))
    assert len(list(found._encoder.parts(LONG))) > 1
    assert found.ids(LONG) == found._encoder.ids(LONG)


@pytest.mark.parametrize("pre", ["llama3", "tekken", "deepseek-llm", "tiny_aya", "default"])
@pytest.mark.parametrize("run", [" ", "a", "A", "1", "漢", "-", "\n", "aA", ".1", "a ", "\u0301"])
def test_long_runs_of_anything_cost_what_their_length_does(pre: str, run: str) -> None:
    pytest.importorskip("tokenizers")
    found = built(pairs(pre))
    started = time.process_time()
    assert found.size(run * (100_000 // len(run)) + "x") > 1000
    assert time.process_time() - started < 5


# --- putting words together -----------------------------------------------------------------------------------------------


def test_merges_are_done_in_their_order() -> None:
    pytest.importorskip("tokenizers")
    tokens = ["<end>", *LETTERS, "bc", "ab", "abc", "cd"]
    for merges, expected in (
        (["b c", "a b", "a bc", "c d"], ["abc", "d"]),
        (["a b", "b c", "a bc", "c d"], ["ab", "cd"]),
        (["c d", "a b", "c d", "b c", "b c"], ["ab", "cd"]),
        ([], ["a", "b", "c", "d"]),
    ):
        metadata = described(tokens, merges)
        assert texts(built(metadata), metadata, "abcd") == expected


def test_a_word_that_is_a_token_may_be_taken_whole() -> None:
    pytest.importorskip("tokenizers")
    for pre, expected in (("llama-bpe", ["Ġabc", "Ġ", "a"]), ("dbrx", ["Ġ", "a", "b", "c", "Ġ", "a"])):
        metadata = described(["<end>", *LETTERS, "Ġabc"], pre=pre)
        assert texts(built(metadata), metadata, " abc a") == expected


def test_a_byte_that_the_vocabulary_lacks_is_no_token_and_joins_nothing() -> None:
    pytest.importorskip("tokenizers")
    metadata = described(["<end>", *(letter for letter in LETTERS if letter not in "b^]"), "ac"], ["a c"])
    assert texts(built(metadata), metadata, "abac^]") == ["a", "ac"]


def test_characters_that_a_vocabulary_of_characters_lacks_are_bytes() -> None:
    pytest.importorskip("tokenizers")
    tokens = ["<bos>", *BYTES, "▁", "a", "ü", "\n", "\n\n", "▁a"]
    metadata = described(tokens, ["▁ a", "\n \n"], model="gemma4")
    found = built(metadata)
    assert texts(found, metadata, " a a\n\n\nüö") == ["▁a", "▁a", "\n\n", "\n", "ü", "<0xC3>", "<0xB6>"]
    assert found.rendered("<bos>a") == found.rendered("a") == 2


@pytest.mark.parametrize(
    "metadata",
    [
        pytest.param(described(["<end>", *LETTERS], pre="superbpe"), id="not verified"),
        pytest.param(described(["<end>", *LETTERS], pre="of tomorrow"), id="unknown"),
        pytest.param(described(["<end>", *LETTERS], model="bert"), id="another kind"),
        pytest.param(described(["<end>", *LETTERS], ["a b"]), id="a merge into no token"),
        pytest.param(described(["<end>", *LETTERS, "ab"], ["a b", "ab"]), id="a merge of one"),
        pytest.param(described(["<end>", *LETTERS, "ab"], ["abc b"]), id="a merge of no token"),
        pytest.param(described(["<end>", *LETTERS[1:]], pre="llama3"), id="whole words of bytes that it lacks"),
        pytest.param(described(["<bos>", *BYTES[1:], "a"], model="gemma4"), id="not all bytes"),
        pytest.param(described(["<bos>", *BYTES, "\n", "\n\n"], model="gemma4"), id="line ends without a merge"),
        pytest.param(described(["<s>", *BYTES[1:], "a"], model="llama"), id="not all bytes of llama"),
    ],
)
def test_what_cannot_be_followed_exactly_has_no_tokenizer(metadata: dict[str, object]) -> None:
    vocabulary = Vocabulary.of(metadata)
    assert vocabulary is not None
    assert tokenizer(vocabulary) is None


def test_without_the_package_there_is_no_tokenizer_but_for_llama(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "tokenizers", None)
    merged, scored = (
        Vocabulary.of(described(["<end>", *LETTERS])),
        Vocabulary.of(described(["<s>", *BYTES], model="llama")),
    )
    assert merged is not None
    assert scored is not None
    assert tokenizer(merged) is None
    assert tokenizer(scored) is not None


# --- SentencePiece --------------------------------------------------------------------------------------------------------


def pieces(scores: dict[str, float], **given: object) -> dict[str, object]:
    tokens = ["<s>", "</s>", *BYTES, *scores]
    usual: dict[str, object] = {
        "model": "llama",
        "scores": [0.0] * 258 + list(scores.values()),
        "token_type": [3, 3] + [6] * 256 + [1] * len(scores),
        "eos_token_id": 1,
    }
    return described(tokens, **(usual | given))


def one_join_at_a_time(scores: dict[str, float], text: str) -> list[str]:
    """The rule, word for word: of all neighbours that are a token together the best are joined, the first of equals."""
    parts = list(text)
    while True:
        joins = [(-scores[pair], at) for at in range(len(parts) - 1) if (pair := parts[at] + parts[at + 1]) in scores]
        if not joins:
            return parts
        _, at = min(joins)
        parts[at : at + 2] = [parts[at] + parts[at + 1]]


@given(
    st.dictionaries(st.text(alphabet="ab▁", min_size=1, max_size=4), st.integers(-4, 0).map(float), max_size=20),
    st.text(alphabet="ab ", max_size=30),
)
def test_the_best_neighbours_are_joined_first(scores: dict[str, float], text: str) -> None:
    metadata = pieces(scores, add_space_prefix=False)
    tokens = {text: place for place, text in enumerate(scores, 258)}
    expected = list[int]()
    for part in one_join_at_a_time(scores, text.replace(" ", "▁")):
        expected += [tokens[part]] if part in tokens else [2 + byte for byte in part.encode()]
    assert built(metadata).ids(text) == expected


def test_a_space_is_put_before_each_piece_of_a_text_where_the_model_has_it_so() -> None:
    scores = {"▁": -1.0, "a": -2.0, "▁a": -3.0}
    for added, expected in (
        (None, ["▁a", "▁a", "</s>", "▁a"]),
        (False, ["a", "▁a", "</s>", "a"]),
    ):
        metadata = pieces(scores, add_space_prefix=added)
        tokens: Any = metadata["tokenizer.ggml.tokens"]
        assert [tokens[token] for token in built(metadata).ids("a a</s>a", parse=True)] == expected


def test_a_word_without_an_end_is_divided() -> None:
    found = built(pieces({"a": -1.0, "aa": -2.0}, add_space_prefix=False))
    assert max(map(len, found._encoder.parts("a" * 600_000))) <= 2**18


# --- counting -------------------------------------------------------------------------------------------------------------


class Noting:
    """Tokens of a character each, and what was asked for."""

    def __init__(self) -> None:
        self.asked = list[str]()

    def parts(self, text: str) -> list[str]:
        return [text]

    def ids(self, part: str) -> list[int]:
        self.asked.append(part)
        return [ord(character) for character in part]


def noting(*, bos: str | None = None, eos: str | None = None) -> tuple[ByParts, Noting]:
    encoder = Noting()
    in_prompt = Specials({"<s>": 1, "</s>": 2, "<|user|>": 3, "<tool>": 4})
    return ByParts(encoder, Specials({"<tool>": 4}), in_prompt, bos=bos, eos=eos), encoder


def test_what_looks_special_is_text_but_for_what_users_defined() -> None:
    counted, _ = noting(bos="<s>")
    assert counted.size("<s>a<tool>b") == 4 + 1 + 1
    assert counted.ids("<s>a<tool>b") == [*map(ord, "<s>a"), 4, ord("b")]
    assert counted.ids("<s>a<tool>b", parse=True) == [1, ord("a"), 4, ord("b")]
    assert counted.size("") == 0


@pytest.mark.parametrize(
    ("bos", "eos", "prompt", "tokens"),
    [
        (None, None, "<|user|>hi</s>", 4),
        (None, None, "<s><|user|>hi</s>", 5),
        ("<s>", None, "<|user|>hi</s>", 5),
        ("<s>", None, "<s><|user|>hi</s>", 5),
        ("<s>", None, "<s><s>hi", 4),
        ("<s>", "</s>", "hi</s>", 4),
        ("<s>", "</s>", "hi", 4),
        ("<s>", "</s>", "", 2),
        (None, None, "", 0),
    ],
)
def test_a_prompt_begins_and_ends_as_llama_server_sends_it(
    bos: str | None, eos: str | None, prompt: str, tokens: int
) -> None:
    counted, _ = noting(bos=bos, eos=eos)
    assert counted.rendered(prompt) == tokens


def test_a_chat_that_grows_costs_what_is_new() -> None:
    counted, encoder = noting(bos="<s>")
    prompt = "<s><|user|>first</s>"
    assert counted.rendered(prompt) == 1 + 1 + 5 + 1
    assert counted.rendered(prompt + "<|user|>second</s>") == 8 + 1 + 6 + 1
    assert counted.size("second") == 6
    assert counted.size("second<tool>first") == 12
    assert encoder.asked == ["first", "second"]


def test_half_a_character_is_counted_all_the_same() -> None:
    pytest.importorskip("tokenizers")
    for found in (built(pairs("gpt-2")), built(pieces({}))):
        assert found.size("a\ud800b") == found.size("a?b")
        assert found.rendered("a\udfffb") == found.rendered("a?b")


def test_it_is_what_the_engine_asks_for() -> None:
    found: Tokenizer = built(pieces({}))
    assert found.how == "GGUF vocabulary"
