"""What servers report in numbers, kept only where it can be true."""

from __future__ import annotations

from localctx.core.accounting import Usage

__all__ = ["number", "seconds", "usage"]

_BEYOND = 2**31
"""More tokens, or units of time, than anything here has."""


def number(value: object, *, least: int = 0) -> int | None:
    """A number of tokens; None for text, fractions, less than `least` and more than any server holds."""
    if not isinstance(value, int) or isinstance(value, bool):
        return None
    return value if least <= value < _BEYOND else None


def seconds(value: object, unit: float) -> float | None:
    """A duration that was given in units of `unit` seconds; None for what is none."""
    if not isinstance(value, (int, float)) or isinstance(value, bool):
        return None
    return value * unit if 0 <= value < _BEYOND / unit else None


def usage(
    prompt: object,
    completion: object,
    cached: object = None,
    *,
    prefill_seconds: float | None = None,
    decode_seconds: float | None = None,
) -> Usage:
    """The usage of one reply. A prompt of nothing, or of less than was cached of it, is not the whole prompt: None.

    (In the Anthropic dialect all servers report what was not cached alone; in OpenAI's, the recorded ones report all.)
    """
    whole, part = number(prompt, least=1), number(cached)
    if whole is not None and part is not None and part > whole:
        whole = None
    return Usage(whole, number(completion), part, prefill_seconds, decode_seconds)
