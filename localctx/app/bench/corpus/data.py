"""Texts that programs write: JSON, tables, numbers, hexadecimal and base64. Each function gives one piece."""

from __future__ import annotations

import base64
import csv
import io
import json
from functools import partial
from typing import TYPE_CHECKING, TypeAlias

from localctx.app.bench.corpus.grammar import grammar

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from random import Random

__all__ = ["base64_piece", "csv_piece", "document", "hex_piece", "json_piece", "numbers_piece"]

Json: TypeAlias = "bool | int | float | str | list[Json] | dict[str, Json] | None"

_Value: TypeAlias = "Callable[[Random], Json]"

_WORDS = ("words", "values")
_DEPTH = 2
"""How deep documents are nested under their outermost value, at most."""


def _word(rng: Random, rule: str) -> str:
    return grammar(*_WORDS).expand(rule, rng)


def document(rng: Random, depth: int = _DEPTH) -> Json:
    """A JSON value as interfaces give it: an object, or rows of the same keys, nested at most `depth` deep."""
    if rng.random() < 0.4:  # noqa: PLR2004  two shares of shapes, no number that is used again
        shape = _shape(rng, rng.randint(3, 8), depth)
        return [{key: value(rng) for key, value in shape.items()} for _ in range(rng.randint(2, 9))]
    return {key: value(rng) for key, value in _shape(rng, rng.randint(3, 10), depth).items()}


def _shape(rng: Random, size: int, depth: int) -> Mapping[str, _Value]:
    """Keys in one spelling, each with the kind of its values."""
    spelling = rng.choice(("snake-key", "snake-key", "camel-key", "kebab-key", "title-key"))
    return {_word(rng, spelling): _kind(rng, depth) for _ in range(size)}


def _kind(rng: Random, depth: int) -> _Value:
    nested: tuple[_Value, ...] = (partial(document, depth=depth - 1), _object, _list) if depth else (_list,)
    texts: list[_Value] = [partial(_word, rule=rule) for rule in (*rng.sample(_TEXTS, 6), "sentence")]
    return rng.choice((*texts, _number, _number, _decimal, _flag, _nothing, *nested))


_TEXTS = (
    *("noun", "noun", "thing", "thing", "heading", "heading", "kebab-key", "identifier", "person", "email", "date"),
    *("stamp", "place", "code", "version", "link", "path", "state", "uuid", "address", "reference"),
)
"""Rules of the texts that are values; a field of rows has the same rule in each."""


def _object(rng: Random) -> Json:
    return {key: value(rng) for key, value in _shape(rng, rng.randint(1, 4), 0).items()}


def _list(rng: Random) -> Json:
    texts: list[_Value] = [partial(_word, rule=rule) for rule in ("noun", rng.choice(_TEXTS))]
    of = rng.choice((*texts, _number, _decimal))
    return [of(rng) for _ in range(rng.randint(0, 6))]


def _number(rng: Random) -> Json:
    return rng.choice((rng.randint(0, 9), rng.randint(0, 1000), rng.randint(0, 10**6), 10 ** rng.randint(1, 6)))


def _decimal(rng: Random) -> Json:
    return round(rng.uniform(0, rng.choice((1, 10, 1000))), rng.randint(1, 6))


def _flag(rng: Random) -> Json:
    return rng.random() < 0.5  # noqa: PLR2004  as often true as false


def _nothing(_: Random) -> Json:
    return None


def json_piece(rng: Random) -> str:
    """A document, indented by two or four, on one line, or without any space."""
    value = document(rng, rng.randint(0, _DEPTH))
    if rng.random() < 0.4:  # noqa: PLR2004  the share of documents for people
        return json.dumps(value, indent=rng.choice((2, 2, 2, 4)), ensure_ascii=False) + "\n"
    return json.dumps(value, separators=rng.choice(((", ", ": "), (",", ":"))), ensure_ascii=False) + "\n"


def csv_piece(rng: Random) -> str:
    """A table with a header, its columns as those of exports and measurements are."""
    columns = [rng.choice(_COLUMNS) for _ in range(rng.randint(2, 7))]
    out = io.StringIO()
    rows = csv.writer(out, delimiter=rng.choice((",", ",", ",", ";", "\t")), lineterminator="\n")
    rows.writerow([_word(rng, "column") for _ in columns])
    rows.writerows([[column(rng) for column in columns] for _ in range(rng.randint(8, 30))])
    return out.getvalue() + "\n"


_COLUMNS: tuple[Callable[[Random], object], ...] = (
    lambda rng: rng.randint(1, 99_999),
    lambda rng: rng.randint(0, 400),
    lambda rng: round(rng.uniform(-20, 40), 1),
    lambda rng: round(rng.uniform(0, 1000), 2),
    lambda rng: round(rng.uniform(-180, 180), 6),
    lambda rng: _word(rng, "date"),
    lambda rng: _word(rng, "stamp"),
    lambda rng: _word(rng, rng.choice(_TEXTS)),
    lambda rng: _word(rng, "cell"),
)


def numbers_piece(rng: Random) -> str:
    """Numbers and little else: aligned columns, floats as programs print them, a dump of counters or a matrix."""
    table = rng.choice((_aligned, _floats, _counters, _counters, _matrix))
    return table(rng) + "\n\n"


def _aligned(rng: Random) -> str:
    limits = [10 ** rng.randint(1, 7) for _ in range(rng.randint(3, 9))]
    rows = [[f"{rng.randint(0, limit):>{len(str(limit)) + 1}}" for limit in limits] for _ in range(rng.randint(6, 20))]
    return "\n".join("".join(row) for row in rows)


def _floats(rng: Random) -> str:
    decimals, join = rng.randint(1, 8), rng.choice((" ", ", ", "\t", "  "))
    size = 10.0 ** rng.randint(0, 4)
    rows = [[f"{rng.uniform(-size, size):.{decimals}f}" for _ in range(rng.randint(3, 6))] for _ in range(12)]
    return "\n".join(join.join(row) for row in rows)


def _counters(rng: Random) -> str:
    return "\n".join(f"{_word(rng, 'column')} {rng.randint(0, 10 ** rng.randint(1, 9))}" for _ in range(10))


def _matrix(rng: Random) -> str:
    width = rng.randint(3, 8)
    rows = [f"[{', '.join(f'{rng.gauss(0, 1):.4e}' for _ in range(width))}]" for _ in range(rng.randint(3, 9))]
    return "[" + ",\n ".join(rows) + "]"


def hex_piece(rng: Random) -> str:
    """Hexadecimal as it is met: sums of files, dumps with offsets, bytes of source text, identifiers, addresses."""
    form = rng.choice((_sums, _sums, _dump, _source, _uuids, _traces, _plain))
    return form(rng) + "\n\n"


def _sums(rng: Random) -> str:
    size = rng.choice((32, 40, 64))
    return "\n".join(f"{_hex(rng, size)}  {_word(rng, 'path')}" for _ in range(rng.randint(4, 12)))


def _dump(rng: Random) -> str:
    rows, start = rng.randint(6, 20), 16 * rng.randint(0, 2**16)
    return "\n".join(_dump_row(start + 16 * row, rng.randbytes(16)) for row in range(rows))


def _dump_row(offset: int, data: bytes) -> str:
    shown = "".join(chr(byte) if 32 <= byte < 127 else "." for byte in data)  # noqa: PLR2004  printable ASCII
    return f"{offset:08x}: {data.hex(' ', 2)}  {shown}"


def _source(rng: Random) -> str:
    rows = [", ".join(f"0x{byte:02x}" for byte in rng.randbytes(12)) for _ in range(rng.randint(4, 12))]
    return "{\n    " + ",\n    ".join(rows) + "\n};"


def _uuids(rng: Random) -> str:
    return "\n".join(_word(rng, "uuid") for _ in range(rng.randint(5, 20)))


def _traces(rng: Random) -> str:
    return "\n".join(f"#{row} 0x{_hex(rng, 16)} {_hex(rng, 8)} {_hex(rng, 4)}" for row in range(rng.randint(5, 15)))


def _plain(rng: Random) -> str:
    size = rng.choice((40, 64, 64, 128))
    return "\n".join(_hex(rng, size) for _ in range(rng.randint(4, 12)))


def _hex(rng: Random, digits: int) -> str:
    return f"{rng.getrandbits(4 * digits):0{digits}x}"


def base64_piece(rng: Random) -> str:
    """Base64 of random bytes: folded as in certificates, in one line as in data addresses, or safe for addresses."""
    data = rng.randbytes(rng.randint(120, 1500))
    form = rng.choice(("folded", "folded", "line", "token"))
    if form == "folded":
        folded = base64.b64encode(data).decode()
        rows = [folded[at : at + 64] for at in range(0, len(folded), 64)]
        return "\n".join(["-----BEGIN CERTIFICATE-----", *rows, "-----END CERTIFICATE-----", ""])
    if form == "line":
        return f"data:image/png;base64,{base64.b64encode(data).decode()}\n"
    return base64.urlsafe_b64encode(data).decode().rstrip("=") + "\n"
