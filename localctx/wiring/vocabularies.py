"""The vocabulary of a model, wherever it is at hand."""

from __future__ import annotations

import os
from contextlib import suppress
from typing import TYPE_CHECKING

import anyio.to_thread

from localctx.core.vocabulary import Vocabulary
from localctx.errors import LocalctxError
from localctx.hardware import gguf as files
from localctx.hardware import ollama
from localctx.tokenizers import gguf, reference, tiktoken
from localctx.tokenizers.counting import by_tokenizer

if TYPE_CHECKING:
    from pathlib import Path

    from localctx.core.window import ModelReport
    from localctx.ports import Counter, Tokenizer
    from localctx.runtimes.ollama_chat import OllamaServer

__all__ = ["encoded", "ollama_tokenizer", "tokenizer_of"]


def tokenizer_of(path: Path) -> tuple[Tokenizer | None, Vocabulary | None]:
    """What counts as the model in a GGUF file does, and its vocabulary; None where that is not possible here."""
    vocabulary = files.vocabulary(path)
    if vocabulary is None:  # llama.cpp ends the program over a file that contradicts itself
        return None, None
    return gguf.tokenizer(vocabulary) or reference.reference(path), vocabulary


def encoded(model: str) -> Counter | None:
    """Counting with OpenAI's encoding of that name, if there is one and its ranks are here.

    The name alone speaks for it, and servers call other models so too: what they report may correct it.
    """
    found = tiktoken.tokenizer(model) if model else None
    return by_tokenizer(found, sure=False) if found else None


async def ollama_tokenizer(runtime: OllamaServer, model: ModelReport) -> Tokenizer | None:
    """The vocabulary of one of an Ollama's models: from its file, where that is the one this Ollama has, else as it says."""

    def local() -> Tokenizer | None:
        path = ollama.model_file(model.id, ollama.folders(os.environ), manifest_digest=model.digest)
        return tokenizer_of(path)[0] if path else None

    with suppress(LocalctxError):  # a folder of another user: Ollama says it as well
        if model.digest and (found := await anyio.to_thread.run_sync(local)):
            return found
    said = await runtime.vocabulary()
    vocabulary = Vocabulary.of(said) if said else None
    return await anyio.to_thread.run_sync(gguf.tokenizer, vocabulary) if vocabulary else None
