"""The conversation that is compacted: facts and small talk, as long as makes a compaction due in a window."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING

from localctx.app.bench.asking import asked
from localctx.app.bench.facts import SYSTEM, one_by_one, small_talk
from localctx.core.work import UPDATE
from localctx.errors import LocalctxError
from localctx.ports import Request

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator, Sequence

    from localctx.app.bench.facts import Fact
    from localctx.app.bench.script import Call, Turn
    from localctx.core.outgoing import WireMessage
    from localctx.ports import Runtime

__all__ = ["Told", "grown", "shows_calls"]

_SCALE = 40_960
"""Results are as long as in the proof's conversation in a window of so many tokens, and shorter in smaller ones."""

_PLANTED = 0.7
"""The share of the conversation in which facts are planted: they are old when it is compacted."""


@dataclass(frozen=True, slots=True)
class Told:
    """Messages behind the system's, the facts in them, what was noted of the work, and the question that comes next."""

    messages: tuple[WireMessage, ...]
    facts: tuple[Fact, ...]
    work: tuple[dict[str, object], ...]
    question: str = "What is left to be done now?"

    def whole(self, salt: str) -> list[WireMessage]:
        """The list as it goes on the wire: no other list begins like it, and no transcript of another, without the system's words."""
        first, *rest = self.messages
        begun = {**first, "content": f"({salt}) {first['content']}"}
        return [{"role": "system", "content": f"{salt}. {SYSTEM}"}, begun, *rest]


async def shows_calls(runtime: Runtime) -> bool:
    """Whether a model is shown the calls in a list: a template may refuse them, or leave them out in silence.

    Where that is so, or where the server does not say how long a prompt is, they are told in words.
    """
    sizes = list[int | None]()
    for arguments in ("{}", '{"path": "' + "harbour/" * _SHOWN + '"}'):
        messages: list[WireMessage] = [{"role": "user", "content": "Look."}, _called("c0", [("bash", arguments)])]
        messages += [_result("c0", 0, "done"), {"role": "assistant", "content": "Done."}]
        try:
            took = await asked(runtime, Request([*messages, {"role": "user", "content": "Go on."}], 1, temperature=0.0))
        except LocalctxError:
            return False
        sizes.append(took.usage.prompt)
    short, long = sizes
    return short is not None and long is not None and long - short >= _SHOWN


_SHOWN = 20
"""How many words the longer of two calls has more, and so at least how many tokens."""


async def grown(window: int, due: int, size: Callable[[Sequence[WireMessage]], Awaitable[int]], *, tools: bool) -> Told:
    """A conversation of just more than `due` tokens by `size`."""
    scale = min(window / _SCALE, 1.0)
    messages: list[WireMessage] = []
    facts: list[Fact] = []
    work, planted = list[dict[str, object]](), one_by_one(scale)
    used = number = 0
    while used <= due:
        turn, fact = next(planted, (None, None)) if used < due * _PLANTED else (None, None)
        facts += [fact] if fact else []
        said = turn or small_talk(number, scale)
        messages += _wire(said, number) if tools else _in_words(said)
        work += [dict(call.arguments) for call in _calls(said) if call.tool == UPDATE and tools]
        number += 1
        used = await size(messages)
    return Told(tuple(messages), tuple(facts), tuple(work))


def _calls(turn: Turn) -> Iterator[Call]:
    for reply in turn.replies:
        yield from reply.calls


def _wire(turn: Turn, number: int) -> Iterator[WireMessage]:
    yield {"role": "user", "content": turn.asked}
    for place, reply in enumerate(turn.replies):
        if not reply.calls:
            yield {"role": "assistant", "content": reply.text}
            continue
        name = f"c{number}_{place}"
        yield _called(name, [(call.tool, _json(call)) for call in reply.calls], reply.text)
        for at, call in enumerate(reply.calls):
            yield _result(name, at, call.result or "noted")


def _called(name: str, calls: Sequence[tuple[str, str]], text: str = "") -> WireMessage:
    made = [
        {"id": f"{name}.{at}", "type": "function", "function": {"name": tool, "arguments": arguments}}
        for at, (tool, arguments) in enumerate(calls)
    ]
    return {"role": "assistant", "content": text, "tool_calls": made}


def _result(name: str, at: int, text: str) -> WireMessage:
    return {"role": "tool", "tool_call_id": f"{name}.{at}", "content": text}


def _in_words(turn: Turn) -> Iterator[WireMessage]:
    """The turn as user and assistant alone, in turn: for a template that takes nothing else."""
    user = turn.asked
    for reply in turn.replies:
        calls = [f"{call.tool} {_json(call)}" for call in reply.calls]
        yield {"role": "user", "content": user}
        yield {"role": "assistant", "content": " ".join([reply.text, *calls])}
        user = "\n".join(call.result or "noted" for call in reply.calls)


def _json(call: Call) -> str:
    return json.dumps(dict(call.arguments), ensure_ascii=False)
