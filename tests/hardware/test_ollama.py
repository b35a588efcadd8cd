from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest

from localctx.errors import ModelMissing
from localctx.hardware.ollama import folders, model_file

DIGEST = "ab" * 32
MANIFEST = {
    "schemaVersion": 2,
    "layers": [
        {"mediaType": "application/vnd.ollama.image.template", "digest": "sha256:" + "cd" * 32, "size": 1},
        {"mediaType": "application/vnd.ollama.image.model", "digest": f"sha256:{DIGEST}", "size": 2},
    ],
}


def manifest(folder: Path, place: str, content: object) -> None:
    target = folder / "manifests" / place
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(json.dumps(content), encoding="utf-8")


@pytest.mark.parametrize(
    ("name", "place"),
    [
        ("smollm2", "registry.ollama.ai/library/smollm2/latest"),
        ("ollama/smollm2", "registry.ollama.ai/library/smollm2/latest"),
        ("qwen3.6:27b", "registry.ollama.ai/library/qwen3.6/27b"),
        ("someone/own:v1", "registry.ollama.ai/someone/own/v1"),
        ("hf.co/unsloth/gemma-3:Q4_K_M", "hf.co/unsloth/gemma-3/Q4_K_M"),
        ("localhost:5000/a/b:c", "localhost:5000/a/b/c"),
    ],
)
def test_ollama_s_model_is_found_through_its_manifest(tmp_path: Path, name: str, place: str) -> None:
    manifest(tmp_path, place, MANIFEST)
    assert model_file(name, (tmp_path / "none", tmp_path)) == tmp_path / "blobs" / f"sha256-{DIGEST}"


@pytest.mark.parametrize("name", ["nope", "../../etc/passwd", "a/../b", "..", "a:..", "", "a b", "http://x", "/a"])
def test_what_ollama_does_not_have_is_not_found(tmp_path: Path, name: str) -> None:
    manifest(tmp_path, "registry.ollama.ai/library/smollm2/latest", MANIFEST)
    assert model_file(name, (tmp_path,)) is None


@pytest.mark.parametrize(
    "content",
    [
        "no object",
        {"layers": None},
        {"layers": []},
        {"layers": [None, {"mediaType": "application/vnd.ollama.image.model", "digest": "sha256:../../x"}]},
    ],
)
def test_a_manifest_that_names_no_model_is_refused(tmp_path: Path, content: object) -> None:
    manifest(tmp_path, "registry.ollama.ai/library/m/latest", content)
    with pytest.raises(ModelMissing, match="ollama pull m"):
        model_file("m", (tmp_path,))


def test_a_manifest_that_is_no_json_is_refused(tmp_path: Path) -> None:
    target = tmp_path / "manifests" / "registry.ollama.ai" / "library" / "m" / "latest"
    target.parent.mkdir(parents=True)
    for content in (b"\xff", b"[" * 500_000, b""):
        target.write_bytes(content)
        with pytest.raises(ModelMissing, match="names no model file"):
            model_file("m", (tmp_path,))


def test_a_manifest_that_may_not_be_read_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_args: object, **_options: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "open", refuse)
    with pytest.raises(ModelMissing, match="Permission denied"):
        model_file("m", (tmp_path,))


def test_where_ollama_may_keep_its_models() -> None:
    assert folders({"HOME": "/home/me", "OLLAMA_MODELS": "/models"})[:2] == (
        Path("/models"),
        Path("/home/me/.ollama/models"),
    )
    assert folders({}) == (Path("/usr/share/ollama/.ollama/models"),)


def test_only_the_manifest_with_the_digest_that_an_ollama_gives_counts(tmp_path: Path) -> None:
    manifest(tmp_path / "one", "registry.ollama.ai/library/m/latest", MANIFEST | {"schemaVersion": 1})
    manifest(tmp_path / "two", "registry.ollama.ai/library/m/latest", MANIFEST)
    places = (tmp_path / "one", tmp_path / "two")
    text = (tmp_path / "two" / "manifests" / "registry.ollama.ai/library/m/latest").read_bytes()
    digest = hashlib.sha256(text).hexdigest()
    assert model_file("m", places) == tmp_path / "one" / "blobs" / f"sha256-{DIGEST}"
    assert model_file("m", places, manifest_digest=digest) == tmp_path / "two" / "blobs" / f"sha256-{DIGEST}"
    assert model_file("m", places, manifest_digest="00" * 32) is None
