"""Cases from the field, a JSON file each: `given`, what to `expect` in words, and `checks` to assert."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

__all__ = ["case", "expanded", "joined"]

_FOLDER = Path(__file__).parent


def case(number: int) -> Any:  # noqa: ANN401  JSON
    """The case with this number, its long texts expanded."""
    (path,) = _FOLDER.glob(f"{number:02}-*.json")
    return expanded(json.loads(path.read_text(encoding="utf-8")))


def joined(rows: list[dict[str, Any]], checks: list[dict[str, Any]]) -> list[tuple[dict[str, Any], dict[str, Any]]]:
    """Each row of a case beside the check of the same name; every row has one."""
    by_name = {check["name"]: check for check in checks}
    assert [row["name"] for row in rows] == list(by_name)
    return [(row, by_name[row["name"]]) for row in rows]


def expanded(value: Any) -> Any:  # noqa: ANN401  JSON
    """A JSON value with `{"$repeat": {"text", "times"}}` and `{"$concat": [...]}` written out."""
    match value:
        case {"$repeat": {"text": str(text), "times": int(times)}}:
            return text * times
        case {"$concat": list(pieces)}:
            return "".join(expanded(piece) for piece in pieces)
        case dict():
            return {key: expanded(inner) for key, inner in value.items()}
        case list():
            return [expanded(inner) for inner in value]
    return value
