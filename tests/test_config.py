from __future__ import annotations

import os
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from localctx.config import FILE, Settings, Thresholds, load, this_machine
from localctx.errors import Misuse
from localctx.runtimes.http import client

if TYPE_CHECKING:
    from collections.abc import Mapping

SECRET = {"LOCALCTX_API_KEY": "sk-key"}


class Places:
    """A user's folder and a project's, and what they add up to."""

    def __init__(self, root: Path) -> None:
        self.user, self.project = root / "user", root / "project"
        self.user.mkdir()
        self.project.mkdir()

    def files(self, *, user: str | bytes | None = None, project: str | bytes | None = None) -> Places:
        for folder, text in ((self.user, user), (self.project, project)):
            if text is not None:
                (folder / FILE).write_bytes(text.encode() if isinstance(text, str) else text)
        return self

    def load(self, environment: Mapping[str, str] | None = None, **flags: object) -> Settings:
        return load(flags, environment=environment or {}, project=self.project, user=self.user)

    def wrong(self, environment: Mapping[str, str] | None = None, **flags: object) -> str:
        with pytest.raises(Misuse) as wrong:
            self.load(environment, **flags)
        return str(wrong.value)


@pytest.fixture
def places(tmp_path: Path) -> Places:
    return Places(tmp_path)


def test_nothing_set_is_nothing_set(places: Places) -> None:
    assert places.load() == Settings()
    assert load({}, environment={}, project=places.project / "gone", user=places.user / FILE / "x") == Settings()


def test_later_places_win_and_each_value_knows_its_own(places: Places) -> None:
    places.files(
        user='model = "u"\nnum_ctx = 1\nmax_tokens = 1\nsystem = "u"',
        project='model = "p"\nnum_ctx = 2\nmax_tokens = 2',
    )
    given = places.load({"LOCALCTX_MODEL": "e", "LOCALCTX_NUM_CTX": "3", "LOCALCTX_OTHER": "x"}, model="f", system=None)
    assert (given.model, given.num_ctx, given.max_tokens, given.system) == ("f", 3, 2, "u")
    assert given.origins == {
        "model": "--model",
        "num_ctx": "LOCALCTX_NUM_CTX",
        "max_tokens": f"project {places.project / FILE}:3",
        "system": f"user {places.user / FILE}:4",
    }


@pytest.mark.parametrize(
    ("file", "name", "value"),
    [
        ('model = "m"', "model", "m"),
        ('url = "http://h:1"', "url", "http://h:1"),
        ('runtime = "embedded"', "runtime", "embedded"),
        ("num_ctx = 5", "num_ctx", 5),
        ("numCtx = 5", "num_ctx", 5),
        ("max_context_tokens = 5", "max_context_tokens", 5),
        ("maxContextTokens = 5", "max_context_tokens", 5),
        ("max_tokens = 5", "max_tokens", 5),
        ("maxTokens = 5", "max_tokens", 5),
        ("temperature = 0", "temperature", 0),
        ("temperature = 0.5", "temperature", 0.5),
        ("patience = 5", "patience", 5),
        ('policy = "none"', "policy", "none"),
        ('system = """two\nlines"""', "system", "two\nlines"),
        ('api_key_env = "MY_KEY"', "api_key_env", "MY_KEY"),
        ("thresholds = {clear = 0.4, warn = 1}", "thresholds", Thresholds(clear=0.4, warn=1.0)),
    ],
)
def test_every_key_of_a_file(places: Places, file: str, name: str, value: object) -> None:
    given = places.files(user=file).load()
    assert getattr(given, name) == value
    assert given.origins == {name: f"user {places.user / FILE}:1"}


@pytest.mark.parametrize(
    ("variable", "text", "name", "value"),
    [
        ("LOCALCTX_NUM_CTX", "4096", "num_ctx", 4096),
        ("LOCALCTX_MAX_CONTEXT_TOKENS", "9", "max_context_tokens", 9),
        ("LOCALCTX_TEMPERATURE", "0.5", "temperature", 0.5),
        ("LOCALCTX_MODEL", "123", "model", "123"),
        ("LOCALCTX_MODEL", "null", "model", "null"),
        ("LOCALCTX_RUNTIME", "llama-server", "runtime", "llama-server"),
    ],
)
def test_the_environment_is_text(places: Places, variable: str, text: str, name: str, value: object) -> None:
    given = places.load({variable: text})
    assert (getattr(given, name), given.origins) == (value, {name: variable})


def test_an_empty_variable_sets_nothing(places: Places) -> None:
    assert places.load({"LOCALCTX_NUM_CTX": "", "LOCALCTX_MODEL": ""}) == Settings()


@pytest.mark.parametrize(
    ("name", "flag"), [("num_ctx", "--num-ctx"), ("max_context_tokens", "--max-context"), ("url", "--url")]
)
def test_a_flag_goes_by_its_name(places: Places, name: str, flag: str) -> None:
    assert places.load(None, **{name: 5 if name != "url" else "x"}).origins == {name: flag}


# What is wrong with a file.


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("window = 5", "`window`"),
        ("thresholds = {clean = 0.4}", "`clean`"),
        ("thresholds = 0.4", "thresholds: "),
        ("thresholds = {warn = '0.4'}", "thresholds.warn: "),
        ("num_ctx = '4096'", "num_ctx: "),
        ("num_ctx = true", "num_ctx: "),
        ("numCtx = 4096.0", "num_ctx: "),
        ("num_ctx = [1]", "num_ctx: "),
        ("num_ctx = 2020-01-01", "num_ctx: "),
        ("temperature = true", "temperature: "),
        ("temperature = '0'", "temperature: "),
        ("model = 5", "model: "),
        ("runtime = 'telepathy'", "runtime: "),
        ("num_ctx = 0", "num_ctx must be above 0"),
        ("maxContextTokens = -1", "max_context_tokens must be above 0"),
        ("max_tokens = -9", "max_tokens must be above 0"),
        ("num_ctx = " + "9" * 30, "num_ctx must be above 0 and at most 2,147,483,647"),
        ("temperature = nan", "temperature"),
        ("temperature = -inf", "temperature"),
        ("temperature = -0.1", "temperature"),
        ("patience = -1", "patience"),
        ("num_ctx = ", "no TOML"),
        ("num_ctx = 1\nnum_ctx = 2", "no TOML"),
        ("{}", "no TOML"),
        (b"\xff\xfe", "no TOML"),
        ("model = " + "[" * 10_000, "no TOML"),
        ("# " + "x" * (1 << 15), "larger than 16,384 bytes"),
    ],
    ids=lambda value: repr(value[:24]),
)
@pytest.mark.parametrize("place", ["user", "project"])
def test_a_wrong_file_is_named_with_what_is_wrong(places: Places, place: str, text: str | bytes, named: str) -> None:
    files: dict[str, Any] = {place: text}
    told = places.files(**files).wrong()
    assert str(getattr(places, place) / FILE) in told
    assert named in told
    assert "\n" not in told
    assert len(told) < 600


def test_a_wrong_file_is_told_even_where_a_later_place_would_win(places: Places) -> None:
    assert str(places.user / FILE) in places.files(user="num_ctx = 'x'").wrong(num_ctx=5)


def test_a_folder_in_the_files_place(places: Places) -> None:
    (places.project / FILE).mkdir()
    told = places.wrong()
    assert str(places.project / FILE) in told
    assert "remove it" in told


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become nobody")
def test_a_file_that_may_not_be_read() -> None:
    code = """
import os, tempfile
from pathlib import Path
from localctx.config import load
folder = Path(tempfile.mkdtemp())
file = folder / "localctx.toml"
file.write_text("num_ctx = 5")
os.chmod(file, 0)
for path in (folder, file): os.chown(path, 65534, 65534)
os.setgid(65534); os.setuid(65534)
try:
    load({}, environment={}, project=folder, user=Path("/nowhere"))
except Exception as error:
    print(type(error).__name__, error)
os.remove(file); os.rmdir(folder)
"""
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=False,
        cwd=Path(__file__).parents[1],
        timeout=60,
    )
    assert done.stderr == ""
    assert done.stdout.startswith("Misuse cannot read ")
    assert "localctx.toml (Permission denied)" in done.stdout


@pytest.mark.parametrize("text", ["8k", "true", "4096.5", "1_000", " ", "9" * 5000, "0", "-4"])
def test_a_wrong_variable_is_named(places: Places, text: str) -> None:
    told = places.wrong({"LOCALCTX_NUM_CTX": text})
    assert "num_ctx" in told
    assert told.startswith("LOCALCTX_NUM_CTX: ")


@pytest.mark.parametrize(
    ("flags", "named"),
    [
        ({"num_ctx": 0}, "--num-ctx"),
        ({"num_ctx": True}, "num_ctx"),
        ({"max_context_tokens": -1}, "--max-context"),
        ({"temperature": float("nan")}, "--temperature"),
        ({"runtime": "telepathy"}, "runtime"),
    ],
)
def test_a_wrong_flag_is_named(places: Places, flags: dict[str, Any], named: str) -> None:
    assert named in places.wrong(**flags)


# Keys.


def test_the_key_comes_from_the_variable_that_was_named(places: Places) -> None:
    environment = SECRET | {"MINE": "sk-mine"}
    assert places.load().key(environment) == "sk-key"
    assert places.load().key({"LOCALCTX_API_KEY": ""}) is None
    assert places.load(api_key_env="MINE").key(environment) == "sk-mine"
    assert places.files(user='api_key_env = "MINE"').load().key(environment) == "sk-mine"
    assert places.load({"LOCALCTX_API_KEY_ENV": "LOCALCTX_API_KEY"}).key(environment) == "sk-key"


@pytest.mark.parametrize("environment", [{}, {"MINE": ""}, SECRET])
def test_a_named_variable_that_is_not_set_is_told(places: Places, environment: dict[str, str]) -> None:
    given = places.files(user='api_key_env = "MINE"').load()
    with pytest.raises(Misuse, match="MINE") as wrong:
        given.key(environment)
    assert str(places.user / FILE) in str(wrong.value)
    assert "sk-key" not in str(wrong.value)


@pytest.mark.parametrize("text", ['api_key_env = "MINE"', 'apiKeyEnv = "MINE"', "api_key_env = 5", 'api_key = "sk-x"'])
def test_a_project_may_not_name_a_key(places: Places, text: str) -> None:
    told = places.files(project=text).wrong(api_key_env="OTHER")
    assert str(places.project / FILE) in told
    assert "sk-x" not in told


@pytest.mark.parametrize(
    ("url", "sent"),
    [
        ("http://127.0.0.1:8080", True),
        ("127.0.0.1:8080", True),
        ("http://localhost", True),
        ("http://[::1]:8080", True),
        ("http://127.9.9.9", True),
        ("http://192.168.0.5:8080", False),
        ("http://0.0.0.0:8080", False),
        ("https://example.org", False),
        ("example.org", False),
        ("http://localhost.example.org", False),
        ("http://127.0.0.1.example.org", False),
        ("http://127.0.0.1@example.org", False),
        ("http://127.0.0.1:80@example.org", False),
        ("http://127.0.0.1\\@example.org", False),
        ("http://example.org#@127.0.0.1", False),
        ("http://example.org?x=://127.0.0.1", False),
        ("example.org/://127.0.0.1", False),
        ("http://[::1", False),
        ("http://", False),
    ],
)
def test_an_address_from_a_project_gets_a_key_only_onthis_machine(places: Places, url: str, sent: bool) -> None:  # noqa: FBT001
    places.files(user='api_key_env = "MINE"', project=f"url = '{url}'")
    given = places.load()
    assert given.key({"MINE": "sk-mine"}) == ("sk-mine" if sent else None)
    assert places.load(url=url).key({"MINE": "sk-mine"}) == "sk-mine"  # the user's own word
    assert places.load({"LOCALCTX_URL": url}).key({"MINE": "sk-mine"}) == "sk-mine"


BETWEEN = ("@", "\\@", ":80@", "#@", "?@", "/@", "%2f@", "\\", "#", "?", "://", ":", ".", "%00", "%20", ";", ",")


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "[::1]"])
@pytest.mark.parametrize("other", ["", "example.org", "127.0.0.1.example.org"])
def test_what_counts_asthis_machine_is_what_would_be_called(host: str, other: str) -> None:
    called = set()
    for between in BETWEEN:
        for address in (f"{host}{between}{other}", f"{other}{between}{host}"):
            for url in filter(this_machine, (address, f"http://{address}", f"http://{address}:80/")):
                with suppress(Misuse):  # not called at all
                    called.add(client(url).base_url.host)
    assert called == {host.strip("[]")}


@pytest.mark.parametrize(
    ("text", "line", "key"),
    [
        ('model = "m"\n\nnum_ctx = "many"', 3, "num_ctx"),
        ('model = "m"\nnumctx = 5', 2, "numctx"),
        ("[thresholds]\nclear = 0.5\nwarm = 0.7", 3, "warm"),
        ("\n[thresholds]\nclear = 'x'", 3, "clear"),
        ('\nthresholds.clear = "x"', 2, "clear"),
        ('system = """\nnum_ctx = 5\n"""\nnum_ctx = -5', 4, "num_ctx"),
        ("# num_ctx = 5\n  'num_ctx' = 0", 2, "num_ctx"),
        ("\n\nmaxContextTokens = 0", 3, "max_context_tokens"),
    ],
)
def test_what_is_wrong_is_named_with_file_line_and_key(places: Places, text: str, line: int, key: str) -> None:
    said = places.files(user=text).wrong()
    assert said.startswith(f"user {places.user / FILE}:{line}: ")
    assert key in said


@pytest.mark.parametrize(
    ("variable", "name"),
    [
        ("LOCALCTX_MAX_CONTEXT", "max_context_tokens"),
        ("LOCALCTX_MAX_CONTEXT_TOKENS", "max_context_tokens"),
        ("LOCALCTX_SUMMARIZER", "summarizer_model"),
        ("LOCALCTX_SUMMARIZER_MODEL", "summarizer_model"),
    ],
)
def test_a_variable_is_called_as_its_key_or_as_its_flag_and_named_as_it_was(
    places: Places, variable: str, name: str
) -> None:
    assert places.load({variable: "4096"}).origins == {name: variable}


def test_thresholds_of_two_places_are_joined(places: Places) -> None:
    places.files(user="[thresholds]\nwarn = 0.6\ncompact = 0.7", project="[thresholds]\ncompact = 0.9")
    assert places.load().thresholds == Thresholds(warn=0.6, compact=0.9)


def test_a_wrong_set_of_tools_is_told_by_its_own_line(places: Places) -> None:
    said = places.files(user='allow = ["write_file:a"]\ntools = "spanner"').wrong()
    assert said.startswith(f"user {places.user / FILE}:2: ")


def test_a_pipe_in_place_of_the_file_is_named_and_not_waited_for(places: Places) -> None:
    os.mkfifo(places.user / FILE)
    assert f"{places.user / FILE} is no file" in places.wrong()
