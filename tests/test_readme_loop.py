"""The README's loop of one's own, as it stands there, against a server."""

from __future__ import annotations

import re
import textwrap
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import anyio
import httpx
import pytest

import localctx
from tests.app.conftest import answering
from tests.fakes.llama_server import Calls, Fake, running

README = (Path(__file__).parent.parent / "README.md").read_text(encoding="utf-8")
TOOLS = [{"type": "function", "function": {"name": "look", "parameters": {"type": "object", "properties": {}}}}]


class Completions:
    """As much of OpenAI's client as the loop uses."""

    def __init__(self, url: str) -> None:
        self.url = url

    async def create(self, **body: object) -> SimpleNamespace:
        async with httpx.AsyncClient() as http:
            said = (await http.post(f"{self.url}/v1/chat/completions", json=body)).raise_for_status().json()
        message = said["choices"][0]["message"]
        choice = SimpleNamespace(message=SimpleNamespace(model_dump=lambda **_: message))
        return SimpleNamespace(choices=[choice], usage=SimpleNamespace(**said["usage"]))


def test_it_runs_past_its_window(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOCALCTX_HOME", str(tmp_path))
    monkeypatch.setenv("LOCALCTX_OFFLINE", "1")
    (block,) = (each for each in re.findall(r"```python\n(.*?)```", README, re.DOTALL) if "chat.settle" in each)
    left = iter([Calls("", [("look", "{}")])] * 20)

    def reply(body: dict[str, Any]) -> str | Calls:
        return answering("")(body) if "grammar" in body else next(left, "Done.")

    with running(Fake(n_ctx=2048, tools=True, reply=reply)) as fake:
        code = f"async def loop():\n{textwrap.indent(block, '    ')}    return chat"
        completions = SimpleNamespace(completions=Completions(fake.url))
        names: dict[str, Any] = {
            "localctx": localctx,
            "task": "Look around, and never touch anything.",
            "tools": TOOLS,
            "client": SimpleNamespace(chat=completions),
            "run": lambda _call: "what is to be seen here\n" * 60,
        }
        exec(code.replace("http://127.0.0.1:8080", fake.url), names)  # noqa: S102  it is ours, and is to be run
        chat = anyio.run(names["loop"])
        last = fake.chats[-1]
    assert "never touch anything" in str(last["messages"][0]["content"])
    assert chat.session.history.checkpoint is not None
    assert fake.prompt_tokens(last) + last["max_tokens"] <= 2048
