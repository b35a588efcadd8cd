"""Rendering strangers' chat templates in a program of its own, which is ended when it takes too long or too much."""

from __future__ import annotations

import json
import subprocess
import sys
from contextlib import suppress
from math import ceil
from typing import TYPE_CHECKING

import anyio
from anyio.streams.buffered import BufferedByteReceiveStream

from localctx.core.accounting import Count
from localctx.core.portions import Kind, portions
from localctx.tokenizers.chat_template import render

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from anyio.abc import Process

    from localctx.core.outgoing import WireMessage
    from localctx.core.vocabulary import Vocabulary
    from localctx.ports import Tokenizer

__all__ = ["TemplateProgram"]

_SECONDS = 10.0
_MOST_MEMORY = 2 << 30
_MOST_LINE = 1 << 28
"""What one render may take: time, address space, and bytes of its answer."""


_MEDIA = {Kind.IMAGE, Kind.AUDIO, Kind.FILE}

_OFF, _ERROR = 4, 0.01
"""Tokens, and the share, by which a prompt that Jinja2 renders may be off from a server's: of the texts that 71 templates made
of 59 lists nine in ten were the same, and most others differed in a thought that is opened or closed."""


class TemplateProgram:
    """Renders as `chat_template.render` does. The program starts with the first render and serves the ones after it."""

    def __init__(self) -> None:
        self._process: Process | None = None
        self._answers: BufferedByteReceiveStream | None = None

    async def render(
        self,
        template: str,
        messages: Sequence[Mapping[str, object]],
        tools: Sequence[Mapping[str, object]] = (),
        *,
        bos: str = "",
        eos: str = "",
    ) -> str | None:
        """The prompt; None where there is none, or where it took too long or too much."""
        asked = {"template": template, "messages": list(messages), "tools": list(tools), "bos": bos, "eos": eos}
        with anyio.move_on_after(_SECONDS), suppress(OSError, anyio.EndOfStream, anyio.BrokenResourceError, ValueError):
            return await self._answer(json.dumps(asked).encode() + b"\n")
        await self.close()
        return None

    async def count(
        self,
        tokenizer: Tokenizer,
        vocabulary: Vocabulary,
        messages: Sequence[WireMessage],
        tools: Sequence[WireMessage] = (),
    ) -> Count | None:
        """The tokens of a request as the template of a model's file renders it; None where that cannot be said."""
        if any(portion.kind in _MEDIA for message in messages for portion in portions(message)):
            return None
        template = vocabulary.chat_template(tools=bool(tools))
        prompt = await self.render(template, messages, tools, bos=vocabulary.bos, eos=vocabulary.eos)
        if prompt is None:
            return None
        tokens = tokenizer.rendered(prompt)
        return Count(tokens, _OFF + ceil(tokens * _ERROR), f"{tokenizer.how} and chat template")

    async def _answer(self, line: bytes) -> str | None:
        if self._process is None or self._answers is None:
            command = [sys.executable, "-P", "-m", "localctx.tokenizers.rendering"]
            self._process = await anyio.open_process(command, stderr=subprocess.DEVNULL)
            assert self._process.stdout is not None  # noqa: S101  a pipe, as was asked
            self._answers = BufferedByteReceiveStream(self._process.stdout)
        assert self._process.stdin is not None  # noqa: S101  as above
        async with anyio.create_task_group() as group:
            group.start_soon(self._process.stdin.send, line)
            answer = json.loads(await self._answers.receive_until(b"\n", _MOST_LINE))
        return answer if isinstance(answer, str) else None

    async def close(self) -> None:
        """Ends the program."""
        if self._process is not None:
            with suppress(ProcessLookupError):
                self._process.kill()
            with anyio.CancelScope(shield=True):
                await self._process.aclose()
        self._process = self._answers = None


def _serve() -> None:
    with suppress(ImportError, ValueError, OSError):  # where there are no limits, there is the deadline
        import resource  # noqa: PLC0415  not on Windows

        resource.setrlimit(resource.RLIMIT_AS, (_MOST_MEMORY, _MOST_MEMORY))
    for line in sys.stdin.buffer:
        asked = json.loads(line)
        prompt = render(asked["template"], asked["messages"], asked["tools"], bos=asked["bos"], eos=asked["eos"])
        sys.stdout.write(json.dumps(prompt) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    _serve()
