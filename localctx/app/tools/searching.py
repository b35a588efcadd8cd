"""Finding files by their names, and lines by what is in them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from localctx.app.tools.place import explained
from localctx.app.tools.programs import run_program
from localctx.app.tools.reading import local
from localctx.app.tools.walking import DONE, Search
from localctx.core.arguments import described

if TYPE_CHECKING:
    from collections.abc import Mapping

    from localctx.app.tools.place import Place
    from localctx.app.tools.programs import Ran
    from localctx.core.outgoing import WireMessage
    from localctx.core.secrets import Secrets
    from localctx.ports import Outcome

__all__ = ["Find", "Grep"]

SECONDS = 20.0
_MOST_BYTES = 1 << 20
_MOST_FILES, _MOST_LINES, _LONGEST = 300, 200, 1000
"""What one search may take: seconds, bytes of what it finds, files and lines that are told, characters of a pattern."""


@dataclass(frozen=True, slots=True)
class Find:
    """Finds files by a glob, but for those that are ignored."""

    place: Place
    secrets: Secrets
    name = "find"

    @property
    def schema(self) -> WireMessage:
        """What a request says of it."""
        fields = {
            "glob": {"type": "string", "description": "such as *.py or src/**/test_*"},
            "path": {"type": "string"},
        }
        return described(self.name, "Find files by name, below path.", fields, "glob")

    async def run(self, arguments: Mapping[str, Any]) -> Outcome:
        """Their paths. Raises `ValueError` where it cannot be looked."""
        path, glob = arguments.get("path") or ".", _pattern(arguments["glob"], "glob")
        search = Search(str(self.place.root), path, glob, None, _MOST_FILES, self.place.known)
        return await _searched(search, self.place, self.secrets)


@dataclass(frozen=True, slots=True)
class Grep:
    """Finds lines by a regular expression, but for files that are ignored, binary, or may hold secrets."""

    place: Place
    secrets: Secrets
    name = "grep"

    @property
    def schema(self) -> WireMessage:
        """What a request says of it."""
        fields = {
            "pattern": {"type": "string", "description": "Python regular expression"},
            "path": {"type": "string"},
            "glob": {"type": "string"},
        }
        return described(self.name, "Search lines of files below path.", fields, "pattern")

    async def run(self, arguments: Mapping[str, Any]) -> Outcome:
        """Path, line number and line of each match. Raises `ValueError` where it cannot be looked."""
        path, pattern = arguments.get("path") or ".", _pattern(arguments["pattern"], "pattern")
        glob = arguments.get("glob") or None
        search = Search(
            str(self.place.root), path, glob and _pattern(glob, "glob"), pattern, _MOST_LINES, self.place.known
        )
        return await _searched(search, self.place, self.secrets)


def _pattern(text: str, name: str) -> str:
    if not 0 < len(text) <= _LONGEST:
        raise ValueError(f"{name} has {len(text):,} characters; it may have from 1 to {_LONGEST:,}")
    return text


async def _searched(search: Search, place: Place, secrets: Secrets) -> Outcome:
    with explained(search.path):
        place.demand_there()
        ran = await _walked(search, place, secrets)
    told, done, notes = ran.head.decode("utf-8", "replace").rpartition(DONE)
    if notes.startswith("error: "):
        raise ValueError(notes.removeprefix("error: ").strip())
    if not done:
        told, notes = notes, f"{ran.stopped or 'the search failed'}: simplify the pattern, or name a smaller folder"
    lines = [*filter(None, told.split("\n")), *([f"[{notes.strip()}]"] if notes.strip() else [])]
    return local("\n".join(lines if told.strip() else ["nothing found", *lines]), search.path)


async def _walked(search: Search, place: Place, secrets: Secrets) -> Ran:
    command = [sys.executable, "-P", "-m", "localctx.app.tools.walking"]
    return await run_program(
        command,
        folder=place.root,
        environment={**secrets.left_of(os.environ), "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        seconds=SECONDS,
        kept=_MOST_BYTES,
        most=_MOST_BYTES,
        sent=json.dumps(asdict(search)).encode(),
        errors=subprocess.DEVNULL,
    )
