"""What compaction does to a long conversation: what is refused, cut or lost, and how much has to be prefilled for it."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import anyio

from benchmarks.compaction_script import SYSTEM, conversation
from benchmarks.compaction_scripted import Script, staged, tokens
from localctx.core.events import RungTaken, ToolAnswered
from localctx.core.ladder import POLICIES
from localctx.core.outgoing import defects, outgoing
from localctx.core.transcript import parse

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from benchmarks.compaction_scripted import Play, Sent
    from localctx.app.bench.script import Turn
    from localctx.core.ladder import Policy

__all__ = ["played"]


def played(turns: int, windows: Sequence[int] = (4_096, 8_192)) -> Iterator[dict[str, object]]:
    """The conversation under each policy, with summaries by a model and by the machine alone."""
    for window in windows:
        for policy in POLICIES.values():
            for alone in (False, True) if policy.rungs else (True,):
                yield anyio.run(_played, conversation(turns), window, policy, alone)


async def _played(turns: Sequence[Turn], window: int, policy: Policy, alone: bool) -> dict[str, object]:  # noqa: FBT001  anyio passes no names
    play = staged(Script(window), policy, alone=alone, system=SYSTEM)
    standing, without = list[str](), [0, 0]
    for turn in turns:
        before, refused = len(play.server.sent), play.refused
        await play.turn(turn)
        standing += turn.standing if play.refused == refused else ()
        for sent in filter(_answers, play.server.sent[before:]):
            missing = [words for words in standing if not _holds(sent, words)]
            without[0] += standing[:1] == missing[:1] != []
            without[1] += any(words in missing for words in standing[1:])
    return {
        "window": f"{window:,}",
        "policy": policy.name,
        "notes": "machine" if alone else "model",
        **_row(play, without),
    }


def _answers(sent: Sent) -> bool:
    return sent.request.outline is None


def _holds(sent: Sent, words: str) -> bool:
    return any(words in str(message.get("content")) for message in sent.request.messages)


def _row(play: Play, without: Sequence[int]) -> dict[str, object]:
    sent, window = play.server.sent, play.server.window
    above = [each for each in sent if each.prompt + each.request.max_tokens > window]
    rungs = Counter(event.rung for event in play.events if isinstance(event, RungTaken))
    prefilled, floor = sum(each.prefilled for each in sent), _floor(play)
    return {
        "requests": sum(map(_answers, sent)),
        "turns refused": play.refused,
        "above the window": sum(map(_answers, above)),
        "invalid lists": sum(bool(defects(each.request.messages)) for each in sent),
        "results unseen": _unseen(play),
        "without the goal": without[0],
        "without a rule": without[1],
        "summaries": len(sent) - sum(map(_answers, sent)),
        "of them above": len(above) - sum(map(_answers, above)),
        "rungs": ", ".join(f"{rungs[rung]} {rung}" for rung in sorted(rungs)),
        "prefilled": prefilled,
        "floor": floor,
        "of the floor": f"{prefilled / floor:.0%}",
    }


def _unseen(play: Play) -> int:
    """The results that were in no request for an answer, as they were shaped."""
    answers = [sent.request.messages for sent in play.server.sent if _answers(sent)]
    read = {str(message["content"]) for messages in answers for message in messages if message["role"] == "tool"}
    shown = [event.shown for event in play.events if isinstance(event, ToolAnswered)]
    return sum(not any(text.startswith(each) for text in read) for each in shown)  # behind it may stand a nudge


def _floor(play: Play) -> int:
    """The tokens of all that was said, as it was shaped: what has to be prefilled where nothing is given up."""
    said = [entry.body["message"] for entry in play.journal.entries() if entry.type == "message"]
    return len(tokens(outgoing(parse(said).history), play.chat.meter.tools))
