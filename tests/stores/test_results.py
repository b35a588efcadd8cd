from __future__ import annotations

import os
import random
import shutil
import stat
import subprocess
import sys
from collections.abc import Iterable, Mapping
from hashlib import sha256
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from localctx.core.journal import Entry
from localctx.stores.results import LINE_BYTES, MOST_BYTES, Results, names
from tests.core.strategies import json_values
from tests.stores.test_files import NO_FILES, no_file

LONG = "first words " + "x" * 20_000 + " last words"


@pytest.fixture
def results(tmp_path: Path) -> Results:
    return Results(tmp_path / "results")


def name_of(text: str) -> str:
    return sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def entry(body: Mapping[str, object], kind: str = "message") -> Entry:
    return Entry(1, "2026-01-01T00:00:00.000+00:00", kind, body)


def answer(content: object, **more: object) -> Entry:
    return entry({"message": {"role": "tool", "tool_call_id": "c", "content": content}, "tool": "read", **more})


def pointing(name: str, characters: int = len(LONG), place: str = "content") -> Entry:
    """The entry of a line whose text is, or was, kept under this name."""
    return answer("head and tail", bodies={place: {"hash": name, "characters": characters}})


# --- what a line holds ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "apart"),
    [
        ("", False),
        ("x" * LINE_BYTES, False),
        ("x" * (LINE_BYTES + 1), True),
        ("é" * (LINE_BYTES // 2), False),
        ("é" * (LINE_BYTES // 2 + 1), True),
        ("\U0001f600" * 1025, True),
        ("\ud800" * 2000, True),
        ("\r\n\0\u2028" * 2000, True),
    ],
    ids=lambda value: ascii(value)[:20],
)
def test_a_text_over_4_kib_is_a_file_and_comes_back_as_it_was(
    tmp_path: Path, results: Results, text: str, *, apart: bool
) -> None:
    lean = results.lean(answer(text, size=len(text)))
    assert (lean != answer(text, size=len(text))) is apart
    assert results.filled(lean).body["message"] == answer(text).body["message"]
    assert [each.name for each in tmp_path.rglob("*") if each.is_file()] == ([name_of(text)] if apart else [])
    assert (names(lean) == {name_of(text)}) is apart


def test_the_line_holds_head_and_tail_and_says_what_is_left_out(results: Results) -> None:
    line = results.lean(answer(LONG, size=len(LONG), provenance={"kind": "external"})).body
    assert line["bodies"] == {"content": {"hash": name_of(LONG), "characters": len(LONG)}}
    assert (line["tool"], line["size"], line["provenance"]) == ("read", len(LONG), {"kind": "external"})
    message = line["message"]
    assert isinstance(message, dict)
    shown = message["content"]
    assert (message["role"], message["tool_call_id"]) == ("tool", "c")
    assert shown.startswith(LONG[:400])
    assert shown.endswith(LONG[-400:])
    assert f"{len(LONG) - 800:,} characters that are no longer here" in shown
    assert len(shown) < 900


def test_what_the_tool_returned_and_what_the_model_read_are_kept_each(tmp_path: Path, results: Results) -> None:
    whole = LONG * 3
    lean = results.lean(answer(LONG, whole=whole))
    assert "whole" not in lean.body
    assert names(lean) == {name_of(LONG), name_of(whole)}
    assert results.body(lean, "whole") == whole
    assert results.body(lean, "content") == LONG
    short = results.lean(answer("short", whole=whole))
    assert short.body["message"] == answer("short").body["message"]
    assert results.body(short, "content") is None
    assert results.body(short, "whole") == whole
    assert len(list((tmp_path / "results").iterdir())) == 2


@pytest.mark.parametrize(
    "kept",
    [
        entry({"message": {"role": "user", "content": LONG}}),
        entry({"message": {"role": "assistant", "content": LONG}}),
        entry({"message": LONG}),
        entry({"message": None, "whole": LONG}),
        entry({}),
        answer([{"type": "text", "text": LONG}]),
        answer(None),
        answer({"content": LONG}, whole=[LONG]),
    ],
    ids=lambda kept: repr(kept.body)[:40],
)
def test_only_texts_of_results_are_files(tmp_path: Path, results: Results, kept: Entry) -> None:
    assert results.lean(kept) is kept
    assert results.filled(kept) == kept
    assert list(tmp_path.iterdir()) == []


def test_one_text_is_one_private_file(tmp_path: Path, results: Results) -> None:
    assert {results.put(LONG) for _ in range(3)} == {name_of(LONG)}
    (body,) = (tmp_path / "results").iterdir()
    assert body.read_text() == LONG
    modes = [stat.S_IMODE(each.stat().st_mode) for each in (body, body.parent)]
    assert modes == [0o600, 0o700]


# --- what is gone, or not what it was -------------------------------------------------------------------------------


def is_gone(results: Results, name: str = name_of(LONG)) -> bool:
    """Whether a line keeps its head and tail, and nothing raises or waits."""
    line = pointing(name)
    return results.get(name, len(LONG)) is None and results.filled(line) == line


def test_of_a_body_that_is_gone_head_and_tail_are_left(tmp_path: Path, results: Results) -> None:
    results.put(LONG)
    assert not is_gone(results)
    (tmp_path / "results" / name_of(LONG)).unlink()
    assert is_gone(results)
    assert results.put(LONG)
    assert not is_gone(results)


@pytest.mark.parametrize("other", ["", "another text", LONG[:-1], LONG + "x", LONG[:-1] + "X"], ids=len)
def test_another_text_in_its_place_is_not_taken_for_it_and_is_mended(
    tmp_path: Path, results: Results, other: str
) -> None:
    results.put(LONG)
    (tmp_path / "results" / name_of(LONG)).write_text(other)
    assert is_gone(results)
    assert results.put(LONG) == name_of(LONG)
    assert results.get(name_of(LONG), len(LONG)) == LONG


@pytest.mark.parametrize("kind", [*NO_FILES, "link to the same text"])
def test_what_is_no_file_is_not_read_or_followed(tmp_path: Path, results: Results, kind: str) -> None:
    (tmp_path / "outside").write_text(LONG)
    (tmp_path / "results").mkdir()
    place = tmp_path / "results" / name_of(LONG)
    if kind == "link to the same text":
        place.symlink_to(tmp_path / "outside")
    else:
        no_file(place, kind)
    assert is_gone(results)
    kept = results.put(LONG)
    if kind == "folder":
        assert kept is None
    else:
        assert kept == name_of(LONG)
        assert not place.is_symlink()
        assert results.get(name_of(LONG), len(LONG)) == LONG
    assert (tmp_path / "outside").read_text() == LONG


def test_a_body_of_another_length_is_not_read(tmp_path: Path, results: Results) -> None:
    results.put(LONG)
    name = name_of(LONG)
    assert [results.get(name, count) is None for count in (0, -1, len(LONG) - 1, len(LONG) + 1, 10**30)] == [True] * 5
    with (tmp_path / "results" / name).open("r+b") as file:
        file.truncate(2**40)  # a terabyte that takes no room; to read it would take all memory
    assert is_gone(results)


def test_bytes_that_are_no_text_are_none(tmp_path: Path, results: Results) -> None:
    raw = b"\xff" * 5000
    name = sha256(raw).hexdigest()
    (tmp_path / "results").mkdir()
    (tmp_path / "results" / name).write_bytes(raw)
    assert [results.get(name, count) for count in (1250, 5000)] == [None, None]


@pytest.mark.parametrize(
    "name",
    [
        *("", ".", "..", "../secret", "/etc/passwd", "a/b", "x\0y", "~", "\ud800" * 64),
        *(f"../results/{name_of(LONG)}", f"./{name_of(LONG)}", f"{name_of(LONG)}\n"),
        *(name_of(LONG).upper(), name_of(LONG)[:-1]),
    ],
    ids=ascii,
)
def test_a_name_that_is_no_hash_leads_nowhere(tmp_path: Path, results: Results, name: str) -> None:
    results.put(LONG)
    (tmp_path / "secret").write_text(LONG)
    assert is_gone(results, name)


@given(st.fixed_dictionaries({"bodies": json_values, "whole": json_values}), json_values)
def test_whatever_a_line_says_of_its_bodies_it_is_read(fields: dict[str, object], content: object) -> None:
    results = Results(Path("/nonexistent"))
    line = answer(content, **fields)
    assert results.filled(line) == line
    assert results.body(line, "whole") is None
    assert names(line) == set()


@pytest.mark.parametrize("bodies", [{"content": {"hash": name_of(LONG)}}, {"content": name_of(LONG)}, [name_of(LONG)]])
def test_bodies_without_hash_or_length_are_none(results: Results, bodies: object) -> None:
    results.put(LONG)
    line = answer("short", bodies=bodies)
    assert results.filled(line) is line
    assert names(line) == set()


# --- what cannot be kept --------------------------------------------------------------------------------------------


def test_where_the_folder_cannot_be_one_the_line_holds_the_text(tmp_path: Path, results: Results) -> None:
    (tmp_path / "results").write_text("a file where the folder must be")
    assert results.put(LONG) is None
    assert results.lean(answer(LONG, whole=LONG * 2)) == answer(LONG, whole=LONG * 2)
    assert not results.too_large
    assert results.shrink([name_of(LONG)], frozenset()) == 0
    (tmp_path / "results").unlink()
    assert names(results.lean(answer(LONG))) == {name_of(LONG)}


def test_on_a_full_disk_the_line_holds_the_text_and_nothing_half_written_is_left(tmp_path: Path) -> None:
    code = """
import resource, sys; from pathlib import Path; from localctx.stores.results import Results
results = Results(Path(sys.argv[1]))
resource.setrlimit(resource.RLIMIT_FSIZE, (6000, resource.RLIM_INFINITY))
print([results.put("x" * length) is not None for length in (5000, 7000)])
"""
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path / "results")],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
        cwd=Path(__file__).parents[2],
    )
    assert (done.stdout, done.stderr) == ("[True, False]\n", "")
    assert [each.name for each in (tmp_path / "results").iterdir()] == [name_of("x" * 5000)]


def test_a_text_that_is_more_than_all_may_be_stays_in_its_line(tmp_path: Path) -> None:
    results = Results(tmp_path / "results", most=10_000)
    assert results.put("x" * 10_001) is None
    assert results.put("x" * 10_000) is not None
    assert MOST_BYTES == 64 * 2**20


def test_a_folder_that_is_a_link_is_left_alone(tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    Results(elsewhere).put(LONG)
    (elsewhere / name_of("stray")).write_text("x" * 5000)
    (tmp_path / "results").symlink_to(elsewhere)
    results = Results(tmp_path / "results", most=1000)
    assert is_gone(results)
    assert results.put("y" * 900) is None
    assert results.lean(answer(LONG)) == answer(LONG)
    assert not results.too_large
    assert results.shrink([], frozenset()) == 0
    results.share(tmp_path / "fork")
    assert sorted(each.name for each in elsewhere.iterdir()) == sorted([name_of(LONG), name_of("stray")])
    assert not (tmp_path / "fork").exists()


# --- the room they take ---------------------------------------------------------------------------------------------


def filled(folder: Path, texts: Iterable[str], most: int) -> tuple[Results, list[str]]:
    results = Results(folder, most)
    return results, [name for text in texts if (name := results.put(text))]


def left_in(folder: Path) -> set[str]:
    return {each.name for each in folder.iterdir()}


TEXTS = [f"{number}" * 1000 for number in range(10)]


def test_the_oldest_go_until_a_quarter_is_free(tmp_path: Path) -> None:
    results, kept = filled(tmp_path, TEXTS[:8], 8000)
    assert not results.too_large
    kept.append(str(results.put(TEXTS[8])))
    assert results.too_large
    assert results.shrink(kept, frozenset()) == 3
    assert left_in(tmp_path) == set(kept[3:])
    assert not results.too_large
    results.put(TEXTS[0])
    assert not results.too_large


def test_what_was_there_before_counts(tmp_path: Path) -> None:
    _, kept = filled(tmp_path, TEXTS, 10**6)
    results = Results(tmp_path, most=8000)
    assert results.too_large
    assert results.shrink(kept, frozenset()) == 4
    assert left_in(tmp_path) == set(kept[4:])


def test_what_is_named_again_is_as_old_as_its_last_mention(tmp_path: Path) -> None:
    results, kept = filled(tmp_path, TEXTS, 8000)
    assert results.shrink([*kept, kept[0]], frozenset()) == 4
    assert left_in(tmp_path) == {kept[0], *kept[5:]}


def test_what_is_pointed_at_stays_whatever_the_room_and_is_not_looked_through_again_for_little(tmp_path: Path) -> None:
    results, kept = filled(tmp_path, TEXTS, 4000)
    assert results.shrink(kept, frozenset(kept[1:8])) == 3
    assert left_in(tmp_path) == set(kept[1:8])
    assert not results.too_large
    results.put("y" * 900)
    assert not results.too_large
    results.put("z" * 200)
    assert results.too_large


def test_what_no_line_names_goes_first_if_it_is_ours(tmp_path: Path) -> None:
    results, kept = filled(tmp_path, TEXTS[:5], 6000)
    strays = [name_of("stray"), f".{name_of('half')}.abcd1234", f".{name_of('half')}.4711"]
    others = ["notes.txt", ".hidden", name_of("x")[:-1], f"{name_of('x')}.bak"]
    for name in strays + others:
        (tmp_path / name).write_text("s" * 1000)
    (tmp_path / name_of("folder")).mkdir()
    (tmp_path / name_of("link")).symlink_to(tmp_path / "notes.txt")
    os.mkfifo(tmp_path / name_of("pipe"))
    results = Results(tmp_path, 6000)
    assert results.too_large
    assert results.shrink(kept, frozenset()) == 4
    assert left_in(tmp_path) == {*kept[1:], *others, *(name_of(each) for each in ("folder", "link", "pipe"))}


def test_what_is_not_ours_takes_no_room(tmp_path: Path) -> None:
    results, kept = filled(tmp_path, TEXTS[:2], 6000)
    (tmp_path / "notes.txt").write_text("x" * 100_000)
    assert not Results(tmp_path, 6000).too_large
    assert results.shrink(kept, frozenset()) == 0


@given(st.integers(0, 2**32), st.integers(0, 12), st.integers(1, 12_000))
def test_never_one_that_is_pointed_at_and_within_the_cap_where_the_others_allow_it(
    tmp_path_factory: pytest.TempPathFactory, seed: int, count: int, most: int
) -> None:
    folder, chance = tmp_path_factory.mktemp("shrunk"), random.Random(seed)  # noqa: S311  not a secret
    _, kept = filled(folder, (chr(65 + number) * chance.randrange(1, 3000) for number in range(count)), 10**6)
    sizes = {name: (folder / name).stat().st_size for name in kept}
    named = [name for name in kept if chance.random() < 0.8]
    pointed = frozenset(name for name in named if chance.random() < 0.3)
    results = Results(folder, most)
    if results.too_large:
        results.shrink(named, pointed)
    left = left_in(folder)
    assert pointed <= left
    assert sum(sizes[name] for name in left) <= max(most, sum(sizes[name] for name in pointed))
    gone = [name for name in named if name not in left]
    older = [name for name in named[: named.index(gone[-1])] if name in left] if gone else []
    assert set(older) <= pointed
    assert not gone or set(kept) - left >= set(kept) - set(named)
    shutil.rmtree(folder)


# --- forks ----------------------------------------------------------------------------------------------------------


def test_a_fork_has_the_same_files_and_neither_touches_the_others(tmp_path: Path) -> None:
    results, kept = filled(tmp_path / "one", TEXTS, 10**6)
    (tmp_path / "one" / f".{kept[0]}.abcd1234").write_text("half")
    (tmp_path / "one" / "notes.txt").write_text("mine")
    results.share(tmp_path / "fork")
    assert left_in(tmp_path / "fork") == set(kept)
    assert all((tmp_path / "one" / name).samefile(tmp_path / "fork" / name) for name in kept)
    assert stat.S_IMODE((tmp_path / "fork").stat().st_mode) == 0o700
    Results(tmp_path / "fork", 2000).shrink(kept, frozenset())
    assert left_in(tmp_path / "fork") == {kept[9]}
    assert [results.get(name, 1000) for name in kept] == TEXTS
    (tmp_path / "one" / kept[9]).unlink()
    assert Results(tmp_path / "fork").get(kept[9], 1000) == TEXTS[9]
    assert Results(tmp_path / "fork").put(TEXTS[0]) == kept[0]


def test_mending_a_body_of_a_fork_leaves_the_origin_as_it_was(tmp_path: Path) -> None:
    results, (name,) = filled(tmp_path / "one", TEXTS[:1], 10**6)
    results.share(tmp_path / "fork")
    (tmp_path / "one" / name).write_text("damaged")  # one file under two names
    assert Results(tmp_path / "fork").put(TEXTS[0]) == name
    assert (tmp_path / "one" / name).read_text() == "damaged"


def test_where_there_are_no_bodies_a_fork_has_no_folder(tmp_path: Path, results: Results) -> None:
    results.share(tmp_path / "fork")
    (tmp_path / "results").mkdir()
    results.share(tmp_path / "fork")
    assert list(tmp_path.iterdir()) == [tmp_path / "results"]


def test_a_fork_on_another_disk_has_copies_of_what_is_sound(tmp_path: Path) -> None:
    shm = Path("/dev/shm")  # noqa: S108  where Linux has a disk of its own
    if not os.access(shm, os.W_OK) or shm.stat().st_dev == tmp_path.stat().st_dev:
        pytest.skip("there is no second disk that can be written")
    results, kept = filled(tmp_path, TEXTS[:3], 10**6)
    (tmp_path / kept[1]).write_text("damaged")
    fork = shm / f"localctx-test-{os.getpid()}"
    try:
        results.share(fork)
        assert left_in(fork) == {kept[0], kept[2]}
        assert Results(fork).get(kept[2], 1000) == TEXTS[2]
    finally:
        shutil.rmtree(fork, ignore_errors=True)


def test_a_fork_that_cannot_be_is_an_error(tmp_path: Path) -> None:
    results, _ = filled(tmp_path / "one", TEXTS[:1], 10**6)
    (tmp_path / "fork").write_text("a file")
    with pytest.raises(OSError, match="fork"):
        results.share(tmp_path / "fork")
