"""The checkpoint: what stands for older turns, who writes which half of it, and how the model's half is checked.

The machine writes what needs no judgement: the user's words, files, commands, the last action; it is cumulative. The
model writes the prose under fixed headings. A checkpoint is merged, never nested: the new one replaces the old.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING

from localctx.core.accounting import head_and_tail
from localctx.core.messages import (
    Checkpoint,
    Facts,
    History,
    Interjection,
    Message,
    Said,
    ToolCall,
    ToolCycle,
    Words,
    plain,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

__all__ = [
    "HEADINGS",
    "INSTRUCTION",
    "LOOP_PENALTY",
    "Outline",
    "Sections",
    "accept",
    "capped",
    "machine_half",
    "outline",
    "render",
    "summary_cap",
    "transcript",
    "with_notes",
    "words_budget",
]

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

_PROGRESS = ("done", "in_progress", "blocked")

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

_CAP_SHARE, _CAP_LEAST = 0.10, 400
_WORDS_SHARE = 0.15


def summary_cap(window: int) -> int:
    """The most tokens that a checkpoint's notes may take: 10 % of the window, at least 400."""
    return max(int(window * _CAP_SHARE), _CAP_LEAST)


def words_budget(window: int) -> int:
    """The tokens that the user's own words may take in a checkpoint: 15 % of the window."""
    return int(window * _WORDS_SHARE)


def render(checkpoint: Checkpoint) -> str:
    """The checkpoint as the model reads it: the user's words, then the notes."""
    said = "\n\n".join(words.text for words in checkpoint.words)
    more = f"\n\n(+{checkpoint.unsaid} more messages of the user: recall)" if checkpoint.unsaid else ""
    words = f"Earlier messages of the user, word for word:\n\n{said}{more}\n\n" if said else ""
    notes = _notes(checkpoint)
    return (
        f"{words}Notes on the earlier part of this conversation (a record, not instructions):\n{notes}\n(end of notes)"
    )


def _notes(checkpoint: Checkpoint) -> str:
    sections = dict(checkpoint.sections)
    lines = list[str]()
    for key, heading in HEADINGS.items():
        items = sections.get(key, ())
        if key == "done" and any(sections.get(part) for part in _PROGRESS):
            lines.append("## Progress")
        if items:
            lines.append(f"{'###' if key in _PROGRESS else '##'} {heading}")
            lines += [f"- {item}" for item in items]
    lines += _facts_lines(checkpoint.facts)
    if checkpoint.author == "machine":
        lines.append(f"- Messages up to #{checkpoint.through} were dropped without a summary by a model.")
    if checkpoint.shed:
        lines.append(f"- +{checkpoint.shed} more notes: recall")
    return "\n".join(lines)


_FACT_TITLES = {
    "read": "Files read",
    "modified": "Files modified",
    "commands": "Commands run",
    "sources": "Sources covered",
    "errors": "Open errors",
}


def _facts_lines(facts: Facts) -> list[str]:
    lines = [
        f"- {title}: {'; '.join(values)}" for name, title in _FACT_TITLES.items() if (values := getattr(facts, name))
    ]
    if facts.last_action:
        lines.append(f"- Last action: {facts.last_action}")
    return ["## Recorded from the calls (do not redo)", *lines] if lines else []


def capped(checkpoint: Checkpoint, cap: int, size: Callable[[str], int]) -> Checkpoint:
    """The checkpoint with its notes within `cap`: the oldest items of the longest lists go first, and are counted."""
    while size(_notes(checkpoint)) > cap:
        shorter = _shed_section(checkpoint) or _shed_fact(checkpoint)
        if shorter is None:
            return checkpoint
        checkpoint = replace(shorter, shed=checkpoint.shed + 1)
    return checkpoint


_KEPT_LAST = ("constraints", "goal")


def _shed_section(checkpoint: Checkpoint) -> Checkpoint | None:
    sections = dict(checkpoint.sections)
    loose = [key for key, items in sections.items() if items and key not in _KEPT_LAST]
    longest = max(loose, key=lambda key: sum(map(len, sections[key])), default=None)
    if longest is None:
        return None
    sections[longest] = sections[longest][1:]
    return replace(checkpoint, sections=tuple(sections.items()))


def _shed_fact(checkpoint: Checkpoint) -> Checkpoint | None:
    lists = {field.name: getattr(checkpoint.facts, field.name) for field in fields(Facts) if field.name in _FACT_TITLES}
    longest = max(lists, key=lambda name: sum(map(len, lists[name])))
    if not lists[longest]:
        return None
    return replace(checkpoint, facts=replace(checkpoint.facts, **{longest: lists[longest][1:]}))


# --- the machine's half -------------------------------------------------------------------------------------------


def machine_half(covered: History, through: int, window: int, size: Callable[[str], int]) -> Checkpoint:
    """A valid checkpoint of `covered` (its earlier checkpoint included) that needs no model, within its caps."""
    old = covered.checkpoint or Checkpoint(0, "machine")
    words, unsaid = _keep_words(old, covered, words_budget(window), size)
    facts = old.facts
    for _, unit in covered.units():
        if isinstance(unit, ToolCycle):
            facts = _learn(facts, unit)
    sections = dict(old.sections)
    if last := _last_said(covered, size):
        sections["in_progress"] = (last,)
    new = Checkpoint(through, "machine", tuple(sections.items()), facts, words, unsaid, old.shed)
    return capped(new, summary_cap(window), size)


_LAST_SAID = 60


def _last_said(covered: History, size: Callable[[str], int]) -> str:
    texts = [plain(unit.content) for _, unit in covered.units() if isinstance(unit, (Said, ToolCycle))]
    last = next((" ".join(text.split()) for text in reversed(texts) if text.strip()), "")
    return f"The last reply before this: {head_and_tail(last, _LAST_SAID, size, ' ... ')}" if last else ""


def _keep_words(
    old: Checkpoint, covered: History, budget: int, size: Callable[[str], int]
) -> tuple[tuple[Words, ...], int]:
    said = [_user_words(unit) for _, unit in covered.units()]
    every = [*old.words, *(words for words in said if words is not None and words.text)]
    share = budget // 3
    short = [
        Words(w.seq, head_and_tail(w.text, share, size, f" [... message #{w.seq} goes on: recall ...] ")) for w in every
    ]
    kept = short[:1]
    room = budget - sum(size(words.text) for words in kept)
    newest = list[Words]()
    for words in reversed(short[1:]):
        room -= size(words.text)
        if room < 0:
            break
        newest.append(words)
    kept += reversed(newest)
    return tuple(kept), old.unsaid + len(short) - len(kept)


def _user_words(unit: object) -> Words | None:
    message = unit.message if isinstance(unit, Interjection) else unit
    if isinstance(message, Message) and message.role == "user":
        return Words(message.seq, plain(message.content))
    return None


_PATH_KEYS = re.compile(r"^(path|file|source|filename|.*_path|.*_file)$")
_WRITERS = re.compile(r"write|edit|create|patch|replace|move|^mv$|^cp$|^rm$|^mkdir$")
_RUNNERS = re.compile(r"command|shell|bash|exec")
_LONG = 80


def _learn(facts: Facts, cycle: ToolCycle) -> Facts:
    for call in cycle.calls:
        result = next((plain(r.content) for r in cycle.results if r.call_id == call.id), None)
        facts = _learn_call(facts, call, result)
    return facts


def _learn_call(facts: Facts, call: ToolCall, result: str | None) -> Facts:
    try:
        arguments = json.loads(call.arguments)
    except ValueError:
        return facts
    if not isinstance(arguments, dict):
        return facts
    texts = {key: value for key, value in arguments.items() if isinstance(value, str)}
    action = f"{call.name}({_clip(', '.join(texts.values()))})"
    failed = result is not None and result.lower().startswith("error")
    if failed:
        return replace(facts, errors=_with(facts.errors, f"{action}: {_clip(str(result))}"), last_action=action)
    paths = [value for key, value in texts.items() if _PATH_KEYS.match(key)]
    target = "modified" if _WRITERS.search(call.name) else "read"
    facts = replace(facts, **{target: _with(getattr(facts, target), *paths)}, last_action=action)
    if _RUNNERS.search(call.name) and (command := texts.get("command") or texts.get("cmd")):
        outcome = _clip((result or "no result").strip().splitlines()[-1] if (result or "").strip() else "no output")
        facts = replace(facts, commands=_with(facts.commands, f"{_clip(command)} -> {outcome}"))
    return replace(
        facts, sources=_with(facts.sources, *(v for v in texts.values() if v.startswith(("http://", "https://"))))
    )


def _with(known: tuple[str, ...], *new: str) -> tuple[str, ...]:
    return tuple(dict.fromkeys((*known, *new)))


def _clip(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= _LONG else line[: _LONG - 1] + "…"


# --- the model's half ---------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Outline:
    """The form of the notes, for a server that can impose one: headings in order, how many items under each, how long."""

    headings: tuple[str, ...]
    items: int
    characters: int


_ITEM_TOKENS = 45
_HEADING_TOKENS = 8
_CHARACTERS_A_TOKEN = 2.5


def outline(cap: int) -> Outline:
    """The form that notes of at most about `cap` tokens can have."""
    items = max(cap // (_ITEM_TOKENS * len(HEADINGS)), 1)
    characters = int((cap / (items * len(HEADINGS)) - _HEADING_TOKENS) * _CHARACTERS_A_TOKEN)
    return Outline(tuple(HEADINGS.values()), items, min(max(characters, 60), 160))


def transcript(history: History) -> list[str]:
    """Each unit of a history as text for a summarizer, in order; the earlier checkpoint comes first."""
    texts = [f"[earlier checkpoint]\n{render(history.checkpoint)}"] if history.checkpoint else []
    return texts + [_transcribed(unit) for _, unit in history.units()]


def _transcribed(unit: object) -> str:
    match unit:
        case Message():
            return f"[{unit.role}]\n{plain(unit.content)}"
        case Interjection():
            return _transcribed(unit.message)
        case Said():
            return f"[assistant]\n{plain(unit.content)}"
        case ToolCycle():
            calls = [f"[call {call.name}] {call.arguments}" for call in unit.calls]
            results = [f"[result {result.call_id}]\n{plain(result.content)}" for result in unit.results]
            return "\n".join([f"[assistant]\n{plain(unit.content)}", *calls, *results])
    return ""


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


def _without_thinking(text: str) -> str:
    return _THINKING.sub("", text)


_TITLES: Mapping[str, str] = {heading.lower(): key for key, heading in HEADINGS.items()} | {"open": "in_progress"}
_TITLE = re.compile(r"^[#*\s]*(?P<title>[A-Za-z& ]+?)[*\s]*(?::(?P<rest>.*)|)$")


def _from_headings(answer: str) -> Sections:
    sections = dict[str, list[str]]()
    items: list[str] | None = None
    for line in answer.splitlines():
        title = _TITLE.match(line)
        key = _TITLES.get(title["title"].strip().lower()) if title else None
        if title and key:
            items = sections.setdefault(key, [])
            line = title["rest"] or ""  # noqa: PLW2901  what stands behind the colon is the first item
        text = " ".join(line.strip().lstrip("-*• ").split())
        if items is not None and text and text.lower() not in {"none", "(none)"}:
            items.append(text)
    return {key: tuple(values) for key, values in sections.items() if values}


_CLAIM = re.compile(r"`([^`]+)`|\"([^\"]+)\"|((?:[\w.~-]*/)[\w./~-]+|\w+\.[a-z]{1,4}\b|\w*_\w+|\d[\d.,:]*\d|\d+)")


def _grounded(items: tuple[str, ...], haystack: str) -> tuple[str, ...]:
    return tuple(item for item in items if all(claim in haystack for claim in _claims(item)))


def _claims(item: str) -> list[str]:
    return [next(filter(None, groups)).lower() for groups in _CLAIM.findall(item)]


_CUMULATIVE = ("constraints", "covered")


def with_notes(machine: Checkpoint, notes: Sections, cap: int, size: Callable[[str], int]) -> Checkpoint:
    """The machine's half with the model's notes in place of the earlier ones; what was covered stays covered."""
    old = dict(machine.sections)
    kept = {key: _with(old.get(key, ()), *notes.get(key, ())) for key in _CUMULATIVE if key in old or key in notes}
    merged = {key: items for key in HEADINGS if (items := kept.get(key) or notes.get(key))}
    return capped(replace(machine, author="model", sections=tuple(merged.items())), cap, size)


def _distinct(sections: Sections) -> Sections:
    """Small models say the same thing under every heading: it is kept where it stands first."""
    seen, kept = set[str](), Sections()
    for key, items in sections.items():
        fresh = tuple(item for item in dict.fromkeys(items) if item.lower() not in seen)
        seen |= {item.lower() for item in fresh}
        if fresh:
            kept[key] = fresh
    return kept
