"""What a model's file says about its tokens, and which of them are cut out of a text before the rest is tokenized.

The rules that no file states stand here as llama.cpp 0c1e57098 has them (`llama-vocab.cpp`), the release that the
differential tests were run against.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from math import isfinite
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

__all__ = ["Specials", "Vocabulary"]

_T = TypeVar("_T")

_PREFIX = "tokenizer.ggml."
_MOST_TOKENS = 1 << 20
_MOST_MERGES = 1 << 21
_MOST_CHARACTERS = 1 << 25
_MOST_SPECIAL = 1 << 20
_MOST_TEMPLATE = 1 << 20
"""Four times what the largest vocabularies have (262,144 tokens, 514,906 merges); characters of all tokens and of the special
ones, ten times as many as any has; a chat template of a megabyte."""

_LONGEST_TANGLE = 4096
"""Characters over which special tokens may overlap one another."""

_NORMAL, _UNKNOWN, _CONTROL, _USER_DEFINED = 1, 2, 3, 4
_SPECIAL = {_UNKNOWN, _CONTROL, _USER_DEFINED}
"""The types of tokens that matter here, by their numbers in a GGUF."""

_NAMED = (
    *("bos", "eos", "eot", "eom", "unknown", "padding", "mask"),
    *("fim_pre", "fim_suf", "fim_mid", "fim_pad", "fim_rep", "fim_sep", "prefix", "suffix", "middle"),
)
"""Tokens that a file may name by id, as `tokenizer.ggml.NAME_token_id`; the last three are older names of the first."""

_LLAMA3 = ("llama3", "llama-v3", "llama-bpe", "falcon3", "falcon-h1", "pixtral", "midm-2.0", "lfm2", "jina-v5-nano")
_BEGIN = {*_LLAMA3, "tekken", "chameleon"}
"""Pre-tokenizers whose prompts begin with BOS where the file does not say."""

_WHOLE = {*_LLAMA3, "tekken", "glm4", "glm5", "minicpm5", "youtu", "granite-embed-multi-97m"}
"""Pre-tokenizers under which a word that is a token is not put together by merges."""

_ALWAYS_BEGIN = {"gemma4", "granite-embed-multi-311m"}
"""Pre-tokenizers whose prompts begin with BOS whatever the file says."""

_WITHOUT_BOS = {"chatglm-bpe", "glm4", "glm5"}
"""Pre-tokenizers without a BOS where the file names none."""

_DEFAULT_IDS = {"llama": {"bos": 1, "eos": 2}, "gpt2": {"bos": 11, "eos": 11}}

_ENDS = {
    *("<|eot_id|>", "<|im_end|>", "<|end|>", "<|return|>", "<|call|>", "<|flush|>", "<|calls|>", "<end_of_turn>"),
    *("<|endoftext|>", "</s>", "<|eom_id|>", "<EOT>", "_<EOT>", "[EOT]", "[EOS]", "<|end_of_text|>"),
    *("<end_of_utterance>", "<eos>", "<turn|>", "<|tool_response>", "<\uff5cend▁of▁sentence\uff5c>", "[e~["),
}
"""Texts that end an answer wherever a vocabulary has them; control tokens whatever type the file gives them."""

_FILL = {
    "fim_pre": (
        *("<|fim_prefix|>", "<fim-prefix>", "<fim_prefix>", "<\uff5cfim▁begin\uff5c>", "<PRE>", "▁<PRE>"),
        *("<|code_prefix|>", "<|prefix|>"),
    ),
    "fim_suf": (
        *("<|fim_suffix|>", "<fim-suffix>", "<fim_suffix>", "<\uff5cfim▁hole\uff5c>", "<SUF>", "▁<SUF>"),
        *("<|code_suffix|>", "<|suffix|>"),
    ),
    "fim_mid": (
        *("<|fim_middle|>", "<fim-middle>", "<fim_middle>", "<\uff5cfim▁end\uff5c>", "<MID>", "▁<MID>"),
        *("<|code_middle|>", "<|middle|>"),
    ),
    "fim_pad": ("<|fim_pad|>", "<fim-pad>", "<fim_pad>", "<PAD>", "[PAD]"),
    "fim_rep": ("<|fim_repo|>", "<|repo_name|>", "<fim-repo>", "<REPO>", "<reponame>"),
    "fim_sep": ("<|file_sep|>",),
}
"""Texts that are control tokens unless the file names the token of that use; of several llama.cpp takes any, here all are."""

_OLDER = {"fim_pre": "prefix", "fim_suf": "suffix", "fim_mid": "middle"}

_SHOWN = {"<|channel|>", "<|message|>", "<|start|>", "<|constrain|>"}
"""Tokens of gpt-oss that are user-defined whatever type the file gives them."""

_CHATML = """\
{% for message in messages %}<|im_start|>{{ message.role }}
{{ message.content }}<|im_end|>
{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant
{% endif %}"""

_SPACE = " \t\n\v\f\r"


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """The tokens of a model as llama.cpp reads them: what the file leaves out has llama.cpp's default.

    `types` and `scores` are as long as `tokens`; a merge is two texts with a space between. `ids` holds the tokens that
    have a use (`bos`, `eos`, `fim_pre`, ...). `name` is the model's own, which llama.cpp looks at too; `tool_template`
    is the one for requests with tools, where there is another.
    """

    model: str
    pre: str
    tokens: tuple[str, ...]
    types: tuple[int, ...]
    scores: tuple[float, ...]
    merges: tuple[str, ...]
    ids: Mapping[str, int]
    add_bos: bool
    add_eos: bool
    add_space_prefix: bool
    template: str | None = None
    tool_template: str | None = None
    name: str = ""

    @classmethod
    def of(cls, metadata: Mapping[str, object]) -> Vocabulary | None:
        """The vocabulary that a file's header or Ollama's `model_info` describes; None where it is missing or cannot be true."""
        try:
            return _read(metadata)
        except (ValueError, OverflowError):
            return None

    @property
    def whole(self) -> bool:
        """Whether a word that is a token is taken as it is, without merges."""
        return self.pre in _WHOLE

    @property
    def bos(self) -> str:
        """The text of the token that begins a prompt; empty where there is none."""
        return self._text("bos")

    @property
    def eos(self) -> str:
        """The text of the token that ends an answer; empty where there is none."""
        return self._text("eos")

    def chat_template(self, *, tools: bool) -> str:
        """The template of a request with or without tools; ChatML where the file has none, as llama.cpp serves it."""
        return (self.tool_template if tools else None) or self.template or _CHATML

    def specials(self) -> tuple[Specials, Specials]:
        """The tokens that are cut out of any text, which are the user-defined ones, and those that are cut out of a prompt."""
        places = {text: place for place, text in enumerate(self.tokens)}
        kinds = _kinds(self, places)
        strips = frozenset(kinds) - {"<unk>", "<s>", "<|endoftext|>"} if _strips(self) else frozenset()
        of_users = {text: places[text] for text, kind in kinds.items() if kind == _USER_DEFINED}
        return Specials(of_users, strips), Specials({text: places[text] for text in kinds}, strips)

    def _text(self, name: str) -> str:
        return self.tokens[self.ids[name]] if name in self.ids else ""


def _kinds(vocabulary: Vocabulary, places: Mapping[str, int]) -> dict[str, int]:
    """The special tokens with the types that llama.cpp gives them."""
    typed = zip(vocabulary.tokens, vocabulary.types, strict=True)
    kinds = {text: kind for text, kind in typed if kind in _SPECIAL}
    kinds |= dict.fromkeys(_ENDS & places.keys(), _CONTROL)
    for use, texts in _FILL.items():
        if not vocabulary.ids.keys() & {use, _OLDER.get(use, use)}:
            kinds |= dict.fromkeys(places.keys() & set(texts), _CONTROL)
    kinds |= dict.fromkeys(_SHOWN & places.keys(), _USER_DEFINED)
    ends = _ENDS & places.keys()
    if ends >= {"<|return|>", "<|call|>", "<|end|>"} or ends >= {"<|calls|>", "<|flush|>", "<|end|>"}:
        kinds["<|end|>"] = _USER_DEFINED
    if "<|tool_response>" in ends:
        kinds.pop("</s>", None)
    return kinds


def _strips(vocabulary: Vocabulary) -> bool:
    """Whether special tokens swallow the white space behind them."""
    return any(name in vocabulary.name.lower() for name in ("phi-3", "phi3"))


class Specials:
    """Texts that are one token each wherever they stand; those in `strips` swallow the white space behind them.

    The longest (in bytes) is looked for first, each from left to right, in what the ones before it left.
    """

    def __init__(self, ids: Mapping[str, int], strips: frozenset[str] = frozenset()) -> None:
        self.ids, self._strips = ids, strips
        order = sorted(ids, key=lambda text: (-len(text.encode()), ids[text]))
        self._order = {text: place for place, text in enumerate(order)}
        self._tree, self._runs = _tree(order), _runs(order)
        self._first = _beginnings(self._tree, self._runs) if order else None

    def cut(self, text: str) -> Iterator[str | int]:
        """The text from left to right: ids of special tokens, and what stands between them."""
        at = 0
        for start, special in self._chosen(text):
            if start > at:
                yield text[at:start]
            yield self.ids[special]
            at = start + len(special)
            while special in self._strips and at < len(text) and text[at] in _SPACE:
                at += 1
        if at < len(text):
            yield text[at:]

    def _chosen(self, text: str) -> Iterator[tuple[int, str]]:
        """The special tokens that are cut out, and where each begins."""
        at = 0
        while self._first and (match := self._first.search(text, at)):
            start = match.start()
            if lengths := self._runs.get(text[start]):
                at = _end_of_run(text, start)
                yield from _filled(text, start, at, lengths)
            elif alone := self._alone(self._first, text, start):
                yield start, alone
                at = start + len(alone)
            else:
                at = self._reach(text, start)
                yield from self._settled(text, start, at)
                at = max(at, start + 1)

    def _alone(self, first: re.Pattern[str], text: str, start: int) -> str | None:
        """The longest special token that begins there, if none could begin within it."""
        longest = max(self._beginning(text, start), key=len, default="")
        end = start + len(longest)
        within = first.search(text, start + 1, end + 1)
        return longest if within is None or within.start() >= end else None

    def _beginning(self, text: str, start: int) -> Iterator[str]:
        """The special tokens that begin there, the longest last."""
        node = self._tree
        for at in range(start, len(text)):
            if (node := node.get(text[at], _NOTHING)) is _NOTHING:
                return
            if "" in node:
                yield node[""]

    def _reach(self, text: str, start: int) -> int:
        """Where the special tokens end that begin there, or overlap with such a one in any number of steps."""
        end, at = start, start
        while at == start or at < min(end, start + _LONGEST_TANGLE):
            end = max([end, *(at + len(special) for special in self._beginning(text, at))])
            at += 1
        return end

    def _settled(self, text: str, start: int, end: int) -> list[tuple[int, str]]:
        """Which of those that overlap in a stretch of the text are cut out."""
        each = ((at, special) for at in range(start, end) for special in self._beginning(text, at))
        found = [(self._order[special], at, special) for at, special in each if at + len(special) <= end]
        chosen, taken = [], bytearray(end - start)
        for _, at, special in sorted(found):
            place = slice(at - start, at - start + len(special))
            if not any(taken[place]):
                taken[place] = b"\1" * len(special)
                chosen.append((at, special))
        return sorted(chosen)


_NOTHING: dict[str, Any] = {}


def _tree(texts: list[str]) -> dict[str, Any]:
    """The texts a character at a time; the empty key holds the text that ends there."""
    tree = dict[str, Any]()
    for text in texts:
        node = tree
        for character in text:
            node = node.setdefault(character, {})
        node[""] = text
    return tree


def _beginnings(tree: dict[str, Any], runs: dict[str, list[int]]) -> re.Pattern[str]:
    """Where a special token may begin, by its first two characters; a run, by as many as the shortest has."""
    choices = [re.escape(character * lengths[-1]) for character, lengths in runs.items()]
    for character in tree.keys() - runs.keys():
        after = tree[character].keys()
        choices.append(re.escape(character) + ("" if "" in after else f"(?=[{re.escape(''.join(after))}])"))
    return re.compile("|".join(choices))


def _runs(texts: list[str]) -> dict[str, list[int]]:
    """Characters that occur only as one over and over, such as spaces or line ends, and how often, the most first."""
    mixed = {character for text in texts if len(set(text)) > 1 for character in text}
    runs = dict[str, list[int]]()
    for text in texts:
        if not mixed & set(text):
            runs.setdefault(text[0], []).append(len(text))
    return runs


def _end_of_run(text: str, start: int) -> int:
    end = start
    while end < len(text) and text[end] == text[start]:
        end += 1
    return end


def _filled(text: str, start: int, end: int, lengths: list[int]) -> Iterator[tuple[int, str]]:
    """What is cut out of a run of one character."""
    for length in lengths:
        while end - start >= length:
            yield start, text[start : start + length]
            start += length


def _read(metadata: Mapping[str, object]) -> Vocabulary:
    """Raises `ValueError` where something is missing, of another type or too much."""
    model = _one(metadata, "model", str)
    pre = "gemma4" if model == "gemma4" else _one(metadata, "pre", str, "default")
    tokens = tuple(text or f"[EMPTY_{place}]" for place, text in enumerate(_texts(metadata, "tokens", _MOST_TOKENS)))
    if not tokens or len(set(tokens)) < len(tokens):
        raise ValueError("tokens")
    types = _numbers(metadata, "token_type", {int}, len(tokens), _NORMAL)
    if sum(len(text) for text, kind in zip(tokens, types, strict=True) if kind in _SPECIAL) > _MOST_SPECIAL:
        raise ValueError("token_type")
    spm = model == "llama"
    begins = _one(metadata, "add_bos_token", bool, spm or pre in _BEGIN) or pre in _ALWAYS_BEGIN
    if spm and metadata.get("general.architecture") == "phi3" and "general.name" not in metadata:
        raise ValueError("name")  # it decides what special tokens swallow; Ollama does not tell
    ids = _ids(metadata, model, pre, len(tokens))
    if begins and "bos" not in ids:
        raise ValueError("bos")
    return Vocabulary(
        model=model,
        pre=pre,
        tokens=tokens,
        types=types,
        scores=_numbers(metadata, "scores", {int, float}, len(tokens), 0.0),
        merges=_texts(metadata, "merges", _MOST_MERGES) if f"{_PREFIX}merges" in metadata else (),
        ids=ids,
        add_bos=begins,
        add_eos=_one(metadata, "add_eos_token", bool, default=False) and "eos" in ids,
        add_space_prefix=_one(metadata, "add_space_prefix", bool, spm),
        template=_template(metadata.get("tokenizer.chat_template")),
        tool_template=_template(metadata.get("tokenizer.chat_template.tool_use")),
        name=name if isinstance(name := metadata.get("general.name"), str) else "",
    )


def _one(metadata: Mapping[str, object], name: str, kind: type[_T], default: _T | None = None) -> _T:
    value = metadata.get(_PREFIX + name, default)
    if type(value) is not kind:
        raise ValueError(name)
    return value


def _texts(metadata: Mapping[str, object], name: str, most: int) -> tuple[str, ...]:
    values = metadata.get(_PREFIX + name)
    if not isinstance(values, (list, tuple)) or len(values) > most or set(map(type, values)) - {str}:
        raise ValueError(name)
    if sum(map(len, values)) > _MOST_CHARACTERS:
        raise ValueError(name)
    "".join(values).encode()  # half a character is a ValueError too
    return tuple(values)


def _numbers(
    metadata: Mapping[str, object], name: str, kinds: set[type], count: int, default: float
) -> tuple[Any, ...]:
    values = metadata.get(_PREFIX + name)
    if values is None:
        return (default,) * count
    if not isinstance(values, (list, tuple)) or len(values) != count or set(map(type, values)) - kinds:
        raise ValueError(name)
    if not all(map(isfinite, values)):
        raise ValueError(name)
    return tuple(values)


def _ids(metadata: Mapping[str, object], model: str, pre: str, count: int) -> dict[str, int]:
    """The named tokens. One that is none is left out, as llama.cpp does, but for BOS and EOS."""
    ids = {name: place for name, place in _DEFAULT_IDS.get(model, {}).items() if place < count}
    if pre in _WITHOUT_BOS:
        ids.pop("bos", None)
    for name in _NAMED:
        place = metadata.get(f"{_PREFIX}{name}_token_id")
        if type(place) is int and 0 <= place < count:
            ids[name] = place
        elif place is not None and name in {"bos", "eos"}:
            raise ValueError(name)
    return ids


def _template(value: object) -> str | None:
    return value if isinstance(value, str) and len(value) <= _MOST_TEMPLATE else None
