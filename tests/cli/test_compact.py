from __future__ import annotations

import json
import os
import re
import signal
import stat
import subprocess
import sys
import time
from pathlib import Path

import pytest

from localctx.cli.compact import _load as load_one
from localctx.core.outgoing import defects
from localctx.errors import Misuse
from localctx.wiring.compacting import check_new
from tests.app.conftest import NOTES, answering
from tests.cli.conftest import Run
from tests.fakes.llama_server import Fake, running
from tests.fakes.ollama import Fake as Ollama
from tests.fakes.ollama import Model as OllamaModel
from tests.fakes.ollama import running as running_ollama
from tests.wiring.test_vocabularies import KEYS, TOKENS

Messages = list[dict[str, object]]

TASK = "Read the manual, a chapter at a time. Never mention Perl."
TOOL = {"type": "function", "function": {"name": "read", "description": "Reads a chapter.", "parameters": {}}}


def chapter(number: int) -> str:
    return f"Chapter {number} begins. " + "so it goes on and on " * 60


def reading(chapters: int) -> Messages:
    """An agent's run in OpenAI's form."""
    messages: Messages = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": TASK}]
    for number in range(chapters):
        function = {"name": "read", "arguments": json.dumps({"chapter": number})}
        call = {"id": f"c{number}", "type": "function", "function": function}
        messages += [
            {"role": "assistant", "content": None, "tool_calls": [call]},
            {"role": "tool", "tool_call_id": f"c{number}", "content": chapter(number)},
        ]
    return [*messages, {"role": "assistant", "content": "All is read."}]


def talking(turns: int) -> Messages:
    messages: Messages = [{"role": "user", "content": TASK}, {"role": "assistant", "content": "Go on."}]
    for turn in range(turns):
        messages += [{"role": "user", "content": chapter(turn)}, {"role": "assistant", "content": f"Noted {turn}."}]
    return messages


def as_lines(values: list[object]) -> str:
    return "".join(json.dumps(value) + "\n" for value in values)


def as_openai(messages: Messages) -> str:
    return json.dumps({"messages": messages, "tools": [TOOL]})


def as_jsonl(messages: Messages) -> str:
    return as_lines([*messages])


def as_claude_code(messages: Messages) -> str:
    entries: list[object] = []
    for number, message in enumerate(messages):
        said = {"role": message["role"], "content": message["content"]}
        where = {"uuid": f"u{number}", "parentUuid": f"u{number - 1}" if number else None, "sessionId": "s"}
        entries.append({"type": message["role"], "message": said, **where, "isSidechain": False})
    return as_lines(entries)


def as_codex(messages: Messages) -> str:
    entries: list[object] = [{"type": "session_meta", "payload": {"id": "s", "instructions": "Be brief."}}]
    for message in messages:
        kind = "input_text" if message["role"] == "user" else "output_text"
        payload = {"type": "message", "role": message["role"], "content": [{"type": kind, "text": message["content"]}]}
        entries.append({"type": "response_item", "payload": payload})
    return as_lines(entries)


def as_sharegpt(messages: Messages) -> str:
    speakers = {"user": "human", "assistant": "gpt"}
    turns = [{"from": speakers[str(each["role"])], "value": each["content"]} for each in messages]
    return json.dumps([{"id": "one", "conversations": turns}])


@pytest.fixture
def talk(tmp_path: Path) -> Path:
    path = tmp_path / "talk.json"
    path.write_text(json.dumps(talking(40)))
    return path


@pytest.fixture
def run(tmp_path: Path) -> Path:
    path = tmp_path / "run.json"
    path.write_text(as_openai(reading(20)))
    return path


def complaint(done: subprocess.CompletedProcess[str]) -> str:
    """The one line that says why."""
    lines = [line for line in done.stderr.splitlines() if line.startswith("localctx: ")]
    assert len(lines) == 1, done.stderr
    return lines[0]


# --- what is read, and what is written ----------------------------------------------------------------------------


@pytest.mark.usefixtures("no_server")
def test_each_format_is_settled_and_what_is_written_counts_the_same(localctx: Run, tmp_path: Path) -> None:
    given = {
        "openai": as_openai(reading(20)),
        "jsonl": as_jsonl(reading(20)),
        "claude-code": as_claude_code(talking(40)),
        "codex": as_codex(talking(40)),
        "sharegpt": as_sharegpt(talking(40)),
    }
    left = dict[str, int]()
    for form, text in given.items():
        file, new = tmp_path / form, tmp_path / f"{form}.json"
        file.write_text(text)
        done = localctx("compact", str(file), "--format", form, "--window", "2048", "--out", str(new), "--json")
        document = json.loads(done.stdout)
        assert (done.returncode, document["schema"], document["fits"]) == (0, 1, True)
        assert document["format"] == ("openai" if form == "jsonl" else form)
        assert document["before"]["count"]["tokens"] > 2048
        written = json.loads(new.read_text())
        assert defects(written["messages"]) == []
        assert TASK in str(written["messages"])
        assert written.get("tools", []) == ([TOOL] if form == "openai" else [])
        assert file.read_text() == text
        left[str(new)] = document["after"]["count"]["tokens"]
    counted = json.loads(localctx("count", *left, "--json").stdout)["files"]
    assert {each["file"]: each["tokens"] for each in counted} == left


def test_standard_input_is_a_transcript_too(localctx: Run, run: Path, tmp_path: Path) -> None:
    new = tmp_path / "new.json"
    done = localctx("compact", "-", "--window", "2048", "--out", str(new), stdin=run.read_text())
    assert done.returncode == 0
    assert done.stdout.startswith("-: openai, 43 messages\n")
    assert TASK in new.read_text()


def test_another_format_than_the_files_is_refused(run: Path) -> None:
    with pytest.raises(Misuse, match="is of the format openai, not codex; pass --format auto"):
        load_one(str(run), "codex")


@pytest.mark.parametrize("form", ["auto", "openai", "jsonl"])
def test_the_format_may_be_named(run: Path, form: str) -> None:
    assert load_one(str(run), form).messages == tuple(reading(20))


def test_a_format_that_nobody_knows(run: Path) -> None:
    with pytest.raises(Misuse, match=r"unknown format 'yaml' \(--format\); known: auto, jsonl, openai"):
        load_one(str(run), "yaml")


# --- what a person sees -------------------------------------------------------------------------------------------


def test_a_person_sees_the_window_each_rung_and_a_table(localctx: Run, talk: Path, tmp_path: Path) -> None:
    new = tmp_path / "new.json"
    done = localctx("compact", str(talk), "--window", "4096", "--out", str(new))
    lines = done.stdout.splitlines()
    assert lines[0] == f"{talk}: openai, 82 messages"
    assert lines[1] == "window 4,096 tokens, provisional (--window); policy ladder"
    assert lines[2].split()[:2] == ["compact", "machine"]
    assert lines[3].split() == ["before", "after"]
    before, after = (int(each.replace(",", "")) for each in lines[-4].split()[-2:])
    assert lines[-4].startswith("in all")
    assert f"{before:,} ->" in lines[2]
    assert f"{after:,} tokens" in lines[2]
    assert lines[-2].startswith("messages of the user: ")
    assert lines[-1].startswith("it fits: ")
    assert lines[-1].endswith("of 3,482 for the prompt")
    assert done.stderr.splitlines()[-1].endswith(f"messages to {new}, the checkpoint among them")


def test_nothing_due_changes_nothing(localctx: Run, talk: Path, tmp_path: Path) -> None:
    new = tmp_path / "new.json"
    done = localctx("compact", str(talk), "--window", "131072", "--out", str(new))
    assert "nothing was due: " in done.stdout
    assert stat.S_IMODE(new.stat().st_mode) == 0o600, "what is written is private"
    assert json.loads(new.read_text())["messages"] == talking(40)
    assert "checkpoint" not in done.stderr


def test_a_file_name_cannot_steer_the_terminal(localctx: Run, tmp_path: Path) -> None:
    path = tmp_path / "evil\x1b[31m.json"
    path.write_text(json.dumps(talking(2)))
    assert "\x1b" not in localctx("compact", str(path)).stdout


def test_what_is_not_in_the_file_and_what_was_left_out_is_said(localctx: Run, tmp_path: Path) -> None:
    path = tmp_path / "saved"
    path.write_text(as_claude_code(talking(2)) + json.dumps({"type": "summary", "summary": "x"}) + "\n")
    done = localctx("compact", str(path))
    assert "not in the file: the system prompt and the tools" in done.stdout
    assert f"left out: 1 entries (localctx count {path} says which)" in done.stdout


def test_decisions_are_logged_without_the_text_of_messages(localctx: Run, talk: Path, tmp_path: Path) -> None:
    log = tmp_path / "decisions.log"
    localctx("--log-file", str(log), "compact", str(talk), "--window", "2048")
    text = log.read_text()
    assert '"rung": "compact"' in text
    assert "Perl" not in text


# --- the document -------------------------------------------------------------------------------------------------


def test_the_document_for_programs(localctx: Run, run: Path) -> None:
    done = localctx("compact", str(run), "--window", "4096", "--policy", "micro", "--json")
    document = json.loads(done.stdout)
    assert (done.returncode, done.stderr) == (0, "")
    assert document["window"] == {
        "effective": 4096,
        "confidence": "provisional",
        "prompt": 3482,
        "reserve": 614,
        "decided_by": {"source": "pinned", "tokens": 4096, "where": "--window", "note": None},
    }
    assert (document["file"], document["policy"]) == (str(run), "micro")
    assert (document["model"], document["runtime"], document["url"]) == (None, None, None)
    assert (document["left_out"], document["unrecorded"]) == ([], None)
    before, after = document["before"], document["after"]
    assert before["count"].keys() == {"tokens", "bound", "how"}
    assert before["fills"].keys() == {"system", "checkpoint", "user", "assistant", "tools"}
    assert (before["messages"], document["shaped"]) == (43, 0)
    assert (document["words_shortened"], document["words_left_out"]) == (0, 0)
    rungs = document["rungs"]
    assert rungs[0]["rung"] == "clear"
    assert rungs[0]["tokens_before"] == before["count"]["tokens"]
    assert rungs[-1]["tokens_after"] == after["count"]["tokens"]
    assert rungs[-1]["messages_after"] == after["messages"]


def test_a_mistake_is_one_document_too(localctx: Run) -> None:
    done = localctx("compact", "missing.json", "--json")
    assert done.returncode == 2
    assert json.loads(done.stdout)["type"] == "error"
    assert done.stderr == ""


# --- window and policy --------------------------------------------------------------------------------------------


def test_a_window_that_nobody_states_is_assumed_and_said(localctx: Run, talk: Path) -> None:
    done = localctx("compact", str(talk))
    assert "assuming 4,096 tokens; pass --window" in done.stderr
    assert "window 4,096 tokens, unknown" in done.stdout
    configured = localctx("compact", str(talk), LOCALCTX_NUM_CTX="2000")
    assert "window 2,000 tokens, provisional (LOCALCTX_NUM_CTX)" in configured.stdout


def test_a_window_that_is_none(localctx: Run, talk: Path) -> None:
    done = localctx("compact", str(talk), "--window", "0")
    assert (done.returncode, done.stdout) == (2, "")
    assert "--window" in done.stderr


@pytest.mark.parametrize(
    ("policy", "rungs", "code"),
    [
        ("ladder", {"clear", "compact", "trim"}, 0),
        ("replace", {"compact", "trim"}, 0),
        ("micro", {"clear", "compact", "trim"}, 0),
        ("gate", {"compact", "trim"}, 0),
        ("none", set(), 4),
    ],
)
def test_each_policy_takes_its_own_rungs(localctx: Run, run: Path, policy: str, rungs: set[str], code: int) -> None:
    done = localctx("compact", str(run), "--window", "2048", "--policy", policy, "--json")
    document = json.loads(done.stdout)
    taken = {rung["rung"] for rung in document["rungs"]}
    assert (done.returncode, document["policy"], document["fits"]) == (code, policy, code == 0)
    assert taken <= rungs
    assert bool(taken) == bool(rungs)


def test_a_policy_that_is_none(localctx: Run, talk: Path) -> None:
    done = localctx("compact", str(talk), "--policy", "wild")
    assert done.returncode == 2
    assert "unknown policy 'wild' (--policy); known: ladder" in complaint(done)


# --- --out --------------------------------------------------------------------------------------------------------


def test_a_file_that_is_there_is_never_overwritten(localctx: Run, talk: Path) -> None:
    text = talk.read_text()
    done = localctx("compact", str(talk), "--out", str(talk))
    assert (done.returncode, done.stdout) == (2, "")
    assert f"{talk} is there already, and stays as it is" in complaint(done)
    assert talk.read_text() == text


def test_nor_is_anything_else_by_that_name(tmp_path: Path) -> None:
    link = tmp_path / "link"
    link.symlink_to(tmp_path / "nowhere")
    for there in (tmp_path, link):
        with pytest.raises(Misuse, match="is there already"):
            check_new(there)


def test_a_folder_that_is_not_there_is_said_before_anything_is_done(localctx: Run, talk: Path, tmp_path: Path) -> None:
    done = localctx("compact", str(talk), "--out", str(tmp_path / "no" / "new.json"))
    assert (done.returncode, done.stdout) == (2, "")
    assert "no folder that you can write" in complaint(done)


# --- files that are none ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("content", "said"),
    [
        pytest.param(b"", "is empty", id="empty"),
        pytest.param(as_openai(reading(2)).encode()[:-40], "is broken JSON (line 1, column ", id="broken JSON"),
        pytest.param(b"\0PNG", "is binary (byte 0 is zero)", id="binary"),
    ],
)
def test_a_file_that_is_no_transcript_is_one_line_with_the_next_step(
    localctx: Run, tmp_path: Path, content: bytes, said: str
) -> None:
    path, new = tmp_path / "saved", tmp_path / "new.json"
    path.write_bytes(content)
    done = localctx("compact", str(path), "--window", "2048", "--out", str(new))
    assert (done.returncode, done.stdout) == (2, "")
    assert said in complaint(done)
    assert "; " in complaint(done)
    assert len(done.stderr.strip().splitlines()) == 1
    assert (path.read_bytes(), new.exists()) == (content, False)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        pytest.param(b" \n\n", "is empty", id="blank"),
        pytest.param(b"Just some words.\n", "holds no conversation that is known", id="text"),
        pytest.param(b"[A note] in brackets", "is broken JSON", id="text that begins like JSON"),
        pytest.param(b'{"name": "x"}', "holds no conversation that is known", id="other JSON"),
        pytest.param(b'{"name": "x"}\n{"name": "y"}\n', "holds no conversation that is known", id="other JSON lines"),
        pytest.param(b"{'messages': []}", "is broken JSON (line 1, column 2: ", id="no JSON"),
        pytest.param(b'[\n {"role": "user"\n', "is broken JSON (line 3, column 1: ", id="torn"),
        pytest.param(b"[" * 100_000, "nested too deeply", id="deep"),
        pytest.param(b"[" + b"1" * 5000 + b"]", "a number that is too long", id="a long number"),
        pytest.param(b"\xff\xfe[", "is not UTF-8 text", id="not UTF-8"),
        pytest.param(b'{"messages": []}', "holds no conversation", id="no message"),
    ],
)
def test_other_content_that_is_no_transcript(tmp_path: Path, content: bytes, said: str) -> None:
    path = tmp_path / "saved"
    path.write_bytes(content)
    with pytest.raises(Misuse, match=re.escape(said)):
        load_one(str(path), "auto")


def test_places_without_a_transcript(tmp_path: Path) -> None:
    os.mkfifo(pipe := tmp_path / "pipe")
    huge = tmp_path / "huge.json"
    with huge.open("wb") as file:
        file.truncate(300 * 2**20)
    said = {
        tmp_path / "missing.json": "there is no file",
        tmp_path: "is a folder",
        pipe: "is no regular file",
        huge: "has 300 MiB, more than the 256 MiB that are read",
        tmp_path / ("a" * 300): "cannot read",
    }
    for path, words in said.items():
        with pytest.raises(Misuse, match=words):
            load_one(str(path), "auto")


def test_standard_input_may_be_empty(localctx: Run) -> None:
    assert "standard input is empty" in complaint(localctx("compact", "-", stdin=""))


def test_several_conversations_in_a_file_are_refused_with_their_number(tmp_path: Path) -> None:
    path = tmp_path / "many.jsonl"
    path.write_text(as_lines([{"messages": talking(turns)} for turns in (1, 2, 3)]))
    with pytest.raises(Misuse, match="holds 3 conversations, and one is taken; save one to a file of its own"):
        load_one(str(path), "auto")


def test_damaged_lines_cost_only_themselves(tmp_path: Path) -> None:
    path = tmp_path / "torn.jsonl"
    path.write_text(as_jsonl(talking(40)) + '{"role": "user", "cont')
    conversation = load_one(str(path), "auto")
    assert conversation.messages == tuple(talking(40))
    assert [str(loss) for loss in conversation.left_out] == ["1 torn last lines that cannot be read"]


# --- what cannot be made to fit -----------------------------------------------------------------------------------


def test_what_cannot_fit_ends_with_4_and_the_arithmetic(localctx: Run, tmp_path: Path) -> None:
    path, new = tmp_path / "long.json", tmp_path / "new.json"
    path.write_text(json.dumps([*talking(4), {"role": "user", "content": "long " * 4000}]))
    done = localctx("compact", str(path), "--window", "2048", "--out", str(new))
    assert done.returncode == 4
    line = complaint(done)
    assert f"{path} cannot be made to fit by policy ladder" in line
    assert "of a window of 2,048 a prompt may take 1,741" in line
    assert "user is the most of it with about" in line
    assert "pass a larger --window" in line
    assert "--url" in line, "an estimate has a bound that a server's count has not"
    assert "another --policy" not in line
    assert "it does not fit" in done.stdout
    assert not new.exists()


def test_for_programs_the_document_says_so_and_stays_one(localctx: Run, talk: Path) -> None:
    done = localctx("compact", str(talk), "--window", "2048", "--policy", "none", "--json")
    assert done.returncode == 4
    assert json.loads(done.stdout)["fits"] is False
    assert "another --policy" in complaint(done)


# --- a model and its server ---------------------------------------------------------------------------------------


def test_a_server_counts_and_its_model_writes_the_notes(localctx: Run, talk: Path, tmp_path: Path) -> None:
    new = tmp_path / "new.json"
    with running(Fake(n_ctx=4096, reply=answering("No."))) as server:
        done = localctx("compact", str(talk), "--url", server.url, "--out", str(new), "--json")
        written = json.loads(new.read_text())
        exact = server.prompt_tokens({"messages": talking(40)}), server.prompt_tokens(written)
        asked = server.chats
    document = json.loads(done.stdout)
    assert (document["model"], document["runtime"], document["url"]) == ("fake-model", "llama-server", server.url)
    assert (document["window"]["effective"], document["window"]["confidence"]) == (4096, "served")
    before, after = document["before"]["count"], document["after"]["count"]
    assert (before["tokens"], after["tokens"]) == exact
    assert (before["bound"], after["bound"], after["how"]) == (0, 0, "llama-server input_tokens")
    assert [rung["how"] for rung in document["rungs"]] == ["model"]
    assert "The first pieces of the manual were read." in str(written["messages"])
    assert asked
    kept = [path for path in (tmp_path / "data").rglob("*") if path.is_file() and b"Perl" in path.read_bytes()]
    assert kept == [], "a transcript is no session"
    assert "fake-model on llama-server" in done.stderr
    assert "compacting" in done.stderr


def test_notes_that_are_none_are_refused_and_the_record_serves(localctx: Run, talk: Path, tmp_path: Path) -> None:
    new = tmp_path / "new.json"
    with running(Fake(n_ctx=4096, reply=answering("No.", notes="I will now go on."))) as server:
        done = localctx("compact", str(talk), "--url", server.url, "--out", str(new), "--json")
    document = json.loads(done.stdout)
    assert (done.returncode, document["fits"]) == (0, True)
    assert [rung["how"] for rung in document["rungs"]] == ["machine"]
    assert "the model's summary was refused (its headings are missing)" in done.stderr
    assert "go on" not in str(json.loads(new.read_text())["messages"][-1])


def test_a_dry_run_asks_no_model_and_writes_nothing(localctx: Run, talk: Path, tmp_path: Path) -> None:
    new = tmp_path / "new.json"
    with running(Fake(n_ctx=4096, reply=answering("No."))) as server:
        done = localctx("compact", str(talk), "--url", server.url, "--dry-run", "--out", str(new), "--json")
        asked = server.chats
    document = json.loads(done.stdout)
    assert (asked, new.exists(), done.returncode) == ([], False, 0)
    assert [rung["how"] for rung in document["rungs"]] == ["machine"]
    assert document["before"]["count"]["bound"] == 0, "the server counts all the same"


@pytest.mark.parametrize(("served", "window"), [(2048, 8192), (8192, 2048)])
def test_another_window_than_the_models_is_settled_by_it_in_its_own(
    localctx: Run, talk: Path, served: int, window: int
) -> None:
    with running(Fake(n_ctx=served, reply=answering("No."))) as server:
        done = localctx("compact", str(talk), "--url", server.url, "--window", str(window), "--json")
        for body in server.chats:
            assert server.prompt_tokens(body) + body["max_tokens"] <= served
    document = json.loads(done.stdout)
    assert (document["window"]["effective"], document["fits"]) == (window, True)
    assert document["rungs"][0]["how"] == "model"


def test_tools_of_the_file_are_counted_by_the_server(localctx: Run, run: Path) -> None:
    with running(Fake(n_ctx=131072)) as server:
        done = localctx("compact", str(run), "--url", server.url, "--json")
        exact = server.prompt_tokens({"messages": reading(20), "tools": [TOOL]})
    assert json.loads(done.stdout)["before"]["count"]["tokens"] == exact


def test_an_ollama_counts_by_its_vocabulary_from_the_first_count_on(localctx: Run, tmp_path: Path) -> None:
    path = tmp_path / "short.json"
    path.write_text(json.dumps([{"role": "user", "content": "Count me."}]))
    model = OllamaModel(name="letters:latest", vocabulary=TOKENS, about_vocabulary=KEYS)
    with running_ollama(Ollama(models=[model])) as server:
        done = localctx("compact", str(path), "--url", server.url, "--json", OLLAMA_MODELS=str(tmp_path / "models"))
    document = json.loads(done.stdout)
    assert (document["runtime"], document["model"]) == ("ollama", "letters:latest")
    assert document["before"]["count"]["bound"] == 0
    assert document["before"]["count"]["how"] == "Ollama's rendered prompt and GGUF vocabulary"


@pytest.mark.parametrize(
    ("options", "code", "said"),
    [
        (["--url", "http://127.0.0.1:9"], 3, "127.0.0.1:9"),
        (["--model", "missing.gguf"], 3, "missing.gguf"),
    ],
)
def test_a_model_that_cannot_be_reached(localctx: Run, talk: Path, options: list[str], code: int, said: str) -> None:
    done = localctx("compact", str(talk), *options, "--out", "new.json")
    assert (done.returncode, done.stdout) == (code, "")
    assert not (talk.parent / "work" / "new.json").exists()
    assert said in complaint(done)


def test_a_server_that_dies_while_it_writes_costs_only_its_notes(localctx: Run, talk: Path) -> None:
    with running(Fake(n_ctx=4096, reply=answering("No."), fault="die_mid_stream")) as server:
        done = localctx("compact", str(talk), "--url", server.url, "--json")
    assert done.returncode == 0
    assert [rung["how"] for rung in json.loads(done.stdout)["rungs"]] == ["machine"]
    assert "look at its log); using the record alone" in done.stderr


def test_a_key_is_sent_and_never_shown(localctx: Run, talk: Path) -> None:
    with running(Fake(api_key="my-own-key")) as server:
        options = ("--url", server.url, "--api-key-env", "MINE", "--dry-run")
        done = localctx("-v", "compact", str(talk), *options, MINE="my-own-key")
    assert done.returncode == 0
    assert "my-own-key" not in done.stdout + done.stderr


def test_ctrl_c_ends_with_130_and_leaves_no_file(environment: dict[str, str], talk: Path, tmp_path: Path) -> None:
    new = tmp_path / "new.json"
    with running(Fake(n_ctx=4096, reply=answering("No.", NOTES * 20), delay=0.2)) as server:
        command = [sys.executable, "-m", "localctx", "compact", str(talk), "--url", server.url, "--out", str(new)]
        with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as child:
            until = time.monotonic() + 20
            while not server.chats and time.monotonic() < until:
                time.sleep(0.05)
            child.send_signal(signal.SIGINT)
            out, error = child.communicate(timeout=20)
    assert (child.returncode, out) == (130, b"")
    assert b"Traceback" not in error
    assert not new.exists()
