from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import count
from pathlib import Path

import pytest

from localctx.core.checkpoint import render as shown
from localctx.core.checkpoint import with_notes
from localctx.core.effects import Compacted, apply
from localctx.core.ladder import Policy, checkpoint_at, clear, trim
from localctx.core.messages import History, end_of
from localctx.core.notes import Sections
from localctx.core.outgoing import WireMessage, defects, outgoing, texts
from localctx.core.transcript import parse
from localctx.core.window import Budget
from localctx.tokenizers.chat_template import render

pytest.importorskip("jinja2")

SHARED = Path(__file__).parents[3] / "shared" / "templates"
"""Chat templates of real models, where a folder of them lies beside the project."""
TEMPLATES = sorted(SHARED.glob("*.jinja"))
pytestmark = pytest.mark.skipif(not TEMPLATES, reason=f"no templates of real models in {SHARED}")

Wire = list[WireMessage]

ASK, NUDGE = "Write the notes now, please-0.", "Mind the window, please-1."
WORD = re.compile(r"(?:told|asked|said|got|please)-\d")
"""Words that are looked for in what is rendered; thoughts have none, since templates may drop them."""
READ: WireMessage = {
    "type": "function",
    "function": {
        "name": "read_file",
        "description": "Reads a file.",
        "parameters": {"type": "object", "properties": {"path": {"type": "string", "description": "Which"}}},
    },
}
IMAGE: WireMessage = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}

# --- what was said --------------------------------------------------------------------------------------------------


def asked(number: int) -> WireMessage:
    return {"role": "user", "content": f"asked-{number}"}


def told(number: int, role: str = "system") -> WireMessage:
    return {"role": role, "content": f"told-{number}"}


def said(number: int, thought: str = "") -> WireMessage:
    return _thought({"role": "assistant", "content": f"said-{number}"}, thought)


def cycle(number: int, *, calls: int = 1, words: str | None = None, thought: str = "") -> Wire:
    """Parallel calls with their results; ids are such as strict templates want them."""
    ids = [f"call{number:04}{index}" for index in range(calls)]
    made = [
        {
            "id": each,
            "type": "function",
            "function": {"name": "read_file", "arguments": json.dumps({"path": f"{each}.py", "note": "so " * 50})},
        }
        for each in ids
    ]
    results: Wire = [{"role": "tool", "tool_call_id": each, "content": "line " * 50 + f"got-{number}"} for each in ids]
    return [_thought({"role": "assistant", "content": words, "tool_calls": made}, thought), *results]


def _thought(message: WireMessage, thought: str) -> WireMessage:
    return message | ({"reasoning_content": thought} if thought else {})


def typed(message: WireMessage, *more: WireMessage) -> WireMessage:
    return message | {"content": [{"type": "text", "text": message["content"]}, *more]}


def many_cycles(*, calls: int = 1, words: str | None = None, thought: str = "") -> Wire:
    return [told(1), asked(1), *(m for n in range(4) for m in cycle(n, calls=calls, words=words, thought=thought))]


TALKS: dict[str, Wire] = {
    "plain talk": [asked(1), said(1), asked(2), said(2), asked(3)],
    "a system prompt": [told(1), asked(1), said(1), asked(2), said(2), asked(3)],
    "one long turn": many_cycles(),
    "calls without a system prompt": [asked(1), *cycle(1), *cycle(2), said(1), asked(2), *cycle(3), said(2), asked(3)],
    "parallel calls": [*many_cycles(calls=2), said(1), asked(2), *cycle(7, calls=3)],
    "words before calls": [*many_cycles(words="Let me look."), said(2), asked(2), *cycle(7, words="And here.")],
    "thoughts": [told(1), asked(1), said(1, "hm"), asked(2), *cycle(1, thought="so"), *cycle(2, thought="aha")],
    "thoughts that are over": [*many_cycles(thought="so"), said(1, "thus"), asked(2), said(2, "well"), asked(3)],
    "thoughts and words": [*many_cycles(words="Let me look.", thought="so"), said(2, "thus"), asked(2)],
    "thoughts alone": [
        asked(1),
        {**said(1, "hm"), "content": ""},
        *cycle(1),
        {**said(2, "hm"), "content": ""},
        asked(2),
    ],
    "an interrupted reply": [told(1), asked(1), said(1), asked(2)],
    "an interrupted call": [told(1), asked(1), cycle(1)[0], asked(2), said(1), asked(3)],
    "interrupted parallel calls": [told(1), asked(1), *cycle(1, calls=2)[:2], asked(2), said(1), asked(3)],
    "stopped after results": [told(1), asked(1), *cycle(1), asked(2), *cycle(2), asked(3)],
    "system words in the middle": [told(1), asked(1), *cycle(1), told(2, "developer"), *cycle(2), told(3), asked(2)],
    "two users in a row": [told(1), asked(1), asked(2), said(1), asked(3), asked(4)],
    "two replies in a row": [asked(1), said(1), said(2), asked(2), said(3, "hm"), said(4, "hm"), asked(3)],
    "a reply before calls": [asked(1), said(1), *cycle(1), said(2), asked(2)],
    "a reply before thought-out calls": [asked(1), said(1), *cycle(1, thought="so"), said(2), asked(2)],
    "a thought-out reply before calls": [asked(1), said(1, "hm"), *cycle(1), said(2), asked(2)],
    "thoughts before words with calls": [asked(1), {**said(1, "hm"), "content": ""}, *cycle(1, words="Let me look.")],
    "calls in flight": [told(1), asked(1), *cycle(1), cycle(2)[0]],
    "a reply first": [told(1), said(1), asked(1), said(2), asked(2)],
    "calls first": [*cycle(1), *cycle(2), said(1), asked(1)],
    "a result without a call": [asked(1), cycle(1)[1], said(1), *cycle(2), cycle(1)[1], *cycle(3), said(2), asked(2)],
    "an image": [told(1), typed(asked(1), IMAGE), said(1), asked(2), *cycle(1)],
    "an image last": [told(1), asked(1), said(1), typed(asked(2), IMAGE)],
    "typed texts": [typed(told(1)), typed(asked(1), {"type": "text", "text": "asked-2"}), typed(said(1)), asked(3)],
    "nothing said": [told(1), {"role": "user", "content": ""}, {"role": "assistant", "content": None}, asked(1)],
    "nothing got": [asked(1), cycle(1)[0], {**cycle(1)[1], "content": ""}, said(1), asked(2)],
    "two system prompts": [told(1), told(2, "developer"), asked(1), said(1), asked(2)],
}

# --- what is sent of it ---------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Sent:
    """A list that the engine sends, and the texts that are to be found in what is rendered of it."""

    name: str
    messages: Wire
    texts: frozenset[str]


def lists(history: History, size: Callable[[str], int]) -> Iterator[Sent]:
    """Every list that may be sent of a history, each once: as it is, and after the rungs."""
    seen = set[str]()
    for name, each in lives(history, size):
        for what, messages in requests(each):
            if (text := json.dumps(messages)) not in seen:
                seen.add(text)
                yield Sent(f"{what}, {name}", messages, wanted(each, messages))


WHOLE = 3
"""The first lists of each conversation are those of the whole of it."""


def requests(history: History) -> list[tuple[str, Wire]]:
    plain, asked_for = outgoing(history), outgoing(history, ask=ASK)
    return [("request", plain), ("summary", asked_for), ("nudge", outgoing(history, nudge=NUDGE))]


def lives(history: History, size: Callable[[str], int]) -> Iterator[tuple[str, History]]:
    budget = Budget.of(4_096)
    yield "as it is", history
    yield "cleared", apply(history, clear(history, budget, Policy(protected_cycles=1, clearable_tokens=8), size))
    for cut, shorter in compacted(history, size):
        yield f"compacted at {cut}", shorter
        yield from ((f"compacted at {cut} and {again}", twice) for again, twice in compacted(shorter, size))
    if (effect := trim(history, Budget.of(2_048), Policy(trim_to=0.2), size)) is not None:
        yield "trimmed", apply(history, effect)


def compacted(history: History, size: Callable[[str], int]) -> Iterator[tuple[int, History]]:
    """The history cut between any two units, by the machine and by a model in turns."""
    for number, (_, unit) in enumerate([*history.units()][:-1]):
        cut = end_of(unit)
        checkpoint = checkpoint_at(history, cut, Budget.of(4_096), size)
        notes: Sections = {"goal": (f"told-{cut}",), "covered": ("all of it",)}
        yield cut, apply(history, Compacted(with_notes(checkpoint, notes, 400, size) if number % 2 else checkpoint))


def wanted(history: History, messages: Wire) -> frozenset[str]:
    """The checkpoint's lines, the user's kept words among them, and the last user's words."""
    last = next(message for message in reversed(messages) if message["role"] == "user")
    lines = [*(shown(history.checkpoint).splitlines() if history.checkpoint else []), *spoken(last)]
    return frozenset(line.strip() for text in lines for line in text.splitlines())


def spoken(message: WireMessage) -> list[str]:
    content = message["content"]
    parts = content if isinstance(content, list) else [{"text": content}]
    return [str(part["text"]) for part in parts if part.get("text")]


def words(value: object) -> set[str]:
    return {word for text in texts(value) for word in WORD.findall(text)}


@pytest.fixture(scope="module")
def sent(size: Callable[[str], int]) -> dict[str, list[Sent]]:
    return {name: [*lists(parse(wire).history, size)] for name, wire in TALKS.items()}


# --- and what templates make of it ----------------------------------------------------------------------------------


@pytest.fixture(scope="module", params=TEMPLATES or [SHARED], ids=lambda path: path.stem)
def template(request: pytest.FixtureRequest) -> str:
    text = request.param.read_text(encoding="utf-8")
    if render(text, TALKS["plain talk"]) is None:
        pytest.skip(f"{request.param.stem} renders no conversation at all")
    return str(text)


@pytest.mark.parametrize("stride", [32, pytest.param(1, marks=pytest.mark.slow)])
def test_what_is_sent_renders_where_the_conversation_does(
    template: str, stride: int, sent: dict[str, list[Sent]]
) -> None:
    """All that is sent of a conversation as it is; of what the rungs make of it another part for each template."""
    number = count(len(template))
    chosen = {
        talk: [*each[:WHOLE], *(one for one in each[WHOLE:] if next(number) % stride == 0)]
        for talk, each in sent.items()
    }
    found = [f"{line}, {len(tools)} tools" for tools in ((), (READ,)) for line in failures(template, chosen, tools)]
    assert found == []


def failures(template: str, sent: dict[str, list[Sent]], tools: Sequence[WireMessage]) -> list[str]:
    """What does not render although the conversation does, and what does not show."""
    found = list[str]()
    for talk, each in sent.items():
        given = render(template, TALKS[talk], tools)
        if given is None and render(template, outgoing(parse(TALKS[talk]).history), tools) is None:
            continue
        whys = [(one.name, failure(template, one, tools, words(given or ""))) for one in each]
        found += [f"{talk}, {name}: {why}" for name, why in whys if why]
    return found


def failure(template: str, sent: Sent, tools: Sequence[WireMessage], showing: set[str]) -> str:
    if "tool_calls" in sent.messages[-1]:
        return ""
    text = render(template, sent.messages, tools)
    if text is None:
        return "refused"
    lost = {each for each in sent.texts if each not in text} | (words(sent.messages) & showing) - words(text)
    if sent.name.startswith("nudge") and shows_the_end(text, sent.messages) and NUDGE not in text:
        lost.add(NUDGE)
    return f"lost {sorted(lost)}" if lost else ""


def shows_the_end(text: str, messages: Wire) -> bool:
    """Whether the template shows what stands before the nudge: some know no results."""
    return bool((words(messages[-1]) - words(NUDGE)) & words(text))


def test_a_nudge_behind_results_leaves_the_prompt_before_it_as_it_is(template: str) -> None:
    for wire in (wire for wire in TALKS.values() if wire[-1]["role"] == "tool"):
        history = parse(wire).history
        plain, nudged = (render(template, outgoing(history, nudge=nudge), (READ,)) for nudge in ("", NUDGE))
        if plain is not None and nudged is not None:
            last = max((plain.rfind(word) + len(word) for word in words(wire[-1]) & words(plain)), default=0)
            assert nudged.startswith(plain[:last])


def test_the_lists_are_valid(sent: dict[str, list[Sent]]) -> None:
    assert [(talk, one.name) for talk, each in sent.items() for one in each if defects(one.messages)] == []
