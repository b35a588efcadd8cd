"""The conversation in which facts are planted: what a compaction must not lose, each with what one would search it by."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import cycle
from typing import TYPE_CHECKING, TypeAlias

from localctx.app.bench.corpus import sample
from localctx.app.bench.script import Call, Reply, Turn

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

__all__ = ["FACTS", "SYSTEM", "Fact", "holds", "one_by_one", "plainly", "planted", "small_talk"]

SYSTEM = "You help a harbour office with its tide tables. Look before you answer, and say what you did."


@dataclass(frozen=True, slots=True)
class Fact:
    """What is known by one of the turns: all `words` of it have to be there. `about` is what it would be searched by."""

    kind: str
    words: tuple[str, ...]
    about: str


_RULES = {
    "Never write to the archive share.": "archive share writing",
    "From now on give every depth in decimetres.": "unit of depth",
    "You must ask me before you restart the pump controller.": "pump controller restart",
    "Always keep the old timetable beside the new one.": "old timetable kept",
    "Do not mail the pilots on Sundays.": "mail to pilots",
    "Every report must name the gauge that it comes from.": "report gauge name",
}
_READ = {
    "survey/quay_north.csv": "quay survey",
    "docs/buoy_chart.md": "buoy chart",
    "logs/sluice_nine.log": "sluice log",
}
_WRITTEN = {
    "src/tide/gauge_7.py": "gauge source",
    "tables/spring_2031.csv": "spring table",
    "docs/pilot_notes.md": "pilot",
}
_RUN = {
    "python -m tide.check --all": ("17 gauges agree, 2 drift", "tide check gauges"),
    "make spring-table": ("wrote 4380 rows", "make spring table"),
    "python -m pytest tests/sluice": ("1 failed, 58 passed", "pytest sluice"),
    "sluicectl status nine": ("gate nine is half open", "sluicectl status"),
    "git log -1 --oneline": ("c41f77e Round depths down", "git log oneline"),
    "du -s tables": ("91244 tables", "du tables"),
}
_FAILED = {
    "config/harbour.toml": ("error: line 14 lacks the key draught_limit", "harbour config draught"),
    "survey/quay_south.csv": ("error: no such file, the newest is quay_south_old.csv", "quay south survey"),
    "logs/pump_three.log": ("error: permission denied for user tidewatch", "pump three log"),
    "tables/neap_2031.csv": ("error: row 2207 has 6 columns instead of 5", "neap table row columns"),
}
_SAID_BY_USER = {
    "The gauge at the north quay listens on port 48213.": ("48213", "north quay gauge port"),
    "The deepest ship draws 11.47 metres.": ("11.47", "deepest ship draws"),
    "I have decided that the tables begin in March.": ("tables begin in March", "decided tables begin month"),
    "We settled on Rotterdam as the reference port.": ("Rotterdam", "reference port settled"),
}
_SAID_BY_MODEL = {
    "The pump controller answers within 3719 milliseconds.": ("3719", "pump controller answers milliseconds"),
    "The mean of the spring tides is 5.2713 metres.": ("5.2713", "mean spring tides metres"),
    "Decision: times are kept in UTC and shown in local time.": ("kept in UTC", "decision times kept shown"),
    "Decision: the sluice log is read by lines, not at once.": ("read by lines", "decision sluice log read"),
    "Decision: we drop gauge 12, it drifts.": ("drop gauge 12", "decision drop drifts"),
    "Decision: charts are drawn as SVG.": ("drawn as SVG", "decision charts drawn"),
}
_IN_A_RESULT = {
    '{"berth": "east 4", "max_tonnage": 86250}': ("86250", "berth east max tonnage"),
    '{"lock": "inner", "fill_seconds": 1143}': ("1143", "lock inner fill seconds"),
}
_TODOS = {
    "draw the chart of the north quay": ("done", "looked at chart.svg"),
    "compare the spring table with last year's": ("done", "diff shows 3 rows"),
    "mend the drift of gauge seven": ("in_progress", ""),
    "write to the harbour master": ("pending", ""),
    "test the sluice at low tide": ("failing", ""),
    "translate the pilot notes": ("cancelled", ""),
}


def _facts() -> Iterator[Fact]:
    yield from (Fact("constraint", (rule,), about) for rule, about in _RULES.items())
    yield from (Fact("file", (path,), about) for path, about in (_READ | _WRITTEN).items())
    yield from (Fact("command", (command, outcome), about) for command, (outcome, about) in _RUN.items())
    yield from (Fact("error", (path, said), about) for path, (said, about) in _FAILED.items())
    yield from (Fact("todo", (text, status.replace("_", " ")), text) for text, (status, _) in _TODOS.items())
    for text, (word, about) in (_SAID_BY_USER | _SAID_BY_MODEL | _IN_A_RESULT).items():
        number = any(letter.isdigit() for letter in word) and not text.startswith("Decision")
        yield Fact("number" if number else "decision", (word,), about)


FACTS = tuple(_facts())
"""Forty, of seven kinds."""

_PLAIN = 8
"""The last turns, in which nothing is planted: so much of the end stays word for word."""


def planted(turns: int = 44, *, more: int = 0) -> list[Turn]:
    """So many turns (above eight), with all facts in those before the last eight; and `more` in which nothing is planted."""
    told: list[list[_Telling]] = [[] for _ in range(turns - _PLAIN)]
    for place, telling in zip(cycle(told), _tellings(1.0), strict=False):
        place.append(telling)
    told += [[] for _ in range(_PLAIN + more)]
    return [_turn(number, tellings, 1.0) for number, tellings in enumerate(told)]


def one_by_one(scale: float) -> Iterator[tuple[Turn, Fact]]:
    """The facts, mixed, each in a turn of its own, whose results and filling are `scale` times as long as in `planted`."""
    told = list(zip(_tellings(scale), FACTS, strict=True))
    for number in range(len(told)):
        telling, fact = told[number * _STRIDE % len(told)]
        yield _turn(number, [telling], scale), fact


_STRIDE = 7
"""Has no divisor in common with forty, so that every fact comes once, and all kinds come early."""


def small_talk(number: int, scale: float) -> Turn:
    """A turn in which nothing is planted."""
    return _turn(number, [], scale)


def plainly(text: str) -> str:
    """One line, in small letters, so that neither line ends nor the spelling of a status hide a fact."""
    return " ".join(text.replace("_", " ").split()).lower()


def holds(text: str, fact: Fact) -> bool:
    """Whether a fact is in a text that was made plain."""
    return all(plainly(words) in text for words in fact.words)


_Telling: TypeAlias = "tuple[str, str, list[Reply]]"
"""What the user says of it, what the model says, and the replies with calls."""


def _tellings(scale: float) -> Iterator[_Telling]:
    """How each fact comes into the conversation, in the order of `FACTS`: by words of the user's, of the model's, or by calls."""

    def size(characters: int) -> int:
        return int(characters * scale)

    yield from ((rule, "", []) for rule in _RULES)
    yield from (
        ("", "", [_called("read_file", sample("log", size(900), at), path=path)]) for at, path in enumerate(_READ)
    )
    for at, path in enumerate(_WRITTEN):
        content = sample("code-python", size(900), at)
        yield "", "", [_called("write_file", f"wrote {len(content)} bytes", path=path, content=content)]
    for at, (command, (outcome, _)) in enumerate(_RUN.items()):
        yield "", "", [_called("bash", f"{sample('log', size(1_200), 50 + at)}\n{outcome}", command=command)]
    yield from (("", "", [_called("read_file", said, path=path)]) for path, (said, _) in _FAILED.items())
    for text, (status, check) in _TODOS.items():
        todo = {"text": text, "status": status} | ({"verified_by": check} if check else {})
        yield "", "", [Reply("I note that.", (Call("update_work_state", {"todos": [todo]}),))]
    yield from ((text, "", []) for text in _SAID_BY_USER)
    yield from (("", text, []) for text in _SAID_BY_MODEL)
    for at, row in enumerate(_IN_A_RESULT):
        yield "", "", [_called("query", f"[{sample('json', size(500), at)},\n{row}]", table=f"harbour_{at}")]


def _called(tool: str, result: str, **arguments: str) -> Reply:
    return Reply("I look.", (Call(tool, arguments, result),))


def _turn(number: int, tellings: Sequence[_Telling], scale: float) -> Turn:
    asked = [text for text, _, _ in tellings if text]
    asked.append(f"What comes next? {sample('english', int(150 * scale), number)}".rstrip())
    said = [text for _, text, _ in tellings if text] + [sample("english", int(300 * scale), 1_000 + number)]
    looked = _called("query", sample("json", int(1_300 * scale), 70 + number), table=f"readings_{number}")
    replies = [reply for _, _, calls in tellings for reply in calls]
    return Turn(" ".join(asked), (looked, *replies, Reply(" ".join(said))))
