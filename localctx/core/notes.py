"""The model's half of a checkpoint: the form that it is asked for in, and how it is checked against its source."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

__all__ = ["HEADINGS", "INSTRUCTION", "LOOP_PENALTY", "Outline", "Refused", "Sections", "accept", "outline"]

Sections = dict[str, tuple[str, ...]]

HEADINGS = {
    "goal": "Goal",
    "constraints": "Constraints & Preferences",
    "covered": "Covered So Far",
    "done": "Done",
    "in_progress": "In Progress",
    "blocked": "Blocked",
    "decisions": "Key Decisions",
    "next_steps": "Next Steps",
    "facts": "Critical Context",
}
"""The fixed headings of a checkpoint, by the key under which a model writes them; three stand under Progress."""

INSTRUCTION = (
    "Before we go on, write notes on our conversation so far, under the headings "
    + ", ".join(HEADINGS.values())
    + ", each as '## Heading' with short plain sentences as '- ' items: what I want, the rules that I gave, what we "
    "covered, what is left. Only facts from above; what earlier notes say was covered stays covered. Notes alone, "
    "no other words."
)
"""What the model is asked for."""

LOOP_PENALTY = 0.4
"""The frequency penalty of a summary: at temperature 0 small models repeat a phrase until they are cut off."""


@dataclass(frozen=True, slots=True)
class Outline:
    """The form of the notes, for a server that can impose one: headings in order, how many items under each, how long."""

    headings: tuple[str, ...]
    items: int
    characters: int


_ITEM_TOKENS = 45
_HEADING_TOKENS = 8
_ITEM_LEAST, _ITEM_MOST = 30, 160


def outline(cap: int, characters_a_token: float) -> Outline:
    """The form that notes of at most about `cap` tokens can have, in a script of so many characters a token."""
    items = max(cap // (_ITEM_TOKENS * len(HEADINGS)), 1)
    characters = int((cap / (items * len(HEADINGS)) - _HEADING_TOKENS) * characters_a_token * _SLACK)
    return Outline(tuple(HEADINGS.values()), items, min(max(characters, _ITEM_LEAST), _ITEM_MOST))


_SLACK = 0.75
"""Notes are denser than the text that they are about."""


@dataclass(frozen=True, slots=True)
class Refused:
    """Why a reply is no summary."""

    reason: str


def accept(text: str, finish: str | None, *, called_tools: bool, source: Iterable[str]) -> Sections | Refused:
    """The model's notes, checked: complete, with headings, grounded in `source`; or why they are refused.

    An item that names a number, a path, an identifier or a quotation that the source does not hold is struck.
    """
    if called_tools:
        return Refused("it calls a tool")
    if finish != "stop":
        return Refused(f"it was cut off (finish reason {finish or 'none'})")
    answer = _without_thinking(text).strip()
    if not answer:
        return Refused("it is empty")
    sections = _from_headings(answer)
    if not sections.get("goal") or len(sections) < 2:  # noqa: PLR2004  a goal and one thing more
        return Refused("its headings are missing")
    haystack = "\n".join(source).lower()
    grounded = {key: kept for key, items in sections.items() if (kept := _grounded(items, haystack))}
    if not grounded.get("goal") or len(grounded) < 2:  # noqa: PLR2004
        return Refused("nothing in it stands in its source")
    return _distinct(grounded)


_THINKING = re.compile(r"<think(?:ing)?>.*?(?:</think(?:ing)?>|\Z)", re.DOTALL | re.IGNORECASE)
_THOUGHT = re.compile(r"\A.*</think(?:ing)?>", re.DOTALL | re.IGNORECASE)


def _without_thinking(text: str) -> str:
    """The text without its reasoning, also where only the end of that is marked."""
    return _THOUGHT.sub("", _THINKING.sub("", text))


_TITLES: Mapping[str, str] = {
    **{heading.lower(): key for key, heading in HEADINGS.items()},
    "open": "in_progress",
    "progress": "in_progress",
}
_TITLE = re.compile(
    r"^(?P<mark>#{1,6}\s|\*\*)?[\s*]*(?:\d+[.)]\s*)?(?P<title>[A-Za-z&][A-Za-z& ]*?)[*\s]*(?::(?P<rest>.*))?$"
)
_BULLET = re.compile(r"^(?:[-*•+]\s+|\d{1,3}[.)]\s+)")
_LONGEST_ITEM = 600
_NOTHING = frozenset({"none", "none.", "(none)", "n/a", "```"})


def _from_headings(answer: str) -> Sections:
    """The items under each heading that is known; a heading that is not known closes the one before it."""
    sections = dict[str, list[str]]()
    items: list[str] | None = None
    for long_line in answer.splitlines():
        line = long_line[:_LONGEST_ITEM]
        title = _TITLE.match(line.strip())
        key = _TITLES.get(title["title"].strip().lower().replace(" and ", " & ")) if title else None
        text = line.strip()
        if title and key:
            items = sections.setdefault(key, [])
            text = title["rest"] or ""  # what stands behind the colon is the first item
        elif text.startswith("#"):
            items = None
        text = " ".join(_BULLET.sub("", _BULLET.sub("", text.strip())).strip(" *").split())
        if items is not None and text and text.lower() not in _NOTHING and not text.startswith("```"):
            items.append(text)
    return {key: tuple(values) for key, values in sections.items() if values}


_CLAIM = re.compile(
    r"`([^`]+)`|\"([^\"]+)\"|((?:[\w.~-]*/){2,}[\w./~-]*|[\w~-]+/[\w-]+\.\w+|\w+\.[a-z]{2,4}\b|\w{2,}\.[a-z]\b|\w+_\w+|\d[\d.,:]*\d|\d+)"
)


def _grounded(items: tuple[str, ...], haystack: str) -> tuple[str, ...]:
    numbers = _plain_number(haystack)
    return tuple(
        item
        for item in items
        if all(c in haystack or _plain_number(c) in numbers for c in _claims(item)) and _heard(item, haystack)
    )


_LONG_WORD = re.compile(r"[^\W\d_]{5,}")
_STEM = 5
_HEARD_SHARE, _FEW_WORDS = 0.4, 3


def _heard(item: str, haystack: str) -> bool:
    """Whether enough of an item's long words, by their stems, occur in the source: else it tells another story."""
    stems = [word[:_STEM] for word in _LONG_WORD.findall(item.lower())]
    return len(stems) < _FEW_WORDS or sum(stem in haystack for stem in stems) >= _HEARD_SHARE * len(stems)


def _claims(item: str) -> list[str]:
    return [next(filter(None, groups)).lower().strip(".,;:") for groups in _CLAIM.findall(item)]


def _plain_number(text: str) -> str:
    """The text with the separators of thousands taken out: 1,000 and 1000 are the same claim."""
    return re.sub(r"(?<=\d),(?=\d{3})", "", text)


def _distinct(sections: Sections) -> Sections:
    """Small models say the same thing under every heading: it is kept where it stands first."""
    seen, kept = set[str](), Sections()
    for key, items in sections.items():
        fresh = tuple(item for item in dict.fromkeys(items) if item.lower() not in seen)
        seen |= {item.lower() for item in fresh}
        if fresh:
            kept[key] = fresh
    return kept
