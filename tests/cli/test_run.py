from __future__ import annotations

import json
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.app.conftest import answering
from tests.cli.conftest import Run
from tests.fakes.llama_server import Calls, Fake, running

TASK = "Read the manual. Never mention Perl."


@pytest.fixture
def fake() -> Iterator[Fake]:
    with running(Fake(reply="Hello there.")) as server:
        yield server


def journal(folder: Path) -> list[dict[str, object]]:
    (path,) = (folder / "data" / "sessions").glob("*/journal.jsonl")
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def complaint(text: str) -> str:
    """The one line that says why."""
    lines = [line for line in text.splitlines() if line.startswith("localctx: ")]
    assert len(lines) == 1, text
    return lines[0]


def test_the_answer_is_on_stdout_and_all_else_on_stderr(localctx: Run, fake: Fake, tmp_path: Path) -> None:
    done = localctx("run", "Say hello.", "--url", fake.url)
    assert (done.returncode, done.stdout) == (0, "Hello there.\n")
    assert "window 4,096 tokens, served (llama-server /props n_ctx)" in done.stderr
    assert [line.get("type") for line in journal(tmp_path)] == [None, "window", "message", "message", "usage"]


def test_what_is_piped_in_is_context_of_the_prompt(localctx: Run, fake: Fake) -> None:
    localctx("run", "Review this.", "--url", fake.url, stdin="- old\n+ new\n")
    assert fake.chats[-1]["messages"] == [{"role": "user", "content": "Review this.\n\n- old\n+ new"}]


def test_json_prints_one_event_a_line_and_nothing_else(localctx: Run, fake: Fake) -> None:
    done = localctx("run", "Say hello.", "--url", fake.url, "--json")
    events = [json.loads(line) for line in done.stdout.splitlines()]
    assert all({"type", "at"} <= event.keys() for event in events)
    kinds = [event["type"] for event in events if event["type"] not in {"text", "prefilling"}]
    assert kinds == ["window", "notice", "request", "usage", "turn", "end"], "it cannot call tools"
    assert "".join(event["text"] for event in events if event["type"] == "text") == "Hello there."
    assert events[-1]["session"]
    totals = events[-1]["totals"]
    assert (totals["requests"], totals["prompt"]) == (1, fake.prompt_tokens(fake.chats[0]))
    assert totals["completion"] > 0
    assert done.stderr == ""


def test_a_session_goes_on_where_it_was(localctx: Run, fake: Fake) -> None:
    localctx("run", "First.", "--url", fake.url, "--session", "mine", "--system", "Be brief.")
    localctx("run", "Second.", "--url", fake.url, "--continue")
    localctx("run", "Third.", "--url", fake.url, "--resume", "mine")
    said = [message["content"] for message in fake.chats[-1]["messages"]]
    assert said == ["Be brief.", "First.", "Hello there.", "Second.", "Hello there.", "Third."]


def test_ephemeral_keeps_nothing(localctx: Run, fake: Fake, tmp_path: Path) -> None:
    assert localctx("run", "Hi.", "--url", fake.url, "--ephemeral").returncode == 0
    assert not (tmp_path / "data" / "sessions").exists()


def test_a_conversation_past_the_window_announces_what_it_does(localctx: Run, fake: Fake) -> None:
    fake.n_ctx, fake.reply = 1024, answering("Understood.")
    localctx("run", TASK, "--url", fake.url, "--session", "long")
    said = ""
    for number in range(8):
        done = localctx("run", f"Piece {number}: " + "so it goes on " * 40, "--url", fake.url, "--session", "long")
        assert done.returncode == 0
        said += done.stderr
    assert "will auto-compact soon" in said
    assert "full (" in said
    assert "compacted" in said
    assert "a summary by the model" in said
    assert TASK in fake.chats[-1]["messages"][0]["content"]


def test_decisions_are_logged_without_the_text_of_messages(localctx: Run, fake: Fake, tmp_path: Path) -> None:
    log = tmp_path / "decisions.log"
    localctx("--log-file", str(log), "run", "A secret question.", "--url", fake.url)
    text = log.read_text(encoding="utf-8")
    assert '"type": "usage"' in text
    assert "secret" not in text
    assert "Hello" not in text
    assert '"type": "usage"' in localctx("-v", "run", "Hi.", "--url", fake.url).stderr


def test_control_characters_of_a_model_do_not_reach_the_terminal(localctx: Run, fake: Fake) -> None:
    fake.reply = "red \x1b[31malert\x1b[0m \x07done"
    assert "\x1b" not in localctx("run", "Hi.", "--url", fake.url).stdout


def test_every_script_reaches_the_terminal(localctx: Run, fake: Fake) -> None:
    fake.reply = "prix : 5\u00a0€, 日本語, می\u200cخواهم, 👩\u200d🔬"  # noqa: RUF001  Persian, with its joiner
    assert localctx("run", "Hi.", "--url", fake.url).stdout == fake.reply + "\n"


def test_ctrl_c_keeps_what_was_said_and_ends_with_130(environment: dict[str, str], fake: Fake, tmp_path: Path) -> None:
    fake.reply, fake.delay = "one two three four five " * 50, 0.1
    command = [sys.executable, "-m", "localctx", "run", "Count.", "--url", fake.url]
    with subprocess.Popen(
        command, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as child:
        assert child.stdout is not None
        assert child.stdout.read(7) == b"one two"
        child.send_signal(signal.SIGINT)
        out, error = child.communicate(timeout=20)
    assert child.returncode == 130
    assert b"Traceback" not in error
    last = [line for line in journal(tmp_path) if line.get("type") == "message"][-1]
    assert last["complete"] is False
    assert str(last["message"]).count("one") >= 1, out


# --- bad input ----------------------------------------------------------------------------------------------------


def unused() -> str:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return f"http://127.0.0.1:{probe.getsockname()[1]}"


def test_no_server_at_the_address(localctx: Run) -> None:
    url = unused()
    done = localctx("run", "Hi.", "--url", url)
    assert done.returncode == 3
    assert url in complaint(done.stderr)
    assert "--url" in complaint(done.stderr)


def test_no_server_has_the_model_that_was_named(localctx: Run) -> None:
    done = localctx("run", "Hi.", "--model", "nope")
    assert done.returncode == 3
    assert "127.0.0.1:8080" in complaint(done.stderr)


@pytest.mark.parametrize("url", ["http://", "ftp://127.0.0.1", "http://[::1", "127.0.0.1:99999"])
def test_an_address_that_is_none(localctx: Run, url: str) -> None:
    done = localctx("run", "Hi.", "--url", url)
    assert done.returncode == 2
    assert "http://127.0.0.1:8080" in complaint(done.stderr)


@pytest.mark.parametrize(
    "fault", ["html", "garbage", "not_http", "truncated_json", "redirect_loop", "wrong_content_type"]
)
def test_a_port_that_speaks_something_else(localctx: Run, fake: Fake, fault: str) -> None:
    fake.fault = fault
    done = localctx("run", "Hi.", "--url", fake.url)
    assert done.returncode in {1, 3}
    assert fake.url in complaint(done.stderr)


def test_a_key_that_is_refused(localctx: Run, fake: Fake) -> None:
    fake.api_key = "right"
    done = localctx("run", "Hi.", "--url", fake.url, LOCALCTX_API_KEY="wrong-key")
    assert done.returncode == 2
    assert "--api-key-env" in complaint(done.stderr)
    assert "wrong-key" not in done.stderr
    assert localctx("run", "Hi.", "--url", fake.url, "--api-key-env", "MINE", MINE="right").returncode == 0


def test_a_model_that_is_not_there(localctx: Run, fake: Fake) -> None:
    done = localctx("run", "Hi.", "--url", fake.url, "--model", "other")
    assert done.returncode == 3
    assert "fake-model" in complaint(done.stderr)


def test_a_model_that_is_still_loading(localctx: Run, fake: Fake) -> None:
    fake.loading_for = 1.5
    done = localctx("run", "Hi.", "--url", fake.url)
    assert done.returncode == 0, "it is waited for"


def test_a_server_that_dies_mid_stream_keeps_what_was_said(localctx: Run, fake: Fake, tmp_path: Path) -> None:
    fake.reply, fake.fault = "one two three four five six seven eight", "die_mid_stream"
    done = localctx("run", "Count.", "--url", fake.url)
    assert done.returncode == 1
    assert "log" in complaint(done.stderr)
    last = [line for line in journal(tmp_path) if line.get("type") == "message"][-1]
    assert last["complete"] is False
    assert "one" in str(last["message"])


def test_a_prompt_larger_than_the_window(localctx: Run, fake: Fake) -> None:
    fake.n_ctx = 512
    assert localctx("run", "Short.", "--url", fake.url).returncode == 0
    done = localctx("run", "long " * 3000, "--url", fake.url)
    assert done.returncode == 4
    line = complaint(done.stderr)
    assert "window is 512" in line
    assert "n_ctx" in line
    assert "--num-ctx" in line


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("model = ", "localctx.toml"),
        ("modell = 'x'", "modell"),
        ("num_ctx = 'big'", "num_ctx"),
        ("num_ctx = 0", "above 0"),
    ],
)
def test_a_configuration_that_is_wrong(localctx: Run, tmp_path: Path, text: str, said: str) -> None:
    (tmp_path / "work" / "localctx.toml").write_text(text, encoding="utf-8")
    done = localctx("run", "Hi.")
    assert done.returncode == 2
    assert said in complaint(done.stderr)


def test_a_threshold_out_of_order_falls_back_and_says_so(localctx: Run, fake: Fake, tmp_path: Path) -> None:
    (tmp_path / "work" / "localctx.toml").write_text("[thresholds]\nwarn = 0.9\ncompact = 0.8", encoding="utf-8")
    done = localctx("run", "Hi.", "--url", fake.url)
    assert done.returncode == 0
    assert "threshold warn 0.9 is not between 0 and compact (0.8); using 0.7" in done.stderr


def test_a_configuration_that_cannot_be_read(localctx: Run, tmp_path: Path) -> None:
    (tmp_path / "work" / "localctx.toml").mkdir()
    done = localctx("run", "Hi.")
    assert done.returncode == 2
    assert "localctx.toml" in complaint(done.stderr)


def test_a_data_directory_that_cannot_be_written(localctx: Run, fake: Fake, tmp_path: Path) -> None:
    (tmp_path / "data").write_text("in the way", encoding="utf-8")
    done = localctx("run", "Hi.", "--url", fake.url)
    assert (done.returncode, len(fake.chats)) == (0, 1)
    assert "LOCALCTX_HOME" in done.stderr
    assert "what cannot be written before the end is lost" in done.stderr
    assert "LOCALCTX_HOME" not in localctx("run", "Hi.", "--url", fake.url, "--ephemeral").stderr
    named = localctx("run", "Hi.", "--url", fake.url, "--session", "mine")
    assert named.returncode == 2
    assert "LOCALCTX_HOME" in complaint(named.stderr)


def test_a_session_that_is_not_there_or_open_elsewhere(localctx: Run, fake: Fake, tmp_path: Path) -> None:
    assert localctx("run", "Hi.", "--url", fake.url, "--continue").returncode == 3
    assert localctx("run", "Hi.", "--url", fake.url, "--resume", "nope").returncode == 3
    assert localctx("run", "Hi.", "--url", fake.url, "--session", "../out").returncode == 2
    assert localctx("run", "Hi.", "--url", fake.url, "--continue", "--ephemeral").returncode == 2
    fake.fault = "hang"
    first = threading.Thread(target=localctx, args=("run", "Hi.", "--url", fake.url, "--session", "mine"))
    first.start()
    path = tmp_path / "data" / "sessions" / "mine" / "journal.jsonl"
    while not path.exists():
        first.join(0.05)
    done = localctx("run", "Hi.", "--url", fake.url, "--session", "mine")
    assert done.returncode == 2
    assert "open in another program" in complaint(done.stderr)
    fake.fault = None
    first.join()


@pytest.mark.parametrize(
    "flags", [("--num-ctx", "0"), ("--num-ctx", "-5"), ("--policy", "nonsense"), ("--runtime", "x")]
)
def test_flags_that_are_wrong(localctx: Run, fake: Fake, flags: tuple[str, str]) -> None:
    done = localctx("run", "Hi.", "--url", fake.url, *flags)
    assert done.returncode == 2
    assert flags[0] in complaint(done.stderr)


def test_nothing_to_ask(localctx: Run, fake: Fake) -> None:
    assert localctx("run", "--url", fake.url).returncode == 2


def test_errors_are_events_for_scripts(localctx: Run) -> None:
    done = localctx("run", "Hi.", "--url", unused(), "--json")
    event, end = map(json.loads, done.stdout.splitlines())
    assert event["type"] == "error"
    assert event["exit_code"] == done.returncode == 3
    assert (end["type"], end["finish"]) == ("end", "error")


# --- where the output goes ------------------------------------------------------------------------------------------


def shell(line: str, environment: dict[str, str]) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        ["/bin/bash", "-c", line.replace("localctx", f"{sys.executable} -m localctx")],
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert "Traceback" not in done.stderr, done.stderr
    return done


def test_a_reader_that_has_seen_enough_ends_it_quietly(environment: dict[str, str], fake: Fake, tmp_path: Path) -> None:
    fake.reply, fake.delay = "one two three four five " * 200, 0.002
    done = shell(f"set -o pipefail; localctx run hi --url {fake.url} </dev/null | head -c 8", environment)
    assert (done.returncode, done.stdout) == (0, "one two ")
    last = [line for line in journal(tmp_path) if line.get("type") == "message"][-1]
    assert last["complete"] is False


@pytest.mark.parametrize("command", ["run hi --ephemeral --url {url}", "models list", "--help"])
def test_a_full_disk_behind_stdout_is_one_line(environment: dict[str, str], fake: Fake, command: str) -> None:
    done = shell(f"localctx {command.format(url=fake.url)} </dev/null >/dev/full", environment)
    assert done.returncode == 1
    assert "No space left" in complaint(done.stderr)


@pytest.mark.parametrize(("closed", "code"), [("<&-", 0), (">&-", 1), ("2>&-", 0)])
def test_a_closed_stream_is_no_crash(environment: dict[str, str], fake: Fake, closed: str, code: int) -> None:
    done = shell(f"localctx run hi --ephemeral --url {fake.url} {closed}", environment | {"PYTHONFAULTHANDLER": ""})
    assert done.returncode == code


@pytest.mark.parametrize("seconds", [0.15, 0.3, 0.6])
def test_an_early_ctrl_c_leaves_no_traceback(environment: dict[str, str], seconds: float) -> None:
    with subprocess.Popen(
        [sys.executable, "-m", "localctx", "probe", "--watch"],
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as child:
        time.sleep(seconds)
        child.send_signal(signal.SIGINT)
        try:
            _, error = child.communicate(timeout=20)
        finally:
            child.kill()
    if b"in main" in error or b"localctx: interrupted" in error:
        assert child.returncode == 130
        assert b"Traceback" not in error


def test_a_ctrl_c_while_an_object_is_freed_is_not_lost(environment: dict[str, str]) -> None:
    code = """
import os, signal, time, weakref
from localctx import __main__ as program

class Freed: pass

def stop(_):
    os.kill(os.getpid(), signal.SIGINT)
    for _ in range(1000): pass

signal.signal(signal.SIGINT, program._interrupt)
freed = Freed()
seen = weakref.ref(freed, stop)
del freed
time.sleep(15)
"""
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (130, "localctx: interrupted\n")


def test_binary_input_is_refused(environment: dict[str, str], fake: Fake) -> None:
    done = shell(f"head -c 3000 {sys.executable} | localctx run 'What is it?' --url {fake.url}", environment)
    assert done.returncode == 2
    assert "binary" in complaint(done.stderr)


def test_a_pin_that_is_not_met_and_a_reply_that_is_cut_are_said(localctx: Run, fake: Fake) -> None:
    fake.reply = "one two three four five"
    done = localctx("run", "Hi.", "--url", fake.url, "--num-ctx", "100000", "--max-tokens", "2")
    assert "100,000 tokens were asked for (--num-ctx); 4,096 are to be had" in done.stderr
    assert "cut off at 2 tokens" in done.stderr


def test_a_session_in_which_nothing_was_said_is_none(localctx: Run, fake: Fake, tmp_path: Path) -> None:
    fake.api_key = "right"
    assert localctx("run", "Hi.", "--url", fake.url).returncode == 2
    assert list((tmp_path / "data" / "sessions").iterdir()) == []


def test_a_server_that_was_restarted_with_another_window_is_noticed(localctx: Run, fake: Fake) -> None:
    localctx("run", "First.", "--url", fake.url, "--session", "mine")
    fake.n_ctx = 1024
    done = localctx("run", "Second.", "--url", fake.url, "--session", "mine")
    assert "window 1,024 tokens, served" in done.stderr


def test_ctrl_c_ends_a_watch_with_130(environment: dict[str, str], fake: Fake) -> None:
    command = [sys.executable, "-m", "localctx", "probe", "--watch", "--url", fake.url]
    with subprocess.Popen(
        command, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
    ) as child:
        while not fake.requests and child.poll() is None:
            time.sleep(0.05)
        child.send_signal(signal.SIGINT)
        _, error = child.communicate(timeout=20)
    assert child.returncode == 130
    assert b"Traceback" not in error


@pytest.mark.parametrize(
    ("reply", "extra", "finish"),
    [
        ("Hello.", (), "stop"),
        ("word " * 50, ("--max-tokens", "5"), "length"),
        (Calls("", [("context_info", "{}")]), ("--max-steps", "2"), "step-limit"),
    ],
)
def test_a_program_is_told_how_a_run_ended(
    localctx: Run, fake: Fake, reply: str | Calls, extra: tuple[str, ...], finish: str
) -> None:
    fake.tools, fake.reply = True, lambda _body: reply
    done = localctx("run", "Go.", "--url", fake.url, "--json", *extra)
    end = json.loads(done.stdout.splitlines()[-1])
    assert (done.returncode, end["type"], end["finish"]) == (0, "end", finish)
    assert end["session"]


def test_a_program_is_told_of_an_error_and_then_of_the_end(localctx: Run, fake: Fake) -> None:
    fake.fault = "error_mid_stream"
    done = localctx("run", "Go.", "--url", fake.url, "--json")
    *_, error, end = (json.loads(line) for line in done.stdout.splitlines())
    assert (done.returncode, error["type"], error["exit_code"]) == (1, "error", 1)
    assert (end["type"], end["finish"]) == ("end", "error")
    assert end["session"], "it can be gone on with"


PNG = b"\x89PNG\r\n\x1a\n" + bytes(20)


def test_an_image_goes_with_the_prompt(localctx: Run, fake: Fake, tmp_path: Path) -> None:
    fake.vision = True
    for name in ("one.png", "two.png"):
        (tmp_path / "work" / name).write_bytes(PNG)
    done = localctx("run", "What is it?", "--image", "one.png", "--image", "two.png", "--url", fake.url)
    assert done.returncode == 0, done.stderr
    kinds = [part["type"] for part in fake.chats[0]["messages"][-1]["content"]]
    assert kinds == ["text", "image_url", "image_url"]


@pytest.mark.parametrize(
    ("args", "why"),
    [
        (("What?", "--image", "gone.png"), "cannot attach gone.png"),
        (("What?", "--image", "text.png"), "no image that models take"),
        (("What?", "--image", "real.png"), "cannot see images"),
        (("--image", "real.png"), "nothing was asked|goes with a PROMPT"),
    ],
)
def test_an_image_that_is_of_no_use_is_refused_before_anything_is_sent(
    localctx: Run, fake: Fake, tmp_path: Path, args: tuple[str, ...], why: str
) -> None:
    (tmp_path / "work" / "text.png").write_text("no image", encoding="utf-8")
    (tmp_path / "work" / "real.png").write_bytes(PNG)
    done = localctx("run", *args, "--url", fake.url)
    assert done.returncode == 2
    assert re.search(why, done.stderr)
    assert fake.chats == []


def test_whether_the_model_thinks_is_passed_on_or_said_not_to_be(localctx: Run, fake: Fake) -> None:
    assert localctx("run", "Hi.", "--think", "off", "--url", fake.url).returncode == 0
    assert fake.chats[0]["chat_template_kwargs"] == {"enable_thinking": False}
    done = localctx("run", "Hi.", "--think", "on", "--runtime", "openai", "--url", fake.url)
    assert "chat_template_kwargs" not in fake.chats[1]
    assert "no known way to turn thinking on" in done.stderr
    assert localctx("run", "Hi.", "--think", "maybe", "--url", fake.url).returncode == 2
