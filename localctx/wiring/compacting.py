"""Settling a saved conversation: which one, into which window, and who counts and writes the summary."""

from __future__ import annotations

import asyncio
import json
import os
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from msgspec.structs import replace

from localctx.app.compact import Means, compact
from localctx.app.compaction import Helper
from localctx.app.meter import Meter
from localctx.core.events import Notice
from localctx.core.formats import Conversation, Format
from localctx.core.ladder import POLICIES
from localctx.core.window import Budget, Confidence, EffectiveWindow, Reading, Source, assume, reconcile
from localctx.errors import Misuse
from localctx.runtimes.ollama_chat import OllamaServer
from localctx.stores.journal import MemoryJournal
from localctx.tokenizers.estimate import ClassEstimate
from localctx.wiring.chatting import open_chat
from localctx.wiring.places import pins, policy
from localctx.wiring.vocabularies import ollama_tokenizer

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Sequence
    from pathlib import Path

    from localctx.app.chat import Chat
    from localctx.app.compact import Settled
    from localctx.config import Settings
    from localctx.core.accounting import Count
    from localctx.core.events import Event
    from localctx.core.outgoing import WireMessage

__all__ = ["Footing", "check_new", "compacted", "settle", "the_conversation"]

Emit: TypeAlias = "Callable[[Event], None]"
Progress: TypeAlias = "Callable[[int, int], None]"


@dataclass(frozen=True, slots=True)
class Footing:
    """The window that a conversation is settled into, what with, and the model that was named."""

    window: EffectiveWindow
    means: Means
    model: str | None = None
    runtime: str | None = None
    url: str | None = None


def the_conversation(found: Sequence[Conversation] | str, name: str, form: str) -> Conversation:
    """The one conversation of a file, which is to be of a format (`auto`: of any). Raises `Misuse` where that is not so."""
    known = ("auto", "jsonl", *Format)
    if form not in known:
        raise Misuse(f"unknown format {form!r} (--format); known: {', '.join(known)}")
    spoken = [] if isinstance(found, str) else [each for each in found if each.messages]
    if not spoken:
        what = _instead(found) if isinstance(found, str) else "holds a conversation without a message"
        raise Misuse(f"{name} {what}; name a transcript (localctx count takes any text)")
    if len(spoken) > 1:
        raise Misuse(f"{name} holds {len(spoken):,} conversations, and one is taken; save one to a file of its own")
    if form not in {"auto", spoken[0].format, "jsonl" if spoken[0].format == "openai" else ""}:
        raise Misuse(f"{name} is of the format {spoken[0].format}, not {form}; pass --format auto")
    return spoken[0]


def _instead(text: str) -> str:
    """What is in a file that holds no conversation."""
    if not text.strip():
        return "is empty"
    try:
        json.loads(text)
    except RecursionError:
        return "is JSON that is nested too deeply"
    except json.JSONDecodeError as error:
        if text.lstrip().startswith(("{", "[")) and error.msg != "Extra data":  # which JSON lines have
            return f"is broken JSON (line {error.lineno:,}, column {error.colno:,}: {error.msg})"
    except ValueError:
        return "is JSON with a number that is too long"
    return "holds no conversation that is known"


def check_new(path: Path) -> None:
    """Raises `Misuse` where no new file can be made by that name, before anything is done for it."""
    if os.path.lexists(path):
        raise Misuse(f"{path} is there already, and stays as it is; name a file that is not there yet")
    if not os.access(path.parent, os.W_OK | os.X_OK):
        raise Misuse(f"{path.parent} is no folder that you can write; name a file in one")


async def compacted(
    conversation: Conversation, given: Settings, tokens: int | None, emit: Emit, progress: Progress, *, dry: bool
) -> tuple[Footing, Settled]:
    """Settles a conversation into a window of `tokens`, else the one that the named model is served with, or an assumed one.

    `dry` asks no model for a summary. `progress` is told bytes while a model is fetched. Raises what `open_chat` and
    `compact` raise.
    """
    beat = asyncio.create_task(_beat(emit))
    try:
        async with _footing(given, tokens, emit, progress, dry=dry) as footing:
            return footing, await compact(conversation, MemoryJournal(), footing.means, emit)
    finally:
        beat.cancel()


async def _beat(emit: Emit) -> None:
    """Says after 15 s, 30 s, a minute, two, ... that a server is still being waited for."""
    for seconds in (15, *(15 << doublings for doublings in range(30))):
        await asyncio.sleep(seconds)
        emit(Notice("at-work", "still at work"))


async def settle(
    messages: Sequence[WireMessage],
    *,
    window: int,
    tools: Sequence[WireMessage] = (),
    policy: str = "ladder",
    emit: Emit = lambda _event: None,
) -> Settled:
    """What becomes of a list of messages in a window of so many tokens: `messages` to send, and whether they fit.

    Counted by an estimate, and no model is asked. A list that grows is better kept by `Chat.settle`, which remembers what
    it counted and what it gave up. Raises `Misuse` for an unknown policy, or where nobody but the system speaks.
    """
    if policy not in POLICIES:
        raise Misuse(f"unknown policy {policy!r}; known: {', '.join(POLICIES)}")
    conversation = Conversation(Format.OPENAI, tuple(messages), tuple(tools))
    means = Means(Meter(_Nobody(), ClassEstimate()), POLICIES[policy], Budget.of(window))
    return await compact(conversation, MemoryJournal(), means, emit)


@asynccontextmanager
async def _footing(
    given: Settings, tokens: int | None, emit: Emit, progress: Progress, *, dry: bool
) -> AsyncIterator[Footing]:
    """With the model that was named; without one an estimate counts, and nobody writes a summary."""
    wish = reconcile([Reading(Source.PINNED, tokens, "--window")]) if tokens else None
    if not {"--model", "--url"} & {given.origins.get("model"), given.origins.get("url")}:
        pin, (rules, unfit) = pins(given), policy(given)
        for said in unfit:
            emit(Notice("threshold", said))
        window = wish or assume(reconcile([pin.pin] if pin.pin else [], ceiling=pin.ceiling))
        yield Footing(window, Means(Meter(_Nobody(), ClassEstimate()), rules, _budget(window, given, emit)))
        return
    own = replace(given, system=None, tools="none", summarizer_model=None if dry else given.summarizer_model)
    async with open_chat(own, MemoryJournal(), _but_assumed(emit), progress) as chat:
        await _get_exact(chat)
        window = wish or chat.window
        asked = (None, None) if dry else (chat.runtime, _helper(chat, window))
        means = Means(chat.meter, chat.engine.policy, _budget(window, given, emit), *asked)
        yield Footing(window, means, chat.model, chat.runtime.kind, chat.runtime.url)


def _but_assumed(emit: Emit) -> Emit:
    """Passes on all but what a chat says of a window that nobody states: perhaps it is not the one that counts here."""
    return lambda event: None if isinstance(event, Notice) and event.code == "assumed" else emit(event)


async def _get_exact(chat: Chat) -> None:
    """Waits for the vocabulary that an Ollama's prompts are counted with: a chat reads it beside its first turn."""
    if isinstance(chat.runtime, OllamaServer):
        known = [each for each in (await chat.runtime.probe()).models if each.id == chat.model]
        chat.runtime.tokenizer = await ollama_tokenizer(chat.runtime, known[0]) if known else None


def _helper(chat: Chat, window: EffectiveWindow) -> Helper | None:
    """Who writes the summary where the model's window is smaller than the conversation's: the model, in its own."""
    smaller = chat.window.confidence is not Confidence.UNKNOWN and chat.engine.budget.window < (window.tokens or 0)
    own = Helper(chat.runtime, chat.meter, chat.engine.budget) if smaller else None
    return chat.engine.summarizer or own


def _budget(window: EffectiveWindow, given: Settings, emit: Emit) -> Budget:
    if window.decided_by and window.decided_by.source is Source.ASSUMED:
        emit(Notice("assumed", f"nobody states the window: assuming {window.tokens:,} tokens; pass --window to say it"))
    return Budget.of(window.tokens or 0, max_prompt=window.max_prompt, output_limit=given.max_tokens)


class _Nobody:
    """Stands where a server would count."""

    async def count(self, messages: Sequence[WireMessage], tools: Sequence[WireMessage] = ()) -> Count | None:  # noqa: ARG002  the port's signature
        """Nobody does."""
        return None
