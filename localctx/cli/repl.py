"""The chat on a terminal: a line editor, a meter in the bottom bar, and commands that begin with a slash."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING

import anyio
from prompt_toolkit import PromptSession
from prompt_toolkit.completion import WordCompleter
from prompt_toolkit.history import InMemoryHistory
from prompt_toolkit.patch_stdout import patch_stdout

from localctx.cli.render import context_picture, note, out, window_text
from localctx.core.work import lines
from localctx.errors import LocalctxError, StoreUnusable

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from localctx.app.chat import Chat
    from localctx.cli.render import Renderer

__all__ = ["talk"]


async def talk(chat: Chat, render: Renderer) -> None:
    """Reads and answers until `/exit` or the end of the input. Ctrl-C stops a reply, not the program."""
    note("type a message, /help for commands, /exit or Ctrl-D to leave")
    await _refresh(chat)
    editor: PromptSession[str] = PromptSession(
        history=InMemoryHistory(),
        completer=WordCompleter(list(_HELP), sentence=True),
        bottom_toolbar=lambda: _meter(chat),
    )
    while True:
        try:
            line = (await _line(editor, chat)).strip()
        except KeyboardInterrupt:
            note("Ctrl-D or /exit leaves")
            continue
        except EOFError:
            return
        if line == "/exit":
            return
        if line:
            await _interruptible(_answer, chat, render, line)
            await _refresh(chat)


async def _line(editor: PromptSession[str], chat: Chat) -> str:
    """What the user types next. Meanwhile the engine does what it will have to do anyway, and stops as soon as it is there."""
    working = asyncio.create_task(chat.idle()) if chat.idles else None
    try:
        with patch_stdout():
            return await editor.prompt_async("> ")
    finally:
        if working is not None:
            working.cancel()
            await asyncio.wait([working])


async def _answer(chat: Chat, render: Renderer, line: str) -> None:
    try:
        if line.startswith("/"):
            name, _, rest = line.partition(" ")
            if name == "/compact":
                await _compact(chat, rest.strip())
            else:
                await _COMMANDS.get(" ".join(line.split()), _unknown)(chat)
        else:
            await chat.ask(line)
    except StoreUnusable:
        raise
    except LocalctxError as error:
        render.end_line()
        note(f"{error}")
    render.end_line()


async def _refresh(chat: Chat) -> None:
    """Brings the meter up to date, where the server can be asked."""
    with contextlib.suppress(LocalctxError):
        await chat.filling()


async def _interruptible(
    work: Callable[[Chat, Renderer, str], Awaitable[None]], chat: Chat, render: Renderer, line: str
) -> None:
    """Runs until done, or until Ctrl-C, which cancels the work alone."""
    import signal

    failed: LocalctxError | None = None
    async with anyio.create_task_group() as group:

        async def watch() -> None:
            with anyio.open_signal_receiver(signal.SIGINT) as signals:
                async for _ in signals:
                    render.end_line()
                    note("stopped; nothing is lost")
                    group.cancel_scope.cancel()

        group.start_soon(watch)
        try:
            await work(chat, render, line)
        except LocalctxError as error:  # raised below: a task group would wrap it
            failed = error
        group.cancel_scope.cancel()
    if failed is not None:
        raise failed


def _meter(chat: Chat) -> str:
    window = chat.engine.budget.window
    source = chat.window.decided_by.source if chat.window.decided_by else chat.window.confidence
    return f" {chat.model} | {chat.last_used:,} of {window:,} tokens ({chat.last_used * 100 // window}%) | {source} "


async def _context(chat: Chat) -> None:
    budget = chat.engine.budget
    filling = await chat.filling()
    context_picture(filling.parts, filling.used, budget.window, budget.reserve, window_text(chat.window))
    for line in await chat.outlook():
        out(line)


async def _compact(chat: Chat, hint: str) -> None:
    if not await chat.engine.compact(hint):
        note("nothing is old enough to be worth compacting")


async def _undo(chat: Chat) -> None:
    said = chat.undo()
    note("nothing was said yet" if said is None else f"taken back: {' '.join(said.split())[:_SHOWN]}")


async def _work(chat: Chat) -> None:
    for line in lines(chat.session.history.work) or ("nothing is recorded yet",):
        out(line)


async def _work_clear(chat: Chat) -> None:
    chat.clear_work()
    note("the work state is empty")


async def _help(_chat: Chat) -> None:
    for name, what in _HELP.items():
        out(f"{name:<12} {what}")


async def _unknown(_chat: Chat) -> None:
    note(f"no such command; there are {', '.join(_HELP)}")


_HELP = {
    "/context": "what fills the window, and where its size comes from",
    "/compact": "compact now; what follows it is noted above all",
    "/undo": "take back your last message and all that came of it",
    "/work": "what the model recorded of where the work stands",
    "/work clear": "forget that",
    "/help": "this list",
    "/exit": "leave (the session stays: localctx run --continue)",
}

_COMMANDS = {
    "/context": _context,
    "/undo": _undo,
    "/work": _work,
    "/work clear": _work_clear,
    "/help": _help,
}

_SHOWN = 80
