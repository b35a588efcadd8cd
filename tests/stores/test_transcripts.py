from __future__ import annotations

import codecs
import gzip
import json
import os
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from localctx.core.formats import Conversation, Format, Why
from localctx.core.transcript import flatten, parse
from localctx.errors import Misuse
from localctx.stores.transcripts import MOST_BYTES, load

if TYPE_CHECKING:
    from collections.abc import Iterator

SHARED = Path(__file__).parents[3] / "shared" / "transcripts"
"""Real files, where a folder of them lies beside the project."""
SAID = [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "hello"}]
LINES = [json.dumps(each).encode() for each in SAID]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "saved"


def holding(path: Path, content: bytes) -> Path:
    path.write_bytes(content)
    return path


def conversations(path: Path) -> tuple[Conversation, ...]:
    found = load(path)
    assert not isinstance(found, str)
    return found


def loaded(path: Path, content: bytes) -> tuple[Conversation, ...]:
    return conversations(holding(path, content))


def losses(conversation: Conversation) -> dict[tuple[str, Why], int]:
    return {(each.what, each.why): each.count for each in conversation.left_out}


# What is read.


@pytest.mark.parametrize(
    "content",
    [
        pytest.param(b"\n".join(LINES), id="lines"),
        pytest.param(b"\r\n".join([*LINES, b""]), id="lines of Windows"),
        pytest.param(b"\n\n  " + b"\n \n".join(LINES) + b"\n\n", id="blank lines"),
        pytest.param(codecs.BOM_UTF8 + b"\n".join(LINES), id="lines behind a mark"),
        pytest.param(json.dumps(SAID).encode(), id="a document"),
        pytest.param(json.dumps(SAID).encode() + b"\n", id="a document in one line"),
        pytest.param(json.dumps(SAID, indent=2).encode(), id="a document in many lines"),
        pytest.param(codecs.BOM_UTF8 + json.dumps({"messages": SAID}, indent=2).encode(), id="a request behind a mark"),
    ],
)
def test_json_and_json_lines_are_told_apart_by_content(path: Path, content: bytes) -> None:
    (conversation,) = loaded(path, content)
    assert list(conversation.messages) == SAID
    assert (conversation.format, conversation.left_out) == (Format.OPENAI, ())


def test_one_line_alone_is_a_conversation_too(path: Path) -> None:
    (conversation,) = loaded(path, LINES[0])
    assert list(conversation.messages) == SAID[:1]


def test_each_line_may_be_a_conversation(path: Path) -> None:
    content = b"\n".join(json.dumps({"messages": SAID[:length]}).encode() for length in (1, 2, 1))
    assert [len(each.messages) for each in loaded(path, content)] == [1, 2, 1]


def test_half_a_character_is_read_as_it_stands(path: Path) -> None:
    (conversation,) = loaded(path, b'{"role": "user", "content": "cut \\ud83d"}\n' + LINES[1])
    assert conversation.messages[0]["content"] == "cut \ud83d"


@pytest.mark.parametrize("torn", [b'{"role": "user", "cont', b"\0" * 500, "é".encode()[:1]])
def test_a_torn_last_line_is_told(path: Path, torn: bytes) -> None:
    (conversation,) = loaded(path, b"\n".join([*LINES, torn]))
    assert list(conversation.messages) == SAID
    assert losses(conversation) == {("torn last lines", Why.DAMAGED): 1}


def test_damaged_lines_are_counted(path: Path) -> None:
    deep = b"[" * 100_000
    (conversation,) = loaded(path, b"\n".join([b"not json", LINES[0], b"\xff", deep, b"7", LINES[1], b"{}}", b""]))
    assert list(conversation.messages) == SAID
    assert losses(conversation) == {("lines", Why.DAMAGED): 4, ("entries", Why.DAMAGED): 1}


# What is no conversation.


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\n\n",
        b"Dear Ann,\n\nhow are you?\n",
        b"# Title\n\n- one\n- two\n",
        b"def f():\n    return {}\n" * 100,
        b"{\n  // a comment\n}\n",
        b'{"name": "x",\n "version": 1}\n',
        b"[1, 2, 3]",
        b'"text"',
        b"[" * 100_000,
        b"[\n" * 100_000,
        b'{"level": "info", "message": "started"}\n' * 5_000,
        b"1,2,3\n4,5,6\n",
        "naïve café ".encode() * 10_000,
    ],
    ids=lambda content: ascii(content[:24]),
)
def test_text_code_and_other_json_are_text(path: Path, content: bytes) -> None:
    assert load(holding(path, content)) == content.decode().removeprefix("\ufeff")


def test_logs_are_given_up_early(path: Path) -> None:
    holding(path, b'{"level": "info", "message": "started"}\n' * 500_000)
    start = time.process_time()
    assert isinstance(load(path), str)
    assert time.process_time() - start < 1


# What cannot be read.


def refused(path: Path) -> str:
    with pytest.raises(Misuse) as caught:
        load(path)
    message = str(caught.value)
    assert "\n" not in message
    assert caught.value.exit_code == 2
    return message


def test_a_missing_file(path: Path) -> None:
    assert refused(path) == f"there is no file {path}; check the path"


def test_a_folder(tmp_path: Path) -> None:
    assert refused(tmp_path) == f"{tmp_path} is a folder; name a file in it"


def test_a_pipe_is_not_waited_for(path: Path) -> None:
    os.mkfifo(path)
    assert "no regular file" in refused(path)


@pytest.mark.skipif(os.geteuid() == 0, reason="nothing is unreadable to root")
def test_a_file_of_somebody_else(path: Path) -> None:
    holding(path, LINES[0]).chmod(0)
    assert "Permission denied" in refused(path)


@pytest.mark.parametrize("name", ["a\0b", "x" * 300])
def test_a_name_that_no_file_can_have(tmp_path: Path, name: str) -> None:
    assert "check its name" in refused(tmp_path / name)


def test_a_file_that_is_too_large(path: Path) -> None:
    with path.open("wb") as file:
        file.truncate(MOST_BYTES + 2**20)
    assert "has 257 MiB, more than the 256 MiB that are read; split it" in refused(path)


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (b"\x7fELF\x02\x01\x01\0\0\0", "is binary (byte 7 is zero)"),
        ("user: hello".encode("utf-16"), "is binary"),
        ("naïve".encode("latin-1"), "is not UTF-8 text (byte 2); unpack or convert it first"),
        (gzip.compress(b"x" * 50), "is binary (byte 3 is zero); unpack it"),
    ],
)
def test_a_file_that_is_no_text(path: Path, content: bytes, told: str) -> None:
    assert told in refused(holding(path, content))


# Large files.


def test_a_long_session_is_read_in_seconds(path: Path) -> None:
    with path.open("w", encoding="utf-8") as file:
        for number in range(30_000):
            role = "user" if number % 2 else "assistant"
            blocks = [{"type": "text", "text": f"words {number} " * 10}]
            entry = {"type": role, "uuid": str(number), "parentUuid": str(number - 1) if number else None}
            file.write(json.dumps({**entry, "message": {"role": role, "content": blocks}}) + "\n")
    start = time.process_time()
    (conversation,) = conversations(path)
    assert time.process_time() - start < 10
    assert (conversation.format, len(conversation.messages)) == (Format.CLAUDE_CODE, 30_000)


# Real files.


def real(folder: str, *patterns: str) -> list[object]:
    found = sorted(path for pattern in patterns for path in (SHARED / folder).glob(pattern))
    skip = pytest.mark.skip(reason=f"{SHARED / folder} is not here")
    return [pytest.param(path, id=f"{folder}/{path.name[:50]}") for path in found] or [
        pytest.param(Path(folder), marks=skip, id=folder)
    ]


def unpacked(path: Path, tmp_path: Path) -> Path:
    return holding(tmp_path / path.stem, gzip.decompress(path.read_bytes())) if path.suffix == ".gz" else path


def texts_under(value: object, *keys: str) -> Iterator[str]:
    """Every text that stands under one of the keys, however deep."""
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, each in inner:
        if isinstance(each, str) and key in keys and each:
            yield each
        yield from texts_under(each, *keys)


def shown(conversation: Conversation) -> str:
    return json.dumps(conversation.messages, ensure_ascii=False)


def check(conversation: Conversation, texts: Iterator[str]) -> None:
    """That nothing is lost on the way into a history, and that the texts are in it."""
    messages = list(conversation.messages)
    assert flatten(parse(messages).history) == messages
    written = shown(conversation)
    assert [text for text in texts if json.dumps(text, ensure_ascii=False)[1:-1] not in written] == []


@pytest.mark.parametrize("path", real("claude-code", "*.json*"))
def test_real_sessions_of_claude_code(path: Path) -> None:
    (conversation,) = conversations(path)
    assert conversation.format is Format.CLAUDE_CODE
    content = path.read_text(encoding="utf-8")
    entries = json.loads(content)["loglines"] if path.suffix == ".json" else map(json.loads, content.splitlines())
    spoken = [each for each in entries if isinstance(each, dict) and each.get("type") in {"user", "assistant"}]
    partly = {Why.REPLACED, Why.BRANCH, Why.SUBAGENT, Why.DOUBLED} & {each.why for each in conversation.left_out}
    whole = [] if partly else [each["message"] for each in spoken]
    check(conversation, texts_under(whole, "text", "thinking", "command"))


@pytest.mark.parametrize("path", real("codex", "*.jsonl"))
def test_real_rollouts_of_codex(path: Path) -> None:
    (conversation,) = conversations(path)
    assert conversation.format is Format.CODEX
    entries = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    last = max((place for place, each in enumerate(entries) if each["type"] == "compacted"), default=0)
    read = entries[last + 1 :] if last else [each for each in entries if each["type"] == "response_item"]
    items = [each["payload"] for each in read if each["type"] == "response_item"]
    kept = entries[last]["payload"].get("replacement_history", []) if last else []
    check(conversation, texts_under([kept, items], "text"))


@pytest.mark.parametrize("path", real("tau-bench", "*airline*"))
def test_real_trajectories_of_tau_bench(path: Path, tmp_path: Path) -> None:
    document = unpacked(path, tmp_path)
    tasks = json.loads(document.read_text(encoding="utf-8"))
    told = conversations(document)
    assert [list(each.messages) for each in told] == [task["traj"] for task in tasks]
    assert all(parse(each.messages).complaints == () for each in told)


@pytest.mark.parametrize("path", real("mini-swe-agent", "*.json"))
def test_real_trajectories_of_mini_swe_agent(path: Path) -> None:
    (conversation,) = conversations(path)
    assert list(conversation.messages) == json.loads(path.read_text(encoding="utf-8"))


@pytest.mark.parametrize("path", real("swe-agent", "*.traj"))
def test_real_trajectories_of_swe_agent(path: Path) -> None:
    (conversation,) = conversations(path)
    assert conversation.format is Format.SWE_AGENT
    history = json.loads(path.read_text(encoding="utf-8"))["history"]
    assert [each["content"] for each in conversation.messages] == [each["content"] for each in history]
    assert parse(conversation.messages).complaints == ()
    check(conversation, texts_under(history, "content", "arguments"))


@pytest.mark.parametrize("path", real("cline", "*.json"))
def test_real_sessions_of_cline(path: Path) -> None:
    (conversation,) = conversations(path)
    assert conversation.format is Format.ANTHROPIC
    value = json.loads(path.read_text(encoding="utf-8"))
    assert parse(conversation.messages).complaints == ()
    blocks = [message["content"] for message in value["messages"]]
    check(conversation, texts_under([value["system_prompt"], blocks], "text", "content"))


@pytest.mark.parametrize("path", real("pi-mono", "*.gz"))
def test_a_real_session_of_pi(path: Path, tmp_path: Path) -> None:
    (conversation,) = conversations(unpacked(path, tmp_path))
    assert conversation.format is Format.PI
    entries = map(json.loads, gzip.decompress(path.read_bytes()).decode().splitlines())
    messages = [each["message"]["content"] for each in entries if each["type"] == "message"]
    check(conversation, texts_under(messages, "text", "thinking"))


@pytest.mark.parametrize(
    "path",
    real("importer-conformance/fixtures", *(f"{name}/tool-call*" for name in ("claude-code", "codex", "pi", "omp"))),
)
def test_others_read_the_same_texts(path: Path) -> None:
    """The expected records leave out what a program put into the conversation itself; what they hold must be here."""
    (conversation,) = conversations(path / "input.jsonl")
    records = json.loads((path / "expected.json").read_text(encoding="utf-8"))["records"]
    said = [each["content"] for each in records if each["role"] in {"user", "assistant"} and each["content"]]
    written = shown(conversation)
    assert [text for text in said if json.dumps(text, ensure_ascii=False)[1:-1] not in written] == []
    calls = [call["name"] for each in records for call in each.get("tool_calls", ())]
    assert calls == list(texts_under([each.get("tool_calls") for each in conversation.messages], "name"))


@pytest.mark.parametrize("path", real(".", "kimi/*", "copilot/*", "crush/*", "pydantic-ai/*", "README.md"))
def test_real_files_of_other_kinds_are_none(path: Path) -> None:
    assert isinstance(load(path), str)
