from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.conftest import Run
from tests.fakes.llama_server import Fake, running

CHAT = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": "What is in notes.txt?"},
    {
        "role": "assistant",
        "content": None,
        "tool_calls": [
            {"id": "a", "type": "function", "function": {"name": "read", "arguments": '{"path": "notes.txt"}'}}
        ],
    },
    {"role": "tool", "tool_call_id": "a", "content": "Ten words, more or less, and nothing else in it."},
]
TOOL = {"type": "function", "function": {"name": "read", "description": "Reads a file.", "parameters": {}}}


@pytest.fixture
def text(tmp_path: Path) -> Path:
    path = tmp_path / "notes.txt"
    path.write_text("Ten words, more or less, and nothing else in it.\n")
    return path


@pytest.fixture
def chat(tmp_path: Path) -> Path:
    path = tmp_path / "chat.json"
    path.write_text(json.dumps({"messages": CHAT, "tools": [TOOL]}))
    return path


def test_a_server_counts_exactly_and_gives_the_share_of_its_window(localctx: Run, text: Path, chat: Path) -> None:
    with running(Fake(n_ctx=2048)) as server:
        done = localctx("count", str(text), str(chat), "--url", server.url, "--json")
        exact = server.prompt_tokens({"messages": CHAT, "tools": [TOOL]})
    document = json.loads(done.stdout)
    assert (document["schema"], document["runtime"]) == (1, "llama-server")
    assert document["window"] == {"effective": 2048, "confidence": "served"}
    plain, conversation = document["files"]
    assert (plain["format"], plain["bound"], plain["how"]) == ("text", 0, "llama-server's own count")
    assert (conversation["format"], conversation["tokens"], conversation["bound"]) == ("openai", exact, 0)
    assert conversation["how"] == "llama-server input_tokens"
    assert conversation["share"] == pytest.approx(exact / 2048, abs=0.0001)
    assert [message["role"] for message in conversation["messages"]] == ["system", "user", "assistant", "tool"]
    parts = sum(message["tokens"] for message in conversation["messages"]) + conversation["beside"]["tokens"]
    assert parts == pytest.approx(exact, abs=6), "the parts add up to about the whole"
    assert document["total"]["tokens"] == plain["tokens"] + exact


@pytest.mark.usefixtures("no_server")
def test_a_person_sees_each_message_the_bound_and_where_it_comes_from(localctx: Run, chat: Path) -> None:
    done = localctx("count", str(chat), "--num-ctx", "4096")
    assert done.returncode == 0
    lines = done.stdout.splitlines()
    assert [line.split()[3] for line in lines[:4]] == ["system", "user", "assistant", "tool"]
    assert "+-" in lines[0]
    assert "1 tool schema" in lines[4]
    assert lines[5].endswith(f"{chat} (openai, 4 messages)")
    assert "%" in lines[5]
    assert "counted by: estimate" in lines
    assert "window: 4,096 tokens, provisional (--num-ctx)" in lines


@pytest.mark.usefixtures("no_server")
def test_without_a_server_and_a_model_it_is_an_estimate_without_shares(localctx: Run, text: Path) -> None:
    done = localctx("count", str(text), "--json")
    document = json.loads(done.stdout)
    (counted,) = document["files"]
    assert counted["how"] == "estimate"
    assert counted["tokens"] - counted["bound"] <= 12 <= counted["tokens"] + counted["bound"]
    assert counted["share"] is None
    assert document["window"] == {"effective": None, "confidence": "unknown"}


def test_the_baseline_can_be_asked_for(localctx: Run, text: Path) -> None:
    done = localctx("count", str(text), "--counter", "baseline", "--json")
    (counted,) = json.loads(done.stdout)["files"]
    assert (counted["tokens"], counted["how"]) == (13, "seed ratio")


@pytest.mark.usefixtures("no_server")
def test_what_is_piped_in_is_counted(localctx: Run) -> None:
    assert "estimate" in localctx("count", stdin="a few words").stdout
    piped = localctx("count", "-", "--json", stdin="\n".join(json.dumps(message) for message in CHAT))
    (counted,) = json.loads(piped.stdout)["files"]
    assert (counted["file"], counted["format"], len(counted["messages"])) == ("-", "openai", 4)


def test_several_conversations_in_a_file_are_counted_apart(localctx: Run, tmp_path: Path) -> None:
    path = tmp_path / "many.jsonl"
    path.write_text("\n".join(json.dumps({"messages": CHAT[: number + 2]}) for number in range(3)))
    document = json.loads(localctx("count", str(path), "--json").stdout)
    assert [len(each["messages"]) for each in document["files"]] == [2, 3, 4]
    assert [each["file"] for each in document["files"]] == [f"{path} #{number}" for number in (1, 2, 3)]
    assert document["total"]["tokens"] == sum(each["tokens"] for each in document["files"])


def test_a_model_that_nobody_has_is_said_and_estimated(localctx: Run, text: Path) -> None:
    done = localctx("count", str(text), "--model", "nobody-knows-it")
    assert done.returncode == 0
    assert "nobody-knows-it: this is an estimate" in done.stderr


@pytest.mark.parametrize(
    ("args", "code", "said"),
    [
        (["missing.txt"], 2, "there is no file missing.txt"),
        (["."], 2, "is a folder"),
        (["--model", "missing.gguf"], 2, "missing.gguf is not there"),
        (["--url", "http://127.0.0.1:9"], 3, "127.0.0.1:9"),
    ],
)
def test_a_mistake_is_one_line_with_the_next_step(localctx: Run, args: list[str], code: int, said: str) -> None:
    done = localctx("count", *args, stdin="some text")
    assert done.returncode == code
    assert said in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1
    assert done.stdout == ""


def test_a_file_that_cannot_be_read_does_not_cost_the_others(localctx: Run, text: Path, tmp_path: Path) -> None:
    binary = tmp_path / "image.png"
    binary.write_bytes(b"\0PNG")
    done = localctx("count", str(binary), str(text), "missing.txt")
    assert done.returncode == 2
    assert f"{text} (text)" in done.stdout
    assert "image.png is binary" in done.stderr
    assert "there is no file missing.txt" in done.stderr


def test_line_ends_are_counted_as_they_are(localctx: Run, tmp_path: Path) -> None:
    path = tmp_path / "dos.txt"
    path.write_bytes(b"one\r\ntwo\r\n" * 50)
    with running(Fake()) as server:
        localctx("count", str(path), "--url", server.url)
        asked = [request.body["content"] for request in server.requests if request.path == "/tokenize"]
    assert any("\r\n" in content for content in asked)


def test_a_text_that_the_server_cannot_take_is_estimated(localctx: Run, tmp_path: Path) -> None:
    path = tmp_path / "minified.json"
    path.write_text("x" * 200_000)
    with running(Fake()) as server:
        done = localctx("count", str(path), "--url", server.url, "--json")
    (counted,) = json.loads(done.stdout)["files"]
    assert counted["how"] == "estimate"
    assert counted["bound"] > 0


def test_a_pin_is_the_window_of_what_would_be_started(localctx: Run, text: Path) -> None:
    done = localctx("count", str(text), "--runtime", "embedded", "--num-ctx", "2000", "--json")
    assert json.loads(done.stdout)["window"] == {"effective": 2000, "confidence": "provisional"}


def test_a_message_cannot_steer_the_terminal(localctx: Run, tmp_path: Path) -> None:
    path = tmp_path / "evil.json"
    path.write_text(json.dumps([{"role": "us\x1b[31mer", "content": "\x1b]0;title\x07 hi \u202e"}]))
    done = localctx("count", str(path))
    assert "\x1b" not in done.stdout
    assert "\u202e" not in done.stdout


def test_nothing_is_loaded_for_a_count(localctx: Run, text: Path) -> None:
    with running(Fake()) as server:
        localctx("count", str(text), "--url", server.url)
        assert server.chats == []
