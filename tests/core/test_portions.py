from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from localctx.core.portions import Kind, Portion, portions, schema_text

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=12,
)
KEYS = st.sampled_from(["role", "content", "tool_calls", "reasoning_content", "tool_call_id", "name", "x"])


def test_all_that_is_sent_has_a_portion_and_nothing_has_two() -> None:
    call = {"id": "call_1", "type": "function", "function": {"name": "read", "arguments": '{"path": "a"}'}}
    message = {
        "role": "assistant",
        "content": [{"type": "text", "text": "Look."}, {"type": "image_url", "image_url": {"url": "data:,AAAA"}}],
        "reasoning_content": "Read it first.",
        "tool_calls": [call],
        "name": "worker",
        "refusal": None,
    }
    assert list(portions(message)) == [
        Portion(Kind.TEXT, "Look."),
        Portion(Kind.IMAGE),
        Portion(Kind.REASONING, "Read it first."),
        Portion(Kind.CALL, 'read {"path": "a"}'),
        Portion(Kind.TEXT, "worker"),
    ]


@pytest.mark.parametrize(
    ("part", "kind"),
    [
        ({"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}, Kind.IMAGE),
        ({"type": "input_image", "image_url": "data:image/png;base64,AAAA"}, Kind.IMAGE),
        ({"type": "input_audio", "input_audio": {"data": "AAAA", "format": "wav"}}, Kind.AUDIO),
        ({"type": "video_url", "video_url": {"url": "x"}}, Kind.FILE),
        ({"type": "file", "file": {"file_data": "AAAA"}}, Kind.FILE),
        ({"type": "never seen", "data": "AAAA" * 1000}, Kind.FILE),
    ],
)
def test_the_bytes_of_media_are_not_text(part: dict[str, Any], kind: Kind) -> None:
    assert list(portions({"content": [part]})) == [Portion(kind)]


@pytest.mark.parametrize("arguments", ['{"a": 1}', {"a": 1}])
def test_arguments_count_whether_they_are_text_or_an_object(arguments: object) -> None:
    (call,) = portions({"tool_calls": [{"function": {"name": "f", "arguments": arguments}}]})
    assert call == Portion(Kind.CALL, 'f {"a": 1}')


@given(st.dictionaries(KEYS, JSON))
def test_any_message_has_portions(message: dict[str, Any]) -> None:
    assert all(isinstance(portion.text, str) for portion in portions(message))


def test_a_schema_is_its_json() -> None:
    assert schema_text({"name": "größe"}) == '{"name": "größe"}'
