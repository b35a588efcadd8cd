"""`localctx count`: how many tokens texts and transcripts are, how that was counted, and what share of the window."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from localctx.cli.options import ApiKeyEnv, AsJson, MaxContext, Model, NumCtx, RuntimeKind
from localctx.core.accounting import Count
from localctx.core.portions import portions
from localctx.errors import Misuse

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from localctx.app.count import Tally
    from localctx.config import Settings
    from localctx.core.formats import Conversation
    from localctx.core.window import EffectiveWindow
    from localctx.wiring.counting import Footing

__all__ = ["command"]


def command(
    file: Annotated[list[str] | None, typer.Argument(help="Texts or transcripts; - is standard input.")] = None,
    model: Model = None,
    url: Annotated[str | None, typer.Option("--url", help="The server's address.")] = None,
    runtime: RuntimeKind = None,
    num_ctx: NumCtx = None,
    max_context: MaxContext = None,
    counter: Annotated[
        Literal["auto", "estimate", "baseline"],
        typer.Option("--counter", help="auto: the best there is; baseline: characters a token, to compare with."),
    ] = "auto",
    api_key_env: ApiKeyEnv = None,
    as_json: AsJson = False,
) -> None:
    """Count the tokens of texts and transcripts, as exactly as what is at hand allows, and say how."""
    import anyio

    from localctx import wiring
    from localctx.cli.render import Renderer, out

    Renderer(as_json=as_json)
    names = file or ([] if sys.stdin.isatty() else ["-"])
    if not names:
        raise Misuse("nothing to count: name a file, or - for standard input")
    flags = {
        "model": model,
        "url": url,
        "runtime": runtime,
        "num_ctx": num_ctx,
        "max_context_tokens": max_context,
        "api_key_env": api_key_env,
    }
    given = wiring.settings(flags)
    loaded, refused = _load_all(names)
    counted = anyio.run(_count, given, loaded, counter)
    out(json.dumps(_document(counted), ensure_ascii=False, indent=1) if as_json else "\n".join(_lines(counted)))
    if refused:
        raise Misuse("; ".join(map(str, refused)))


@dataclass(frozen=True, slots=True)
class _Counted:
    """One text or conversation with its count, and what a conversation is made up of."""

    name: str
    count: Count
    told: tuple[Conversation, Tally] | None = None


@dataclass(frozen=True, slots=True)
class _Answer:
    footing: Footing
    files: tuple[_Counted, ...]


def _load_all(names: Sequence[str]) -> tuple[dict[str, tuple[Conversation, ...] | str], list[Misuse]]:
    """What could be read, and what was wrong with the rest. Raises it where nothing could be."""
    loaded: dict[str, tuple[Conversation, ...] | str] = {}
    refused: list[Misuse] = []
    for name in names:
        try:
            loaded[name] = _load(name)
        except Misuse as error:
            refused.append(error)
    if not loaded:
        raise refused[0]
    return loaded, refused


def _load(name: str) -> tuple[Conversation, ...] | str:
    """A file, or standard input, as conversations, or where it holds none as text."""
    from localctx.stores.transcripts import load, piped

    if name == "-":
        return piped(sys.stdin.buffer)
    if Path(name).is_fifo():
        with Path(name).open("rb") as stream:
            return piped(stream)
    return load(Path(name))


async def _count(given: Settings, loaded: Mapping[str, tuple[Conversation, ...] | str], counter: str) -> _Answer:
    from localctx.app.count import tally_messages, tally_text
    from localctx.cli.render import say
    from localctx.wiring.counting import counting

    files = list[_Counted]()
    async with counting(given, say, counter) as footing:
        for name, found in loaded.items():
            if isinstance(found, str):
                files.append(_Counted(name, await tally_text(footing.means, found)))
                continue
            for number, conversation in enumerate(found, 1):
                tally = await tally_messages(footing.means, conversation.messages, conversation.tools)
                shown = f"{name} #{number}" if len(found) > 1 else name
                files.append(_Counted(shown, tally.whole, (conversation, tally)))
    return _Answer(footing, tuple(files))


# --- for programs -------------------------------------------------------------------------------------------------


def _document(answer: _Answer) -> dict[str, object]:
    footing = answer.footing
    return {
        "schema": 1,
        "model": footing.model,
        "runtime": footing.runtime,
        "url": footing.url,
        "window": {"effective": footing.window.tokens, "confidence": footing.window.confidence},
        "files": [_file(each, footing) for each in answer.files],
        "total": _sized(_total(answer.files), footing),
    }


def _file(each: _Counted, footing: Footing) -> dict[str, object]:
    found: dict[str, object] = {"file": each.name, "format": "text", **_sized(each.count, footing)}
    if each.told is None:
        return found
    conversation, tally = each.told
    return found | {
        "format": conversation.format,
        "messages": [
            {"role": message.get("role"), **_plainly(count)}
            for message, count in zip(conversation.messages, tally.messages, strict=True)
        ],
        "beside": _plainly(tally.beside),
        "left_out": [asdict(loss) for loss in conversation.left_out],
        "unrecorded": conversation.unrecorded,
    }


def _plainly(count: Count) -> dict[str, object]:
    return {"tokens": count.tokens, "bound": count.bound}


def _sized(count: Count, footing: Footing) -> dict[str, object]:
    window = footing.window.tokens
    share = round(count.tokens / window, 4) if window else None
    return _plainly(count) | {"how": count.how, "share": share}


def _total(files: Sequence[_Counted]) -> Count:
    hows = dict.fromkeys(each.count.how for each in files)
    return Count(sum(each.count.tokens for each in files), sum(each.count.bound for each in files), "; ".join(hows))


# --- for people ---------------------------------------------------------------------------------------------------


def _lines(answer: _Answer) -> Iterator[str]:
    footing = answer.footing
    for each in answer.files:
        if each.told is not None:
            yield from _messages(*each.told)
        form = f"{each.told[0].format}, {len(each.told[0].messages):,} messages" if each.told else "text"
        yield f"{_amount(each.count)}  {_share(each.count, footing.window)}  {each.name} ({form})"
    if len(answer.files) > 1:
        total = _total(answer.files)
        yield f"{_amount(total)}  {_share(total, footing.window)}  in all"
    yield from _footing(answer)


def _messages(conversation: Conversation, tally: Tally) -> Iterator[str]:
    for number, (message, count) in enumerate(zip(conversation.messages, tally.messages, strict=True), 1):
        begins = " ".join(" ".join(portion.text for portion in portions(message)).split())
        yield f"{_amount(count)}  {number:>5}  {message.get('role', '?')!s:<9}  {begins[:_BEGINNING]}".rstrip()
    yield f"{_amount(tally.beside)}         beside the messages: the template, {len(conversation.tools)} tool schemas"
    for loss in conversation.left_out:
        yield f"{'':>18}  left out: {loss}"
    if conversation.unrecorded:
        yield f"{'':>18}  not in the file: {conversation.unrecorded}"


_BEGINNING = 44


def _amount(count: Count) -> str:
    return f"{count.tokens:>10,} {f'+-{count.bound:,}' if count.bound else '':<9}"


def _share(count: Count, window: EffectiveWindow) -> str:
    return f"{count.tokens * 100 / window.tokens:5.1f}%" if window.tokens else "     -"


def _footing(answer: _Answer) -> Iterator[str]:
    footing, window = answer.footing, answer.footing.window
    model = f" for {footing.model}" if footing.model else ""
    yield f"counted{model} by: {_total(answer.files).how}"
    if window.tokens and window.decided_by:
        yield f"window: {window.tokens:,} tokens, {window.confidence} ({window.decided_by.where})"
    else:
        yield "window: unknown, so no shares; name a server's model, or pass --num-ctx"
