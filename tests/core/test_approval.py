from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from localctx.core.approval import RULED, Wish, rule


@pytest.mark.parametrize(
    ("text", "tool", "subject", "allowed"),
    [
        ("run_command:git status*", "run_command", "git status --short", True),
        ("run_command:git status*", "run_command", "git status", True),
        ("run_command:git status*", "run_command", "git stash", False),
        ("run_command:git status", "run_command", "git status --short", False),
        ("run_command:git *", "write_file", "git status", False),
        ("run_command:pytest * -q", "run_command", "pytest tests/core -q", True),
        ("run_command:make && make test", "run_command", "make && make test", True),
        ("write_file:src/**", "write_file", "src/a/b.py", True),
        ("write_file:src/**", "write_file", "source/a.py", False),
        ("write_file:*.md", "write_file", "docs/a.md", True),
        ("write_file:*", "write_file", "a\nb", True),
        ("write_file:a.c", "write_file", "abc", False),
        ("write_file:a*b*c", "write_file", "abxbc", True),
        ("write_file:aa*aa", "write_file", "aaa", False),
        ("write_file:*a*b*c*d*e*", "write_file", "abcd" * 5_000, False),
        ("run_command:make && *", "run_command", "make && make test", True),
        ("run_command:make && *", "run_command", "make && make; rm x", False),
        ("read_file:.env", "read_file", ".env", True),
        ("fetch_url:*.python.org", "fetch_url", "docs.python.org", True),
        ("fetch_url:*.python.org", "fetch_url", "python.org.example", False),
    ],
)
def test_a_rule_allows_what_it_says(text: str, tool: str, subject: str, allowed: bool) -> None:  # noqa: FBT001  a test
    assert rule(text).allows(Wish(tool, subject)) is allowed


@pytest.mark.parametrize(
    "more",
    [
        *(
            "; rm -rf x",
            " && rm x",
            " || rm x",
            " | sh",
            " & rm x",
            "`rm x`",
            "$(rm x)",
            "$HOME",
            " > x",
            " < x",
            "\nrm x",
        ),
        *(" !x", " {a,b}", "\rrm x", " (rm x)", " \\\nrm x", "\x00rm", " 2>&1", " <(rm x)"),
    ],
)
def test_a_star_allows_no_second_thing_in_a_command(more: str) -> None:
    assert not rule("run_command:git status*").allows(Wish("run_command", f"git status{more}"))
    assert not rule("run_command:*").allows(Wish("run_command", f"git status{more}"))


@pytest.mark.parametrize(
    ("pattern", "command"),
    [
        ("git log *", "git log --output=/tmp/x"),
        ("git log *", "git log --outp=/tmp/x"),
        ("git log *", "git log --out'put'=x"),
        ("git log*", "git log --output x"),
        ("git log -*", "git log -oX"),
        ("git log --*", "git log --output=x"),
        ("git *", "git -c core.pager=x log"),
        ("git *", "git -ccore.pager=x log"),
        ("git *", "git --config-env=core.pager=X log"),
        ("git fetch *", "git fetch --upload-pack=x a"),
        ("git rebase *", "git rebase --exec x"),
        ("find *", "find . -delete"),
        ("find *", "find . -exec rm x"),
        ("find *", 'find . -ex""ecdir rm x'),
        ("sort *", "sort a -o b"),
        ("sort *", "sort a -ob"),
    ],
)
def test_a_star_allows_no_option_that_does_more(pattern: str, command: str) -> None:
    assert not rule(f"run_command:{pattern}").allows(Wish("run_command", command))
    assert rule(f"run_command:{command}").allows(Wish("run_command", command)), "where it is written out"


@pytest.mark.parametrize(
    ("pattern", "command", "allowed"),
    [
        ("git status*", "git statusx", False),
        ("git status*", "git status-evil", False),
        ("git status*", "git status -s", True),
        ("ls*", "ls", True),
        ("ls*", "ls -la src", True),
        ("ls*", "lsof", False),
        ("pytest tests/*", "pytest tests/core -q", True),
        ("git log *", "git log --oneline --color --stat", True),
        ("git -c a=b *", "git -c a=b log", True),
        ("git log --no-*", "git log --no-color", True),
    ],
)
def test_a_star_behind_a_letter_does_not_lengthen_its_word(pattern: str, command: str, allowed: bool) -> None:  # noqa: FBT001  a test
    assert rule(f"run_command:{pattern}").allows(Wish("run_command", command)) is allowed


@pytest.mark.parametrize("text", ["", "run_command", "run_command:", ":x", "list_dir:*", "RUN_COMMAND:x"])
def test_what_is_no_rule_is_explained(text: str) -> None:
    with pytest.raises(ValueError, match="is no rule; write TOOL:PATTERN"):
        rule(text)


@given(
    st.sampled_from(RULED), st.text(min_size=1, max_size=20).filter(lambda text: "*" not in text), st.text(max_size=20)
)
def test_without_a_star_a_rule_allows_its_own_text_alone(tool: str, pattern: str, subject: str) -> None:
    assert rule(f"{tool}:{pattern}").allows(Wish(tool, pattern))
    assert rule(f"{tool}:{pattern}").allows(Wish(tool, subject)) is (subject == pattern)
