"""`localctx fit`: the largest window that a model can be served with in this machine's memory, and what it costs."""

from __future__ import annotations

import json
import os
import re
import shlex
import textwrap
from collections import Counter
from dataclasses import asdict, dataclass
from ipaddress import ip_address
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal
from urllib.parse import urlsplit

import typer

from localctx.cli.options import AsJson
from localctx.cli.render import out
from localctx.core.fit import KV_TYPES, STEP, Fit, Memory, Shape, fit, kv_bytes, takes
from localctx.errors import DoesNotFit, Misuse, ModelMissing

if TYPE_CHECKING:
    from localctx.core.window import ServerReport
    from localctx.hardware.gguf import Header
    from localctx.hardware.machine import Machine

__all__ = ["command"]

Kv = Literal["f16", "q8_0", "q5_1", "q4_0"]
_MOST_SLOTS = 256  # LLAMA_MAX_SEQ
_WIDTH = 80


def command(
    model: Annotated[
        str,
        typer.Argument(help="A GGUF file, a small model, one of Ollama's, or what a server here serves (or its URL)."),
    ],
    memory: Annotated[
        str | None, typer.Option("--memory", help="What may be used, such as 24G: not what is free here now.")
    ] = None,
    kv: Annotated[Kv, typer.Option("--kv", help="The type that the cache is kept in.")] = "f16",
    parallel: Annotated[
        int, typer.Option("--parallel", min=1, max=_MOST_SLOTS, help="Slots; each gets a window of its own.")
    ] = 1,
    as_json: AsJson = False,
) -> None:
    """Say which window fits into memory, what it costs, and how to serve it."""
    from localctx.hardware import gguf
    from localctx.hardware.machine import machine

    header = gguf.read(_find(model))
    shape = Shape.of(header.metadata)
    here = machine()
    usable = _free(here) if memory is None else _given(memory, here)
    kinds = [kind for kind in KV_TYPES if takes(shape, kind)]
    if kv not in kinds:
        raise Misuse(f"this model's heads cannot be kept as {kv}; pass --kv with one of: {', '.join(kinds)}")
    fits = {kind: fit(shape, header.weights, usable, kv=kind, parallel=parallel) for kind in kinds}
    answer = _Answer(header, shape, usable, fits[kv], tuple(fits.values()), _hints(here, usable, given=memory))
    out(json.dumps(_document(answer), ensure_ascii=False, indent=1) if as_json else _table(answer))
    if not fits[kv].window:
        raise DoesNotFit(_refusal(answer))


@dataclass(frozen=True, slots=True)
class _Answer:
    header: Header
    shape: Shape
    memory: Memory
    chosen: Fit
    fits: tuple[Fit, ...]
    hints: tuple[str, ...]


# --- which memory -------------------------------------------------------------------------------------------------

_SIZE = re.compile(r"(\d{1,6}(?:\.\d{1,6})?) ?([KMGT])(i?B)?", re.IGNORECASE)
_POWERS = {"K": 1, "M": 2, "G": 3, "T": 4}


def _bytes(text: str) -> int:
    matched = _SIZE.fullmatch(text.strip())
    size = 0
    if matched is not None:
        base = 1000 if (matched[3] or "").upper() == "B" else 1024
        size = int(float(matched[1]) * base ** _POWERS[matched[2].upper()])
    if size <= 0:
        raise Misuse(f"--memory {text!r} is no size; write it like 24G or 512MiB (1024s), or 24GB (1000s)")
    return size


def _given(text: str, here: Machine) -> Memory:
    """What the user says may be used; where there is a GPU it is taken for a GPU's, with RAM behind it."""
    return Memory((_bytes(text),), "given by --memory", here.memory_available_bytes if here.gpus else 0)


def _free(here: Machine) -> Memory:
    """The GPUs' free memory, with RAM behind it, or where there is no GPU that can be asked, the RAM."""
    if here.gpus:
        names = ", ".join(f"{count} x {name}" if count > 1 else name for name, count in _names(here).items())
        return Memory(
            tuple(gpu.memory_free_bytes for gpu in here.gpus), f"free on {names}", here.memory_available_bytes
        )
    if not here.memory_available_bytes:
        raise Misuse("this system does not say how much memory is free; pass it: --memory 24G")
    return Memory((here.memory_available_bytes,), "of RAM available")


def _names(here: Machine) -> Counter[str]:
    return Counter(gpu.name for gpu in here.gpus or ())


def _hints(here: Machine, usable: Memory, *, given: str | None) -> tuple[str, ...]:
    hints = []
    if given is None and here.gpus is None:
        hints.append("there may be a GPU that could not be asked: pip install 'localctx[gpu]', or pass --memory 24G")
    if given is None and not usable.spare:
        hints.append(
            "llama-server's prompt cache may take up to 8 GiB of RAM more with time: --cache-ram 0 turns it off"
        )
    return tuple(hints)


# --- which file ---------------------------------------------------------------------------------------------------


def _find(model: str) -> Path:
    """The model's file. Raises `ModelMissing` and its kin, saying what was tried."""
    from localctx import wiring
    from localctx.hardware import ollama

    if "://" in model:
        return _served("", model)
    path = Path(model).expanduser()
    if path.suffix.lower() == ".gguf" or path.is_file():
        return path
    store, name = wiring.model_store(), model.removeprefix("embedded/")
    if name in {known.name for known in store.known}:
        if not store.has(name):
            raise ModelMissing(f"{name} is not here; fetch it with: localctx models pull {name}")
        return store.path(name)
    return ollama.model_file(model, ollama.folders(os.environ)) or _served(model, None)


def _served(model: str, url: str | None) -> Path:
    """The file of what a server on this machine serves, if it says where that is."""
    import anyio

    from localctx import wiring

    given = wiring.settings({"url": url, "model": model or None})
    reports = anyio.run(wiring.ask_all, given)
    found = [report for report in reports if report.models and report.runtime != "embedded"]
    if not found:
        raise ModelMissing(_tried(model, reports) if model else f"{url} serves no model: {_said(reports)}; check it")
    return _its_file(found[0], anyio.run(_path, found[0], given.key(os.environ)))


async def _path(report: ServerReport, key: str | None) -> str | None:
    from localctx.runtimes.http import ask, client

    if report.runtime != "llama-server":
        return None
    async with client(report.url, key) as http:
        match (await ask(http, "GET", "/props")).body:
            case {"model_path": str(path)} if path:
                return path
    return None


def _its_file(report: ServerReport, path: str | None) -> Path:
    server = f"{report.runtime} at {report.url}"
    if path is None:
        raise ModelMissing(f"{server} has it, but does not say where its file is; pass the GGUF file")
    if not _this_machine(report.url):
        raise ModelMissing(f"{server} has it in {path}, on another machine; run localctx fit there, or pass the file")
    if not os.access(path, os.R_OK):
        raise ModelMissing(f"{server} has it in {path}, which cannot be read from here; pass a GGUF file that can")
    return Path(path)


def _this_machine(url: str) -> bool:
    host = urlsplit(url).hostname or ""
    try:
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False


def _tried(model: str, reports: list[ServerReport]) -> str:
    return (
        f"no model {model!r}: it is no file, no known small model, none of Ollama's on this machine, and no server has "
        f"it ({_said(reports)}); pass a GGUF file, or see: localctx models list"
    )


def _said(reports: list[ServerReport]) -> str:
    servers = [report for report in reports if report.runtime != "embedded"]
    up = [report for report in servers if report.status != "down"]
    return "; ".join(f"{report.url}: {report.status}" for report in up) or "nothing answers"


# --- the answer ---------------------------------------------------------------------------------------------------


def _commands(answer: _Answer) -> list[str]:
    """How to serve the chosen fit; the embedded runtime has one slot, an f16 cache and no GPU."""
    chosen, path = answer.chosen, str(answer.header.path)
    if not chosen.window:
        return []
    words = ["llama-server", "-m", path, "-c", str(chosen.window * chosen.parallel), "-np", str(chosen.parallel)]
    if chosen.kv != "f16":
        words += ["-ctk", chosen.kv, "-ctv", chosen.kv]
    if chosen.spill:
        words += ["-ngl", str(chosen.spill.layers)]
    commands = [shlex.join(words)]
    if (chosen.kv, chosen.parallel) == ("f16", 1) and not answer.memory.spare and path.endswith(".gguf"):
        embedded = ["localctx", "run", "--runtime", "embedded", "--model", path, "--num-ctx", str(chosen.window)]
        commands.append(shlex.join(embedded))
    return commands


def _refusal(answer: _Answer) -> str:
    chosen, memory = answer.chosen, answer.memory
    least = kv_bytes(answer.shape, STEP, parallel=chosen.parallel, kv=chosen.kv) + chosen.state_bytes
    return (
        f"not even {STEP} tokens fit: weights {_size(chosen.weights)} and at least {_size(least)} of cache need "
        f"{_size(chosen.weights + least - memory.room)} more than the {_size(memory.room)} that there are "
        f"({_size(memory.total)} {memory.what}, less {_size(memory.margin)} left free); "
        "take a smaller quantization of the model, or more --memory"
    )


def _document(answer: _Answer) -> dict[str, Any]:
    shape, memory, weights = answer.shape, answer.memory, answer.header.weights
    return {
        "schema": 1,
        "model": {
            "path": str(answer.header.path),
            "name": _title(answer),
            "architecture": shape.architecture,
            "trained": shape.trained,
            "weights_bytes": weights.total,
            "layers": len(shape.layers),
            "sliding_layers": sum(layer.sliding for layer in shape.layers),
            "sliding_window": shape.sliding_window or None,
            "recurrent_layers": sum(layer.state > 0 for layer in shape.layers),
        },
        "memory": {
            "bytes": memory.total,
            "what": memory.what,
            "margin_bytes": memory.margin,
            "spare_bytes": memory.spare,
        },
        "parallel": answer.chosen.parallel,
        "kv": answer.chosen.kv,
        "window": answer.chosen.window or None,
        "exact": not shape.doubts,
        "fits": [_fit_json(each) for each in answer.fits],
        "commands": _commands(answer),
        "notes": [*shape.doubts, *answer.hints],
    }


def _fit_json(each: Fit) -> dict[str, Any]:
    return {
        "kv": each.kv,
        "window": each.window or None,
        "kv_bytes_per_token": each.per_token,
        "kv_bytes": each.kv_bytes,
        "state_bytes": each.state_bytes,
        "total_bytes": each.total,
        "spill": asdict(each.spill) if each.spill else None,
    }


def _title(answer: _Answer) -> str:
    named = answer.header.metadata.get("general.name")
    return " ".join(named.split()) if isinstance(named, str) and named.strip() else answer.header.path.stem


def _table(answer: _Answer) -> str:
    shape, memory = answer.shape, answer.memory
    lines = [
        f"{_title(answer)}: {shape.architecture}, {len(shape.layers)} layers, trained for {shape.trained:,} tokens",
        f"  weights  {_size(answer.header.weights.total)}",
        f"  memory   {_size(memory.total)} {memory.what}, less {_size(memory.margin)} that are left free",
        *_kept(answer),
        "",
        *_rows(answer),
    ]
    notes = [_wrapped(text) for text in (*_spilled(answer), *shape.doubts, *answer.hints)]
    commands = [f"  {command}" for command in _commands(answer)]
    blocks = ["\n".join(lines), "\n".join(notes), "\n".join(["serve it:", *commands] if commands else [])]
    return "\n\n".join(block for block in blocks if block)


def _wrapped(text: str) -> str:
    return textwrap.fill(text, _WIDTH, initial_indent="! ", subsequent_indent="  ", break_on_hyphens=False)


def _kept(answer: _Answer) -> list[str]:
    """What layers keep that differ from the plain ones."""
    shape, chosen, lines = answer.shape, answer.chosen, []
    if sliding := sum(layer.sliding and layer.key > 0 for layer in shape.layers):
        fixed = kv_bytes(shape, shape.trained, kv=chosen.kv) - kv_bytes(_whole(shape), shape.trained, kv=chosen.kv)
        lines.append(
            f"  sliding  {sliding} layers keep the last {shape.sliding_window:,} tokens: at most {_size(fixed)} a slot"
        )
    if recurrent := sum(layer.state > 0 for layer in shape.layers):
        each = chosen.state_bytes // chosen.parallel
        lines.append(f"  state    {recurrent} layers are recurrent: {_size(each)} a slot, whatever the window")
    return lines


def _whole(shape: Shape) -> Shape:
    """The shape without its sliding layers."""
    return Shape(shape.architecture, shape.trained, tuple(layer for layer in shape.layers if not layer.sliding))


def _rows(answer: _Answer) -> list[str]:
    parallel = answer.chosen.parallel
    slots = f" x {parallel}" if parallel > 1 else ""
    head = ("", "KV", "BYTES A TOKEN", f"WINDOW{slots}", "CACHE", "IN ALL", "")
    rows = [head, *(_cells(answer, each) for each in answer.fits)]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [_line(row, widths) for row in rows]


def _cells(answer: _Answer, each: Fit) -> tuple[str, ...]:
    sign = ">" if each is answer.chosen else ""
    if not each.window:
        return sign, each.kv, f"{each.per_token:,}", "none", "-", "-", "does not fit"
    whole = each.window + STEP > answer.shape.trained
    why = "spills to the CPU" if each.spill else "as trained" if whole else ""
    cache = _size(each.kv_bytes + each.state_bytes)
    return sign, each.kv, f"{each.per_token:,}", f"{each.window:,}", cache, _size(each.total), why


def _line(row: tuple[str, ...], widths: list[int]) -> str:
    sign, kv, *numbers, why = row
    right = [cell.rjust(width) for cell, width in zip(numbers, widths[2:-1], strict=True)]
    return "  ".join([f"{sign:1} {kv.ljust(widths[1])}", *right, why]).rstrip()


def _spilled(answer: _Answer) -> list[str]:
    spill = answer.chosen.spill
    if spill is None:
        return []
    text = (
        f"it is larger than the GPU's free memory: {spill.layers} of {spill.of} layers stay there (-ngl), "
        f"{_size(spill.cpu_bytes)} go to the CPU, which is many times slower"
    )
    return [text]


def _size(count: int) -> str:
    for unit, size in (("GiB", 2**30), ("MiB", 2**20)):
        if count >= size:
            return f"{count / size:.{2 if count < 10 * size else 1}f} {unit}"
    return f"{count / 1024:.0f} KiB"
