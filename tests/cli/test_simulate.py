from __future__ import annotations

import base64
import hashlib
import json
import os
import re
import shutil
import stat
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from localctx.cli.app import app
from localctx.core.lesson import Plan
from localctx.core.lesson_story import Story, tell
from localctx.errors import Misuse
from tests.cli.conftest import Run


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.chdir(tmp_path)


def simulated(*args: str) -> Result:
    return CliRunner().invoke(app, ["simulate", *args])


def table(*args: str) -> str:
    done = simulated(*args)
    assert done.exit_code == 0, done.output
    return done.stdout


def document(*args: str) -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads(table("--json", *args))
    return loaded


def refused(*args: str) -> str:
    done = simulated(*args)
    assert isinstance(done.exception, Misuse), done.output
    return str(done.exception)


# --- the table --------------------------------------------------------------------------------------------------------


def test_without_options_the_lesson_s_default_is_told_step_by_step() -> None:
    shown = table()
    assert "A window of 50,000 tokens; gate at 92%: compact above 46,000; a memory file." in shown
    figures = re.findall(r"^ ?\d+ .*? ([+-][\d,]+ +[\d,]+ +[\d.]+%)", shown, re.MULTILINE)
    assert [" ".join(each.split()) for each in figures][8:10] == ["+22,100 47,900 95.8%", "-20,700 27,200 54.4%"]
    assert "Over the gate of 46,000: compact before the next request." in shown
    assert "Recorded in the lesson's run, not computed" in shown


def test_the_policies_are_compared_and_this_run_is_marked() -> None:
    rows = table("--threshold", "50").splitlines()[-5:]
    assert [" ".join(row.split()) for row in rows] == [
        "no compaction 53,500 0 rejected no answer no answer found",
        "92%, no memory 46,900 1 26,200 lost found lost",
        "92%, memory 47,900 1 27,200 lost found found",
        "> 50%, memory 47,100 2 27,200 found found found",
        "50%, no memory 46,900 1 26,200 lost found lost",
    ]


def test_a_run_that_is_none_of_the_lesson_s_is_compared_with_them() -> None:
    assert table("--threshold", "0.7").splitlines()[-1].startswith("> this run")
    assert "this run" not in table("--threshold", "0.5").splitlines()[-1]


def test_what_survives_is_told_at_the_end() -> None:
    shown = table("--no-memory")
    assert re.search(r"^the pnpm rule +found: summary 1 +lost$", shown, re.MULTILINE)
    assert "npm install lodash, which the user had forbidden" in shown
    assert re.search(r"a line in MEMORY.md: until somebody deletes it\n +none here", shown)


@pytest.mark.parametrize("columns", ["20", "40", "60", "71", "72", "80", "100", "300"])
@pytest.mark.parametrize("more", [(), ("--threshold", "none"), ("--threshold", "10%"), ("--window", "9000")])
def test_no_line_is_wider_than_the_terminal(
    columns: str, more: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", columns)
    assert max(map(len, table(*more).splitlines())) <= max(int(columns), 40)


def test_nothing_in_it_steers_a_terminal(localctx: Run) -> None:
    done = localctx("simulate")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.isprintable() or set(filter(lambda each: not each.isprintable(), done.stdout)) == {"\n"}


def test_help_says_how_a_threshold_is_written() -> None:
    text = " ".join(table("--help").split())
    assert "92%, 92 or 0.92 (up to 1 a share, above 1 per cent); or none" in text
    assert "--no-memory" in text


# --- the options ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("written", "share"),
    [
        *[(text, 0.92) for text in ("0.92", ".92", "92", "92%", "92 %", " 92.0% ")],
        *[("1", 1.0), ("1.0", 1.0), ("100", 1.0), ("100%", 1.0), ("1%", 0.01), ("0.5%", 0.005), ("2", 0.02)],
        *[("none", None), ("NONE", None)],
    ],
)
def test_a_threshold_is_a_share_or_per_cent_or_none(written: str, share: float | None) -> None:
    assert document("--threshold", written)["threshold"] == share


@pytest.mark.parametrize(
    "written",
    [
        *["", "0", "0%", "0.0", "101", "100.1%", "-1", "-5%", "nan", "inf", "1e3", "0,92", "92%%", "%", ".", "off"],
        *["9" * 400, "\u0669\u0662", "0x5", "1_0", "\x1b[31m5"],
    ],
)
def test_what_is_no_threshold_is_refused_with_what_was_written(written: str) -> None:
    said = refused(f"--threshold={written}")
    assert said.startswith(f"--threshold {written[:5]!r}"[:-1])
    assert said.endswith("pass one like 92%, 92 or 0.92, or none")
    assert len(said) < 200


@pytest.mark.parametrize("window", ["0", "-1", "2147483648", "9" * 30])
def test_what_is_no_window_is_refused_with_the_number(window: str) -> None:
    assert refused(f"--window={window}").startswith(f"--window {int(window):,} is no window; pass a number of tokens")


@pytest.mark.parametrize(
    "args", [["--window", "much"], ["--window", "1e4"], ["--memory=maybe"], ["--shelf"], ["extra"]]
)
def test_other_mistakes_end_with_2(args: list[str]) -> None:
    done = simulated(*args)
    assert (done.exit_code, done.stdout) == (2, "")


def test_a_mistake_is_said_in_one_line_and_for_programs_as_json(localctx: Run) -> None:
    done = localctx("simulate", "--threshold", "150")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("localctx: --threshold '150' is no share of the window above 0 and up to 100%")
    done = localctx("simulate", "--json", "--window", "0")
    assert (done.returncode, done.stderr) == (2, "")
    assert json.loads(done.stdout)["exit_code"] == 2


@pytest.mark.parametrize("window", [1, 799, 4_000, 19_000, 2**31 - 1])
def test_the_smallest_and_the_largest_windows_are_told(window: int) -> None:
    assert f"A window of {window:,} tokens" in table("--window", str(window))
    assert document("--window", str(window))["window"] == window


# --- for programs -----------------------------------------------------------------------------------------------------


def test_the_document_is_the_story() -> None:
    found, story = document("--threshold", "none"), tell(Plan(gate=None))
    assert {name: found[name] for name in ("schema", "window", "threshold", "gate", "memory", "rejected")} == {
        "schema": 1,
        "window": 50_000,
        "threshold": None,
        "gate": None,
        "memory": True,
        "rejected": 53_500,
    }
    assert found["sizes"] == {"system": 3_000, "remembered": 1_000, "summary": 800}
    assert [step["total"] for step in found["steps"]] == [step.total for step in story.steps]
    assert [(row["runs"], row["of"]) for row in found["recorded"]] == [(5, 5), (4, 5), (2, 5)]


def test_a_compaction_in_the_document_has_the_keys_of_the_lesson_s_trace() -> None:
    (step,) = [step for step in document()["steps"] if step["compaction"]]
    assert step["compaction"] == {
        "gate": 46_000,
        "before": 47_900,
        "slice": ["user", "asst", "call_read", "res_read", "diag"],
        "slice_tokens": 21_500,
        "summary": 800,
        "kept": ["call_test", "res_test"],
        "after": 27_200,
        "still_over": False,
    }
    assert step["desk"] == {"system": 3_000, "memory": 1_000, "summary1": 800, "call_test": 300, "res_test": 22_100}


def test_the_comparison_is_of_the_same_window() -> None:
    rows = document("--window", "60000")["comparison"]
    assert [(row["name"], row["peak"], row["rejected"]) for row in rows[:1]] == [("no compaction", 53_500, None)]
    assert rows[1]["probes"] == ["found", "found", "lost"], "nothing had to be compacted"


# --- the page ---------------------------------------------------------------------------------------------------------


class Page(HTMLParser):
    """A page as a parser finds it: its elements, and the text in each kind of them."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.texts: dict[str, list[str]] = {}
        self.open: list[str] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag not in {"meta", "input"}:
            self.open.append(tag)
            self.texts.setdefault(tag, []).append("")

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open:
            self.texts[self.open[-1]][-1] += data


@pytest.fixture
def page(tmp_path: Path) -> Path:
    file = tmp_path / "lesson.html"
    table("--threshold", "85%", "--html", str(file))
    return file


def embedded(page: Path) -> dict[str, Any]:
    parsed = Page(page.read_text(encoding="utf-8"))
    assert not set("<>&") & set(parsed.texts["script"][0]), "nothing in it can end the script"
    loaded: dict[str, Any] = json.loads(parsed.texts["script"][0])
    return loaded


def test_the_page_is_well_formed_and_asks_nothing_of_the_network(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    parsed = Page(text)
    assert parsed.open == []
    assert not {"link", "img", "iframe", "object", "embed", "base", "form"} & {tag for tag, _ in parsed.elements}
    attributes = [name for _, attrs in parsed.elements for name in attrs]
    assert not {"src", "href", "srcset", "action", "style"} & set(attributes)
    assert not [name for name in attributes if name.startswith("on")]
    assert not re.search(r"https?:|//[a-z]|url\(|@import|fetch\(|XMLHttp|innerHTML|import\(", text)
    ids = [attrs["id"] for _, attrs in parsed.elements if "id" in attrs]
    assert len(ids) == len(set(ids))


def test_its_policy_lets_its_own_script_and_style_run_and_nothing_else(page: Path) -> None:
    parsed = Page(page.read_text(encoding="utf-8"))
    (policy,) = [
        attrs["content"] for _, attrs in parsed.elements if attrs.get("http-equiv") == "Content-Security-Policy"
    ]
    digests = [
        base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
        for text in (parsed.texts["script"][1], parsed.texts["style"][0])
    ]
    script, style = digests
    assert policy == (
        f"default-src 'none'; script-src 'sha256-{script}'; style-src 'sha256-{style}'; base-uri 'none'; form-action 'none'"
    )


def test_the_page_holds_what_the_json_says(page: Path) -> None:
    data = embedded(page)
    said = document("--threshold", "85%")
    shared = {name: data[name] for name in ("recorded", "comparison")}
    assert data["stories"][data["chosen"]] | shared == said


def test_each_setting_of_the_page_is_the_story_of_its_plan(page: Path) -> None:
    data = embedded(page)
    assert len(data["stories"]) == 2 * 13, "eleven notches, the threshold that was asked for, and none"
    for story in data["stories"]:
        told = tell(Plan(gate=story["threshold"], memory=story["memory"]))
        assert [(step["text"], step["total"]) for step in story["steps"]] == [
            (step.text, step.total) for step in told.steps
        ]
        assert {name for step in story["steps"] for name in step["desk"]} <= data["titles"].keys()


def test_without_scripts_the_transcript_is_there(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    lines = re.search(r'<ol class="transcript" id="transcript">(.*?)</ol>', text, re.DOTALL)
    assert lines
    assert lines[1].count("<li>") == len(document("--threshold", "85%")["steps"])
    assert "the fix: i &lt; n." in lines[1]
    assert "<noscript>" in text


def test_the_page_honours_what_its_reader_prefers(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    for wish in (
        "prefers-reduced-motion: reduce",
        "prefers-color-scheme: dark",
        'aria-live="polite"',
        'name="viewport"',
    ):
        assert wish in text


def test_the_page_is_told_of_on_stderr_and_private(localctx: Run, tmp_path: Path) -> None:
    done = localctx("simulate", "--json", "--html", str(tmp_path / "new.html"))
    assert (done.returncode, done.stderr) == (0, f"wrote {tmp_path / 'new.html'}; open it in a browser\n")
    assert json.loads(done.stdout)["schema"] == 1
    assert stat.S_IMODE((tmp_path / "new.html").stat().st_mode) == 0o600


def test_a_reader_that_has_seen_enough_still_gets_the_page(environment: dict[str, str], tmp_path: Path) -> None:
    command = f"{sys.executable} -m localctx simulate --html {tmp_path / 'new.html'} | head -n 1"
    done = subprocess.run(["/bin/sh", "-c", command], capture_output=True, text=True, env=environment, check=True)
    assert done.stdout.startswith("A window of")
    assert (tmp_path / "new.html").read_text(encoding="utf-8").endswith("</html>\n")


def test_a_file_that_is_there_stays_as_it_is(page: Path) -> None:
    before = page.read_bytes()
    assert (
        refused("--html", str(page))
        == f"{page} is there already, and stays as it is; name a file that is not there yet"
    )
    assert page.read_bytes() == before


def test_a_link_to_nowhere_is_a_file_that_is_there(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "nowhere")
    assert "is there already" in refused("--html", str(tmp_path / "link"))
    assert not (tmp_path / "nowhere").exists()


@pytest.mark.parametrize("name", ["none/page.html", "page.txt/page.html", "", "."])
def test_a_file_that_cannot_be_made_is_refused_before_anything_is_said(name: str, tmp_path: Path) -> None:
    (tmp_path / "page.txt").write_text("x")
    done = simulated("--html", name)
    assert isinstance(done.exception, Misuse)
    assert done.stdout == ""


@pytest.mark.skipif(os.geteuid() == 0, reason="for root nothing is read-only")
def test_a_folder_that_cannot_be_written_is_refused(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    assert "name a file in a folder that you can write" in refused("--html", str(tmp_path / "page.html"))


# --- the page's script ------------------------------------------------------------------------------------------------

NODE = shutil.which("node") or ""
needs_node = pytest.mark.skipif(not NODE, reason="node is not installed")


def played(page: Path, *how: str) -> dict[str, Any]:
    command = [NODE, str(Path(__file__).with_name("page.mjs")), str(page), *how]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    loaded: dict[str, Any] = json.loads(done.stdout)
    return loaded


def expected(story: Story, *, moves: bool = True) -> list[dict[str, Any]]:
    """What is shown of each step; where things may move, what a compaction takes is marked before it goes."""
    window = story.plan.limit
    older = ["older notes"] if story.plan.memory else []
    return [
        {
            "place": f"Session {step.session}, step {step.step} of {len(story.steps)}",
            "text": step.text,
            "total": f"{step.total:,} of {window:,} ({step.pressure * 100:.1f}%)",
            "remarks": list(step.remarks),
            "desk": [[name, f"{tokens:,}"] for name, tokens in step.desk.items()],
            "file": [*older, *step.file],
            "found": list(step.probe.where) if step.probe and step.probe.outcome == "found" else [],
            "taken": list(step.compaction.slice) if step.compaction and moves else [],
        }
        for step in story.steps
    ]


@needs_node
@pytest.mark.parametrize("how", [(), ("still",)])
def test_the_script_shows_each_step_of_each_setting_as_the_core_tells_it(page: Path, how: tuple[str, ...]) -> None:
    shown, moves = played(page, *how), not how
    assert shown["first"]["steps"] == expected(tell(Plan(gate=0.85)), moves=moves)
    assert shown["first"]["gate"] == "85%: 42,500 tokens"
    stories = [tell(Plan(gate=each["threshold"], memory=each["memory"])) for each in embedded(page)["stories"]]
    assert [walk["steps"] for walk in shown["all"]] == [expected(story, moves=moves) for story in stories]
    assert [walk["transcript"] for walk in shown["all"]] == [len(story.steps) for story in stories]


@needs_node
def test_the_script_s_buttons_choose_and_play(page: Path) -> None:
    shown = played(page)
    assert shown["unmoved"]["gate"] == "none: nothing is compacted"
    assert shown["unmoved"]["steps"] == expected(tell(Plan(gate=None)))
    assert shown["played"] == {"playing": "Pause", "after": "Play", "place": "Session 2, step 19 of 19"}
    assert shown["back"] == "Session 2, step 18 of 19"
