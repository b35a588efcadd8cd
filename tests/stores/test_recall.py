from __future__ import annotations

import os
import resource
import sqlite3
import stat
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from itertools import pairwise
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from localctx.core.recall import Document
from localctx.stores.recall import RecallIndex

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

ROOT = Path(__file__).parents[2]
CHILD = """
import sys
from pathlib import Path
from time import perf_counter
from localctx.core.recall import Document
from localctx.stores.recall import RecallIndex
index = RecallIndex(Path(sys.argv[1]))
"""
TALK = [
    Document(1, "user", "Port the parser to Rust and keep MAX_DEPTH at 247."),
    Document(2, "assistant", 'read_file {"path": "src/parser.ts"}'),
    Document(3, "tool read_file", "export function parseConfig(text: string) { /* limits: 1,000 lines */ }"),
    Document(4, "user", "The weather is fine."),
]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "recall.db"


@pytest.fixture
def index() -> Iterator[RecallIndex]:
    with closing(RecallIndex(None)) as index:
        yield index


def filled(path: Path | None, documents: list[Document] = TALK, journal: str = "") -> RecallIndex:
    index = RecallIndex(path, journal)
    index.add(documents, documents[-1].seq)
    assert index.through == documents[-1].seq
    return index


def hits(index: RecallIndex, query: str, most: int = 8) -> list[int]:
    return [each.seq for each in index.search(query, most)]


def of(text: str) -> RecallIndex:
    return filled(None, [Document(1, "user", text)])


def script(path: Path, sql: str) -> None:
    with closing(sqlite3.connect(path)) as db:
        db.executescript(sql)


def child(code: str, *args: object, **options: object) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", CHILD + code, *map(str, args)]
    pipe = subprocess.PIPE
    return subprocess.Popen(command, cwd=ROOT, stdout=pipe, stderr=pipe, text=True, **options)  # type: ignore[call-overload,no-any-return]


def said(process: subprocess.Popen[str]) -> str:
    output, errors = process.communicate(timeout=60)
    assert process.returncode == 0, errors
    return output.strip()


# What is found.


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("parser", [2, 1]),
        ("PARSERS", [2, 1]),
        ("porting", [1]),
        ("src/parser.ts", [2, 1]),
        ("`src/parser.ts`?", [2, 1]),
        ("MAX_DEPTH", [1]),
        ("max_depth", [1]),
        ("depth", [1]),
        ("247", [1]),
        ("1,000", [3]),
        ("parseConfig", [3]),
        ("parseconfig", [3]),
        ("config", [3]),
        ("parse_config()", [3]),
        ("weather Rust", [4, 1]),
        ("24", []),
        ("arse", []),
        ("", []),
    ],
)
def test_exact_forms_parts_and_word_endings_are_found(query: str, expected: list[int]) -> None:
    with closing(filled(None)) as index:
        assert hits(index, query) == expected


def test_a_hit_has_its_line_who_spoke_and_the_words() -> None:
    with closing(filled(None)) as index:
        (found,) = index.search("limits")
    assert (found.seq, found.kind, found.excerpt) == (TALK[2].seq, TALK[2].kind, TALK[2].text)


def test_the_exact_form_is_before_its_parts() -> None:
    texts = [
        "ts of src, for the parser",
        "ts src parser src ts",
        "see src/parser.ts for it",
        "depth max 2",
        "MAX_DEPTH = 2",
    ]
    with closing(filled(None, [Document(seq, "user", text) for seq, text in enumerate(texts, 1)])) as index:
        assert hits(index, "src/parser.ts")[0] == 3
        assert hits(index, "MAX_DEPTH") == [5, 4]


def test_words_close_together_are_before_words_far_apart_and_those_before_one_word() -> None:
    filler = "lorem ipsum dolor sit amet " * 30
    texts = [
        f"tokens {filler}",
        f"tokens {filler} budget {filler}",
        f"the tokens of the budget {filler}",
        f"budget {filler}",
        *["nothing of it"] * 6,
    ]
    with closing(filled(None, [Document(seq, "user", text) for seq, text in enumerate(texts, 1)])) as index:
        found = hits(index, "budget tokens")
    assert found[:2] == [3, 2]
    assert set(found[2:]) == {1, 4}


def test_a_rare_word_weighs_more_than_a_common_one() -> None:
    documents = [Document(seq, "user", "the test is green") for seq in range(1, 30)]
    with closing(filled(None, [*documents, Document(30, "user", "the quokka is here")])) as index:
        assert hits(index, "the test of the quokka")[0] == 30


def test_no_more_than_asked_are_found() -> None:
    with closing(filled(None, [Document(seq, "user", "same") for seq in range(1, 30)])) as index:
        assert [len(hits(index, "same", most)) for most in (-1, 0, 1, 8, 100)] == [0, 0, 1, 8, 29]
        assert hits(index, "same", 2) == [29, 28], "of equals the newest are first"


@pytest.mark.parametrize(
    ("text", "queries"),
    [
        ("我们决定把解析器的最大深度设为二四七。", ["解析", "深度", "解析器", "最大深度", "深", "请问解析器在哪里"]),
        ("東京タワーへ行きました。Version2を使う", ["東京", "タワー", "行き", "Version2", "使う"]),
        ("서울에서 회의가 있었습니다", ["서울", "회의", "서울에서"]),
        ("ตัวแยกวิเคราะห์อยู่ที่นี่", ["วิเคราะห์", "แยก", "ที่นี่"]),
        ("हिन्दी में लिखा है", ["हिन्दी", "लिखा"]),
        ("Wir wählten Größe und café", ["größe", "wahlten", "cafe\u0301"]),
        ("解析器parser深度247层", ["parser", "247", "深度"]),
    ],
)
def test_words_of_other_scripts_are_found_and_shown_as_they_were(text: str, queries: list[str]) -> None:
    with closing(of(text)) as index:
        assert [found.excerpt for query in queries for found in index.search(query)] == [text] * len(queries)


@pytest.mark.parametrize("query", ["度深", "析解", "京都", "울서", "ग"])
def test_characters_in_another_order_are_another_word(query: str) -> None:
    with closing(of("解析器的深度 東京 서울 हिन्दी")) as index:
        assert not index.search(query)


def test_the_excerpt_is_around_the_match_in_a_long_text() -> None:
    line = "2026-09-01 12:00:00 INFO worker 7 did what it was told to do\n"
    log = line * 9_000 + "ERROR quota of 4096 exceeded in pool-3\n" + line * 9_000
    assert len(log) > 1_000_000
    with closing(of(log)) as index:
        began = perf_counter()
        (found,) = index.search("quota exceeded")
        assert perf_counter() - began < 3
    before, _, behind = found.excerpt.partition("ERROR quota of 4096 exceeded in pool-3")
    assert before.startswith("…")
    assert behind.endswith("…")
    assert len(before) > 20
    assert len(behind) > 20
    assert 200 <= len(found.excerpt) <= 302


@given(st.integers(0, 40), st.integers(0, 60), st.integers(0, 700), st.booleans())
def test_a_word_is_found_and_shown_wherever_it_stands(size: int, gap: int, ahead: int, spaces: bool) -> None:  # noqa: FBT001  a drawn value
    filler = ("ab" * size + " " * spaces) * (gap + 1)
    text = (
        " ".join(("." * ahead, filler, "needle247", filler)) if spaces else f"{'.' * ahead}{filler} needle247 {filler}"
    )
    with closing(of(text)) as index:
        (found,) = index.search("needle247")
    assert "needle247" in found.excerpt
    assert len(found.excerpt) <= 302


@given(st.lists(st.text("漢字仮名交文", min_size=1), max_size=60).map("".join), st.integers(0, 500))
def test_two_characters_are_found_wherever_a_long_text_is_parted(filler: str, ahead: int) -> None:
    with closing(of("漢" * ahead + "検索" + filler)) as index:
        (found,) = index.search("検索")
    assert "検索" in found.excerpt


def test_an_excerpt_does_not_cut_a_number_in_two() -> None:
    numbers = [str(number) for number in range(1_000_000, 1_000_400)]
    with closing(of(" ".join(numbers))) as index:
        for wanted in numbers[::37]:
            (found,) = index.search(wanted)
            assert set(found.excerpt.strip("…").split()) <= set(numbers)


@given(st.text(max_size=3_000))
def test_every_word_of_any_text_is_shown_by_some_passage(text: str) -> None:
    with closing(of(f"{text} needle")) as index:
        (found,) = index.search("needle")
    assert found.excerpt == " ".join(found.excerpt.split())
    assert found.excerpt.isprintable() or not text.isprintable()


# Any query, any text.


@pytest.mark.parametrize(
    "query",
    [
        '"',
        '""',
        "'",
        "*",
        "^parser",
        "parser*",
        "-parser",
        "+",
        "text:parser",
        "words : parser",
        "{words shown} : parser",
        "(",
        ")",
        "NEAR(",
        "NEAR(parser rust, 2)",
        "parser AND",
        "OR",
        "NOT parser",
        "a AND b OR NOT c",
        "\0",
        "par\0ser",
        "\ud800",
        "\ud83d\ude00",
        "\x01\x02\x03",
        "'; DROP TABLE passage; --",
        "%s ? ?1 :a @b $c",
        "---",
        "。、",
        "\u0301",
        "a" * 100_000,
        '"' * 100_000,
        "a " * 100_000,
        "漢" * 100_000,
        "(" * 100_000,
        "x/" * 100_000,
        "aB" * 100_000,
    ],
)
def test_no_query_is_an_expression(query: str) -> None:
    with closing(filled(None)) as index:
        began = perf_counter()
        index.search(query)
        assert perf_counter() - began < 3
        assert index.through == 4, "an error would have emptied it"
        assert hits(index, "weather") == [4]


@pytest.mark.parametrize("query", ['"parser', "parser*", "^parser", "-parser", "NOT parser", "par\0parser", "(parser"])
def test_the_words_in_an_expression_are_words(query: str) -> None:
    with closing(filled(None)) as index:
        assert hits(index, query)[:2] == [2, 1]


_HOSTILE = st.text() | st.text("\"*^+-:(){}[],.'\\ \0aAB1_/漢ก\u0301").map(lambda text: text * 3)


@given(st.lists(_HOSTILE, max_size=4), _HOSTILE)
@settings(suppress_health_check=[HealthCheck.too_slow])
def test_any_text_can_be_added_and_searched(texts: list[str], query: str) -> None:
    with closing(RecallIndex(None)) as index:
        index.add([Document(seq, text, text) for seq, text in enumerate([*texts, "needle"], 1)], len(texts) + 1)
        for found in (*index.search(query), *index.search(query + " needle")):
            assert not {*found.excerpt} & {*map(chr, range(32))}
            found.excerpt.encode()
            found.kind.encode()
        assert index.through == len(texts) + 1, "an error would have emptied it"
        assert hits(index, "needle", 100).count(len(texts) + 1) == 1


@given(st.text(st.characters(categories=["Lu", "Ll", "Lo", "Nd"]), min_size=1, max_size=30), st.text(max_size=30))
def test_a_word_is_found_by_itself(word: str, around: str) -> None:
    with closing(of(f"{around} {word} {around}")) as index:
        assert hits(index, word) == [1]


def test_only_the_first_words_of_a_query_count() -> None:
    with closing(filled(None)) as index:
        assert hits(index, " ".join(f"no{number}" for number in range(19)) + " weather") == [4]
        assert hits(index, " ".join(f"no{number}" for number in range(20)) + " weather") == []


# How it grows.


def test_it_goes_on_where_it_was(path: Path) -> None:
    filled(path, TALK[:2]).close()
    with closing(RecallIndex(path)) as index:
        assert index.through == 2
        index.add(TALK[2:], 4)
        assert (index.through, hits(index, "parser"), hits(index, "weather")) == (4, [2, 1], [4])


def test_lines_without_words_count_too(path: Path) -> None:
    with closing(RecallIndex(path)) as index:
        assert index.through == 0
        index.add([], 7)
        assert index.through == 7


def test_what_it_has_is_not_added_again(index: RecallIndex) -> None:
    index.add(TALK, 4)
    index.add([*TALK, Document(5, "user", "parser again")], 5)
    assert sorted(hits(index, "parser")) == [1, 2, 5]
    assert len(index.search("again")) == 1
    index.add([Document(3, "user", "late")], 5)
    assert not index.search("late")


def test_what_is_behind_the_last_line_is_not_added(index: RecallIndex) -> None:
    index.add(TALK, 2)
    assert (index.through, hits(index, "weather")) == (2, [])


def test_lines_that_the_journal_has_lost_are_forgotten(path: Path) -> None:
    with closing(filled(path)) as index:
        index.add([], 2)
        assert (index.through, hits(index, "parser"), hits(index, "weather")) == (2, [2, 1], [])
        index.add([Document(3, "user", "other weather")], 3)
        assert hits(index, "weather") == [3]


def test_an_interrupted_addition_leaves_nothing(path: Path) -> None:
    def broken() -> Iterator[Document]:
        yield Document(5, "user", "half")
        raise KeyboardInterrupt

    with closing(filled(path)) as index:
        with pytest.raises(KeyboardInterrupt):
            index.add(broken(), 6)
        assert (index.through, hits(index, "half"), hits(index, "weather")) == (4, [], [4])


def test_a_closed_index_opens_again(path: Path) -> None:
    index = filled(path)
    index.close()
    index.close()
    assert hits(index, "weather") == [4]
    index.close()


def test_in_memory_it_is_gone_when_it_is_closed(index: RecallIndex) -> None:
    index.add(TALK, 4)
    index.close()
    assert (index.through, index.search("parser")) == (0, [])


def test_numbers_that_sqlite_cannot_hold_raise_nothing(path: Path) -> None:
    with closing(RecallIndex(path)) as index:
        index.add([Document(2**63, "user", "parser")], 2**63)
        assert (index.through, index.search("parser")) == (0, [])
        index.add(TALK, 4)
        assert hits(index, "weather") == [4]


# The file.


@pytest.mark.parametrize("umask", [0o000, 0o022])
def test_it_is_for_its_owner_alone(path: Path, umask: int) -> None:
    before = os.umask(umask)
    try:
        with closing(filled(path)):
            files = {each.name: stat.S_IMODE(each.stat().st_mode) for each in path.parent.iterdir()}
    finally:
        os.umask(before)
    assert files == {"recall.db": 0o600, "recall.db-journal": 0o600}
    assert [each.name for each in path.parent.iterdir()] == ["recall.db"]


def test_constructing_touches_nothing(path: Path) -> None:
    RecallIndex(path).close()
    assert list(path.parent.iterdir()) == []


def junk(path: Path) -> None:
    path.write_bytes(b"this is no database\n" * 1_000)


def torn(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def scribbled(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[4096:] = b"\xff" * (len(content) - 4096)
    path.write_bytes(content)


def emptied(path: Path) -> None:
    path.write_bytes(b"")


def other_schema(path: Path) -> None:
    script(path, "PRAGMA user_version = 1")


def other_tables(path: Path) -> None:
    path.unlink()
    script(path, "CREATE TABLE bookmarks (url TEXT)")


def without_state(path: Path) -> None:
    script(path, "DROP TABLE state")


def without_words(path: Path) -> None:
    script(path, "DROP TABLE passage")


def without_part_of_the_words(path: Path) -> None:
    script(path, "PRAGMA writable_schema = ON; DELETE FROM sqlite_master WHERE name = 'passage_data'")


def twice_the_state(path: Path) -> None:
    script(path, "INSERT INTO state SELECT * FROM state")


DAMAGES = [
    junk,
    torn,
    scribbled,
    emptied,
    other_schema,
    other_tables,
    without_state,
    without_words,
    without_part_of_the_words,
    twice_the_state,
]


def brought_up(index: RecallIndex, documents: list[Document] = TALK) -> list[int]:
    """As a caller does it: adds what is not in it and searches, once more where the file failed on the way."""
    found = list[int]()
    for _ in range(2):
        index.add([each for each in documents if each.seq > index.through], documents[-1].seq)
        found = hits(index, "weather")
        if index.through == documents[-1].seq:
            break
    return found


@pytest.mark.parametrize("damage", DAMAGES)
def test_what_is_damaged_or_of_another_schema_is_begun_anew(path: Path, damage: Callable[[Path], None]) -> None:
    filled(path).close()
    damage(path)
    with closing(RecallIndex(path)) as index:
        assert brought_up(index) == [4]
    with closing(RecallIndex(path)) as again:
        assert (again.through, hits(again, "weather")) == (4, [4])


@pytest.mark.parametrize("damage", [junk, torn, scribbled, emptied])
@pytest.mark.parametrize("first", ["add", "search"])
def test_damage_while_it_is_open_is_survived(path: Path, damage: Callable[[Path], None], first: str) -> None:
    more = [*TALK, Document(5, "user", "more weather")]
    with closing(filled(path)) as index:
        index.search("parser")
        damage(path)
        if first == "search":
            index.search("parser")
        assert brought_up(index, more) == [5, 4]
    with closing(RecallIndex(path)) as again:
        assert brought_up(again, more) == [5, 4]


@given(st.data())
@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_no_flipped_byte_raises_anything(path: Path, data: st.DataObject) -> None:
    path.unlink(missing_ok=True)
    filled(path, [*TALK, Document(5, "tool bash", "one two three\n" * 300)]).close()
    content = bytearray(path.read_bytes())
    for _ in range(data.draw(st.integers(1, 5))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    path.write_bytes(content)
    with closing(RecallIndex(path)) as index:
        assert index.through in range(2**63)
        index.search("parser weather one")
        index.add([Document(6, "user", "weather")], 6)
        index.search("weather")


@pytest.mark.parametrize(("last", "through"), [(5, 4), (4, 4), (3, 0)])
def test_lines_that_the_journal_lost_are_forgotten(path: Path, last: int, through: int) -> None:
    filled(path).close()
    with closing(RecallIndex(path)) as index:
        index.forget(last)
        assert index.through == through


def test_what_is_no_index_is_left_for_when_it_is_needed(path: Path) -> None:
    RecallIndex(None).forget(1)
    RecallIndex(path).forget(1)
    assert not path.exists()
    path.write_bytes(b"no database" * 100)
    RecallIndex(path).forget(1)
    assert path.exists()


def test_the_index_of_another_journal_is_begun_anew(path: Path) -> None:
    filled(path, journal="2026-09-01T12:00:00").close()
    with closing(RecallIndex(path, "2026-09-01T12:00:00")) as same:
        assert same.through == 4
    with closing(RecallIndex(path, "2026-09-02T12:00:00")) as other:
        assert (other.through, other.search("parser")) == (0, [])
        other.add(TALK[3:], 4)
        assert hits(other, "weather parser") == [4]


@pytest.mark.parametrize("kind", ["folder", "pipe", "loop", "file above", "no folder", "device", "not to be made"])
def test_where_no_file_can_be_it_is_in_memory(path: Path, kind: str) -> None:
    match kind:
        case "folder":
            path.mkdir()
        case "pipe":
            os.mkfifo(path)
        case "loop":
            path.symlink_to(path)
        case "file above":
            path.write_text("x")
            path /= "recall.db"
        case "no folder":
            path = path / "none" / "recall.db"
        case "device":
            path.symlink_to("/dev/full")
        case _:
            path = Path("/proc/recall.db")
    with closing(RecallIndex(path)) as index:
        assert brought_up(index) == [4]
    assert not path.is_file()


@pytest.mark.skipif(os.geteuid() == 0, reason="for root nothing is read-only")
@pytest.mark.parametrize("before", [None, 2, 4])
def test_in_a_read_only_folder_it_is_in_memory(path: Path, before: int | None) -> None:
    if before:
        filled(path, TALK[:before]).close()
        path.chmod(0o400)
    path.parent.chmod(0o500)
    try:
        with closing(RecallIndex(path)) as index:
            assert brought_up(index) == [4]
    finally:
        path.parent.chmod(0o700)


def test_on_a_full_disk_it_is_in_memory_and_what_was_written_stays(path: Path) -> None:
    filled(path).close()
    before = path.read_bytes()
    code = """
for _ in range(2):
    documents = [Document(seq, "user", "weather " * 200) for seq in range(1, 100) if seq > index.through]
    index.add(documents, 99)
print(index.through, len(index.search("weather", 200)))
"""

    def full() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (len(before), len(before)))

    assert said(child(code, path, preexec_fn=full)) == "99 99"
    assert path.read_bytes() == before
    with closing(RecallIndex(path)) as index:
        assert index.through == 4


# More than one.


def test_a_program_that_writes_long_is_not_waited_for(path: Path) -> None:
    filled(path).close()
    with closing(sqlite3.connect(path)) as other, closing(RecallIndex(path)) as index:
        other.execute("BEGIN IMMEDIATE")
        began = perf_counter()
        assert brought_up(index) == [4]
        assert perf_counter() - began < 3
        other.rollback()
    with closing(RecallIndex(path)) as again:
        assert again.through == 4, "the file is left as it was"


def test_one_program_has_the_file_and_another_is_in_memory(path: Path) -> None:
    with closing(filled(path)) as index:
        code = """
began = perf_counter()
print(index.through, perf_counter() - began < 3)
index.add([Document(1, "user", "weather")], 1)
print(index.through, len(index.search("weather")))
"""
        assert said(child(code, path)).split() == ["0", "True", "1", "1"]
        assert (index.through, hits(index, "weather")) == (4, [4])
    assert said(child("print(index.through)", path)) == "4"


def test_programs_that_begin_at_once_find_everything(path: Path) -> None:
    code = """
documents = [Document(seq, "user", f"word{seq} weather") for seq in range(1, 101)]
for end in range(1, 101):
    for _ in range(2):
        index.add([each for each in documents if each.seq > index.through], end)
        found = index.search(f"word{end}")
        if index.through == end:
            break
    assert [each.seq for each in found] == [end], (end, found)
print(len(index.search("weather", 1000)))
index.close()
"""
    programs = [child(code, path) for _ in range(3)]
    assert [said(each) for each in programs] == ["100"] * 3
    with closing(RecallIndex(path)) as index:
        assert index.through == 100


def test_a_program_that_was_killed_while_it_wrote_leaves_an_index_that_works(path: Path) -> None:
    filled(path).close()
    code = """
import os
def documents():
    for seq in range(5, 4000):
        yield Document(seq, "user", "weather " * 100)
        if seq == 3500:
            os.kill(os.getpid(), 9)
index.add(documents(), 4000)
"""
    process = child(code, path)
    process.communicate(timeout=60)
    assert process.returncode == -9
    with closing(RecallIndex(path)) as index:
        assert brought_up(index) == [4]


def test_threads_share_an_index(path: Path) -> None:
    with closing(filled(path)) as index, ThreadPoolExecutor(8) as pool:
        adding = [pool.submit(index.add, [Document(seq, "user", f"w{seq}")], seq) for seq in range(5, 50)]
        found = list(pool.map(lambda _: hits(index, "weather"), range(50)))
        assert all(each.exception() is None for each in adding)
        assert found == [[4]] * 50
        assert index.through > 4


# What it costs.


def test_a_search_costs_little_however_long_the_session(path: Path) -> None:
    words = [f"w{number}x" for number in range(997)]
    texts = (" ".join(words[(seq * step) % 997] for step in range(1, 90)) for seq in range(1, 3_001))
    documents = [Document(seq, "user", text) for seq, text in enumerate(texts, 1)]
    with closing(filled(path, documents)) as index:
        began = perf_counter()
        for first, second in pairwise(words[:21]):
            assert index.search(f"{first} {second}")
        assert (perf_counter() - began) / 20 < 1
        began = perf_counter()
        index.add([Document(3_001, "user", "one more")], 3_001)
        assert perf_counter() - began < 1
