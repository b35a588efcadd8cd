"""`localctx bench`: what counting, compaction, probing and a server take on this machine."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Annotated

import typer

from localctx.cli.models import fetching
from localctx.cli.options import ApiKeyEnv, AsJson, MaxContext, Model, NumCtx, RuntimeKind
from localctx.cli.render import Renderer, note, out, say
from localctx.cli.sessions import spelled
from localctx.errors import Misuse

if TYPE_CHECKING:
    from collections.abc import Callable

    from rich.progress import Progress as Bar

    from localctx.app.bench.tables import Sheet
    from localctx.core.events import Event

__all__ = ["app"]

app = typer.Typer(name="bench", help="What things take on this machine.", no_args_is_help=True)

Url = Annotated[
    list[str] | None,
    typer.Option("--url", help="A server's address, or several; else all of the usual ones that answer."),
]
Quick = Annotated[bool, typer.Option("--quick", help="Less of everything: at most two minutes.")]
New = Annotated[Path | None, typer.Option("--out", help="Write the results to this new file, as JSON.")]
Plot = Annotated[Path | None, typer.Option("--plot", help="Draw them into this new file: .svg, or .png.")]


@app.command("server")
def server(
    url: Url = None,
    model: Model = None,
    runtime: RuntimeKind = None,
    num_ctx: NumCtx = None,
    max_context: MaxContext = None,
    quick: Quick = False,
    new: New = None,
    plot: Plot = None,
    api_key_env: ApiKeyEnv = None,
    as_json: AsJson = False,
) -> None:
    """Measure a server: reading, writing, prefix cache, counting.

    Also how long another window takes, where it can be had. What is found is kept: runs with this model begin with these speeds.
    """
    flags = _flags(model, runtime, api_key_env) | {"num_ctx": num_ctx, "max_context_tokens": max_context}
    _run("server", url, flags, quick, new, plot, as_json)


@app.command("tokenizer")
def tokenizer(
    url: Url = None,
    model: Model = None,
    runtime: RuntimeKind = None,
    quick: Quick = False,
    new: New = None,
    plot: Plot = None,
    api_key_env: ApiKeyEnv = None,
    as_json: AsJson = False,
) -> None:
    """Measure the counters: loading, memory, speed, exactness.

    Exact is what counts five kinds of text as the server does.
    """
    _run("tokenizer", url, _flags(model, runtime, api_key_env), quick, new, plot, as_json)


@app.command("compaction")
def compaction(
    url: Url = None,
    model: Model = None,
    runtime: RuntimeKind = None,
    num_ctx: NumCtx = None,
    max_context: MaxContext = None,
    quick: Quick = False,
    new: New = None,
    plot: Plot = None,
    api_key_env: ApiKeyEnv = None,
    as_json: AsJson = False,
) -> None:
    """Measure what a compaction takes, and which facts survive it.

    Each policy in each way, beside what other programs do; in a window of 2,048 tokens (768 with --quick), or of --max-context.
    """
    flags = _flags(model, runtime, api_key_env) | {"num_ctx": num_ctx, "max_context_tokens": max_context}
    _run("compaction", url, flags, quick, new, plot, as_json)


@app.command("probe")
def probe(
    url: Url = None,
    model: Model = None,
    runtime: RuntimeKind = None,
    quick: Quick = False,
    new: New = None,
    plot: Plot = None,
    api_key_env: ApiKeyEnv = None,
    as_json: AsJson = False,
) -> None:
    """Measure probing 1, 5 and 50 addresses, dead ones among them."""
    _run("probe", url, _flags(model, runtime, api_key_env), quick, new, plot, as_json)


def _flags(model: str | None, runtime: str | None, api_key_env: str | None) -> dict[str, object]:
    return {"model": model, "runtime": runtime, "api_key_env": api_key_env}


def _run(
    name: str,
    urls: Sequence[str] | None,
    flags: Mapping[str, object],
    quick: bool,
    new: Path | None,
    plot: Path | None,
    as_json: bool,
) -> None:
    """Runs a benchmark, and shows and keeps what it found."""
    import anyio

    from localctx import wiring
    from localctx.wiring.bench import Wanted, benched
    from localctx.wiring.bench.picture import check_picture, picture
    from localctx.wiring.compacting import check_new
    from localctx.wiring.record import save

    Renderer(as_json=as_json)
    for path in filter(None, (new, plot)):
        check_new(path)
    if new is not None and plot is not None and new.resolve() == plot.resolve():
        raise Misuse(f"--out and --plot name the same file, {new}; name two")
    if plot is not None:
        check_picture(plot)
    given = [wiring.settings(dict(flags, url=url)) for url in urls or (None,)]
    with fetching() as fetched, _progress(as_json) as told:
        found = anyio.run(benched, Wanted(name, given, quick, _silent if as_json else say, told, fetched))
    out(spelled(found.document) if as_json else _text(found.sheet))
    Renderer(as_json=False)  # the document is out: what is wrong from here on is said on stderr
    if new is not None:
        save(new, spelled(found.document) + "\n")
        note(f"wrote the results to {new}")
    if plot is not None:
        save(plot, picture(plot, found.title, found.sheet.tables))
        note(f"drew them into {plot}")
    for text in found.missed:
        note(text)
    if found.missed:
        raise typer.Exit(1)


def _silent(_event: Event) -> None:
    """With --json nothing is said beside the document."""


@contextmanager
def _progress(as_json: bool) -> Iterator[Callable[[float, float, str], None]]:
    """How far it is and how long that will take yet, on stderr from the first step on; nothing with `--json`."""
    shown: list[Bar] = []
    begun = list[float]()

    def told(done: float, all_: float, what: str) -> None:
        if as_json:
            return
        if not shown:
            shown.append(_bar())
            shown[0].start()
            shown[0].add_task(what, due=None)
        if not done:
            begun.append(monotonic())
        due = monotonic() + (monotonic() - begun[-1]) * (all_ - done) / done if done else None
        shown[0].update(shown[0].task_ids[0], completed=done, total=all_, description=what or None, due=due)

    try:
        yield told
    finally:
        for bar in shown:
            bar.stop()


def _bar() -> Bar:
    from rich import progress
    from rich.console import Console
    from rich.text import Text

    class Left(progress.ProgressColumn):
        """The time that is left: at the speed of all that is done, since single steps are long."""

        def render(self, task: progress.Task) -> Text:
            due = task.fields["due"]
            return Text("" if due is None else f"{timedelta(seconds=max(int(due - monotonic()), 0))} left")

    columns = (progress.TextColumn("{task.description}"), progress.BarColumn(), progress.TaskProgressColumn(), Left())
    return progress.Progress(
        *columns, console=Console(stderr=True), transient=True, redirect_stdout=False, refresh_per_second=2
    )


def _text(sheet: Sheet) -> str:
    """The tables, and below them the notes."""
    from localctx.app.bench.tables import cells

    lines = list[str]()
    for table in sheet.tables:
        rows = cells(table)
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        lines += [table.title, *("  " + _row(row, widths) for row in rows), ""]
    return "\n".join([*lines, *sheet.notes]).rstrip()


def _row(row: list[str], widths: list[int]) -> str:
    """The first cell to the left, figures to the right."""
    first, *others = zip(row, widths, strict=True)
    return "  ".join([first[0].ljust(first[1]), *(cell.rjust(width) for cell, width in others)]).rstrip()
