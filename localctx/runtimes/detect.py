"""Which runtime an address is, by what it answers, never by its port."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from localctx.core.window import Status
from localctx.errors import LocalctxError, Misuse
from localctx.runtimes import llama_server, lmstudio, ollama, openai, sglang, vllm
from localctx.runtimes.http import address, client
from localctx.runtimes.server import Pins, Server, probed

if TYPE_CHECKING:
    import httpx

    from localctx.core.window import ServerReport
    from localctx.runtimes.server import Reader

__all__ = ["READERS", "Detector"]

READERS: dict[str, Reader] = {
    "llama-server": llama_server.read,
    "ollama": ollama.read,
    "sglang": sglang.read,
    "vllm": vllm.read,
    "lmstudio": lmstudio.read,
    "openai": openai.read,
}
"""In the order in which they are asked: the imitated before the imitators, the general one last."""


class Detector:
    """An address whose runtime is not known yet; `kind` asks one reader alone, `load` names a model to load first."""

    def __init__(
        self,
        url: str,
        *,
        key: str | None = None,
        pins: Pins | None = None,
        kind: str | None = None,
        load: str | None = None,
        transport: httpx.AsyncBaseTransport | None = None,
    ) -> None:
        if kind is not None and kind not in READERS:
            raise Misuse(f"unknown runtime {kind!r}; known: {', '.join(READERS)}")
        self._http = client(url, key, transport)
        self._pins, self._kind, self._load = pins or Pins(), kind, load
        self.url = address(self._http)

    async def probe(self) -> ServerReport:
        """What the address answers now; loads nothing unless it was told to."""
        report = await self._read()
        name = ollama.to_load(report, self._load, self._pins) if self._load and report.runtime == "ollama" else None
        if name is None:
            return report
        try:
            await ollama.load(Server(self._http), name, self._pins)
        except LocalctxError as error:
            return replace(report, status=Status.ERROR, error=str(error))
        return await self._read()

    async def _read(self) -> ServerReport:
        server = Server(self._http)
        if self._kind:
            return await probed(server, [READERS[self._kind]], self._pins, kind=self._kind)
        await server.prefetch("/v1/models", "/props", "/api/version")
        return await probed(server, list(READERS.values()), self._pins)

    async def close(self) -> None:
        """Closes the connections."""
        await self._http.aclose()
