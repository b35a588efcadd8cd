"""The line editor of the chat: history, several lines, completion of commands and files, and a bar below."""

from __future__ import annotations

import os
import re
import sys
from contextlib import contextmanager, suppress
from itertools import islice
from typing import TYPE_CHECKING

from prompt_toolkit import PromptSession
from prompt_toolkit.completion import Completer, Completion
from prompt_toolkit.formatted_text import FormattedText
from prompt_toolkit.key_binding import KeyBindings
from prompt_toolkit.patch_stdout import patch_stdout

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from prompt_toolkit.completion import CompleteEvent
    from prompt_toolkit.document import Document
    from prompt_toolkit.history import History
    from prompt_toolkit.key_binding import KeyPressEvent
__all__ = ["Editor", "Words"]


class Words(Completer):
    """Completes `/commands`, what comes behind some of them, and the files behind an `@`.

    `commands` says what each does; `choices` are what a command may be given, asked for in a thread of its own.
    """

    def __init__(
        self, commands: Iterable[tuple[str, str]], choices: Callable[[str], Sequence[str]] = lambda _command: ()
    ) -> None:
        self._commands, self._choices = list(commands), choices

    def get_completions(self, document: Document, complete_event: CompleteEvent) -> Iterator[Completion]:  # noqa: ARG002  the base class's signature
        """What the word before the cursor may become."""
        text = document.text_before_cursor
        if found := _ATTACHED.search(text):
            yield from _paths(found["path"], quoted=bool(found["quote"]))
        elif found := _COMMAND.fullmatch(text):
            command, given = found["command"], found["given"]
            if given is None:
                for name, what in self._commands:
                    if name.startswith(command):
                        yield Completion(name, -len(command), display_meta=what)
            else:
                for choice in self._choices(command):
                    if choice.startswith(given):
                        yield Completion(choice, -len(given))


_ATTACHED = re.compile(r'(?:^|\s)@(?P<quote>"?)(?P<path>(?<=")[^"\n]*|[^\s"]*)$')
_COMMAND = re.compile(r"(?P<command>/\w*)(?: +(?P<given>\S*))?")

_MOST_LISTED, _MOST_SHOWN = 10_000, 200
"""The entries of a folder that are looked at, and those that are offered."""


def _paths(typed: str, *, quoted: bool) -> Iterator[Completion]:
    """The files and folders that a path may become; hidden ones only where the dot is there."""
    folder, _, begun = typed.rpartition("/")
    where = os.path.expanduser(f"{folder}/" if "/" in typed else "./")  # noqa: PTH111  a user that is not there raises elsewhere
    found = list[tuple[str, bool]]()
    with suppress(OSError, ValueError), os.scandir(where) as entries:
        for entry in islice(entries, _MOST_LISTED):
            if entry.name.startswith(begun) and entry.name.startswith(".") == begun.startswith("."):
                found.append((entry.name, _is_folder(entry)))
    for name, is_folder in islice(sorted(found), _MOST_SHOWN):
        if name.isprintable() and '"' not in name:
            path = f"{folder}/{name}" if "/" in typed else name
            spaced = not quoted and " " in path
            end = "/" if is_folder else '"' if quoted or spaced else ""
            yield Completion(f"{chr(34) if spaced else ''}{path}{end}", -len(typed), display=name + "/" * is_folder)


def _is_folder(entry: os.DirEntry[str]) -> bool:
    with suppress(OSError):
        return entry.is_dir()
    return False


class Editor:
    """Reads what a person types. Enter sends; Alt-Enter, or a backslash before it, makes a new line, and so does a paste."""

    def __init__(self, history: History, words: Completer, bar: Callable[[int], list[tuple[str, str]]]) -> None:
        self._session = PromptSession[str](
            history=history,
            completer=words,
            complete_in_thread=True,
            multiline=True,
            key_bindings=_keys(),
            prompt_continuation=lambda width, _line, _wraps: " " * width,
            bottom_toolbar=lambda: FormattedText(bar(self._session.output.get_size().columns)),
            enable_suspend=True,
            reserve_space_for_menu=_MENU_ROWS,
        )

    async def line(self) -> str:
        """What is typed next. Raises `KeyboardInterrupt` for Ctrl-C, `EOFError` for Ctrl-D where nothing is typed."""
        with patch_stdout(raw=True):
            return await self._session.prompt_async("> ", handle_sigint=False)

    def interrupt(self) -> None:
        """Does what Ctrl-C does, where a line is being read."""
        if self._session.app.is_running and not self._session.app.is_done:
            self._session.app.exit(exception=KeyboardInterrupt)

    @property
    def abandoned(self) -> bool:
        """Whether something was typed when Ctrl-C was pressed."""
        return bool(self._session.default_buffer.text)

    @contextmanager
    def silent(self) -> Iterator[None]:
        """Lets what is typed while no line is read wait for the next one, unseen."""
        try:
            import termios

            fd = sys.stdin.fileno()
            before = termios.tcgetattr(fd)
        except (ImportError, OSError, ValueError, termios.error):  # no POSIX, or no terminal
            yield
            return
        mode = termios.tcgetattr(fd)
        mode[0] &= ~termios.ICRNL
        mode[3] &= ~(termios.ECHO | termios.ICANON)
        termios.tcsetattr(fd, termios.TCSANOW, mode)
        try:
            yield
        finally:
            termios.tcsetattr(fd, termios.TCSANOW, before)

    @contextmanager
    def pastes(self) -> Iterator[None]:
        """Lets a paste be one message also while no line is read."""
        output = self._session.output
        output.enable_bracketed_paste()
        output.flush()
        try:
            yield
        finally:
            output.disable_bracketed_paste()
            output.flush()


_MENU_ROWS = 4


def _keys() -> KeyBindings:
    keys = KeyBindings()

    @keys.add("enter")
    def send(event: KeyPressEvent) -> None:
        buffer = event.current_buffer
        if buffer.document.char_before_cursor == "\\":
            buffer.delete_before_cursor()
            buffer.newline(copy_margin=False)
        else:
            buffer.validate_and_handle()

    @keys.add("escape", "enter")
    def new_line(event: KeyPressEvent) -> None:
        event.current_buffer.newline(copy_margin=False)

    return keys
