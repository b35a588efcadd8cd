"""What a results file says beside the figures: the machine, the versions, the commit."""

from __future__ import annotations

import platform
from dataclasses import asdict
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING

from localctx import __version__
from localctx.hardware.machine import load, machine
from localctx.stores.checkout import commit

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from localctx.app.bench.tables import Sheet

__all__ = ["document"]

_PACKAGES = ("xllamacpp", "tokenizers", "tiktoken", "llama-cpp-python", "httpx", "msgspec")


def document(
    command: str,
    sheet: Sheet,
    *,
    begun: datetime,
    load_before: float,
    servers: Sequence[Mapping[str, object]],
) -> dict[str, object]:
    """The results file."""
    here = machine()
    return {
        "schema": 1,
        "command": command,
        "begun": begun.isoformat(timespec="seconds"),
        "ended": datetime.now(UTC).isoformat(timespec="seconds"),
        "machine": {
            "cpu": here.cpu,
            "cores": here.cores,
            "memory_bytes": here.memory_bytes,
            "gpus": None if here.gpus is None else [asdict(gpu) for gpu in here.gpus],
            "system": f"{platform.system()} {platform.machine()}",
            "load_before": round(load_before, 2),
            "load_after": round(load(), 2),
        },
        "versions": {"localctx": __version__, "python": platform.python_version(), **_packages()},
        "commit": commit(Path(__file__).parents[3]),
        "servers": [*servers],
        "notes": sheet.notes,
        "tables": [asdict(table) for table in sheet.tables],
    }


def _packages() -> dict[str, str]:
    found = dict[str, str]()
    for name in _PACKAGES:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return found
