"""Addresses to probe: a server that answers, ports where nothing listens, and ports where something never answers."""

from __future__ import annotations

import socket
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, TypeAlias

from msgspec import structs

from localctx.core.events import Notice
from localctx.runtimes import embedded
from localctx.runtimes.detect import Detector
from localctx.wiring.chatting import answering, complain, first_address, means_embedded
from localctx.wiring.inside import listening
from localctx.wiring.places import pins
from localctx.wiring.probing import detector

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Sequence
    from contextlib import AbstractAsyncContextManager

    from localctx.app.bench.probe import Addresses
    from localctx.config import Settings
    from localctx.core.events import Event
    from localctx.core.window import ServerReport
    from localctx.ports import Prober

__all__ = ["Opened", "answering_address", "each_server"]

Opened: TypeAlias = "Callable[[Addresses], AbstractAsyncContextManager[Sequence[Prober]]]"


async def each_server(given: Sequence[Settings]) -> list[Settings]:
    """The settings of each server: those that name one, and for those that do not, all that answer.

    Raises what finding one raises, before anything is measured.
    """
    places: list[Settings] = []
    for each in given:
        found = [] if means_embedded(each) or each.url else await answering(each)
        origins = {**each.origins, "url": "a usual address"}
        places += [structs.replace(each, url=url, origins=origins) for url in found] or [each]
    return places


@asynccontextmanager
async def answering_address(
    given: Settings, emit: Callable[[Event], None], fetched: Callable[[int, int], None]
) -> AsyncIterator[tuple[Opened, ServerReport]]:
    """What opens addresses, those that answer at one server, as `run` would find it; and what that says of itself.

    A server is only asked: no model is loaded. Raises what finding it raises.
    """
    url = await first_address(given)
    if url is not None:
        new = partial(detector, given, url)
        async with _asking(new) as server:
            report = await server.probe()
            complain(report)
        yield partial(_opened, new), report
        return
    if not means_embedded(given):
        emit(Notice("embedded", "no server answers at the usual addresses: using the embedded runtime"))
    async with listening(given, fetched) as inside:
        new = partial(Detector, inside.url, key=inside.key, pins=pins(given))
        async with _asking(new) as server:
            report = replace(await server.probe(), runtime="embedded", version=embedded.version())
        yield partial(_opened, new), report


@asynccontextmanager
async def _asking(new: Callable[[], Detector]) -> AsyncIterator[Detector]:
    asking = new()
    try:
        yield asking
    finally:
        await asking.close()


@asynccontextmanager
async def _opened(new: Callable[[], Detector], addresses: Addresses) -> AsyncIterator[Sequence[Prober]]:
    """So many addresses to ask, each on its own connections. At one that refuses nobody listens, one that hangs answers nothing."""
    async with AsyncExitStack() as stack:
        targets = [await stack.enter_async_context(_asking(new)) for _ in range(addresses.answer)]
        for number in range(addresses.refuse + addresses.hang):
            taken = stack.enter_context(socket.socket())
            taken.bind(("127.0.0.1", 0))
            if number >= addresses.refuse:
                taken.listen()
            dead = Detector(f"http://127.0.0.1:{taken.getsockname()[1]}")
            stack.push_async_callback(dead.close)
            targets.append(dead)
        yield targets
