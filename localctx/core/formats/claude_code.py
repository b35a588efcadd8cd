"""Claude Code's session files: a tree of entries, one a line, of which the model reads the branch that ends last.

What was checked against files of versions 1.0 to 2.1: an answer is written a block a line under one message id; results
of parallel calls hang beside the branch; a compaction is a boundary and a summary, and what it kept is linked anew when
the file is read; entries of subagents are marked, in the same file or in one of their own. `isMeta` hides an entry from
the user, not from the model. The file holds neither the system prompt nor the tools.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from localctx.core.formats.blocks import as_blocks, by_assistant, by_user
from localctx.core.formats.branches import branch, keyed, parents, with_nameless
from localctx.core.formats.conversation import Conversation, Draft, Entry, Format, Why, objects, text_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

__all__ = ["read", "recognises"]


def recognises(value: object) -> bool:
    """Whether some entry is a message of a session."""
    return any(_speaks(entry) for entry in objects(_lines(value)))


def read(value: object) -> Iterator[Conversation]:
    """The one conversation of a session."""
    draft = Draft(Format.CLAUDE_CODE)
    known = keyed(_of_one_agent(draft.objects(_lines(value)), draft), "uuid")
    said = _Said(draft)
    for entry in _read_next(known, draft):
        said.take(entry)
    said.finish()
    yield draft.done()


def _lines(value: object) -> object:
    return value.get("loglines") if isinstance(value, dict) else value


def _speaks(entry: Entry) -> bool:
    match entry:
        case {"type": "user" | "assistant", "message": {"role": "user" | "assistant", "content": str() | list()}}:
            return True
    return False


def _of_one_agent(entries: Sequence[Entry], draft: Draft) -> list[Entry]:
    """The entries of the tree, without those of subagents; all of them in a subagent's own file."""
    nodes = [entry for entry in entries if entry.get("type") in _NODES]
    for entry in entries:
        if entry.get("type") not in _NODES:
            draft.leave_kind(entry.get("type"), "entries", Why.UNSENT)
    main = [entry for entry in nodes if entry.get("isSidechain") is not True]
    if not any(_speaks(entry) for entry in main):
        main = nodes
    draft.leave("messages", Why.SUBAGENT, sum(map(_speaks, nodes)) - sum(map(_speaks, main)))
    draft.leave("entries", Why.DOUBLED, len(main) - len(keyed(main, "uuid")))
    return main


_SPEAKERS = ("user", "assistant")
_NODES = (*_SPEAKERS, "system", "attachment", "progress")


# --- which entries ------------------------------------------------------------------------------------------------


def _read_next(known: Mapping[str, Entry], draft: Draft) -> list[Entry]:
    """The entries that the next request is made of, in order."""
    parent = parents(known, "parentUuid")
    before_kept = _relink(known, parent)
    ends = [key for key, entry in known.items() if entry.get("type") != "progress" and not _is_boundary(entry)]
    seen = set[str]()
    chain = _with_parallel(branch(ends[-1] if ends else None, parent, seen), known, parent, seen)
    entries = [known[key] for key in with_nameless(chain, known, seen)]
    cut = _last_compaction(entries)
    if cut is not None:
        older = _through_compactions(known, parent)
        end = before_kept if older[chain[0]] in seen else older[chain[0]]
        replaced = _with_parallel(branch(end, older, seen), known, older, seen)
        _leave([*entries[:cut], *(known[key] for key in replaced)], Why.REPLACED, draft)
    _leave([entry for key, entry in known.items() if key not in seen], Why.BRANCH, draft)
    return entries[cut:]


def _through_compactions(known: Mapping[str, Entry], parent: Mapping[str, str | None]) -> dict[str, str | None]:
    """The parents, with each compaction behind what it replaced: as its boundary names that, or as it stands in the file."""
    found, before = dict(parent), None
    for key, entry in known.items():
        if parent[key] is None and (_is_boundary(entry) or _is_summary(entry)):
            logical = text_of(entry.get("logicalParentUuid"))
            found[key] = logical if logical in known else before
        before = key
    return found


def _leave(entries: Iterable[Entry], why: Why, draft: Draft) -> None:
    for entry in entries:
        if _speaks(entry):
            draft.leave("messages", why)
        elif entry.get("type") == "attachment":
            draft.leave("attachments", why)
        else:
            draft.leave_kind(entry.get("subtype") or entry.get("type"), "entries", _why_silent(entry))


def _is_boundary(entry: Entry) -> bool:
    return entry.get("type") == "system" and entry.get("subtype") == "compact_boundary"


def _is_summary(entry: Entry) -> bool:
    return entry.get("isCompactSummary") is True


def _last_compaction(chain: Sequence[Entry]) -> int | None:
    """Where the last compaction begins: at the boundary, or at the summary if that stands alone; None if there is none."""
    summaries = [place for place, entry in enumerate(chain) if _is_summary(entry)]
    for place in range(summaries[-1] - 1, -1, -1) if summaries else ():
        if _is_boundary(chain[place]):
            return place
        if _speaks(chain[place]):
            break
    return summaries[-1] if summaries else None


def _relink(known: Mapping[str, Entry], parent: dict[str, str | None]) -> str | None:
    """Links what the last compaction kept word for word behind its summary, and what followed behind that.

    Says which entry stood before what was kept.
    """
    boundaries = [entry for entry in known.values() if _is_boundary(entry)]
    match boundaries[-1].get("compactMetadata") if boundaries else None:
        case {"preservedMessages": {"anchorUuid": str(anchor), "uuids": list(uuids)}}:
            kept = [each for each in uuids if isinstance(each, str)]
        case {"preservedSegment": {"anchorUuid": str(anchor), "headUuid": str(head), "tailUuid": str(tail)}}:
            kept = _segment(head, tail, parent)
        case _:
            return None
    if not kept or anchor in kept or not {anchor, *kept} <= parent.keys():
        return None
    before = parent[kept[0]]
    for key, above in parent.items():
        if above == anchor:
            parent[key] = kept[-1]
    parent |= zip(kept, [anchor, *kept], strict=False)
    return before


def _segment(head: str, tail: str, parent: Mapping[str, str | None]) -> list[str]:
    if tail not in parent:
        return []
    keys = branch(tail, parent, set())
    return keys[keys.index(head) :] if head in keys else []


def _with_parallel(
    chain: Sequence[str], known: Mapping[str, Entry], parent: Mapping[str, str | None], seen: set[str]
) -> list[str]:
    """The chain with the blocks and results of parallel calls that hang beside it, behind the answer they belong to."""
    answers = {key: _answer_id(known[key]) or key for key in chain if _is_answer(known[key])}
    ids = set(answers.values())
    beside = dict[str, list[str]]()
    for key, entry in known.items():
        if key not in seen and _is_answer(entry) and (mine := _answer_id(entry)) in ids:
            answers[key] = mine
            beside.setdefault(mine, []).append(key)
    answered = {each for key in chain for each in _results(known[key])}
    for key, entry in known.items():
        owner = answers.get(text_of(entry.get("sourceToolAssistantUUID"))) or answers.get(parent[key] or "")
        if key not in seen and owner and (found := _results(entry)) and answered.isdisjoint(found):
            answered |= found
            beside.setdefault(owner, []).append(key)
    return _spliced(chain, beside, known, seen)


def _spliced(
    chain: Sequence[str], beside: dict[str, list[str]], known: Mapping[str, Entry], seen: set[str]
) -> list[str]:
    keys = list[str]()
    for key in reversed(chain):
        if _is_answer(known[key]):
            extra = beside.pop(_answer_id(known[key]) or key, [])
            seen.update(extra)
            keys += reversed(extra)
        keys.append(key)
    return keys[::-1]


def _is_answer(entry: Entry) -> bool:
    return entry.get("type") == "assistant" and _speaks(entry)


def _message(entry: Entry) -> Entry:
    message = entry.get("message")
    return message if isinstance(message, dict) else {}


def _answer_id(entry: Entry) -> str:
    return text_of(_message(entry).get("id"))


def _results(entry: Entry) -> set[str]:
    """The ids of the calls that an entry of the user answers."""
    if entry.get("type") != "user":
        return set()
    blocks = as_blocks(_message(entry).get("content"))
    return {text_of(block.get("tool_use_id")) for block in blocks if block.get("type") == "tool_result"}


# --- what they say ------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Answer:
    content: list[object]


class _Said:
    """The messages of entries, with each answer put together again from its lines."""

    def __init__(self, draft: Draft) -> None:
        self._draft = draft
        self._all: list[_Answer | list[object]] = []
        self._open: dict[str, _Answer] = {}

    def take(self, entry: Entry) -> None:
        """Adds what an entry says, or counts it as left out."""
        if _is_answer(entry):
            self._answer(entry)
        elif _speaks(entry) or _is_command(entry):
            self._words(_message(entry).get("content", entry.get("content")))
        elif entry.get("type") == "attachment":
            self._attachment(entry.get("attachment"))
        else:
            self._draft.leave_kind(entry.get("subtype") or entry.get("type"), "entries", _why_silent(entry))

    def finish(self) -> None:
        """Writes the messages into the draft."""
        for each in self._all:
            make = by_assistant(each.content, self._draft) if isinstance(each, _Answer) else by_user(each, self._draft)
            self._draft.messages += make

    def _answer(self, entry: Entry) -> None:
        if entry.get("isApiErrorMessage") is True:
            self._draft.leave("notes of failed requests", Why.UNSENT)
            return
        key, content = _answer_id(entry), as_blocks(_message(entry).get("content"))
        if key and key in self._open:
            self._open[key].content.extend(content)
        else:
            answer = _Answer(list(content))
            self._all.append(answer)
            self._open[key] = answer

    def _words(self, content: object) -> None:
        blocks = as_blocks(content)
        if any(block.get("type") != "tool_result" for block in blocks):
            self._open.clear()  # an answer does not go on behind the user's words
        self._all.append(list(blocks))

    def _attachment(self, attachment: object) -> None:
        given = attachment if isinstance(attachment, dict) else {}
        kind = given.get("type")
        content = _followed(given, _ATTACHED.get(text_of(kind), ()))
        if content and isinstance(content, (str, list)) and as_blocks(content):
            self._all.append(list(as_blocks(content)))
        else:
            self._draft.leave_kind(kind, "attachments", Why.SEALED)


def _is_command(entry: Entry) -> bool:
    """What the user ran in Claude Code itself, which the model reads too."""
    command = entry.get("type") == "system" and entry.get("subtype") == "local_command"
    return command and isinstance(entry.get("content"), str)


def _why_silent(entry: Entry) -> Why:
    return Why.DAMAGED if entry.get("type") in _SPEAKERS else Why.UNSENT


def _followed(value: object, keys: Iterable[str]) -> object:
    if not keys:
        return None
    for key in keys:
        value = value.get(key) if isinstance(value, dict) else None
    return value


_ATTACHED: Mapping[str, tuple[str, ...]] = {
    "batching_reminder_sent": ("text",),
    "edited_text_file": ("snippet",),
    "file": ("content", "file", "content"),
    "hook_additional_context": ("content",),
    "nested_memory": ("content", "content"),
    "queued_command": ("prompt",),
    "read_truncation_notice": ("banner",),
    "silent_turn_reminder": ("text",),
    "skill_listing": ("content",),
    "total_tokens_reminder": ("text",),
}
"""Where the text stands that an attachment adds to the request; of other kinds the file holds no wording."""
