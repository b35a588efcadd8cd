"""llama.cpp's own tokenizer in this process, from a file's vocabulary alone; it needs llama-cpp-python."""

from __future__ import annotations

import ctypes
import logging
import re
from contextlib import contextmanager
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any
from weakref import finalize

from localctx.core.vocabulary import Specials
from localctx.errors import MissingExtra, ModelMissing
from localctx.tokenizers.gguf import ByParts

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

__all__ = ["ReferenceTokenizer", "reference"]

_UNKNOWN, _CONTROL, _USER_DEFINED, _STRIPS = 1 << 0, 1 << 3, 1 << 4, 1 << 8
_SPECIAL = _UNKNOWN | _CONTROL | _USER_DEFINED
_PIECES = 1
"""Attributes of a token and the kind of a vocabulary, as `llama.h` has them."""

_MORE = 8
"""Tokens that a text may have beyond its bytes: those of a space before it."""

_CHUNK = 4096
"""Characters after which a text is divided where that changes nothing: for some vocabularies one call takes time that
grows with the square of its text."""


class ReferenceTokenizer(ByParts):
    """What llama.cpp makes of a text. Nothing is written to the log."""

    how = "llama.cpp vocabulary"

    def __init__(self, path: Path) -> None:
        """Reads the vocabulary; the weights stay on the disk.

        Have the header read before (`hardware.gguf`): llama.cpp ends the program where a vocabulary contradicts itself.

        Raises:
            MissingExtra: llama-cpp-python is not installed.
            ModelMissing: llama.cpp cannot load the file.
        """
        self._model = _Model(path)
        super().__init__(self._model, *self._model.specials(), bos=self._model.end("bos"), eos=self._model.end("eos"))

    def ids(self, text: str, *, parse: bool = False) -> list[int]:
        """The tokens of a text in one call, without BOS and EOS; special ones too where it is a prompt to `parse`."""
        return self._model.tokens(text, parse=parse)


def reference(path: Path) -> ReferenceTokenizer | None:
    """The tokenizer of a file; None where llama-cpp-python is not installed or cannot load it."""
    try:
        return ReferenceTokenizer(path)
    except (MissingExtra, ModelMissing):
        return None


class _Model:
    """A vocabulary that llama.cpp holds."""

    def __init__(self, path: Path) -> None:
        if find_spec("llama_cpp") is None:
            raise MissingExtra("reference", "llama-cpp-python", "llama.cpp's own tokenizer")
        with _quiet():
            self._llama = import_module("llama_cpp")
            params = self._llama.llama_model_default_params()
            params.vocab_only = True
            model = self._llama.llama_model_load_from_file(str(path).encode(), params)
        if not model:
            raise ModelMissing(f"llama.cpp cannot load the vocabulary of {path}; fetch the file again, or pass another")
        finalize(self, self._llama.llama_model_free, model)
        self._vocabulary = self._llama.llama_model_get_vocab(model)
        self._texts = [
            self._ask("get_text", place).decode("utf-8", "replace") for place in range(self._ask("n_tokens"))
        ]
        self._between = self._boundary(model)

    def _ask(self, what: str, *given: int) -> Any:  # noqa: ANN401  what llama.cpp answers depends on the question
        return getattr(self._llama, f"llama_vocab_{what}")(self._vocabulary, *given)

    def end(self, name: str) -> str | None:
        """The text of `bos` or `eos`, where prompts have it."""
        return self._texts[self._ask(name)] if self._ask(f"get_add_{name}") else None

    def specials(self) -> tuple[Specials, Specials]:
        """The special tokens of any text, and those of a prompt."""
        attributes = [(text, place, self._ask("get_attr", place)) for place, text in enumerate(self._texts)]
        strips = frozenset(text for text, _, attribute in attributes if attribute & _STRIPS)
        known = [(text, place, attribute & _SPECIAL) for text, place, attribute in attributes if attribute & _SPECIAL]
        of_users = {text: place for text, place, attribute in known if attribute == _USER_DEFINED}
        return Specials(of_users, strips), Specials({text: place for text, place, _ in known}, strips)

    def parts(self, text: str) -> Iterator[str]:
        start = 0
        while start < len(text):
            found = self._between.search(text, start + _CHUNK)
            yield text[start : found.start() if found else len(text)]
            start = found.end() if found else len(text)

    def ids(self, part: str) -> list[int]:
        return self.tokens(part, parse=False)

    def tokens(self, text: str, *, parse: bool) -> list[int]:
        """What one call makes of a text."""
        encoded = text.encode(errors="replace")
        ids = (ctypes.c_int32 * (len(encoded) + _MORE))()
        given = (self._vocabulary, encoded, len(encoded), ids, len(ids))
        count = self._llama.llama_tokenize(*given, False, parse)  # noqa: FBT003  without BOS and EOS
        return ids[:count]

    def _boundary(self, model: object) -> re.Pattern[str]:
        """Where a text may be divided: before a space between words, or before a line; nowhere if a token reaches over that."""
        pieces = self._llama.llama_vocab_type(self._vocabulary) == _PIECES
        over = re.compile("[A-Za-z]\u2581" if pieces else "[\u010a\n][A-Za-z]")
        if any(map(over.search, self._texts)):
            return re.compile(r"(?!)")
        if not pieces:
            return re.compile(r"(?<=\S\n)(?=[A-Za-z])")
        return re.compile("(?<=[A-Za-z]) (?=[A-Za-z])" if self._adds_space(model) else "(?<=[A-Za-z])(?= [A-Za-z])")

    def _adds_space(self, model: object) -> bool:
        """Whether llama.cpp puts a space before each text, which then stands for the one at a boundary."""
        said = ctypes.create_string_buffer(8)
        found = self._llama.llama_model_meta_val_str(model, b"tokenizer.ggml.add_space_prefix", said, len(said))
        return found < 0 or said.value == b"true"


@contextmanager
def _quiet() -> Iterator[None]:
    """Keeps what llama.cpp says while it loads from the standard error stream."""
    logger = logging.getLogger("llama-cpp-python")
    before = logger.level
    logger.setLevel(logging.CRITICAL + 1)
    try:
        yield
    finally:
        logger.setLevel(before)
