"""Random histories: what the wire may carry at its worst, clean conversations, and all that may happen to a history."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from hypothesis import strategies as st

from localctx.core import journal
from localctx.core.checkpoint import with_notes
from localctx.core.effects import Compacted, Withdrawn
from localctx.core.ladder import Policy, checkpoint_at, clear, trim
from localctx.core.messages import History, end_of
from localctx.core.window import Budget

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from hypothesis.strategies import DrawFn, SearchStrategy

    from localctx.core.effects import Effect
    from localctx.core.notes import Sections

Wire: TypeAlias = dict[str, object]

WINDOW = 4096

# --- anything that a file may hold ----------------------------------------------------------------------------------

_texts = st.text(max_size=12) | st.sampled_from(
    ["", " ", "\ud83d", "a\u2028b\n", '{"path": "a.txt"}', "{", "x" * 5_000]
)
json_values: SearchStrategy[object] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | _texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_texts, inner, max_size=3),
    max_leaves=5,
)
_ids = st.sampled_from(["a", "b", "c"])
_parts = st.one_of(
    st.fixed_dictionaries({"type": st.just("text"), "text": _texts}, optional={"cache_control": json_values}),
    st.fixed_dictionaries({"type": st.just("image_url"), "image_url": json_values}),
    st.fixed_dictionaries({"type": _texts}, optional={"text": json_values}),
)
_contents: SearchStrategy[object] = st.sampled_from(
    [_texts, _texts, _texts, st.none(), st.lists(_parts, max_size=3), json_values]
).flatmap(lambda kind: kind)
_extras = {"name": json_values, "content?": json_values}
_roles = st.sampled_from(["user", "user", "user", "system", "developer", "critic", "foreign"])
_spoken = st.fixed_dictionaries({"role": _roles, "content": _contents}, optional={"tool_call_id": _ids})
_thought = st.fixed_dictionaries(
    {"role": st.just("assistant"), "content": _contents}, optional={"reasoning_content": _texts}
)
_calls = st.fixed_dictionaries(
    {
        "id": _ids,
        "type": st.just("function"),
        "function": st.fixed_dictionaries({"name": _texts, "arguments": _texts}, optional={"strict": json_values}),
    },
    optional={"index": json_values},
)
_called = st.fixed_dictionaries(
    {"role": st.just("assistant"), "tool_calls": st.lists(_calls, min_size=1, max_size=3)}, optional={"content": _texts}
)
_results = st.fixed_dictionaries({"role": st.just("tool"), "tool_call_id": _ids}, optional={"content": _contents})
_exchanges = st.tuples(_called, _results, _results, _results)
_junk = st.one_of(
    json_values,
    st.fixed_dictionaries({"role": _roles | json_values}, optional={"content": json_values, **_extras}),
    st.fixed_dictionaries({"role": st.just("tool")}, optional={"tool_call_id": json_values, **_extras}),
    st.fixed_dictionaries(
        {"role": st.just("assistant")},
        optional={"tool_calls": json_values, "reasoning_content": json_values, **_extras},
    ),
)


def wires() -> SearchStrategy[list[object]]:
    """Any JSON list, mostly of things that look like chat messages: wrong shapes, doubled ids, orphans, junk."""
    single = st.sampled_from([_spoken, _spoken, _thought, _called, _results, _junk]).flatmap(lambda kind: kind)
    pieces = st.lists(st.tuples(single) | _exchanges, max_size=8)
    return pieces.map(lambda found: [_as_in_a_file(message) for piece in found for message in piece])


def _as_in_a_file(value: object) -> object:
    """The value as JSON can hold it: the two halves of a character, side by side, become one."""
    return json.loads(json.dumps(value))


# --- clean conversations --------------------------------------------------------------------------------------------

_prose = st.builds(
    lambda word, times: word * times, st.sampled_from(["word ", "für ", "0x1f;", "語"]), st.integers(1, 500)
)
_tools = st.sampled_from(["read_file", "write_file", "run_command", "search"])


@st.composite
def sessions(draw: DrawFn, *, turns: int = 5) -> list[Wire]:
    """A conversation without a fault: parallel calls, results in any order; its last calls may still be open."""
    messages = draw(st.lists(st.builds(_said_by, st.just("system"), _prose), max_size=1))
    for _ in range(draw(st.integers(1, turns))):
        messages += [_said_by("user", draw(_prose)) for _ in range(draw(st.integers(1, 2)))]
        for _ in range(draw(st.integers(0, 3))):
            messages += _cycle(draw, len(messages))
        messages += draw(st.lists(st.builds(_said_by, st.just("assistant"), _prose), max_size=1))
    if draw(st.booleans()):
        messages += _cycle(draw, len(messages))[: draw(st.integers(1, 2))]
    return messages


def _said_by(role: str, text: str) -> Wire:
    return {"role": role, "content": text}


def _cycle(draw: DrawFn, number: int) -> list[Wire]:
    ids = [f"call_{number}_{index}" for index in range(draw(st.integers(1, 3)))]
    calls = [
        {
            "id": each,
            "type": "function",
            "function": {"name": draw(_tools), "arguments": json.dumps({"path": f"{each}.txt", "text": draw(_prose)})},
        }
        for each in ids
    ]
    results: list[Wire] = [
        {"role": "tool", "tool_call_id": each, "content": draw(_prose)} for each in draw(st.permutations(ids))
    ]
    return [{"role": "assistant", "content": draw(st.none() | _prose), "tool_calls": calls}, *results]


# --- a history's life -----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Move:
    """One thing that happens to a history: `message` arrives, or a rung or the user does `what`, somewhere (`at`)."""

    what: str
    message: object = None
    at: int = 0


def lives() -> SearchStrategy[list[Move]]:
    """Messages, clean and otherwise, between compactions, clearings and withdrawals, some of them never committed."""
    rungs = ["cut", "cut", "summary", "trim", "clear", "clear", "withdraw", "begin", "usage"]
    effect = st.builds(Move, st.sampled_from(rungs), at=st.integers(0, 40)).map(lambda move: [move])
    said = st.one_of(sessions(turns=2), wires()).map(lambda wire: [Move("message", message) for message in wire])
    pieces = st.lists(st.tuples(said, effect), max_size=5)
    return pieces.map(lambda found: [move for said, done in found for move in (*said, *done)])


def play(moves: Sequence[Move], size: Callable[[str], int]) -> list[journal.Entry]:
    """The journal of a life; each move acts on the history as it stands then."""
    history, entries = History(), list[journal.Entry]()
    for move in moves:
        kind, body = _written(history, move, size)
        entries.append(journal.Entry(len(entries) + 1, "2026-09-01T12:00:00.000+00:00", kind, body))
        history = journal.advance(history, entries[-1])
    return entries


def _written(history: History, move: Move, size: Callable[[str], int]) -> tuple[str, journal.Body]:
    if move.what == "message":
        return journal.message(move.message, complete=bool(move.at % 2))
    effect = _effect(history, move, size)
    return journal.commit(effect) if effect else (move.what, {"rung": "compact", "prompt": 7})


def _effect(history: History, move: Move, size: Callable[[str], int]) -> Effect | None:
    ends = [end_of(unit) for _, unit in history.units()]
    match move.what:
        case "withdraw":
            return Withdrawn(move.at % (len(ends) + 2))
        case "clear":
            policy = Policy(protected_cycles=move.at % 3, clearable_tokens=8)
            return clear(history, Budget.of(WINDOW), policy, size)
        case "trim":
            return trim(history, Budget.of(WINDOW), Policy(), size)
        case "cut" | "summary" if len(ends) > 1:
            cut = ends[move.at % (len(ends) - 1)]
            machine = checkpoint_at(history, cut, Budget.of(WINDOW), size)
            notes: Sections = {"goal": (f"note {move.at}",), "covered": (f"part {move.at}",)}
            return Compacted(machine if move.what == "cut" else with_notes(machine, notes, 400, size))
    return None
