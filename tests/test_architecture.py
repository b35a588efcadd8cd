"""The layers and what the core may know, enforced."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
MODULES = sorted((ROOT / "localctx").rglob("*.py"))
PURE = [*sorted((ROOT / "localctx" / "core").rglob("*.py")), ROOT / "localctx" / "errors.py"]
KNOWN_TO_PURE = {
    "__future__",
    "collections.abc",
    "dataclasses",
    "enum",
    "itertools",
    "json",
    "math",
    "re",
    "typing",
}
"""Neither clock nor chance, neither files nor the environment; a new name here is a decision."""
FORBIDDEN = {"open", "print", "input", "eval", "exec", "compile", "globals", "breakpoint", "__import__"}
WITHOUT_ALL = {"__init__", "__main__"}


def names(paths: list[Path]) -> list[str]:
    return [str(path.relative_to(ROOT)) for path in paths]


def parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def imported(tree: ast.Module) -> set[str]:
    """Every module that is imported, wherever the import stands; a relative one as its dots."""
    found = set[str]()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            found.add("." * node.level + (node.module or ""))
    return found


def test_the_contracts_between_the_layers_are_kept() -> None:
    command = "from importlinter.cli import lint_imports_command; lint_imports_command()"
    done = subprocess.run(
        [sys.executable, "-c", command, "--no-cache"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert " kept, 0 broken" in done.stdout


@pytest.mark.parametrize("path", PURE, ids=names(PURE))
def test_the_core_knows_nothing_but_itself_and_a_little_of_the_standard_library(path: Path) -> None:
    own = {name for name in imported(parsed(path)) if name == "localctx.errors" or name.startswith("localctx.core.")}
    assert imported(parsed(path)) - own - KNOWN_TO_PURE == set()


@pytest.mark.parametrize("path", PURE, ids=names(PURE))
def test_the_core_only_computes(path: Path) -> None:
    nodes = list(ast.walk(parsed(path)))
    assert {node.id for node in nodes if isinstance(node, ast.Name)} & FORBIDDEN == set()
    assert [node for node in nodes if isinstance(node, (ast.AsyncFunctionDef, ast.Await, ast.Global))] == []


@pytest.mark.parametrize("path", MODULES, ids=names(MODULES))
def test_a_module_says_what_it_is_and_what_it_offers(path: Path) -> None:
    tree = parsed(path)
    assert ast.get_docstring(tree)
    targets = {
        target.id
        for node in tree.body
        if isinstance(node, ast.Assign)
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    assert path.stem in WITHOUT_ALL or "__all__" in targets
