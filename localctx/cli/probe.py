"""`localctx probe`: which servers are here, and what window each really serves."""

from __future__ import annotations

from time import monotonic
from typing import Annotated

import typer

from localctx.cli.options import ApiKeyEnv, AsJson, MaxContext, Model, NumCtx, RuntimeKind

__all__ = ["command"]


def command(
    url: Annotated[list[str] | None, typer.Option("--url", help="An address to ask; may be given again.")] = None,
    runtime: RuntimeKind = None,
    model: Model = None,
    num_ctx: NumCtx = None,
    max_context: MaxContext = None,
    load: Annotated[bool, typer.Option("--load", help="Start the embedded runtime to see what it serves.")] = False,
    api_key_env: ApiKeyEnv = None,
    as_json: AsJson = False,
) -> None:
    """Ask every server here which window it really serves, and how that is known."""
    import anyio

    from localctx import wiring
    from localctx.cli.render import Renderer, probe_json, probe_table
    from localctx.core.window import ServerReport, Status
    from localctx.errors import NothingFound
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
        return await wiring.ask_all(given, url or (), start=load)

    reports = anyio.run(ask)
    if as_json:
        probe_json(machine(), reports, monotonic() - started)
    else:
        probe_table(reports, quiet_down=not url)
    if not any(report.status in {Status.UP, Status.LOADING, Status.UNAUTHORIZED} for report in reports):
        raise NothingFound("no runtime found; start llama-server -m MODEL.gguf, or: pip install 'localctx[embedded]'")
