"""`localctx config`: what is set, where, and whether it is of any use."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from localctx.cli.options import AsJson
from localctx.cli.render import out

__all__ = ["app"]

app = typer.Typer(name="config", help="What is set, and where.", no_args_is_help=True)


@app.command()
def show(as_json: AsJson = False) -> None:
    """Show each value that a run started here goes by, and the place that it comes from."""
    from localctx.config import KEYS
    from localctx.wiring import configuring

    values = configuring.values()
    unset = [name for name in KEYS if name not in {value.name for value in values}]
    if as_json:
        out(json.dumps({"schema": 1, "values": [asdict(value) for value in values], "not_set": unset}, indent=1))
        return
    for value in values:
        out(f"{value.name} = {json.dumps(value.value, ensure_ascii=False)}\n    {value.place}")
    out(f"not set: {', '.join(unset) or 'nothing'}")


@app.command()
def check(
    files: Annotated[list[Path] | None, typer.Argument(help="Files to check instead of what is set here.")] = None,
    as_json: AsJson = False,
) -> None:
    """Check your file, the project's and the environment, or files that are named. Nothing is asked of any server."""
    from localctx.wiring import configuring

    found = configuring.check(files or ())
    wrong = sum(len(each.wrong) for each in found)
    if as_json:
        out(json.dumps({"schema": 1, "ok": not wrong, "places": [asdict(each) for each in found]}, indent=1))
    else:
        for each in found:
            out(f"{each.place}: {'wrong' if each.wrong else f'{each.found} set'}")
            for said in each.wrong:
                out(f"  ! {said}")
    if wrong:
        raise typer.Exit(2)


@app.command()
def path() -> None:
    """Print where your own file is, or would be."""
    from localctx.wiring import configuring

    out(str(configuring.user_file()))
