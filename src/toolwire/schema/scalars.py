"""Read numbers, strings and counts from JSON Schema keywords."""

from __future__ import annotations

from collections.abc import Callable

from ..ir.pointer import JSON, Object
from .nodes import NumberNode, StringNode

__all__ = ["is_json_type", "parse_count", "parse_number", "parse_string"]


def parse_string(schema: Object, at: str) -> StringNode:
    pattern, name = schema.get("pattern"), schema.get("format")
    return StringNode(
        min_length=parse_count(schema.get("minLength")) or 0,
        max_length=parse_count(schema.get("maxLength")),
        pattern=pattern if type(pattern) is str else None,
        format=name if type(name) is str else None,
        at=at,
    )


def parse_number(integer: bool, schema: Object, at: str) -> NumberNode:
    """Read a number. Draft 4 has boolean exclusive bounds, which turn `minimum` and `maximum` into exclusive ones."""
    low, high = _bound(schema.get("minimum")), _bound(schema.get("maximum"))
    exclusive_minimum, exclusive_maximum = schema.get("exclusiveMinimum"), schema.get("exclusiveMaximum")
    name = schema.get("format")
    if exclusive_minimum is True:  # draft 4
        low, exclusive_minimum = None, low
    if exclusive_maximum is True:
        high, exclusive_maximum = None, high
    return NumberNode(
        integer,
        low,
        high,
        _bound(exclusive_minimum),
        _bound(exclusive_maximum),
        _bound(schema.get("multipleOf")),
        name if type(name) is str else None,
        at=at,
    )


def parse_count(value: JSON) -> int | None:
    return int(value) if type(value) in (int, float) and value >= 0 else None


def _bound(value: JSON) -> float | None:
    return value if type(value) in (int, float) else None


_TYPE_CHECKS: dict[str, Callable[[JSON], bool]] = {
    "object": lambda value: type(value) is dict,
    "array": lambda value: type(value) is list,
    "string": lambda value: type(value) is str,
    "number": lambda value: type(value) in (int, float),
    "integer": lambda value: type(value) is int or (type(value) is float and value.is_integer()),
    "boolean": lambda value: type(value) is bool,
    "null": lambda value: value is None,
}


def is_json_type(value: JSON, name: str) -> bool:
    """Return True if a value is of the JSON type `name`."""
    return _TYPE_CHECKS[name](value)
