"""The models that an Ollama on this machine keeps, found through their manifests, whether it runs or not."""

from __future__ import annotations

import json
import re
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING

from localctx.errors import ModelMissing

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["folders", "model_file"]

_MOST_MANIFEST_BYTES = 1 << 20
_MODEL_LAYER = "application/vnd.ollama.image.model"
_DIGEST = re.compile(r"sha256:([0-9a-f]{64})")
_NAME = re.compile(
    r"(?:ollama/)?(?:(?:(?P<host>[\w.-]+(?::\d+)?)/)?(?P<space>[\w.-]+)/)?(?P<model>[\w.-]+)(?::(?P<tag>[\w.-]+))?"
)


def folders(environment: Mapping[str, str]) -> tuple[Path, ...]:
    """Where Ollama may keep its models: where it is told to, in the user's home, or in its own user's."""
    named = environment.get("OLLAMA_MODELS")
    homes = [Path(environment["HOME"])] if environment.get("HOME") else []
    usual = [home / ".ollama" / "models" for home in (*homes, Path("/usr/share/ollama"))]
    return (Path(named).expanduser(), *usual) if named else tuple(usual)


def model_file(name: str, places: tuple[Path, ...], *, manifest_digest: str | None = None) -> Path | None:
    """The file of one of Ollama's models, found through its manifest; None where none of the places has it.

    With the SHA-256 that an Ollama gives as the model's digest, only a manifest that has it counts.

    Raises:
        ModelMissing: a folder or a manifest is there, but the file cannot be had; says why.
    """
    manifest = _manifest(name)
    if manifest is None:
        return None
    refused = None
    for folder in places:
        path = folder / "manifests" / manifest
        try:
            with path.open("rb") as file:
                text = file.read(_MOST_MANIFEST_BYTES)
        except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
            continue
        except OSError as error:
            refused = ModelMissing(
                f"cannot read Ollama's manifest {path} ({error.strerror or error}); run this as a user who can, "
                "or pass the GGUF file"
            )
            continue
        if manifest_digest is not None and sha256(text).hexdigest() != manifest_digest:
            continue
        digest = _model_digest(text)
        if digest is None:
            raise ModelMissing(f"Ollama's manifest {path} names no model file here; pull it again: ollama pull {name}")
        return folder / "blobs" / f"sha256-{digest}"
    if refused:
        raise refused
    return None


def _manifest(name: str) -> Path | None:
    matched = _NAME.fullmatch(name)
    if matched is None:
        return None
    parts = (
        matched["host"] or "registry.ollama.ai",
        matched["space"] or "library",
        matched["model"],
        matched["tag"] or "latest",
    )
    return None if any(part.startswith(".") for part in parts) else Path(*parts)


def _model_digest(text: bytes) -> str | None:
    with suppress(ValueError, RecursionError):  # no JSON, or nested without end
        match json.loads(text):
            case {"layers": [*layers]}:
                found = (_digest(layer) for layer in layers)
                return next((digest for digest in found if digest), None)
    return None


def _digest(layer: object) -> str | None:
    match layer:
        case {"mediaType": kind, "digest": str(digest)} if kind == _MODEL_LAYER and (
            matched := _DIGEST.fullmatch(digest)
        ):
            return matched[1]
    return None
