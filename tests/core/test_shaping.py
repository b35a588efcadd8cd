from __future__ import annotations

import json
import re
import sys
import time
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from localctx.core import shaping
from localctx.core.shaping import shaped

WIDE = 24_000
MILLION = 1_000_000
LINES = "\n".join(f"line {number}" for number in range(6_000))
NOISE = [(tool, name) for tool, fields in shaping._NOISE.items() for name, within in fields.items() if not within]

# --- what a tool may answer: small pieces, repeated until they are over a budget ---------------------------------------

_pieces = st.text(min_size=1, max_size=12) | st.sampled_from(
    ["\n", "a line\n", "\x00", "\ud83d", "é" * 90, "[3 more items]"]
)
_lengths = st.sampled_from([0, 10, 1_001, 2_001, 13_000, 30_000])
texts = st.lists(st.builds(lambda piece, length: (piece * length)[:length], _pieces, _lengths), max_size=3).map("".join)
_names = st.sampled_from([*shaping._TEXTS, *shaping._ARRAYS, *(name for _, name in NOISE), "path", "response", "other"])
_scalars = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=60)
_small = st.recursive(
    _scalars,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_names, inner, max_size=4),
    max_leaves=6,
)
_arrays = st.builds(list.__mul__, st.lists(_small, max_size=3), st.sampled_from([1, 6, 101, 700]))
_objects = st.dictionaries(_names, _small | texts | _arrays, max_size=5)
values = _objects | _arrays | st.lists(texts | _small | _objects, max_size=4)
bodies = texts | st.builds(
    lambda value, ascii_only, indent: json.dumps(value, ensure_ascii=ascii_only, indent=indent),
    values,
    st.booleans(),
    st.sampled_from([None, 2]),
)
tools = st.sampled_from([*shaping._NOISE, "pytest", "load_skill", "other"])


@settings(deadline=None)
@given(tools, bodies)
def test_shaping_twice_changes_nothing_more(tool: str, body: str) -> None:
    once = shaped(tool, body)
    assert shaped(tool, once) == once


@settings(deadline=None)
@given(tools.filter(lambda tool: tool != "load_skill"), bodies)
def test_nothing_is_longer_than_it_was_nor_over_its_budget(tool: str, body: str) -> None:
    text = shaped(tool, body)
    assert len(text) <= len(body)
    assert len(text) <= WIDE + 1
    if not shaping._NOTE.search(body):
        assert len(text) <= budget_of(tool, body) + 1


def budget_of(tool: str, body: str) -> int:
    value = parsed(body)
    shaping._strip(value, shaping._NOISE.get(tool, {}))
    return shaping._budget(body if value is None else value)


def parsed(text: str) -> Any:  # noqa: ANN401  any JSON object or array, or None
    try:
        value = json.loads(text)
        json.dumps(value, allow_nan=False)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict | list) else None


@settings(deadline=None)
@given(tools, values)
def test_json_stays_json_unless_its_characters_are_cut(tool: str, value: object) -> None:
    body = json.dumps(value)
    text = shaped(tool, body)
    if isinstance(parsed(body), dict | list):
        assert isinstance(parsed(text), type(value)) or re.search(r"\n\[truncated, \d+ chars total\](\n|$)", text)


@settings(deadline=None)
@given(bodies.filter(lambda body: len(body) <= 12_000))
def test_what_needs_no_change_comes_back_as_it_is(body: str) -> None:
    assert shaped("other", body) == body


# --- the figures of the behaviour page ---------------------------------------------------------------------------------


def test_six_thousand_lines_keep_their_head() -> None:
    text = shaped("read_file", LINES)
    assert (len(LINES), len(text)) == (58_889, 23_976)
    assert text.startswith("line 0\nline 1\n")
    assert text.endswith("line 2504\n[3495 more lines, 58889 chars total]")


def test_one_long_line_is_cut_within() -> None:
    text = shaped("read_file", "z" * 30_000)
    assert len(text) == 24_001
    assert text.endswith("z\n[truncated, 30000 chars total]")


def test_a_skill_is_never_cut() -> None:
    assert len(shaped("load_skill", "z" * 30_000)) == len(shaped("load_skill_section", "z" * 30_000)) == 30_000


def test_two_thousand_files_lose_their_names_and_then_whole_entries() -> None:
    entries = [{"name": f"{number}", "path": f"/d/{number}", "type": "file"} for number in range(2_000)]
    body = json.dumps(entries, separators=(",", ":"))
    text = shaped("ls", body)
    assert (len(body), len(text)) == (91_781, 23_975)
    *kept, note = json.loads(text)
    assert (len(kept), note) == (752, "[1248 more items]")
    assert kept[-1] == {"path": "/d/751", "type": "file"}


@pytest.mark.parametrize(
    ("value", "budget"),
    [
        ("x" * 23_999 + "\n", 24_000),
        (["x" * 170] * 100, 16_000),
        (["x" * 170] * 101, 24_000),
        ({"content": "x" * 2_000, "other": "y" * 12_000}, 12_000),
        ({"content": "x" * 2_001, "other": "y" * 12_000}, 24_000),
        ({"matches": [1] * 100, "other": "y" * 12_000}, 12_000),
        ({"matches": [1] * 101, "other": "y" * 12_000}, 16_000),
    ],
)
def test_a_budget_follows_from_what_was_answered(value: object, budget: int) -> None:
    body = value if isinstance(value, str) else json.dumps(value)
    text = shaped("other", body)
    assert (text == body) is (len(body) <= budget)
    assert len(text) <= budget + 1


# --- what is removed ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("tool", "name"), NOISE)
def test_what_the_model_knows_already_is_removed(tool: str, name: str) -> None:
    rest = {"path": "/a/b", "content": "text", "exitCode": 1}
    assert json.loads(shaped(tool, json.dumps({name: "known", **rest}))) == rest
    assert json.loads(shaped(tool, json.dumps([{name: "known", **rest}, 7]))) == [rest, 7]
    assert name in shaped("other", json.dumps({name: "known", **rest}))


def test_what_is_known_inside_an_answer_is_removed() -> None:
    request = {"request": {"url": "u"}, "response": {"status": 200, "body": "b", "elapsedMs": 3, "truncated": False}}
    assert shaped("http_request", json.dumps(request)) == '{"response":{"status":200,"body":"b"}}'
    found = {"query": "q", "results": [{"url": "u", "source": "s"}, None], "totalResults": 1}
    assert shaped("web_search", json.dumps(found)) == '{"results":[{"url":"u"},null]}'


@pytest.mark.parametrize(
    ("tool", "body"),
    [
        ("ls", '[ {"name": "a.txt"} ]'),
        ("ls", '[{"name": "a.txt", "path": ""}]'),
        ("read_pdf", '{"content": "", "tables": [1]}'),
        ("http_request", '{"response": "elapsedMs"}'),
        ("read_file", '{"totalLines": 3, "truncated": true, "range": [1, 2]}'),
    ],
)
def test_a_field_that_says_something_new_stays(tool: str, body: str) -> None:
    assert shaped(tool, body) == body


def test_a_number_that_would_grow_when_written_again_is_left() -> None:
    body = '{"encoding":1,"n":[' + ",".join(["1e15"] * 2_390) + "]}"
    assert shaped("read_file", body) == body


# --- what is cut -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("tool", ["execute_command", "run_shell", "Bash", "python_exec", "run_tests", "read_log"])
def test_a_log_keeps_its_head_and_its_tail(tool: str) -> None:
    text = shaped(tool, LINES + "\nerror: no such file\n")
    head, note, tail = re.split(r"\n(?=\[)|(?<=\])\n", text)
    assert note == f"[{6_001 - 1 - head.count(chr(10)) - tail.count(chr(10))} lines left out here, 58910 chars total]"
    assert head.startswith("line 0\nline 1\n")
    assert tail.endswith("\nline 5999\nerror: no such file\n")
    assert set(f"{head}\n{tail}".splitlines()) <= set(LINES.splitlines()) | {"error: no such file"}
    assert 23_900 < len(text) <= 24_000


def test_a_log_of_one_long_line_keeps_both_its_ends() -> None:
    text = shaped("bash", "first" + "z" * 30_000 + "last\n")
    assert re.fullmatch(r"firstz+\n\[truncated, 30010 chars total\]\nz+last\n", text)
    assert len(text) <= 24_000


def test_a_long_line_in_a_log_does_not_take_its_tail() -> None:
    text = shaped("bash", f"{LINES}\n{'z' * 30_000}error")
    assert text.startswith("line 0\n")
    assert re.search(r"\n\[\d+ lines left out here, 88895 chars total\]\nz+error$", text)


def test_a_long_line_behind_a_short_one_is_cut_within() -> None:
    text = shaped("read_file", "short\n" + "z" * 30_000)
    assert re.fullmatch(r"short\nz+\n\[truncated, 30006 chars total\]", text)
    assert len(text) == 24_001


def test_lines_are_counted_whether_or_not_the_last_one_ends() -> None:
    assert shaped("read_file", LINES + "\n").endswith("[3495 more lines, 58890 chars total]")


def test_an_object_has_its_long_fields_shortened() -> None:
    text = shaped("read_file", json.dumps({"path": "a", "content": LINES, "encoding": "utf-8", "totalLines": 6_000}))
    value = json.loads(text)
    assert 23_900 < len(text) <= 24_000
    assert value | {"content": ""} == {"path": "a", "content": "", "totalLines": 6_000}
    assert re.search(r"line \d+\n\[\d+ more lines, 58889 chars total\]$", value["content"])


def test_what_a_command_wrote_keeps_head_and_tail_in_its_field() -> None:
    value = json.loads(shaped("run", json.dumps({"stdout": LINES, "stderr": LINES, "exitCode": 1})))
    assert value["exitCode"] == 1
    for name in ("stdout", "stderr"):
        assert value[name].startswith("line 0\n")
        assert "left out here, 58889 chars total" in value[name]
        assert value[name].endswith("\nline 5999")


def test_fields_are_shortened_no_further_than_needed() -> None:
    value = json.loads(shaped("run", json.dumps({"stdout": LINES, "stderr": "warning\n" * 200})))
    assert value["stderr"] == "warning\n" * 200
    assert "lines left out here" in value["stdout"]


def test_an_object_has_its_long_arrays_shortened() -> None:
    matches = [{"file": f"src/{number}.py", "line": number} for number in range(2_000)]
    text = shaped("grep", json.dumps({"matches": list(range(50)), "files": matches, "pattern": "x"}))
    value = json.loads(text)
    *kept, note = value["files"]
    assert 15_900 < len(text) <= 16_000
    assert value["matches"] == list(range(50))
    assert kept == matches[: len(kept)]
    assert note == f"[{2_000 - len(kept)} more items]"


@pytest.mark.parametrize(
    "value",
    [
        {"unknown": "z" * 30_000},
        {"content": "z" * 1_000, "unknown": "z" * 11_100},
        ["z" * 30_000],
        {"results": ["z" * 4_000] * 5},
        {"results": ["z" * 4_000] * 6, "unknown": "z" * 20_000},
    ],
)
def test_where_no_field_or_entry_can_go_the_characters_are_cut(value: object) -> None:
    text = shaped("other", json.dumps(value))
    whole = json.dumps(value, separators=(",", ":"))
    head, _, note = text.partition("\n")
    assert whole.startswith(head)
    assert note == f"[truncated, {len(whole)} chars total]"


@pytest.mark.parametrize("value", [{"other": [[number] for number in range(1_500)]}, [["z" * 150]] * 100])
def test_spaces_go_before_anything_else(value: object) -> None:
    body = json.dumps(value, indent=4)
    assert len(body) > 16_000
    assert shaped("other", body) == json.dumps(value, separators=(",", ":"))


@pytest.mark.parametrize("letter", ["z", "\n", "\x00", '"', "é"])
def test_a_shortened_field_leaves_its_object_json(letter: str) -> None:
    for length in (24_000, 30_000, 100_000, 1_234_567):
        text = shaped("read_file", json.dumps({"content": letter * length, "path": "a"}))
        assert json.loads(text)["path"] == "a"
        assert WIDE * 0.95 < len(text) <= WIDE


def test_where_one_field_is_not_enough_the_next_is_shortened() -> None:
    found = {"matches": ["m" * 300] * 200, "files": ["f" * 300] * 200, "counts": [1]}
    value = json.loads(shaped("grep", json.dumps(found)))
    assert value["matches"] == ["m" * 300, "[199 more items]"]
    assert value["files"][-1] == f"[{201 - len(value['files'])} more items]"
    assert value["counts"] == [1]


def test_little_may_stay_of_a_field_beside_one_that_cannot_be_shortened() -> None:
    value = json.loads(shaped("read_file", json.dumps({"content": "\x00" * 30_000, "other": "z" * 20_000})))
    assert 500 <= len(value["content"]) < 1_000


def test_escapes_at_the_head_of_a_field_are_counted() -> None:
    text = shaped("read_file", json.dumps({"content": "\x00" * 3_000 + "z" * MILLION, "path": "a"}))
    assert json.loads(text)["path"] == "a"
    assert WIDE * 0.95 < len(text) <= WIDE


def test_an_array_that_was_cut_keeps_the_budget_of_its_whole() -> None:
    text = shaped("other", json.dumps(["z" * 400] * 150))
    assert 16_000 < len(text) <= 24_000
    assert len(json.loads(text)) < 100
    assert shaped("other", text) == text


# --- anything may come -------------------------------------------------------------------------------------------------

DEEP = sys.getrecursionlimit() * 20


@pytest.mark.parametrize(
    "body",
    [
        "[" * DEEP + "]" * DEEP,
        '{"name":' * DEEP,
        "[NaN," + "1," * 20_000 + "1]",
        '{"encoding":NaN,"x":' + "1" * 30_000 + "}",
        '{"encoding":1e999,"x":"' + "1" * 30_000 + '"}',
        '{"content":"' + "\ud83d\n" * 30_000,
        "\ufeff{}" * 20_000,
        "\r\n\u2028\x85" * 10_000,
    ],
)
def test_what_is_no_json_that_can_be_written_again_is_text(body: str) -> None:
    for tool in ("read_file", "bash"):
        text = shaped(tool, body)
        assert re.search(r"\n\[.* chars total\](\n|$)", text)
        assert len(text) <= WIDE + 1
        assert shaped(tool, text) == text


def test_json_too_deep_to_be_written_again_is_text(monkeypatch: pytest.MonkeyPatch) -> None:
    def too_deep(value: object) -> str:
        raise RecursionError(value)

    monkeypatch.setattr(shaping, "_json", too_deep)
    assert shaped("ls", '[{"name":"a","path":"a"}]') == '[{"name":"a","path":"a"}]'


def test_half_a_surrogate_pair_does_no_harm() -> None:
    assert shaped("read_file", r'{"encoding":"x","content":"\ud83d"}') == '{"content":"\ud83d"}'


@pytest.mark.parametrize(
    "body",
    [
        "line\n" * 2 * MILLION,
        "\n" * 10 * MILLION,
        "[" * 10 * MILLION,
        "[1 " * 3 * MILLION,
        "[" + "1," * MILLION + "1]",
        "[" + "{}," * MILLION + "{}]",
        "[" + "1.5," * MILLION + "1]",
        json.dumps(dict.fromkeys(shaping._TEXTS, "\n\x00" * 300000)),
        json.dumps({name: [[1]] * 40_000 for name in shaping._ARRAYS}),
        json.dumps([{"name": "a", "path": "/a"}] * 300_000),
    ],
    ids=lambda body: body[:8].encode("unicode_escape").decode(),
)
def test_megabytes_take_no_time(body: str) -> None:
    started = time.process_time()
    assert len(shaped("grep", body)) <= WIDE + 1
    assert time.process_time() - started < 10  # measured 0.1 to 1; a quadratic step would take hours


def test_ten_megabytes_of_log_take_no_time() -> None:
    started = time.process_time()
    assert len(shaped("bash", "line\n" * 2 * MILLION)) <= WIDE
    assert time.process_time() - started < 1
