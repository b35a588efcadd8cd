from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from localctx.cli.models import app
from localctx.errors import FetchFailed, ModelMissing
from localctx.stores.models import DEFAULT, KNOWN

MODEL = KNOWN[0]


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("LOCALCTX_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


@pytest.fixture
def gguf(home: Path) -> Path:
    """A sparse file of the default model's size, where the model belongs."""
    path = home / "models" / Path(MODEL.member).name
    path.parent.mkdir(parents=True)
    path.touch()
    os.truncate(path, MODEL.gguf_bytes)
    return path


def call(*arguments: str) -> Result:
    return CliRunner().invoke(app, arguments)


def test_list_shows_what_can_be_pulled() -> None:
    result = call("list")
    assert result.exit_code == 0
    head, row = result.stdout.splitlines()
    assert head.split("  ")[0] == "NAME"
    assert row.split() == ["smollm2-135m", "98", "MB", "8,192", "tokens", "Apache-2.0", "no"]


@pytest.mark.usefixtures("gguf")
def test_list_shows_what_is_here() -> None:
    assert call("list").stdout.splitlines()[1].split()[-1] == "yes"


def test_list_as_json(gguf: Path) -> None:
    document = json.loads(call("list", "--json").stdout)
    assert document["schema"] == 1
    assert document["models"] == [
        {
            "name": DEFAULT,
            "title": MODEL.title,
            "licence": "Apache-2.0",
            "package": MODEL.package,
            "version": MODEL.version,
            "download_bytes": MODEL.wheel_bytes,
            "model_bytes": MODEL.gguf_bytes,
            "trained": 8192,
            "installed": True,
            "path": str(gguf),
        }
    ]


@pytest.mark.parametrize("arguments", [["path"], ["path", DEFAULT], ["pull"], ["pull", DEFAULT]])
def test_the_path_of_an_installed_model(gguf: Path, arguments: list[str]) -> None:
    result = call(*arguments)
    assert result.stdout == f"{gguf}\n"
    assert result.stderr == ""


def test_the_path_of_a_missing_model_is_refused() -> None:
    error = call("path").exception
    assert isinstance(error, ModelMissing)
    assert str(error).endswith(f"fetch it with: localctx models pull {DEFAULT}")


@pytest.mark.parametrize("command", ["path", "pull", "rm"])
def test_an_unknown_model_is_refused(command: str) -> None:
    assert isinstance(call(command, "huge").exception, ModelMissing)


def test_rm_deletes(gguf: Path) -> None:
    assert call("rm", DEFAULT).stdout == f"removed {DEFAULT}\n"
    assert not gguf.exists()
    again = call("rm", DEFAULT)
    assert (again.exit_code, again.stdout) == (0, "")
    assert again.stderr == f"{DEFAULT} is not installed; nothing to remove\n"


def test_pull_draws_on_stderr(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    uv = tmp_path / "bin" / "uv"
    uv.parent.mkdir()
    uv.write_text(f"#!{sys.executable}\nraise SystemExit('dns error')\n", encoding="utf-8")
    uv.chmod(0o700)
    monkeypatch.setitem(sys.modules, "pip", None)
    monkeypatch.setenv("PATH", str(uv.parent))
    result = call("pull")
    assert isinstance(result.exception, FetchFailed)
    assert "dns error" in str(result.exception)
    assert result.stdout == ""
    assert "fetching the model" in result.stderr
