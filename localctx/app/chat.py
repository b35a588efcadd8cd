"""A conversation with one model, kept inside its window."""

from __future__ import annotations

import asyncio
from contextlib import aclosing, suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from localctx.app.calls import Caller
from localctx.app.compaction import Engine
from localctx.app.exchange import Exchange
from localctx.app.meter import Meter
from localctx.app.nudging import Nudges
from localctx.app.session import Session
from localctx.app.tools.toolbox import Toolbox
from localctx.app.trust import Trust
from localctx.app.watch import Watch
from localctx.core.accounting import Count, Sight, head, plausible
from localctx.core.advice import crowded, not_as_wished, too_long
from localctx.core.cost import silence_within
from localctx.core.events import (
    Notice,
    RequestSent,
    TurnEnded,
    UsageReported,
    WindowProbed,
)
from localctx.core.filling import Filling, by_tool, fills
from localctx.core.ladder import Rung, least
from localctx.core.messages import History, ToolResult, Turn, plain
from localctx.core.outgoing import defects, outgoing
from localctx.core.results import RESULTS_SHARE
from localctx.core.sizes import history_size
from localctx.core.transcript import called, read, words
from localctx.core.window import Budget, EffectiveWindow, ModelReport, assume
from localctx.errors import DoesNotFit, LocalctxError, Misuse, PromptRefused, ServerFailed, ToolsRefused
from localctx.ports import Finished, Request

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from localctx.core.accounting import Totals
    from localctx.core.calibration import Calibration
    from localctx.core.events import Event
    from localctx.core.journal import Entry
    from localctx.core.ladder import Policy
    from localctx.core.messages import ToolCall
    from localctx.core.outgoing import WireMessage
    from localctx.core.work import WorkState
    from localctx.ports import Counter, Journal, Runtime, Tool

__all__ = ["MOST_STEPS", "Chat", "Wishes"]

_FEW = 64
"""A reply with room for fewer tokens than this deserves a warning."""


MOST_STEPS = 50
"""How often a turn may call tools where nobody says it: enough for work, and an end for a model that goes in circles."""


@dataclass(frozen=True, slots=True)
class Wishes:
    """What the user asked of replies: the longest one in tokens, and the temperature; None leaves it to the server.

    `max_steps` is how often the model is asked in a turn; what it calls last is run, and its results begin the next turn.
    """

    max_tokens: int | None = None
    temperature: float | None = None
    max_steps: int = MOST_STEPS


class Chat:
    """Asks and answers. Every message is in the journal before it counts, and stays there whatever happens."""

    def __init__(
        self,
        runtime: Runtime,
        report: ModelReport,
        *,
        journal: Journal,
        counter: Counter,
        policy: Policy,
        emit: Callable[[Event], None],
        system: str = "",
        wishes: Wishes = Wishes(),
        calibration: Calibration | None = None,
        on_work: Callable[[WorkState], None] = lambda _state: None,
    ) -> None:
        self.runtime, self.session, self.wishes, self._emit = runtime, Session(journal, emit, on_work), wishes, emit
        self.meter = Meter(runtime, counter, calibration)
        self.model = report.id
        self.idles = False
        """Whether time in which nobody waits may be used (`idle`): nobody else's server, and no battery."""
        self._warmed: list[WireMessage] = []
        self._nudged = self._finish = ""
        self._sees = report.sees_images
        budget = Budget.of(assume(report.window).tokens or 0)
        self.engine = Engine(self.session, runtime, self.meter, policy, budget, emit)
        self._trust = Trust(runtime, report, self.engine, emit, self.wishes.max_tokens)
        self._caller = Caller(self.session, self._results_room, self.meter.size, emit)
        self._nudges = Nudges(self.engine)
        self._introduce(runtime, report)
        self._begin_with(system)

    @property
    def window(self) -> EffectiveWindow:
        """The window that the run goes by."""
        return self._trust.window

    @property
    def last_used(self) -> int:
        """The tokens of the last request and its reply, as far as they are known."""
        return self._trust.last_used

    def _introduce(self, runtime: Runtime, report: ModelReport) -> None:
        """Says whose window this is, and what about it is not as it was asked for."""
        emit = self._emit
        emit(WindowProbed(self.window, runtime.kind, runtime.url, report.id))
        self.session.note("window", tokens=self.window.tokens, confidence=self.window.confidence, model=report.id)
        for notice in not_as_wished(self.window, report):
            emit(notice)

    def _begin_with(self, system: str) -> None:
        """Says the system's words, unless this goes on with a session that has its own."""
        if self.session.history.messages():
            text = f"going on with {self.session.history.messages()} messages of this session"
            self._emit(Notice("continued", text))
        if system and self.session.history == History():
            self.session.add({"role": "system", "content": system})
        elif system and system not in [plain(message.content) for message in self.session.history.system]:
            self._emit(
                Notice(
                    "system-kept",
                    "this session keeps the system prompt that it began with; start a new one to change it",
                )
            )

    def offer(self, tools: Sequence[Tool] | Toolbox) -> None:
        """Lets the model call these tools from the next request on."""
        self._caller.tools = tools if isinstance(tools, Toolbox) else Toolbox(tools)
        self.meter.tools = self._caller.tools.schemas
        self.meter.void()

    @property
    def tools(self) -> Toolbox:
        """What the model may call."""
        return self._caller.tools

    def _offer_what_was_found(self) -> None:
        """Offers the tools that calls asked for as well, from the next request on."""
        more = [shelf for shelf in self.tools.shelves if shelf.state == "offered"][len(self.meter.tools) :]
        if more:
            self.meter.tools = self.tools.schemas
            self.meter.void()
            said = f"offering {', '.join(shelf.name for shelf in more)} as well"
            tokens = f"{sum(shelf.tokens for shelf in more):,} tokens more in every request"
            self._emit(Notice("tools-offered", f"{said}: {tokens}, and the next is read anew from there"))

    def preflight(self) -> None:
        """Says what is taken before anything is said, where that is much of the window, and what could be left out."""
        system = history_size(History(system=self.session.history.system), self.meter.size)
        schemas = sum(self._caller.tools.sizes(self.meter.size).values())
        if notice := crowded(system, len(self.meter.tools), schemas, self.engine.budget.window):
            self._emit(notice)

    def fit(self, text: str) -> str:
        """As much of the beginning of a text as one result may take."""
        return head(text, self._results_room() * 9 // 10, self.meter.size)

    def _results_room(self) -> int:
        return int(self.engine.budget.prompt * RESULTS_SHARE)

    def undo(self) -> str | None:
        """Takes back the last turn, and a compaction that came of it; what the user had said, None where nothing was."""
        said = self._undone()
        return None if said is None else words(said)

    def _undone(self) -> WireMessage | None:
        said = self.session.undo()
        self.meter.void()
        self.engine.restart()
        return said

    async def retry(self) -> str | None:
        """Takes back the last turn, and asks the same again; what the user had said, None where nothing was."""
        said = self._undone()
        if said is None:
            return None
        await self._ask(said)
        return words(said)

    def clear_work(self) -> None:
        """Forgets the work state, also in the checkpoint."""
        self.session.work(None)
        self.meter.void()

    async def ask(self, text: str, images: Sequence[str] = ()) -> str:
        """One turn: the user's words and images (as data URLs), what the ladder has to do, and the model's reply, told to `emit`.

        Why it ended: the server's reason (`stop`, `length`), or `step-limit`, `in-circles`, `malformed-calls`. Raises `DoesNotFit` where the words cannot be made to fit, `Misuse` for images that the model cannot see, and what
        `Runtime.chat` raises; what was said until then is kept as interrupted. Words that do not fit, or are stopped
        before any answer, are taken back.
        """
        if images and self._sees is False:
            raise Misuse(f"{self.model} cannot see images, says its server; leave them out, or serve a model that can")
        parts = [{"type": "image_url", "image_url": {"url": each}} for each in images]
        return await self._ask({"role": "user", "content": [{"type": "text", "text": text}, *parts] if parts else text})

    async def _ask(self, message: WireMessage) -> str:
        await self._trust.look_again()
        self.session.answer_pending()
        asked = self.session.add(message, sync=True)
        try:
            return await self._turn(await self._fitted())
        except (DoesNotFit, asyncio.CancelledError):
            if self._is_unanswered(asked):
                self._withdraw(asked)
            raise

    async def settle(self, tools: Sequence[WireMessage] = ()) -> Request:
        """The next request, made to fit: for a loop of your own, which sends it and then `add`s what comes of it.

        `tools` are the schemas that it will be sent with. Raises `DoesNotFit`, and `Misuse` before anything was said.
        """
        if list(tools) != list(self.meter.tools):
            self.meter.tools = list(tools)
            self.meter.void()
        await self._trust.look_again()
        if not self.session.history.turns:
            raise Misuse("nobody has said anything yet; add what the user says first")
        self.session.answer_pending()
        used = await self._fitted()
        self._nudged = self._nudges.due(used, self.engine.budget.max_prompt - _FEW - used.upper)
        return self._request(used.plus(self._nudges.weight(self._nudged)), self._nudged)

    def add(self, message: WireMessage, *, prompt_tokens: int | None = None) -> None:
        """Adds a message of a loop of your own: the user's, a reply, the result of a call (which is shaped, and kept whole).

        `prompt_tokens` is what the server reported with a reply.
        """
        history = self.session.history
        if prompt_tokens:
            beside = self._nudges.weight(self._nudged)
            self._trust.take(self.meter.rough(history).plus(beside), prompt_tokens, history.last_seq, beside.tokens)
        call = next((each for each in self.session.pending if each.id == message.get("tool_call_id")), None)
        if call is not None:
            result = read(message)
            self._caller.take(call, plain(result.content) if isinstance(result, ToolResult) else str(message))
            return
        self.session.add(message, sync=True)
        if message.get("role") == "assistant":
            self._nudges.told(self._nudged)

    async def _fitted(self) -> Count:
        """Settles the history; raises `DoesNotFit` before anything is compacted for what never fits."""
        used = await self.engine.measure()
        if used.upper > self.engine.budget.prompt:
            await self._refuse_what_never_fits()
        return await self.engine.settle(used)

    async def _turn(self, used: Count) -> str:
        """Answers, and runs the calls that it asks for, until there are none, or the turn must end; why it ended."""
        watch = Watch(self.wishes.max_steps)
        while not watch.over:
            self._nudges.steps = watch.nudge
            await self._answer(used)
            if not (calls := self.session.pending):
                return self._finish
            readable = await self._caller.answer(calls)
            self._offer_what_was_found()
            if notice := watch.took(calls, readable=readable):
                self._emit(notice)
            used = await self.engine.settle()
        return watch.over

    def _withdraw(self, since: Entry) -> None:
        self.session.withdraw(since)
        self.meter.void()

    def _is_unanswered(self, asked: Entry) -> bool:
        last = self.session.history.turns[-1] if self.session.history.turns else Turn()
        return not last.steps and bool(last.opening) and last.opening[-1].seq == asked.seq

    async def compact(self, hint: str = "") -> bool:
        """Compacts now, within the window that is served now; False where nothing is old enough. `hint` is noted above all."""
        await self._trust.look_again()
        return await self.engine.compact(hint)

    async def idle(self) -> None:
        """Uses time in which nobody waits: settles what is due or soon will be, and warms the prefix that is left then.

        To be cancelled at any time; nothing is lost, and a server that fails meanwhile is no news.
        """
        with suppress(LocalctxError):
            await self._trust.look_again()
            await self.engine.idle()
            if self.engine.compacted:
                await self._warm()

    async def _warm(self) -> None:
        """Lets the server prefill what the next request begins with; the one token that this takes is discarded."""
        messages = outgoing(self.session.history)
        if not messages or messages == self._warmed:
            return
        if (await self.meter.exact(messages)).upper > self.engine.budget.max_prompt:
            return
        async with aclosing(self.runtime.chat(Request(messages, 1, self.meter.tools))) as pieces:
            async for piece in pieces:
                if isinstance(piece, Finished):
                    self.session.spent(piece.usage)
                    self._emit(UsageReported(piece.usage, self.meter.alone(messages)))
        self._warmed = messages

    async def outlook(self) -> list[str]:
        """What the next rungs would do and cost now, a line each."""
        return self.engine.outlook(await self.engine.measure()).told() if self.session.history.turns else []

    async def filling(self) -> Filling:
        """What the next request would be filled with, before new words."""
        history = self.session.history
        messages = outgoing(history)
        schemas = self._caller.tools.sizes(self.meter.size)
        if not messages:
            return Filling(0, schemas=schemas)
        used = await self.meter.exact(messages)
        self._trust.last_used = used.tokens
        said = replace(used, tokens=max(used.tokens - sum(schemas.values()), 0))
        size = self.meter.sizer(history, said)
        return Filling(
            used.tokens, fills(history, size) | {"schemas": sum(schemas.values())}, by_tool(history, size), schemas
        )

    @property
    def totals(self) -> Totals:
        """What all replies of the session took, as far as servers reported it."""
        return self.session.totals

    async def _answer(self, used: Count) -> None:
        """Sends what was settled; once more where the server refused it, or answered without having seen it all.

        Where that is only likely, it is asked the same first: a server that cuts does so again.
        """
        again = bool(self.engine.policy.rungs)
        try:
            seen = await self._with_or_without_tools(used, again=again)
            if seen is Sight.DOUBTFUL and again:
                seen = await self._reply(used, again=again)
            if seen is Sight.WHOLE or not again:
                return
            used = await self.engine.settle()
        except PromptRefused as refused:
            used = await self._believe(refused, used)
        try:
            await self._reply(used, again=False)
        except PromptRefused as refused:
            raise DoesNotFit(
                f"{refused}; it was refused again at {used.tokens:,} tokens: pass a smaller --max-context"
            ) from refused

    async def _with_or_without_tools(self, used: Count, *, again: bool) -> Sight:
        """One reply; where the server takes no tools with this model, from now on without them."""
        try:
            return await self._reply(used, again=again)
        except ToolsRefused as refused:
            if not self.meter.tools:
                raise
            self.offer(())
            self._emit(Notice("no-tools", f"{refused}; going on without tools"))
            return await self._reply(await self.engine.measure(), again=again)

    async def _believe(self, refused: PromptRefused, used: Count) -> Count:
        """Goes by what a refusal says, and by what the server says now, and makes room for it."""
        self.meter.void()
        await self._trust.look_again()
        if refused.prompt and plausible(used, refused.prompt) and refused.prompt <= _MOST_OFF * used.upper:
            self.meter.learn(outgoing(self.session.history), refused.prompt)
        if not self._trust.believe(refused, used):
            raise ServerFailed(
                f"{refused}, but it was far from full with {used.tokens:,} tokens; look at its log"
            ) from refused
        self._emit(Notice("refused", f"{refused}; making room for a window of {self.engine.budget.window:,}"))
        return await self.engine.settle(force=True)

    async def _refuse_what_never_fits(self) -> None:
        """Refuses a message that fits in no way, before anything is compacted for it."""
        history, budget = self.session.history, self.engine.budget
        if Rung.TRIM in self.engine.policy.rungs:
            history = least(history, budget, self.meter.sizer(history, await self.meter.exact(outgoing(history))))
        count = await self.meter.exact(outgoing(history))
        if count.lower > budget.max_prompt:
            raise self._too_long(count)

    def _too_long(self, used: Count) -> DoesNotFit:
        return DoesNotFit(too_long(used, self.engine.budget, self.window, tools=bool(self.meter.tools)))

    def _request(self, used: Count, nudge: str) -> Request:
        messages, budget = outgoing(self.session.history, nudge=nudge), self.engine.budget
        room = budget.reply(used.upper, self.wishes.max_tokens or max(budget.window // _REPLY_SHARE, 1))
        if room < 1:
            raise self._too_long(used)
        if found := defects(messages):
            raise LocalctxError(f"this is a defect of localctx: the list to send is not valid ({'; '.join(found)})")
        if room < min(_FEW, self.wishes.max_tokens or _FEW):
            self._emit(Notice("little-room", f"only {room} tokens of {budget.window:,} are left for the reply"))
        request = Request(messages, room, self.meter.tools, temperature=self.wishes.temperature)
        new, _ = self._trust.reads(request, used.tokens)
        return replace(request, silence=silence_within(new, self.engine.speeds))

    async def _reply(self, used: Count, *, again: bool) -> Sight:
        """One request and its reply, which is taken back where it is to be asked `again`: not all was seen, or perhaps not."""
        nudge = self._nudges.due(used, self.engine.budget.max_prompt - _FEW - used.upper)
        beside = self._nudges.weight(nudge)
        used = used.plus(beside)
        request = self._request(used, nudge)
        through = self.session.history.last_seq
        self._emit(RequestSent(used.tokens, *self._trust.reads(request, used.tokens)))
        exchange = Exchange(self.runtime, self._emit)
        try:
            end = await exchange.end(request)
        except BaseException as error:
            if exchange.said or exchange.thought:
                self._keep(exchange, (), complete=False)
                if isinstance(error, PromptRefused):
                    raise ServerFailed(f"{error} (in the middle of its reply, which is kept)") from error
            raise
        kept = self._keep(exchange, self._caller.few_enough(end.calls), complete=True)
        seen = await self._trust.judge(request, used, end, through, beside.tokens, again=again)
        if seen is not Sight.WHOLE and again:
            self._withdraw(kept)
            return seen
        self._nudges.told(nudge)
        if end.usage.completion and not exchange.thought and not end.calls and seen is Sight.WHOLE:
            self.meter.replied(exchange.said, end.usage.completion, kept.seq)
        if not (exchange.said or end.calls or end.called_tools):
            self._emit(Notice("empty", "the model answered with nothing; /retry or other words may help"))
        if end.called_tools and not end.calls:
            self._emit(
                Notice("calls-unread", "the model tried to call a tool in a form that cannot be read; ask again")
            )
        if end.reason == "length":
            self._emit(
                Notice(
                    "cut", f"the reply was cut off at {request.max_tokens:,} tokens; --max-tokens sets another limit"
                )
            )
        self._finish = end.reason
        self._emit(TurnEnded(end.reason, self.last_used, self.engine.budget.window))
        return seen

    def _keep(self, exchange: Exchange, calls: Sequence[ToolCall], *, complete: bool) -> Entry:
        message: dict[str, object] = {"role": "assistant", "content": exchange.said}
        if exchange.thought:
            message["reasoning_content"] = exchange.thought
        if calls:
            message["tool_calls"] = [called(call) for call in calls]
        return self.session.add(message, complete=complete, sync=True)


_MOST_OFF = 4
"""How many times what we thought a refused prompt may be, to be learned from."""

_REPLY_SHARE = 4
"""Without a limit of the user's, a reply may take a quarter of the window: small models can go on for ever."""
