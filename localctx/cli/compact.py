"""`localctx compact`: a saved transcript settled into a window, what each rung did to it, and what is left."""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from localctx.cli.options import ApiKeyEnv, AsJson, Model
from localctx.cli.render import Renderer, note, out, say
from localctx.cli.sessions import spelled
from localctx.cli.wording import window_text
from localctx.core.events import Event, PressureRaised, RungTaken
from localctx.errors import DoesNotFit, Misuse

if TYPE_CHECKING:
    from localctx.app.compact import Settled, Sized
    from localctx.core.formats import Conversation
    from localctx.wiring.compacting import Footing

__all__ = ["command"]

_FORMATS = "Take it only in this format, such as openai or claude-code; auto takes any."


def command(
    file: Annotated[str, typer.Argument(help="A saved transcript; - is standard input.")],
    form: Annotated[str, typer.Option("--format", help=_FORMATS)] = "auto",
    window: Annotated[int | None, typer.Option("--window", min=1, max=2**31 - 1, help="The window, in tokens.")] = None,
    policy: Annotated[str | None, typer.Option("--policy", help="ladder, replace, micro, gate or none.")] = None,
    model: Model = None,
    url: Annotated[str | None, typer.Option("--url", help="The server that counts and writes the summary.")] = None,
    new: Annotated[Path | None, typer.Option("--out", help="Write what is left to this new file.")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Ask no model for a summary, and write nothing.")] = False,
    api_key_env: ApiKeyEnv = None,
    as_json: AsJson = False,
) -> None:
    """Settle a saved transcript into a window, and show what each rung did.

    No model is asked without --model or --url: the record alone is the summary. What is written is OpenAI's JSON.
    """
    import anyio

    from localctx import wiring
    from localctx.cli.models import fetching
    from localctx.wiring.compacting import check_new, compacted
    from localctx.wiring.record import save

    Renderer(as_json=as_json)
    given = wiring.settings({"policy": policy, "model": model, "url": url, "api_key_env": api_key_env})
    wiring.policy(given)
    if new is not None:
        check_new(new)
    conversation = _load(file, form)

    async def settled() -> tuple[Footing, Settled]:
        return await compacted(conversation, given, window, _told, progress, dry=dry_run)

    with fetching() as progress:
        footing, done = anyio.run(settled)
    document = _document(file, conversation, footing, done) if as_json else {}
    out(spelled(document) if as_json else "\n".join(_lines(file, conversation, footing, done)))
    Renderer(as_json=False)  # the document is out: what is wrong from here on is said on stderr
    if not done.fits:
        raise DoesNotFit(_arithmetic(file, footing, done))
    if new is not None and not dry_run:
        tools = {"tools": conversation.tools} if conversation.tools else {}
        save(new, spelled({"messages": done.messages, **tools}) + "\n")
        among = ", the checkpoint among them" if done.after.fills["checkpoint"] else ""
        note(f"wrote {len(done.messages):,} messages to {new}{among}")


def _load(name: str, form: str) -> Conversation:
    from localctx.stores.transcripts import load, piped
    from localctx.wiring.compacting import the_conversation

    if name != "-":
        return the_conversation(load(Path(name)), name, form)
    if sys.stdin is None:
        raise Misuse("standard input is closed; name a file")
    return the_conversation(piped(sys.stdin.buffer), "standard input", form)


def _told(event: Event) -> None:
    """Says what happens, but for the rungs: the table shows them, and the log has them."""
    if isinstance(event, RungTaken):
        logging.getLogger("localctx").info("%s", json.dumps({"type": "rung", **asdict(event)}))
    elif not isinstance(event, PressureRaised):
        say(event)


def _arithmetic(name: str, footing: Footing, done: Settled) -> str:
    budget, fills = footing.means.budget, done.after.fills
    largest = max(fills, key=lambda kind: fills[kind])
    return (
        f"{name} cannot be made to fit by policy {footing.means.policy.name}: {_most(done)}, and of a window of "
        f"{budget.window:,} a prompt may take {budget.prompt:,}; {largest} is the most of it with about "
        f"{fills[largest]:,}: pass a larger --window,{_further(footing, done)} or shorten that"
    )


def _further(footing: Footing, done: Settled) -> str:
    """What else may help: another policy, or somebody who counts exactly."""
    policy = "" if footing.means.policy.rungs else " another --policy,"
    return policy + (" --url with a server that counts exactly," if done.after.count.bound and not footing.url else "")


def _most(done: Settled) -> str:
    count = done.after.count
    return f"it takes {count.upper:,} tokens{' at most' if count.bound else ''} ({count.how})"


def _document(name: str, conversation: Conversation, footing: Footing, done: Settled) -> dict[str, object]:
    budget, found = footing.means.budget, footing.window.decided_by
    window = {"effective": budget.window, "confidence": footing.window.confidence, "prompt": budget.prompt}
    return {
        "schema": 1,
        "file": name,
        "format": conversation.format,
        "left_out": [asdict(loss) for loss in conversation.left_out],
        "unrecorded": conversation.unrecorded,
        **{key: getattr(footing, key) for key in ("model", "runtime", "url")},
        "window": {**window, "reserve": budget.reserve, "decided_by": asdict(found) if found else None},
        "policy": footing.means.policy.name,
        **{name: value for name, value in asdict(replace(done, messages=())).items() if name != "messages"},
    }


def _lines(name: str, conversation: Conversation, footing: Footing, done: Settled) -> Iterator[str]:
    budget = footing.means.budget
    yield f"{name}: {conversation.format}, {done.before.messages:,} messages"
    if gone := sum(loss.count for loss in conversation.left_out):
        yield f"  left out: {gone:,} entries (localctx count {name} says which)"
    if conversation.unrecorded:
        yield f"  not in the file: {conversation.unrecorded}"
    yield f"{window_text(footing.window)}; policy {footing.means.policy.name}"
    if done.shaped:
        yield f"results longer than a run lets in, shaped as there: {done.shaped:,}"
    yield from map(_rung, done.rungs)
    if not done.rungs:
        used = done.after.count.tokens * 100 // budget.window
        yield f"{'nothing was due' if done.fits else 'no rung was taken'}: {used:,}% of the window is used"
    yield from _table(done.before, done.after)
    if done.words_shortened or done.words_left_out:
        yield f"messages of the user: {done.words_shortened:,} shortened, {done.words_left_out:,} left out"
    yield f"{'it fits' if done.fits else 'it does not fit'}: {_most(done)}, of {budget.prompt:,} for the prompt"


def _rung(rung: RungTaken) -> str:
    tokens = f"{rung.tokens_before:>9,} -> {rung.tokens_after:>7,} tokens"
    messages = f"{rung.messages_before:>6,} -> {rung.messages_after:>5,} messages"
    return f"{rung.rung:<8}{rung.how:<8}{tokens}{messages}{rung.seconds:>7.1f} s"


def _table(before: Sized, after: Sized) -> Iterator[str]:
    yield f"{'':<11}{'before':>11}{'after':>11}"
    rows = [(kind, before.fills[kind], after.fills[kind]) for kind in before.fills]
    rows += [("in all", before.count.tokens, after.count.tokens), ("+-", before.count.bound, after.count.bound)]
    yield from (f"{name:<11}{one:>11,}{two:>11,}" for name, one, two in rows if one or two)
