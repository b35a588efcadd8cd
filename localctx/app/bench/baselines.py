"""What other programs do to a list that has grown too long, by the rules that are known of them, in our own words."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from localctx.app.bench.asking import asked
from localctx.ports import Request

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence

    from localctx.app.bench.asking import Took
    from localctx.core.outgoing import WireMessage
    from localctx.ports import Runtime

__all__ = ["BASELINES", "Baseline", "Ground"]


@dataclass(frozen=True, slots=True)
class Ground:
    """Where a baseline works: the server, the window, the most tokens of a summary, and what counts a list.

    `took` is told what each request took, `note` what is worth a word about the row.
    """

    runtime: Runtime
    window: int
    cap: int
    size: Callable[[Sequence[WireMessage]], Awaitable[int]]
    took: Callable[[Took], None]
    note: Callable[[str], None]

    async def ask(self, messages: Sequence[WireMessage], cap: int | None = None) -> Took:
        """One request for a summary of at most `cap` tokens; raises what `Runtime.chat` raises."""
        took = await asked(self.runtime, Request(messages, cap or self.cap, temperature=0.0))
        self.took(took)
        return took


@dataclass(frozen=True, slots=True)
class Baseline:
    """A way: `left` gives what is sent from then on. `asks` the model, `in_place` by going on from the request before."""

    left: Callable[[Ground, Sequence[WireMessage]], Awaitable[list[WireMessage]]]
    asks: bool
    in_place: bool


def _user(text: str) -> WireMessage:
    return {"role": "user", "content": text}


# --- drop the oldest ----------------------------------------------------------------------------------------------

_DROPPED_TO = 0.5
"""The share of the window that is left, as our own trim leaves (`core/ladder.py`)."""


async def _dropped(ground: Ground, messages: Sequence[WireMessage], share: float = _DROPPED_TO) -> list[WireMessage]:
    """The system's words, and the newest messages that fit; no result without its call."""
    first, *rest = messages
    while len(rest) > 1 and await ground.size([first, *rest]) > ground.window * share:
        rest.pop(0)
        while len(rest) > 1 and rest[0]["role"] == "tool":
            rest.pop(0)
    return [first, *rest]


# --- a naive summary ----------------------------------------------------------------------------------------------


async def _naive(ground: Ground, messages: Sequence[WireMessage]) -> list[WireMessage]:
    """A summary in a sentence's prompt, and nothing else."""
    took = await ground.ask([*messages, _user("Summarize our conversation so far.")])
    return [messages[0], _user(f"Summary of our conversation so far:\n{took.text}")]


# --- the seed's rules ---------------------------------------------------------------------------------------------

_TAIL, _TAIL_LEAST, _TAIL_MOST, _READ = 0.2, 8_000, 40_000, 0.6
_TRIMMED_TO = 0.8
"""The seed: a tail of a fifth of the window, 8k to 40k tokens, a quarter below 32k; pieces of 60 %; trimmed to 80 %."""

_SURE = 0.95
"""The share of the room beside the prompt that its summary may take: the seed sets no cap, and a count may be short."""

_FORM = (
    "Write down where this stands, under the headings Goal, Constraints & Preferences, Covered So Far, Progress (Done, In "
    "Progress, Blocked), Key Decisions, Next Steps, Critical Context. Put (none) where there is nothing."
)


async def _seed(ground: Ground, messages: Sequence[WireMessage]) -> list[WireMessage]:
    """The task, a summary written apart from a transcript, a word to go on, and a tail; trimmed where it is refused."""
    system, task, *rest = messages
    room = min(max(int(ground.window * _TAIL), min(_TAIL_LEAST, ground.window // 4)), _TAIL_MOST)
    tail = await _newest(ground, rest, room)
    summary = ""
    for piece in await _pieces(ground, [system, task, *rest[: len(rest) - len(tail)]]):
        earlier = f"<previous-summary>\n{summary}\n</previous-summary>\nBring it up to date.\n" if summary else ""
        asking = [_user(f"{_FORM}\n{earlier}<conversation>\n{piece}\n</conversation>")]
        took = await ground.ask(asking, max(int((ground.window - await ground.size(asking)) * _SURE), 1))
        summary = took.text.strip()
        if not summary or took.reason == "length":
            ground.note(
                f"its summary was cut off at {took.usage.completion} tokens and refused, so it trims to 80 % of the window"
            )
            return await _dropped(ground, messages, _TRIMMED_TO)
    kept = tail[next((at for at, message in enumerate(tail) if message["role"] != "tool"), len(tail)) :]
    said: WireMessage = {"role": "assistant", "content": summary}
    return [system, task, said, _user("Continue the task using the summary above as context."), *kept]


async def _newest(ground: Ground, messages: Sequence[WireMessage], room: int) -> list[WireMessage]:
    """As many of the newest messages as take so many tokens, the newest whatever it takes."""
    kept = list(messages[-1:])
    for message in reversed(messages[:-1]):
        if await ground.size([message, *kept]) > room:
            break
        kept.insert(0, message)
    return kept


async def _pieces(ground: Ground, messages: Sequence[WireMessage]) -> list[str]:
    """The transcript in pieces of at most 60 % of the window."""
    pieces, open_piece = list[str](), ""
    for message in messages:
        block = f"[{str(message['role']).upper()}] {message.get('content') or ''}"
        joined = f"{open_piece}\n---\n{block}" if open_piece else block
        if open_piece and await ground.size([_user(joined)]) > ground.window * _READ:
            pieces.append(open_piece)
            joined = block
        open_piece = joined
    return [*pieces, open_piece]


# --- replacement, as Codex does it --------------------------------------------------------------------------------

_WORDS = 20_000
"""The tokens of the user's messages that stay (Codex); here half of the window at most."""


async def _replaced(ground: Ground, messages: Sequence[WireMessage]) -> list[WireMessage]:
    """The user's messages, the newest within their cap, and a note written for whoever goes on."""
    ask = "Write a short note for another model that is to go on with this: progress, decisions, rules, next steps, key data."
    took = await ground.ask([*messages, _user(ask)])
    said = [message for message in messages if message["role"] == "user"]
    words = await _newest(ground, said, min(_WORDS, ground.window // 2))
    return [messages[0], *words, _user(f"Another model worked on this before. Its note:\n{took.text}")]


BASELINES: Mapping[str, Baseline] = {
    "drop the oldest": Baseline(_dropped, asks=False, in_place=False),
    "naive summary": Baseline(_naive, asks=True, in_place=True),
    "replacement (Codex)": Baseline(_replaced, asks=True, in_place=True),
    "Jazz's rules (seed)": Baseline(_seed, asks=True, in_place=False),
}
"""By the names that the tables have."""
