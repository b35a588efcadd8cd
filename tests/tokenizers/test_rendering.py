from __future__ import annotations

from collections.abc import AsyncIterator
from time import monotonic

import pytest

from localctx.tokenizers import rendering
from localctx.tokenizers.rendering import TemplateProgram

pytest.importorskip("jinja2")
pytestmark = pytest.mark.anyio

ASK = [{"role": "user", "content": "Hi, größe 🎉\nthere"}]
PLAIN = "{{ bos_token }}{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}{{ tools | length if tools else '' }}"
ENDLESS = "{% for a in messages * 99999 %}{% for b in messages * 99999 %}{% endfor %}{% endfor %}"


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
async def program() -> AsyncIterator[TemplateProgram]:
    made = TemplateProgram()
    yield made
    await made.close()


async def test_one_program_renders_one_chat_after_the_other(program: TemplateProgram) -> None:
    assert await program.render(PLAIN, ASK, bos="<s>") == "<s><user>Hi, größe 🎉\nthere"
    first = program._process
    tool = {"type": "function", "function": {"name": "f"}}
    assert await program.render(PLAIN, ASK, [tool]) == "<user>Hi, größe 🎉\nthere1"
    assert await program.render("{{ raise_exception('no') }}", ASK) is None
    assert program._process is first


async def test_a_long_chat_passes_through(program: TemplateProgram) -> None:
    long = [{"role": "user", "content": "word " * 200_000}]
    assert len(await program.render(PLAIN, long) or "") > 1_000_000


@pytest.mark.parametrize("template", [ENDLESS, "{{ 2 ** (2 ** 99) }}", "{% set a = 'x' * 10 ** 10 %}"])
async def test_what_takes_too_long_or_too_much_is_ended(
    program: TemplateProgram, monkeypatch: pytest.MonkeyPatch, template: str
) -> None:
    monkeypatch.setattr(rendering, "_SECONDS", 2.0)
    started = monotonic()
    assert await program.render(template, ASK) is None
    assert monotonic() - started < 10
    assert await program.render(PLAIN, ASK) == "<user>Hi, größe 🎉\nthere", "and the next one is served"


async def test_what_is_closed_twice_is_closed(program: TemplateProgram) -> None:
    await program.close()
    await program.render(PLAIN, ASK)
    await program.close()
    await program.close()
