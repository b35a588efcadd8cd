"""The arguments of a call, made to fit the schema of their tool: harmless mistakes of a model are put right, others explained."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

    from localctx.core.outgoing import WireMessage

__all__ = ["described", "fitted", "parsed"]


def described(name: str, about: str, fields: Mapping[str, object], *required: str) -> WireMessage:
    """What a request says of a tool, as the OpenAI dialect has it."""
    parameters = {"type": "object", "properties": fields, **({"required": list(required)} if required else {})}
    return {"type": "function", "function": {"name": name, "description": about, "parameters": parameters}}


def fitted(schema: WireMessage, text: str) -> dict[str, Any]:
    """The arguments that the JSON text of a call holds, as the schema of its tool wants them.

    Put right are: an object in a text or under `arguments`, names in camel case, numbers as texts, texts as numbers,
    an item where its list belongs, a list of one where its item belongs. A null stays; it stands for a field that is not
    given. Raises `ValueError`, worded for the model.
    """
    function: Any = schema["function"]
    parameters = function.get("parameters", {})
    fields: Mapping[str, Any] = parameters.get("properties", {})
    required = parameters.get("required", ())
    given = parsed(text)
    try:
        return _object(_unwrapped(given, fields), fields, required) if fields else dict(given)
    except ValueError as error:
        raise ValueError(f"{error}; {function['name']} takes {_wanted(fields, required)}") from None


def parsed(text: str) -> Mapping[str, Any]:
    """The object in a JSON text, also where it is a text in the text. Raises `ValueError`, worded for the model."""
    try:
        value = json.loads(text or "{}")
        value = json.loads(value) if isinstance(value, str) else value
    except (ValueError, RecursionError) as error:
        raise ValueError(f"the arguments are no JSON ({error}); call again with a JSON object") from None
    if value is not None and not isinstance(value, dict):
        raise ValueError(f"the arguments are {_kind(value)}; call again with a JSON object")
    return value or {}


def _unwrapped(value: Mapping[str, Any], fields: Mapping[str, Any]) -> Mapping[str, Any]:
    """The arguments themselves, where a model put them under a name of their own."""
    if len(value) != 1:
        return value
    ((name, inner),) = value.items()
    if name in fields or name not in {"arguments", "parameters", "input", "args"}:
        return value
    return parsed(inner) if isinstance(inner, str) else inner if isinstance(inner, dict) else value


def _object(value: Mapping[str, Any], fields: Mapping[str, Any], required: Any) -> dict[str, Any]:  # noqa: ANN401  of a schema
    names = {_folded(name): name for name in fields}
    found = dict[str, Any]()
    for key, given in value.items():
        if (name := names.get(_folded(key))) is None:
            raise ValueError(f"there is no field {key[:40]!r}")
        found[name] = _value(given, fields[name], name)
    if missing := [name for name in required if found.get(name) is None]:
        raise ValueError(f"{' and '.join(missing)} {'is' if len(missing) == 1 else 'are'} missing")
    return found


def _folded(name: str) -> str:
    return name.replace("_", "").replace("-", "").lower()


def _value(value: Any, schema: Mapping[str, Any], name: str) -> Any:  # noqa: ANN401  any JSON
    """A value as its schema wants it."""
    kind = schema.get("type")
    if value is None:
        return None
    if kind == "array":
        return _array(value, schema.get("items", {}), name)
    if isinstance(value, list) and len(value) == 1:
        return _value(value[0], schema, name)
    wanted = _CONVERTERS.get(str(kind), lambda given: given)(value)
    if wanted is None:
        raise ValueError(f"{name} is {_kind(value)}, not {_ARTICLES.get(str(kind), kind)}")
    if "enum" in schema and wanted not in schema["enum"]:
        raise ValueError(f"{name} is {str(wanted)[:40]!r}, not one of {', '.join(map(str, schema['enum']))}")
    return wanted


def _array(value: Any, items: Mapping[str, Any], name: str) -> list[Any]:  # noqa: ANN401  any JSON
    if isinstance(value, str) and value.lstrip().startswith("["):
        try:
            value = json.loads(value)
        except (ValueError, RecursionError):
            value = [value]
    plain = items.get("type") in {"string", "integer", "number", "boolean"}
    listed = value if isinstance(value, list) else [value]
    return [_value(item, items, f"an item of {name}") if plain else item for item in listed]


def _text(value: object) -> str | None:
    return str(value) if isinstance(value, str | int | float) and not isinstance(value, bool) else None


def _integer(value: object) -> int | None:
    number = _number(value)
    return int(number) if number is not None and number == int(number) else None


def _number(value: object) -> float | None:
    try:
        if isinstance(value, bool) or not isinstance(value, str | int | float) or len(str(value)) > _LONGEST_NUMBER:
            return None
        number = float(value)
    except ValueError:
        return None
    return number if abs(number) <= _MOST_NUMBER else None


_LONGEST_NUMBER, _MOST_NUMBER = 30, 2.0**53
"""Characters of a number, and the largest that a float holds exactly; not a number is none."""


def _boolean(value: object) -> bool | None:
    word = str(value).strip().lower()
    return True if word in {"true", "yes", "1"} else False if word in {"false", "no", "0"} else None


_CONVERTERS = {"string": _text, "integer": _integer, "number": _number, "boolean": _boolean}
_ARTICLES = {
    "string": "a text",
    "integer": "a whole number",
    "number": "a number",
    "boolean": "true or false",
    "array": "a list",
}


def _kind(value: object) -> str:
    match value:
        case bool():
            return "true or false"
        case str():
            return f"the text {value[:40]!r}"
        case list():
            return "a list"
        case dict():
            return "an object"
        case None:
            return "null"
    return f"the number {str(value)[:40]}"


def _wanted(fields: Mapping[str, Any], required: Any) -> str:  # noqa: ANN401  of a schema
    """The fields of a tool, for a model that got them wrong."""
    said = [
        f"{name} ({_ARTICLES.get(str(schema.get('type')), 'a value')}{'' if name in required else ', optional'})"
        for name, schema in fields.items()
    ]
    return ", ".join(said) or "no arguments"
