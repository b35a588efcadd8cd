"""Exact tokens of a text from a GGUF's vocabulary, in this process: what llama.cpp would make of it, without llama.cpp.

A prompt is cut at its special tokens, and what stands between them is counted once, so a chat that grows by a message costs
that message. Where a vocabulary cannot be followed exactly there is no tokenizer.
"""

from __future__ import annotations

import re
from contextlib import suppress
from functools import lru_cache, partial
from heapq import heapify, heappop, heappush
from itertools import chain
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    import tokenizers

    from localctx.core.vocabulary import Specials, Vocabulary

__all__ = ["SPLITS", "ByParts", "GgufTokenizer", "tokenizer"]

_KEPT = 32_768
"""Texts whose size is remembered."""
_KEPT_PARTS = 65_536
_CHUNK = 4096
"""Characters after which a text without special tokens is divided where that changes nothing."""
_LONGEST_CHUNK, _LONGEST_WORD = 1 << 20, 1 << 18
"""Where it is divided in any case: ten times more is more than the splitting into words can take, or than is worth the memory."""

_SPACE = "\u2581"
_BYTES = [f"<0x{byte:02X}>" for byte in range(256)]

# --- how llama.cpp splits a text into words -----------------------------------------------------------------------------

_CONTRACTION = "'(?:[sSdDmMtT]|[lL][lL]|[vV][eE]|[rR][eE])"
_HEAD = r"[^\r\n\p{L}\p{N}]?"
_BLANKS = r"\s*[\r\n]+|\s+(?!\S)|\s+"
_GPT2 = r"'(?:[sdmt]|ll|ve|re)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
_LINES = r"[^\n]+|\n+"


def _words(
    digits: str,
    *,
    letters: str = r"\p{L}",
    start: str = f"{_CONTRACTION}|",
    end: str = r"[\r\n]*",
    blanks: str = _BLANKS,
) -> str:
    """Contractions, words with one mark before them, digits, marks with one space before them, white space."""
    return rf"{start}{_HEAD}[{letters}]+|{digits}| ?[^\s{letters}\p{{N}}]+{end}|{blanks}"


def _cased(digits: str, end: str = "") -> str:
    """As words, but a word ends where lower case turns to upper, which llama.cpp sees in ASCII alone."""
    upper, lower = r"(?:(?=\p{L})[^a-z])", r"(?:(?=\p{L})[^A-Z])"
    return _after(f"{_HEAD}{upper}*{lower}+{end}|{_HEAD}{upper}+{lower}*{end}|{digits}")


def _uncased(digits: str) -> str:
    """As cased in other files, where llama.cpp does not see the case at all."""
    return _after(rf"{_HEAD}[\p{{L}}\p{{M}}]+(?:{_CONTRACTION})?|{digits}")


def _after(words: str) -> str:
    return rf"{words}| ?[^\s\p{{L}}\p{{N}}]+[\r\n/]*|{_BLANKS}"


def _marked(end: str = r"[\r\n]*", blanks: str = _BLANKS) -> str:
    """ASCII words with one mark before them, other words, marks with one space before them, white space."""
    words = r"[!-/:-@\[-`{-~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+"
    return rf"{words}| ?[\p{{P}}\p{{S}}]+{end}|{blanks}"


def _set(ranges: str) -> str:
    """One or more of some characters, from ranges of their numbers."""
    return "[" + "".join(re.sub(r"[0-9a-f]+", r"\\x{\g<0>}", part) for part in ranges.split()) + "]+"


_HAN_OR_KANA = _set("3040-30ff 4e00-9fa5")
_FROM_800 = _set("800-167f 1681-1fff 200b-2027 202a-202e 2030-205e 2060-2fff 3001-9fa5 ac00-d7ff")
_CASED = _set(
    "41-5a 61-7a b5 c0-d6 d8-f6 f8-1ba 1bc-1bf 1c4-293 295-2af 370-373 376-377 37b-37d 37f 386 388-38a 38c 38e-3a1 3a3-3f5 "
    "3f7-481 48a-52f 531-556 10a0-10c5 13a0-13f5 13f8-13fd 1c90-1cba 1cbd-1cbf 1d00-1d2b 1d6b-1d77 1d79-1d9a 1e00-1f15 "
    "1f18-1f1d 1f20-1f45 1f48-1f4d 1f50-1f57 1f59 1f5b 1f5d 1f5f-1f7d 1f80-1fb4 1fb6-1fbc 1fbe 1fc2-1fc4 1fc6-1fcc "
    "1fd0-1fd3 1fd6-1fdb 1fe0-1fec 1ff2-1ff4 1ff6-1ffc 2102 2107 210a-2113 2115 2119-211d 2124 2126 2128 212a-212d "
    "212f-2134 2139 213c-213f 2145-2149 214e 2183-2184 2c00-2c7b 2c7e-2ce4 2ceb-2cee 2cf2-2cf3 a640-a66d a680-a69b "
    "a722-a76f a771-a787 a78b-a78e ab70-abbf fb00-fb06 fb13-fb17 ff21-ff3a ff41-ff5a 10400-1044f 104b0-104d3 104d8-104fb "
    "10c80-10cb2 10cc0-10cf2 118a0-118df 1e900-1e943"
)
_FULL_MARKS = _set("21-2f 3a-7e 2018-201f 3001-3002 ff01-ff0f ff1a-ff5e")
_EAST = _set(
    "e40-eff 1000-109f 1100-11ff 1780-17ff 2f00-2fdf 3040-30ff 3400-4dbf 4e00-9fff 8c48-faff a9e0-a9ff aa60-aa7f ac00-d7af "
    "ff65-ff9f"
)
_YOUTU = "|".join(
    map(
        _set,
        ("3131-318e ac00-d7a3", "2014 2018-2019 201c-201d 2026 3001-303f fe30-fe4f ff01 ff0c ff1a-ff1b", "3105-312f"),
    )
)
_NO_STOPS = r" ?[^(\s|.,!?\x{2026}\x{3002}\x{ff0c}\x{3001}\x{964}\x{6d4}\x{60c})]+"
_THREES = (r"(?:\A|(?<=\p{N}))\P{N}*\p{N}+", r"(?<=\p{N})(?:\p{N}{3})+\z", r"\p{N}{3}(?=\p{N})")
"""Digits in groups of three from the right."""

_STEPS: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("gpt-2 phi-2 gigachat a.x-4.0 mellum mpt olmo jais trillion granite-docling exaone4", (_GPT2,)),
    ("starcoder refact command-r smollm codeshell exaone minerva-7b mellum2", (r"\p{N}", _GPT2)),
    (
        "llama3 llama-v3 llama-bpe falcon3 falcon-h1 pixtral midm-2.0 lfm2 dbrx smaug-bpe chatglm-bpe glm4 glm5",
        (_words(r"\p{N}{1,3}"),),
    ),
    ("qwen2 deepseek-r1-qwen kormo megrez stablelm2 hunyuan solar-open grok-2", (_words(r"\p{N}"),)),
    ("qwen35", (_words(r"\p{N}", letters=r"\p{L}\p{M}"),)),
    ("minicpm5", (r"\p{N}{1,3}", _words(r"\p{N}+"))),
    ("ufakzeka", (_words(r"\p{N}", start=""),)),
    ("laguna", (_LINES, _words(r"\p{N}"))),
    ("seed-coder", (_words(r"\p{N}", end=""),)),
    ("bailingmoe bailingmoe2 llada-moe", (_words(r"\p{N}", blanks=r"\s*[\r\n]|\s+(?!\S)|\s+"),)),
    ("tekken", (_cased(r"\p{N}"),)),
    ("gpt-4o llama4 kanana2 talkie minimax-m2", (_cased(r"\p{N}{1,3}", f"(?:{_CONTRACTION})?"),)),
    ("tiny_aya cohere2moe", (*_THREES, _uncased(r"\p{N}{1,3}"))),
    ("youtu", (f"{_YOUTU}|{_HAN_OR_KANA}", _uncased(r"\p{N}"))),
    ("deepseek-llm", (r"[\r\n]", rf"\s?{_CASED}", rf"\s?{_FULL_MARKS}", r"(?<!\s)\s+\z", _FROM_800, r"\p{N}+")),
    ("deepseek-coder", (r"[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", _FROM_800, r"\p{N}")),
    ("deepseek-v3 hunyuan-dense joyai-llm hy_v4", (r"\p{N}{1,3}", _HAN_OR_KANA, _marked())),
    ("spark2_5", (r"\p{N}{1,3}", _HAN_OR_KANA, _marked("", r"[\r\n]|\s+(?!\S)|\s+"), r"\p{N}")),
    ("afmoe", (*_THREES, _EAST, _marked())),
    ("falcon", (r"[\p{P}$+<=>^~|`]+", _GPT2, "[0-9]{3}")),
    ("default", (r"[\p{P}$+<=>^~|]+", _GPT2, r"\p{N}+", "[0-9]{3}")),
    ("poro-chat bloom gpt3-finnish", (_NO_STOPS,)),
    ("viking", (_NO_STOPS, r"\p{N}")),
    ("gemma4 sarvam-moe", (_LINES,)),
)
SPLITS = {name: steps for names, steps in _STEPS for name in names.split()}
"""The expressions that split a text into words, by `tokenizer.ggml.pre`, each within what the one before it left.

These are the ones verified against llama.cpp 0c1e57098 (llama-cpp-python 0.3.36): the same ids for the same texts, over all
characters up to Unicode 15. At those that Unicode 16 added, which it does not know, words may end elsewhere.
"""

_UNENCODED = {"gemma4", "sarvam-moe"}
"""Pre-tokenizers whose vocabulary holds characters; that of all others holds bytes."""

# --- the tokenizer ------------------------------------------------------------------------------------------------------


class _Encoder(Protocol):
    """How a kind of vocabulary makes tokens of a text that has no special tokens in it."""

    def parts(self, text: str) -> Iterable[str]:
        """The parts that it can be divided into, each of which gives its own tokens wherever it stands."""
        ...

    def ids(self, part: str) -> list[int]:
        """The tokens of such a part."""
        ...


class ByParts:
    """Counts as llama-server does, each text and each part of a prompt once.

    `in_text` are the special tokens of any text, `in_prompt` those of a prompt; `bos` and `eos` are the texts of what begins
    and ends a prompt, None where the model wants none.
    """

    def __init__(
        self, encoder: _Encoder, in_text: Specials, in_prompt: Specials, *, bos: str | None, eos: str | None
    ) -> None:
        self._encoder, self._in_text, self._in_prompt, self._bos, self._eos = encoder, in_text, in_prompt, bos, eos
        self._part = lru_cache(maxsize=_KEPT_PARTS)(lambda part: len(encoder.ids(part)))
        self._between = lru_cache(maxsize=_KEPT)(lambda text: sum(map(self._part, encoder.parts(text))))
        self._size = lru_cache(maxsize=_KEPT)(partial(self._sum, in_text))

    def size(self, text: str) -> int:
        """The tokens of a text on its own; what looks like a special token in it is text."""
        return self._size(text)

    def rendered(self, prompt: str) -> int:
        """The tokens of a rendered prompt: as llama-server sends it, with one BOS and one EOS where the model wants them."""
        bare = prompt.removeprefix(self._bos or "").removesuffix(self._eos or "")
        return self._sum(self._in_prompt, bare) + (self._bos is not None) + (self._eos is not None)

    def ids(self, text: str, *, parse: bool = False) -> list[int]:
        """The tokens themselves, without BOS and EOS; special ones too where it is a prompt to `parse`."""
        found = list[int]()
        for piece in (self._in_prompt if parse else self._in_text).cut(_encodable(text)):
            found += [piece] if isinstance(piece, int) else chain(*map(self._encoder.ids, self._encoder.parts(piece)))
        return found

    def _sum(self, specials: Specials, text: str) -> int:
        return sum(1 if isinstance(piece, int) else self._between(piece) for piece in specials.cut(_encodable(text)))


class GgufTokenizer(ByParts):
    """The vocabulary of a GGUF file, or of what Ollama says about one."""

    how = "GGUF vocabulary"

    def __init__(self, vocabulary: Vocabulary, encoder: _Encoder) -> None:
        bos, eos = vocabulary.add_bos, vocabulary.add_eos
        super().__init__(
            encoder,
            *vocabulary.specials(),
            bos=vocabulary.bos if bos else None,
            eos=vocabulary.eos if eos else None,
        )


def tokenizer(vocabulary: Vocabulary) -> GgufTokenizer | None:
    """The tokenizer of a vocabulary; None where it is of a kind that was not verified, or a package is missing."""
    encoder = _Pieces.of(vocabulary) if vocabulary.model == "llama" else _Merges.of(vocabulary)
    return None if encoder is None else GgufTokenizer(vocabulary, encoder)


def _encodable(text: str) -> str:
    """The text without halves of characters, which no server could be sent either."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode(errors="replace").decode()
    return text


class _Merges:
    """Byte-level BPE, and BPE over characters: words, put together in the order of the merges."""

    _between = re.compile(r"(?<=\S\n)(?=[A-Za-z])")
    """No word of any kind reaches over a single line end and into a letter."""

    def __init__(self, built: tokenizers.Tokenizer) -> None:
        self._encode = built.encode

    @classmethod
    def of(cls, vocabulary: Vocabulary) -> _Merges | None:
        steps = SPLITS.get(vocabulary.pre)
        if vocabulary.model not in {"gpt2", "gemma4"} or steps is None:
            return None
        places, merges = _places(vocabulary), list(dict.fromkeys(map(_sides, vocabulary.merges)))
        if not all(left in places and right in places and left + right in places for left, right in merges):
            return None
        with suppress(ImportError):
            unencoded = vocabulary.pre in _UNENCODED
            built = (_characters if unencoded else _bytes)(places, merges, steps, whole=vocabulary.whole)
            return None if built is None else cls(built)
        return None

    def parts(self, text: str) -> Iterator[str]:
        """Chunks, so that of a long text that grows only the end is new."""
        start = 0
        while start < len(text):
            found = self._between.search(text, start + _CHUNK)
            end = min(found.start() if found else len(text), start + _LONGEST_CHUNK)
            yield text[start:end]
            start = end

    def ids(self, part: str) -> list[int]:
        return self._encode(part, add_special_tokens=False).ids


def _places(vocabulary: Vocabulary) -> dict[str, int]:
    return {text: place for place, text in enumerate(vocabulary.tokens)}


def _sides(merge: str) -> tuple[str, str]:
    """What is put together; both sides are empty where there are not two."""
    at = merge.find(" ", 1)
    return ("", "") if at < 0 else (merge[:at], merge[at + 1 :])


def _bytes(
    places: dict[str, int], merges: list[tuple[str, str]], steps: tuple[str, ...], *, whole: bool
) -> tokenizers.Tokenizer | None:
    """Words of bytes, each written as a character; a byte that the vocabulary lacks gives no token."""
    from tokenizers import Regex, Tokenizer, models, pre_tokenizers  # noqa: PLC0415  optional

    missing = "".join(sorted(set(pre_tokenizers.ByteLevel.alphabet()) - places.keys()))
    if missing and whole:
        return None
    found = Tokenizer(models.BPE(places, merges, ignore_merges=whole))
    split = [pre_tokenizers.Split(Regex(step), "isolated") for step in steps]
    encode = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    without = [pre_tokenizers.Split(Regex(f"[{re.escape(missing)}]"), "removed")] if missing else []
    found.pre_tokenizer = pre_tokenizers.Sequence([*split, encode, *without])
    return found


def _characters(
    places: dict[str, int], merges: list[tuple[str, str]], steps: tuple[str, ...], *, whole: bool
) -> tokenizers.Tokenizer | None:
    """Lines of characters; one that the vocabulary lacks gives its bytes.

    Line ends that are a token together are taken whole by llama.cpp: the merges must come to the same.
    """
    from tokenizers import Regex, Tokenizer, models, normalizers, pre_tokenizers  # noqa: PLC0415  optional

    if not places.keys() >= set(_BYTES):
        return None
    found = Tokenizer(models.BPE(places, merges, byte_fallback=True, ignore_merges=whole))
    found.normalizer = normalizers.Replace(" ", _SPACE)
    found.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(step), "isolated") for step in steps])
    ends = [text for text in places if not text.strip("\n")]
    return found if all(found.encode(text).ids == [places[text]] for text in ends) else None


class _Pieces:
    """SentencePiece as llama.cpp does it: neighbours that are a token together are joined, the best score first."""

    def __init__(self, vocabulary: Vocabulary, places: dict[str, int]) -> None:
        self._places = places
        self._costs = dict(zip(vocabulary.tokens, (-score for score in vocabulary.scores), strict=True))
        self._start = " " if vocabulary.add_space_prefix else ""
        crossed = {text[0] for text in re.findall(f"[^{_SPACE}\0](?={_SPACE})", "\0".join(vocabulary.tokens))}
        self._between = re.compile(f"(?<=[^{_SPACE}{re.escape(''.join(crossed))}])(?={_SPACE})")
        """Before a space, but for those characters that some token has before one."""

    @classmethod
    def of(cls, vocabulary: Vocabulary) -> _Pieces | None:
        places = _places(vocabulary)
        return cls(vocabulary, places) if places.keys() >= set(_BYTES) else None

    def parts(self, text: str) -> Iterator[str]:
        """Words with the space before them."""
        for word in self._between.split((self._start + text).replace(" ", _SPACE)):
            yield from (word[start : start + _LONGEST_WORD] for start in range(0, len(word), _LONGEST_WORD))

    def ids(self, part: str) -> list[int]:
        found = list[int]()
        for text in filter(None, self._joined(part)):
            place = self._places.get(text)
            found += [self._places[_BYTES[byte]] for byte in text.encode()] if place is None else [place]
        return found

    def _joined(self, part: str) -> list[str]:
        """What the characters become; a text that was joined to the one before it is empty."""
        texts, after = list(part), [*range(1, len(part) + 1)]
        before = [*range(-1, len(part))]
        costs = self._costs
        queue = [(costs[pair], at, 2) for at in range(len(part) - 1) if (pair := part[at : at + 2]) in costs]
        heapify(queue)
        while queue:
            _, at, length = heappop(queue)
            right = after[at]
            if not texts[at] or right == len(part) or len(texts[at]) + len(texts[right]) != length:
                continue
            texts[at] += texts[right]
            texts[right] = ""
            after[at] = after[right]
            before[after[at]] = at
            for left, other in ((before[at], at), (at, after[at])):
                if left >= 0 and other < len(part) and (pair := texts[left] + texts[other]) in costs:
                    heappush(queue, (costs[pair], left, len(pair)))
        return texts
