"""The user's own words: which of them a checkpoint keeps, word for word, and which sentences set a rule."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from localctx.core.accounting import head_and_tail
from localctx.core.messages import Words

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

__all__ = ["keep", "rules"]


def keep(
    stands: Sequence[Words], said: Sequence[Words], budget: int, size: Callable[[str], int]
) -> tuple[tuple[Words, ...], int]:
    """What of the user's messages, oldest first, is kept within `budget` tokens, and of how many nothing is.

    The first one always; then what sets a rule, of whichever message; then the newest. A message above a third of the
    budget is kept by head and tail, and of one that finds no room its rules stay; both name the line that has it whole.
    What `stands` since earlier stays as it is while there is room. Once there is none, half of the budget is made free,
    unless the rules and the newest message take it: rarely and deep, since what is behind the first change is read again.
    """
    grown = [*stands, *(_shortened(words, budget // 3, size) for words in said)]
    if sum(size(words.text) for words in grown) <= budget:
        return tuple(grown), 0
    short = [_shortened(words, budget // 3, size) for words in grown]
    first, rest = short[:1], short[1:]
    room = budget - sum(size(words.text) for words in first)
    ruling, room = _ruling(rest, room, size)
    spare = budget // 2 if stands else 0
    newest = list[Words]()
    for words in reversed(rest):
        room -= size(words.text) - (size(ruling[words.seq].text) if words.seq in ruling else 0)
        if room < (spare if newest else 0):
            break
        newest.append(words)
    older = rest[: len(rest) - len(newest)]
    kept = [*first, *(ruling[words.seq] for words in older if words.seq in ruling), *reversed(newest)]
    return tuple(kept), len(short) - len(kept)


def _ruling(said: Sequence[Words], room: int, size: Callable[[str], int]) -> tuple[dict[int, Words], int]:
    """What of each message sets a rule, by its line, the newest first while there is room; and the room that is left."""
    found = dict[int, Words]()
    for words in reversed(said):
        pointer = _pointer(words.seq)
        text = rules(words.text.replace(pointer, " "))
        if text and text != words.text:
            text = min(f"{text}{pointer}", words.text, key=size)
        if text and size(text) <= room:
            found[words.seq] = Words(words.seq, text)
            room -= size(text)
    return found, room


def _shortened(words: Words, most: int, size: Callable[[str], int]) -> Words:
    if size(words.text) <= most:
        return words
    pointer = _pointer(words.seq)
    body = words.text.replace(pointer, " ")
    text = head_and_tail(body, most, size, f"{pointer} ")
    return words if text == body else Words(words.seq, text)


def _pointer(seq: int) -> str:
    return f" [... message #{seq}, shortened ...]"


def rules(text: str) -> str:
    """The sentences of a text that set a rule for what comes; empty where none does."""
    return " ".join(part for part in map(str.strip, _SENTENCE.split(text)) if _RULE.search(part))


_SENTENCE = re.compile(r"(?<=[.!?])\s+|(?<=[\u3002\uff01\uff1f])|\n+")

_RULE = re.compile(
    r"\b(?:never|always|must|from now on|make sure|at most)\b"
    r"|^(?:and |but |please,? )?(?:do not|don['\u2019]t|only|prefer|avoid|remember)\b"
    r"|\b(?:niemals|immer|muss|m\u00fcssen|darf|ab jetzt|jamais|toujours|il faut|d\u00e9sormais|nunca|siempre|debe|sempre|deve|nooit"
    r"|altijd|moet)\b|\u043d\u0438\u043a\u043e\u0433\u0434\u0430|\u0432\u0441\u0435\u0433\u0434\u0430|\u043d\u0435\u043b\u044c\u0437\u044f"
    r"|必ず|ください|禁止|してはいけない|しないで|不要|必须|务必|禁止|반드시|항상|절대",
    re.IGNORECASE,
)
"""Words by which people set a rule. A sentence that has one by chance costs a little room; one that has none may be lost."""
