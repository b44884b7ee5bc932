"""Checks a value against a JSON Schema, with one sentence on the first thing that does not fit.

Only the keywords that our own schemas use, with their meaning in draft 2020-12; any other one in a
schema is a mistake of ours and raises KeyError rather than being passed over.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

Schema = dict[str, Any]

_NOTES = {"$schema", "$defs", "title", "description"}
_TYPES: dict[str, Callable[[Any], bool]] = {
    "object": lambda value: isinstance(value, dict),
    "array": lambda value: isinstance(value, list),
    "string": lambda value: isinstance(value, str),
    "boolean": lambda value: isinstance(value, bool),
    "null": lambda value: value is None,
    "integer": lambda value: isinstance(value, int) and not isinstance(value, bool),
    "number": lambda value: (
        isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)
    ),
}


def problem(value: Any, schema: Schema, root: Schema | None = None, at: str = "") -> str | None:
    """What is wrong with the value and where in it, None where it fits.

    root  the document that `$ref` looks into; the schema itself by default
    """
    root = schema if root is None else root
    for keyword, wanted in schema.items():
        if keyword in _NOTES:
            continue
        found = _KEYWORDS[keyword](value, wanted, schema, root, at)
        if found is not None:
            return found
    return None


def _type(value: Any, wanted: Any, _schema: Schema, _root: Schema, at: str) -> str | None:
    names = [wanted] if isinstance(wanted, str) else wanted
    if any(_TYPES[name](value) for name in names):
        return None
    return _says(at, f"expected {' or '.join(names)}, found {_shown(value)}")


def _enum(value: Any, wanted: Any, _schema: Schema, _root: Schema, at: str) -> str | None:
    if any(value == each and type(value) is type(each) for each in wanted):
        return None
    return _says(at, f"expected one of {', '.join(map(repr, wanted))}, found {_shown(value)}")


def _const(value: Any, wanted: Any, schema: Schema, root: Schema, at: str) -> str | None:
    return _enum(value, [wanted], schema, root, at)


def _bound(name: str, fits: Callable[[Any, Any], bool], measure: Callable[[Any], Any], of: tuple):
    def check(value: Any, wanted: Any, _schema: Schema, _root: Schema, at: str) -> str | None:
        if not isinstance(value, of) or isinstance(value, bool) or fits(measure(value), wanted):
            return None
        return _says(at, f"expected {name} {wanted:,}, found {measure(value):,}")

    return check


def _unique(value: Any, _wanted: Any, _schema: Schema, _root: Schema, at: str) -> str | None:
    is_unique = not isinstance(value, list) or all(
        each not in value[:index] for index, each in enumerate(value)
    )
    return None if is_unique else _says(at, "expected no entry twice")


def _required(value: Any, wanted: Any, _schema: Schema, _root: Schema, at: str) -> str | None:
    missing = [name for name in wanted if name not in value] if isinstance(value, dict) else []
    return _says(at, f"{missing[0]!r} is missing") if missing else None


def _properties(value: Any, wanted: Any, _schema: Schema, root: Schema, at: str) -> str | None:
    if not isinstance(value, dict):
        return None
    fields = ((name, each) for name, each in wanted.items() if name in value)
    return _first(problem(value[name], each, root, _join(at, name)) for name, each in fields)


def _additional(value: Any, wanted: Any, schema: Schema, _root: Schema, at: str) -> str | None:
    if wanted is not False:
        raise KeyError("additionalProperties other than false")
    known = schema.get("properties", {})
    unknown = [name for name in value if name not in known] if isinstance(value, dict) else []
    return _says(at, f"{_shown(unknown[0])} is not a field of this format") if unknown else None


def _items(value: Any, wanted: Any, schema: Schema, root: Schema, at: str) -> str | None:
    if not isinstance(value, list):
        return None
    start = len(schema.get("prefixItems", ()))
    return _first(
        problem(each, wanted, root, f"{at}[{index}]")
        for index, each in enumerate(value[start:], start)
    )


def _prefix_items(value: Any, wanted: Any, _schema: Schema, root: Schema, at: str) -> str | None:
    if not isinstance(value, list):
        return None
    pairs = enumerate(zip(value, wanted, strict=False))
    return _first(problem(each, schema, root, f"{at}[{i}]") for i, (each, schema) in pairs)


def _ref(value: Any, wanted: Any, _schema: Schema, root: Schema, at: str) -> str | None:
    return problem(value, root["$defs"][wanted.removeprefix("#/$defs/")], root, at)


def _all_of(value: Any, wanted: Any, _schema: Schema, root: Schema, at: str) -> str | None:
    return _first(problem(value, each, root, at) for each in wanted)


def _any_of(value: Any, wanted: Any, _schema: Schema, root: Schema, at: str) -> str | None:
    found = [problem(value, each, root, at) for each in wanted]
    return None if None in found else found[-1]


def _if(value: Any, wanted: Any, schema: Schema, root: Schema, at: str) -> str | None:
    return problem(value, schema["then"], root, at) if not problem(value, wanted, root) else None


def _pass(*_: Any) -> None:
    """`then` is looked at by `if`."""


_KEYWORDS: dict[str, Callable[..., str | None]] = {
    "type": _type,
    "enum": _enum,
    "const": _const,
    "minimum": _bound("at least", lambda a, b: a >= b, lambda x: x, (int, float)),
    "maximum": _bound("at most", lambda a, b: a <= b, lambda x: x, (int, float)),
    "maxLength": _bound("a length of at most", lambda a, b: a <= b, len, (str,)),
    "minItems": _bound("a length of at least", lambda a, b: a >= b, len, (list,)),
    "maxItems": _bound("a length of at most", lambda a, b: a <= b, len, (list,)),
    "uniqueItems": _unique,
    "required": _required,
    "properties": _properties,
    "additionalProperties": _additional,
    "items": _items,
    "prefixItems": _prefix_items,
    "$ref": _ref,
    "allOf": _all_of,
    "anyOf": _any_of,
    "if": _if,
    "then": _pass,
}


def _first(problems: Any) -> str | None:
    return next((each for each in problems if each is not None), None)


def _says(at: str, what: str) -> str:
    return f"{at or 'the value'}: {what}"


def _join(at: str, name: str) -> str:
    return f"{at}.{name}" if at else name


def _shown(value: Any) -> str:
    """The value in few characters: it may be a file of megabytes."""
    if isinstance(value, (dict, list)):
        return f"{type(value).__name__} of {len(value)}"
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
