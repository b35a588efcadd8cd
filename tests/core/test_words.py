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
    assert keep((), every, 100, len) == (tuple(every), 0)


def test_a_rule_stays_when_its_message_finds_no_room_and_names_its_line() -> None:
    every = said("the task", "Never use tabs. " + "chatter " * 20, *["news " * 12] * 4, "the newest")
    kept, gone = keep((), every, 200, len)
    assert [words.seq for words in kept] == [1, 2, 5, 6, 7]
    assert kept[1].text == "Never use tabs. [... message #2, shortened ...]"
    assert gone == 2


def test_a_rule_is_said_once_where_its_message_stays_whole() -> None:
    kept, _ = keep((), said("the task", "Never use tabs. And go on."), 300, len)
    assert kept[1].text == "Never use tabs. And go on."


def test_what_was_shortened_stays_as_it_is_the_next_time() -> None:
    kept, _ = keep((), said("the task", "Never use tabs. " + "chatter " * 20, *["news " * 12] * 4), 200, len)
    again, _ = keep(kept, [Words(9, "more " * 12)], 200, len)
    assert again[:2] == kept[:2]


def test_a_pointer_is_never_torn() -> None:
    kept, _ = keep((), said("word " * 200), 300, len)
    again, _ = keep(kept, [Words(seq, "more " * 20) for seq in (2, 3)], 180, len)
    assert again[0].text.count("[... message #1, shortened ...]") == 1
    assert again[0].text.count("[...") == 1
    assert len(again[0].text) <= 180 // 3 + 5


def test_rules_take_no_more_than_there_is() -> None:
    every = said("task", *[f"Never do {number}." for number in range(100)])
    kept, gone = keep((), every, 120, len)
    assert sum(len(words.text) for words in kept) <= 120
    assert kept[-1].text == "Never do 99."
    assert len(kept) + gone == 101


def test_what_stands_stays_as_it_is_while_there_is_room() -> None:
    stands = said("the task", "a long one " * 9)
    kept, gone = keep(stands, [Words(3, "news " * 4)], 160, len)
    assert kept == (*stands, Words(3, "news " * 4))
    assert gone == 0
    assert len(stands[1].text) > 160 // 3, "a message of its size would be shortened now"


def test_where_something_has_to_go_half_of_the_budget_becomes_free_at_once() -> None:
    stands = said("the task", "Never use tabs.", *[f"news number {number:2}" for number in range(8)])
    kept, gone = keep(stands, [Words(11, "the newest one")], 140, len)
    assert [words.seq for words in kept] == [1, 2, 9, 10, 11]
    assert sum(len(words.text) for words in kept) <= 70
    assert len(kept) + gone == 11


def test_the_newest_stays_where_rules_take_more_than_half() -> None:
    stands = said("task", *[f"Never do number {number}." for number in range(6)])
    kept, _ = keep(stands, said("news " * 4)[:1], 150, len)
    assert kept[-1].text == "news " * 4
    assert len(kept) == 8


def test_a_message_is_not_made_longer_by_what_stands_for_it() -> None:
    kept, _ = keep((), said("task", "Never use tabs. Go on.", *["news " * 12] * 4), 200, len)
    assert kept[1].text == "Never use tabs. Go on."
