"""GGUF files on this machine: what a header says, read within bounds, and where Ollama keeps its own.

Nothing in a file is trusted to be small, short or true: counts, lengths and time are bounded, and the vocabulary is
stepped over without being kept, unless it is what is asked for.
"""

from __future__ import annotations

import os
import re
import stat
import struct
from dataclasses import dataclass, field
from typing import IO, TYPE_CHECKING, Any, TypeAlias

from localctx.core.fit import Weights
from localctx.core.vocabulary import Vocabulary
from localctx.errors import ModelMissing

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

__all__ = ["Header", "Value", "read", "vocabulary"]

Value: TypeAlias = "int | float | bool | str | tuple[int | float | bool, ...]"

_MAGIC = b"GGUF"
_VERSIONS = (2, 3)
_CHUNK_BYTES = 1 << 20
_MOST_PAIRS = 1 << 16
_MOST_TENSORS = 1 << 17
_MOST_ELEMENTS = 1 << 24
"""Elements that are stepped over one by one in a header; the largest vocabularies have a fiftieth of them."""
_MOST_KEY_BYTES = 1 << 16
_MOST_TEXT_BYTES = 1 << 12
"""A longer text, such as a chat template, is not kept."""
_MOST_KEPT = 1 << 10
"""A longer array is not kept; one with a number for each layer is shorter."""
_MOST_WHOLE = 1 << 21
_MOST_WHOLE_BYTES = 1 << 26
"""Elements of an array that is kept whole, and bytes of a text or of all its texts: four times the largest vocabularies."""
_MOST_DIMENSIONS = 4
_MOST_PARTS = 1000

_STRING, _ARRAY, _BOOL = 8, 9, 7
_NUMBERS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "B", 10: "Q", 11: "q", 12: "d"}

_BLOCKS = {
    **dict.fromkeys((0, 26), (1, 4)),  # F32, I32
    **dict.fromkeys((1, 25, 30), (1, 2)),  # F16, I16, BF16
    **dict.fromkeys((27, 28), (1, 8)),  # I64, F64
    24: (1, 1),  # I8
    **dict.fromkeys((2, 20), (32, 18)),  # Q4_0, IQ4_NL
    3: (32, 20),  # Q4_1
    6: (32, 22),  # Q5_0
    7: (32, 24),  # Q5_1
    8: (32, 34),  # Q8_0
    9: (32, 36),  # Q8_1
    39: (32, 17),  # MXFP4
    40: (64, 36),  # NVFP4
    41: (128, 18),  # Q1_0
    42: (64, 18),  # Q2_0
    10: (256, 84),  # Q2_K
    **dict.fromkeys((11, 21), (256, 110)),  # Q3_K, IQ3_S
    12: (256, 144),  # Q4_K
    13: (256, 176),  # Q5_K
    14: (256, 210),  # Q6_K
    15: (256, 292),  # Q8_K
    **dict.fromkeys((16, 35), (256, 66)),  # IQ2_XXS, TQ2_0
    17: (256, 74),  # IQ2_XS
    18: (256, 98),  # IQ3_XXS
    19: (256, 50),  # IQ1_S
    22: (256, 82),  # IQ2_S
    23: (256, 136),  # IQ4_XS
    29: (256, 56),  # IQ1_M
    34: (256, 54),  # TQ1_0
}
"""Elements and bytes of a block, by ggml's number of the type (ggml.h and ggml-common.h of llama.cpp b11549)."""

_PART = re.compile(r"-(\d{5})-of-(\d{5})\.gguf$")
_LAYER = re.compile(r"blk\.(\d{1,4})\.")


@dataclass(frozen=True, slots=True)
class Header:
    """What a model's file says of itself, all its parts together; long texts and arrays are left out of `metadata`."""

    path: Path
    metadata: Mapping[str, Value]
    weights: Weights

    @property
    def trained(self) -> int | None:
        """The window that the weights support, in tokens, if the file says it."""
        length = self.metadata.get(f"{self.metadata.get('general.architecture')}.context_length")
        return length if isinstance(length, int) and length > 0 else None


def read(path: Path) -> Header:
    """The header of a GGUF file, and of its other parts if it was split.

    Raises:
        ModelMissing: a part is not there or cannot be read, is no GGUF, is damaged or was cut short.
    """
    first = _read_part(path)
    metadata, layers, rest = dict(first.metadata), dict(first.layers), first.rest
    for other in _other_parts(path, metadata):
        part = _read_part(other)
        rest += part.rest
        for layer, size in part.layers.items():
            layers[layer] = layers.get(layer, 0) + size
    ordered = tuple(layers.get(index, 0) for index in range(max(layers, default=-1) + 1))
    return Header(path, metadata, Weights(ordered, rest))


def vocabulary(path: Path) -> Vocabulary | None:
    """The tokens of a GGUF file; None where it has none, or says of them what cannot be true.

    Raises:
        ModelMissing: the file is not there or cannot be read, is no GGUF, is damaged or was cut short.
    """
    try:
        with _regular(path) as file:
            cursor = _Cursor(file, path, os.fstat(file.fileno()).st_size)
            _, pairs = _beginning(cursor)
            return Vocabulary.of(_pairs(cursor, pairs, whole="tokenizer."))
    except OSError as error:
        raise _unreadable(path, error) from error


def _other_parts(path: Path, metadata: Mapping[str, Value]) -> list[Path]:
    count = metadata.get("split.count", 1)
    if not isinstance(count, int) or count <= 1:
        return []
    named = _PART.search(path.name)
    if named is None or int(named[2]) != count or count > _MOST_PARTS:
        raise ModelMissing(
            f"{path} is one of {count} parts, but is not called NAME-00001-of-{count:05d}.gguf; "
            "give the parts the names that they were published under"
        )
    stem = path.name[: named.start()]
    parts = [path.with_name(f"{stem}-{number:05d}-of-{count:05d}.gguf") for number in range(1, count + 1)]
    return [part for part in parts if part.name != path.name]


@dataclass(slots=True)
class _Part:
    metadata: dict[str, Value] = field(default_factory=dict)
    layers: dict[int, int] = field(default_factory=dict)
    rest: int = 0


def _read_part(path: Path) -> _Part:
    try:
        with _regular(path) as file:
            return _parse(_Cursor(file, path, os.fstat(file.fileno()).st_size))
    except OSError as error:
        raise _unreadable(path, error) from error


def _unreadable(path: Path, error: OSError) -> ModelMissing:
    return ModelMissing(
        f"cannot read the model {path} ({error.strerror or error}); pass a GGUF file, or see: localctx models list"
    )


def _regular(path: Path) -> IO[bytes]:
    """Opens a file that is one: a named pipe would wait for a writer."""
    if not stat.S_ISREG(path.stat().st_mode):
        raise ModelMissing(f"{path} is no file; pass a GGUF file, or see: localctx models list")
    return path.open("rb", buffering=0)


class _Cursor:
    """Reads a file from front to back, a chunk at a time, and never past its end."""

    def __init__(self, file: IO[bytes], path: Path, size: int) -> None:
        self.path, self.size = path, size
        self._file, self._chunk, self._start, self._at = file, b"", 0, 0
        self._elements = _MOST_ELEMENTS

    @property
    def position(self) -> int:
        return self._start + self._at

    def damaged(self, why: str) -> ModelMissing:
        return ModelMissing(f"{self.path} is no whole GGUF file: {why}; fetch it again, or pass another file")

    def take(self, count: int) -> bytes:
        """The next bytes; `count` is small."""
        if self._at + count > len(self._chunk):
            self._fill(count)
        taken = self._chunk[self._at : self._at + count]
        self._at += count
        return taken

    def skip(self, count: int) -> None:
        if count > self.size - self.position:
            raise self.damaged(f"it ends within {count:,} bytes that its header announces")
        self._at += count

    def number(self, code: str) -> Any:  # noqa: ANN401  what `struct` unpacks depends on the code
        return struct.unpack("<" + code, self.take(struct.calcsize("<" + code)))[0]

    def text(self, limit: int) -> str | None:
        """The next text, or None, stepping over it, where it is longer than the limit."""
        length: int = self.number("Q")
        if length > limit:
            self.skip(length)
            return None
        return self.take(length).decode("utf-8", "replace")

    def skip_texts(self, count: int) -> None:
        """Steps over texts; this is where a vocabulary costs time."""
        self._elements -= count
        if self._elements < 0:
            raise self.damaged(f"its header lists more than {_MOST_ELEMENTS:,} texts")
        unpack = struct.Struct("<Q").unpack_from
        for _ in range(count):
            if self._at + 8 > len(self._chunk):
                self._fill(8)
            (length,) = unpack(self._chunk, self._at)
            if length > self.size:
                raise self.damaged(f"a text of {length:,} bytes is longer than the file")
            self._at += 8 + length

    def texts(self, count: int) -> tuple[str, ...]:
        """The next texts; what is too much together is refused."""
        left, texts = _MOST_WHOLE_BYTES, list[str]()
        unpack = struct.Struct("<Q").unpack_from
        for _ in range(count):
            if self._at + 8 > len(self._chunk):
                self._fill(8)
            (length,) = unpack(self._chunk, self._at)
            self._at += 8
            left -= length
            if left < 0:
                raise self.damaged(f"a list of texts in its header is longer than {_MOST_WHOLE_BYTES:,} bytes")
            texts.append(self.take(length).decode("utf-8", "replace"))
        return tuple(texts)

    def _fill(self, count: int) -> None:
        start = self.position
        if start + count > self.size:
            raise self.damaged("it ends within its header")
        self._file.seek(start)
        self._chunk, self._start, self._at = self._file.read(max(count, _CHUNK_BYTES)), start, 0
        if len(self._chunk) < count:
            raise self.damaged("it ends within its header")


def _parse(cursor: _Cursor) -> _Part:
    tensors, pairs = _beginning(cursor)
    part = _Part(_pairs(cursor, pairs))
    ends = [_tensor(cursor, part) for _ in range(tensors)]
    _check_length(cursor, part.metadata, max(ends, default=0))
    return part


def _beginning(cursor: _Cursor) -> tuple[int, int]:
    """How many tensors and pairs there are."""
    if cursor.size < len(_MAGIC) or (magic := cursor.take(len(_MAGIC))) != _MAGIC:
        found = "nothing" if not cursor.size else repr(magic if cursor.size >= len(_MAGIC) else b"?")
        raise ModelMissing(
            f"{cursor.path} is no GGUF file (it begins with {found}); pass one, or see: localctx models list"
        )
    version = cursor.number("I")
    if version not in _VERSIONS:
        raise ModelMissing(
            f"{cursor.path} is a GGUF of version {version}; versions 2 and 3 can be read: convert it again"
        )
    tensors, pairs = cursor.number("Q"), cursor.number("Q")
    if tensors > _MOST_TENSORS or pairs > _MOST_PAIRS:
        raise cursor.damaged(f"its header announces {tensors:,} tensors and {pairs:,} values")
    return tensors, pairs


def _pairs(cursor: _Cursor, count: int, whole: str | None = None) -> dict[str, Any]:
    """The metadata; long texts and arrays only under keys that begin with `whole`."""
    kept = dict[str, Any]()
    for _ in range(count):
        key = cursor.text(_MOST_KEY_BYTES)
        value = _value(cursor, cursor.number("I"), whole=bool(key and whole and key.startswith(whole)))
        if key is not None and value is not None:
            kept[key] = value
    return kept


def _value(cursor: _Cursor, kind: int, *, whole: bool) -> Value | tuple[str, ...] | None:
    if kind == _STRING:
        return cursor.text(_MOST_WHOLE_BYTES if whole else _MOST_TEXT_BYTES)
    if kind == _ARRAY:
        return _array(cursor, cursor.number("I"), cursor.number("Q"), _MOST_WHOLE if whole else 0)
    number: int | float = cursor.number(_code(cursor, kind))
    return bool(number) if kind == _BOOL else number


def _array(cursor: _Cursor, kind: int, count: int, most: int) -> tuple[Any, ...] | None:
    """The array, if it is one of a few numbers or of at most `most` elements; llama.cpp takes no arrays of arrays either."""
    if kind == _STRING:
        if count <= most:
            return cursor.texts(count)
        cursor.skip_texts(count)
        return None
    code = _code(cursor, kind)
    size = count * struct.calcsize("<" + code)
    if count > max(most, _MOST_KEPT):
        cursor.skip(size)
        return None
    numbers = struct.unpack(f"<{count}{code}", cursor.take(size))
    return tuple(map(bool, numbers)) if kind == _BOOL else numbers


def _code(cursor: _Cursor, kind: int) -> str:
    if kind not in _NUMBERS:
        raise cursor.damaged(f"its header has a value of the unknown type {kind}")
    return _NUMBERS[kind]


def _tensor(cursor: _Cursor, part: _Part) -> int:
    """Adds a tensor to the part; returns where its data ends, counted from where data begins."""
    name, dimensions = cursor.text(_MOST_KEY_BYTES) or "", cursor.number("I")
    if dimensions > _MOST_DIMENSIONS:
        raise cursor.damaged(f"a tensor has {dimensions:,} dimensions")
    row, *others = [cursor.number("Q") for _ in range(dimensions)] or [1]
    kind, offset = cursor.number("I"), cursor.number("Q")
    if kind not in _BLOCKS:
        raise ModelMissing(
            f"{cursor.path} has weights of a type (number {kind}) that this version does not know; "
            "ask llama.cpp itself: llama-server -m FILE"
        )
    block, size = _BLOCKS[kind]
    for other in others:
        row *= other
    held = row // block * size
    layer = _LAYER.match(name)
    if layer is None:
        part.rest += held
    else:
        part.layers[int(layer[1])] = part.layers.get(int(layer[1]), 0) + held
    end: int = offset + held
    return end


def _check_length(cursor: _Cursor, metadata: Mapping[str, Value], end: int) -> None:
    given = metadata.get("general.alignment", 32)
    alignment = given if isinstance(given, int) and 0 < given <= _CHUNK_BYTES else 32
    begin = -(-cursor.position // alignment) * alignment
    if end and begin + end > cursor.size:
        raise cursor.damaged(f"{begin + end - cursor.size:,} of its {begin + end:,} bytes are missing")
