"""What a server takes: reading and writing by the size of the prompt, its prefix cache, its counting, another window."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from statistics import median
from time import perf_counter
from typing import TYPE_CHECKING

from localctx.app.bench.asking import asked
from localctx.app.bench.corpus import sample
from localctx.core.cost import Speeds
from localctx.errors import LocalctxError
from localctx.ports import Request

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Mapping, Sequence
    from contextlib import AbstractAsyncContextManager

    from localctx.app.bench.asking import Took
    from localctx.app.bench.pace import Pace
    from localctx.app.bench.tables import Sheet
    from localctx.core.outgoing import WireMessage
    from localctx.ports import Runtime

__all__ = ["Known", "Plan", "measured"]

_SHARE = 0.75
"""The share of a window that the largest prompt may take."""

_TOLD = 16
"""Fewer tokens written say nothing about speed (`core/cost.py`)."""

_LONG, _LEAST = 1_024, 2
"""A prompt of more tokens takes so long that it is sent only so often, to show that the first was no exception."""

_TIMES = 5
"""How often each counting is timed: it takes milliseconds."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What is measured: prompts of `sizes` and, for the prefix cache, of `prefix` tokens; `texts` of so many characters.

    Each is sent `rounds` times, a long one at most twice; all begin with `salt`, so that no earlier run has filled the server's cache.
    """

    sizes: tuple[int, ...]
    prefix: int
    texts: tuple[int, ...]
    rounds: int
    salt: str
    written: int = 32
    """Tokens that a reply may have: enough to see the speed of writing."""

    @classmethod
    def of(cls, window: int, salt: str, *, quick: bool) -> Plan:
        """What a window has room for."""
        most = int(window * _SHARE)
        sizes = tuple(size for size in ((128, 512) if quick else (128, 512, 2_048, 4_096)) if size < most)
        prefix, texts = min(384 if quick else 1_024, most // 2), (100, 1_000, 10_000, 100_000)
        return cls(sizes or (most // 2,), prefix, texts[: 3 if quick else 4], 1 if quick else 3, salt)

    @property
    def work(self) -> int:
        """About how many tokens are read for it, those that are written among them."""
        sizes = sum(self.times(size) * self.cost(size) for size in self.sizes)
        return sizes + self.rounds * len(_CHANGES) * self.cost(self.prefix)

    def cost(self, tokens: int) -> int:
        """A prompt with its reply, in tokens that take about as long as one read: one written takes as long as some."""
        return tokens + 4 * self.written

    def times(self, size: int) -> int:
        """How often a prompt is sent."""
        return self.rounds if size <= _LONG else min(self.rounds, _LEAST)


@dataclass(slots=True)
class Known:
    """The speeds that a run may begin with, as soon as they are measured: those of each prompt, then of the prefix cache as well."""

    speeds: Speeds = field(default_factory=Speeds)


async def measured(
    runtime: Runtime,
    plan: Plan,
    pace: Pace,
    sheet: Sheet,
    known: Known,
    *,
    window: int,
    another: Callable[[int], AbstractAsyncContextManager[Runtime]] | str,
) -> None:
    """Fills the sheet, and what is known of the speeds, whatever ends it.

    `another` opens the same model with another window, or is why that cannot be. Raises what `Runtime.chat` raises.
    """
    pace.expect(plan.work)
    bench = _Bench(runtime, plan, pace)
    await bench.sizes(sheet.table("Reading and writing, by the size of the prompt"), known)
    reuses, rewinds = await bench.prefix(sheet.table("What a change of the prompt costs"))
    known.speeds = replace(known.speeds, reuses=reuses, rewinds=rewinds)
    await _counting(runtime, plan, sheet)
    await _windows(runtime, another, window, pace, sheet)


class _Bench:
    """The requests of one measuring; `characters` is how many make a token, as the last prompt taught."""

    def __init__(self, runtime: Runtime, plan: Plan, pace: Pace) -> None:
        self._runtime, self._plan, self._pace, self._characters = runtime, plan, pace, 4.0

    async def sizes(self, rows: list[dict[str, object]], known: Known) -> None:
        """Tokens a second, read and written at one depth: of the largest prompt that told both, as a compaction reads long ones."""
        for size in self._plan.sizes:
            took = [each for number in range(self._plan.times(size)) if (each := await self._fresh(size, number))]
            if not took:
                continue
            read = _median([speed for each in took if (speed := _reading(each))])
            written = _median([speed for each in took if (speed := _writing(each))])
            if read and (written or not known.speeds.decode):
                known.speeds = Speeds(read, written)
            row: dict[str, object] = {
                "prompt": _middle([each.usage.prompt for each in took]),
                "first token, s": median(each.first for each in took),
                "read, tokens/s": read,
                "written, tokens/s": written,
            }
            rows.append(row | _beside(row, (rows or [row])[0]))

    async def _fresh(self, size: int, number: int) -> Took | None:
        """A request whose prompt nobody has seen, of about so many tokens."""
        return await self._sent(self._text(size, size + number), f"a prompt of {size:,} tokens")

    async def prefix(self, table: list[dict[str, object]]) -> tuple[float, float]:
        """How often, from 0 to 1, the server finds a prefix that goes on, and one that only begins alike."""
        rounds = [[took async for took in self._changes(number)] for number in range(self._plan.rounds)]
        whole = [took for took in rounds if len(took) == len(_CHANGES)]
        if not whole:
            return 1.0, 1.0
        for place, change in enumerate(_CHANGES):
            table.append(_changed(change, [took[0] for took in whole], [took[place] for took in whole]))
        found = {
            change: [_found(took[at], took[0], _CHANGES[change]) for took in whole]
            for at, change in enumerate(_CHANGES)
        }
        return _share([*found[_AGAIN], *found[_MORE]]), _share(found[_MIDDLE])

    async def _changes(self, number: int) -> AsyncIterator[Took]:
        """The requests of one round, each behind the one that it goes on from; fewer where time is short."""
        size = self._plan.prefix
        text, other = self._text(size, 100 + number), self._text(size, 200 + number)
        half = len(text) // 2
        first = await self._sent(text, "a new prompt")
        if first is None:
            return
        yield first
        replied: WireMessage = {"role": "assistant", "content": first.text or "1"}
        for change, messages in {
            _AGAIN: _chat(text),
            _MORE: [*_chat(text), replied, *_chat("Go on.")],
            _MIDDLE: _chat(text[:half] + other[half : half + _HEAD] + text[half + _HEAD :]),
            _START: _chat(other[:_HEAD] + text[_HEAD:]),
        }.items():
            took = await self._asked(messages, change, size)
            if took is None:
                return
            yield took

    def _text(self, size: int, seed: int) -> str:
        words = sample("english", max(int(size * self._characters), _HEAD), seed)
        return f"{seed}.{self._plan.salt} {words}\nCount from 1 to 60, nothing else."

    async def _sent(self, text: str, what: str) -> Took | None:
        took = await self._asked(_chat(text), what, int(len(text) / self._characters))
        if took and took.usage.prompt:
            self._characters = len(text) / took.usage.prompt
        return took

    async def _asked(self, messages: Sequence[WireMessage], what: str, size: int) -> Took | None:
        work = self._plan.cost(size)
        if not self._pace.begin(work, what):
            return None
        took = await asked(self._runtime, Request(messages, self._plan.written, temperature=0.0))
        self._pace.end(work, took.seconds)
        return took


def _chat(text: str) -> list[WireMessage]:
    return [{"role": "user", "content": text}]


def _reading(took: Took) -> float | None:
    """Tokens read a second; where the server does not say what it had cached, of the whole prompt."""
    read = took.prefilled or took.usage.prompt or 0
    return read / took.reading if read > 0 and took.reading > 0 else None


def _writing(took: Took) -> float | None:
    """Tokens written a second, where enough were: as reported, else of those behind the first one, by the time behind it."""
    written = took.usage.completion or 0
    if written < _TOLD:
        return None
    if reported := took.usage.decode_seconds:
        return written / reported
    return (written - 1) / seconds if (seconds := took.seconds - took.first) > 0 else None


def _beside(row: Mapping[str, object], first: Mapping[str, object]) -> dict[str, object]:
    """The speeds of a row as shares of those of the first one."""
    found = dict[str, object]()
    for name in ("read", "written"):
        here, there = row[f"{name}, tokens/s"], first[f"{name}, tokens/s"]
        found[f"{name}, of the first row"] = (
            here / there if isinstance(here, float) and isinstance(there, float) else None
        )
    return found


def _median(values: Sequence[float]) -> float | None:
    return float(median(values)) if values else None


def _middle(values: Sequence[int | None]) -> int | None:
    known = [value for value in values if value is not None]
    return round(median(known)) if known else None


# --- the prefix cache ---------------------------------------------------------------------------------------------

_NEW, _AGAIN, _MORE = "new", "the same again", "a message more"
_MIDDLE, _START = "changed in the middle", "changed at the beginning"
_CHANGES = {_NEW: 0.0, _AGAIN: 1.0, _MORE: 0.9, _MIDDLE: 0.45, _START: 0.0}
"""What is sent in turn, and at least which share of each prompt begins like the one before."""

_HEAD = 40
"""The characters that are changed."""


def _found(took: Took, new: Took, shared: float) -> bool:
    """Whether at least half of what is alike was not read again: by the report, else by the time."""
    if took.prefilled is not None and took.usage.prompt:
        return took.prefilled <= took.usage.prompt * (1 - shared / 2)
    return took.reading <= new.reading * (1 - shared / 2)


def _changed(change: str, new: Sequence[Took], took: Sequence[Took]) -> dict[str, object]:
    shares = [each.reading / base.reading for each, base in zip(took, new, strict=True) if base.reading]
    return {
        "prompt": change,
        "tokens": _middle([each.usage.prompt for each in took]),
        "read anew": _middle([each.prefilled for each in took]),
        "reading, s": median(each.reading for each in took),
        "of a new prompt": _median(shares),
    }


def _share(found: Sequence[bool]) -> float:
    return sum(found) / len(found)


# --- counting, and another window ---------------------------------------------------------------------------------


async def _counting(runtime: Runtime, plan: Plan, sheet: Sheet) -> None:
    """How long the server takes to count a text, and a request that is this text."""
    rows = sheet.table("Counting by the server")
    for size in plan.texts:
        tokens: int | None = None
        texts, chats = list[float](), list[float]()
        for number in range(_TIMES):
            text = f"{number} {sample('english', size, number)}"
            started = perf_counter()
            if (count := await runtime.size(text)) is not None:
                texts.append((perf_counter() - started) * 1e3)
                tokens = count.tokens
            started = perf_counter()
            if await runtime.count(_chat(text)) is not None:
                chats.append((perf_counter() - started) * 1e3)
        row = {"characters": size, "tokens": tokens}
        rows.append(row | {"a text, ms": _median(texts), "a request, ms": _median(chats)})
    if all(row["tokens"] is None for row in rows):
        sheet.notes.append(f"{runtime.kind} counts no texts here")


_BESIDE = (
    "beside the one that is measured, which has read the model's file before: a start with warm files, not a reload"
)


async def _windows(
    runtime: Runtime,
    another: Callable[[int], AbstractAsyncContextManager[Runtime]] | str,
    window: int,
    pace: Pace,
    sheet: Sheet,
) -> None:
    """How long it takes until a request is answered in half the window, and in the whole one again.

    Where that is another server than the one that is measured, a note says that nothing was reloaded.
    """
    if isinstance(another, str):
        sheet.notes.append(f"another window: {another}")
        return
    rows, hello = sheet.table("Another window"), Request(_chat("Hello"), 1, temperature=0.0)
    for tokens in (window // 2, window):
        if not pace.begin(0, f"a window of {tokens:,}"):
            return
        started = perf_counter()
        try:
            async with another(tokens) as changed:
                beside = changed.url != runtime.url
                await asked(changed, hello)
                ready = perf_counter() - started
                again = await asked(changed, hello)
        except LocalctxError as error:
            sheet.notes.append(f"another window: {error}")
            return
        rows.append({"window": tokens, "until an answer, s": ready, "once it is loaded, s": again.seconds})
        if beside and len(rows) == 1:
            sheet.notes.append(f"another window: a second server is started {_BESIDE}")
