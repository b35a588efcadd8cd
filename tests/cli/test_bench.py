from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from datetime import UTC, datetime
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from localctx.wiring.probing import DEFAULT_ADDRESSES
from tests.app.conftest import NOTES, answering
from tests.cli.conftest import Run, listens
from tests.fakes.llama_server import Fake, running
from tests.fakes.nvml import built
from tests.fakes.ollama import Fake as Ollama
from tests.fakes.ollama import running as running_ollama

COUNTING = " ".join(map(str, range(1, 40)))
NAMES = ("tokenizer", "compaction", "probe", "server")


def test_help_names_the_benchmarks_that_there_are(localctx: Run) -> None:
    shown = localctx("bench", "--help").stdout
    assert all(name in shown for name in NAMES)
    assert "gateway" not in shown


@pytest.mark.parametrize("name", ["compaction", "probe"])
def test_a_server_that_does_not_answer_is_said_and_exits_3(localctx: Run, name: str) -> None:
    done = localctx("bench", name, "--quick", "--url", "http://127.0.0.1:9")
    assert done.returncode == 3
    assert "nothing answers at http://127.0.0.1:9" in done.stderr
    assert done.stdout == ""


@pytest.mark.parametrize("name", ["server", "compaction"])
def test_a_benchmark_that_cannot_run_says_why_and_exits_1(localctx: Run, name: str, tmp_path: Path) -> None:
    new = tmp_path / "new.json"
    with running(Fake(fault="die_mid_stream")) as server:
        done = localctx("bench", name, "--quick", "--url", server.url, "--out", str(new))
    assert (done.returncode, done.stdout) == (1, "")
    assert server.url in done.stderr.splitlines()[-1]
    assert not new.exists()


@pytest.mark.parametrize(
    ("options", "why"),
    [
        (("--plot", "plot.pdf"), "neither .svg nor .png"),
        (("--out", "missing/new.json"), "no folder"),
        (("--out", "taken"), "is there already"),
        (("--plot", "taken.svg"), "is there already"),
        (("--runtime", "nonsense"), "nonsense"),
        (("--out", "one.svg", "--plot", "one.svg"), "the same file"),
    ],
)
def test_wrong_usage_exits_2_before_anything_is_measured(
    localctx: Run, tmp_path: Path, options: tuple[str, ...], why: str
) -> None:
    for name in ("taken", "taken.svg"):
        (tmp_path / "work" / name).write_text("mine", encoding="utf-8")
    with running(Fake()) as server:
        done = localctx("bench", "server", "--quick", "--url", server.url, *options)
        assert done.returncode == 2
        assert why in done.stderr
        assert server.chats == []
    assert (tmp_path / "work" / "taken").read_text(encoding="utf-8") == "mine"


def test_json_is_one_document_with_nothing_beside_it_and_is_what_out_keeps(localctx: Run, tmp_path: Path) -> None:
    new, plot = tmp_path / "new.json", tmp_path / "new.svg"
    started = datetime.now(UTC).replace(microsecond=0)
    with running(Fake(reply=COUNTING)) as server:
        done = localctx(
            *("bench", "server", "--quick", "--url", server.url, "--json", "--out", str(new), "--plot", str(plot))
        )
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    assert document == json.loads(new.read_text(encoding="utf-8"))
    assert [table["title"].split(",")[0] for table in document["tables"]][:2] == [
        "Reading and writing",
        "What a change of the prompt costs",
    ]
    assert document["command"] == "localctx bench server --quick"
    begun, ended = (datetime.fromisoformat(document[name]) for name in ("begun", "ended"))
    assert started <= begun <= ended <= datetime.now(UTC)
    assert plot.read_text(encoding="utf-8").startswith("<svg")
    assert done.stderr.splitlines() == [f"wrote the results to {new}", f"drew them into {plot}"]


def test_people_read_tables_and_are_told_of_the_server_the_time_and_the_gpu(localctx: Run) -> None:
    with running(Fake(reply=answering("Done.", NOTES), n_ctx=2_048)) as server:
        done = localctx("bench", "compaction", "--quick", "--url", server.url)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[0].startswith("A compaction in a window of 768")
    assert [line.strip().split("  ")[0] for line in lines[2:9]] == [
        *("ladder, mechanical", "ladder, in place", "ladder, apart"),
        *("drop the oldest", "naive summary", "replacement (Codex)", "Jazz's rules (seed)"),
    ]
    assert f"on llama-server at {server.url}" in done.stderr
    assert "at most 100 s" in done.stderr
    assert "GPU" in done.stderr


def test_several_servers_are_measured_one_after_the_other_and_told_apart(localctx: Run) -> None:
    with running(Fake(reply=COUNTING, model="one")) as one, running(Fake(reply=COUNTING, model="two")) as two:
        done = localctx("bench", "server", "--quick", "--url", one.url, "--url", two.url, "--json")
    document = json.loads(done.stdout)
    assert [server["model"] for server in document["servers"]] == ["one", "two"]
    titles = [table["title"] for table in document["tables"]]
    assert titles[0].startswith("1. one, llama-server: Reading and writing")
    assert sum(title.startswith("2. two, llama-server: ") for title in titles) * 2 == len(titles)


def test_without_an_address_every_server_that_answers_is_measured(localctx: Run) -> None:
    usual = DEFAULT_ADDRESSES[-1]
    if listens(usual):
        pytest.skip(f"something listens at {usual}")
    with running(Fake(), urlsplit(usual).port or 0), running_ollama(Ollama()) as other:
        done = localctx("bench", "probe", "--quick", "--json", OLLAMA_HOST=other.url)
    found = [server["runtime"] for server in json.loads(done.stdout)["servers"]]
    assert (found[0], found[-1]) == ("ollama", "llama-server")


def test_a_server_that_fails_on_the_way_costs_nothing_that_was_measured(localctx: Run, tmp_path: Path) -> None:
    replies = [COUNTING] * 6
    new = tmp_path / "new.json"
    with running(Fake(reply=COUNTING)) as server:
        server.reply = lambda _body: replies.pop() if replies else broken(server)
        done = localctx("bench", "server", "--quick", "--url", server.url, "--out", str(new))
    assert done.returncode == 1
    assert done.stdout.startswith("Reading and writing")
    assert "was not measured to its end: " in done.stderr.splitlines()[-1]
    assert json.loads(new.read_text(encoding="utf-8"))["tables"]


def broken(server: Fake) -> str:
    """The server dies with this reply, and with each from now on."""
    server.fault = "die_mid_stream"
    return COUNTING


def test_of_several_servers_one_that_fails_is_said_with_the_others_results_and_exits_1(localctx: Run) -> None:
    with running(Fake(reply=COUNTING)) as server:
        done = localctx("bench", "server", "--quick", "--url", "http://127.0.0.1:9", "--url", server.url)
    assert done.returncode == 1
    assert done.stdout.startswith("Reading and writing")
    assert "http://127.0.0.1:9 was not measured: nothing answers at http://127.0.0.1:9" in done.stderr
    assert "1 of 2 servers could not be measured to the end" in done.stdout


def test_several_servers_that_all_fail_print_nothing_and_exit_1(localctx: Run) -> None:
    done = localctx("bench", "probe", "--quick", "--url", "http://127.0.0.1:9", "--url", "http://127.0.0.1:8")
    assert (done.returncode, done.stdout) == (1, "")
    assert "http://127.0.0.1:9 " in done.stderr.splitlines()[-1]
    assert "http://127.0.0.1:8 " in done.stderr.splitlines()[-1]


def test_ctrl_c_ends_with_130_and_keeps_nothing(environment: dict[str, str], tmp_path: Path) -> None:
    new = tmp_path / "new.json"
    with running(Fake(reply=COUNTING, delay=0.2)) as server:
        command = [sys.executable, "-m", "localctx", "bench", "server", "--url", server.url, "--out", str(new)]
        with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as child:
            until = time.monotonic() + 20
            while not server.chats and time.monotonic() < until:
                time.sleep(0.05)
            child.send_signal(signal.SIGINT)
            out, error = child.communicate(timeout=20)
    assert (child.returncode, out) == (130, b"")
    assert b"Traceback" not in error
    assert not new.exists()


def test_a_png_without_the_library_names_the_extra(environment: dict[str, str]) -> None:
    code = (
        "import sys, importlib.util as u; found = u.find_spec\n"
        "u.find_spec = lambda name, *rest: None if name == 'resvg_py' else found(name, *rest)\n"
        "from pathlib import Path; from localctx.errors import MissingExtra\n"
        "from localctx.wiring.bench.picture import check_picture\n"
        "try:\n    check_picture(Path('x.png'))\nexcept MissingExtra as error:\n    print(error)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert "localctx[plot]" in done.stdout


def test_what_a_gpu_uses_meanwhile_is_in_the_document(localctx: Run, tmp_path: Path) -> None:
    with running(Fake(reply=COUNTING)) as server:
        done = localctx("bench", "server", "--quick", "--url", server.url, "--json", **built(tmp_path))
    document = json.loads(done.stdout)
    (gpus,) = [table for table in document["tables"] if table["title"].startswith("GPUs")]
    assert gpus["rows"] == [
        {"GPU": "Fake GPU 0", "memory, MiB": 900 / 2**20, "watts": 71.5},
        {"GPU": "Fake GPU 1", "memory, MiB": 901 / 2**20, "watts": None},
        {"GPU": "Fake GPU 2", "memory, MiB": None, "watts": 71.5},
    ]
    assert not any("GPU" in note for note in document["notes"])
