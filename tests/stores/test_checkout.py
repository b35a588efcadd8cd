from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from localctx.stores.checkout import commit

HASH = "0123456789abcdef0123456789abcdef01234567"


def put(root: Path, name: str, text: str) -> None:
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


def test_a_branch_is_followed_to_its_commit(tmp_path: Path) -> None:
    put(tmp_path, ".git/HEAD", "ref: refs/heads/main\n")
    put(tmp_path, ".git/refs/heads/main", f"{HASH}\n")
    assert commit(tmp_path) == HASH


def test_a_branch_that_git_has_packed_is_found(tmp_path: Path) -> None:
    put(tmp_path, ".git/HEAD", "ref: refs/heads/main\n")
    put(
        tmp_path, ".git/packed-refs", f"# pack-refs with: peeled\n{'f' * 40} refs/heads/other\n{HASH} refs/heads/main\n"
    )
    assert commit(tmp_path) == HASH


def test_a_commit_without_a_branch_is_taken(tmp_path: Path) -> None:
    put(tmp_path, ".git/HEAD", f"{HASH}\n")
    assert commit(tmp_path) == HASH


def test_a_second_work_tree_is_followed_to_the_first(tmp_path: Path) -> None:
    put(tmp_path, "second/.git", f"gitdir: {tmp_path}/first/.git/worktrees/second\n")
    put(tmp_path, "first/.git/worktrees/second/HEAD", "ref: refs/heads/side\n")
    put(tmp_path, "first/.git/worktrees/second/commondir", "../..\n")
    put(tmp_path, "first/.git/refs/heads/side", f"{HASH}\n")
    assert commit(tmp_path / "second") == HASH


@pytest.mark.parametrize("head", ["", "nonsense", "ref: refs/heads/none", "ref: ../../etc/passwd", "\x00" * 40])
def test_what_is_no_checkout_has_no_commit(tmp_path: Path, head: str) -> None:
    assert commit(tmp_path) is None
    put(tmp_path, ".git/HEAD", head)
    assert commit(tmp_path) is None


def test_git_says_the_same_of_this_checkout() -> None:
    root = Path(__file__).parents[2]
    try:
        done = subprocess.run(["git", "-C", str(root), "rev-parse", "HEAD"], capture_output=True, text=True, check=True)  # noqa: S607  whatever Git there is
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("no checkout, or no Git")
    assert commit(root) == done.stdout.strip()
