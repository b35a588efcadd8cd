from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.conftest import Run
from tests.fakes.llama_server import Fake, running

PROFILES = sorted((Path(__file__).parent.parent.parent / "configs").glob("*.toml"))


def project(tmp_path: Path, text: str) -> Path:
    file = tmp_path / "work" / "localctx.toml"
    file.write_text(text, encoding="utf-8")
    return file


def test_each_value_is_shown_with_the_place_that_it_comes_from(localctx: Run, tmp_path: Path) -> None:
    file = project(tmp_path, 'model = "m"\n\n[thresholds]\ncompact = 0.9\n')
    done = localctx("config", "show", "--json", LOCALCTX_NUM_CTX="4096")
    told = json.loads(done.stdout)
    set_ = [each for each in told["values"] if each["place"] != "default"]
    assert set_ == [
        {"name": "model", "value": "m", "place": f"project {file}:1"},
        {"name": "num_ctx", "value": 4096, "place": "LOCALCTX_NUM_CTX"},
        {"name": "thresholds", "value": {"compact": 0.9}, "place": f"project {file}:3"},
    ]
    assert {each["name"] for each in told["values"]} >= {"policy", "patience", "tools", "max_steps"}
    assert {"url", "api_key_env"} <= set(told["not_set"])
    assert f"project {file}:1" in localctx("config", "show").stdout


def test_no_key_and_no_password_is_shown(localctx: Run, tmp_path: Path) -> None:
    project(tmp_path, 'url = "http://me:hunter2/x@127.0.0.1:1"')
    for command in ("show", "check"):
        done = localctx("config", command, LOCALCTX_API_KEY="sk-secret")
        assert "hunter2" not in done.stdout + done.stderr
        assert "sk-secret" not in done.stdout + done.stderr


def test_what_is_wrong_is_named_and_ends_with_2(localctx: Run, tmp_path: Path) -> None:
    file = project(tmp_path, 'model = "m"\nnum_ctx = "many"\n')
    done = localctx("config", "check", LOCALCTX_RUNTIME="abacus")
    assert done.returncode == 2
    assert f"project {file}:2: num_ctx: a whole number is wanted" in done.stdout
    assert "LOCALCTX_RUNTIME: runtime: unknown value 'abacus'" in done.stdout, "each place is looked at"
    assert localctx("config", "show").returncode == 2


def test_a_variable_that_nothing_reads_is_named_by_check_and_by_a_run(localctx: Run) -> None:
    mistyped = {"LOCALCTX_NUMCTX": "8192", "LOCALCTX_OTHER_THINGS": "1"}
    done = localctx("config", "check", **mistyped)
    assert done.returncode == 2
    assert "LOCALCTX_NUMCTX: nothing reads it; did you mean LOCALCTX_NUM_CTX?" in done.stdout
    assert "LOCALCTX_OTHER_THINGS: nothing reads it" in done.stdout
    with running(Fake()) as server:
        done = localctx("run", "Hi.", "--url", server.url, **mistyped)
    assert done.returncode == 0
    assert "LOCALCTX_NUMCTX: nothing reads it; did you mean LOCALCTX_NUM_CTX?" in done.stderr


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('policy = "best"', "unknown policy 'best'"),
        ('system = "@nowhere.md"', "cannot read the system prompt nowhere.md"),
        ('url = "ftp://here"', "is no http address"),
        ("[thresholds]\nwarn = 0.9\ncompact = 0.5", "threshold warn"),
    ],
)
def test_what_is_well_written_and_of_no_use_is_named_too(localctx: Run, tmp_path: Path, text: str, said: str) -> None:
    project(tmp_path, text)
    done = localctx("config", "check", "--json")
    assert done.returncode == 2
    told = json.loads(done.stdout)
    assert not told["ok"]
    assert said in str(told["places"][-1]["wrong"])


def test_nothing_set_is_no_mistake(localctx: Run) -> None:
    assert localctx("config", "check").returncode == 0
    shown = localctx("config", "show").stdout
    assert 'policy = "ladder"\n    default' in shown
    assert "not set: model, " in shown
    assert localctx("config", "path").stdout.strip().endswith("localctx.toml")


@pytest.mark.parametrize("name", ["gone.toml", "."])
def test_a_file_that_is_named_must_be_there(localctx: Run, name: str) -> None:
    done = localctx("config", "check", name)
    assert done.returncode == 2
    assert "there is no file" in done.stdout


@pytest.mark.parametrize("file", PROFILES, ids=lambda file: file.stem)
def test_each_profile_can_be_used_as_it_is(localctx: Run, tmp_path: Path, file: Path) -> None:
    assert localctx("config", "check", str(file)).returncode == 0
    project(tmp_path, file.read_text(encoding="utf-8"))
    assert json.loads(localctx("config", "show", "--json").stdout)["values"]


def test_there_is_a_profile_for_each_kind_of_server() -> None:
    assert [file.stem for file in PROFILES] == ["laptop-ollama", "llama-server", "sglang", "vllm"]
