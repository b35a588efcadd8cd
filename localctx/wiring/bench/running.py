"""Runs a benchmark within its time, and gathers what it found."""

from __future__ import annotations

import asyncio
import secrets
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import anyio
import anyio.to_thread

from localctx.app.bench import compaction, probe, server, tokenizer
from localctx.app.bench.pace import Pace
from localctx.app.bench.tables import Sheet, Table
from localctx.core.events import Notice
from localctx.errors import LocalctxError, ServerFailed
from localctx.hardware.gpu import GpuUse, gpu_use
from localctx.hardware.machine import load, machine
from localctx.stores.journal import MemoryJournal
from localctx.stores.recall import RecallIndex
from localctx.tokenizers.estimate import ClassEstimate
from localctx.wiring.bench.addresses import answering_address, each_server
from localctx.wiring.bench.counters import candidates, weights_of
from localctx.wiring.bench.document import document
from localctx.wiring.bench.subject import another_window, subject
from localctx.wiring.speeds import keep_speeds

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence

    from localctx.config import Settings
    from localctx.core.events import Event

__all__ = ["BENCHMARKS", "Findings", "Wanted", "benched"]


@dataclass(frozen=True, slots=True)
class Wanted:
    """Which benchmark, and who is told: `emit` what happens, `told` how far it is, `fetched` of a model's bytes.

    `given` names each server by settings of its own; one that names no address stands for all that answer.
    """

    name: str
    given: Sequence[Settings]
    quick: bool
    emit: Callable[[Event], None]
    told: Callable[[float, float, str], None]
    fetched: Callable[[int, int], None]

    @property
    def command(self) -> str:
        """What was typed, without what is nobody's business."""
        return f"localctx bench {self.name}{' --quick' if self.quick else ''}"


@dataclass(frozen=True, slots=True)
class Findings:
    """What was measured, the document that is kept of it, and which servers could not be measured, with the reason."""

    title: str
    sheet: Sheet
    document: dict[str, object]
    missed: Sequence[str]


@dataclass(frozen=True, slots=True)
class _Bench:
    """A benchmark: what fills the sheet and says which server it was, and seconds, quick and not.

    `likely` is what it took on two cores with SmolLM2-135M; `most` is what it may take.
    """

    measure: Callable[[Wanted, Settings, Pace, Sheet], Awaitable[Mapping[str, object]]]
    likely: tuple[float, float]
    most: tuple[float, float]


async def benched(wanted: Wanted) -> Findings:
    """Runs one benchmark on each server, which share its time.

    Raises what finding the only server raises, and `ServerFailed` where nothing could be measured.
    """
    bench, whole = BENCHMARKS[wanted.name], not wanted.quick
    begun, before = datetime.now(UTC), load()
    places = await each_server(wanted.given)
    likely = f"about {bench.likely[whole]:g} s on two cores with a small model"
    every = f" for each of {len(places)} servers" if len(places) > 1 else ""
    most = f"at most {bench.most[whole]:g} s in all, once a model is loaded"
    wanted.emit(Notice("bench-time", f"{wanted.command}: {likely}{every}, {most}"))
    parts, missed, left = list[_Part](), list[str](), bench.most[whole]
    async with _gpus_watched(wanted.emit) as gpus:
        for number, given in enumerate(places):
            pace = Pace(share := left / (len(places) - number), wanted.told)
            try:
                parts.append(await _measured(wanted, given, bench, pace, share))
            except LocalctxError as error:
                if len(places) == 1:
                    raise
                missed.append(f"{given.url} was not measured: {error}")
            left -= share - pace.left
    if not parts:
        raise ServerFailed("; ".join(missed))
    sheet = _together(parts)
    if missed:
        sheet.notes.append(f"{len(missed)} of {len(places)} servers could not be measured")
    servers = [part.server for part in parts]
    made = document(wanted.command, sheet, begun=begun, load_before=before, servers=servers, gpus=[*gpus.values()])
    named = ", ".join(dict.fromkeys([*(part.name for part in parts), machine().cpu or ""]))
    return Findings(f"{wanted.command}: {named}", sheet, made, missed)


@dataclass(frozen=True, slots=True)
class _Part:
    """What was measured on one server, and what that says of itself."""

    server: Mapping[str, object]
    sheet: Sheet

    @property
    def name(self) -> str:
        return ", ".join(str(each) for each in (self.server.get("model"), self.server.get("runtime")) if each)


async def _measured(wanted: Wanted, given: Settings, bench: _Bench, pace: Pace, seconds: float) -> _Part:
    """One server, within so many seconds. Raises what is wrong with it."""
    sheet = Sheet()
    server = await bench.measure(wanted, given, pace, sheet)
    sheet.tables[:] = [table for table in sheet.tables if table.rows]
    if not sheet.tables:
        why = "; ".join(sheet.notes) or f"{seconds:.0f} s were not enough"
        raise ServerFailed(f"nothing could be measured: {why}")
    if not pace.left:
        sheet.notes.append(f"ended after {seconds:.0f} s: what is missing was not measured any more")
    if pace.left_out:
        left_out = ", ".join(dict.fromkeys(pace.left_out))
        sheet.notes.append(f"left out, since {seconds:.0f} s would not do: {left_out}")
    return _Part(server, sheet)


def _together(parts: Sequence[_Part]) -> Sheet:
    """All of it on one sheet; of several servers, each table and note with its own."""
    if len(parts) == 1:
        return parts[0].sheet
    sheet = Sheet()
    for number, part in enumerate(parts, 1):
        name = f"{number}. {part.name}"
        sheet.tables.extend(Table(f"{name}: {table.title}", table.rows) for table in part.sheet.tables)
        sheet.notes.extend(f"{name}: {text}" for text in part.sheet.notes)
    return sheet


# --- GPUs ---------------------------------------------------------------------------------------------------------

_SAMPLE_SECONDS = 0.5


@asynccontextmanager
async def _gpus_watched(emit: Callable[[Event], None]) -> AsyncIterator[dict[int, GpuUse]]:
    """The most that each GPU used meanwhile; says so where none can be watched, and goes on."""
    peaks: dict[int, GpuUse] = {}
    if not gpu_use():
        hidden = machine().gpus is None
        text = "a GPU may be here, but cannot be asked (pip install 'localctx[gpu]')" if hidden else "no GPU here"
        emit(Notice("no-gpu", f"{text}: its memory and power are not measured"))
        yield peaks
        return
    task = asyncio.create_task(_watch(peaks))
    try:
        yield peaks
    finally:
        task.cancel()


async def _watch(peaks: dict[int, GpuUse]) -> None:
    while True:
        for place, use in enumerate(await anyio.to_thread.run_sync(gpu_use)):
            known = peaks.get(place, use)
            watts = max((each for each in (known.watts, use.watts) if each is not None), default=None)
            peaks[place] = GpuUse(use.name, max(known.used_bytes, use.used_bytes), watts)
        await asyncio.sleep(_SAMPLE_SECONDS)


# --- the benchmarks -----------------------------------------------------------------------------------------------


async def _server(wanted: Wanted, given: Settings, pace: Pace, sheet: Sheet) -> Mapping[str, object]:
    async with subject(given, wanted.emit, wanted.fetched) as found:
        plan = server.Plan.of(found.window, secrets.token_hex(4), quick=wanted.quick)
        another = another_window(given, found)
        with pace.within():
            speeds = await server.measured(found.runtime, plan, pace, sheet, window=found.window, another=another)
            if speeds.prefill and keep_speeds(found.identity, speeds):
                sheet.notes.append("runs with this model begin with these speeds")
        return found.told()


async def _tokenizer(wanted: Wanted, given: Settings, pace: Pace, sheet: Sheet) -> Mapping[str, object]:
    async with subject(given, wanted.emit, wanted.fetched) as found:
        texts, rounds = tokenizer.texts(20_000 if wanted.quick else 400_000), 1 if wanted.quick else 3
        counters = [*candidates(weights_of(found, given.model))]
        with pace.within():
            await tokenizer.measured(counters, texts, found.runtime.size, pace, sheet, rounds=rounds)
        return found.told()


_USUAL, _QUICK = (2_048, 0.7), (768, 0.5)
"""The windows that compaction is measured in, and the shares of them at which it is due: in a small one a summary in place
finds no room at the usual 80 %. A smaller window that is served, or that `--max-context` names, comes before them."""


async def _compaction(wanted: Wanted, given: Settings, pace: Pace, sheet: Sheet) -> Mapping[str, object]:
    async with subject(given, wanted.emit, wanted.fetched) as found:
        usual, due = _QUICK if wanted.quick else _USUAL
        window = min(found.window, found.window if given.max_context_tokens else usual)
        made = (ClassEstimate, MemoryJournal, lambda: RecallIndex(None))
        means = compaction.Means(found.runtime, window, *made, due, secrets.token_hex(4))
        with pace.within():
            await compaction.measured(means, pace, sheet, quick=wanted.quick)
        return found.told()


async def _probe(wanted: Wanted, given: Settings, pace: Pace, sheet: Sheet) -> Mapping[str, object]:
    async with answering_address(given, wanted.emit, wanted.fetched) as (opened, report):
        with pace.within():
            await probe.measured(opened, pace, sheet, rounds=1 if wanted.quick else 5)
        return {"runtime": report.runtime, "version": report.version}


BENCHMARKS: Mapping[str, _Bench] = {
    "server": _Bench(_server, (45, 600), (80, 900)),
    "tokenizer": _Bench(_tokenizer, (25, 180), (80, 600)),
    "probe": _Bench(_probe, (15, 60), (60, 300)),
    "compaction": _Bench(_compaction, (90, 1_200), (100, 3_600)),
}
"""By the name of their command."""
