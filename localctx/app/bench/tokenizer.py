"""What each counter takes, and how exact it is: on prose, code, JSON, Chinese and logs, beside the server's own count."""

from __future__ import annotations

from dataclasses import dataclass
from statistics import geometric_mean, median
from time import perf_counter
from typing import TYPE_CHECKING, TypeAlias

from localctx.app.bench.corpus import sample

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence

    from localctx.app.bench.pace import Pace
    from localctx.app.bench.tables import Sheet
    from localctx.core.accounting import Count

__all__ = ["Candidate", "measured", "texts"]

Size: TypeAlias = "Callable[[str], int]"

_KINDS = {"prose": "english", "code": "code-python", "JSON": "json", "Chinese": "chinese-simplified", "logs": "log"}

_PIECE = 4_000
"""Characters of the pieces that a text is counted in: what a long message has."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """A counter: `start` makes one that has seen nothing, `library` names the candidate that is the same without what we add.

    `loaded` gives the seconds and the bytes that one takes in a process of its own, None where that is not known.
    """

    name: str
    start: Callable[[], Size]
    loaded: Callable[[], Awaitable[tuple[float, int] | None]]
    library: str | None = None


def texts(characters: int) -> dict[str, str]:
    """The texts, generated anew in each run from the same seed."""
    return {name: sample(kind, characters, 1) for name, kind in _KINDS.items()}


async def measured(
    candidates: Sequence[Candidate],
    given: Mapping[str, str],
    server: Callable[[str], Awaitable[Count | None]],
    pace: Pace,
    sheet: Sheet,
    *,
    rounds: int,
) -> None:
    """Fills the sheet. `server` counts a text; where it cannot, nothing is said of exactness. Raises what it raises."""
    pace.expect(len(candidates) * (1 + len(given)) + len(given))
    loading, speeds = sheet.table("Loading a counter, in a process of its own"), sheet.table("Tokens a second")
    truth = await _by_server(server, given, pace, speeds)
    exact = sheet.table("Count / the server's count")
    found = dict[str, dict[str, float]]()
    for group in _groups(candidates):
        for candidate in group:
            await _load(candidate, pace, loading)
        timed = _timed(group, given, pace, rounds)
        for candidate, (sizes, found[candidate.name]) in zip(group, timed, strict=True):
            speeds.append({"counter": candidate.name, **{name: found[candidate.name].get(name) for name in given}})
            if truth and candidate is group[0] and sizes.keys() == truth.keys():
                shares = {name: sizes[name] / truth[name] for name in given}
                exact.append({"counter": candidate.name, **shares, "exact": sizes == truth})
    _beside_the_library(candidates, found, sheet)
    if not truth:
        sheet.notes.append("no server counts texts here: nothing is said of exactness")


async def _by_server(
    count: Callable[[str], Awaitable[Count | None]], given: Mapping[str, str], pace: Pace, rows: list[dict[str, object]]
) -> dict[str, int]:
    """The server's own counts, with their speed; empty where it counts no texts."""
    found, speeds = dict[str, int](), dict[str, object]()
    for name, text in given.items():
        if not pace.begin(1, f"the server's count of {name}"):
            return {}
        started = perf_counter()
        total = 0
        for piece in _pieces(text):
            counted = await count(piece)
            if counted is None:
                return {}
            total += counted.tokens
        seconds = perf_counter() - started
        pace.end(1, seconds)
        found[name], speeds[name] = total, total / seconds
    rows.append({"counter": "the server's own", **speeds})
    return found


async def _load(candidate: Candidate, pace: Pace, rows: list[dict[str, object]]) -> None:
    if not pace.begin(1, f"loading {candidate.name}"):
        return
    started = perf_counter()
    if (took := await candidate.loaded()) is not None:
        rows.append({"counter": candidate.name, "seconds": took[0], "memory, MB": took[1] / 1e6})
    pace.end(1, perf_counter() - started)


def _groups(candidates: Sequence[Candidate]) -> list[list[Candidate]]:
    """Each candidate with its library behind it."""
    named = {candidate.name: candidate for candidate in candidates}
    libraries = {candidate.library for candidate in candidates}
    return [
        [candidate, *([named[candidate.library]] if candidate.library in named else [])]
        for candidate in candidates
        if candidate.name not in libraries
    ]


def _timed(
    group: Sequence[Candidate], given: Mapping[str, str], pace: Pace, rounds: int
) -> list[tuple[dict[str, int], dict[str, float]]]:
    """For each of the group, the tokens of each text by pieces, and how many of them a second: the middle of several rounds.

    They take turns round by round, so that a share of one speed in another is of the same moments. Each piece is seen first.
    """
    timed = [(dict[str, int](), dict[str, float]()) for _ in group]
    for name, text in given.items():
        if not pace.begin(len(group), f"{group[0].name}: {name}"):
            break
        begun = perf_counter()
        counted = [[_counted(candidate, text) for candidate in group] for _ in range(rounds)]
        pace.end(len(group), perf_counter() - begun)
        for (sizes, speeds), each in zip(timed, zip(*counted, strict=True), strict=True):
            sizes[name] = each[0][0]
            speeds[name] = sizes[name] / median(seconds for _, seconds in each)
    return timed


def _counted(candidate: Candidate, text: str) -> tuple[int, float]:
    """The tokens of a text by pieces, and the seconds that a counter took for them which has seen none."""
    size = candidate.start()
    size("what is built when it is first used")
    started = perf_counter()
    return sum(map(size, _pieces(text))), perf_counter() - started


def _pieces(text: str) -> list[str]:
    return [text[at : at + _PIECE] for at in range(0, len(text), _PIECE)]


def _beside_the_library(
    candidates: Sequence[Candidate], found: Mapping[str, Mapping[str, float]], sheet: Sheet
) -> None:
    """The speeds of counters as shares of the same library's without what we add, text by text, measured in this run."""
    rows = sheet.table("Speed beside the same library alone")
    for candidate in candidates:
        alone, ours = found.get(candidate.library or "", {}), found[candidate.name]
        shares = {name: ours[name] / alone[name] for name in ours if name in alone}
        if shares:
            rows.append({"counter": candidate.name, **shares, "all": geometric_mean(shares.values())})
