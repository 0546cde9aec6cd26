"""Read the keywords that assert something about a value without subschemas, for a decoding schema.

A reader writes the keyword into `out` as far as the engine enforces it. It returns False if the schema accepts no value.
"""

# ruff: noqa: ARG001  # one signature for all readers, whether a reader needs every argument or not

from __future__ import annotations

import re
from collections.abc import Callable
from math import isfinite

from ..ir.errors import SchemaError
from ..ir.pointer import JSON, Object
from .decoding_branches import type_names
from .decoding_state import MAX_COUNT, DecodingState, SchemaPath, schema_pointer
from .formats import ASSERTED
from .keywords import TYPES

__all__ = ["ASSERTIONS", "find_unsupported_syntax"]

_MAX_MIN_COUNT = 10_000
_MAX_LENGTH = 1_000_000
_EXACT = 2**53
_MAX_NUMBER = 9.2e18
_ENFORCED_FORMATS = frozenset("date-time time date duration email hostname ipv4 ipv6 uuid uri".split())
_EXACT_FORMATS = frozenset({"uuid", "ipv4"})
_UNTYPABLE = re.compile(r"[\x00-\x07\x0b\x0e-\x1f\x7f\ud800-\udfff]").search

find_unsupported_syntax = re.compile(r"\(\?<?[=!]|\(\?>|\\[1-9kbBcZze<>G]|\[\^?\]|&&|\[\[|--|~~").search
"""Return a match for the syntax of a regular expression that the engine does not support, or None."""


def _read_type(
    state: DecodingState, out: Object, schema: Object, keyword: str, value: JSON, path: SchemaPath, depth: int
) -> None:
    names = [value] if type(value) is str else value
    if type(names) is not list or not names or any(type(name) is not str or name not in TYPES for name in names):
        raise SchemaError(
            f"unknown type {value!r}", pointer=schema_pointer(path), hint=f"use one or more of {', '.join(TYPES)}"
        )
    out["type"] = value


def _read_values(
    state: DecodingState, out: Object, schema: Object, keyword: str, value: JSON, path: SchemaPath, depth: int
) -> JSON:
    """Keep `enum` and `const`, without numbers and characters that the engine cannot produce exactly."""
    if keyword == "const":
        if _is_exact(value):
            out["const"] = value
        else:
            state.leave(path, keyword)
        return True
    if type(value) is not list:
        raise SchemaError("enum must be a list", pointer=schema_pointer(path))
    if not value:
        return state.refuse(path, "enum is empty")
    exact = [one for one in value if _is_exact(one)]
    if exact:
        out["enum"] = exact
    else:
        state.leave(path, keyword)
    return True


def _read_count(
    state: DecodingState, out: Object, schema: Object, keyword: str, value: JSON, path: SchemaPath, depth: int
) -> None:
    if type(value) is float and value.is_integer():
        value = int(value)
    if type(value) is not int or value < 0:
        raise SchemaError(f"{keyword} must be a count, got {value!r}", pointer=schema_pointer(path))
    is_minimum = keyword.startswith("min")
    if is_minimum:
        state.least = max(state.least, value)
    if is_minimum and value > (_MAX_LENGTH if keyword == "minLength" else _MAX_MIN_COUNT):
        raise SchemaError(f"{keyword} {value:,} is too large to generate", pointer=schema_pointer(path))
    if keyword == "maxItems":
        most = MAX_COUNT if state.items_left > 0 else 64
        value = min(value, max(most, _count(schema.get("minItems"))))
        state.items_left -= value
    elif keyword == "maxProperties":
        value = min(value, max(MAX_COUNT, _count(schema.get("minProperties"))))
    elif keyword == "maxLength":
        value = min(value, _MAX_LENGTH)
    out[keyword] = value


def _read_property_count(
    state: DecodingState, out: Object, schema: Object, keyword: str, value: JSON, path: SchemaPath, depth: int
) -> None:
    """Keep a count of properties where the engine counts them: every declared property is required."""
    _read_count(state, out, schema, keyword, value, path, depth)
    declared, required = _mapping(schema.get("properties")), _names(schema.get("required"))
    optional = declared.keys() - required
    closed = schema.get("additionalProperties") is False and not schema.get("patternProperties")
    is_trivial = value <= len(required) if keyword == "minProperties" else closed and value >= len(declared)
    if is_trivial:
        del out[keyword]
    elif state.cautious or (optional and not (closed and _is_one_of_many(schema, len(required)))):
        del out[keyword]
        state.leave(path, keyword)
    elif keyword == "minProperties" and value > len(required) + 1 and not closed:
        state.leave(path, keyword)  # the engine counts a repeated key twice


def _read_number(
    state: DecodingState, out: Object, schema: Object, keyword: str, value: JSON, path: SchemaPath, depth: int
) -> None:
    if type(value) is bool and keyword.startswith("exclusive"):  # draft 4
        limit = schema.get("minimum" if keyword == "exclusiveMinimum" else "maximum")
        if value and type(limit) in (int, float):
            out[keyword] = limit
        return
    if type(value) not in (int, float) or (type(value) is float and not isfinite(value)):
        raise SchemaError(f"{keyword} must be a number, got {value!r}", pointer=schema_pointer(path))
    if abs(value) >= _EXACT:
        state.has_wide_numbers = True
        state.leave(path, keyword)
        if abs(value) > _MAX_NUMBER:
            return
    out[keyword] = value


def _read_multiple(
    state: DecodingState, out: Object, schema: Object, keyword: str, value: JSON, path: SchemaPath, depth: int
) -> None:
    if type(value) not in (int, float) or not value > 0:
        raise SchemaError(f"multipleOf must be a positive number, got {value!r}", pointer=schema_pointer(path))
    if state.cautious or value > 1_000_000 or (value % 1 and len(repr(value)) > 8) or "e" in repr(value):
        state.leave(path, keyword)
        return
    if value % 1:
        state.leave(path, keyword)  # a validator may compute with binary fractions
    out[keyword] = value
    state.multiples.append((out, path, float(value)))


def _read_pattern(
    state: DecodingState, out: Object, schema: Object, keyword: str, value: JSON, path: SchemaPath, depth: int
) -> None:
    if type(value) is not str:
        raise SchemaError("pattern must be a string", pointer=schema_pointer(path))
    state.has_patterns = True
    if state.cautious or find_unsupported_syntax(value):
        state.leave(path, keyword)
    else:
        out[keyword] = value


def _read_format(
    state: DecodingState, out: Object, schema: Object, keyword: str, value: JSON, path: SchemaPath, depth: int
) -> None:
    """Keep the formats that the engine knows; most of its patterns are approximations."""
    if type(value) is not str or value not in ASSERTED or "string" not in type_names(schema):
        return
    state.has_patterns = True
    if value in _ENFORCED_FORMATS and not (state.cautious and "pattern" in schema):
        out[keyword] = value
    if value not in _EXACT_FORMATS:
        state.leave(path, keyword)


def _read_required(
    state: DecodingState, out: Object, schema: Object, keyword: str, value: JSON, path: SchemaPath, depth: int
) -> None:
    if type(value) is bool:  # draft 3
        return
    if type(value) is not list or any(type(name) is not str for name in value):
        raise SchemaError("required must be a list of names", pointer=schema_pointer(path))
    out[keyword] = value


def _count(value: JSON) -> int:
    return value if type(value) is int else 0


def _mapping(value: JSON) -> Object:
    return value if type(value) is dict else {}


def _names(value: JSON) -> set[str]:
    return {name for name in value if type(name) is str} if type(value) is list else set()


def _is_one_of_many(schema: Object, required: int) -> bool:
    """Return True for the only counts of optional properties that the engine supports: at least, or at most, one."""
    low = max(_count(schema.get("minProperties")) - required, 0)
    high = schema.get("maxProperties")
    return low <= 1 and (high is None or _count(high) - required == 1)


def _is_exact(value: JSON) -> bool:
    """Return True if the engine produces this constant exactly."""
    if type(value) is str:
        return not _UNTYPABLE(value)
    if type(value) is int or type(value) is float:
        return isfinite(value) and abs(value) < _EXACT
    if type(value) is list:
        return all(map(_is_exact, value))
    if type(value) is dict:
        return all(map(_is_exact, value)) and all(map(_is_exact, value.values()))
    return True


_AssertionReader = Callable[[DecodingState, Object, Object, str, JSON, SchemaPath, int], JSON]
ASSERTIONS: dict[str, _AssertionReader] = {
    "type": _read_type,
    "enum": _read_values,
    "const": _read_values,
    **dict.fromkeys(("minLength", "maxLength", "minItems", "maxItems"), _read_count),
    **dict.fromkeys(("minProperties", "maxProperties"), _read_property_count),
    **dict.fromkeys(("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"), _read_number),
    "multipleOf": _read_multiple,
    "pattern": _read_pattern,
    "format": _read_format,
    "required": _read_required,
}
"""Readers by keyword."""
