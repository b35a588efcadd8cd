"""A plot, as the file that `--plot` names holds it."""

from __future__ import annotations

import re
import struct
from pathlib import Path

import pytest

from localctx.app.bench.tables import Table
from localctx.wiring.bench.picture import check_picture, picture

TABLES = [Table("Reading", [{"prompt": 128, "tokens/s": 50.0}, {"prompt": 512, "tokens/s": 25.5}])]


@pytest.mark.parametrize("tables", [TABLES, TABLES * 3])
def test_a_png_is_twice_as_large_as_the_svg_each_way(tables: list[Table]) -> None:
    path = Path("plot.png")
    check_picture(path)
    drawn = picture(path, "localctx bench server", tables)
    assert drawn.startswith(b"\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR")
    svg = picture(Path("plot.svg"), "localctx bench server", tables).decode()
    (size,) = re.findall(r'<svg [^>]*width="(\d+)" height="(\d+)"', svg)
    assert struct.unpack(">II", drawn[16:24]) == tuple(2 * int(side) for side in size)


def test_the_rows_are_drawn_into_the_png() -> None:
    drawn = picture(Path("plot.png"), "", TABLES)
    empty = picture(Path("plot.png"), "", [Table("Reading", [{"prompt": 128, "": None}, {"prompt": 512, "": None}])])
    assert len(drawn) > len(empty)
