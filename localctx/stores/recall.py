"""An index of a session's words, for `recall`: SQLite's FTS5, in a private file beside the journal.

It holds nothing that the journal does not hold, so nothing here fails a run: a file that is damaged, of another schema
or of another journal is deleted and a new one begun; where none can be used, or another program uses it, the index is
in memory.
"""

from __future__ import annotations

import re
import sqlite3
from contextlib import closing, suppress
from string import punctuation
from threading import RLock
from typing import TYPE_CHECKING, Any

from localctx.core.recall import Document, Found

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from pathlib import Path

__all__ = ["RecallIndex"]

_SCHEMA = 0x6C637201  # the letters `lcr`, and a number that rises when what is indexed changes
_CREATE = f"""BEGIN; CREATE TABLE state (journal TEXT, through INTEGER); PRAGMA user_version = {_SCHEMA};
CREATE VIRTUAL TABLE passage USING fts5(seq UNINDEXED, kind UNINDEXED, shown UNINDEXED, words,
    tokenize = "porter unicode61 categories 'L* N* Co M*'"); COMMIT"""
_THROUGH = "SELECT ifnull(CAST(through AS INTEGER), 0) FROM state"
_SEARCH = """SELECT seq, kind, shown, min(rank) FROM passage WHERE passage MATCH ? GROUP BY seq
    ORDER BY max(sum(rank), 1.2 * min(rank)), seq DESC LIMIT ?"""
"""A document ranks as the best of its passages, which is shown, and a fifth better where others match. Ranks are < 0."""

_ANEW = {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_ERROR}
_WAIT_SECONDS, _QUERY_CHARACTERS, _WORDS, _TERMS, _AROUND = 0.5, 1_000, 20, 60, 50
_ALONE = (
    "\u0e00-\u0eff\u1000-\u11ff\u1780-\u17ff\u3005-\u3007\u3040-\u31ff\u3400-\u4dbf\u4e00-\u9fff"
    "\uac00-\ud7af\uf900-\ufaff\uff66-\uff9f\U00020000-\U0003ffff"
)
"""Thai, Lao, Burmese, Khmer, Chinese, Japanese, Korean: each character is a token, parted from the next by `\\x01`."""

_SEAM = re.compile(f"(?<=[{_ALONE}])(?=[\\w{_ALONE}])|(?<=\\w)(?=[{_ALONE}])")
_PART = re.compile(f"(?=([{_ALONE}]\1[{_ALONE}]))|([^\\W_{_ALONE}]{{2,}})")
_HUMP = re.compile("(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
_CAMEL = re.compile("(?<![A-Za-z0-9])[A-Za-z0-9]*?(?:[a-z0-9][A-Z]|[A-Z][A-Z][a-z])[A-Za-z0-9]*")
_UNFIT = re.compile("[\0-\x1f\x7f\ud800-\udfff]")
_PASSAGE = re.compile(r"\S.{,199}(?!\S)|\S{200}(?=(\S{,40}))")
"""At most 200 characters, parted at spaces; where there are none, the 40 after them (the group) belong to both."""


class RecallIndex:
    """What was added of a journal, in a file that is opened when it is first needed; in memory where `path` is None.

    `journal` tells this journal from others, such as by when its first line was written. Nothing is raised: whoever
    has added and searched looks at `through`, which is 0 where the file failed; then all is added once more.
    """

    def __init__(self, path: Path | None, journal: str = "") -> None:
        self._path, self._journal, self._lock = path, journal, RLock()
        self._db: sqlite3.Connection | None = None

    def forget(self, behind: int) -> None:
        """Forgets all where the file has lines behind this one, the journal's last: a power failure took them."""
        if self._path is None or not self._path.is_file():
            return
        with suppress(sqlite3.Error, OSError), closing(sqlite3.connect(self._path, _WAIT_SECONDS)) as db:
            if db.execute(_THROUGH).fetchone()[0] > behind:
                self._path.unlink()

    @property
    def through(self) -> int:
        """The last line of the journal that is in it; 0 where there is none."""
        return next((through for (through,) in self._done(lambda db: db.execute(_THROUGH).fetchall())), 0)

    def add(self, documents: Iterable[Document], through: int) -> None:
        """Adds the documents that it has not, up to line `through`, and forgets lines behind that."""
        self._done(lambda db: _add(db, documents, through))

    def search(self, query: str, most: int = 8) -> list[Found]:
        """The documents with any of the first 20 words, best first: with rare words, many, close together."""
        match = _match(query)
        rows = self._done(lambda db: db.execute(_SEARCH, (match, max(0, most))).fetchall()) if match else []
        return [Found(seq, kind, shown) for seq, kind, shown, _ in rows]

    def close(self) -> None:
        """Gives the file back; it is opened again when it is needed again."""
        with self._lock:
            if self._db is not None:
                self._db.close()
            self._db = None

    def _done(self, work: Callable[[sqlite3.Connection], list[Any]]) -> list[Any]:
        with self._lock:
            try:
                return work(self._opened())
            except (sqlite3.Error, OSError, OverflowError, UnicodeError) as error:
                self.close()
                path, self._path = self._path, None
                with suppress(OSError):
                    code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_CORRUPT) & 0xFF
                    if path and path.is_file() and code in _ANEW:
                        path.unlink()
                        self._path = path
                return []

    def _opened(self) -> sqlite3.Connection:
        if self._db is None:
            if self._path:
                self._path.touch(mode=0o600)
            place = self._path or ":memory:"
            self._db = sqlite3.connect(place, _WAIT_SECONDS, isolation_level=None, check_same_thread=False)
            _prepare(self._db, self._journal)
        return self._db


def _prepare(db: sqlite3.Connection, journal: str) -> None:
    """Takes the file for this program and makes the tables of a new one. Raises where another is in its place."""
    db.executescript("PRAGMA locking_mode = EXCLUSIVE; BEGIN EXCLUSIVE; COMMIT")  # until it is closed
    if not db.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]:
        db.executescript(_CREATE)
        db.execute("INSERT INTO state VALUES (?, 0)", (journal,))
    checks = [db.execute(f"PRAGMA {name}").fetchone()[0] for name in ("user_version", "quick_check")]
    if checks != [_SCHEMA, "ok"] or db.execute("SELECT journal FROM state").fetchall() != [(journal,)]:
        raise sqlite3.DatabaseError("not an index of this journal")


def _add(db: sqlite3.Connection, documents: Iterable[Document], through: int) -> list[Any]:
    with db:
        db.execute("BEGIN")
        known = db.execute(_THROUGH).fetchone()[0]
        db.execute("DELETE FROM passage WHERE ?1 < ?2 AND seq > ?1", (through, known))
        new = (each for each in documents if known < each.seq <= through)
        db.executemany("INSERT INTO passage VALUES (?, ?, ?, ?)", (row for each in new for row in _rows(each)))
        return db.execute("UPDATE state SET through = ?", (through,)).fetchall()


def _rows(document: Document) -> Iterator[tuple[int, str, str, str]]:
    """A text by passages: what is shown of it, and its words with what humps part in them."""
    kind, text = _UNFIT.sub(" ", document.kind), " ".join(_UNFIT.sub(" ", document.text).split())
    for each in _PASSAGE.finditer(text):
        words = " ".join([each[0] + (each[1] or ""), *(_HUMP.sub(" ", word) for word in _CAMEL.findall(each[0]))])
        yield document.seq, kind, _shown(text, *each.span()), words if words.isascii() else _SEAM.sub("\1", words)


def _shown(text: str, start: int, end: int) -> str:
    """A passage with what is around it, by whole words as far as that goes, and ellipses where the text goes on."""
    low, high = max(0, start - _AROUND), end + _AROUND
    shown = re.sub(r"^\S{,30} ?", "…" if low else r"\g<0>", text[low:high])
    return re.sub(r" ?\S{,30}$", "…", shown, count=1) if high < len(text) else shown


def _match(query: str) -> str:
    """The FTS5 expression for any text: any of its words or their parts; empty without words."""
    text = _SEAM.sub("\1", _UNFIT.sub(" ", query[:_QUERY_CHARACTERS]).replace('"', " "))
    words = list(dict.fromkeys(filter(None, (word.strip(punctuation) for word in text.split()))))[:_WORDS]
    parts = ["".join(pair) for word in words for pair in _PART.findall(_HUMP.sub(" ", word))]
    return " OR ".join(f'"{term}"' for term in [*dict.fromkeys([*words, *parts])][:_TERMS])
