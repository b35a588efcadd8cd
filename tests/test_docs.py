"""What the documents claim, checked against the program."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import msgspec
import pytest

import localctx
from localctx import config, errors
from localctx.errors import LocalctxError

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")


def helped(*command: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "localctx", *command, "--help"],
        capture_output=True,
        text=True,
        check=True,
        env={"COLUMNS": "200", "TERM": "dumb", "NO_COLOR": "1"},
    )
    return done.stdout


def kinds(root: type[LocalctxError]) -> set[type[LocalctxError]]:
    public = [child for child in root.__subclasses__() if not child.__name__.startswith("_")]
    return {root}.union(*(kinds(child) for child in public))


def test_the_exit_codes_are_those_of_the_errors() -> None:
    documented = {int(code) for code in re.findall(r"^\| (\d+) \|", README, re.MULTILINE)}
    assert documented == {kind.exit_code for kind in kinds(LocalctxError)} | {0, 130}


def test_the_tree_in_the_docstring_is_the_tree() -> None:
    drawn = dict(re.findall(r"(\w+) +(\d)  ", errors.__doc__ or ""))
    assert drawn == {kind.__name__: str(kind.exit_code) for kind in kinds(LocalctxError)}


@pytest.mark.parametrize(
    "command",
    [
        *("probe", "run", "count", "compact", "fit", "simulate", "models", "catalog"),
        *("bench server", "bench tokenizer", "bench compaction", "bench probe"),
        *("sessions show", "sessions export", "sessions undo", "sessions fork", "work show"),
    ],
)
def test_every_option_that_the_readme_uses_exists(command: str) -> None:
    help_text = helped(*command.split())
    for line in re.findall(rf"localctx {command}\b[^\n`]*", README):
        for option in re.findall(r"(?<!\w)--[a-z][a-z-]+", line):
            assert re.search(rf"{option}(?![\w-])", help_text), line


def test_every_option_in_the_readme_s_prose_is_one_of_a_command() -> None:
    prose = re.sub(r"```.*?```", "", README, flags=re.DOTALL).partition("## Counting, measured")[0]
    known = "".join(
        helped(*command.split()) for command in ("", "run", "probe", "bench server", "simulate", "sessions show")
    )
    known += "".join(
        helped(*command.split()) for command in ("sessions undo", "sessions export", "count", "fit", "compact")
    )
    others = {"--no-kv-unified", "--output", "--exec"}  # of servers, and of commands that a rule is about
    options = set(re.findall(r"(?<!\w)--[a-z][a-z-]+", prose)) - others
    assert len(options) > 10
    assert [option for option in sorted(options) if not re.search(rf"{option}(?![\w-])", known)] == []


def test_the_readme_names_the_settings_that_there_are() -> None:
    (said,) = re.findall(r"The keys are (.*?)\. A server's key", README, re.DOTALL)
    fields = {field.name for field in msgspec.structs.fields(config._File)}
    assert set(re.findall(r"`(\w+)`", said)) == fields


def test_the_readme_s_configurations_can_be_loaded(tmp_path: Path) -> None:
    examples = re.findall(r"```toml\n(.*?)```", README, re.DOTALL)
    loaded = []
    for example in examples:
        (tmp_path / "localctx.toml").write_text(example, encoding="utf-8")
        loaded.append(config.load({}, environment={}, project=tmp_path / "none", user=tmp_path))
    assert [each.allow for each in loaded if each.allow] == [tuple(tomllib.loads(examples[0])["allow"])]
    assert [each.max_context_tokens for each in loaded] == [None, 16384]


def test_the_version_is_said_once_and_the_same_everywhere() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert project["version"] == localctx.__version__
    assert f"## {localctx.__version__}" in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")


def test_importing_the_package_loads_nothing_else() -> None:
    code = (
        "import sys, localctx; print([m for m in ('httpx', 'typer', 'rich', 'anyio', 'msgspec') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_every_public_name_can_be_had() -> None:
    assert all(getattr(localctx, name) is not None for name in localctx.__all__)
    with pytest.raises(AttributeError, match="nonsense"):
        getattr(localctx, "nonsense")  # noqa: B009  the type checker knows that it is not there


def test_every_module_has_a_promise() -> None:
    silent = [
        str(path.relative_to(ROOT))
        for path in (ROOT / "localctx").rglob("*.py")
        if not path.read_text(encoding="utf-8").startswith('"""')
    ]
    assert silent == []
