"""The chat on a terminal: what is typed is sent, or is a command that begins with a slash."""

from __future__ import annotations

import asyncio
import os
import re
import signal
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Self

from localctx.cli.attach import attach
from localctx.cli.editor import Editor, Words
from localctx.cli.meter import Standing, bar, costs, picture
from localctx.cli.render import columns, note, out, paint, printable
from localctx.cli.wording import clipped, figure, source_text, window_text
from localctx.config import MOST_TOKENS
from localctx.core.work import lines
from localctx.errors import LocalctxError, Misuse, StoreUnusable

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence

    from prompt_toolkit.history import History

    from localctx.app.chat import Chat
    from localctx.cli.meter import Styled
    from localctx.cli.render import Renderer
    from localctx.core.window import ModelReport

__all__ = ["Desk", "Next", "talk"]


@dataclass(frozen=True, slots=True)
class Next:
    """What to open next: the chat with other settings (as the settings are called), or a `new` session."""

    changes: Mapping[str, object] = field(default_factory=dict)
    new: bool = False


class Desk:
    """What outlasts a chat that is closed for the next: the renderer, the line editor, Ctrl-C.

    `models` says what a chat's server has. To be entered, within an event loop, before anything is typed.
    """

    def __init__(
        self, render: Renderer, history: History, models: Callable[[Chat], Awaitable[Sequence[ModelReport]]]
    ) -> None:
        self.render, self._models = render, models
        self.chat: Chat | None = None
        self.editor = Editor(history, Words(((each.name, each.what) for each in _COMMANDS), self._choices), self._bar)
        self._known: list[str] | None = None
        self._working: asyncio.Task[object] | None = None
        self._stopped = False
        self._silence = ExitStack()

    def __enter__(self) -> Self:
        """Takes Ctrl-C and what is typed, for as long as people talk."""
        self._silence.enter_context(self.editor.silent())
        with suppress(NotImplementedError):  # where the loop takes no signals, Python's own handling stays
            asyncio.get_running_loop().add_signal_handler(signal.SIGINT, self._interrupt)
        return self

    def __exit__(self, *_: object) -> None:
        """Gives both back."""
        self._silence.close()
        with suppress(NotImplementedError):
            asyncio.get_running_loop().remove_signal_handler(signal.SIGINT)

    def _interrupt(self) -> None:
        """The first Ctrl-C stops the work at hand; those after it are the same wish."""
        if self._working is not None and not self._stopped:
            self._stopped = True
            self._working.cancel()
        elif self._working is None:
            self.editor.interrupt()

    @contextmanager
    def work(self) -> Iterator[None]:
        """Something that Ctrl-C stops, and alone."""
        self._working, self._stopped = asyncio.current_task(), False
        try:
            with self.editor.pastes():
                yield
        except asyncio.CancelledError:
            if not self._stopped or self._working is None:
                raise
            self._working.uncancel()
            self.render.end_line()
            note("stopped; nothing is lost")
        finally:
            self._working = None

    async def models(self, chat: Chat) -> Sequence[ModelReport]:
        """What the chat's server has; remembered for completion."""
        found = await self._models(chat)
        self._known = [model.id for model in found]
        return found

    def _choices(self, command: str) -> Sequence[str]:
        """What a command may be given; asked for in a thread of the editor's."""
        if command == "/model" and self._known is None and self.chat:
            self._known = []
            with suppress(LocalctxError):
                asyncio.run(self.models(self.chat))
        return {"/model": self._known or [], "/work": ["clear"]}.get(command, [])

    def _bar(self, width: int) -> Styled:
        return bar(_standing(self.chat), width) if self.chat else []


def _standing(chat: Chat) -> Standing:
    policy, decided = chat.engine.policy, chat.window.decided_by
    source = decided.source if decided else chat.window.confidence
    name = chat.session.journal.name
    return Standing(
        printable(chat.model, None),
        name,
        source,
        chat.last_used,
        chat.engine.budget.window,
        warn=policy.warn,
        compact=policy.compact,
    )


async def talk(chat: Chat, desk: Desk) -> Next | None:
    """Reads and answers until the user wants another chat, or to leave: `/exit`, or the end of the input."""
    desk.chat = chat
    with desk.work():
        await _refresh(chat)
    while True:
        try:
            typed = await _line(chat, desk)
        except KeyboardInterrupt:
            if not desk.editor.abandoned:
                note("Ctrl-D or /exit leaves")
            continue
        except EOFError:
            return None
        if typed.rstrip() == "/exit":
            return None
        if typed.strip() and (wish := await _answer(chat, desk, typed)):
            return wish


async def _line(chat: Chat, desk: Desk) -> str:
    """What the user types next. Meanwhile the engine does what it will have to do anyway, and stops as soon as it is there."""
    working = asyncio.create_task(chat.idle()) if chat.idles else None
    waits, desk.render.waits = desk.render.waits, False
    try:
        return await desk.editor.line()
    finally:
        desk.render.waits = waits
        if working is not None:
            working.cancel()
            await asyncio.wait([working])


async def _answer(chat: Chat, desk: Desk, typed: str) -> Next | None:
    """Does what was typed, and brings the meter up to date; what the user wants opened, if that is it."""
    wish = None
    with desk.work():
        try:
            wish = await _do(chat, desk, typed)
        except StoreUnusable:
            raise
        except LocalctxError as error:
            desk.render.end_line()
            note(f"{error}")
        desk.render.end_line()
    if wish is None:
        with desk.work():
            await _refresh(chat)
    return wish


async def _refresh(chat: Chat) -> None:
    """Brings the meter up to date, where the server can be asked."""
    with suppress(LocalctxError):
        await chat.filling()


_COMMAND = re.compile(r"(/[^\s/]*)(?:\s+(.*))?", re.DOTALL)
"""A first word with another slash in it is a path, and no command."""


async def _do(chat: Chat, desk: Desk, typed: str) -> Next | None:
    found = _COMMAND.fullmatch(typed.rstrip())
    if found is None:
        await _ask(chat, typed.strip())
        return None
    name, given = found[1], (found[2] or "").strip()
    command = next((each for each in _COMMANDS if each.name == name), None)
    if command is None:
        note(_unknown(name))
    elif given and not command.takes:
        note(f"{name} takes nothing behind it")
    else:
        return await command.do(chat, desk, given)
    return None


def _unknown(name: str) -> str:
    near = get_close_matches(name, [each.name for each in _COMMANDS], 1, _ALIKE)
    meant = f"did you mean {near[0]}?" if near else "/help lists them."
    return f"no such command: {name}; {meant} A space before the slash makes it a message"


_ALIKE = 0.5


async def _ask(chat: Chat, text: str) -> None:
    attached = attach(text)
    for told in attached.told:
        note(told)
    await chat.ask(attached.text, attached.images)


# --- commands -----------------------------------------------------------------------------------------------------


async def _context(chat: Chat, _desk: Desk, _given: str) -> None:
    filling, budget = await chat.filling(), chat.engine.budget
    percent = filling.used * 100 // budget.window
    out(f"{chat.model}: {figure(filling.used)} of {figure(budget.window)} tokens used ({percent}%)")
    paint([("", window_text(chat.window))])
    for line in picture(filling, budget, columns()):
        paint(line)
    for told in await chat.outlook():
        paint([("", told)])


async def _compact(chat: Chat, _desk: Desk, given: str) -> None:
    if not await chat.compact(given):
        note("nothing was done: nothing is old enough to be worth a summary, and the newest messages stay as they are")


async def _undo(chat: Chat, _desk: Desk, _given: str) -> None:
    said = chat.undo()
    back = "arrow up brings the words back, another /undo takes back more"
    back += "; what tools changed stays changed" if chat.tools.shelves else ""
    note("nothing was said yet" if said is None else f"taken back: {clipped(said, _SHOWN)} ({back})")


async def _retry(chat: Chat, _desk: Desk, _given: str) -> None:
    if await chat.retry() is None:
        note("nothing was asked yet")


async def _cost(chat: Chat, _desk: Desk, _given: str) -> None:
    for line in costs(chat.totals):
        paint([("", line)])


async def _work(chat: Chat, _desk: Desk, given: str) -> None:
    if given == "clear":
        chat.clear_work()
        note("the work state is empty")
    elif given:
        note("/work shows the work state, /work clear forgets it")
    else:
        for line in lines(chat.session.history.work) or ("nothing is recorded yet",):
            paint([("", line)])


async def _model(chat: Chat, desk: Desk, given: str) -> Next | None:
    found = await desk.models(chat)
    if given:
        return Next({"model": given})
    others = {each.id: each.window for each in found if each.id != chat.model}
    for name, window in {chat.model: chat.window, **others}.items():
        size = f"{figure(window.tokens)} tokens" if window.tokens else "window unknown"
        paint([("", "* " if name == chat.model else "  "), ("bold", name), ("", f"  {size} ({source_text(window)})")])
    note("/model NAME goes on with another one; the conversation stays")
    return None


async def _window(chat: Chat, _desk: Desk, given: str) -> Next | None:
    if not given:
        paint([("", window_text(chat.window))])
        note("/window N asks for another one, such as /window 16384 or /window 16k")
        return None
    found = re.fullmatch(r"(\d[\d,_]{0,12})(k?)", given, re.IGNORECASE)
    if found is None:
        raise Misuse(f"{given!r} is no number of tokens; say it as /window 16384 or /window 16k")
    tokens = int(re.sub(r"\D", "", found[1])) * (1024 if found[2] else 1)
    if not 0 < tokens <= MOST_TOKENS:
        raise Misuse(f"a window has from 1 to {MOST_TOKENS:,} tokens, not {tokens:,}")
    return Next({"num_ctx": tokens, "max_context_tokens": tokens})


async def _tools(chat: Chat, _desk: Desk, _given: str) -> None:
    shelves = chat.tools.shelves
    for shelf in shelves:
        paint([("", f"{figure(shelf.tokens):>6}  "), ("bold", shelf.name), ("", _SHELVES[shelf.state])])
    taken = sum(shelf.tokens for shelf in shelves if shelf.state == "offered")
    note(
        f"{figure(taken)} tokens of every request"
        if shelves
        else "the model is offered none; --tools SET asks for some"
    )


_SHELVES = {"offered": "", "deferred": "  (offered once it is searched for)", "left out": "  (no room for it)"}


async def _new(_chat: Chat, _desk: Desk, _given: str) -> Next:
    return Next(new=True)


async def _sessions(chat: Chat, _desk: Desk, _given: str) -> None:
    from localctx.cli.sessions import list_sessions

    list_sessions()
    this = chat.session.journal.name
    note(f"this one is {this}; localctx run --resume ID goes on with another" if this else "this one is kept nowhere")


async def _export(chat: Chat, _desk: Desk, given: str) -> None:
    from localctx.cli.sessions import export

    name = chat.session.journal.name
    if name is None:
        raise Misuse(
            "this session is kept nowhere, so nothing can be exported; begin one that is kept with --session NAME"
        )
    file = Path(os.path.expanduser(given or f"{name}.md"))  # noqa: ASYNC240, PTH111  no disk is asked
    export(name, "openai" if file.suffix == ".json" else "markdown", file, ahead=False)


async def _help(_chat: Chat, _desk: Desk, _given: str) -> None:
    for each in _COMMANDS:
        call = f"{each.name} {each.takes}".rstrip()
        beside = columns() >= _WIDE
        paint([("bold", call.ljust(_COLUMN) if beside else call), ("", f"{'  ' if beside else ': '}{each.what}")])
    note("@FILE attaches a file; Alt-Enter or a backslash at the end makes a new line; Ctrl-C stops a reply")


async def _exit(_chat: Chat, _desk: Desk, _given: str) -> None:
    """It is done where lines are read."""


@dataclass(frozen=True, slots=True)
class _Command:
    """A command: what it does, in words and in deed, and what it `takes` behind its name."""

    name: str
    what: str
    do: Callable[[Chat, Desk, str], Awaitable[Next | None]]
    takes: str = ""


_COMMANDS = (
    _Command("/context", "what fills the window, and where its size comes from", _context),
    _Command("/compact", "compact now; what a hint names is noted above all", _compact, "[HINT]"),
    _Command("/undo", "take back your last message and all that came of it", _undo),
    _Command("/retry", "take back the last reply and ask the same again", _retry),
    _Command("/cost", "tokens, cache share and seconds of this session", _cost),
    _Command("/work", "where the work stands, as the model recorded it", _work, "[clear]"),
    _Command("/model", "what the server has, or go on with another model", _model, "[NAME]"),
    _Command("/window", "the window, or go on in one of so many tokens", _window, "[N]"),
    _Command("/tools", "what the model may call, and what that takes", _tools),
    _Command("/new", "begin a new session; this one stays", _new),
    _Command("/sessions", "the sessions that are kept", _sessions),
    _Command("/export", "write down all that was said, as text or .json", _export, "[FILE]"),
    _Command("/help", "this list", _help),
    _Command("/exit", "leave; localctx run --continue goes on", _exit),
)

_SHOWN, _COLUMN, _WIDE = 60, 15, 72
