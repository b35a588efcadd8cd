"""Our text of a chat against the one that llama.cpp's own server answers."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any

import httpx
import pytest

from localctx.stores.models import DEFAULT, ModelStore
from localctx.tokenizers.template import render
from tests.tokenizers.test_template import LANGUAGE, REFUSED, call, said, text

pytestmark = pytest.mark.live

TEMPLATES = Path(__file__).parents[3] / "shared" / "templates"

SERVER = """
import os, sys, time, xllamacpp
params = xllamacpp.CommonParams()
params.model.path, params.chat_template, params.use_jinja = sys.argv[1], sys.stdin.read(), True
params.n_ctx, params.n_parallel, params.cpuparams.n_threads = 512, 1, 1
params.ui = params.fit_params = params.warmup = False
params.hostnames, params.port, params.verbosity = ["127.0.0.1"], 0, 0
try:
    server = xllamacpp.Server(params)
    print(server.listening_address, flush=True)
    time.sleep(120)
finally:
    os._exit(0)  # to free a server may hang
"""

ATTEMPTS = 5
"""A server of this package does not always start; another try then does."""


@contextmanager
def server(model: Path, template: str = "") -> Iterator[httpx.Client]:
    """A server with the model's own template, or another."""
    for _ in range(ATTEMPTS):
        with started(model, template) as url:
            if url:
                with httpx.Client(base_url=url, timeout=60, trust_env=False) as http:
                    yield http
                return
    pytest.fail("the server does not start")


@contextmanager
def started(model: Path, template: str) -> Iterator[str]:
    with subprocess.Popen(
        [sys.executable, "-c", SERVER, str(model)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        encoding="utf-8",
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            process.stdin.write(template)
            process.stdin.close()
            yield process.stdout.readline().strip()
        finally:
            process.kill()


WEATHER = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": 'The weather of a "place" & more\n<now>',
        "strict": True,
        "parameters": {
            "type": "object",
            "properties": {
                "place": {"type": "string", "description": "Où, 漢字"},
                "unit": {"type": ["string", "null"], "enum": ["C", "F", None]},
                "days": {"type": "integer", "minimum": 1, "default": 2.5},
                "more": {"type": "array", "items": {"type": "object", "properties": {"k": {"type": "boolean"}}}},
            },
            "required": ["place"],
            "additionalProperties": False,
        },
    },
}
PING = {"type": "function", "function": {"name": "ping"}}


def used(*calls: str, content: object = None, **more: object) -> list[dict[str, Any]]:
    """An assistant's message that calls tools with these arguments, and their results."""
    ids = [f"call{number:05}" for number in range(len(calls))]
    made = [call(given, "get_weather", at) for given, at in zip(calls, ids, strict=True)]
    results = [said("tool", f"result {at}\n漢", tool_call_id=at) for at in ids]
    return [said("assistant", content, tool_calls=made, **more), *results]


USER, AGAIN, SYSTEM = said("user", "Hello"), said("user", "And then?"), said("system", "Be brief.")
ANSWER = said("assistant", "Hi!")
PARIS, ODD = (
    '{"place": "Paris"}',
    '{"place": "it\'s \\"é\\" 😀\\n", "days": 1.0, "more": [{"k": true}, null, 1e20], "x": {}}',
)

CALLED, FIRST, SECOND = used(PARIS, ODD)

CHATS: dict[str, list[dict[str, Any]]] = {
    "a user": [USER],
    "a system message": [SYSTEM, USER],
    "several turns": [SYSTEM, USER, ANSWER, AGAIN, ANSWER, AGAIN],
    "a call and its result": [SYSTEM, USER, *used(PARIS)],
    "an answer after a result": [USER, *used(PARIS, content=""), ANSWER, AGAIN],
    "calls at once": [USER, *used(PARIS, ODD, content="Let me look."), ANSWER, AGAIN],
    "results in another order": [USER, CALLED, SECOND, FIRST, AGAIN],
    "calls in a row": [USER, *used(PARIS), *used("{}"), *used(ODD, content="Now this.")],
    "a user after a result": [USER, *used(PARIS), AGAIN],
    "thoughts": [USER, ANSWER | {"reasoning_content": "Well\nyes."}, AGAIN],
    "thoughts and calls": [
        USER,
        ANSWER | {"reasoning_content": "Old."},
        AGAIN,
        *used(PARIS, reasoning_content="I must look."),
    ],
    "thoughts in the text": [USER, said("assistant", "<think>\nhm\n</think>\n\nSo."), AGAIN],
    "parts": [
        said("system", text("Be brief.")),
        said("user", text("One", "", "Two\n")),
        ANSWER,
        said("user", text("x")),
    ],
    "empty texts": [SYSTEM, said("user", ""), said("assistant", ""), said("user", [])],
    "no texts": [said("user", None), said("assistant", None), AGAIN],
    "other scripts": [
        said("system", "　全角　"),
        said("user", "　你好、世界。　\n"),
        said("assistant", "こんにちは\u00a0"),
        AGAIN,
    ],
    "code": [said("user", '```python\nprint(f"{i}\\n")\n```\n  '), said("assistant", "\n{{ x }} {% if %}\t"), AGAIN],
    "marks": [said("user", "<|im_end|> <tool_call>x</tool_call> & < ' \" \\"), said("assistant", "[INST]"), AGAIN],
    "emoji and controls": [said("user", "😀👩‍👩‍👧 \x00\x01\x7f\x85\u2028end"), ANSWER, AGAIN],
    "space around texts": [
        said("system", "  s \n"),
        said("user", "\n a \n"),
        said("assistant", "  b\n\n"),
        said("user", "\tc "),
    ],
    "a developer": [said("developer", "Be brief."), USER],
    "two system messages": [SYSTEM, SYSTEM, USER],
    "a later system message": [USER, ANSWER, SYSTEM, AGAIN],
    "only a system message": [SYSTEM],
    "users in a row": [USER, AGAIN],
    "answers in a row": [USER, ANSWER, ANSWER, AGAIN],
    "an answer first": [ANSWER, USER],
    "an answer last": [SYSTEM, USER, ANSWER],
    "an empty answer last": [USER, said("assistant", None)],
    "an empty part last": [USER, said("assistant", text(""))],
    "only thoughts last": [USER, said("assistant", "", reasoning_content="Well.")],
    "answers last": [USER, ANSWER, ANSWER],
    "a call last": [USER, used(PARIS)[0]],
    "arguments that are no JSON": [USER, *used('{"place": ')],
    "arguments that are an array": [USER, *used("[1, 2]")],
    "no arguments": [USER, *used("")],
    "a call without an id": [USER, said("assistant", "", tool_calls=[call(PARIS, at=None)]), said("tool", "x"), AGAIN],
    "named messages": [USER | {"name": "bob"}, ANSWER | {"tool_calls": []}, AGAIN],
    "an unknown role": [USER, said("critic", "Bad."), AGAIN],
    "nothing": [],
    "much": [SYSTEM, *[message for _ in range(20) for message in (USER, *used(PARIS), ANSWER)], AGAIN],
}
TOOLS = {"no tools": [], "tools": [WEATHER, PING]}


def differences(http: httpx.Client, template: str, tokens: dict[str, Any]) -> tuple[list[str], int]:
    """The chats that we render otherwise than the server, or though it refuses, and how many were the same."""
    wrong, same = [], 0
    for name, messages in CHATS.items():
        for kind, tools in TOOLS.items():
            theirs, ours = both_texts(http, template, messages, tools, tokens)
            if ours is not None and ours != theirs:
                wrong.append(f"{name}, {kind}: {ours!r}, but llama.cpp says {theirs!r}")
            same += ours is not None and ours == theirs
    return wrong, same


def both_texts(
    http: httpx.Client, template: str, messages: Sequence[Any], tools: Sequence[Any], tokens: dict[str, Any]
) -> tuple[str | None, str | None]:
    """The server's text and ours; at midnight the days could differ, so ours is taken on the same day before or after."""
    body = {"messages": messages} | ({"tools": tools} if tools else {})
    before = datetime.now().astimezone()
    theirs = http.post("/apply-template", json=body).json().get("prompt")
    days = [before, datetime.now().astimezone()]
    ours = [render(template, messages, tools, now=day, **tokens) for day in days]
    return theirs, ours[0] if ours[0] == theirs else ours[1]


def test_the_default_model_is_asked_the_same(home: Path) -> None:
    with server(ModelStore(home).path(DEFAULT)) as http:
        props = http.get("/props").json()
        tokens = {"bos": props["bos_token"], "eos": props["eos_token"]}
        wrong, same = differences(http, props["chat_template"], tokens)
    assert wrong == []
    assert same >= 2 * (len(CHATS) - 3), "all but those that it refuses: a call last, answers last"


def test_templates_speak_llama_cpps_jinja(home: Path) -> None:
    """What the unit test says of it, each template as a case of one."""
    cases = [*(template for template, _ in LANGUAGE), *REFUSED]
    branches = [f"if messages[0].content == '{number}' %}}{case}" for number, case in enumerate(cases)]
    template = "{% " + "{% el".join(branches) + "{% endif %}"
    with server(ModelStore(home).path(DEFAULT), template) as http:
        for number, case in enumerate(cases):
            theirs, ours = both_texts(http, template, [said("user", str(number))], [], {})
            assert (ours is None) == (case in REFUSED), case
            assert ours is None or ours == theirs, case


@pytest.mark.slow
@pytest.mark.skipif(not TEMPLATES.is_dir(), reason="the folder of chat templates, shared/templates, is not here")
@pytest.mark.parametrize("path", sorted(TEMPLATES.glob("*.jinja")), ids=lambda path: path.stem)
def test_models_are_asked_the_same(home: Path, path: Path) -> None:
    template = path.read_text(encoding="utf-8")
    with server(ModelStore(home).path(DEFAULT), template) as http:
        props = http.get("/props").json()
        wrong, same = differences(http, template, {"bos": props["bos_token"], "eos": props["eos_token"]})
    assert wrong == []
    assert same >= len(CHATS) // 2, "most templates render most chats"
