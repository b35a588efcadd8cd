"""The commands, and the options that all of them share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from localctx import __version__
from localctx.cli import bench, catalog, compact, config, count, fit, models, probe, run, sessions, simulate, work
from localctx.cli.render import begin_log

__all__ = ["app"]

app = typer.Typer(
    name="localctx",
    help="How much context is a local model really served with, and how to keep a long run inside it.",
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command("probe")(probe.command)
app.command("run")(run.command)
app.command("count")(count.command)
app.command("compact")(compact.command)
app.command("fit")(fit.command)
app.command("simulate")(simulate.command)
app.add_typer(bench.app, name="bench", help="What counting, compaction, probing and a server take on this machine.")
app.add_typer(sessions.app, name="sessions", help="Saved sessions: look, export, fork, undo, remove.")
app.add_typer(work.app, name="work", help="Where the work of a session stands.")
app.add_typer(models.app, name="models", help="Small models for the embedded runtime.")
app.add_typer(config.app, name="config", help="What is set, and where.")
app.add_typer(catalog.app, name="catalog", help="What services advertise for a model (models.dev).")


def _say_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"localctx {__version__}")
        raise typer.Exit


@app.callback()
def _shared(
    _version: Annotated[
        bool, typer.Option("--version", callback=_say_version, is_eager=True, help="Print the version and stop.")
    ] = False,
    verbose: Annotated[
        bool, typer.Option("--verbose", "-v", help="Say more on stderr: usage, windows, decisions.")
    ] = False,
    log_file: Annotated[
        Path | None, typer.Option("--log-file", help="Append decisions to this file; never the text of messages.")
    ] = None,
) -> None:
    begin_log(log_file, verbose=verbose)
