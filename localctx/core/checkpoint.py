"""The checkpoint: what stands for older turns, who writes which half of it, and how the model's half is checked.

The machine writes what needs no judgement: the user's words, files, commands, the last action; it is cumulative. The
model writes the prose under fixed headings. A checkpoint is never nested: the next one adds to its words and facts, and has notes
of its own.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from localctx.core.accounting import head_and_tail
from localctx.core.facts import FACT_TITLES, learnt
from localctx.core.messages import (
    Checkpoint,
    Facts,
    History,
    Interjection,
    Mark,
    Message,
    Said,
    Step,
    ToolCycle,
    Words,
    plain,
)
from localctx.core.notes import HEADINGS, Sections
from localctx.core.results import RECALL
from localctx.core.transcript import FOREIGN
from localctx.core.words import keep
from localctx.core.work import claims, preamble

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from localctx.core.work import WorkState

__all__ = [
    "capped",
    "machine_half",
    "record",
    "render",
    "summary_cap",
    "transcript",
    "with_notes",
    "words_budget",
]

_PROGRESS = ("done", "in_progress", "blocked")

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


# --- the model's half ---------------------------------------------------------------------------------------------


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


def _with(known: tuple[str, ...], *new: str) -> tuple[str, ...]:
    return tuple(dict.fromkeys((*known, *new)))


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
