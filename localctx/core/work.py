"""The work state: where the work stands, as the model itself records it beside the conversation.

Each call of `update_work_state` is a patch, and the state is the fold of `patched` over them. What it says are claims:
a todo is done only where `verified_by` says what showed it, and else is shown as claimed.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from localctx.core.accounting import head_and_tail
from localctx.core.results import RECALL

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

__all__ = ["SCHEMA", "UPDATE", "Todo", "WorkState", "as_json", "lines", "patched", "preamble", "read_state"]


@dataclass(frozen=True, slots=True)
class Todo:
    """A piece of work, its status (one of those in `SCHEMA`), and the check that showed that status."""

    text: str
    status: str = "pending"
    verified_by: str = ""


@dataclass(frozen=True, slots=True)
class WorkState:
    """Where the work stands; each text is one line. What `patched` makes is at most 30,000 bytes of JSON."""

    goal: str = ""
    constraints: tuple[str, ...] = ()
    decisions: tuple[str, ...] = ()
    files_touched: tuple[str, ...] = ()
    open_questions: tuple[str, ...] = ()
    todos: tuple[Todo, ...] = ()
    next_step: str = ""


_HEADING = "Recovered work state (claims to verify before relying on them):"
_WORTH = {"goal": 4, "constraints": 3, "next_step": 2, "decisions": 1, "open_questions": 1, "files_touched": 0}
"""How late a line of the field goes where there is too little room; a todo has its own worth, from 0 to 2."""

_STATUSES = ["pending", "in_progress", "done", "failing", "cancelled"]
_ALSO = {"completed": "done", "complete": "done", "failed": "failing", "canceled": "cancelled"}
_UNCHECKED = {"none", "no", "n/a", "null", "nobody", "nothing", "not verified", "unverified"}
"""What small models write for no check at all."""

_LONGEST, _LIST_ITEMS, _LIST_BYTES = 500, 50, 5_000
_BLANK = re.compile(r"[\s\x00-\x1f\x7f-\x9f\ud800-\udfff]+")

_TEXT = {"type": "string"}
_LIST = {"type": "array", "items": _TEXT}
_TODO = {
    "text": _TEXT,
    "status": {**_TEXT, "enum": _STATUSES},
    "verified_by": {**_TEXT, "description": "for done: the check you ran, e.g. pytest -q"},
}
_FIELDS = {
    "goal": _TEXT,
    **dict.fromkeys(("constraints", "decisions", "files_touched", "open_questions"), _LIST),
    "todos": {"type": "array", "items": {"type": "object", "properties": _TODO, "required": ["text"]}},
    "next_step": _TEXT,
}
"""The fields of a state, in the order in which they are shown, as the tool's schema describes them."""

_PROMISE = (
    "Record where the work stands; it outlives old messages. Fields left out stay as they are. "
    "A list replaces the old list; todos are merged by text."
)
_PARAMETERS = {"type": "object", "properties": _FIELDS}
UPDATE = "update_work_state"
SCHEMA: dict[str, object] = {
    "type": "function",
    "function": {"name": UPDATE, "description": _PROMISE, "parameters": _PARAMETERS},
}
"""The tool by which a model patches its state, in OpenAI's dialect; it is in every request, and so it is short."""


def patched(state: WorkState, fields: Mapping[str, object]) -> WorkState:
    """The state with the named fields changed: null clears one, a list replaces the old, todos are merged by their text.

    A new status voids the old `verified_by`. Long texts are clipped; of too long a list the oldest items go, of todos
    settled ones first. Raises `ValueError`, worded for the model; then the whole patch is void.
    """
    for key, value in fields.items():
        name = _named(key, _FIELDS, "the work state")
        state = replace(state, **{name: _changed(state, name, value)})
    return state


def _named(key: str, known: Iterable[str], owner: str) -> str:
    """The known name that a key spells, be it in snake case or in camel case."""
    for name in known:
        if name.replace("_", "") == key.replace("_", "").lower():
            return name
    raise ValueError(f"{owner} has no field {key[:40]!r}; it has {', '.join(known)}")


def _changed(state: WorkState, name: str, value: object) -> Any:  # noqa: ANN401  the type of the field
    if value is None:
        return getattr(WorkState(), name)
    if _FIELDS[name] is _TEXT:
        return _line(value, name)
    if name == "todos":
        return _bounded(_merged(state.todos, _listed(value)))
    return _bounded(filter(None, dict.fromkeys(_line(item, f"an item of {name}") for item in _listed(value))))


def _listed(value: object) -> list[object]:
    """The items that are meant by a list, by a list as JSON in a text, or by an item alone; null is none."""
    try:
        found = json.loads(value) if isinstance(value, str) else value
    except (ValueError, RecursionError):
        found = value
    return [item for item in (found if isinstance(found, list) else [value]) if item is not None]


def _line(value: object, what: str) -> str:
    """A text or a number as one line of at most 500 characters."""
    if isinstance(value, bool) or not isinstance(value, (str, int, float)):
        raise ValueError(f"{what} must be a text, not {type(value).__name__}")  # noqa: TRY004  a model's mistake
    line = _BLANK.sub(" ", str(value)).strip()
    return line if len(line) <= _LONGEST else line[: _LONGEST - 1] + "…"


def _merged(todos: Iterable[Todo], items: Iterable[object]) -> Iterable[Todo]:
    """The todos, each changed by the items of its text (whatever their case), and then the new ones."""
    found = {todo.text.casefold(): todo for todo in todos}
    for item in items:
        said = _todo_fields(item)
        old = found.get(said["text"].casefold(), Todo(said["text"]))
        status = said.get("status") or old.status
        check = said.get("verified_by", old.verified_by if status == old.status else "")
        found[old.text.casefold()] = Todo(old.text, status, "" if check.lower() in _UNCHECKED else check)
    return found.values()


def _todo_fields(item: object) -> dict[str, str]:
    """What an item says of its todo, which it must name; null says nothing."""
    given = item if isinstance(item, Mapping) else {"text": item}
    parts = {_named(str(key), _TODO, "a todo"): part for key, part in given.items() if part is not None}
    said = {name: _line(part, f"the {name} of a todo") for name, part in parts.items()}
    if not said.get("text"):
        raise ValueError(f"a todo needs a text; it has {', '.join(_TODO)}")
    status = said.get("status", "").lower().replace(" ", "_").replace("-", "_")
    said["status"] = _ALSO.get(status, status)
    if said["status"] not in {"", *_STATUSES}:
        raise ValueError(f"a todo cannot be {status[:40]!r}; its status is one of {', '.join(_STATUSES)}")
    return said


def _bounded(items: Iterable[Any]) -> tuple[Any, ...]:
    """What a list may hold of its distinct items, in order: those of the least worth go first, of them the oldest."""
    listed = list(items)
    kept = sorted(listed, key=_worth)[-_LIST_ITEMS:]
    while len(json.dumps(list(map(_item_json, kept)), ensure_ascii=False).encode()) > _LIST_BYTES:
        del kept[0]
    return tuple(item for item in listed if item in kept)


def _worth(item: str | Todo) -> int:
    """How late a todo goes where there is too little room: settled ones first, then claims, then open ones."""
    if isinstance(item, str) or item.status == "cancelled":
        return 0
    return 2 if item.status != "done" else 0 if item.verified_by else 1


def _item_json(item: str | Todo) -> object:
    return item if isinstance(item, str) else {name: said for name in _TODO if (said := getattr(item, name))}


def as_json(state: WorkState) -> dict[str, object]:
    """The state as a JSON object without its empty fields: the patch that makes it out of an empty one."""
    values = {name: getattr(state, name) for name in _FIELDS if getattr(state, name)}
    return {name: said if isinstance(said, str) else list(map(_item_json, said)) for name, said in values.items()}


def read_state(value: object) -> WorkState:
    """The state that a JSON value describes, perhaps edited by hand; fields and items that cannot be read are left out."""
    state = WorkState()
    for key, said in value.items() if isinstance(value, Mapping) else ():
        readable = [item for item in said if _fits({str(key): [item]})] if isinstance(said, list) else said
        state = patched(state, {str(key): readable}) if _fits({str(key): readable}) else state
    return state


def _fits(patch: Mapping[str, object]) -> bool:
    try:
        return patched(WorkState(), patch) is not None
    except ValueError:
        return False


def lines(state: WorkState) -> tuple[str, ...]:
    """The state as the model and a person read it, a line an item."""
    return tuple(line for _, line in _shown(state))


def _shown(state: WorkState) -> Iterator[tuple[int, str]]:
    """The lines, each with its worth: how late it goes where there is too little room."""
    for name in _FIELDS:
        value = getattr(state, name)
        for item in filter(None, [value] if isinstance(value, str) else value):
            title = _standing(item) if isinstance(item, Todo) else name.replace("_", " ").removesuffix("s")
            text, worth = (item.text, _worth(item)) if isinstance(item, Todo) else (item, _WORTH[name])
            yield worth, f"{title}: {text}"


def _standing(todo: Todo) -> str:
    if todo.status != "done":
        return todo.status.replace("_", " ")
    return f"done (verified by {todo.verified_by})" if todo.verified_by else "claimed done, not verified"


def claims(state: WorkState, text: str) -> bool:
    """Whether a text tells of a todo as if it were done, where no check has shown that it is."""
    heard = _WORD.findall(text.lower())
    open_todos = [todo for todo in state.todos if todo.status != "done" or not todo.verified_by]
    return any(_tells(heard, todo.text) for todo in open_todos)


_WORD = re.compile(r"\w+")
_STEM, _SHORT = 5, 3
"""The letters by which a word is known whatever its ending, and those of words that say too little on their own."""


def _tells(heard: Sequence[str], todo: str) -> bool:
    words = _WORD.findall(todo.lower())
    stems = [word[:_STEM] for word in words if len(word) > _SHORT] or words
    return bool(stems) and all(any(word.startswith(stem) for word in heard) for stem in stems)


def preamble(state: WorkState, most: int, size: Callable[[str], int]) -> str:
    """What a resumed run reads first, within `most` tokens by `size`; empty where nothing was recorded or nothing fits.

    A line above a quarter of the room is shown by head and tail. Files and settled todos go first, then decisions,
    questions and claims, then open todos and the next step, then constraints, and the goal last; what went is counted.
    """
    shown = [(worth, head_and_tail(f"- {line}", most // 4, size, " ... ")) for worth, line in _shown(state)]
    order = sorted(range(len(shown)), key=lambda at: (shown[at][0], at))

    def without(gone: int) -> str:
        kept = [shown[at][1] for at in sorted(order[gone:])]
        return "\n".join([_HEADING, *kept, *([f"- +{gone} more, not shown: {RECALL}"] if gone else [])])

    least, enough = 0, 0 if size(without(0)) <= most else len(shown)
    while least < enough:
        gone = (least + enough) // 2
        least, enough = (least, gone) if size(without(gone)) <= most else (gone + 1, enough)
    return without(enough) if enough < len(shown) else ""
