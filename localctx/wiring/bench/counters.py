"""The counters that there are here, each made anew; and what one takes in a process of its own."""

from __future__ import annotations

import gc
import json
import os
import sys
from contextlib import suppress
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, TypeAlias

import anyio
import psutil

from localctx.app.bench.tokenizer import Candidate
from localctx.errors import LocalctxError
from localctx.hardware import gguf as files
from localctx.hardware import ollama
from localctx.tokenizers import gguf, reference, tiktoken
from localctx.tokenizers.estimate import ClassEstimate, SeedRatio
from localctx.wiring.inside import PREFIX
from localctx.wiring.places import model_store

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sized

    from localctx.wiring.bench.subject import Subject

__all__ = ["candidates", "weights_of"]

Size: TypeAlias = "Callable[[str], int]"

_LOAD_SECONDS = 60


def candidates(path: Path | None) -> Iterator[Candidate]:
    """The estimate, the seed's baseline, the vocabulary of a file, and OpenAI's encodings, as far as they are here.

    Where a library does the work, it comes beside ours without what we add.
    """
    yield _candidate("estimate", "estimate")
    yield _candidate("characters a token (seed)", "seed")
    if path is not None:
        yield from _of_file(path)
    for name in ("o200k_base", "cl100k_base"):
        if (encoding := tiktoken.encoding(name)) is not None:
            yield _candidate(f"tiktoken {name}", "tiktoken", name, library=f"raw tiktoken {name}")
            yield _raw(f"raw tiktoken {name}", encoding._encoding.encode_ordinary)  # noqa: SLF001  the library without what we add


def _of_file(path: Path) -> Iterator[Candidate]:
    vocabulary = files.vocabulary(path)
    if vocabulary is not None and (found := gguf.tokenizer(vocabulary)) is not None:
        raw = found._encoder._encode if isinstance(found._encoder, gguf._Merges) else None  # noqa: SLF001  as above
        yield _candidate("GGUF vocabulary", "gguf", str(path), library="raw tokenizers" if raw else None)
        if raw is not None:
            yield _raw("raw tokenizers", partial(raw, add_special_tokens=False))
    if vocabulary is not None and reference.reference(path) is not None:
        yield _candidate("llama.cpp vocabulary", "reference", str(path))


def _candidate(name: str, kind: str, where: str = "", library: str | None = None) -> Candidate:
    return Candidate(name, partial(_made, kind, where), partial(_alone, kind, where), library)


def _raw(name: str, encode: Callable[[str], Sized]) -> Candidate:
    return Candidate(name, lambda: lambda text: len(encode(text)), _unknown)


async def _unknown() -> None:
    """What a library takes is in what ours takes."""


def _made(kind: str, where: str) -> Size:
    """A counter that has seen nothing. Raises `LocalctxError` where there is none."""
    match kind:
        case "estimate":
            return ClassEstimate().size
        case "seed":
            return SeedRatio().size
        case "tiktoken" if (encoding := tiktoken.encoding(where)) is not None:
            return tiktoken.TiktokenTokenizer(encoding._encoding).size  # noqa: SLF001  another, that remembers nothing
        case "gguf" if vocabulary := files.vocabulary(Path(where)):
            if (ours := gguf.tokenizer(vocabulary)) is not None:
                return ours.size
        case "reference" if (theirs := reference.reference(Path(where))) is not None:
            return theirs.size
    raise LocalctxError(f"there is no counter {kind} {where} any more")


async def _alone(kind: str, where: str) -> tuple[float, int] | None:
    """The seconds until a counter has counted a word in a new process, and the bytes by which that has grown."""
    with suppress(OSError, ValueError), anyio.move_on_after(_LOAD_SECONDS):
        command = [sys.executable, "-c", f"from {__name__} import main; main()", kind, where]
        done = await anyio.run_process(command, check=False)
        seconds, grown = json.loads(done.stdout)
        return float(seconds), int(grown)
    return None


def main() -> None:
    """The new process: prints what loading took."""
    gc.collect()
    here = psutil.Process()
    before, started = here.memory_info().rss, perf_counter()
    size = _made(*sys.argv[1:3])
    size("word")
    os.write(1, json.dumps([perf_counter() - started, here.memory_info().rss - before]).encode())


def weights_of(subject: Subject, model: str | None) -> Path | None:
    """The file of the model that is measured, where it is known to be on this machine."""
    if subject.runtime.kind == "embedded":
        name = (model or "").removeprefix(PREFIX)
        return Path(name).expanduser() if name.endswith(".gguf") else model_store().path(subject.model.id)
    if subject.runtime.kind == "ollama" and subject.model.digest:
        with suppress(LocalctxError):
            return ollama.model_file(subject.model.id, ollama.folders(os.environ), manifest_digest=subject.model.digest)
    return None
