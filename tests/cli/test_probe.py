from __future__ import annotations

import json

from tests.cli.conftest import Run
from tests.fakes.llama_server import Fake, running


def test_the_table_says_window_source_and_what_is_wrong(localctx: Run) -> None:
    with running(Fake(n_ctx=2048, slots=2)) as server:
        done = localctx("probe", "--url", server.url)
    assert done.returncode == 0
    assert "2,048  served  (llama-server /props n_ctx)" in done.stdout
    assert "shared-pool" in done.stdout
    assert "fix:" in done.stdout
    assert all(len(line) <= 80 for line in done.stdout.splitlines())


def test_json_is_the_contract(localctx: Run) -> None:
    with running(Fake()) as server:
        done = localctx("probe", "--url", server.url, "--url", "http://127.0.0.1:9", "--json", "--max-context", "1000")
    document = json.loads(done.stdout)
    assert document["schema"] == 1
    assert document["machine"].keys() == {"cpu", "cores", "memory_bytes", "memory_available_bytes", "gpus"}
    up, down = document["runtimes"]
    assert (up["status"], down["status"], down["runtime"]) == ("up", "down", None)
    (model,) = up["models"]
    assert model["loaded"] is True
    assert model["window"]["effective"] == model["window"]["ceiling"] == 1000
    assert model["window"]["confidence"] == "served"
    assert model["window"]["decided_by"]["source"] == "served"
    assert {reading["source"] for reading in model["window"]["readings"]} == {"served", "trained"}


def test_nothing_found_ends_with_3_and_says_what_to_start(localctx: Run) -> None:
    done = localctx("probe", "--url", "http://127.0.0.1:9")
    assert done.returncode == 3
    assert "llama-server -m" in done.stderr


def test_a_server_that_is_loading_or_wants_a_key_was_found(localctx: Run) -> None:
    with running(Fake(loading_for=60)) as loading, running(Fake(api_key="x")) as locked:
        done = localctx("probe", "--url", loading.url, "--url", locked.url)
    assert done.returncode == 0
    assert f"{loading.url}: loading" in done.stdout
    assert f"{locked.url}: unauthorized" in done.stdout


def test_a_fresh_machine_is_told_what_the_embedded_runtime_would_do(localctx: Run) -> None:
    done = localctx("probe", "--runtime", "embedded")
    assert done.returncode == 0
    assert "8,192  provisional" in done.stdout
    assert "localctx models pull smollm2-135m" in done.stdout


def test_a_model_s_name_cannot_steer_the_terminal(localctx: Run) -> None:
    with running(Fake(model="evil\x1b]0;title\x07")) as server:
        done = localctx("probe", "--url", server.url)
    assert "\x1b" not in done.stdout


def test_version_and_help(localctx: Run) -> None:
    assert localctx("--version").stdout.startswith("localctx ")
    assert "probe" in localctx("--help").stdout
    assert localctx("nonsense").returncode == 2


def test_a_system_prompt_that_fills_the_window_is_warned_of(localctx: Run) -> None:
    with running(Fake(n_ctx=512)) as server:
        done = localctx("probe", "--url", server.url, LOCALCTX_SYSTEM="Follow the rules of the house. " * 60)
    assert "too-small" in done.stdout


def test_verify_measures_and_says_first_what_it_costs(localctx: Run) -> None:
    with running(Fake(n_ctx=4096, fault="cut_silently", keep=1024)) as server:
        done = localctx("probe", "--url", server.url, "--verify")
    assert done.stderr.startswith("verifying 4,096 tokens")
    assert "cuts in silence" in done.stderr
    assert "1,024" in done.stdout
