from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from localctx.config import load
from localctx.core.approval import Verdict, Wish
from localctx.core.outgoing import WireMessage
from localctx.core.secrets import Secrets
from localctx.ports import Outcome, Tool
from localctx.wiring import connect
from localctx.wiring.tooling import chosen
from tests.fakes.llama_server import Fake, running

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@dataclass(frozen=True)
class Own:
    name: str

    @property
    def schema(self) -> WireMessage:
        return {"type": "function", "function": {"name": self.name}}

    async def run(self, _arguments: Mapping[str, object]) -> Outcome:
        return Outcome("")


class Nobody:
    async def of(self, wish: Wish) -> Verdict:
        raise AssertionError(wish)


def names(text: str, folder: Path) -> list[str]:
    given = load({"tools": text}, environment={}, project=folder, user=folder)
    own: list[Tool] = [Own("my_own"), Own("recall")]
    return [tool.name for tool in chosen(given.tool_sets("all"), own, folder, Nobody(), str, secrets=Secrets())]


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("none", ""),
        ("session", "recall my_own"),
        ("write, command", "run_command edit_file write_file"),
        ("read,web", "read_file list_dir grep find fetch_url"),
        ("all,web", "read_file run_command edit_file list_dir grep write_file recall find fetch_url my_own"),
    ],
)
def test_the_sets_that_are_named_are_chosen_in_the_order_of_their_use(text: str, wanted: str, tmp_path: Path) -> None:
    assert names(text, tmp_path) == wanted.split()


def test_a_system_that_cannot_confine_has_neither_files_nor_commands(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(os, "supports_dir_fd", frozenset[object]())
    assert names("all", tmp_path) == ["recall", "my_own"]


async def test_a_program_of_one_s_own_offers_no_tools_of_files_unless_it_says_so(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("LOCALCTX_HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    with running(Fake(n_ctx=16384, tools=True)) as fake:
        async with connect(url=fake.url) as chat:
            offered = [shelf.name for shelf in chat.tools.shelves if shelf.state == "offered"]
            session = ["retrieve_tool_result", "recall", "update_work_state", "context_info", "summarize_context"]
            assert offered == session
        async with connect(url=fake.url, tools="read") as chat:
            assert [shelf.name for shelf in chat.tools.shelves] == ["read_file", "list_dir", "grep", "find"]
