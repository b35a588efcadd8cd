"""The scripted conversation: sixty turns of work on a booking service, about 57,000 tokens (cl100k) as they come.

Parallel calls, code written and read, logs, JSON, the same test output again and again, Japanese, and one result that is
larger than the windows that it is played in.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from localctx.app.bench.corpus import sample
from localctx.app.bench.script import Call, Reply, Turn

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["SYSTEM", "conversation"]

SYSTEM = (
    "You help with the software of a small ferry line. Use the tools to look before you answer, change one thing at a "
    "time, and say what you did."
)

_GOAL = "I want the booking service moved from SQLite to PostgreSQL without losing a single booking."

_RULES = {
    1: "Never touch anything under legacy/ without asking me.",
    4: "Every migration must get a test before it is written.",
    11: "From now on amounts are whole cents, never floats.",
    18: "金額の表示は必ず税込みにしてください。",
    27: "Never run the full test suite twice in a turn, it takes nine minutes.",
    40: "From now on answer me in at most three sentences.",
}
"""What the user wants to hold from that turn on."""

_PARTS = ("booking", "tariff", "berth", "crew", "timetable", "voucher")

_LARGE_TURN, _LARGE_CHARACTERS = 31, 44_000


def conversation(turns: int = 60) -> list[Turn]:
    """The first turns of the conversation."""
    return [_turn(number) for number in range(1, turns + 1)]


def _turn(number: int) -> Turn:
    part = _PARTS[number // len(_KINDS) % len(_PARTS)]
    asked, replies = _KINDS[number % len(_KINDS)](number, part)
    if number == _LARGE_TURN:
        asked, replies = "Show me the whole log of last night.", [_ran("cat log/server.log", _log(number, large=True))]
    standing = ((_GOAL,) if number == 1 else ()) + ((_RULES[number],) if number in _RULES else ())
    closing = f"That was step {number}, on the {part} side. {sample('english', 160, number)}"
    return Turn(" ".join([*standing, asked]), (*replies, Reply(closing)), standing)


def _survey(number: int, part: str) -> tuple[str, list[Reply]]:
    paths = [f"src/{part}/{name}.py" for name in ("model", "store", f"rules_{number}")]
    calls = tuple(
        Call("read_file", {"path": path}, sample("code-python", 2_200, number + at)) for at, path in enumerate(paths)
    )
    asked = f"Read how the {part} part keeps its rows, and tell me which of its three files knows about SQLite."
    return asked, [Reply(f"I read the three files of the {part} part together.", calls)]


def _tested(number: int, part: str) -> tuple[str, list[Reply]]:
    passed = 212 + number
    lines = "\n".join(
        f"tests/{part}/test_{name}.py ........................ [{at:3}%]" for at, name in enumerate(_NAMES, 60)
    )
    output = f"collected {passed + 2} items\n\n{lines}\n\n{sample('code-python', 1_400, 7)}\n2 failed, {passed} passed in 48.2s"
    return "Run the tests of this part once more.", [_ran(f"python -m pytest tests/{part}", output)]


_NAMES = ("model", "store", "rules", "prices", "refunds", "harbours", "routes", "seats", "dogs", "bicycles") * 2


def _asked_rows(number: int, part: str) -> tuple[str, list[Reply]]:
    call = Call("query", {"table": f"{part}s_{number}"}, sample("json", 2_000, number))
    return f"What does the table {part}s_{number} hold at the moment?", [Reply("I look at some rows.", (call,))]


def _talked(number: int, part: str) -> tuple[str, list[Reply]]:
    return f"How risky is it to change the {part} part first? {sample('english', 200, number)}", []


def _written(number: int, part: str) -> tuple[str, list[Reply]]:
    path, content = f"migrations/{number:04}_{part}.py", sample("code-python", 1_900, number)
    call = Call("write_file", {"path": path, "content": content}, f"wrote {len(content)} bytes")
    return f"Write the migration of the {part} tables.", [Reply(f"I write {path}.", (call,))]


def _logged(number: int, part: str) -> tuple[str, list[Reply]]:
    return f"Is there anything about {part} in the log?", [_ran(f"grep {part} log/server.log", _log(number))]


def _log(number: int, *, large: bool = False) -> str:
    return sample("log", _LARGE_CHARACTERS if large else 3_200, number)


def _in_japanese(number: int, part: str) -> tuple[str, list[Reply]]:
    call = Call("read_file", {"path": f"docs/ja/{part}_{number}.md"}, sample("japanese", 500, number))
    return f"{part}の担当者からの連絡です。\n{sample('japanese', 160, number)}", [Reply("I read their page.", (call,))]


def _compared(number: int, part: str) -> tuple[str, list[Reply]]:
    read = Call("read_file", {"path": f"src/{part}/changed_{number}.py"}, sample("code-python", 1_900, number))
    asked = f"What has changed in the {part} part since the last release?"
    return asked, [
        _ran(f"git diff v2 -- src/{part}", sample("diff", 1_400, number)),
        Reply("I read one of them.", (read,)),
    ]


def _ran(command: str, output: str) -> Reply:
    return Reply("I run that.", (Call("bash", {"command": command}, output),))


_KINDS: tuple[Callable[[int, str], tuple[str, list[Reply]]], ...] = (
    _talked,
    _survey,
    _tested,
    _asked_rows,
    _written,
    _tested,
    _logged,
    _in_japanese,
    _compared,
    _talked,
)
