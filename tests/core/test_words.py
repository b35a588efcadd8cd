"""Which of the user's words are kept, and which sentences set a rule."""

from __future__ import annotations

import pytest

from localctx.core.messages import Words
from localctx.core.words import keep, rules


@pytest.mark.parametrize(
    ("text", "ruling"),
    [
        ("Never touch legacy/. Then read the file.", "Never touch legacy/."),
        ("Read it.\nFrom now on amounts are cents!", "From now on amounts are cents!"),
        ("Please don't use npm. I don't think so.", "Please don't use npm."),
        ("Only answer in French.", "Only answer in French."),
        ("I only read it. At least it works.", ""),
        ("金額の表示は必ず税込みにしてください。次は何ですか。", "金額の表示は必ず税込みにしてください。"),
        ("Bitte immer pnpm nehmen. Danke.", "Bitte immer pnpm nehmen."),
        ("Réponds toujours en français. Merci.", "Réponds toujours en français."),
        ("никогда не меняй этот файл. Спасибо.", "никогда не меняй этот файл."),
        ("", ""),
    ],
)
def test_the_sentences_that_set_a_rule(text: str, ruling: str) -> None:
    assert rules(text) == ruling


def said(*texts: str) -> list[Words]:
    return [Words(seq, text) for seq, text in enumerate(texts, 1)]


def test_all_stay_where_there_is_room() -> None:
    every = said("first", "second", "third")
    assert keep(every, 100, len) == (tuple(every), 0)


def test_a_rule_stays_when_its_message_finds_no_room_and_names_its_line() -> None:
    every = said("the task", "Never use tabs. " + "chatter " * 20, *["news " * 12] * 4, "the newest")
    kept, gone = keep(every, 200, len)
    assert [words.seq for words in kept] == [1, 2, 5, 6, 7]
    assert kept[1].text == "Never use tabs. [... message #2, shortened ...]"
    assert gone == 2


def test_a_rule_is_said_once_where_its_message_stays_whole() -> None:
    kept, _ = keep(said("the task", "Never use tabs. And go on."), 300, len)
    assert kept[1].text == "Never use tabs. And go on."


def test_what_was_shortened_stays_as_it_is_the_next_time() -> None:
    kept, _ = keep(said("the task", "Never use tabs. " + "chatter " * 20, *["news " * 12] * 4), 200, len)
    again, _ = keep([*kept, Words(9, "more " * 12)], 200, len)
    assert again[:2] == kept[:2]


def test_a_pointer_is_never_torn() -> None:
    kept, _ = keep(said("word " * 200), 300, len)
    again, _ = keep(kept, 180, len)
    assert again[0].text.count("[... message #1, shortened ...]") == 1
    assert again[0].text.count("[...") == 1
    assert len(again[0].text) <= 180 // 3 + 5


def test_rules_take_no_more_than_there_is() -> None:
    every = said("task", *[f"Never do {number}." for number in range(100)])
    kept, gone = keep(every, 120, len)
    assert sum(len(words.text) for words in kept) <= 120
    assert kept[-1].text == "Never do 99."
    assert len(kept) + gone == 101
