"""The counter of the agent that localctx started from: the baseline to beat, its weaknesses included.

It is restated from that agent's behaviour, not meant for use: it leaves tool schemas out of the first count and its
ratio cannot fall below two characters a token, so Chinese, Japanese and Korean are counted too low.
"""

from __future__ import annotations

import json
from math import ceil, floor
from typing import TYPE_CHECKING

from localctx.core.accounting import Count

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

__all__ = ["SeedRatio"]

_MESSAGE = 4
_TOOL_RESULT = 10
_NEW = 0.7
"""The share of a new report in what is learned."""

_LEAST, _MOST = 2.0, 6.0
"""The characters a token between which the learned ratio is held."""

_RATIOS = {
    "openai-o200k": 4.0,
    "openai-cl100k": 4.0,
    "anthropic": 3.5,
    "gemini": 4.0,
    "mistral": 3.8,
    "llama": 3.6,
    "qwen": 3.5,
    "deepseek": 3.8,
    "unknown": 4.0,
}
"""Characters a token before anything was learned."""

_OPENAI = ("gpt-", "o1", "o3")
_O200K = ("gpt-4o", "gpt-4.1", "gpt-5", "o1", "o3")
_FAMILIES = (
    ("anthropic", {"anthropic"}, ("claude",)),
    ("gemini", {"gemini"}, ("gemini",)),
    ("mistral", {"mistral"}, ("mistral", "ministral", "magistral")),
    ("llama", set[str](), ("llama",)),
    ("qwen", {"alibaba", "moonshotai", "minimax", "zhipuai"}, ("qwen", "kimi", "minimax", "glm")),
    ("deepseek", {"deepseek"}, ("deepseek",)),
)
"""The families without a tokenizer, in the order of the match: providers, and what a model's name contains."""

_INLINE = 2
"""Attachments are sent with this many of the newest user messages; older ones are described in words."""

_PIXELS, _IMAGE, _PAGE, _AUDIO, _VIDEO = 750, 3_300, 2_000, 32, 290
"""Pixels a token of an image, the most of one image, and tokens of a PDF page, a second of sound and one of film."""

_UNPROBED = {"image": _IMAGE, "pdf": 10 * _PAGE, "audio": 60 * _AUDIO, "video": 60 * _VIDEO}
"""Tokens of an attachment of which nothing was measured."""

_DOT = " \u00b7 "
_PARTS = {"image_url": "image", "input_audio": "audio", "video_url": "video", "file": "pdf"}


class SeedRatio:
    """Characters by a ratio that is learned from reports; exact only where `bpe` counts for an OpenAI family.

    Lengths are UTF-16 code units. A message's `attachments` are mappings with `kind` (image, pdf, audio or video),
    `path`, `byteSize` and, where measured, `width`, `height`, `durationSeconds` and `pageCount`; the parts of a content
    list that are not text count as attachments of which nothing was measured.

    Args:
        model: the model's name as the provider has it.
        provider: the provider's key.
        bpe: the exact counter of an OpenAI encoding; without it, or where it raises `ValueError`, the ratio counts.
    """

    def __init__(self, model: str = "", provider: str = "", bpe: Callable[[str], int] | None = None) -> None:
        self.family = _family(model.lower(), provider.lower())
        self._bpe = bpe if self.family.startswith("openai-") else None
        self.reset()

    def reset(self) -> None:
        """Forgets what reports have taught."""
        self._ratio: float | None = None
        self._overhead: int | None = None

    @property
    def ratio(self) -> float:
        """Characters a token: learned, or before the first report those of the family."""
        return _RATIOS[self.family] if self._ratio is None else self._ratio

    @property
    def overhead(self) -> int:
        """Tokens of a request beside its messages, as far as reports have told; 0 before the first."""
        return self._overhead or 0

    def size(self, text: str) -> int:
        """Tokens of a text."""
        return self._tokens(text, _units(text))

    def message(self, message: Mapping[str, object]) -> int:
        """Tokens of a message on its own, its attachments at their full price."""
        return self._words(message) + sum(_price(each) for each in _attachments(message))

    def messages(self, messages: Iterable[Mapping[str, object]]) -> int:
        """Tokens of a list of messages; attachments of older user messages cost what their description costs."""
        given = list(messages)
        users = [number for number, message in enumerate(given) if message.get("role") == "user"]
        return sum(
            self.message(message) if number in users[-_INLINE:] else self._described(message)
            for number, message in enumerate(given)
        )

    def request(self, messages: Iterable[Mapping[str, object]], tools: Iterable[Mapping[str, object]] = ()) -> Count:  # noqa: ARG002  the seed does not count schemas
        """Tokens of a request: the messages and the learned overhead; tool schemas count only through that.

        The bound is 0 since the seed states none: it says nothing of how far off the count is.
        """
        return Count(self.messages(messages) + self.overhead, 0, "the seed's ratio")

    def learn(self, messages: Iterable[Mapping[str, object]], prompt_tokens: int) -> None:
        """Corrects ratio and overhead by what a server reported of a request; without tokens or text it learns nothing."""
        given = list(messages)
        characters = sum(_units(_content(message)) + _call_units(message) for message in given)
        if prompt_tokens <= 0 or characters == 0:
            return
        observed = characters / max(1, prompt_tokens - self.overhead)
        self._ratio = min(max(_smoothed(self._ratio, observed), _LEAST), _MOST)
        beside = max(0, prompt_tokens - self.messages(given))
        self._overhead = floor(_smoothed(self._overhead, beside) + 0.5)

    def _tokens(self, text: str, units: int) -> int:
        if text and self._bpe is not None:
            try:
                return self._bpe(text)
            except ValueError:
                pass
        return ceil(units / self.ratio)

    def _words(self, message: Mapping[str, object]) -> int:
        tokens = _MESSAGE + self.size(_content(message))
        if calls := _calls(message):
            return tokens + self._tokens(calls, _call_units(message))
        return tokens + (_TOOL_RESULT if message.get("role") == "tool" and message.get("tool_call_id") else 0)

    def _described(self, message: Mapping[str, object]) -> int:
        return self._words(message) + sum(self.size(_description(each)) for each in _attachments(message))


def _family(model: str, provider: str) -> str:
    if provider == "openai" or model.startswith(_OPENAI):
        return "openai-o200k" if model.startswith(_O200K) else "openai-cl100k"
    for family, providers, names in _FAMILIES:
        if provider in providers or any(name in model for name in names):
            return family
    return "unknown"


def _smoothed(before: float | None, observed: float) -> float:
    return observed if before is None else (1 - _NEW) * before + _NEW * observed


def _units(text: str) -> int:
    return len(text.encode("utf-16-le", "surrogatepass")) // 2


def _content(message: Mapping[str, object]) -> str:
    content = message.get("content")
    if isinstance(content, list):
        return "".join(part["text"] for part in content if isinstance(part, dict) and isinstance(part.get("text"), str))
    return content if isinstance(content, str) else ""


def _calls(message: Mapping[str, object]) -> str:
    """The tool calls as compact JSON, or nothing."""
    calls = message.get("tool_calls")
    return json.dumps(calls, ensure_ascii=False, separators=(",", ":")) if calls else ""


def _call_units(message: Mapping[str, object]) -> int:
    """The length of that JSON, in which half a surrogate pair is written as an escape."""
    return len(_calls(message).encode("utf-16-le", "backslashreplace")) // 2


def _attachments(message: Mapping[str, object]) -> list[Mapping[str, object]]:
    given, content = message.get("attachments"), message.get("content")
    listed = [each for each in given if isinstance(each, dict)] if isinstance(given, list) else []
    parts = [part.get("type") for part in content if isinstance(part, dict)] if isinstance(content, list) else []
    return [*listed, *({"kind": _PARTS[kind]} for kind in parts if isinstance(kind, str) and kind in _PARTS)]


def _price(attachment: Mapping[str, object]) -> int:
    """Tokens of an attachment that is sent."""
    match attachment:
        case {"kind": "image", "width": int(width), "height": int(height)}:
            return min(ceil(width * height / _PIXELS), _IMAGE)
        case {"kind": "pdf", "pageCount": int(pages)}:
            return pages * _PAGE
        case {"kind": "audio", "durationSeconds": int(seconds) | float(seconds)}:
            return ceil(seconds * _AUDIO)
        case {"kind": "video", "durationSeconds": int(seconds) | float(seconds)}:
            return ceil(seconds * _VIDEO)
    return _UNPROBED.get(str(attachment.get("kind")), 0)


def _description(attachment: Mapping[str, object]) -> str:
    """What stands for an attachment that is no longer sent."""
    words = [str(attachment.get("kind", "")), str(attachment.get("path", ""))]
    match attachment:
        case {"width": int(width), "height": int(height)}:
            words.append(f"{width}\u00d7{height}")
    match attachment:
        case {"durationSeconds": int(seconds) | float(seconds)}:
            words.append(f"{seconds:.1f}s")
    match attachment:
        case {"pageCount": int(pages)}:
            words.append(f"{pages} pages")
    size = attachment.get("byteSize")
    kilobytes = floor(size / 1024 + 0.5) if isinstance(size, int) else 0
    return f"[{_DOT.join([*words, f'{kilobytes} KB'])}]"
