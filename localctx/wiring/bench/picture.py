"""A plot in the form that the name of its file asks for."""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING

from localctx.app.bench.plot import svg
from localctx.errors import MissingExtra, Misuse

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from localctx.app.bench.tables import Table

__all__ = ["check_picture", "picture"]


def check_picture(path: Path) -> None:
    """Raises `Misuse` for a name that is neither .svg nor .png, and `MissingExtra` where a PNG cannot be made here."""
    if path.suffix not in {".svg", ".png"}:
        raise Misuse(f"{path} (--plot) is neither .svg nor .png; name a file that ends in one of them")
    if path.suffix == ".png" and find_spec("resvg_py") is None:
        raise MissingExtra("plot", "'localctx[plot]'", "drawing a PNG (an SVG needs nothing)")


def picture(path: Path, title: str, tables: Sequence[Table]) -> bytes:
    """The tables as the file is to hold them."""
    drawn = svg(title, tables)
    if path.suffix == ".svg":
        return drawn.encode()
    import resvg_py  # noqa: PLC0415  an optional package

    return bytes(resvg_py.svg_to_bytes(svg_string=drawn, zoom=2))
