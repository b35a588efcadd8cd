"""Runs a benchmark within its time, and gathers what it found."""

from __future__ import annotations

import secrets
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import PurePath
from typing import TYPE_CHECKING

from localctx.app.bench import compaction, probe, server, tokenizer
from localctx.app.bench.pace import Pace
from localctx.app.bench.tables import Sheet, Table
from localctx.core.events import Notice
from localctx.errors import LocalctxError, ServerFailed
from localctx.hardware.machine import load, machine
from localctx.stores.journal import MemoryJournal
from localctx.stores.recall import RecallIndex
from localctx.tokenizers.estimate import ClassEstimate
from localctx.wiring.bench.addresses import answering_address, each_server
from localctx.wiring.bench.counters import candidates, weights_of
from localctx.wiring.bench.document import document
from localctx.wiring.bench.gpus import not_watched, rows, watched
from localctx.wiring.bench.subject import another_window, subject
from localctx.wiring.speeds import keep_speeds

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence

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
        """What was typed, without addresses and folders, which are nobody's business."""
        first = self.given[0]
        typed: dict[str, object] = {
            "model": first.model and PurePath(first.model).name,
            "runtime": first.runtime,
            "num-ctx": first.num_ctx,
            "max-context": first.max_context_tokens,
        }
        options = [f" --{name} {value}" for name, value in typed.items() if value is not None]
        return "".join([f"localctx bench {self.name}", *([" --quick"] if self.quick else []), *options])


@dataclass(frozen=True, slots=True)
class Findings:
    """What was measured, the document that is kept of it, and which servers could not be measured, with the reason."""

    title: str
    sheet: Sheet
    document: dict[str, object]
    missed: Sequence[str]


@dataclass(slots=True)
class _Part:
    """What one server says of itself, and what was measured on it so far."""

    server: Mapping[str, object] = field(default_factory=dict)
    sheet: Sheet = field(default_factory=Sheet)

    @property
    def name(self) -> str:
        return ", ".join(str(each) for each in (self.server.get("model"), self.server.get("runtime")) if each)


@dataclass(frozen=True, slots=True)
class _Bench:
    """A benchmark: what fills a part, and seconds, quick and not.

    `likely` is about what it took on two cores with SmolLM2-135M (`benchmarks/results`, from `begun` to `ended`); `most` is what it may take.
    """

    measure: Callable[[Wanted, Settings, Pace, _Part], Awaitable[None]]
    likely: tuple[float, float]
    most: tuple[float, float]


async def benched(wanted: Wanted) -> Findings:
    """Runs one benchmark on each server, which share its time.

    Raises what finding the only server raises, and `ServerFailed` where nothing could be measured.
    """
    bench, whole = BENCHMARKS[wanted.name], not wanted.quick
    begun, before = datetime.now(UTC), load()
    places = await each_server(wanted.given)
    _announce(wanted, bench, len(places))
    parts, missed, left = list[_Part](), list[str](), bench.most[whole]
    for number, given in enumerate(places):
        pace, part = Pace(share := left / (len(places) - number), wanted.told), _Part()
        try:
            await _measured(wanted, given, bench, pace, part)
        except LocalctxError as error:
            if len(places) == 1 and not part.sheet.tables:
                raise
            far = " to its end" if part.sheet.tables else ""
            missed.append(f"{given.url or part.name} was not measured{far}: {error}")
        if part.sheet.tables:
            parts.append(part)
        left -= share - pace.left
    if not parts:
        raise ServerFailed("; ".join(missed))
    sheet = _together(parts)
    if missed:
        sheet.notes.append(f"{len(missed)} of {len(places)} servers could not be measured to the end")
    if why := not_watched():
        sheet.notes.append(why)
    servers = [part.server for part in parts]
    made = document(wanted.command, sheet, begun=begun, load_before=before, servers=servers)
    named = ", ".join(dict.fromkeys([*(part.name for part in parts), machine().cpu or ""]))
    return Findings(f"{wanted.command}: {named}", sheet, made, missed)


def _announce(wanted: Wanted, bench: _Bench, servers: int) -> None:
    """Says how long it may take, and what cannot be measured here."""
    whole = not wanted.quick
    likely = f"about {bench.likely[whole]:g} s on two cores with a small model"
    every = f" for each of {servers} servers" if servers > 1 else ""
    most = f"at most {bench.most[whole]:g} s in all, once a model is loaded"
    wanted.emit(Notice("bench-time", f"{wanted.command}: {likely}{every}, {most}"))
    if why := not_watched():
        wanted.emit(Notice("no-gpu", why))


async def _measured(wanted: Wanted, given: Settings, bench: _Bench, pace: Pace, part: _Part) -> None:
    """One server. Raises what is wrong with it; what was measured by then is in the part."""
    seconds, sheet = pace.left, part.sheet
    try:
        async with watched() as gpus:
            await bench.measure(wanted, given, pace, part)
    finally:
        sheet.tables[:] = [table for table in sheet.tables if table.rows]
    if not sheet.tables:
        why = "; ".join(sheet.notes) or f"{seconds:.0f} s were not enough"
        raise ServerFailed(f"nothing could be measured: {why}")
    if gpus:
        sheet.tables.append(Table("GPUs: the most that each used, whatever used it", rows(gpus.values())))
    if not pace.left:
        sheet.notes.append(f"ended after {seconds:.0f} s: what is missing was not measured any more")
    if pace.left_out:
        left_out = ", ".join(dict.fromkeys(pace.left_out))
        sheet.notes.append(f"left out, since {seconds:.0f} s would not do: {left_out}")


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


# --- the benchmarks -----------------------------------------------------------------------------------------------


async def _server(wanted: Wanted, given: Settings, pace: Pace, part: _Part) -> None:
    async with subject(given, wanted.emit, wanted.fetched) as found:
        part.server = found.told()
        plan = server.Plan.of(found.window, secrets.token_hex(4), quick=wanted.quick)
        another, known = another_window(given, found), server.Known()

        def keep() -> None:
            if known.speeds.prefill:
                part.sheet.notes.append(keep_speeds(found.speeds_key, known.speeds, quick=wanted.quick))

        try:
            with pace.within():
                await server.measured(
                    found.runtime, plan, pace, part.sheet, known, window=found.window, another=another
                )
        except LocalctxError:
            keep()
            raise
        keep()


async def _tokenizer(wanted: Wanted, given: Settings, pace: Pace, part: _Part) -> None:
    async with subject(given, wanted.emit, wanted.fetched) as found:
        part.server = found.told()
        texts, rounds = tokenizer.texts(20_000 if wanted.quick else 400_000), 1 if wanted.quick else 3
        counters = [*candidates(weights_of(found, given.model))]
        with pace.within():
            await tokenizer.measured(counters, texts, found.runtime.size, pace, part.sheet, rounds=rounds)


_USUAL, _QUICK = (2_048, 0.7), (768, 0.5)
"""The windows that compaction is measured in, and the shares of them at which it is due: in a small one a summary in place
finds no room at the usual 80 %. A smaller window that is served, or that `--max-context` names, comes before them."""


async def _compaction(wanted: Wanted, given: Settings, pace: Pace, part: _Part) -> None:
    async with subject(given, wanted.emit, wanted.fetched) as found:
        part.server = found.told()
        usual, due = _QUICK if wanted.quick else _USUAL
        window = min(found.window, found.window if given.max_context_tokens else usual)
        made = (ClassEstimate, MemoryJournal, lambda: RecallIndex(None))
        means = compaction.Means(found.runtime, window, *made, due, secrets.token_hex(4))
        with pace.within():
            await compaction.measured(means, pace, part.sheet, quick=wanted.quick)


async def _probe(wanted: Wanted, given: Settings, pace: Pace, part: _Part) -> None:
    async with answering_address(given, wanted.emit, wanted.fetched) as (opened, report):
        part.server = {"runtime": report.runtime, "version": report.version}
        with pace.within():
            await probe.measured(opened, pace, part.sheet, rounds=1 if wanted.quick else 5)


BENCHMARKS: Mapping[str, _Bench] = {
    "server": _Bench(_server, (20, 280), (80, 900)),
    "tokenizer": _Bench(_tokenizer, (10, 30), (80, 600)),
    "probe": _Bench(_probe, (15, 55), (60, 300)),
    "compaction": _Bench(_compaction, (75, 950), (100, 3_600)),
}
"""By the name of their command."""
