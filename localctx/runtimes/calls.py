"""The calls of a reply, put together from whatever pieces a server sends them in."""

from __future__ import annotations

import json
import re
import secrets
from dataclasses import dataclass
from typing import TYPE_CHECKING

from localctx.core.messages import ToolCall
from localctx.errors import ServerFailed
from localctx.ports import Drafted
from localctx.runtimes.reported import number

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

__all__ = ["Calls"]

_CALLS = 128
_BYTES = 2**20
_NAME = 1024
_ID = 256
"""The bounds of one reply: its calls, the bytes of all their arguments; the characters of a name and of an id."""

_MARK = re.compile(r'\\.|[\\"{}]', re.DOTALL)


@dataclass(frozen=True, slots=True)
class _Piece:
    """What one entry of `tool_calls` says, as far as it says it in a form that can be read."""

    index: int | None
    id: str
    name: str
    arguments: str


class Calls:
    """The calls of one reply of the server at `where`, in the order in which they began.

    A piece belongs to the call with its index or, where none is said, to the newest. It begins another call where that
    one is over: at another id, at another name once there are arguments, at arguments that follow a whole object. So
    calls stay apart though a server gives all of them the same index or id, or none.
    """

    def __init__(self, where: str) -> None:
        self.called = False
        """Whether there was any call, be it one that could not be read."""
        self._where = where
        self._begun: list[_Call] = []
        self._newest: dict[int | None, _Call] = {}
        self._bytes = 0

    def take(self, entries: Sequence[object] | None) -> None:
        """Takes the pieces in one chunk of a stream. Raises `ServerFailed` beyond the bounds of a reply."""
        for place, entry in enumerate(entries or ()):
            piece = self._read(entry)
            call = self._newest.get(piece.index)
            apart = piece.index is None and place > 0  # two in one chunk are two calls
            if call is None or (piece.name and (apart or call.over(piece))):
                call = self._begin(piece)
            self._add(call, piece)

    def take_whole(self, entries: Sequence[object] | None) -> None:
        """Takes calls each of which is whole. Raises `ServerFailed` beyond the bounds of a reply."""
        for piece in map(self._read, entries or ()):
            self._add(self._begin(piece), piece)

    @property
    def drafted(self) -> Drafted:
        """How far the newest call is, once there is one."""
        newest = self._begun[-1]
        return Drafted(newest.name.strip(), newest.characters)

    def made(self) -> tuple[ToolCall, ...]:
        """The calls that have a name. Each has an id of its own, made up where the server gave none or the same again."""
        return tuple(self._named())

    def _named(self) -> Iterator[ToolCall]:
        taken = set[str]()
        for call in self._begun:
            if call.name.strip():
                own = call.id if call.id and call.id not in taken else f"call_{secrets.token_hex(8)}"
                taken.add(own)
                yield ToolCall(own, call.name.strip(), call.arguments)

    def _read(self, entry: object) -> _Piece:
        self.called = True
        fields = entry if isinstance(entry, dict) else {}
        function = fields.get("function")
        said = function if isinstance(function, dict) else {}
        name, own = said.get("name"), fields.get("id")
        return _Piece(
            number(fields.get("index")),
            own if isinstance(own, str) and len(own) <= _ID else "",
            name if isinstance(name, str) else "",
            self._text(said.get("arguments")),
        )

    def _text(self, arguments: object) -> str:
        """Arguments as JSON text: as the model wrote them, or written down where the server has read them already."""
        if arguments is None or isinstance(arguments, str):
            return arguments or ""
        try:
            return json.dumps(arguments, ensure_ascii=False, separators=(",", ":"))
        except RecursionError as error:
            raise self._beyond("a call whose arguments are nested too deeply") from error

    def _begin(self, piece: _Piece) -> _Call:
        if len(self._begun) == _CALLS:
            raise self._beyond(f"more than {_CALLS} calls")
        call = _Call()
        self._begun.append(call)
        self._newest[piece.index] = self._newest[None] = call
        return call

    def _add(self, call: _Call, piece: _Piece) -> None:
        self._bytes += len(piece.arguments.encode("utf-8", "replace"))
        if self._bytes > _BYTES:
            raise self._beyond(f"calls with more than {_BYTES:,} bytes of arguments")
        call.add(piece)
        if len(call.name) > _NAME:
            raise self._beyond(f"a call whose name has more than {_NAME:,} characters")

    def _beyond(self, what: str) -> ServerFailed:
        return ServerFailed(
            f"{self._where} sent {what} in one reply; its model may be stuck: ask again, or use another"
        )


class _Call:
    """One call as it grows."""

    def __init__(self) -> None:
        self.id = self.name = ""
        self.characters = 0
        self._parts: list[str] = []
        self._depth: int | None = None
        self._quoted = self._escaped = False

    @property
    def arguments(self) -> str:
        """The arguments so far; an empty object where there are none, as llama-server refuses a history with less."""
        text = "".join(self._parts)
        return text if text.strip() else "{}"

    def over(self, piece: _Piece) -> bool:
        """Whether a piece with a name is not of this call."""
        return bool(self.name) and bool(
            (self.id and piece.id and piece.id != self.id)
            or (self._parts and piece.name != self.name)
            or (self._depth == 0 and piece.arguments)
        )

    def add(self, piece: _Piece) -> None:
        """Takes a piece. A name comes whole or in parts, and may be said again with every piece."""
        self.id = self.id or piece.id
        if not self._parts or not self.name:
            self.name = piece.name if piece.name.startswith(self.name) else self.name + piece.name
        if piece.arguments:
            self._parts.append(piece.arguments)
            self.characters += len(piece.arguments)
            self._follow(piece.arguments)

    def _follow(self, text: str) -> None:
        """Notes how many objects are open; none is, once the arguments are whole."""
        marks = _MARK.findall("\\" * self._escaped + text)
        self._escaped = bool(marks) and marks[-1] == "\\"
        for mark in marks:
            if mark == '"':
                self._quoted = not self._quoted
            elif mark in "{}" and not self._quoted:
                self._depth = (self._depth or 0) + (1 if mark == "{" else -1)
