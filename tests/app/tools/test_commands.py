"""Commands end, with all that they started, and say how."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import anyio
import psutil
import pytest

from localctx.app.tools import commands, programs
from localctx.app.tools.commands import RunCommand
from localctx.app.tools.programs import Ran, run_program
from localctx.app.tools.toolbox import Toolbox
from localctx.core.approval import Wish
from localctx.core.messages import ToolCall
from localctx.core.results import Provenance
from localctx.core.secrets import Secrets
from tests.app.tools.conftest import Bench

pytestmark = pytest.mark.anyio


async def run(bench: Bench, command: str, **more: object) -> str:
    return await bench.call(RunCommand(bench.place, bench.person, Secrets()), command=command, **more)


@pytest.mark.parametrize(
    ("command", "told"),
    [
        ("echo one; echo two >&2", "one\ntwo\n[exit code 0]"),
        ("printf 'no end'; exit 3", "no end\n[exit code 3]"),
        ("true", "[exit code 0]"),
        ("kill -TERM $$", "[ended by SIGTERM]"),
        ("nonsense-command", "nonsense-command"),
        ("printf '\\377\\376'", "\ufffd\ufffd\n[exit code 0]"),
        ("printf '\\033[31mred\\033[0m \\033]0;title\\007plain'", "red plain\n[exit code 0]"),
        ("cat", "[exit code 0]"),
        ("test -t 0 || test -t 1 || test -t 2 || echo no terminal", "no terminal\n[exit code 0]"),
        ("(exec 3<>/dev/tty) 2>/dev/null || echo no terminal", "no terminal\n[exit code 0]"),
        ("pwd", "ROOT\n[exit code 0]"),
    ],
)
async def test_the_output_and_how_it_ended(bench: Bench, command: str, told: str) -> None:
    assert told.replace("ROOT", str(bench.root)) in await run(bench, command)


async def test_it_is_asked_for_by_its_whole_line(bench: Bench) -> None:
    bench.person.no = "the user said no"
    assert await run(bench, "  touch made; true ") == "error: the user said no"
    assert bench.person.wishes == [Wish("run_command", "touch made; true")]
    assert not (bench.root / "made").exists()


async def test_what_it_says_is_marked_as_a_stranger_s(bench: Bench) -> None:
    tool = RunCommand(bench.place, bench.person, Secrets())
    outcome = await Toolbox([tool]).run(ToolCall("1", tool.name, '{"command": "echo hi"}'))
    assert outcome.provenance == Provenance("command", "echo hi")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"command": " "}, "a command has from 1"),
        ({"command": "a\0b"}, "none of them a NUL"),
        ({"command": "x" * 20_001}, "a command has from 1 to 20,000"),
        ({"command": "true", "seconds": 601}, "seconds is from 1 to 600"),
        ({"command": "true", "seconds": -1}, "seconds is from 1 to 600"),
        ({"command": "\ud800"}, "cannot be started"),
    ],
)
async def test_what_is_no_command_is_not_run(bench: Bench, arguments: dict[str, object], said: str) -> None:
    assert said in await bench.call(RunCommand(bench.place, bench.person, Secrets()), **arguments)


def alive(pids: list[int]) -> list[int]:
    return [pid for pid in pids if _runs(pid)]


def _runs(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:  # also between finding it and asking it
        return False


async def gone(pids: list[int]) -> bool:
    for _ in range(200):
        if not alive(pids):
            return True
        await anyio.sleep(0.02)
    return False


TREE = """
sleep 300 & echo $! >> pids
setsid sleep 300 & echo $! >> pids
(sleep 300 & echo $! >> pids; sleep 300) & echo $! >> pids
trap '' TERM INT HUP
sleep 0.3
echo started
"""


def pids(bench: Bench) -> list[int]:
    return [int(line) for line in (bench.root / "pids").read_text(encoding="utf-8").split()]


async def test_at_its_time_it_is_ended_with_all_its_children(bench: Bench) -> None:
    told = await run(bench, f"{TREE} sleep 300", seconds=2)
    assert told == "started\n[stopped after 2 s; it was ended with all that it had started]"
    assert len(pids(bench)) == 4
    assert await gone(pids(bench))


async def test_with_the_turn_it_is_ended_with_all_its_children(bench: Bench) -> None:
    with anyio.move_on_after(2):
        await run(bench, f"{TREE} sleep 300")
    assert len(pids(bench)) == 4
    assert await gone(pids(bench))


async def test_what_it_leaves_running_is_ended_and_not_waited_for(bench: Bench) -> None:
    told = await run(bench, "sleep 300 & echo $! > pids; echo done", seconds=100)
    assert told == "done\n[exit code 0]"
    assert await gone(pids(bench))


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux hands over what lost its parent")
@pytest.mark.parametrize("rest", ["sleep 300", "true"])
async def test_what_made_itself_a_daemon_is_ended_as_well(bench: Bench, rest: str) -> None:
    daemon = "(setsid sh -c 'sleep 300 & echo $! >> pids; echo $$ >> pids; sleep 300' &)"
    await run(bench, f"{daemon}; sleep 0.5; {rest}", seconds=2)
    assert len(pids(bench)) == 2
    assert await gone(pids(bench))


OWNER = """
import os, sys
from pathlib import Path
import anyio
from localctx.app.tools.programs import run_program

async def main():
    await run_program(["/bin/sh", "-c", sys.argv[1]], folder=Path(), environment=os.environ, seconds=99, kept=9, most=9)

anyio.run(main)
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGKILL])
def test_whatever_ends_this_process_ends_them_as_well(bench: Bench, number: int) -> None:
    command = "setsid sleep 300 & echo $! >> pids; echo $$ >> pids; touch ready; sleep 300"
    with subprocess.Popen([sys.executable, "-c", OWNER, command], cwd=bench.root) as owner:
        while not (bench.root / "ready").exists():
            time.sleep(0.02)
        owner.send_signal(number)
    assert owner.returncode == -number
    for _ in range(200):
        time.sleep(0.02 if alive(pids(bench)) else 0)
    assert not alive(pids(bench))


async def test_a_supervisor_that_is_stopped_holds_nothing_up(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(programs, "_ENDING_SECONDS", 0.2)
    told = await run(bench, "echo $$ >> pids; kill -STOP $PPID; sleep 300", seconds=1)
    assert told.startswith("[stopped after 1 s")
    assert await gone(pids(bench))


@pytest.mark.parametrize("environment", [{}, {"LC_CTYPE": "C"}, {"A": "b", "LC_CTYPE": "C.UTF-8"}])
async def test_the_environment_is_the_one_that_was_given(tmp_path: Path, environment: dict[str, str]) -> None:
    ran = await run_program(["/usr/bin/env"], folder=tmp_path, environment=environment, seconds=20, kept=999, most=999)
    assert sorted(ran.head.decode().split()) == sorted(f"{name}={value}" for name, value in environment.items())


async def test_above_its_bound_it_is_ended(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(commands, "MOST_BYTES", 1 << 20)
    told = await run(bench, "yes")
    assert "[stopped after 1,048,576 bytes of output; it was ended" in told
    assert len(told) < 140_000


async def test_head_and_tail_of_a_long_output_are_kept(bench: Bench) -> None:
    told = await run(bench, "seq 1 100000")
    assert told.startswith("1\n2\n3\n")
    assert told.endswith("99999\n100000\n[exit code 0]")
    assert "bytes left out here]" in told
    assert len(told) < 140_000


async def test_secrets_of_the_environment_are_not_handed_on(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    secrets = {
        "LOCALCTX_API_KEY": "k1",
        "GITHUB_TOKEN": "t1",
        "DB_PASSWORD": "p1",
        "AWS_SECRET": "s1",
        "MyCredentials": "c",
    }
    for name, value in {**secrets, "HARMLESS": "shown"}.items():
        monkeypatch.setenv(name, value)
    told = await run(bench, "env")
    assert "HARMLESS=shown" in told
    assert not [name for name in secrets if name in told]


async def test_a_program_that_is_not_there_is_an_error_of_the_system(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        await run_program(["/none"], folder=tmp_path, environment={}, seconds=5, kept=9, most=9)


async def test_what_is_sent_is_read_and_a_reader_that_ends_is_no_crash(tmp_path: Path) -> None:
    async def ran(command: str, sent: bytes) -> Ran:
        shell = ["/bin/sh", "-c", command]
        return await run_program(
            shell, folder=tmp_path, environment=dict(os.environ), seconds=20, kept=5, most=1 << 30, sent=sent
        )

    assert await ran("cat", b"0123456789abcdef") == Ran(b"01234", b"bcdef", 6, 0)
    assert await ran("exit 4", b"x" * (1 << 20)) == Ran(b"", b"", 0, 4)
    assert (await ran("kill -9 $$", b"")).code == -signal.SIGKILL
