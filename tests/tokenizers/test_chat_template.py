from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from localctx.tokenizers.chat_template import render

pytest.importorskip("jinja2")

ASK: dict[str, Any] = {"role": "user", "content": "Hi"}
TOOL = {
    "type": "function",
    "function": {"name": "read", "description": "Reads é.", "parameters": {"type": "object"}, "strict": True},
}
PLAIN = """{%- for message in messages -%}
    <{{ message.role }}>{{ message.content }}
    {%- for call in message.tool_calls or [] %}[{{ call.function.name }} {{ call.function.arguments | tojson }}]{% endfor -%}
{%- endfor -%}
{%- if tools %}{{ tools | tojson }}{% endif -%}
{%- if add_generation_prompt %}<assistant>{% endif -%}
"""


def called(arguments: object) -> list[dict[str, Any]]:
    call = {"id": "call00001", "type": "function", "function": {"name": "read", "arguments": arguments}}
    return [
        ASK,
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "call00001", "content": "done"},
    ]


def test_a_chat_is_rendered_up_to_where_the_reply_begins() -> None:
    assert render(PLAIN, [{"role": "system", "content": "Be kind."}, ASK]) == "<system>Be kind.<user>Hi<assistant>"


def test_arguments_become_objects_where_the_template_wants_them() -> None:
    wanted = '<user>Hi<assistant>[read {"path": "é", "n": 1}]<tool>done<assistant>'
    assert render(PLAIN, called('{"path": "é", "n": 1.0}')) == wanted
    assert render(PLAIN, called({"path": "é", "n": 1.0})) == wanted
    as_text = PLAIN.replace("arguments | tojson", "arguments")
    assert '[read {"path": "é"}]' in (render(as_text, called('{"path": "é"}')) or "")


def test_typed_contents_are_joined_or_made_as_the_template_wants_them() -> None:
    parts = {"role": "user", "content": [{"type": "text", "text": "One"}, {"type": "text", "text": "Two"}]}
    assert render(PLAIN, [parts]) == "<user>One\nTwo<assistant>"
    typed = "{% for m in messages %}{% for part in m.content %}{% if part.type == 'text' %}({{ part.text }}){% endif %}{% endfor %}{% endfor %}"
    assert render(typed, [parts]) == "(One)(Two)"
    assert render(typed, [ASK]) == "(Hi)"


def test_schemas_carry_the_fields_that_servers_pass_on() -> None:
    text = render(PLAIN, [ASK], [TOOL]) or ""
    assert '"description": "Reads é."' in text
    assert "strict" not in text
    assert '"parameters": {}' in (render(PLAIN, [ASK], [{"type": "function", "function": {"name": "ping"}}]) or "")


def test_what_the_model_thought_has_all_the_names_that_templates_know() -> None:
    template = "{% for m in messages %}{{ m.reasoning_content }}|{{ m.reasoning }}|{{ m.thinking }};{% endfor %}"
    said = {"role": "assistant", "content": "Four.", "reasoning_content": "2+2"}
    assert render(template, [ASK, said, ASK]) == "||;2+2|2+2|2+2;||;"


def test_the_words_of_the_vocabulary_and_the_day_are_at_hand() -> None:
    template = "{{ bos_token }}{{ eos_token }}{{ strftime_now('%Y') }} {{ date_string }}{{ enable_thinking }}"
    now = datetime(2026, 11, 30, tzinfo=UTC)
    assert render(template, [ASK], bos="<s>", eos="</s>", now=now) == "<s></s>2026 30 Nov 2026True"


def test_loop_controls_and_marks_for_training_are_known() -> None:
    template = "{% for m in messages %}{% if loop.index > 1 %}{% break %}{% endif %}{% generation %}{{ m.content }}{% endgeneration %}{% endfor %}"
    assert render(template, [ASK, ASK]) == "Hi"


def test_the_model_goes_on_with_its_own_words() -> None:
    assert render(PLAIN, [ASK, {"role": "assistant", "content": "One and"}]) == "<user>Hi<assistant>One and"


def test_a_developer_is_the_system() -> None:
    assert render(PLAIN, [{"role": "developer", "content": "Be kind."}, ASK]) == "<system>Be kind.<user>Hi<assistant>"


@pytest.mark.parametrize(
    ("template", "messages"),
    [
        pytest.param("{{ raise_exception('roles must alternate') }}", [ASK], id="the template refuses"),
        pytest.param("{% for %}", [ASK], id="no template"),
        pytest.param("{{ ''.__class__.__mro__ }}{{ messages.__init__.__globals__ }}", [ASK], id="out of the sandbox"),
        pytest.param("{{ messages.append(1) }}", [ASK], id="changing what it was given"),
        pytest.param("{% macro m(n) %}{{ m(n) }}{{ m(n) }}{% endmacro %}{{ m(1) }}", [ASK], id="recursion"),
        pytest.param("{% for a in range(90000) %}" + "x" * 1000 + "{{ a }}{% endfor %}", [ASK], id="large"),
        pytest.param("{#" + "x" * 1_100_000 + "#}", [ASK], id="a template too large to be one"),
        pytest.param(PLAIN, [], id="no messages"),
        pytest.param("", [ASK], id="no template at all"),
        pytest.param(PLAIN, called("{}")[:2], id="a call last"),
        pytest.param(PLAIN, called('{"path": '), id="arguments that are no JSON"),
    ],
)
def test_what_cannot_be_rendered_is_none(template: str, messages: list[dict[str, Any]]) -> None:
    assert render(template, messages) is None


@given(
    st.text("{}%-|#'\"()[]. \nmessagsfoinrdlx0123", max_size=80),
    st.dictionaries(st.text(max_size=8), st.text() | st.none()),
)
def test_no_template_and_no_message_raises(template: str, message: dict[str, Any]) -> None:
    assert render(template, [message]) is None or isinstance(render(template, [message]), str)
