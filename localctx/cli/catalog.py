"""`localctx catalog`: what services advertise for a model."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from localctx.cli.render import out
from localctx.errors import FetchFailed, ModelMissing

if TYPE_CHECKING:
    from collections.abc import Sequence

    from localctx.stores.catalog import Catalog, Listing

__all__ = ["app"]

app = typer.Typer(name="catalog", help="What services advertise for a model (models.dev).", no_args_is_help=True)


@app.command()
def show(
    model: Annotated[str, typer.Argument(help="The model, as a server or a service names it.")],
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
) -> None:
    """Show the listings of the same weights, and the range of their windows."""
    store = _store()
    listings = store.listings(model)
    if not listings:
        raise ModelMissing(_missing(store, model))
    out(_document(store, model, listings) if as_json else _table(store, model, listings))


@app.command()
def update() -> None:
    """Fetch the newest listings now."""
    from datetime import UTC, datetime
    from functools import partial

    import anyio

    from localctx.stores.catalog import Outcome

    store = _store()
    done = anyio.run(partial(store.refresh, datetime.now(UTC), force=True))
    if done.outcome is Outcome.FAILED:
        here = f"{store.origin} stays in use" if store.origin else "there is no catalog here, and none is needed"
        raise FetchFailed(f"could not update the catalog from models.dev ({done.reason}); {here}; try again later")
    changed = "updated" if done.outcome is Outcome.UPDATED else "there is nothing newer"
    out(f"{changed}: {store.origin}")


def _store() -> Catalog:
    from localctx.wiring import catalog

    return catalog()


def _missing(store: Catalog, model: str) -> str:
    if not store.origin:
        return f"cannot look up {model!r}: there is no catalog here; fetch one with: localctx catalog update"
    near = ", ".join(store.near(model))
    hint = f"near: {near}" if near else "name it with its version and size, like qwen3.6-27b"
    return f"no listing is certain to mean {model!r} ({store.origin}); {hint}"


def _document(store: Catalog, model: str, listings: Sequence[Listing]) -> str:
    readings = [asdict(reading) for reading in store.advertised(model)]
    rows = [asdict(listing) for listing in listings]
    document = {"schema": 1, "model": model, "origin": store.origin, "listings": rows, "readings": readings}
    return json.dumps(document, ensure_ascii=False, indent=1)


def _table(store: Catalog, model: str, listings: Sequence[Listing]) -> str:
    rows = [("LISTING", "CONTEXT", "OUTPUT"), *map(_cells, listings)]
    first, *others = (max(map(len, column)) for column in zip(*rows, strict=True))
    lines = ["  ".join([row[0].ljust(first), *map(str.rjust, row[1:], others)]) for row in rows]
    return "\n".join([f"{model} in {store.origin}", *lines, _range(listings)])


def _cells(listing: Listing) -> tuple[str, str, str]:
    return f"{listing.provider}/{listing.id}", _size(listing.context), _size(listing.output)


def _size(tokens: int | None) -> str:
    return "unknown" if tokens is None else f"{tokens:,}"


def _range(listings: Sequence[Listing]) -> str:
    known = sorted({listing.context for listing in listings if listing.context is not None})
    if not known:
        return "No listing says a window."
    span = f"{known[0]:,} tokens" if len(known) == 1 else f"{known[0]:,} to {known[-1]:,} tokens"
    return f"Advertised: {span}.\nAn upper bound, never the window that a server serves: localctx probe shows that."
