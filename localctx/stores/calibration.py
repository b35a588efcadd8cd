"""What was learned of models' tokens, and measured of their speeds, kept between runs: a table in the SQLite file `localctx.db` of the data folder.

The file holds only what can be learned again, so nothing here ever fails a run: what cannot be read is not there, what
cannot be written is not kept, and a file that is damaged or somebody else's is set aside and a new one begun. Other
tables may live in it beside this one; whoever makes one first marks the file with `APPLICATION`.
"""

from __future__ import annotations

import os
import sqlite3
from contextlib import suppress
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, TypeVar

from localctx.stores.files import private_folder

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["APPLICATION", "Calibrations"]

APPLICATION = 0x6C637478
"""SQLite's `application_id` of localctx's database: the letters `lctx`."""

_ROWS = 1_000
_KEY_CHARACTERS = 1_000
_VALUE_BYTES = 16_384
_WAIT_SECONDS = 0.5
"""How long another program's writing is waited for."""

_SET_ASIDE = 99
"""How many damaged files are kept; with more, the store is as one that cannot be used."""

_ENDINGS = ("-journal", "-wal", "-shm")
"""What SQLite keeps beside a database."""

_TABLE = "CREATE TABLE calibration (key TEXT PRIMARY KEY, value TEXT NOT NULL, saved TEXT NOT NULL)"
_IN_THE_WAY = (
    "SELECT count(*) FROM sqlite_master WHERE tbl_name = 'calibration' COLLATE NOCASE AND coalesce(sql, ?1) != ?1"
)
_LOAD = "SELECT value FROM calibration WHERE key = ? AND typeof(value) = 'text' AND length(CAST(value AS BLOB)) <= ?"
_SAVE = "INSERT OR REPLACE INTO calibration VALUES (?, ?, strftime('%Y-%m-%dT%H:%M:%fZ', 'now'))"
_DROP = "DELETE FROM calibration WHERE rowid NOT IN (SELECT rowid FROM calibration ORDER BY rowid DESC LIMIT ?)"
"""What is saved again is a new row, so that the rows are in the order in which they were saved."""

_Given = TypeVar("_Given")


class _NotOurs(Exception):
    """A database of somebody else, or with another table in the place of ours."""


class Calibrations:
    """The newest 1,000 calibrations, in a private file that is opened when it is first needed.

    Programs and threads may use it at once. A call works on the disk, for at most about a second where another program
    is writing, and raises nothing.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = Lock()
        self._db: sqlite3.Connection | None = None
        self._file = (0, 0)

    def load(self, key: str) -> str | None:
        """The JSON text that was saved last by this key; None where there is none or it cannot be read."""
        if self._db is None and not os.path.lexists(self._path):
            return None
        rows = self._done(lambda db: db.execute(_LOAD, (key, _VALUE_BYTES)).fetchall())
        return rows[0][0] if rows else None

    def save(self, key: str, value: str) -> bool:
        """Keeps a JSON text of at most 16 KiB by a key of at most 1,000 characters; whether it is kept.

        The oldest of more than 1,000 are dropped.
        """
        if len(key) > _KEY_CHARACTERS or len(value.encode("utf-8", "replace")) > _VALUE_BYTES:
            return False
        return self._done(lambda db: _saved(db, key, value)) or False

    def close(self) -> None:
        """Gives the file back; it is opened again when it is needed again."""
        with self._lock:
            self._close()

    def _done(self, work: Callable[[sqlite3.Connection], _Given]) -> _Given | None:
        """What work on the database gives, in a new one where this one is damaged; None where it fails."""
        with self._lock:
            for _ in range(2):
                try:
                    return work(self._opened())
                except (sqlite3.Error, _NotOurs, OSError, UnicodeError) as error:
                    again = _damaged(error) and self._set_aside()
                    self._close()
                    if not again:
                        break
                except BaseException:
                    self._close()
                    raise
        return None

    def _opened(self) -> sqlite3.Connection:
        if self._db is None:
            self._file = _private_file(self._path)
            self._db = sqlite3.connect(self._path, timeout=_WAIT_SECONDS, check_same_thread=False)
            _prepare(self._db)
        return self._db

    def _close(self) -> None:
        db, self._db = self._db, None
        if db is not None:
            with suppress(sqlite3.Error):
                db.close()

    def _set_aside(self) -> bool:
        """Renames the file that was found damaged; whether a new one can be begun.

        It is still open then, so that SQLite, which sees that it was moved, changes nothing in it when it is closed.
        Another program may have been quicker: then another file is in its place, or none, and nothing is renamed.
        """
        try:
            if _identity(self._path) == self._file:
                _rename(self._path)
        except FileNotFoundError:
            return True
        except OSError:
            return False
        return True


def _prepare(db: sqlite3.Connection) -> None:
    """Marks a new database as ours and makes the table; one that is ready is only looked at."""
    db.execute("PRAGMA trusted_schema = OFF")
    tables = db.execute("SELECT name FROM sqlite_master").fetchall()
    ours = db.execute("PRAGMA application_id").fetchone()[0] == APPLICATION  # read last, since it is written first
    if (tables and not ours) or db.execute(_IN_THE_WAY, (_TABLE,)).fetchone()[0]:
        raise _NotOurs
    db.execute("PRAGMA journal_mode = WAL")
    db.execute("PRAGMA synchronous = NORMAL")
    if not ours:
        db.execute(f"PRAGMA application_id = {APPLICATION}")
    db.execute(_TABLE.replace("TABLE", "TABLE IF NOT EXISTS", 1))


def _saved(db: sqlite3.Connection, key: str, value: str) -> bool:
    with db:
        db.execute(_SAVE, (key, value))
        db.execute(_DROP, (_ROWS,))
    return True


def _damaged(error: Exception) -> bool:
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF
    return isinstance(error, _NotOurs) or code in {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB}


def _private_file(path: Path) -> tuple[int, int]:
    """Makes the file unless it is there, for its owner alone, and the folders above it; which file it is.

    A file that is there is not opened: closing it would undo the locks that SQLite holds on it in this process.
    """
    private_folder(path.parent)
    _taken(path)
    if not path.is_file():
        raise OSError(f"{path} is no file")
    return _identity(path)


def _taken(path: Path) -> bool:
    """Makes a private empty file; False where anything has that name, were it a link that leads nowhere."""
    try:
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
    except FileExistsError:
        return False
    return True


def _identity(path: Path) -> tuple[int, int]:
    found = path.stat()
    return found.st_dev, found.st_ino


def _rename(path: Path) -> None:
    """Gives a database and what belongs to it the first free name; raises `OSError` where there is none."""
    for number in range(1, _SET_ASIDE + 1):
        target = path.with_name(f"{path.name}.damaged-{number}")
        if not any(os.path.lexists(f"{target}{ending}") for ending in _ENDINGS) and _taken(target):
            break
    else:
        raise OSError(f"{_SET_ASIDE} damaged files lie beside {path}")
    for ending in (*_ENDINGS, ""):
        with suppress(FileNotFoundError):
            Path(f"{path}{ending}").replace(f"{target}{ending}")
