from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from time import perf_counter
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from localctx.tokenizers import template as module
from localctx.tokenizers.template import render

NOW = datetime(2026, 3, 4, 15, 16, 17, tzinfo=UTC)
HELLO = [{"role": "user", "content": "Hello"}]
PLAIN = "{% for m in messages %}[{{ m.role }}:{{ m.content }}]{% endfor %}{% if add_generation_prompt %}>{% endif %}"


def said(role: str, content: object = "", **more: object) -> dict[str, Any]:
    return {"role": role, "content": content, **more}


def call(arguments: object = '{"a": 1}', name: str = "f", at: str | None = "c1") -> dict[str, Any]:
    named = {"id": at} if at else {}
    return {"type": "function", "function": {"name": name, "arguments": arguments}, **named}


def text(*texts: str) -> list[dict[str, str]]:
    return [{"type": "text", "text": one} for one in texts]


def tool(**more: object) -> dict[str, Any]:
    return {"type": "function", "function": {"name": "f", **more}}


def shown(template: str, messages: Sequence[Any] = HELLO, tools: Sequence[Any] = ()) -> str | None:
    return render(template, messages, tools, now=NOW)


LANGUAGE = [
    # what is not there
    ("{{ none }}|{{ nothing }}|{{ nothing.a.b }}|{{ [][0] }}", "|||"),
    ('{{ "a" + none }}{{ nothing + "b" }}', "ab"),
    ("{{ nothing|length }}{{ nothing|trim }}{{ none|default(2) }}", "02"),
    ('{{ "x" in nothing }}{{ "a"[5] }}{{ "abc"[-1] }}', "False"),
    # texts are bytes, and only ASCII is anything else than itself
    ('{{ "é漢"|length }}{{ "漢x"[3:] }}{{ "é" == "é漢"[:2] }}', "5xTrue"),
    ('{{ "aé"|upper }}{{ "AÉ".lower() }}[{{ "　 a　"|trim }}]', "AéaÉ[　 a　]"),
    ('{{ "hello WORLD x"|title }}|{{ "hELLO w".capitalize() }}', "Hello World X|Hello w"),
    ('{{ "a  b".split()|length }}{{ "a,b,c".split(",", 1)|join("-") }}{{ "a,b".rsplit(",")[0] }}', "3a-b,ca"),
    ('{{ "xaxx".strip("x") }}{{ "abc".startswith("ab") }}{{ "abc".endswith("b") }}', "aTrueFalse"),
    ('{{ "{} of {}".format(1, "x") }}', "1 of x"),
    ('{{ "a\nb\n\nc\n"|indent(2, true) }}|{{ "\na\nb"|indent("--") }}', "  a\n  b\n\n  c\n|a\n--b"),
    ('{{ 1|trim }}{{ true|upper }}{{ "a b"|replace(" ", "") }}{{ " 12"|int + 1 }}', "1TRUEab13"),
    # numbers
    ("{{ 1.0 }} {{ 0.1 + 0.2 }} {{ 4 / 2 }} {{ -7 % 3 }} {{ 2 * 3 - 1 }} {{ -(1) }}", "1.0 0.3 2.0 -1 5 -1"),
    ("{{ 3.14159265|tojson }} {{ 1000000.0|tojson }} {{ 1.0|tojson }} {{ 1|string }}", "3.14159 1e+06 1 1"),
    ("{{ 1 == true }}{{ '1' == 1 }}{{ 1 < 2 }}{{ 1.0 in [1] }}{{ none == nothing }}", "TrueFalseTrueTrueFalse"),
    ('{{ "ab" * 2 }}{{ "a" ~ 1 }}{{ "a" ~ 1.5 ~ true }}{{ "" ~ none }}', "ababa1a1.5True"),
    # arrays and objects
    ("{{ [1, [2, none], true] }}{{ {'a': 1} }}", "12True"),
    ("{{ '' ~ [1, \"it's\", none, (1, 2), {'a': 1.0}] }}", "[1, \"it's\", None, (1, 2), {'a': 1.0}]"),
    ("{{ [1] == [1] }}{{ [[1]] == [[1]] }}{{ {'a': 1} == {'a': 1} }}{{ (1, 2) == (1, 2) }}", "TrueFalseTrueTrue"),
    ("{{ {'items': 5}.items is callable }}{{ {'items': 5}['items'] }}{{ {'a': 1}.get('b', 2) }}", "True52"),
    ("{{ [1,2,3][1:] }}{{ [1,2,3][::-1] }}{{ [1,2,3][-1] }}{{ [1,2]|first }}{{ [1,2]|last }}", "2332131" + "2"),
    ("{{ [3,1,2]|sort }}{{ ['b','B','a']|sort|join }}{{ [1,2]|max }}{{ [2,1]|reverse }}", "123Bab212"),
    ("{% set l = [1] %}{% set _ = l.append(2) %}{{ l|join(',') }}{% set x = l.pop() %}{{ x }}{{ l }}", "1,221"),
    ("{{ {'b': 1, 'a': 2}|dictsort|tojson }}{{ {'b': 1}|items }}{{ {'b': 1}.keys() }}", '{"a": 2, "b": 1}b1b'),
    ("{{ [{'n': 2}, {'n': 1}, {}]|map(attribute='n', default='z')|join(',') }}", "2,1,z"),
    ("{{ [{'r': 1}, {'r': 2}]|selectattr('r', 'equalto', 2)|list|tojson }}", '[{"r": 2}]'),
    ("{{ [{'r': 1}, {}]|rejectattr('r')|list|length }}{{ [1, 'a']|select('equalto', 1) }}", "11"),
    ("{{ [{'n': 2}, {'n': 1}]|sort(attribute='n')|map(attribute='n') }}{{ [[1, 2]]|map(attribute=1) }}", "122"),
    # JSON
    ('{{ {"a": [1, "é\n"], "b": {}}|tojson }}', '{"a": [1, "é\\n"], "b": {}}'),
    ('{{ {"a": [1]}|tojson(indent=2) }}', '{\n  "a": [\n    1\n  ]\n}'),
    ('{{ "é漢😀"|tojson(ensure_ascii=true) }}', '"\\u00e9\\u6f22\\ud83d\\ude00"'),
    ('{{ {"a": 1, "b": 2}|tojson(separators=(",", ":")) }}', '{"a":1,"b":2}'),
    # statements
    ("{% set a = 1 %}{% for x in [1, 2] %}{% set a = a + x %}{{ a }}{% endfor %}{{ a }}", "241"),
    ("{% for x in [1,2,3] %}{{ x }}{% if x == 2 %}A{% continue %}{% endif %}B{% endfor %}", "1B23B"),
    (
        "{% for x in [1] %}{% continue %}{% else %}none{% endfor %}{% for x in nothing %}{% else %}E{% endfor %}",
        "noneE",
    ),
    ("{% for x in [1,2,3] %}{{ x }}{% if x == 2 %}{% break %}{% endif %}{% endfor %}", "12"),
    ("{% for x in [1,2,3] if x != 2 %}{{ loop.index }}{{ loop.last }}{{ loop.previtem }}{% endfor %}", "1False2True1"),
    ("{% for k, v in {'a': 1} %}{{ k }}{{ v }}{% endfor %}{% for k in {'a': 1} %}{{ k }}{% endfor %}", "a1a"),
    ("{% macro m(a, b=2, c=3) %}{{ a }}{{ b }}{{ c }}{% endmacro %}{{ m(1) }}|{{ m(1, c=5) }}", "123|13"),
    ("{% macro m() %}{{ x }}{% endmacro %}{% for x in [1, 2] %}{{ m() }}{% endfor %}", "12"),
    ("{% set n = namespace(a=1) %}{% set n.a = n.a + 1 %}{{ n.a }}{% set d = {} %}{% set d.x = 3 %}{{ d.x }}", "23"),
    ("{% set a, b = 1, 2 %}{% set c %}<{{ a }}>{% endset %}{{ c }}{% filter upper %}x{{ b }}{% endfilter %}", "<1>X2"),
    ("a {%- if true %} b {%- endif %} c\n{% if true %}\n  d\n{% endif %}\n{#- c #} e\n", "a b c\n  d\n e"),
    ("{% generation %}x{% endgeneration %}\ny", "xy"),
    ("{{ 'a' is string }}{{ {} is mapping }}{{ none is defined }}{{ nothing is iterable }}", "True" * 4),
    ("{{ 3 is odd }}{{ 4 is divisibleby 2 }}{{ true is number }}{{ 1 is not none }}", "TrueTrueFalseTrue"),
    ("{{ 'x' if nothing }}{{ 'a' if 0 else 'b' }}{{ '' or 'c' }}{{ 'd' and 'e' }}", "bce"),
]


@pytest.mark.parametrize(("template", "expected"), LANGUAGE)
def test_templates_speak_llama_cpps_jinja(template: str, expected: str) -> None:
    assert shown(template) == expected


REFUSED = [
    "{{ 1 + 'a'.x.y.z }}",
    "{{ none + none }}",
    "{{ 1 in '1' }}",
    "{{ ['a'] in [['a']] }}",
    "{{ 'a' < 'b' }}",
    "{{ 'abc'|list }}",
    "{{ {'a': 1}|default(2) }}",
    "{{ ['a']|map('upper') }}",
    "{{ {'b': 1}|tojson(sort_keys=true) }}",
    "{{ 'a'|nosuch }}",
    "{{ 'a' is nosuch }}",
    "{{ 'a'() }}",
    "{{ nosuch() }}",
    "{% for x in 5 %}{% endfor %}",
    "{% for x in 'abc' %}{% endfor %}",
    "{% for a, b in [[1]] %}{% endfor %}",
    "{% if range %}{% endif %}",
    "{% macro m(a) %}{% endmacro %}{{ m() }}",
    "{{ ('a' ~ 'b')|capitalize }}",
    "{{ 1 + 1 ~ 'x' }}",
    "{{ 9007199254740993 + 0 }}",
    "{{ '漢'[0] }}",
    "{{ raise_exception('no') }}",
    "{{ 1 / 0 }}",
    "{% set l = [1] %}{{ l }}{% set _ = l.append(2) %}",
    "{% break %}",
]

UNREADABLE = [
    '{{ "\\x41" }}',
    "{% raw %}{{ x }}{% endraw %}",
    "{% include 'x' %}",
    "{% extends 'x' %}",
    "{% import 'x' as x %}",
    "{% block x %}{% endblock %}",
    "{{ 2 ** 3 }}",
    "{{ x",
    "{% if %}",
    "{% endfor %}",
]


@pytest.mark.parametrize("template", [*REFUSED, *UNREADABLE])
def test_what_llama_cpp_refuses_or_is_not_known_renders_nothing(template: str) -> None:
    assert shown(template) is None


@pytest.mark.parametrize("template", ["", "chatml", "llama3", "no tags at all"])
def test_a_name_or_a_text_without_tags_is_no_template(template: str) -> None:
    assert shown(template) is None


HOSTILE = {
    "nested loops": "{% for a in range(2000) %}{% for b in range(2000) %}{% for c in range(9) %}x{% endfor %}{% endfor %}"
    "{% endfor %}",
    "loops of nothing": "{% for a in range(2000) %}{% for b in range(2000) %}"
    + "{% set x %}{% endset %}" * 500
    + "{% endfor %}"
    "{% endfor %}",
    "a macro that calls itself twice": "{% macro m(n) %}{% if n %}{{ m(n-1) }}{{ m(n-1) }}{% endif %}{% endmacro %}{{ m(99) }}",
    "a macro without end": "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}",
    "doubled text": "{% set n = namespace(s='x') %}{% for a in range(99) %}{% set n.s = n.s ~ n.s %}{% endfor %}",
    "replaced text": "{% set n = namespace(s='x') %}{% for a in range(99) %}{% set n.s = n.s|replace('x', 'xxxx') %}"
    "{% endfor %}",
    "joined text": "{% set n = namespace(s='x') %}{% for a in range(99) %}{% set n.s = [n.s, n.s]|join(n.s) %}{% endfor %}",
    "printed text": "{% set n = namespace(s='x') %}{% for a in range(99) %}{% set q %}{{ n.s }}{{ n.s }}{% endset %}"
    "{% set n.s = q %}{% endfor %}",
    "formatted text": "{% set n = namespace(s='x') %}{% for a in range(99) %}{% set n.s = '{}{}'.format(n.s, n.s) %}"
    "{% endfor %}",
    "repeated text": "{{ 'x' * 100000000000 }}",
    "doubled array": "{% set n = namespace(s=[1]) %}{% for a in range(99) %}{% set n.s = n.s + n.s %}{% endfor %}",
    "a knot as JSON": "{% set n = namespace(s=[1]) %}{% for a in range(99) %}{% set n.s = [n.s, n.s] %}{% endfor %}"
    "{{ n.s|tojson }}",
    "a knot as text": "{% set n = namespace(s=[1]) %}{% for a in range(60) %}{% set n.s = [n.s, n.s] %}{% endfor %}"
    "{{ n.s }}{{ '' ~ n.s }}",
    "equal knots": "{% set n = namespace(s=(1,), t=(1,)) %}".replace("(1,)", "(1, 2)")
    + "{% for a in range(60) %}{% set n.s = (n.s, n.s) %}{% set n.t = (n.t, n.t) %}{% endfor %}{{ n.s == n.t }}",
    "an array in itself": "{% set l = [] %}{% set _ = l.append(l) %}{{ l|tojson }}",
    "an object in itself": "{% set o = {} %}{% set o.a = o %}{{ o|tojson }}",
    "a long range": "{{ range(100000000000)|length }}",
    "a wide indent": "{{ [[1]]|tojson(indent=1000000000) }}{{ 'a\nb'|indent(1000000000) }}",
    "many pieces": "{% set n = namespace(s='a,') %}{% for a in range(21) %}{% set n.s = n.s ~ n.s %}{% endfor %}"
    "{% for a in range(99) %}{% set x = n.s.split(',') %}{% endfor %}",
    "a hard search": "{% set s = 'a' * 20000 %}{% set n = 'b' ~ 'a' * 98 %}{% for a in range(400000) %}{{ n in s }}{% endfor %}",
    "a hard search backwards": "{% set s = 'a' * 2000000 %}{{ s.rsplit('b' ~ 'a' * 1000000)|length }}",
    "much to sort": "{% set l = range(200000)[::-1] %}{% for a in range(99) %}{% set x = l|sort %}{% endfor %}",
    "many names": "".join(f"{{% set v{n} = 1 %}}" for n in range(2000))
    + "{% macro m(n) %}{% if n %}{{ m(n-1) }}{{ m(n-1) }}{% endif %}{% endmacro %}{{ m(60) }}",
    "deep brackets": "{{ " + "(" * 30_000 + "1" + ")" * 30_000 + " }}",
    "a long sum": "{{ " + "1+" * 20_000 + "1 }}",
    "deep blocks": "{% if 1 %}" * 5000 + "{% endif %}" * 5000,
    "open comments": "{#" * 30_000,
    "too much of it": "{{ 1 }}" * 100_000,
    "a wide date": "{{ strftime_now('%9999999Y') }}",
    "a long date": "{{ strftime_now('%Y' * 100) }}",
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_template_cannot_take_more_than_its_allowance(name: str) -> None:
    began = perf_counter()
    assert shown(HOSTILE[name]) is None
    assert perf_counter() - began < 30, "a few seconds, on a busy machine more"


@pytest.mark.parametrize(
    "expression",
    [
        "''.__class__",
        "''['__class__']",
        "messages.__init__.__globals__",
        "range.__globals__",
        "namespace.__init__",
        "'{0.__class__}'.format(messages)",
        "messages|attr('__class__')",
        "(messages|map(attribute='__class__')|first)",
        "loop.__class__",
        "self.__init__",
        "cycler.__init__",
        "lipsum.__globals__",
        "joiner",
    ],
)
def test_no_python_attribute_is_within_reach(expression: str) -> None:
    assert shown(f"[{{{{ {expression} }}}}]") in {None, "[]"}


def test_a_chat_that_was_too_long_once_is_not_tried_again() -> None:
    template = (
        "{% for a in messages %}{% for b in messages %}{% for c in messages %}x{% endfor %}{% endfor %}{% endfor %}"
    )
    assert shown(template, HELLO * 200) is None
    began = perf_counter()
    for _ in range(100):
        assert shown(template, HELLO * 201) is None
    assert perf_counter() - began < 1
    assert shown(template, HELLO * 2) == "x" * 8


def test_a_chat_that_grows_costs_what_it_is_long_and_no_compilation() -> None:
    def seconds(size: int) -> float:
        chat = [said("user", f"message {number}") for number in range(size)]
        began = perf_counter()
        assert shown(PLAIN, chat) is not None
        return perf_counter() - began

    seconds(10)
    before = module._program.cache_info().misses
    small = max(seconds(1000) for _ in range(3))
    assert seconds(8000) < 8 * 4 * small + 0.05  # were it quadratic: 64 times
    assert module._program.cache_info().misses == before


def test_without_jinja2_nothing_is_rendered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "jinja2", None)
    module._program.cache_clear()
    assert shown(PLAIN) is None
    module._program.cache_clear()


# What the server makes of messages


def test_roles_contents_and_the_opening_of_the_reply() -> None:
    chat = [said("system", "s"), said("user", "u"), said("assistant", None), said("user", text("a", "", "b"))]
    assert shown(PLAIN, chat) == "[system:s][user:u][assistant:][user:a\n\nb]>"


@pytest.mark.parametrize(
    "messages",
    [
        [{"content": "no role"}],
        [{"role": "user"}],
        [{"role": "assistant"}],
        [{"role": 5, "content": ""}],
        [said("user", 5)],
        [said("user", [{"text": "no type"}])],
        [said("user", [{"type": "image_url", "image_url": {"url": "data:,"}}])],
        [said("assistant", "x", reasoning_content=None), said("user", "y")],
        [said("assistant", "", tool_calls=[{"type": "function"}]), said("user", "y")],
        [said("assistant", "", tool_calls=[{"type": "other", "function": {}}]), said("user", "y")],
        [said("user", "lone \ud800")],
        ["text"],
        [None],
    ],
)
def test_a_list_that_the_server_refuses_renders_nothing(messages: Sequence[Any]) -> None:
    assert shown(PLAIN, messages) is None


@pytest.mark.parametrize(
    "tools",
    [
        [{"type": "function"}],
        [{"function": {"name": "f"}}],
        [tool(description=None)],
        [tool(parameters={"x": float("nan")})],
        [tool(parameters={"x": 1 << 64})],
        [tool(parameters={1: 2})],
    ],
)
def test_tools_that_the_server_refuses_render_nothing(tools: Sequence[Any]) -> None:
    assert shown(PLAIN, tools=tools) is None


def test_a_message_keeps_what_the_server_knows_in_its_order() -> None:
    chat = [
        said("user", "u", extra=1, reasoning_content=""),
        {"tool_calls": [call()], "reasoning_content": "r", "role": "assistant"},
        {"tool_call_id": "c1", "name": "f", "role": "tool", "content": "x"},
    ]
    known = [
        ["role", "content"],
        ["role", "content", "reasoning_content", "tool_calls"],
        ["role", "content", "name", "tool_call_id"],
    ]
    lines = shown("{% for m in messages %}{{ m|tojson }}\n{% endfor %}", chat)
    assert lines is not None
    kept = [json.loads(line) for line in lines.splitlines()]
    assert [list(message) for message in kept] == known
    assert kept[1]["content"] == ""
    assert [list(one) for one in kept[1]["tool_calls"]] == [["type", "function", "id"]]


def test_tools_are_reduced_and_absent_where_there_are_none() -> None:
    template = "{{ tools is defined }}{% if tools %}{{ tools|tojson }}{% endif %}"
    given = [tool(strict=True, parameters={"b": 2.5, "a": [1]}), tool(description="d")]
    assert shown(template) == "False"
    assert shown(template, tools=given) == (
        'True[{"type": "function", "function": {"name": "f", "description": "", "parameters": {"b": 2.5, "a": [1]}}}, '
        '{"type": "function", "function": {"name": "f", "description": "d", "parameters": {}}}]'
    )


CALLS = "{% for m in messages %}{% for c in m.tool_calls %}{{ %s }};{% endfor %}{% endfor %}"


@pytest.mark.parametrize(
    ("how", "arguments", "expected"),
    [
        ("c.function.arguments", '{"a":  1}', '{"a":  1};'),
        ("c.function.arguments|tojson", '{"a":  [1.0, "é"]}', '{"a": [1, "é"]};'),
        ("c.function.arguments.a", '{"a": 1}', ";"),
        ("c.function.arguments.at ~ '!'", '{"at": 1}', "1!;"),
        ("c.function.arguments|tojson", {"a": {"b": None}}, '{"a": {"b": null}};'),
        ("c.function.arguments", {"a": [1, 2.0]}, '{"a":[1,2.0]};'),
        ("c.function.arguments|tojson", '{"a": ', None),
        ("c.function.arguments|tojson", '{"a": NaN}', None),
        ("c.function.arguments|tojson", "", None),
        ("c.function.arguments", '{"a": ', '{"a": ;'),
    ],
)
def test_arguments_are_objects_where_the_template_looks_into_them(
    how: str, arguments: object, expected: str | None
) -> None:
    chat = [said("user"), said("assistant", "", tool_calls=[call(arguments)]), said("tool", "r", tool_call_id="c1")]
    assert shown(CALLS.replace("%s", how), chat) == expected


TYPED = "{% for m in messages %}[{% for p in m.content %}{{ p.text }}+{% endfor %}]{% endfor %}"
EITHER = (
    "{% for m in messages %}[{% if m.content is string %}{{ m.content }}{% else %}"
    "{% for p in m.content %}{{ p.text }}+{% endfor %}{% endif %}]{% endfor %}"
)


@pytest.mark.parametrize(
    ("template", "expected"),
    [
        ("{% for m in messages %}[{{ m.content }}]{% endfor %}", "[u][a\nb][]"),
        (TYPED, "[u+][a+b+][+]"),
        (EITHER, "[u][a+b+][]"),
    ],
    ids=["texts", "parts", "either"],
)
def test_contents_have_the_form_that_the_template_takes(template: str, expected: str) -> None:
    assert shown(template, [said("user", "u"), said("user", text("a", "b")), said("user", [])]) == expected


NO_SYSTEM = "{% for m in messages %}{% if m.role != 'system' %}[{{ m.role }}:{{ m.content }}]{% endif %}{% endfor %}"


def test_a_system_message_that_the_template_does_not_read_begins_the_next() -> None:
    assert shown(NO_SYSTEM, [said("system", "s"), said("user", "u"), said("system", "t")]) == "[user:s\nu]"
    assert shown(NO_SYSTEM, [said("system", "s")]) == ""
    assert shown(PLAIN, [said("system", "s"), said("user", "u")]) == "[system:s][user:u]>"


def test_a_developer_is_a_system_but_where_channels_are() -> None:
    chat = [said("developer", "d"), said("user", "u")]
    assert shown(PLAIN, chat) == "[system:d][user:u]>"
    assert shown(PLAIN + "<|channel|>", chat) == "[developer:d][user:u]><|channel|>"


def test_tokens_that_the_tokenizer_adds_are_taken_off() -> None:
    template = "{{ bos_token }}" + PLAIN + "{{ eos_token }}"
    assert render(template, HELLO, bos="<s>", eos="</s>") == "<s>[user:Hello]></s>"
    assert render(template, HELLO, bos="<s>", eos="</s>", add_bos=True, add_eos=True) == "[user:Hello]>"
    assert render(PLAIN, HELLO, bos="<s>", add_bos=True) == "[user:Hello]>"


def test_the_day_is_the_one_that_is_given() -> None:
    assert shown("{{ date_string }}|{{ datetime }}|{{ strftime_now('%Y-%m-%d %H:%M') }}") == (
        "04 Mar 2026|Mar 04 2026|2026-03-04 15:16"
    )
    assert render("{{ strftime_now('%Y') }}", HELLO) == datetime.now().astimezone().strftime("%Y")


THOUGHTS = """{% for m in messages %}{% if m.reasoning_content %}<think>{{ m.reasoning_content }}</think>{% endif %}
{% endfor %}{{ enable_thinking }}"""


@pytest.mark.parametrize(
    ("template", "expected"),
    [
        ("{% if enable_thinking %}T{% else %}N{% endif %}", None),
        ("{% if enable_thinking %}T{% endif %}" + "the end of it " * 5, "the end of it " * 5),
        ("x{% if enable_thinking %}<think>{% endif %}", "x<think>"),
        ("x{% if not enable_thinking %}<think></think>{% endif %}", "x"),
        ("{{ messages[0].content.split('</think>')|length }}{{ enable_thinking }}", "1True"),
        (THOUGHTS, "True"),
        ("{% for m in messages %}{{ m.reasoning_content }}{% endfor %}{{ enable_thinking }}", None),
        ("<tool_call><function=<parameter=<think>{{ enable_thinking }}", "<tool_call><function=<parameter=<think>True"),
        (">>>all>>>${recipient}{{ enable_thinking }}", ">>>all>>>${recipient}False"),
    ],
)
def test_it_is_asked_to_think_where_llama_cpp_finds_marked_thoughts(template: str, expected: str | None) -> None:
    assert shown(template) == expected


@pytest.mark.parametrize(
    ("last", "expected"),
    [
        (said("assistant", "so"), "[user:u]>so"),
        (said("assistant", text("a", "b")), "[user:u]>a\n\nb"),
        (said("assistant", ""), "[user:u]>"),
        (said("assistant", "", tool_calls=[call()]), None),
    ],
)
def test_a_last_message_of_the_assistant_is_continued(last: dict[str, Any], expected: str | None) -> None:
    assert shown(PLAIN, [said("user", "u"), last]) == expected
    assert shown(PLAIN, [said("user", "u"), said("assistant", "x"), last]) is None
    assert shown(PLAIN + "{# it may think #}", [said("user", "u"), last]) is None, "how, is not known"


# Templates with a way of their own

EACH = "{% for m in messages %}{{ m.role }}({% for k, v in m|items %}{{ k }}={{ v|tojson }} {% endfor %}){% endfor %}"
THOUGHT = said("assistant", "c", reasoning_content="r")
CALLED = said("assistant", "c", reasoning_content="r", tool_calls=[call()])
RESULT = said("tool", "x", tool_call_id="c1")


def keys(template: str, messages: list[dict[str, Any]], *names: str) -> list[dict[str, Any]]:
    """The messages as the template gets them, of each the keys that are named."""
    lines = shown(template + "@{% for m in messages %}{{ m|tojson }}\n{% endfor %}", [*messages, said("user", "end")])
    assert lines is not None
    seen = [json.loads(line) for line in lines.split("@", 1)[1].splitlines()[:-1]]
    return [{name: message[name] for name in names if name in message} for message in seen]


@pytest.mark.parametrize(
    ("marks", "thought", "called"),
    [
        ("<|channel|>", {"content": "c", "thinking": "r"}, {"thinking": "r"}),
        ("<|tool_list_start|><|tool_list_end|>", {"content": "c", "thinking": "r"}, {"content": "c", "thinking": "r"}),
        ("List of tools: [", {"content": "c", "thinking": "r"}, {"content": "c", "thinking": "r"}),
        ("other", {"content": "c"}, {"content": "c"}),
    ],
)
def test_thoughts_have_the_name_that_some_templates_read(
    marks: str, thought: dict[str, str], called: dict[str, str]
) -> None:
    assert keys(marks, [THOUGHT, CALLED, RESULT], "content", "thinking")[:2] == [thought, called]


def test_thoughts_are_parts_for_some() -> None:
    marks = "[SYSTEM_PROMPT][TOOL_CALLS][ARGS]"
    thinking = {"type": "thinking", "thinking": "r"}
    assert keys(marks, [said("system", "s"), said("user", "u"), THOUGHT], "content") == [
        {"content": text("s")},
        {"content": "u"},
        {"content": [thinking, *text("c")]},
    ]
    assert keys(marks + "[CALL_ID]", [THOUGHT], "content") == [{"content": "c"}]


def test_thoughts_are_there_for_some_even_if_empty() -> None:
    found = keys("<|ifm|im_start|><ifm|tool_calls>", [said("assistant", "c"), THOUGHT], "reasoning_content")
    assert found == [{"reasoning_content": ""}, {"reasoning_content": "r"}]


def test_results_are_sorted_for_some() -> None:
    marks, calls = "dsml_token DSML tool_calls", [call(at="c1"), call(at="c2")]
    chat = [
        said("assistant", "", tool_calls=calls),
        said("tool", "2", tool_call_id="c2"),
        said("user", "between"),
        said("tool", "1", tool_call_id="c1"),
        said("assistant", "a"),
        said("tool", "z", tool_call_id="c2"),
    ]
    order = ["", "1", "between", "2", "a", "z"]
    assert [message["content"] for message in keys(marks, chat, "content")] == order
    kept = [message["content"] for message in keys(marks + " function_calls", chat, "content")]
    assert kept == [message["content"] for message in chat]


FOLDS = "{# '<|tool_call>call:' #}"


def test_results_are_put_into_their_message_for_some() -> None:
    chat = [
        said("assistant", "", tool_calls=[call(), call(name="g", at="c2")]),
        said("tool", '{"y": 1}'),
        RESULT,
        THOUGHT,
    ]
    (folded,) = keys(FOLDS, chat, "role", "content", "tool_responses")
    assert folded == {
        "role": "assistant",
        "content": "c",
        "tool_responses": [{"name": "f", "response": {"y": 1}}, {"name": "g", "response": "x"}],
    }
    apart = keys(FOLDS + "{#- OpenAI Chat Completions: #}", chat, "role")
    assert [message["role"] for message in apart] == ["assistant", "tool", "tool", "assistant"]
    (unanswered, after) = keys(FOLDS, [said("assistant", "w", tool_calls=[call()]), said("user", "u")], "content")
    assert (unanswered, after) == ({}, {"content": "u"})


def test_a_turn_that_ended_is_opened_again_for_some() -> None:
    assert shown(FOLDS + "x<turn|>\n{{ '' }}") == "x<turn|>\n<|turn>model\n"
    assert shown(FOLDS + "x<turn|>{{ none }}") == "x<turn|>"


def test_what_is_to_be_translated_says_so() -> None:
    found = keys(
        "[source_lang_code][target_lang_code]", [said("user", text("a", "b")), said("assistant", "c")], "content"
    )
    part = {"type": "text", "text": "a\nb", "source_lang_code": "en-GB", "target_lang_code": "en-GB"}
    assert found == [{"content": [part]}, {"content": "c"}]


def test_space_around_texts_goes_for_some() -> None:
    marks = "You have access to the following functions in JSONSchema format"
    chat = [said("user", " u\n"), said("assistant", " c", reasoning_content=" "), said("user", text(" a ", "b"))]
    assert keys(marks, chat, "content", "reasoning_content") == [
        {"content": "u"},
        {"content": "c"},
        {"content": "a\nb"},
    ]


# Whatever comes

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters(exclude_categories=())),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=9), inner, max_size=3),
    max_leaves=9,
)
MESSAGES = st.lists(
    st.fixed_dictionaries(
        {"role": st.sampled_from(["system", "user", "assistant", "tool", "developer", "x"]), "content": JSON},
        optional={"tool_calls": JSON, "reasoning_content": JSON, "name": JSON, "tool_call_id": JSON},
    )
    | JSON,
    max_size=5,
)
PIECES = st.sampled_from(
    [
        "{{",
        "}}",
        "{%",
        "%}",
        "{%-",
        "-%}",
        "{#",
        "#}",
        "if",
        "else",
        "elif",
        "endif",
        "for",
        "in",
        "endfor",
        "set",
        "endset",
        "macro",
        "endmacro",
        "namespace",
        "loop",
        "messages",
        "tools",
        "message.content",
        "'text'",
        '"more"',
        "1",
        "2.5",
        "[",
        "]",
        "(",
        ")",
        "{",
        "}",
        ",",
        ".",
        ":",
        "|",
        "+",
        "-",
        "~",
        "*",
        "/",
        "%",
        "==",
        "!=",
        "<",
        ">",
        "and",
        "or",
        "not",
        "is",
        "defined",
        "none",
        "true",
        "tojson",
        "trim",
        "length",
        "items",
        "selectattr",
        "join",
        "map",
        "split('x')",
        "[0]",
        "[::-1]",
        "[1:]",
        "range(3)",
        "x",
        "y",
        "x.y",
        "=",
        "break",
        "continue",
    ]
)


@settings(max_examples=300, deadline=None)
@given(st.lists(PIECES, max_size=30).map(" ".join) | st.text(), MESSAGES, st.lists(JSON, max_size=2))
def test_nothing_raises(template: str, messages: Sequence[Any], tools: Sequence[Any]) -> None:
    for source in (template, PLAIN, EACH, "{{ " + template + " }}", FOLDS + EACH, "<|channel|>" + EACH):
        made = render(source, messages, tools)
        assert made is None or made.encode() is not None


@settings(max_examples=200, deadline=None)
@given(st.lists(st.tuples(st.sampled_from(["system", "user", "assistant"]), st.text()), max_size=6))
def test_any_text_is_carried_through_as_it_is(pairs: list[tuple[str, str]]) -> None:
    chat = [said(role, content) for role, content in [*pairs, ("user", "end")]]
    expected = "".join(f"[{message['role']}:{message['content']}]" for message in chat) + ">"
    assert shown(PLAIN, chat) == expected
