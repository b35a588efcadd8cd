"""What `@path` words become."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from localctx.cli.attach import attach, image
from localctx.errors import Misuse

PNG = b"\x89PNG\r\n\x1a\n" + bytes(20)


def test_a_text_file_comes_behind_the_words_fenced_with_its_path(tmp_path: Path) -> None:
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "a.py").write_text("print('hi')\n", encoding="utf-8")
    got = attach("Explain @src/a.py, please.", tmp_path)
    assert got.text == "Explain @src/a.py, please.\n\nsrc/a.py:\n```py\nprint('hi')\n```"
    assert got.told == ("attached a.py, 12 characters",)


def test_a_fence_is_longer_than_those_in_the_file(tmp_path: Path) -> None:
    (tmp_path / "a.md").write_text("````\ncode\n````", encoding="utf-8")
    assert attach("@a.md", tmp_path).text.count("`````") == 2


def test_a_path_with_spaces_is_quoted_and_a_file_named_twice_comes_once(tmp_path: Path) -> None:
    (tmp_path / "my notes.txt").write_text("x", encoding="utf-8")
    got = attach('@"my notes.txt" and again @"my notes.txt"', tmp_path)
    assert got.text.count("my notes.txt:\n") == 1


@pytest.mark.parametrize(
    "line", ["use @property here", "me@example.org", "@", "@@", "@\x00", "@~nobody/x", "@" + "x" * 9999]
)
def test_a_word_that_names_no_file_stays_as_it_is(line: str, tmp_path: Path) -> None:
    got = attach(line, tmp_path)
    assert (got.text, got.images) == (line, ())


def test_a_word_that_names_no_file_is_told_of(tmp_path: Path) -> None:
    assert attach("see @gone.txt", tmp_path).told == ("no file is called gone.txt: @gone.txt is sent as it is written",)


@pytest.mark.parametrize(
    ("name", "raw", "kind"),
    [
        ("a.png", PNG, "png"),
        ("a.jpg", b"\xff\xd8\xff\xe0" + bytes(9), "jpeg"),
        ("a.gif", b"GIF89a" + bytes(9), "gif"),
        ("a.webp", b"RIFF\x10\n\x00\x00WEBPVP8 ", "webp"),
        ("text.txt", PNG, "png"),
    ],
)
def test_an_image_is_known_by_its_first_bytes(tmp_path: Path, name: str, raw: bytes, kind: str) -> None:
    (tmp_path / name).write_bytes(raw)
    got = attach(f"What is on @{name}?", tmp_path)
    assert got.images == (image(tmp_path / name),)
    assert got.images[0].startswith(f"data:image/{kind};base64,")
    assert got.text == f"What is on @{name}?"


def test_what_cannot_be_attached_is_refused_with_the_reason(tmp_path: Path) -> None:
    (tmp_path / "a.bin").write_bytes(bytes(range(256)))
    (tmp_path / "noise").write_bytes(b"\xff\xfe\xfd" * 50)
    (tmp_path / "long.txt").write_bytes(b"x" * (2**20 + 1))
    (tmp_path / "big.png").write_bytes(PNG + bytes(20_000_000))
    os.mkfifo(tmp_path / "pipe")
    for word, why in {
        "@a.bin": "is binary",
        "@noise": "is binary",
        "@long.txt": "1,048,577 bytes.*at most 1,048,576",
        "@big.png": "at most 20,000,000",
        "@pipe": "it is no file",
        f"@{tmp_path}": "is a folder",
    }.items():
        with pytest.raises(Misuse, match=why):
            attach(word, tmp_path)


def test_an_image_that_is_none_or_not_there_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.png").write_bytes(b"text")
    with pytest.raises(Misuse, match="is no image"):
        image(tmp_path / "a.png")
    with pytest.raises(Misuse, match="No such file"):
        image(tmp_path / "b.png")
