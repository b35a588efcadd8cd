"""A server's own tokenizer, asked text by text beforehand, as one in this process."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable

    from localctx.core.accounting import Count

__all__ = ["RemoteTokenizer"]


class RemoteTokenizer:
    """Sizes of texts that a server has counted; each text is asked once, by `prepare`, before its size is wanted."""

    def __init__(self, how: str, ask: Callable[[str], Awaitable[Count | None]]) -> None:
        self.how, self._ask = how, ask
        self._sizes: dict[str, int] = {"": 0}

    async def prepare(self, texts: Iterable[str]) -> bool:
        """Asks for every text that is new; False where the server cannot count texts. Raises what the server's call raises."""
        for text in texts:
            if text not in self._sizes:
                counted = await self._ask(text)
                if counted is None:
                    return False
                self._sizes[text] = counted.tokens
        return True

    def size(self, text: str) -> int:
        """The tokens of a prepared text."""
        return self._sizes[text]

    def rendered(self, prompt: str) -> int:
        """The tokens of a prepared text; a server counts rendered prompts itself, from their messages."""
        return self._sizes[prompt]
