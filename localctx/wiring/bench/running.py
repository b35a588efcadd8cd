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

from localctx.app.bench import compaction, server, tokenizer
from localctx.app.bench.pace import Pace
from localctx.app.bench.tables import Sheet
from localctx.core.events import Notice
from localctx.errors import ServerFailed
from localctx.hardware.gpu import gpu_use
from localctx.hardware.machine import load, machine
from localctx.stores.journal import MemoryJournal
from localctx.stores.recall import RecallIndex
from localctx.tokenizers.estimate import ClassEstimate
from localctx.wiring.bench.counters import candidates, weights_of
from localctx.wiring.bench.document import document
from localctx.wiring.bench.subject import another_window, subject
from localctx.wiring.speeds import keep_speeds, measured_speeds

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Mapping

    from localctx.config import Settings
    from localctx.core.events import Event
    from localctx.wiring.bench.subject import Subject

__all__ = ["BENCHMARKS", "Findings", "Wanted", "benched"]


@dataclass(frozen=True, slots=True)
class Wanted:
    """Which benchmark, of what, and who is told: `emit` what happens, `told` how far it is, `fetched` of a model's bytes."""

    name: str
    given: Settings
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
    """What was measured, and the document that is kept of it."""

    sheet: Sheet
    document: dict[str, object]


@dataclass(frozen=True, slots=True)
class _Bench:
    """A benchmark: what fills the sheet and says which server it was, and the seconds that it may take, quick and not."""

    measure: Callable[[Wanted, Pace, Sheet], Awaitable[Mapping[str, object] | None]]
    quick: float
    whole: float


async def benched(wanted: Wanted) -> Findings:
    """Runs one benchmark. Raises what finding a server raises, and `ServerFailed` where nothing could be measured."""
    bench, sheet = BENCHMARKS[wanted.name], Sheet()
    begun, before, seconds = datetime.now(UTC), load(), bench.quick if wanted.quick else bench.whole
    pace = Pace(seconds, wanted.told)
    async with _gpus_watched(wanted.emit) as gpus:
        told = await bench.measure(wanted, pace, sheet)
    sheet.tables[:] = [table for table in sheet.tables if table.rows]
    if not sheet.tables:
        raise ServerFailed(f"nothing could be measured: {'; '.join(sheet.notes) or f'{seconds:g} s were not enough'}")
    if pace.left_out:
        sheet.notes.append(f"left out, since {seconds:g} s would not do: {', '.join(dict.fromkeys(pace.left_out))}")
    made = document(wanted.command, sheet, begun=begun, load_before=before, server=told, gpus=list(gpus.values()))
    return Findings(sheet, made)


# --- GPUs ---------------------------------------------------------------------------------------------------------

_SAMPLE_SECONDS = 0.5


@asynccontextmanager
async def _gpus_watched(emit: Callable[[Event], None]) -> AsyncIterator[dict[str, dict[str, object]]]:
    """What each GPU used at most meanwhile; says so where none can be watched, and goes on."""
    peaks = dict[str, dict[str, object]]()
    if not gpu_use():
        there = machine().gpus
        text = (
            "there may be a GPU, but it cannot be asked (pip install 'localctx[gpu]')"
            if there is None
            else "no GPU here"
        )
        emit(Notice("no-gpu", f"{text}: its memory and power are not measured"))
        yield peaks
        return
    task = asyncio.create_task(_watch(peaks))
    try:
        yield peaks
    finally:
        task.cancel()


async def _watch(peaks: dict[str, dict[str, object]]) -> None:
    while True:
        for place, use in enumerate(await anyio.to_thread.run_sync(gpu_use)):
            known = peaks.setdefault(f"{place}", {"name": use.name, "most_used_bytes": 0, "most_watts": None})
            known["most_used_bytes"] = max(int(str(known["most_used_bytes"])), use.used_bytes)
            known["most_watts"] = (
                max(float(str(known["most_watts"] or 0)), use.watts) if use.watts else known["most_watts"]
            )
        await asyncio.sleep(_SAMPLE_SECONDS)


# --- the benchmarks -----------------------------------------------------------------------------------------------


async def _server(wanted: Wanted, pace: Pace, sheet: Sheet) -> Mapping[str, object]:
    async with subject(wanted.given, wanted.emit, wanted.fetched) as found:
        plan = server.Plan.of(found.window, secrets.token_hex(4), quick=wanted.quick)
        _foretell(wanted, found, plan.work, pace)
        another = another_window(wanted.given, found)
        with anyio.move_on_after(pace.left):
            speeds = await server.measured(found.runtime, plan, pace, sheet, window=found.window, another=another)
            kept = keep_speeds(found.identity, speeds)
            sheet.notes.append(
                f"runs with this model begin with these speeds{'' if kept else ' (no: they cannot be kept)'}"
            )
        return found.told()


def _foretell(wanted: Wanted, found: Subject, work: int, pace: Pace) -> None:
    """Says how long it is going to take, as far as that is known."""
    speeds = measured_speeds(found.identity)
    likely = (
        f"about {work / speeds.prefill:,.0f} s, by the speed that was measured last"
        if speeds and speeds.prefill
        else ""
    )
    emit = Notice(
        "bench-time", f"{wanted.command}: {likely or f'about {work:,} tokens are read'}; at most {pace.left:,.0f} s"
    )
    wanted.emit(emit)


async def _tokenizer(wanted: Wanted, pace: Pace, sheet: Sheet) -> Mapping[str, object]:
    async with subject(wanted.given, wanted.emit, wanted.fetched) as found:
        texts, rounds = tokenizer.texts(20_000 if wanted.quick else 400_000), 1 if wanted.quick else 3
        counters = [*candidates(weights_of(found, wanted.given.model))]
        with anyio.move_on_after(pace.left):
            await tokenizer.measured(counters, texts, found.runtime.size, pace, sheet, rounds=rounds)
        return found.told()


_USUAL, _QUICK = (3_072, 0.8), (768, 0.5)
"""The windows that compaction is measured in, and the shares of them at which it is due: in a small one a summary in place
finds no room at 80 %. A smaller window that is served, or that `--max-context` names, comes before them."""


async def _compaction(wanted: Wanted, pace: Pace, sheet: Sheet) -> Mapping[str, object]:
    async with subject(wanted.given, wanted.emit, wanted.fetched) as found:
        usual, due = _QUICK if wanted.quick else _USUAL
        window = min(found.window, found.window if wanted.given.max_context_tokens else usual)
        made = (ClassEstimate, MemoryJournal, lambda: RecallIndex(None))
        means = compaction.Means(found.runtime, window, *made, due, secrets.token_hex(4))
        with anyio.move_on_after(pace.left):
            await compaction.measured(means, pace, sheet, quick=wanted.quick)
        return found.told()


BENCHMARKS: Mapping[str, _Bench] = {
    "server": _Bench(_server, 80, 900),
    "tokenizer": _Bench(_tokenizer, 80, 600),
    "compaction": _Bench(_compaction, 100, 3_600),
}
"""By the name of their command."""
