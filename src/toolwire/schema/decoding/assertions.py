"""Read keywords without subschemas for a decoding schema, and prove that the branches of a `oneOf` exclude each other.

Both depend on the extent to which the engine enforces a keyword. The proof reads the documents themselves: parsing them
into nodes would cost more than the whole conversion.
"""


# ruff: noqa: ARG001  # one signature for all readers, whether a reader needs every argument or not

from __future__ import annotations

import re
from collections.abc import Callable
from itertools import combinations
from math import isfinite

from ...ir.errors import SchemaError
from ...ir.pointer import JSON, Object
from ...ir.text import dumps
from ..keywords import TYPES
from ..validation.patterns import ASSERTED
from .limits import MAX_COUNT, DecodingState, SchemaPath, schema_pointer

# Prove that the branches of a `oneOf` exclude each other, by keywords that constrained decoding always enforces.
#
# `disjoint` works on parsed nodes; parsing costs more than the whole conversion to a decoding schema, so this check
# reads the documents themselves. False means not proved.


_ALL_TYPES = frozenset({"null", "boolean", "number", "string", "array", "object"})
# pairs of branches; 63 branches without a tag. Those with a tag are separated before, in linear time
_MAX_PAIRS = 2_000
_MAX_DEPTH = 3  # levels of properties in which a difference is searched; tags are at the first or second
_MAX_HOPS = 8  # references that lead to references; a cycle must end


def type_names(schema: Object) -> frozenset[str]:
    """Return the types that `type` allows; integers are numbers."""
    declared = schema.get("type")
    if type(declared) is str:
        return frozenset({"number" if declared == "integer" else declared})
    if type(declared) is list:
        return frozenset("number" if name == "integer" else name for name in declared if type(name) is str)
    return _ALL_TYPES


def branches_disjoint(branches: list[JSON], types: frozenset[str], follow: Callable[[str], JSON]) -> bool:
    """Return True if no value of `types` fits two branches; `follow` returns the target of a reference, or None."""
    known = [_resolve(branch, follow) for branch in branches]
    if _separated_by_tag(known, types, follow):
        return True
    if len(known) * (len(known) - 1) > 2 * _MAX_PAIRS:
        return False
    return all(_is_disjoint(left, right, types, follow, 0) for left, right in combinations(known, 2))


def _resolve(schema: JSON, follow: Callable[[str], JSON]) -> JSON:
    for _ in range(_MAX_HOPS):
        if type(schema) is not dict or type(schema.get("$ref")) is not str:
            return schema
        schema = follow(schema["$ref"])
    return None


def _separated_by_tag(branches: list[JSON], types: frozenset[str], follow: Callable[[str], JSON]) -> bool:
    """Return True for objects whose common required property has different constants: linear in their number."""
    if not all(type(branch) is dict and types & type_names(branch) == {"object"} for branch in branches):
        return False
    common = set.intersection(*(_required(branch) for branch in branches)) if branches else set()
    for name in sorted(common):
        seen: set[str] = set()
        if all(_adds_values(seen, _resolve(_property(branch, name), follow)) for branch in branches):
            return True
    return False


def _adds_values(seen: set[str], schema: JSON) -> bool:
    values = _values(schema)
    if values is None or not seen.isdisjoint(values):
        return False
    seen |= values
    return True


def _required(schema: Object) -> set[str]:
    names = schema.get("required")
    return {name for name in names if type(name) is str} if type(names) is list else set()


def _property(schema: Object, name: str) -> JSON:
    properties = schema.get("properties")
    return properties.get(name) if type(properties) is dict else None


def _values(schema: JSON) -> set[str] | None:
    """Return the values of `const` or `enum`, as text; None without such a keyword."""
    if type(schema) is not dict:
        return None
    if "const" in schema:
        return {_value_key(schema["const"])}
    listed = schema.get("enum")
    return {_value_key(value) for value in listed} if type(listed) is list else None


def _value_key(value: JSON) -> str:
    """Return the same text for equal JSON values: 1 and 1.0 are equal."""
    if type(value) is float and value.is_integer():
        return str(int(value))
    return dumps(value)


def _is_disjoint(left: JSON, right: JSON, types: frozenset[str], follow: Callable[[str], JSON], depth: int) -> bool:
    """Return True if no value of the `types` fits both schemas; False means not proved.

    `follow` resolves references, and `depth` counts the levels of properties.
    """
    if left is False or right is False:
        return True
    if type(left) is not dict or type(right) is not dict or depth > _MAX_DEPTH:
        return False
    common = types & _kinds(left) & _kinds(right)
    if not common:
        return True
    values, others = _values(left), _values(right)
    if values is not None and others is not None and not _has_containers(left, right):
        return values.isdisjoint(others)
    return common == {"object"} and _objects_disjoint(left, right, follow, depth)


def _has_containers(*schemas: Object) -> bool:
    """Return True if a constant is an object or a list, whose text may differ for equal values."""
    values = [value for schema in schemas for value in [schema.get("const"), *(schema.get("enum") or ())]]
    return any(type(value) is dict or type(value) is list for value in values)


def _kinds(schema: Object) -> frozenset[str]:
    names = type_names(schema)
    listed = [schema["const"]] if "const" in schema else schema.get("enum")
    return names & {_kind_of(value) for value in listed} if type(listed) is list else names


def _kind_of(value: JSON) -> str:
    if value is None:
        return "null"
    return {bool: "boolean", str: "string", list: "array", dict: "object"}.get(type(value), "number")


def _objects_disjoint(left: Object, right: Object, follow: Callable[[str], JSON], depth: int) -> bool:
    if _excludes_required(left, right) or _excludes_required(right, left):
        return True
    for name in _required(left) & _required(right):
        first, second = _resolve(_property(left, name), follow), _resolve(_property(right, name), follow)
        if _is_disjoint(first, second, _ALL_TYPES, follow, depth + 1):
            return True
    return False


def _excludes_required(closed: Object, other: Object) -> bool:
    """Return True if the first object forbids a property that the other requires."""
    if closed.get("additionalProperties") is not False or "patternProperties" in closed:
        return False
    properties = closed.get("properties")
    return not _required(other) <= (properties.keys() if type(properties) is dict else set())


# Read the keywords that assert something about a value without subschemas, for a decoding schema.
#
# A reader writes the keyword into `out` as far as the engine enforces it. It returns False if the schema accepts no
# value.


_MAX_MIN_COUNT = 10_000  # items or properties that the engine would have to unroll
_MAX_LENGTH = 1_000_000  # characters; no answer of a model is longer
_EXACT = 2**53  # integers from here on are not exact as doubles, in which engines compare numbers
_MAX_NUMBER = 9.2e18  # below 2**63: bounds beyond it are not passed to the engine, whose integers have 64 bits
_ENFORCED_FORMATS = frozenset("date-time time date duration email hostname ipv4 ipv6 uuid uri".split())
_EXACT_FORMATS = frozenset({"uuid", "ipv4"})
_UNTYPABLE = re.compile(r"[\x00-\x07\x0b\x0e-\x1f\x7f\ud800-\udfff]").search

find_unsupported_syntax = re.compile(r"\(\?<?[=!]|\(\?>|\\[1-9kbBcZze<>G]|\[\^?\]|&&|\[\[|--|~~").search
"""Return a match for the syntax of a regular expression that the engine does not support, or None."""


def _read_type(state: DecodingState, out: Object, schema: Object, keyword: str, value: JSON, path: SchemaPath) -> None:
    names = [value] if type(value) is str else value
    if type(names) is not list or not names or any(type(name) is not str or name not in TYPES for name in names):
        raise SchemaError(
            f"unknown type {value!r}", pointer=schema_pointer(path), hint=f"use one or more of {', '.join(TYPES)}"
        )
    out["type"] = value


def _read_values(
    state: DecodingState, out: Object, schema: Object, keyword: str, value: JSON, path: SchemaPath
) -> JSON:
    """Keep `enum` and `const`, without numbers and characters that the engine cannot produce exactly.

    If nothing is left, the validator checks the keyword. Return False if the enum is empty; SchemaError if it is no
    list.
    """
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
    exact = [constant for constant in value if _is_exact(constant)]
    if exact:
        out["enum"] = exact
    else:
        state.leave(path, keyword)
    return True


def _read_count(state: DecodingState, out: Object, schema: Object, keyword: str, value: JSON, path: SchemaPath) -> None:
    """Keep a bound on a length or a count.

    A maximum is lowered as far as its minimum allows, because engines unroll it. SchemaError for a value that is not a
    count, and for a minimum that is too large to generate.
    """
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
        # all arrays of a document share a budget of unrolled items; after it, 64 still cover usual lists (not measured)
        most = MAX_COUNT if state.items_left > 0 else 64
        value = min(value, max(most, _count(schema.get("minItems"))))
        state.items_left -= value
    elif keyword == "maxProperties":
        value = min(value, max(MAX_COUNT, _count(schema.get("minProperties"))))
    elif keyword == "maxLength":
        value = min(value, _MAX_LENGTH)
    out[keyword] = value


def _read_property_count(
    state: DecodingState, out: Object, schema: Object, keyword: str, value: JSON, path: SchemaPath
) -> None:
    """Keep a count of properties where the engine counts them, which is where every declared property is required.

    A count that always holds is dropped; any other one is left to the validator.
    """
    _read_count(state, out, schema, keyword, value, path)
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
    state: DecodingState, out: Object, schema: Object, keyword: str, value: JSON, path: SchemaPath
) -> None:
    """Keep a bound of a number; a bound beyond the exact integers is left to the validator, too.

    A boolean exclusive bound of draft 4 takes its value from `minimum` or `maximum`. SchemaError for another value.
    """
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
    state: DecodingState, out: Object, schema: Object, keyword: str, value: JSON, path: SchemaPath
) -> None:
    """Keep `multipleOf` where the engine can enforce it; fractions and unusual values are left to the validator.

    The keyword is recorded, because it may have to be dropped later. SchemaError if it is not a positive number.
    """
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
    state: DecodingState, out: Object, schema: Object, keyword: str, value: JSON, path: SchemaPath
) -> None:
    """Keep `pattern`, or leave it to the validator if engines may differ. Raise SchemaError if it is no text."""
    if type(value) is not str:
        raise SchemaError("pattern must be a string", pointer=schema_pointer(path))
    state.has_patterns = True
    if state.cautious or find_unsupported_syntax(value):
        state.leave(path, keyword)
    else:
        out[keyword] = value


def _read_format(
    state: DecodingState, out: Object, schema: Object, keyword: str, value: JSON, path: SchemaPath
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
    state: DecodingState, out: Object, schema: Object, keyword: str, value: JSON, path: SchemaPath
) -> None:
    """Keep `required`, except a boolean of draft 3. Raise SchemaError if it is no list of names."""
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


_AssertionReader = Callable[[DecodingState, Object, Object, str, JSON, SchemaPath], JSON]
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
