"""Private files and folders."""

from __future__ import annotations

import errno
import os
import stat
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from localctx.errors import StoreUnusable

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["lock", "open_file", "private_folder", "replace_file", "sync_folder", "unusable"]


def private_folder(path: Path) -> None:
    """Makes a folder and those above it that are not there yet, for their owner alone. Raises `OSError`."""
    for folder in reversed([each for each in (path, *path.parents) if not each.exists()]):
        folder.mkdir(mode=0o700, exist_ok=True)
        sync_folder(folder.parent)


def sync_folder(folder: Path) -> None:
    """Makes a new file's name survive a power failure, where a folder can be synced at all."""
    with suppress(OSError):
        fd = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)


def open_file(path: Path, flags: int = os.O_RDONLY) -> int:
    """Opens a file (a new one for its owner alone), and never waits. Raises `OSError`, also for what is no file."""
    fd = os.open(path, flags | os.O_NONBLOCK, 0o600)
    if stat.S_ISREG(os.fstat(fd).st_mode):
        return fd
    os.close(fd)
    raise OSError(errno.EINVAL, "it is no file")


def replace_file(path: Path, pieces: Iterable[bytes]) -> None:
    """Puts a private file in place, whole or not at all; it would survive a power failure. Raises `OSError`.

    A program that is killed meanwhile leaves `.NAME.` and eight characters beside it.
    """
    private_folder(path.parent)
    fd, part = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        with os.fdopen(fd, "wb") as file:
            file.writelines(pieces)
            file.flush()
            os.fsync(file.fileno())
        Path(part).replace(path)
    except BaseException:
        with suppress(OSError):
            Path(part).unlink()
        raise
    sync_folder(path.parent)


def lock(fd: int, path: Path) -> None:
    """Takes the session of a journal for this program alone. Raises `StoreUnusable` where another one has it."""
    try:
        import fcntl  # noqa: PLC0415  POSIX only; elsewhere there is no lock
    except ImportError:
        return
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno not in {errno.EAGAIN, errno.EACCES}:
            return  # a file system without locks; the session is used without one
        raise StoreUnusable(
            f"session {path.parent.name} is open in another program; end it, or start a new one"
        ) from error
    if os.fstat(fd).st_nlink == 0:
        raise StoreUnusable(f"session {path.parent.name} was removed just now; start a new one")


def unusable(place: Path, error: OSError) -> StoreUnusable:
    """What a person is told of a place that cannot be used."""
    return StoreUnusable(
        f"cannot use {place} ({error.strerror or error}); set LOCALCTX_HOME to a folder that you can write, or pass --ephemeral"
    )
