"""The lesson as a story: what one step after the other does to the desk, what can still be found, and what survives.

`replay` of `core/lesson.py` does the arithmetic; this follows its events with what lies on the desk and who knows what.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Literal, TypeAlias

from localctx.core.lesson import Compacted, Mark, Plan, next_boot, replay
from localctx.core.lesson_script import FACTS, GOES_ON, LABELS, POLICIES, READ_AGAIN, RECORDED, RULE, TASK, title

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from localctx.core.lesson import Event
    from localctx.core.lesson_script import Recording

__all__ = ["Lifetime", "Outcome", "Probe", "Step", "Story", "Survival", "compared", "tell"]

Outcome: TypeAlias = Literal["found", "lost", "unknown", "unanswered", "unseen"]
"""`unknown`: a summary stands for it, and the lesson does not say what that one keeps. `unseen`: it never came up."""


@dataclass(frozen=True, slots=True)
class Probe:
    """A question about something earlier: whether the context holds the answer, and `where`.

    `again` is the tokens that having it back takes, 0 where nothing has to be read again.
    """

    session: int
    fact: str
    question: str
    outcome: Outcome
    where: tuple[str, ...]
    answer: str
    again: int


@dataclass(frozen=True, slots=True)
class Step:
    """What happened, and how full the desk is then. `desk` is tokens by name, the oldest first; `file` the new lines of MEMORY.md.

    `event` is `boot`, `append`, `memory_write`, `compact`, `rejected`, `probe` or `end`. `tokens` is what `total` changed by,
    `pressure` its share of the window, and `over_gate` whether it is more than the gate lets pass.
    """

    step: int
    session: int
    event: str
    msg: str | None
    tokens: int
    total: int
    pressure: float
    over_gate: bool
    text: str
    remarks: tuple[str, ...]
    desk: Mapping[str, int]
    file: tuple[str, ...]
    compaction: Compacted | None = None
    probe: Probe | None = None


@dataclass(frozen=True, slots=True)
class Survival:
    """What became of a fact by the end of the first session, and in the second one; and where it is."""

    fact: str
    text: str
    first: Outcome
    first_where: tuple[str, ...]
    second: Outcome
    second_where: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Lifetime:
    """How long a kind of thing lives, and what was of that kind in this run."""

    kind: str
    until: str
    items: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Story:
    """A run of the lesson under a plan. `summarized` is all that a model had to read for summaries; `left` the last total of session 1."""

    plan: Plan
    steps: tuple[Step, ...]
    peak: int
    trips: int
    summarized: int
    left: int
    rejected: int | None
    probes: tuple[Probe, ...]
    survival: tuple[Survival, ...]
    lifetimes: tuple[Lifetime, ...]


def tell(plan: Plan) -> Story:
    """Both sessions. Where nothing was compacted by the log of the tests, the first goes on, as the lesson's does.

    The same questions are asked in every run; the lesson asks for the TODO only where there is a summary and memory, and lets
    something be installed in the first session only where there is a summary and no memory.
    """
    events = replay(plan, TASK)
    if not any(isinstance(event, Compacted) for event in events):
        events = replay(plan, [*TASK, *GOES_ON])
    telling = _Telling(plan)
    for event, after in zip(events, [*events[1:], None], strict=True):
        telling.take(event, after)
    telling.ask("todo", "Was there a TODO about unicode in that file?")
    telling.ask("rule", "Install date-fns.", "date-fns")
    first = telling.known()
    telling.leave()
    telling.begin_again()
    package = "date-fns" if plan.memory else "lodash"
    telling.ask("rule", f"A new repository: install {package}.", package)
    return telling.story(first)


def compared(story: Story) -> dict[str, Story]:
    """The lesson's policies in the window of a story; and that story as `this run`, if it is none of them."""
    stories = {name: tell(replace(plan, limit=story.plan.limit)) for name, plan in POLICIES.items()}
    return stories if story in stories.values() else {**stories, "this run": story}


@dataclass(slots=True)
class _Sheet:
    """What lies on the desk: the facts that it holds, and those that it may hold."""

    name: str
    tokens: int
    holds: frozenset[str] = frozenset()
    maybe: frozenset[str] = frozenset()


@dataclass(slots=True)
class _Telling:
    """A story as far as it is told."""

    plan: Plan
    session: int = 1
    desk: list[_Sheet] = field(default_factory=list)
    file: tuple[str, ...] = ()
    steps: list[Step] = field(default_factory=list)
    dead: bool = False

    def take(self, event: Event, after: Event | None) -> None:
        """One event of the first session, and the one after it."""
        match event:
            case Mark("boot", total):
                self._boot(total)
            case Mark("memory_write", _):
                self.file = (RULE,)
                self._add("memory_write", f"MEMORY.md gets a line: {RULE}", _UNMOVED)
            case Mark():
                self._reject(event.total)
            case Compacted():
                self._compact(event)
            case _:
                self._arrive(event.msg, event.tokens, compacts=isinstance(after, Compacted))

    def _boot(self, total: int, *remarks: str) -> None:
        copy = total - self.plan.system
        self.desk = [_Sheet("system", self.plan.system)]
        if self.plan.memory:
            self.desk.append(_Sheet("memory", copy, frozenset({"rule"}) if self.file else frozenset()))
        parts = f"the system prompt ({self.plan.system:,})"
        parts += f" and a copy of MEMORY.md ({copy:,})" if self.plan.memory else " alone"
        news = (f"The copy has the new line: {RULE}",) if self.file else ()
        self._add("boot", f"Session {self.session} begins with {parts}.", *news, *remarks)

    def _arrive(self, msg: str, tokens: int, *, compacts: bool) -> None:
        self.desk.append(_Sheet(msg, tokens, frozenset(fact for fact, (_, said) in FACTS.items() if msg in said)))
        remarks = []
        if self._over() and compacts:
            remarks.append(f"Over the gate of {self.plan.gate_tokens:,}: compact before the next request.")
        elif self._over():
            remarks.append(f"Over the gate of {self.plan.gate_tokens:,}, but nothing is older than the newest two.")
        self._add("append", LABELS[msg], *remarks, msg=msg)

    def _compact(self, trip: Compacted) -> None:
        taken = [sheet for sheet in self.desk if sheet.name in trip.slice]
        at = self.desk.index(taken[0])
        summary = _summary(f"summary{self._trips() + 1}", trip, taken)
        self.desk[at : at + len(taken)] = [summary]
        self._add(
            "compact", _swept(trip, summary.name), *_compact_remarks(trip, self.desk, self.plan.limit), compaction=trip
        )

    def _reject(self, total: int) -> None:
        self.dead = True
        text = f"Rejected, context_length_exceeded: {total:,} tokens are more than the window of {self.plan.limit:,}."
        self._add("rejected", text, *_rejected_remarks(self.plan, self.desk))

    def leave(self) -> None:
        """The session ends, and with it all that is on the desk."""
        dying = [sheet.name for sheet in self.desk if sheet.name not in _HEAD]
        self.desk = []
        stays = f"MEMORY.md stays, with the line: {RULE}" if self.file else "Nothing that was said in it stays."
        self._add("end", f"Session {self.session} ends. What dies with it: {_listed(dying)}.", stays)

    def begin_again(self) -> None:
        """The next session boots from the file."""
        died, self.session, self.dead = self.dead, self.session + 1, False
        total, _ = next_boot(self.plan, [row for row in TASK if row.note in self.file])
        self._boot(total, *([_BEYOND] if died else []))
        if total > self.plan.limit:
            self._reject(total)

    def ask(self, fact: str, question: str, package: str = "") -> None:
        """A question; the lesson gives it no tokens."""
        outcome, where = self._look(fact)
        outcome, where = ("unanswered", ()) if self.dead else (outcome, where)
        again = READ_AGAIN if fact == "todo" and outcome in {"lost", "unknown"} else 0
        answer = _answer(outcome, where, package) + (self._again(again) if again else "")
        probe = Probe(self.session, fact, question, outcome, where, answer, again)
        self._add("probe", f'Asked: "{question}"', answer, probe=probe)

    def _again(self, tokens: int) -> str:
        total = self._used() + tokens
        past = (
            " over the window" if total > self.plan.limit else " over the gate again" if self._trips_at(total) else ""
        )
        return f" Reading the file again takes {tokens:,} tokens: {total:,} in all{past and ','}{past}."

    def known(self) -> dict[str, tuple[Outcome, tuple[str, ...]]]:
        """Where each fact is now."""
        arrived = {step.msg for step in self.steps}
        seen = {fact for fact, (_, said) in FACTS.items() if arrived.intersection(said)}
        return {fact: self._look(fact) if fact in seen else ("unseen", ()) for fact in FACTS}

    def story(self, first: Mapping[str, tuple[Outcome, tuple[str, ...]]]) -> Story:
        """All that was told; `first` is what was known at the end of the first session."""
        trips = [step.compaction for step in self.steps if step.compaction]
        before = [step for step in self.steps if step.session == 1 and step.event != "end"]
        rejected = [step.total for step in self.steps if step.event == "rejected"]
        return Story(
            self.plan,
            tuple(self.steps),
            max(step.total for step in self.steps),
            len(trips),
            sum(trip.slice_tokens for trip in trips),
            before[-1].total,
            rejected[0] if rejected else None,
            tuple(step.probe for step in self.steps if step.probe),
            tuple(Survival(fact, FACTS[fact][0], *first[fact], *second) for fact, second in self.known().items()),
            _lifetimes(trips, before[-1].desk, self.file),
        )

    def _look(self, fact: str) -> tuple[Outcome, tuple[str, ...]]:
        if held := tuple(sheet.name for sheet in self.desk if fact in sheet.holds):
            return "found", held
        maybe = tuple(sheet.name for sheet in self.desk if fact in sheet.maybe)
        return ("unknown" if maybe else "lost"), maybe

    def _add(
        self,
        event: str,
        text: str,
        *remarks: str,
        msg: str | None = None,
        compaction: Compacted | None = None,
        probe: Probe | None = None,
    ) -> None:
        used, desk = self._used(), {sheet.name: sheet.tokens for sheet in self.desk}
        changed = used - (self.steps[-1].total if self.steps else 0)
        about = (used, round(used / self.plan.limit, 4), self._over(), text, remarks, desk, self.file)
        self.steps.append(Step(len(self.steps) + 1, self.session, event, msg, changed, *about, compaction, probe))

    def _used(self) -> int:
        return sum(sheet.tokens for sheet in self.desk)

    def _over(self) -> bool:
        return self._trips_at(self._used())

    def _trips_at(self, total: int) -> bool:
        return self.plan.gate_tokens is not None and total > self.plan.gate_tokens

    def _trips(self) -> int:
        return sum(step.compaction is not None for step in self.steps)


_HEAD = ("system", "memory")
_BEYOND = "The lesson's own run stops at the rejection; this is what its rules make of the next session."
_WITHOUT, _WITH_SUMMARY = "The head and the newest messages", "The head, the summary and the newest two"
_UNMOVED = "The meter does not move: the copy on the desk is as it was when the session began."


def _summary(name: str, trip: Compacted, taken: Sequence[_Sheet]) -> _Sheet:
    """The sheet that stands for others: it holds what was recorded of these, and may hold the rest of what they did."""
    held = frozenset[str]().union(*(sheet.holds for sheet in taken))
    maybe = held.union(*(sheet.maybe for sheet in taken))
    recorded = RECORDED.get(trip.slice)
    if recorded is None:
        return _Sheet(name, trip.summary, maybe=maybe)
    kept = recorded.kept & maybe
    return _Sheet(name, trip.summary, kept, maybe - kept - recorded.dropped)


def _swept(trip: Compacted, name: str) -> str:
    verb = "become" if len(trip.slice) > 1 else "becomes"
    taken = f"{_listed(trip.slice)} ({trip.slice_tokens:,}) {verb} {title(name)} ({trip.summary:,})"
    return f"Compacted: {taken}. Kept word for word: {_listed(trip.kept)}."


def _compact_remarks(trip: Compacted, desk: Sequence[_Sheet], limit: int) -> Iterator[str]:
    """What is to be said of a compaction that left this desk; of one that leaves more than the window the rejection tells."""
    if any(name.startswith("summary") for name in trip.slice):
        yield "A summary of a summary: one more pass that decides what to keep."
    if trip.after >= trip.before:
        yield "No progress: the summary is no smaller than what it stands for. An engine needs a rule against that."
    if trip.still_over and trip.after <= limit:
        again = trip.summary + desk[-len(trip.kept)].tokens
        yield f"Still over the gate of {trip.gate:,}: the next message trips it again, for {again:,} tokens to sweep."
    recorded = RECORDED.get(trip.slice)
    yield (
        _said(recorded)
        if recorded
        else "What a summary of these keeps is told neither by arithmetic nor by the lesson."
    )


def _said(recorded: Recording) -> str:
    kept, dropped = (
        ", ".join(text for fact, (text, _) in FACTS.items() if fact in facts)
        for facts in (recorded.kept, recorded.dropped)
    )
    return f"Recorded in the lesson's run, not computed: it kept {kept}." + (
        f" It dropped {dropped}." if dropped else ""
    )


def _rejected_remarks(plan: Plan, desk: Sequence[_Sheet]) -> Iterator[str]:
    yield "The request never reaches the model, so the model can do nothing about it."
    largest = max(desk, key=lambda sheet: sheet.tokens)
    if plan.head > plan.limit:
        yield f"Already what a session begins with ({plan.head:,}) is more than the window."
    elif largest.tokens > plan.limit:
        yield f"{title(largest.name)} alone ({largest.tokens:,}) is more than the window: no compaction helps."
    elif plan.gate is not None:
        summary = any(sheet.name.startswith("summary") for sheet in desk)
        yield f"{_WITH_SUMMARY if summary else _WITHOUT} are more than the window: no compaction frees enough."


def _answer(outcome: Outcome, where: Sequence[str], package: str) -> str:
    match outcome:
        case "unanswered":
            return "No answer: no request reaches the model any more."
        case "found":
            return f"Found, in {_listed(where)}" + (f": pnpm add {package}." if package else ".")
        case "unknown":
            return f"Nobody knows: {_listed(where)} may hold it or not."
        case _:
            return f"Not found: npm install {package}, which the user had forbidden." if package else "Not found."


def _lifetimes(trips: Sequence[Compacted], desk: Mapping[str, int], file: tuple[str, ...]) -> tuple[Lifetime, ...]:
    """The four ways to last, and what had which of them."""
    swept = [name for trip in trips for name in trip.slice if not name.startswith("summary")]
    there = [name for name in desk if name not in _HEAD and not name.startswith("summary")]
    summaries = [f"summary{number}" for number, _ in enumerate(trips, 1)]
    return (
        Lifetime("an old message", "until the next compaction", (*swept, *there[:-2])),
        Lifetime("the newest two", "word for word, while they are the newest", tuple(there[-2:])),
        Lifetime("a summary", "until the session ends, or a later compaction takes it", tuple(summaries)),
        Lifetime("a line in MEMORY.md", "until somebody deletes it", file),
    )


def _listed(names: Sequence[str]) -> str:
    return ", ".join(title(name) for name in names) or "nothing"
