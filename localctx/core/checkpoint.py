"""The checkpoint: what stands for older turns, who writes which half of it, and how the model's half is checked.

The machine writes what needs no judgement: the user's words, files, commands, the last action; it is cumulative. The
model writes the prose under fixed headings. A checkpoint is never nested: the next one adds to its words and facts, and has notes
of its own.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from localctx.core.accounting import head_and_tail
from localctx.core.messages import (
    Checkpoint,
    Facts,
    History,
    Interjection,
    Mark,
    Message,
    Said,
    Step,
    ToolCall,
    ToolCycle,
    Words,
    plain,
)
from localctx.core.results import RECALL, RETRIEVE, unframed
from localctx.core.stubs import first_and_last
from localctx.core.transcript import FOREIGN
from localctx.core.words import keep
from localctx.core.work import UPDATE, claims, preamble

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from localctx.core.work import WorkState

__all__ = [
    "FACT_TITLES",
    "HEADINGS",
    "INSTRUCTION",
    "LOOP_PENALTY",
    "Outline",
    "Sections",
    "accept",
    "capped",
    "learnt",
    "machine_half",
    "outline",
    "record",
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
_WORDS_SHARE, _WORDS_LEAST = 0.15, 96


def summary_cap(window: int) -> int:
    """The most tokens that a checkpoint's notes may take: 10 % of the window, at least 400, at most a quarter of it."""
    return min(max(int(window * _CAP_SHARE), _CAP_LEAST), window // 4)


def words_budget(room: int) -> int:
    """The tokens that the user's own words may take: 15 % of the window, less what the system's words take of it.

    Where that is next to nothing, as much as a short task takes, and never more than half of the room.
    """
    return max(int(room * _WORDS_SHARE), min(_WORDS_LEAST, room // 2))


def render(checkpoint: Checkpoint) -> str:
    """The checkpoint as the model reads it: the record, then the notes."""
    return f"{record(checkpoint)}\n\n{_notes(checkpoint)}\n(end of notes)"


def record(checkpoint: Checkpoint) -> str:
    """What of a checkpoint the next one begins with as well, until something has to go.

    That is the user's words and what the calls say, stretch by stretch: what came with a compaction stands behind what
    was there, so that a server's prefix cache holds all but the end of it.
    """
    parts = [_HEAD if checkpoint.author == "model" else f"{_HEAD} {_NO_SUMMARY}"]
    for at, (said, facts) in enumerate(_stretches(checkpoint)):
        parts += [*(words.text for words in said), "" if at else _unsaid(checkpoint, said), facts]
    return "\n\n".join(filter(None, parts))


_HEAD = (
    "Earlier messages of the user, word for word. The lists between and behind them are notes on the earlier part of this "
    "conversation (a record, not instructions; do not redo it)."
)
_NO_SUMMARY = "All else was dropped without a summary by a model."


def _stretches(checkpoint: Checkpoint) -> Iterator[tuple[list[Words], str]]:
    """The user's words, and what the calls say, that came with each compaction since something last had to go."""
    line, had = -1, (0,) * len(FACT_TITLES)
    for mark in (*checkpoint.marks, _end(checkpoint)):
        said = [words for words in checkpoint.words if line < words.seq <= mark.through]
        yield said, _told(checkpoint.facts, had, mark.facts)
        line, had = mark.through, mark.facts


def _end(checkpoint: Checkpoint) -> Mark:
    """The mark of all that a checkpoint holds."""
    last = max([checkpoint.through, *(words.seq for words in checkpoint.words)])
    return Mark(last, tuple(len(getattr(checkpoint.facts, name)) for name in FACT_TITLES))


def _unsaid(checkpoint: Checkpoint, said: Sequence[Words]) -> str:
    """What stands for the user's messages that found no room, and where they are."""
    if not checkpoint.unsaid or not said:
        return ""
    until = said[-1].seq if len(said) > 1 else checkpoint.through + 1
    return f"(+{checkpoint.unsaid} more messages of the user between #{said[0].seq} and #{until}, not shown: {RECALL})"


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
    if checkpoint.work:
        lines.append(checkpoint.work)
    if checkpoint.facts.last_action:
        lines.append(f"- Last action: {checkpoint.facts.last_action}")
    if checkpoint.shed:
        lines.append(f"- +{checkpoint.shed} more notes, not shown: {RECALL}")
    return "\n".join(lines)


FACT_TITLES = {
    "read": "Files read",
    "modified": "Files modified",
    "commands": "Commands run",
    "sources": "Sources covered",
    "errors": "Open errors",
}


def _told(facts: Facts, since: Sequence[int], until: Sequence[int]) -> str:
    """The facts from one mark to another, a list a line; empty where there are none."""
    lists = zip(FACT_TITLES.items(), since, until, strict=True)
    found = [(title, getattr(facts, name)[first:last]) for (name, title), first, last in lists]
    lines = [f"- {title}: {'; '.join(values)}" for title, values in found if values]
    return "\n".join(["From the calls:", *lines]) if lines else ""


def capped(checkpoint: Checkpoint, cap: int, size: Callable[[str], int]) -> Checkpoint:
    """The checkpoint with its notes within `cap`: the oldest items of the longest lists go first, and are counted.

    The goal stays; constraints go when nothing else is left.
    """
    while (excess := size(_noted(checkpoint)) - cap) > 0:
        shorter = _shed(checkpoint, excess, cap, size)
        if shorter is None:
            break
        checkpoint = shorter
    return checkpoint


def _noted(checkpoint: Checkpoint) -> str:
    """All of a checkpoint that its cap is for."""
    return "\n\n".join([*(facts for _, facts in _stretches(checkpoint) if facts), _notes(checkpoint)])


def _shed(checkpoint: Checkpoint, excess: int, cap: int, size: Callable[[str], int]) -> Checkpoint | None:
    """The checkpoint without about `excess` tokens of notes; None where nothing may go.

    What the machine recorded goes only while it takes more than half of the cap, since prose can be written anew; and then
    half of it at once, since the prefix moves each time.
    """
    lists = {key: list(items) for key, items in checkpoint.sections if key != "goal"}
    lists |= {name: list(getattr(checkpoint.facts, name)) for name in FACT_TITLES}
    weights = {name: [size(item) + 1 for item in items] for name, items in lists.items()}
    totals = {name: sum(each) for name, each in weights.items()}
    gone = dict.fromkeys(lists, 0)
    recorded = _recorded(totals)
    most = recorded // 2 if recorded > cap // 2 else cap // 2
    while excess > 0 or _recorded(totals) > most:
        longest = max(_loose(totals, most), key=lambda name: totals.get(name, 0))
        if totals.get(longest, 0) <= 0:
            break
        weight = weights[longest][gone[longest]]
        gone[longest] += 1
        totals[longest] -= weight
        excess -= weight
    if not any(gone.values()):
        return None
    sections = tuple((key, items[gone.get(key, 0) :]) for key, items in checkpoint.sections)
    facts = {name: getattr(checkpoint.facts, name)[gone[name] :] for name in FACT_TITLES}
    shed = checkpoint.shed + sum(gone.values())
    marks = () if any(gone[name] for name in FACT_TITLES) else checkpoint.marks
    return replace(checkpoint, sections=sections, facts=replace(checkpoint.facts, **facts), shed=shed, marks=marks)


def _recorded(totals: Mapping[str, int]) -> int:
    return sum(totals[name] for name in FACT_TITLES)


def _loose(totals: Mapping[str, int], most: int) -> list[str]:
    """The lists that may go next, by what each takes: of what was recorded what takes more than `most`."""
    left = [name for name, total in totals.items() if total > 0 and name != "constraints"]
    recorded = _recorded(totals) > most
    return [name for name in left if (name in FACT_TITLES) is recorded] or left or ["constraints"]


# --- the machine's half -------------------------------------------------------------------------------------------


def machine_half(covered: History, through: int, room: int, size: Callable[[str], int]) -> Checkpoint:
    """A valid checkpoint of `covered` (its earlier checkpoint included) that needs no model; its notes are not capped.

    `room` is the window less what the system's words take of it. Where a part of the record that stands has to go, half of
    it goes: rarely and deep, since each time moves the prefix.
    """
    old = covered.checkpoint or Checkpoint(0, "machine")
    said = [each for _, unit in covered.units() if (each := _user_words(unit)) is not None and each.text]
    words, unsaid = keep(old.words, said, words_budget(room), size)
    outgrown = bool(old.words) and (unsaid > 0 or words[: len(old.words)] != old.words)
    cycles = [unit for _, unit in covered.units() if isinstance(unit, ToolCycle)]
    facts = learnt(old.facts, cycles)
    sections = dict(old.sections)
    if last := _last_said(covered, size):
        sections["in_progress"] = (last,)
    cap = summary_cap(room)
    work = preamble(covered.work, cap // 2, size)
    marks = () if outgrown else _marks(old)
    made = Checkpoint(
        through, "machine", tuple(sections.items()), facts, words, old.unsaid + unsaid, work, old.shed, marks
    )
    return (_shed(made, 0, cap, size) if outgrown else None) or made


def _marks(old: Checkpoint) -> tuple[Mark, ...]:
    """The marks of a checkpoint that an earlier one's words and facts begin."""
    *_, newest = _stretches(old)
    return (*old.marks, _end(old)) if any(newest) else old.marks


_LAST_SAID = 60


def _last_said(covered: History, size: Callable[[str], int]) -> str:
    texts = [plain(unit.content) for _, unit in covered.units() if isinstance(unit, (Said, ToolCycle))]
    last = next((" ".join(text.split()) for text in reversed(texts) if text.strip()), "")
    return f"The last reply before this: {head_and_tail(last, _LAST_SAID, size, ' ... ')}" if last else ""


def _user_words(unit: object) -> Words | None:
    message = unit.message if isinstance(unit, Interjection) else unit
    if not isinstance(message, Message) or message.role == "tool":
        return None
    text = plain(message.content) or (message.extra if message.role == FOREIGN else "")
    return Words(message.seq, text if message.role == "user" or not text else f"[{message.role}] {text}")


_PATH_KEYS = re.compile(r"^(path|file|source|filename|.*_path|.*_file)$")
_WRITERS = re.compile(r"write|edit|create|patch|replace|move|^mv$|^cp$|^rm$|^mkdir$")
_RUNNERS = re.compile(r"command|shell|bash|exec")
_LONG = 80
_LONGEST_NAME = 300


_OWN = {RECALL, RETRIEVE, UPDATE, "context_info", "summarize_context", "search_tools"}
"""Tools that look into the record or the window, or write in them: what they did is no news."""

_LOOKING = {"list_dir", "find", "grep"}
"""Tools whose path is where they look, and no file that they read."""


def learnt(facts: Facts, cycles: Iterable[ToolCycle]) -> Facts:
    """The facts with what the calls say, each once, in the order in which it was first seen."""
    lists = {name: dict.fromkeys(getattr(facts, name)) for name in FACT_TITLES}
    last = facts.last_action
    for cycle in cycles:
        results = {result.call_id: plain(result.content) for result in cycle.results}
        for call in (each for each in cycle.calls if each.name not in _OWN):
            for name, said in _said_by(call, results.get(call.id)):
                lists[name][said] = None
            last = _action(call) or last
    return Facts(**{name: tuple(values) for name, values in lists.items()}, last_action=last)


def _said_by(call: ToolCall, result: str | None) -> Iterator[tuple[str, str]]:
    """What one call says, and in which list of facts it belongs."""
    texts = _texts(call)
    result = None if result is None else unframed(first_and_last(result))
    if result is not None and result.lower().startswith("error"):
        yield "errors", f"{_action(call)}: {_clip(result)}"
        return
    target = "modified" if _WRITERS.search(call.name) else "read"
    for key, value in texts.items():
        if _PATH_KEYS.match(key) and _short(value) and call.name not in _LOOKING:
            yield target, value
        elif value.startswith(("http://", "https://")) and _short(value):
            yield "sources", value
    if _RUNNERS.search(call.name) and (command := texts.get("command") or texts.get("cmd")):
        outcome = _clip((result or "").strip().splitlines()[-1]) if (result or "").strip() else "no output"
        yield "commands", f"{_clip(command)} -> {'no result' if result is None else outcome}"


def _texts(call: ToolCall) -> dict[str, str]:
    """The arguments of a call that are text; none where they cannot be read."""
    try:
        arguments = json.loads(call.arguments)
    except (ValueError, RecursionError):
        return {}
    return (
        {key: value for key, value in arguments.items() if isinstance(value, str)}
        if isinstance(arguments, dict)
        else {}
    )


def _action(call: ToolCall) -> str:
    texts = _texts(call)
    return f"{call.name}({_clip(', '.join(texts.values()))})" if texts or call.arguments.strip() in {"", "{}"} else ""


def _short(text: str) -> bool:
    """Whether a value names something, rather than being its content."""
    return len(text) <= _LONGEST_NAME and "\n" not in text


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
_ITEM_LEAST, _ITEM_MOST = 30, 160


def outline(cap: int, characters_a_token: float) -> Outline:
    """The form that notes of at most about `cap` tokens can have, in a script of so many characters a token."""
    items = max(cap // (_ITEM_TOKENS * len(HEADINGS)), 1)
    characters = int((cap / (items * len(HEADINGS)) - _HEADING_TOKENS) * characters_a_token * _SLACK)
    return Outline(tuple(HEADINGS.values()), items, min(max(characters, _ITEM_LEAST), _ITEM_MOST))


_SLACK = 0.75
"""Notes are denser than the text that they are about."""


def transcript(history: History) -> list[str]:
    """Each unit of a history as text for a summarizer, in order; the earlier checkpoint comes first."""
    texts = [f"[earlier checkpoint]\n{render(history.checkpoint)}"] if history.checkpoint else []
    return texts + [_transcribed(unit) for _, unit in history.units()]


def _transcribed(unit: Message | Step) -> str:
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


def with_notes(
    machine: Checkpoint, notes: Sections, cap: int, size: Callable[[str], int], work: WorkState | None = None
) -> Checkpoint:
    """The machine's half with the model's notes in place of the earlier ones; what was covered stays covered.

    Nothing is noted as done that the `work` state holds for a claim.
    """
    old = dict(machine.sections)
    if work is not None:
        notes = {**notes, "done": tuple(item for item in notes.get("done", ()) if not claims(work, item))}
    kept = {"covered": _with(old.get("covered", ()), *notes.get("covered", ()))}
    kept["constraints"] = notes.get("constraints") or old.get("constraints", ())
    merged = {key: items for key in HEADINGS if (items := kept.get(key) or notes.get(key, ()))}
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
