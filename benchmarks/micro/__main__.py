"""`python -m benchmarks.micro --record | --compare`: functions of the core beside a reference, and the recorded baseline.

Each is timed by pytest-benchmark (`pip install -e '.[micro,test]'`); what is compared are shares of the reference in the same run,
by the quickest round, which other work on the machine disturbs least. Exit 1 where one takes more than one and a half times its baseline.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from localctx.hardware.machine import load, processors
from localctx.stores.checkout import commit

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

__all__ = ["compared", "main", "slower"]

_ROOT = Path(__file__).parents[2]
_BASELINE = _ROOT / "benchmarks" / "results" / "micro.json"
_REFERENCE = "test_reference"

_MOST = 1.5
"""How many times its baseline a share may be: with rounds of three seconds, two runs under a load of five differed by 7 %."""


def main(arguments: Sequence[str]) -> int:
    """Measures, then records the shares or compares them with the baseline."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.micro", description=__doc__)
    wish = parser.add_mutually_exclusive_group(required=True)
    wish.add_argument("--record", action="store_true", help="make what is measured the baseline")
    wish.add_argument("--compare", action="store_true", help="compare it with the baseline")
    given = parser.parse_args(arguments)
    if find_spec("pytest_benchmark") is None:
        print("pytest-benchmark is not installed: pip install -e '.[micro,test]'", file=sys.stderr)  # noqa: T201  as below
        return 1
    try:
        seconds = _measured()
    except subprocess.CalledProcessError:
        return 1  # pytest has said why
    shares = {name: took / seconds[_REFERENCE] for name, took in seconds.items()}
    if given.record:
        about = {"machine": processors(), "load": round(load(), 2), "commit": commit(_ROOT)}
        document = {
            "schema": 1,
            **about,
            "microseconds": {name: took * 1e6 for name, took in seconds.items()},
            "shares": shares,
        }
        _BASELINE.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    before = json.loads(_BASELINE.read_text(encoding="utf-8"))["shares"]
    for line in compared(shares, before):
        print(line)  # noqa: T201  a program's output
    worse = slower(shares, before)
    for name, times in worse.items():
        print(f"{name.removeprefix('test_')} takes {times:.1f} times its baseline", file=sys.stderr)  # noqa: T201  as above
    return 1 if worse else 0


def compared(shares: Mapping[str, float], before: Mapping[str, float]) -> Iterator[str]:
    """A line for each: its share of the reference, and the one that was recorded."""
    for name, share in shares.items():
        known = f"baseline {before[name]:.4f}" if name in before else "no baseline"
        yield f"{name.removeprefix('test_'):<12}{share:>10.4f} of the reference, {known}"


def slower(shares: Mapping[str, float], before: Mapping[str, float]) -> dict[str, float]:
    """How many times its baseline each takes that takes more than it may."""
    times = {name: share / before[name] for name, share in shares.items() if name in before}
    return {name: each for name, each in times.items() if each > _MOST}


def _measured() -> dict[str, float]:
    """The seconds of each by its quickest round. Raises `CalledProcessError` where a benchmark fails."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "benchmarks.json"
        command = [sys.executable, "-m", "pytest", "-q", "benchmarks/micro", f"--benchmark-json={path}"]
        wishes = ["--benchmark-quiet", "--benchmark-disable-gc", "--benchmark-max-time=3"]
        subprocess.run([*command, *wishes], cwd=_ROOT, check=True)  # noqa: S603  ourselves
        rows = json.loads(path.read_text(encoding="utf-8"))["benchmarks"]
    return {row["name"]: row["stats"]["min"] for row in rows}


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
