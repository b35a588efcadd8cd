"""`localctx probe`: which servers are here, and what window each really serves."""

from __future__ import annotations

from time import monotonic
from typing import TYPE_CHECKING, Annotated

import typer

from localctx.cli.options import ApiKeyEnv, AsJson, MaxContext, Model, NumCtx, RuntimeKind

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from localctx.core.window import ServerReport

__all__ = ["command"]


def command(
    url: Annotated[list[str] | None, typer.Option("--url", help="An address to ask; may be given again.")] = None,
    runtime: RuntimeKind = None,
    model: Model = None,
    num_ctx: NumCtx = None,
    max_context: MaxContext = None,
    load: Annotated[
        bool, typer.Option("--load", help="Load: the embedded runtime, or on an Ollama the --model.")
    ] = False,
    verify: Annotated[
        bool, typer.Option("--verify", help="Measure the window of what is loaded; at most a minute a server.")
    ] = False,
    watch: Annotated[bool, typer.Option("--watch", help="Ask again every two seconds, until Ctrl-C.")] = False,
    api_key_env: ApiKeyEnv = None,
    as_json: AsJson = False,
) -> None:
    """Ask every server here which window it really serves, and how that is known."""
    import anyio

    from localctx import wiring
    from localctx.cli.render import Renderer, say
    from localctx.cli.tables import probe_json, probe_table
    from localctx.core.window import Status
    from localctx.errors import Misuse, NothingFound
    from localctx.hardware.machine import machine

    Renderer(as_json=as_json)
    flags = {
        "runtime": runtime,
        "model": model,
        "num_ctx": num_ctx,
        "max_context_tokens": max_context,
        "api_key_env": api_key_env,
    }
    given = wiring.settings(flags)
    started = monotonic()

    async def ask() -> list[ServerReport]:
        found = await wiring.ask_all(given, url or (), start=load)
        return await wiring.verify_all(given, found, say) if verify else found

    if watch:
        if as_json or load or verify:
            raise Misuse("--watch goes with none of --json, --load and --verify; pass it alone")
        anyio.run(_watch, ask)
        return
    reports = anyio.run(ask)
    if as_json:
        probe_json(machine(), reports, monotonic() - started)
    else:
        probe_table(reports, quiet_down=not url)
    if model and not any(report.models for report in reports):
        raise NothingFound(f"no server that answers has {model!r}; see localctx probe for the models that there are")
    if not any(report.status in {Status.UP, Status.LOADING, Status.UNAUTHORIZED} for report in reports):
        raise NothingFound("no runtime found; start llama-server -m MODEL.gguf, or use --runtime embedded")


_SECONDS = 2.0


async def _watch(ask: Callable[[], Awaitable[list[ServerReport]]]) -> None:
    """Shows the table again and again in the same place."""
    import anyio
    from rich.live import Live
    from rich.text import Text

    from localctx.cli.tables import table_lines

    with Live(auto_refresh=False) as live:
        while True:
            live.update(Text("\n".join(table_lines(await ask(), quiet_down=True))), refresh=True)
            await anyio.sleep(_SECONDS)
