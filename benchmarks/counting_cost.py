"""What counting costs: a turn in a short and in a long history, and a megabyte of text by each counter."""

from __future__ import annotations

import statistics
from functools import partial
from time import perf_counter
from typing import TYPE_CHECKING

from benchmarks.corpus import sample
from benchmarks.counting_errors import Silent
from localctx.app.meter import Meter
from localctx.core.messages import History, Message, Said
from localctx.hardware import gguf as files
from localctx.tokenizers import gguf, tiktoken
from localctx.tokenizers.estimate import ClassEstimate

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path
    from typing import TypeAlias

    from tiktoken import Encoding

    from localctx.core.vocabulary import Vocabulary

    _Count: TypeAlias = Callable[[str], object]
    _Start: TypeAlias = Callable[[], _Count]

__all__ = ["throughput", "turns"]


def turns(*, rounds: int) -> Iterator[dict[str, object]]:
    """Microseconds that a message more costs, and what is left when the tokenizing of its text is taken off."""
    for messages in (10, 100, 1_000, 10_000):
        history = _grown(messages)
        counter = ClassEstimate()
        meter = Meter(Silent(), counter)
        meter.rough(history)
        meter.measured(1_000, messages)
        costs, beyond = list[float](), list[float]()
        for turn in range(rounds):
            text = f"{turn} {sample('english', 400, turn)}"
            started = perf_counter()
            counter.text(text)
            tokenized = perf_counter() - started
            history = history.add(Message("user", text, seq=messages + turn + 1))
            started = perf_counter()
            meter.rough(history)
            added = perf_counter() - started
            costs.append(tokenized + added)
            beyond.append(added)
        yield {
            "messages before": f"{messages:,}",
            "a message more, us": statistics.median(costs) * 1e6,
            "beyond tokenizing it, us": statistics.median(beyond) * 1e6,
        }


def _grown(messages: int) -> History:
    history = History()
    for seq in range(1, messages + 1):
        text = f"message {seq} of a long conversation about nothing in particular"
        history = history.add(Message("user", text, seq=seq) if seq % 2 else Said(text, seq=seq))
    return history


_TEXTS = {"prose": "english", "code": "code-python", "JSON": "json", "Chinese": "chinese-simplified"}
_MESSAGE = 4_000
"""Characters of the pieces that a text is counted in: what a long message has."""


def throughput(given: Mapping[str, Path], *, size: int) -> Iterator[dict[str, object]]:
    """Megabytes of UTF-8 a second, the text given in pieces, each seen for the first time."""
    texts = {name: sample(kind, size, 1) for name, kind in _TEXTS.items()}
    for counter, start in _counters(given):
        row: dict[str, object] = {"counter": counter}
        for name, text in texts.items():
            row[f"{name}, MB/s"] = len(text.encode()) / 1e6 / _seconds(start(), text)
        yield row


def _seconds(count: _Count, text: str) -> float:
    pieces = [text[at : at + _MESSAGE] for at in range(0, len(text), _MESSAGE)]
    count(text[:100])  # what is built when it is first used
    started = perf_counter()
    for piece in pieces:
        count(piece)
    return perf_counter() - started


def _counters(given: Mapping[str, Path]) -> Iterator[tuple[str, _Start]]:
    """Each counter under its name, made anew for each text, and the libraries themselves beside ours."""
    yield "estimate", lambda: ClassEstimate().text
    for name, path in given.items():
        vocabulary = files.vocabulary(path)
        counter = gguf.tokenizer(vocabulary) if vocabulary else None
        if vocabulary is not None and counter is not None:
            yield f"{name}, GGUF vocabulary", partial(_fresh, vocabulary)
            if isinstance(encoder := counter._encoder, gguf._Merges):  # noqa: SLF001  the library without what we add
                yield f"{name}, raw tokenizers", partial(_itself, encoder._encode)  # noqa: SLF001  as above
    for name in ("o200k_base", "cl100k_base"):
        encoding = tiktoken.encoding(name)
        if encoding is not None:
            raw = encoding._encoding  # noqa: SLF001  as above
            yield f"tiktoken {name}", partial(_anew, raw)
            yield f"raw tiktoken {name}", partial(_itself, raw.encode_ordinary)


def _fresh(vocabulary: Vocabulary) -> _Count:
    made = gguf.tokenizer(vocabulary)
    assert made is not None  # noqa: S101  it could be made a moment ago
    return made.size


def _anew(encoding: Encoding) -> _Count:
    return tiktoken.TiktokenTokenizer(encoding).size


def _itself(count: _Count) -> _Count:
    return count
