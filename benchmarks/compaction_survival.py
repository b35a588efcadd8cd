"""What is left of planted facts after ten compactions: in what is sent, or within one search of it; and what was invented."""

from __future__ import annotations

import json
import re
from collections import Counter
from time import perf_counter
from typing import TYPE_CHECKING

import anyio

from benchmarks.compaction_scripted import Script, staged, tokens
from localctx.app.bench.facts import FACTS, SYSTEM, holds, plainly, planted
from localctx.core.checkpoint import render
from localctx.core.events import RungTaken
from localctx.core.ladder import POLICIES, Rung
from localctx.core.outgoing import outgoing, texts
from localctx.core.results import RECALL, RETRIEVE
from localctx.core.work import UPDATE
from localctx.hardware.machine import worker_threads
from localctx.runtimes import embedded
from localctx.runtimes.llama_server import LlamaServer

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from benchmarks.compaction_scripted import Play
    from localctx.app.bench.facts import Fact
    from localctx.core.ladder import Policy
    from localctx.core.messages import Checkpoint
    from localctx.ports import Runtime

__all__ = ["survived"]

_WINDOW, _STRETCH = 8_192, 4
"""A compaction comes after so many turns, whether it is due or not."""

_MORE = 32
"""The turns by which a transcript goes on at most until it was compacted once in each stretch but one: ten times in 44 turns."""


def survived(model: Path | None, *, turns: int = 44) -> Iterator[dict[str, object]]:
    """What is left under each policy where the notes are sentences of the conversation, copied; and where a model writes them.

    That is done for `ladder` alone: a small model reads some 50,000 tokens for it.
    """
    for policy in POLICIES.values():
        if policy.rungs:
            yield anyio.run(_survived, policy, None, turns)
    if model is not None:
        yield anyio.run(_with_a_server, POLICIES["ladder"], model, turns)


async def _with_a_server(policy: Policy, model: Path, turns: int) -> dict[str, object]:
    server = await embedded.start(model, name=model.stem, window=_WINDOW, threads=worker_threads())
    writer = LlamaServer(server.url, key=server.key)
    try:
        return await _survived(policy, writer, turns)
    finally:
        await writer.close()
        server.stop()


async def _survived(policy: Policy, writer: Runtime | None, turns: int) -> dict[str, object]:
    play, started = staged(Script(_WINDOW, writer), policy, alone=False, system=SYSTEM), perf_counter()
    noted: list[Checkpoint] = []
    script = planted(turns, more=_MORE)
    for first in range(0, len(script), _STRETCH):
        if first >= turns and len(_compactions(play)) >= turns // _STRETCH - 1:
            break
        before = len(_compactions(play))
        for turn in script[first : first + _STRETCH]:
            await play.turn(turn)
            noted += _newest(play, noted)
        if len(_compactions(play)) == before:
            await play.chat.engine.compact()
            noted += _newest(play, noted)
    names = {"policy": policy.name, "notes": "model" if writer else "copied"}
    return names | await _row(play, noted) | {"seconds": round(perf_counter() - started)}


def _compactions(play: Play) -> list[RungTaken]:
    return [event for event in play.events if isinstance(event, RungTaken) and event.rung is not Rung.CLEAR]


def _newest(play: Play, noted: Sequence[Checkpoint]) -> list[Checkpoint]:
    """The checkpoint that stands now, where it is none of those."""
    now = play.chat.session.history.checkpoint
    return [] if now is None or now in noted[-1:] else [now]


async def _row(play: Play, noted: Sequence[Checkpoint]) -> dict[str, object]:
    sent = outgoing(play.chat.session.history)
    shown = plainly("\n".join(texts(sent)))
    kept = [fact for fact in FACTS if holds(shown, fact)]
    found = [fact for fact in FACTS if fact not in kept and RECALL in shown and await _recalled(play, fact)]
    kinds, left = Counter(fact.kind for fact in FACTS), Counter(fact.kind for fact in kept)
    ways = Counter(event.how for event in _compactions(play))
    return {
        "compactions": f"{sum(ways.values())} ({', '.join(f'{ways[how]} {how}' for how in sorted(ways))})",
        **{f"{kind}s": f"{left[kind]} of {kinds[kind]}" for kind in kinds},
        "last action": "kept" if _last_action(play, noted[-1]) in shown else "lost",
        "kept": f"{len(kept) / len(FACTS):.1%}",
        "kept or recalled": f"{(len(kept) + len(found)) / len(FACTS):.1%}",
        "invented": len(_invented(play, noted)),
        "checkpoint": len(tokens([{"role": "user", "content": render(noted[-1])}])),
        "turns refused": play.refused,
    }


async def _recalled(play: Play, fact: Fact) -> bool:
    """Whether one search, by what the fact is about, finds it."""
    return holds(plainly((await play.recall.run({"query": fact.about})).text), fact)


def _last_action(play: Play, checkpoint: Checkpoint) -> str:
    """The last call that the checkpoint stands for, as a machine notes it: the tool and how its arguments begin."""
    said = ""
    for entry in play.journal.entries():
        match entry.body.get("message"):
            case {"tool_calls": [*_, {"function": {"name": str(name), "arguments": str(arguments)}}]}:
                if entry.seq <= checkpoint.through and name not in {RECALL, RETRIEVE, UPDATE}:
                    said = f"Last action: {name}({next(iter(json.loads(arguments).values()))}"
    return plainly(said)


_CLAIM = re.compile(r"[\w.~-]*(?:/[\w.~-]+)+|\w+_\w+|\d+(?:[.,:]\d+)*")


def _invented(play: Play, noted: Sequence[Checkpoint]) -> set[str]:
    """The paths, numbers and identifiers in notes that nobody had said and no tool returned."""
    said = "\n".join(_said(play)).lower()
    notes = "\n".join(item for checkpoint in noted for _, items in checkpoint.sections for item in items).lower()
    claims = {claim.rstrip(".") for claim in _CLAIM.findall(notes)}
    return {claim for claim in claims if not re.search(rf"(?<!\w){re.escape(claim)}(?!\w)", said)}


def _said(play: Play) -> Iterator[str]:
    for entry in play.journal.entries():
        yield from texts(entry.body.get("message"))
        yield play.journal.whole(entry) or ""
