"""The vocabularies that are at hand to measure with: those of GGUF files, and tiktoken's."""

from __future__ import annotations

from typing import TYPE_CHECKING

from localctx.hardware import gguf as files
from localctx.stores.models import ModelStore
from localctx.tokenizers import gguf, tiktoken
from localctx.wiring.places import home

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from localctx.ports import Tokenizer

__all__ = ["models", "vocabularies"]


def models(given: Sequence[Path]) -> dict[str, Path]:
    """GGUF files by name: those that were given, and the small models that were fetched."""
    store = ModelStore(home())
    here = {known.name: store.path(known.name) for known in store.known if store.has(known.name)}
    return here | {path.stem: path for path in given}


def vocabularies(given: Sequence[Path]) -> dict[str, Tokenizer]:
    """What counts as those models do, and as OpenAI's encodings whose ranks are here."""
    found: dict[str, Tokenizer] = {}
    for name, path in models(given).items():
        vocabulary = files.vocabulary(path)
        if vocabulary is not None and (counter := gguf.tokenizer(vocabulary)) is not None:
            found[name] = counter
    for name in ("o200k_base", "cl100k_base"):
        if (encoding := tiktoken.encoding(name)) is not None:
            found[name] = encoding
    return found
