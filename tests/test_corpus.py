"""The corpus that token counters are measured with: sizes, repeatability, scripts, and conversations that servers take."""

from __future__ import annotations

import json
import unicodedata
from collections import Counter
from random import Random
from typing import Any, cast

import pytest

from localctx.app.bench.corpus import GROUPS, KINDS, Conversation, Message, conversations, sample
from localctx.app.bench.corpus.data import document, json_piece
from localctx.app.bench.corpus.grammar import Grammar
from localctx.app.bench.corpus.passages import LANGUAGES
from localctx.core.outgoing import defects, outgoing
from localctx.core.transcript import flatten, parse

SCRIPTS: dict[str, str | tuple[str, ...]] = {
    "amharic": "ETHIOPIC",
    "arabic": "ARABIC",
    "armenian": "ARMENIAN",
    "bengali": "BENGALI",
    "chinese-simplified": "CJK",
    "chinese-traditional": "CJK",
    "georgian": "GEORGIAN",
    "greek": "GREEK",
    "hebrew": "HEBREW",
    "hindi": "DEVANAGARI",
    "japanese": ("HIRAGANA", "KATAKANA", "CJK"),
    "korean": "HANGUL",
    "persian": "ARABIC",
    "russian": "CYRILLIC",
    "tamil": "TAMIL",
    "thai": "THAI",
    "ukrainian": "CYRILLIC",
}


def chance(seed: int) -> Random:
    return Random(seed)  # noqa: S311  chance that can be repeated, nothing secret


FREE = conversations(200, 1)
STRICT = conversations(200, 1, strict=True)


def roles(conversation: Conversation) -> list[object]:
    return [message["role"] for message in conversation.messages]


def text(conversation: Conversation) -> str:
    return json.dumps([conversation.messages, conversation.tools], ensure_ascii=False)


def calls(message: Message) -> list[dict[str, dict[str, str]]]:
    found = message.get("tool_calls", [])
    assert isinstance(found, list)
    return found


@pytest.mark.parametrize("kind", KINDS)
def test_a_sample_has_the_size_that_was_asked_for(kind: str) -> None:
    assert [len(sample(kind, size, 1)) for size in (0, 1, 500, 20_000)] == [0, 1, 500, 20_000]


@pytest.mark.parametrize("kind", KINDS)
def test_a_sample_is_the_same_for_the_same_seed_and_another_for_another(kind: str) -> None:
    assert sample(kind, 3_000, 1) == sample(kind, 3_000, 1)
    assert sample(kind, 3_000, 1) != sample(kind, 3_000, 2)


@pytest.mark.parametrize("kind", KINDS)
def test_a_shorter_sample_is_the_beginning_of_a_longer_one(kind: str) -> None:
    assert sample(kind, 9_000, 4).startswith(sample(kind, 3_000, 4))


@pytest.mark.parametrize("kind", ["code-python", "english", "json", "thai"])
def test_a_megabyte_can_be_had(kind: str) -> None:
    assert len(sample(kind, 1_000_000, 1)) == 1_000_000


def test_a_kind_that_there_is_not_is_refused() -> None:
    with pytest.raises(KeyError, match="klingon"):
        sample("klingon", 10, 1)


def test_each_kind_is_in_one_group() -> None:
    assert sorted(kind for kinds in GROUPS.values() for kind in kinds) == sorted(KINDS)


def test_the_kinds_differ_from_each_other() -> None:
    assert len({sample(kind, 200, 1) for kind in KINDS}) == len(KINDS)


@pytest.mark.parametrize("language", GROUPS["other scripts"])
def test_prose_is_written_in_the_script_of_its_language(language: str) -> None:
    letters = [char for char in sample(language, 5_000, 1) if char.isalpha()]
    own = [char for char in letters if unicodedata.name(char).startswith(SCRIPTS[language])]
    assert len(own) > 0.95 * len(letters)


@pytest.mark.parametrize("language", LANGUAGES)
def test_prose_is_varied(language: str) -> None:
    lines = {line for seed in range(20) for line in sample(language, 3_000, seed).splitlines()[:-1]}
    assert sum(map(len, lines)) > 1_200


def test_english_comes_in_several_styles() -> None:
    assert len({line for seed in range(60) for line in sample("english", 3_000, seed).splitlines()[:-1]}) > 200


def test_generated_code_says_something_new_all_the_time() -> None:
    for kind in GROUPS["code"]:
        lines = [line for line in sample(kind, 100_000, 1).splitlines() if len(line) > 25]
        assert len(set(lines)) > 0.75 * len(lines), kind


def test_json_can_be_read_and_is_both_nested_and_flat_indented_and_compact() -> None:
    texts = [json_piece(chance(seed)) for seed in range(40)]
    values = [json.loads(text) for text in texts]
    assert {type(value) for value in values} == {dict, list}
    assert {text.count("\n") > 1 for text in texts} == {True, False}
    assert any('":"' in text for text in texts)


def test_a_document_of_no_depth_holds_no_objects_in_its_values() -> None:
    for seed in range(20):
        value = document(chance(seed), 0)
        rows = value if isinstance(value, list) else [value]
        assert not any(isinstance(cell, dict) for row in rows if isinstance(row, dict) for cell in row.values())


def test_a_template_keeps_indentation_and_names_and_refuses_unknown_rules() -> None:
    rules = {
        "piece": ("def «noun1»:\n    «body»",),
        "body": ("x = «noun1»\nreturn «int:7:7»",),
        "noun": ("a", "b", "c"),
    }
    shown = Grammar(rules).expand("piece", chance(3))
    name = shown[4]
    assert shown == f"def {name}:\n    x = {name}\n    return 7"
    with pytest.raises(KeyError, match="verb"):
        Grammar({"piece": ("«verb»",)})


@pytest.mark.parametrize("found", [FREE, STRICT], ids=["free", "strict"])
def test_conversations_are_valid_distinct_and_repeatable(found: list[Conversation]) -> None:
    for conversation in found:
        parsed = parse(conversation.messages)
        assert parsed.complaints == ()
        assert flatten(parsed.history) == list(conversation.messages)
        assert defects(outgoing(parsed.history)) == []
        assert defects(list(conversation.messages)) == []
    assert len({text(conversation) for conversation in found}) == 200


def test_conversations_depend_on_the_seed_and_not_on_their_number() -> None:
    assert conversations(5, 1) == FREE[:5]
    assert conversations(5, 2) != FREE[:5]


def test_strict_conversations_alternate_and_know_no_tools() -> None:
    for conversation in STRICT:
        plain = [role for role in roles(conversation) if role != "system"]
        assert plain == ["user", "assistant"] * (len(plain) // 2) + ["user"] * (len(plain) % 2)
        assert conversation.tools == ()
        assert not any(calls(message) for message in conversation.messages)


def test_calls_name_a_tool_that_is_offered_and_give_what_it_requires() -> None:
    for conversation in FREE:
        functions = [cast("dict[str, Any]", tool["function"]) for tool in conversation.tools]
        offered = {function["name"]: function["parameters"] for function in functions}
        for call in (call for message in conversation.messages for call in calls(message)):
            given = json.loads(call["function"]["arguments"])
            parameters = offered[call["function"]["name"]]
            assert set(parameters["required"]) <= set(given) <= set(parameters["properties"])


def test_conversations_cover_what_templates_stumble_over() -> None:
    met = Counter[str]()
    for conversation in FREE:
        said = roles(conversation)
        met["tools" if conversation.tools else "no tools"] += 1
        met["system" if said[0] == "system" else "no system"] += 1
        met[f"ends with {said[-1]}"] += 1
        met["many messages" if len(said) > 12 else "few messages"] += 1
        met["long" if len(text(conversation)) > 10_000 else "short"] += 1
        for message in conversation.messages:
            content = message["content"]
            met["parallel calls"] += len(calls(message)) > 1
            met["null content with calls"] += content is None and bool(calls(message))
            met["empty content with calls"] += content == "" and bool(calls(message))
            met["empty user"] += message["role"] == "user" and content == ""
            met["empty result"] += message["role"] == "tool" and content == ""
            met["reasoning"] += "reasoning_content" in message
            met["parts"] += isinstance(content, list)
            met["image told in words"] += "[image: " in json.dumps(content)
            met["code"] += isinstance(content, str) and "```" in content
            met["CJK"] += any("一" <= char <= "鿿" for char in str(content))
            met["emoji"] += any(char >= "\U0001f300" for char in str(content))
            met["space at the end"] += isinstance(content, str) and content != content.rstrip()
    assert min(met.values()) >= 3, met
