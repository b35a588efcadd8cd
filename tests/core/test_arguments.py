from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from localctx.core.arguments import described, fitted

SCHEMA = described(
    "tool",
    "Does it.",
    {
        "path": {"type": "string"},
        "first_line": {"type": "integer"},
        "share": {"type": "number"},
        "deep": {"type": "boolean"},
        "names": {"type": "array", "items": {"type": "string"}},
        "kind": {"type": "string", "enum": ["a", "b"]},
        "todos": {"type": "array", "items": {"type": "object"}},
    },
    "path",
)


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        ({"path": "x"}, {"path": "x"}),
        ({"path": 7}, {"path": "7"}),
        ({"path": ["x"]}, {"path": "x"}),
        ({"path": "x", "first_line": "10"}, {"path": "x", "first_line": 10}),
        ({"path": "x", "first_line": 10.0}, {"path": "x", "first_line": 10}),
        ({"path": "x", "firstLine": " 3 "}, {"path": "x", "first_line": 3}),
        ({"Path": "x", "first-line": 3}, {"path": "x", "first_line": 3}),
        ({"path": "x", "share": "0.5"}, {"path": "x", "share": 0.5}),
        ({"path": "x", "deep": "true"}, {"path": "x", "deep": True}),
        ({"path": "x", "names": "one"}, {"path": "x", "names": ["one"]}),
        ({"path": "x", "names": '["one", 2]'}, {"path": "x", "names": ["one", "2"]}),
        ({"path": "x", "names": "[no json"}, {"path": "x", "names": ["[no json"]}),
        ({"path": "x", "todos": ["any", {"text": "y"}]}, {"path": "x", "todos": ["any", {"text": "y"}]}),
        ({"path": "x", "first_line": None}, {"path": "x", "first_line": None}),
        ({"arguments": {"path": "x"}}, {"path": "x"}),
        ({"arguments": '{"path": "x"}'}, {"path": "x"}),
        ('{"path": "x"}', {"path": "x"}),
    ],
)
def test_harmless_mistakes_are_put_right(given: object, wanted: dict[str, object]) -> None:
    assert fitted(SCHEMA, json.dumps(given)) == wanted


WANTED = (
    "; tool takes path (a text), first_line (a whole number, optional), share (a number, optional), "
    "deep (true or false, optional), names (a list, optional), kind (a text, optional), todos (a list, optional)"
)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{}", "path is missing" + WANTED),
        ("", "path is missing" + WANTED),
        ("null", "path is missing" + WANTED),
        ('{"path": null}', "path is missing" + WANTED),
        ('{"path": {"a": 1}}', "path is an object, not a text" + WANTED),
        ('{"path": ["a", "b"]}', "path is a list, not a text" + WANTED),
        ('{"path": true}', "path is true or false, not a text" + WANTED),
        ('{"path": "x", "first_line": "ten"}', "first_line is the text 'ten', not a whole number" + WANTED),
        ('{"path": "x", "first_line": 1.5}', "first_line is the number 1.5, not a whole number" + WANTED),
        ('{"path": "x", "first_line": NaN}', "first_line is the number nan, not a whole number" + WANTED),
        ('{"path": "x", "first_line": 1e400}', "first_line is the number inf, not a whole number" + WANTED),
        ('{"path": "x", "first_line": ' + "9" * 400 + "}", "first_line is the number 9999"),
        ('{"path": "x", "deep": "maybe"}', "deep is the text 'maybe', not true or false" + WANTED),
        ('{"path": "x", "kind": "c"}', "kind is 'c', not one of a, b" + WANTED),
        ('{"path": "x", "names": [{}]}', "an item of names is an object, not a text" + WANTED),
        ('{"path": "x", "mood": 1}', "there is no field 'mood'" + WANTED),
        ('{"path": ', "the arguments are no JSON"),
        ("[1]", "the arguments are a list; call again with a JSON object"),
        ('"text"', "the arguments are no JSON"),
        ("[" * 100_000, "the arguments are no JSON"),
    ],
)
def test_other_mistakes_are_explained(text: str, said: str) -> None:
    with pytest.raises(ValueError) as wrong:  # noqa: PT011  the text is compared below
        fitted(SCHEMA, text)
    assert str(wrong.value).startswith(said)


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)
_TYPES: dict[str, type | tuple[type, ...]] = {
    "path": str,
    "first_line": int,
    "share": float,
    "deep": bool,
    "names": list,
    "kind": str,
    "todos": list,
}


@given(st.dictionaries(st.sampled_from([*_TYPES, "other"]), _JSON, max_size=4) | _JSON)
def test_whatever_comes_out_is_as_the_schema_says(value: Any) -> None:  # noqa: ANN401  any JSON
    try:
        arguments = fitted(SCHEMA, json.dumps(value))
    except ValueError:
        return
    assert isinstance(arguments["path"], str)
    assert all(given is None or isinstance(given, _TYPES[name]) for name, given in arguments.items())
