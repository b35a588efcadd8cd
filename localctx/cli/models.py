"""`localctx models`: the small models for the embedded runtime."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any

import typer

from localctx.cli.render import note, out
from localctx.errors import ModelMissing
from localctx.stores.models import DEFAULT, KnownModel, ModelStore, Progress

if TYPE_CHECKING:
    from rich.progress import Progress as Bar

__all__ = ["app", "fetching"]

app = typer.Typer(name="models", help="Small models for the embedded runtime.", no_args_is_help=True)

Name = Annotated[str, typer.Argument(help="The model, as `localctx models list` names it.")]


@app.command("list")
def list_models(
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
) -> None:
    """List the models that can be pulled, and those that are here."""
    store = _store()
    out(_document(store) if as_json else _table(store))


@app.command()
def pull(name: Name = DEFAULT) -> None:
    """Fetch a model, unless it is here, and print its path."""
    store = _store()
    with fetching() as progress:
        found = store.pull(name, progress)
    out(str(found))


@app.command("rm")
def remove(name: Name) -> None:
    """Delete a model's file."""
    if _store().remove(name):
        out(f"removed {name}")
    else:
        note(f"{name} is not installed; nothing to remove")


@app.command()
def path(name: Name = DEFAULT) -> None:
    """Print where an installed model lies."""
    store = _store()
    if not store.has(name):
        raise ModelMissing(f"{name} is not at {store.path(name)}; fetch it with: localctx models pull {name}")
    out(str(store.path(name)))


def _store() -> ModelStore:
    from localctx.wiring import model_store

    return model_store()


def _document(store: ModelStore) -> str:
    return json.dumps({"schema": 1, "models": [_row(store, model) for model in store.known]}, indent=2)


def _row(store: ModelStore, model: KnownModel) -> dict[str, Any]:
    return {
        "name": model.name,
        "title": model.title,
        "licence": model.licence,
        "package": model.package,
        "version": model.version,
        "download_bytes": model.wheel_bytes,
        "model_bytes": model.gguf_bytes,
        "trained": model.trained,
        "installed": store.has(model.name),
        "path": str(store.path(model.name)),
    }


def _table(store: ModelStore) -> str:
    rows = [("NAME", "SIZE", "TRAINED WINDOW", "LICENCE", "INSTALLED"), *(_cells(store, one) for one in store.known)]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join("  ".join(map(str.ljust, row, widths)).rstrip() for row in rows)


def _cells(store: ModelStore, model: KnownModel) -> tuple[str, ...]:
    installed = "yes" if store.has(model.name) else "no"
    return model.name, f"{model.gguf_bytes / 1e6:.0f} MB", f"{model.trained:,} tokens", model.licence, installed


@contextmanager
def fetching() -> Iterator[Progress]:
    """A progress bar on stderr, shown from the first byte that is fetched to the end of the context."""
    shown: list[Bar] = []

    def progress(done: int, total: int) -> None:
        if not shown:
            shown.append(_columns())
            shown[0].start()
            shown[0].add_task("fetching the model", total=total)
        shown[0].update(shown[0].task_ids[0], completed=done, total=total)
        if done >= total:
            shown[0].stop()

    try:
        yield progress
    finally:
        for bar in shown:
            bar.stop()


def _columns() -> Bar:
    from rich import progress
    from rich.console import Console

    return progress.Progress(
        progress.TextColumn("{task.description}"),
        progress.BarColumn(),
        progress.DownloadColumn(),
        progress.TransferSpeedColumn(),
        progress.TimeRemainingColumn(),
        console=Console(stderr=True),
        redirect_stdout=False,
        redirect_stderr=False,
    )
