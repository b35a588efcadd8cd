"""`localctx run`: one answer, or a chat on a terminal, kept inside the window that is really served."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from contextlib import AsyncExitStack, contextmanager, suppress
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from localctx.cli.models import fetching
from localctx.cli.options import ApiKeyEnv, AsJson, MaxContext, Model, NumCtx, RuntimeKind
from localctx.errors import Interrupted

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from contextlib import AbstractAsyncContextManager

    from prompt_toolkit.history import History

    from localctx.app.chat import Chat
    from localctx.cli.render import Renderer
    from localctx.cli.repl import Desk, Next
    from localctx.config import Settings
    from localctx.core.window import ModelReport
    from localctx.stores.journal import FileJournal, MemoryJournal

    _Opening = Callable[..., AbstractAsyncContextManager[Chat]]

__all__ = ["command"]

_MOST_INPUT = 16 * 2**20


def command(
    prompt: Annotated[str | None, typer.Argument(help="What to ask; without it, a chat on a terminal.")] = None,
    model: Model = None,
    url: Annotated[str | None, typer.Option("--url", help="The server's address.")] = None,
    runtime: RuntimeKind = None,
    num_ctx: NumCtx = None,
    max_context: MaxContext = None,
    system: Annotated[str | None, typer.Option("--system", help="The system prompt, or @FILE.")] = None,
    policy: Annotated[
        str | None, typer.Option("--policy", help="How the window is kept: ladder, replace, micro, gate or none.")
    ] = None,
    max_tokens: Annotated[int | None, typer.Option("--max-tokens", help="The longest reply, in tokens.")] = None,
    temperature: Annotated[float | None, typer.Option("--temperature", help="Sampling temperature.")] = None,
    think: Annotated[
        str | None, typer.Option("--think", help="Whether a model that can think does: on or off.")
    ] = None,
    image: Annotated[
        list[Path] | None, typer.Option("--image", help="An image for the prompt; more with more.")
    ] = None,
    summarizer: Annotated[
        str | None, typer.Option("--summarizer", help="Another model that writes the summaries: [URL#]MODEL.")
    ] = None,
    tools: Annotated[
        str | None,
        typer.Option(
            "--tools",
            help="Tools for the model: a list of session, read, write, command and web; all (but web), or none.",
        ),
    ] = None,
    yes: Annotated[
        bool,
        typer.Option(
            "--yes",
            help="Let tools write files, run commands and fetch pages without asking; not read files with secrets.",
        ),
    ] = False,
    cwd: Annotated[str | None, typer.Option("--cwd", help="Work in this folder.")] = None,
    max_steps: Annotated[int | None, typer.Option("--max-steps", help="How often a turn may call tools.")] = None,
    session: Annotated[str | None, typer.Option("--session", help="A session by name; made if it is new.")] = None,
    go_on: Annotated[bool, typer.Option("--continue", help="Go on with the newest session.")] = False,
    resume: Annotated[str | None, typer.Option("--resume", help="Go on with this session.")] = None,
    ephemeral: Annotated[bool, typer.Option("--ephemeral", help="Keep no session.")] = False,
    api_key_env: ApiKeyEnv = None,
    as_json: AsJson = False,
) -> None:
    """Talk to a local model and never lose the thread: the window is probed, kept, and compacted when it fills."""
    import anyio

    from localctx import wiring
    from localctx.cli.asking import Asking, can_ask
    from localctx.cli.attach import image as attached
    from localctx.cli.render import Renderer
    from localctx.errors import Misuse

    render = Renderer(as_json=as_json)
    flags = {
        "model": model,
        "url": url,
        "runtime": runtime,
        "num_ctx": num_ctx,
        "max_context_tokens": max_context,
        "system": system,
        "policy": policy,
        "max_tokens": max_tokens,
        "temperature": temperature,
        "think": think,
        "summarizer_model": summarizer,
        "tools": tools,
        "max_steps": max_steps,
        "api_key_env": api_key_env,
    }
    if cwd is not None:
        _go_to(cwd)
    given = wiring.settings(flags)
    text = _asked(prompt)
    if text is None and (as_json or not (sys.stdin and sys.stdin.isatty() and sys.stdout and sys.stdout.isatty())):
        raise Misuse("nothing was asked: pass a PROMPT in quotes, or pipe one in")
    if image and text is None:
        raise Misuse("--image goes with a PROMPT; in a chat attach one as @FILE")
    pictures = [attached(each) for each in image or ()]
    wiring.policy(given)
    journal = wiring.journal(session=session, resume=resume, go_on=go_on, ephemeral=ephemeral)
    ask = Asking(render) if can_ask(as_json=as_json) else None
    opening = partial(wiring.open_chat, ask=ask, yes=yes)
    if text is None:
        anyio.run(_sit, _Place(given, journal), render, opening)
    else:
        anyio.run(_run, partial(opening, given, journal, render), _Asked(text, pictures), journal, render)


def _asked(prompt: str | None) -> str | None:
    """The prompt with what was piped in as its context; None where a chat is meant."""
    from localctx.errors import Misuse

    piped = ""
    if sys.stdin is not None and not sys.stdin.isatty():
        raw = sys.stdin.buffer.read(_MOST_INPUT + 1)
        if len(raw) > _MOST_INPUT:
            raise Misuse(
                f"more than {_MOST_INPUT:,} bytes were piped in; no local window holds that: pass a part of it"
            )
        if b"\0" in raw:
            raise Misuse("what was piped in is binary, which no model reads; pipe in text")
        piped = raw.decode("utf-8", "replace").strip()
    return "\n\n".join(text for text in (prompt, piped) if text and text.strip()) or None


def _go_to(folder: str) -> None:
    """Goes to the folder to work in, from which everything relative is reckoned. Raises `Misuse`."""
    from localctx.errors import Misuse

    try:
        os.chdir(os.path.expanduser(folder))  # noqa: PTH111  a text until here
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or error
        raise Misuse(f"cannot work in {folder!r} ({why}); pass --cwd with a folder that is there") from error


@dataclass(frozen=True, slots=True)
class _Asked:
    """One prompt, and the images that go with it as data URLs."""

    text: str
    images: Sequence[str]


async def _run(opening: _Opening, asked: _Asked, journal: FileJournal | MemoryJournal, render: Renderer) -> None:
    from localctx.cli.render import complain
    from localctx.core.record import spent
    from localctx.errors import LocalctxError

    finish, code = "interrupted", 0
    try:
        with fetching() as progress, _stopped_by(signal.SIGINT, *_ENDING):
            async with opening(progress) as chat:
                finish = await chat.ask(asked.text, asked.images)
    except LocalctxError as error:
        finish, code = "error", error.exit_code
        render.end_line()
        complain(str(error), code)
    finally:
        render.end(finish, journal.name, lambda: asdict(spent(journal.entries())))
        journal.leave()
    raise typer.Exit(code)


@dataclass(frozen=True, slots=True)
class _Place:
    """Where people talk: the settings, and the session."""

    given: Settings
    journal: FileJournal | MemoryJournal


async def _sit(place: _Place, render: Renderer, opening: _Opening) -> None:
    """One chat after the other, as the user wishes; where the next cannot be opened, the one before is again."""
    from localctx.cli.render import note
    from localctx.cli.repl import Desk, talk
    from localctx.errors import LocalctxError

    here: _Place | None = None

    async def models(chat: Chat) -> Sequence[ModelReport]:
        return await _models(place.given, chat)

    try:
        with _stopped_by(*_ENDING), fetching() as progress, Desk(render, _typed(place.journal), models) as desk:
            note("type a message, /help for commands, /exit or Ctrl-D to leave")
            while True:
                try:
                    async with AsyncExitStack() as stack:
                        chat = await _opened(stack, opening(place.given, place.journal, render, progress), desk)
                        if here and here.journal is not place.journal:
                            here.journal.leave()
                        here = place
                        wish = await talk(chat, desk)
                except LocalctxError as error:
                    if here is None or here is place:
                        raise
                    note(f"{error}; going on as before")
                    if here.journal is not place.journal:
                        place.journal.leave()
                    place = here
                    continue
                if wish is None:
                    return
                place = _next(place, wish, chat)
    finally:
        (here or place).journal.leave()


async def _opened(stack: AsyncExitStack, chat: AbstractAsyncContextManager[Chat], desk: Desk) -> Chat:
    """A chat, opened on a stack. Raises why it cannot be, or that Ctrl-C was pressed meanwhile."""
    from localctx.errors import LocalctxError

    with desk.work():
        return await stack.enter_async_context(chat)
    if desk.chat is None:
        raise Interrupted
    raise LocalctxError("it was stopped before it was open")


def _typed(journal: FileJournal | MemoryJournal) -> History:
    """What was typed in earlier chats; nothing is kept of one that is kept nowhere."""
    from prompt_toolkit.history import InMemoryHistory

    from localctx import wiring
    from localctx.cli.typed import TypedLines

    return InMemoryHistory() if journal.name is None else TypedLines(wiring.home() / "typed.jsonl")


def _next(place: _Place, wish: Next, chat: Chat) -> _Place:
    """Where to go on: with the server of this chat, whatever else answers by now."""
    from localctx import wiring
    from localctx.stores.journal import MemoryJournal

    if wish.new:
        nowhere = isinstance(place.journal, MemoryJournal) and not place.journal.trouble
        return _Place(_same_server(place.given, chat, model=chat.model), wiring.journal(ephemeral=nowhere))
    return _Place(_same_server(place.given, chat, **{"model": chat.model, **wish.changes}), place.journal)


def _same_server(given: Settings, chat: Chat, **changes: object) -> Settings:
    """The settings with changes, and the server of a chat named; an address that was set keeps its origin, and so its rights."""
    from msgspec.structs import replace

    if chat.runtime.kind == "embedded":
        changes["runtime"] = "embedded"
    elif given.url is None:
        changes["url"] = chat.runtime.url
    return replace(given, **changes, origins={**given.origins, **dict.fromkeys(changes, "asked for in the chat")})


async def _models(given: Settings, chat: Chat) -> Sequence[ModelReport]:
    """What the server of a chat has."""
    from localctx import wiring

    (report, *_) = await wiring.ask_all(_same_server(given, chat, model=None))
    return report.models


_ENDING = [getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name)]


@contextmanager
def _stopped_by(*numbers: int) -> Iterator[None]:
    """Takes the first of these signals as the wish to stop, and those after it as the same wish; what is ignored stays so."""
    loop, task, wished = asyncio.get_running_loop(), asyncio.current_task(), 0

    def stop(number: int) -> None:
        nonlocal wished
        if not wished and task is not None:
            wished = number
            task.cancel()

    taken = [number for number in numbers if signal.getsignal(number) != signal.SIG_IGN]
    with suppress(NotImplementedError):  # where the loop takes no signals, Python's own handling stays
        for number in taken:
            loop.add_signal_handler(number, stop, number)
    try:
        yield
    except (asyncio.CancelledError, Exception):  # a terminal that is gone makes trouble of its own
        if not wished:
            raise
        for number in taken:
            loop.remove_signal_handler(number)
            signal.signal(number, signal.SIG_IGN)
        raise Interrupted(wished) from None
