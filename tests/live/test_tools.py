"""Tools and calls of a real llama.cpp: with the default model's own template, and with one that has tools."""

from __future__ import annotations

import json
import subprocess
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest

from localctx.core.notes import Outline
from localctx.errors import ServerFailed, ToolsRefused
from localctx.ports import Delta, Finished, Piece, Request
from localctx.runtimes import embedded
from localctx.runtimes.llama_server import LlamaServer
from localctx.stores.models import DEFAULT, ModelStore

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from localctx.core.outgoing import WireMessage

pytestmark = [pytest.mark.live, pytest.mark.anyio]

TOOLS: list[WireMessage] = [
    {
        "type": "function",
        "function": {
            "name": "get_weather",
            "description": "The weather of a city.",
            "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
        },
    }
]

TEMPLATE = """\
{%- if tools %}<|im_start|>system
You may call these functions:
<tools>
{%- for tool in tools %}
{{ tool | tojson }}
{%- endfor %}
</tools>
To call one, write its name and its arguments as JSON:
<tool_call>
{"name": "its name", "arguments": {}}
</tool_call><|im_end|>
{% endif %}
{%- for message in messages %}<|im_start|>{{ message.role }}
{{ message.content or '' }}
{%- for call in message.tool_calls or [] %}
<tool_call>
{"name": "{{ call.function.name }}", "arguments": {{ call.function.arguments | tojson }}}
</tool_call>
{%- endfor %}<|im_end|>
{% endfor %}
{%- if add_generation_prompt %}<|im_start|>assistant
{% endif %}"""
"""A chat template with tools, in the form that llama.cpp knows from many models."""

SERVER = """
import sys, time, xllamacpp
params = xllamacpp.CommonParams()
params.model.path, params.chat_template, params.use_jinja = sys.argv[1], sys.argv[2], sys.argv[3] == "jinja"
params.n_ctx, params.n_parallel, params.fit_params, params.verbosity = 4096, 1, False, 0
params.hostnames, params.port, params.cpuparams.n_threads = ["127.0.0.1"], 0, 1
server = xllamacpp.Server(params)
print(server.listening_address, flush=True)
time.sleep(120)
"""


@contextmanager
def serving(home: Path, how: str = "jinja") -> Iterator[str]:
    """The address of the default model under a template that has tools."""
    command = [sys.executable, "-c", SERVER, str(ModelStore(home).path(DEFAULT)), TEMPLATE, how]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as run:
        assert run.stdout is not None
        try:
            yield run.stdout.readline().strip()
        finally:
            run.kill()


def asked(*cities: str) -> list[WireMessage]:
    """A history in which each question was answered by a call: so small a model then does the same again."""
    messages: list[WireMessage] = []
    for index, city in enumerate(cities):
        function = {"name": "get_weather", "arguments": json.dumps({"city": city})}
        messages += [
            {"role": "user", "content": f"Weather in {city}?"},
            {
                "role": "assistant",
                "content": "",
                "tool_calls": [{"id": f"c{index}", "type": "function", "function": function}],
            },
            {"role": "tool", "tool_call_id": f"c{index}", "content": "Sunny."},
            {"role": "assistant", "content": "Sunny."},
        ]
    return [*messages, {"role": "user", "content": "Weather in Paris?"}]


async def replied(server: LlamaServer, request: Request) -> tuple[str, Finished]:
    pieces: list[Piece] = [piece async for piece in server.chat(request)]
    assert isinstance(pieces[-1], Finished)
    return "".join(piece.text for piece in pieces if isinstance(piece, Delta)), pieces[-1]


async def test_the_default_model_calls_no_tools_and_drops_them(home: Path) -> None:
    started = await embedded.start(ModelStore(home).path(DEFAULT), name="small", window=1024, threads=1)
    try:
        server = LlamaServer(started.url, key=started.key, kind="embedded")
        (model,) = (await server.probe()).models
        assert model.calls_tools is False
        assert "no-tools" in [advice.code for advice in model.warnings]
        messages = asked("Oslo")[-1:]
        assert await server.count(messages, TOOLS) == await server.count(messages)
        _, end = await replied(server, Request(messages, 8, TOOLS, temperature=0))
        assert (end.called_tools, end.calls) == (False, ())
        await server.close()
    finally:
        started.stop()


async def test_a_template_with_tools_makes_it_call_them(home: Path) -> None:
    with serving(home) as url:
        server = LlamaServer(url)
        (model,) = (await server.probe()).models
        assert model.calls_tools is True
        messages = asked("Oslo", "Rome", "Bern", "Riga")
        count = await server.count(messages, TOOLS)
        text, end = await replied(server, Request(messages, 60, TOOLS, temperature=0))
        assert text.strip() == ""
        assert (end.reason, end.called_tools) == ("tool_calls", True)
        (call,) = end.calls
        assert call.id
        assert (call.name, json.loads(call.arguments)) == ("get_weather", {"city": "Paris"})
        assert count is not None
        assert end.usage.prompt == count.tokens

        form = Outline(("Goal",), 1, 40)
        text, outlined = await replied(server, Request(messages, 60, TOOLS, temperature=0, outline=form))
        assert text.startswith("## Goal\n- ")
        assert (outlined.calls, outlined.usage.prompt) == ((), end.usage.prompt)
        assert outlined.usage.cached == count.tokens - 1, "the prompt is the same to the last token"

        broken = json.loads(json.dumps(messages).replace('\\"Oslo\\"}', '\\"Os'))
        with pytest.raises(ServerFailed, match="Failed to parse tool call arguments"):
            await replied(server, Request(broken, 8, TOOLS))


async def test_without_jinja_tools_are_refused(home: Path) -> None:
    with serving(home, "no jinja") as url:
        server = LlamaServer(url)
        messages = asked()
        with pytest.raises(ToolsRefused, match="--jinja"):
            await replied(server, Request(messages, 8, TOOLS))
        assert await server.count(messages, TOOLS) is None
        _, end = await replied(server, Request(messages, 8))
        assert end.calls == ()
