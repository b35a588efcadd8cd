"""Counting requests: what of a wire message is sent, over any counter of texts."""

from __future__ import annotations

from functools import lru_cache
from math import ceil
from typing import TYPE_CHECKING

from localctx.core.accounting import added
from localctx.core.calibration import Calibration, Rate
from localctx.core.portions import MEDIA_TOKENS, Kind, portions, schema_text

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from localctx.core.accounting import Makeup
    from localctx.core.portions import Portion
    from localctx.ports import Tokenizer

__all__ = ["RequestCounter", "by_tokenizer"]

_STRUCTURE = {
    "frame": Rate(12, 45, 0.2),
    "message": Rate(5, 5, 0.1),
    "toolset": Rate(80, 160, 2),
    "schema": Rate(10, 20, 0.4),
    "call": Rate(14, 18, 0.5),
    "written": Rate(1.0, 1.0, 0.15),
    "reasoning": Rate(1.0, 1.0, 1.0),
    **{medium.value: Rate(tokens, tokens, tokens * 0.03) for medium, tokens in MEDIA_TOKENS.items()},
}
"""What a request costs beside its texts: a template's own words (a default system prompt among them), a message's place in
it, the introduction of tools, one schema, one call; a token of what is `written` in them, which templates put in their own
way or drop, and one of reasoning, which they send back or drop; and media, whose price does not follow their bytes.
Measured over the templates of current models, and bounded where models differ."""

_PLACES = {name: index for index, name in enumerate(_STRUCTURE)}


class RequestCounter:
    """A counter of texts as the engine asks for it: whole requests, and what reports can teach it.

    `classes` gives the units of each class in a text, `rates` what is believed of them.
    """

    def __init__(self, how: str, classes: Callable[[str], Makeup], rates: Sequence[Rate]) -> None:
        self.how, self._classes = how, lru_cache(maxsize=32_768)(classes)
        self._rates = tuple(rate.tokens for rate in rates)
        self.prior = Calibration.of((*rates, *_STRUCTURE.values()))
        self._nothing = (0.0,) * len(rates)

    def size(self, text: str) -> int:
        """About how many tokens a text is."""
        return ceil(sum(rate * units for rate, units in zip(self._rates, self._classes(text), strict=True)))

    def text(self, text: str) -> Makeup:
        """What a text on its own is made of."""
        return self._classes(text) + self._only()

    def message(self, message: Mapping[str, object]) -> Makeup:
        """What a message is made of: its texts, calls, reasoning and media, and its place."""
        return added((self._nothing + self._only(message=1), *map(self._portion, portions(message))))

    def frame(self, tools: Sequence[Mapping[str, object]] = ()) -> Makeup:
        """What a request is made of beside its messages."""
        written = sum(self.size(schema_text(tool)) for tool in tools)
        return self._nothing + self._only(frame=1, toolset=bool(tools), schema=len(tools), written=written)

    def _only(self, **units: float) -> Makeup:
        places = [0.0] * len(_PLACES)
        for name, number in units.items():
            places[_PLACES[name]] = float(number)
        return tuple(places)

    def _portion(self, portion: Portion) -> Makeup:
        match portion.kind:
            case Kind.TEXT:
                return self.text(portion.text)
            case Kind.CALL:
                return self._nothing + self._only(call=1, written=self.size(portion.text))
            case Kind.REASONING:
                return self._nothing + self._only(reasoning=self.size(portion.text))
            case medium:
                return self._nothing + self._only(**{medium: 1})


def by_tokenizer(tokenizer: Tokenizer, *, sure: bool = True) -> RequestCounter:
    """Counting with a vocabulary: where it is `sure` to be the model's, texts are exact; what a template adds is learned."""
    rate = Rate(1.0, 0.0, 0.0) if sure else Rate(1.0, 0.4, 0.05)
    return RequestCounter(tokenizer.how, lambda text: (float(tokenizer.size(text)),), (rate,))
