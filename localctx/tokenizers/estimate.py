"""Tokens of a text without a tokenizer: a class of characters at a time, with an honest error bound."""

from __future__ import annotations

import json
import re
from functools import lru_cache
from math import ceil
from typing import TYPE_CHECKING, NamedTuple

from localctx.core.accounting import Count

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

__all__ = ["ClassEstimate", "Estimate", "estimate"]

_MESSAGE = 5
"""Tokens that a chat template spends on a message: role, separators."""

_MEDIA = 1100
"""Tokens of an image or file whatever its bytes: the order of what current vision models spend on one."""

_CLASSES = re.compile(
    r"(?P<dense>[A-Za-z0-9+/=_-]{40,})|(?P<word>[A-Za-z]+)|(?P<digits>[0-9]+)|(?P<line>[^\S\n]*\n\s*)|(?P<space>\s+)"
    r"|(?P<mark>[!-/:-@\[-`{-~]+)|(?P<latin>[\u00a1-\u024f]+)|(?P<other>[^\x00-\u024f]+)|(?P<control>.)"
)

_WORD, _LONG = 6, 12
"""Letters of an English word that common vocabularies hold as one token, and from where a word is in no vocabulary."""

_RATES = {
    "dense": (0.6, 0.6),
    "word": (1.0, 0.3),
    "digits": (0.8, 0.6),
    "line": (0.8, 0.5),
    "space": (0.3, 0.8),
    "mark": (0.75, 0.4),
    "latin": (0.7, 0.6),
    "other": (0.95, 2.2),
    "control": (1.0, 1.0),
}
"""Tokens a character (a word for words, a break for lines), and the share by which that may be off: vocabularies differ
least on English and most on scripts other than Latin (measured on those of SmolLM2, Gemma 3 and cl100k)."""


class Estimate(NamedTuple):
    """About how many tokens, and by how many that may be off."""

    tokens: int
    bound: int


@lru_cache(maxsize=32_768)
def estimate(text: str) -> Estimate:
    """About how many tokens a text is; memoised by text, so that only new text costs anything."""
    total = slack = 0.0
    for match in _CLASSES.finditer(text):
        kind = match.lastgroup or "control"
        rate, off = _RATES[kind]
        tokens = rate * _units(kind, match.end() - match.start())
        total += tokens
        slack += tokens * off
    return Estimate(ceil(total), ceil(slack))


def _units(kind: str, length: int) -> float:
    """How many units of its class a run of characters is."""
    match kind:
        case "word":
            return max(1.0, length / _WORD) if length <= _LONG else 2 + (length - _LONG) / 2.5
        case "line":
            return 1 + 0.1 * (length - 1)
        case "space":
            return 0.0 if length == 1 else length
    return length


class ClassEstimate:
    """The estimate as the engine asks for it."""

    def size(self, text: str) -> int:
        """About how many tokens a text is."""
        return estimate(text).tokens

    def request(self, messages: Iterable[Mapping[str, object]], tools: Iterable[Mapping[str, object]] = ()) -> Count:
        """About how many tokens a chat request is: all that goes on the wire, tool schemas and reasoning included."""
        texts = [estimate(json.dumps(tool, ensure_ascii=False)) for tool in tools]
        texts += [part for message in messages for part in _message(message)]
        return Count(sum(text.tokens for text in texts), sum(text.bound for text in texts), "estimate")


def _message(message: Mapping[str, object]) -> Iterator[Estimate]:
    yield Estimate(_MESSAGE, _MESSAGE)
    rest = {key: value for key, value in message.items() if key not in {"role", "content"}}
    if rest:
        yield estimate(json.dumps(rest, ensure_ascii=False))
    content = message.get("content")
    if isinstance(content, str):
        yield estimate(content)
    elif isinstance(content, list):
        yield from (_part(part) for part in content)


def _part(part: object) -> Estimate:
    if isinstance(part, dict) and isinstance(part.get("text"), str):
        return estimate(part["text"])
    return Estimate(_MEDIA, _MEDIA)
