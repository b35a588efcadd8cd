"""Writing and editing files of the working folder: seen before it is done, done whole or not at all."""

from __future__ import annotations

import errno
import os
import re
import secrets
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from anyio.to_thread import run_sync

from localctx.app.tools.approval import permitted
from localctx.app.tools.place import explained, visible
from localctx.app.tools.reading import is_binary
from localctx.core.approval import Wish
from localctx.core.arguments import described
from localctx.core.diffs import changed, difference, line_of, occurrences, similar
from localctx.core.secrets import MASK, holds_secrets
from localctx.ports import Outcome

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from localctx.app.tools.place import Place, Spot
    from localctx.core.outgoing import WireMessage
    from localctx.ports import Approval

__all__ = ["EditFile", "WriteFile"]

_MOST_BYTES = 4 << 20
_MOST_MATCHES = 100

_MARK = "\ufeff"
"""What some editors begin a file with; it is kept."""


_NO_LINKS = {errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EACCES}


@dataclass(frozen=True, slots=True)
class WriteFile:
    """Writes a whole file."""

    place: Place
    approval: Approval
    name = "write_file"

    @property
    def schema(self) -> WireMessage:
        """What a request says of it."""
        fields = {"path": {"type": "string"}, "content": {"type": "string"}}
        return described(self.name, "Create or overwrite a file.", fields, "path", "content")

    async def run(self, arguments: Mapping[str, Any]) -> Outcome:
        """Writes it, once a person has seen what changes. Raises `ValueError` where that cannot be, or may not."""
        content = _writable(arguments["content"])

        def rewritten(before: _Before) -> str:
            mark = _MARK if before.raw is not None and before.raw.startswith(_MARK.encode()) else ""
            text = f"{mark}{content.removeprefix(mark)}"
            return text.replace("\r\n", "\n") if before.windows else text

        return await _rewrite(self.name, self.place, self.approval, arguments["path"], rewritten)


@dataclass(frozen=True, slots=True)
class EditFile:
    """Replaces a text that occurs once in a file."""

    place: Place
    approval: Approval
    name = "edit_file"

    @property
    def schema(self) -> WireMessage:
        """What a request says of it."""
        fields = {
            "path": {"type": "string"},
            "old": {"type": "string", "description": "exact text that occurs once"},
            "new": {"type": "string"},
        }
        return described(self.name, "Replace text in a file.", fields, "path", "old", "new")

    async def run(self, arguments: Mapping[str, Any]) -> Outcome:
        """Edits it, once a person has seen what changes. Raises `ValueError` where that cannot be, or may not."""
        path = arguments["path"]
        old, new = (_writable(arguments[name]) for name in ("old", "new"))

        def edited(before: _Before) -> str:
            if before.text is None:
                raise ValueError(f"there is no {visible(path)}; write_file makes files")
            tells, mixed = not holds_secrets(f"{self.place.root}/{before.shown}"), "\r\n" in before.text
            if mixed and "\r\n" in old:
                return _replaced(before.text, old, new, tells=tells)
            plain = before.text.replace("\r\n", "\n")
            after = _replaced(plain, old.replace("\r\n", "\n"), new.replace("\r\n", "\n"), tells=tells)
            return _merged(before.text, plain, after) if mixed else after

        return await _rewrite(self.name, self.place, self.approval, path, edited)


def _writable(text: str) -> str:
    """A text as it can be written. Raises `ValueError`, worded for a model."""
    if MASK in text:
        raise ValueError(f"the text holds {MASK!r}, which stands for what you may not see; edit around it")
    try:
        size = len(text.encode())
    except UnicodeEncodeError:
        raise ValueError("the text holds half of a character, which no file in UTF-8 does") from None
    if size > _MOST_BYTES:
        raise ValueError(f"the text has {size:,} bytes; at most {_MOST_BYTES:,} are written at once")
    return text


def _replaced(text: str, old: str, new: str, *, tells: bool) -> str:
    """The text with the one place replaced. Raises `ValueError` that helps to name it, and `tells` what is there."""
    if not old or old == new:
        raise ValueError("old is empty" if not old else "old and new are the same")
    found = occurrences(text, old, _MOST_MATCHES)
    if len(found) == 1:
        return text[: found[0]] + new + text[found[0] + len(old) :]
    if found:
        lines = ", ".join(str(line_of(text, at)) for at in found[:10])
        raise ValueError(f"old occurs {len(found)} times, on lines {lines}; add lines around it until it is unique")
    near = similar(text, old) if tells else []
    hint = "\nThe most similar lines:\n" + "\n".join(near) if near else ""
    raise ValueError(f"old is not in the file; it must be exact, blanks too{hint}")


def _merged(text: str, plain: str, after: str) -> str:
    r"""A text of mixed line ends with what was changed in it as it is shown, `plain`, with `\n` alone.

    What did not change keeps its line ends; what came has the next one that was there.
    """
    head = len(os.path.commonprefix([plain, after]))  # noqa: RUF071  characters are what is meant
    tail = len(os.path.commonprefix([plain[head:][::-1], after[head:][::-1]]))  # noqa: RUF071  characters are what is meant
    ends = [len(found[0]) - 1 for found in _LINE_END.finditer(text)]
    start, end = (at + sum(ends[: plain.count("\n", 0, at)]) for at in (head, len(plain) - tail))
    near = _LINE_END.search(text, start)
    came = after[head : len(after) - tail].replace("\n", near[0] if near else "\n")
    return f"{text[:start]}{came}{text[end:]}"


_LINE_END = re.compile(r"\r?\n")


@dataclass(frozen=True, slots=True)
class _Before:
    """A file as it was: its real path, its bytes (None: it is not there) and what is to be kept of it."""

    shown: str
    raw: bytes | None
    mode: int = 0
    owner: tuple[int, int] = (-1, -1)
    names: int = 1

    @property
    def windows(self) -> bool:
        """Whether every line ends with CRLF."""
        return self.raw is not None and self.raw.count(b"\r\n") == self.raw.count(b"\n") > 0

    @property
    def text(self) -> str | None:
        r"""What is in it, CRLF as `\n` where all lines end so; bytes that are no UTF-8 stand for themselves."""
        text = None if self.raw is None else self.raw.decode("utf-8", "surrogateescape")
        return text.replace("\r\n", "\n") if text and self.windows else text

    def bytes_of(self, text: str) -> bytes:
        """A new text as it is written here: with the line ends that the file had."""
        return (text.replace("\n", "\r\n") if self.windows else text).encode("utf-8", "surrogateescape")


async def _rewrite(
    tool: str, place: Place, approval: Approval, path: str, rewritten: Callable[[_Before], str]
) -> Outcome:
    """Shows and makes a change. Raises `ValueError`, worded for a model."""
    before = await run_sync(partial(_look, place, path))
    after = rewritten(before)
    if before.raw is not None and before.bytes_of(after) == before.raw:
        return Outcome(f"{visible(before.shown)} is like that already")
    diff = difference(before.text or "", after, visible(before.shown)).encode("utf-8", "replace").decode()
    await permitted(approval, Wish(tool, before.shown, diff or "an empty file"))
    await run_sync(partial(_put, place, path, before, before.bytes_of(after)))
    what = "written" if before.raw is None else f"changed: {changed(diff)}"
    linked = "; its other hard links keep what they had" if before.names > 1 else ""
    return Outcome(f"{visible(before.shown)} {what}{linked}")


def _look(place: Place, path: str) -> _Before:
    with explained(path):
        try:
            with place.spot(path) as spot:
                return _before(spot)
        except FileNotFoundError:  # nor its folder
            shown = _to_be(place, path)
            _demand_own(shown)
            return _Before(shown, None)


def _to_be(place: Place, path: str) -> str:
    """The real path of a file whose folder is not there yet."""
    head, _, tail = path.rstrip("/").rpartition("/")
    if not head or tail in {"", ".", ".."}:
        raise FileNotFoundError
    try:
        with place.spot(head) as spot:
            return f"{spot.shown}/{tail}"
    except FileNotFoundError:
        return f"{_to_be(place, head)}/{tail}"


def _demand_own(shown: str) -> None:
    if ".git" in shown.casefold().split("/"):
        raise ValueError(f"{visible(shown)} belongs to git; change it with git's own commands")


def _before(spot: Spot) -> _Before:
    """What is at a spot. Raises `ValueError` for what is not to be written here, and `OSError`."""
    _demand_own(spot.shown)
    if (found := spot.look()) is None:
        return _Before(spot.shown, None)
    fd = spot.open_file()
    with os.fdopen(fd, "rb") as file:
        raw = file.read(_MOST_BYTES + 1)
    if len(raw) > _MOST_BYTES:
        raise ValueError(f"{visible(spot.shown)} has more than {_MOST_BYTES:,} bytes; change it with a command")
    if is_binary(raw):
        raise ValueError(f"{visible(spot.shown)} is binary, not text")
    if not found.st_mode & 0o222 or not _may_write(spot):
        raise ValueError(f"{visible(spot.shown)} is read-only")
    return _Before(spot.shown, raw, found.st_mode & 0o777, (found.st_uid, found.st_gid), found.st_nlink)


def _may_write(spot: Spot) -> bool:
    """Whether the user may write what is there, as far as the system says it of a file in an open folder."""
    known = os.access in os.supports_dir_fd and os.access in os.supports_effective_ids
    return not known or os.access(spot.name, os.W_OK, dir_fd=spot.folder, effective_ids=True)


def _put(place: Place, path: str, before: _Before, raw: bytes) -> None:
    """Puts a file in place, whole or not at all. Raises `ValueError` where it is not what was seen any more."""
    with explained(path), place.spot(path, make=True) as spot:
        _demand_same(spot, before)
        part = f".{secrets.token_hex(8)}.part"
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        fd = os.open(part, flags, 0o666 if before.raw is None else 0o600, dir_fd=spot.folder)
        try:
            with os.fdopen(fd, "wb") as file:
                if before.raw is not None:
                    _make_like(fd, before)
                file.write(raw)
                file.flush()
                os.fsync(fd)
            _demand_same(spot, before)
            _name(spot, part, new=before.raw is None)
        except BaseException:
            with suppress(OSError):
                os.unlink(part, dir_fd=spot.folder)
            raise


def _demand_same(spot: Spot, before: _Before) -> None:
    if _before(spot) != before:
        raise _meanwhile(before.shown)


def _meanwhile(shown: str) -> ValueError:
    return ValueError(f"{visible(shown)} was changed meanwhile; read it again")


def _make_like(fd: int, before: _Before) -> None:
    """Gives a file the owner and then the mode that another had. Raises `ValueError` where the owner cannot be kept."""
    made = os.fstat(fd)
    if (made.st_uid, made.st_gid) != before.owner:
        try:
            os.fchown(fd, *before.owner)
        except PermissionError:
            raise ValueError(f"{visible(before.shown)} belongs to another; change it with a command") from None
    os.fchmod(fd, before.mode)


def _name(spot: Spot, part: str, *, new: bool) -> None:
    """Gives a file its name; a new one takes no other's place. Raises `ValueError` and `OSError`."""
    if new:
        try:
            os.link(part, spot.name, src_dir_fd=spot.folder, dst_dir_fd=spot.folder, follow_symlinks=False)
        except FileExistsError:
            raise _meanwhile(spot.shown) from None
        except OSError as error:  # a disk without hard links
            if error.errno not in _NO_LINKS:
                raise
        else:
            os.unlink(part, dir_fd=spot.folder)
            return
    os.replace(part, spot.name, src_dir_fd=spot.folder, dst_dir_fd=spot.folder)
