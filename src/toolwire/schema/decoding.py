"""Convert a JSON Schema into one that constrained decoding enforces fully, and list the keywords that it does not.

    decoded = decoding_schema(schema)
    decoded.schema      # in JSON Schema 2020-12; llguidance 1.9 enforces every keyword of it
    decoded.residual    # (pointer, keyword) of the keywords that a validator has to check after generation

Every value of `decoded.schema` is valid for `schema` without the residual keywords. The converse does not hold: limits
on lengths keep a model that repeats itself from running until its token limit. The order of properties is the order in
which they are declared: engines generate objects in this order, which is no loss, because any order is valid.

The conversion is one pass, whose cost is linear in the schema, because it runs before each compilation.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from math import isfinite
from typing import Any

from ..ir.errors import SchemaError
from ..ir.pointer import JSON, Object, child_pointer
from ..ir.value import Value
from .decoding_branches import branches_disjoint, type_names
from .formats import ASSERTED
from .identifiers import Identifiers, old_draft_number
from .keywords import TYPES

__all__ = [
    "DEFAULT_LIMITS",
    "DecodingLimits",
    "DecodingSchema",
    "Residual",
    "decoding_schema",
]


class DecodingLimits(Value, frozen=True):
    """Limits for values whose schema declares none; None for no limit. A declared minimum is never undercut.

    `max_integer` has no default, because the engine needs more time to compile a large range than for all of a usual
    schema. If more than `max_limited` arrays and maps would get a limit, none of them does: each limit takes time to
    compile. `close_objects` forbids undeclared properties in objects that declare some and do not mention others.
    """

    max_length: int | None = 4_000
    max_items: int | None = 64
    max_properties: int | None = 64
    max_integer: int | None = None
    max_limited: int | None = None
    close_objects: bool = False


DEFAULT_LIMITS = DecodingLimits()


class Residual(Value, frozen=True):
    """A keyword that decoding does not enforce, or not exactly. `pointer` is that of its schema."""

    pointer: str
    keyword: str


class DecodingSchema(Value, frozen=True):
    """A schema for constrained decoding, and the keywords of the original that a validator has to check."""

    schema: Object
    residual: tuple[Residual, ...] = ()


MAX_NODES = 20_000
"""Subschemas of one document."""
_MAX_DEPTH = 56  # the engine reads at most 128 levels of JSON, two for each level of properties
_MAX_COUNT = 1_000  # items that a declared maximum may allow; the engine unrolls them
_MAX_MIN_COUNT = 10_000
_MAX_LENGTH = 1_000_000
_EXACT = 2**53
_MAX_NUMBER = 9.2e18
_ENFORCED_FORMATS = frozenset("date-time time date duration email hostname ipv4 ipv6 uuid uri".split())
_EXACT_FORMATS = frozenset({"uuid", "ipv4"})
_UNSUPPORTED_PATTERN = re.compile(r"\(\?<?[=!]|\(\?>|\\[1-9kbBcZze<>G]|\[\^?\]|&&|\[\[|--|~~").search
_UNTYPABLE = re.compile(r"[\x00-\x07\x0b\x0e-\x1f\x7f\ud800-\udfff]").search
_IN_PLACE = ("anyOf", "oneOf", "allOf", "$ref")
_OLD_2019 = "draft/2019-09"

_SchemaPath = Any  # a pointer, or a pair of a path and a segment: pointers are only built where they are needed


def decoding_schema(schema: JSON, *, limits: DecodingLimits = DEFAULT_LIMITS, cautious: bool = False) -> DecodingSchema:
    """Convert a schema; SchemaError with a pointer if it is malformed, too large, or accepts no value.

    `cautious` also removes keywords that the engine supports only in some combinations. Use it after the engine has
    refused the first conversion.
    """
    if type(schema) is not dict and type(schema) is not bool:
        raise SchemaError(f"a schema must be an object or a boolean, got {type(schema).__name__}")
    return _DecodingConverter(schema, limits, cautious).convert()


class _DecodingConverter:
    """The state of one conversion: definitions found so far, residual keywords, and limits added."""

    __slots__ = (
        "_causes",
        "_cautious",
        "_combined",
        "_defs",
        "_document",
        "_draft",
        "_has_patterns",
        "_identifiers",
        "_in_resource",
        "_items_left",
        "_least",
        "_limited",
        "_limits",
        "_multiples",
        "_names",
        "_nodes",
        "_pending",
        "_residual",
        "_wide_numbers",
    )

    def __init__(self, document: JSON, limits: DecodingLimits, cautious: bool) -> None:
        self._document = document
        self._limits = limits
        self._cautious = cautious
        self._draft = _draft_number(document)
        self._identifiers: Identifiers | None = None
        self._names: dict[str, str] = {}  # pointer of a definition → its name
        self._defs: Object = {}
        self._pending: list[tuple[str, str, JSON, bool]] = []
        self._residual: dict[Residual, None] = {}
        self._causes: dict[str, tuple[str, str]] = {}  # schema that accepts no value → pointer and reason of the cause
        self._nodes = 0
        self._items_left = 20 * _MAX_COUNT
        self._in_resource = False  # inside a schema with its own identifier
        self._combined = False  # schemas are intersected somewhere
        self._has_patterns = False
        self._wide_numbers = False
        self._least = 0  # the greatest minimum of lengths and counts
        self._limited: list[tuple[Object, str]] = []
        self._multiples: list[tuple[Object, _SchemaPath, float]] = []

    def convert(self) -> DecodingSchema:
        root = self._convert(self._document, "", 0)
        if root is False:
            pointer, reason = self._causes[""]
            raise SchemaError(
                f"the schema accepts no value: {reason}", pointer=pointer, hint="correct the schema at this pointer"
            )
        while self._pending:
            name, pointer, schema, self._in_resource = self._pending.pop()
            self._defs[name] = self._convert(schema, pointer, 0)
        if self._limits.max_limited is not None:
            self._drop_many_limits(self._limits.max_limited)
        if self._combined:
            self._adjust_limits()
        schema = {} if root is True else root
        if self._defs:
            schema = {**schema, "$defs": self._defs}
        return DecodingSchema(schema, tuple(self._residual))

    # one schema

    def _convert(self, schema: JSON, path: _SchemaPath, depth: int) -> JSON:
        if schema is True:
            return True
        if schema is False:
            return self._refuse(path, "it is false")
        if type(schema) is not dict:
            raise SchemaError("a schema must be an object or a boolean", pointer=_pointer(path))
        self._nodes += 1
        if self._nodes > MAX_NODES or depth > _MAX_DEPTH:
            limit = (
                f"nested deeper than {_MAX_DEPTH} levels" if depth > _MAX_DEPTH else f"larger than {MAX_NODES:,} nodes"
            )
            raise SchemaError(f"the schema is {limit}", pointer=_pointer(path), hint="use a smaller schema")
        outer = self._in_resource
        if "$id" in schema and path != "" and type(schema["$id"]) is str:
            self._in_resource = True
        converted = self._convert_keywords(schema, path, depth)
        self._in_resource = outer
        return converted

    def _convert_keywords(self, schema: Object, path: _SchemaPath, depth: int) -> JSON:
        out: Object = {}
        ref = schema.get("$ref")
        if ref is not None:
            if type(ref) is not str:
                raise SchemaError("$ref must be a string", pointer=_pointer(path))
            out["$ref"] = self._refer(ref, path)
            if self._cautious or (self._draft is not None and self._draft <= 7):
                self._drop_siblings(schema, path)
                return out
        for keyword, value in schema.items():
            handler = _HANDLERS.get(keyword)
            if handler is not None and handler(self, out, schema, keyword, value, path, depth) is False:
                return False
        if ref is not None:
            self._combined = self._combined or len(out) > 1
        elif "enum" not in out and "const" not in out:
            self._limit(out, schema)
        return out if _CHECKED.isdisjoint(out) or self._is_satisfiable(out, path) else False

    def _refuse(self, path: _SchemaPath, reason: str, child: _SchemaPath = None) -> bool:
        """Record that a schema accepts no value; `child` is the subschema that is the cause."""
        pointer = _pointer(path)
        inherited = self._causes.get(_pointer(child)) if child is not None else None
        self._causes[pointer] = inherited or (pointer, reason)
        return False

    def _leave(self, path: _SchemaPath, keyword: str) -> None:
        """Leave a keyword to the validator."""
        self._residual[Residual(_pointer(path), keyword)] = None

    def _is_satisfiable(self, out: Object, path: _SchemaPath) -> bool:
        """Return False if two keywords contradict each other; contradictions between schemas are left to the engine."""
        kind = out.get("type")
        for keyword, most, name in _PAIRS:
            if kind == name and most in out and out.get(keyword, 0) > out[most]:
                return self._refuse(path, f"{keyword} is greater than {most}")
        if kind in ("integer", "number") and "maximum" in out and out.get("minimum", out["maximum"]) > out["maximum"]:
            return self._refuse(path, "minimum is greater than maximum")
        if kind == "object" and "required" in out:
            properties = out.get("properties", {})
            for name in out["required"]:
                if properties.get(name) is False:
                    reason = f"the required property {name!r} accepts no value"
                    return self._refuse(path, reason, ((path, "properties"), name))
                if (
                    out.get("additionalProperties") is False
                    and name not in properties
                    and "patternProperties" not in out
                ):
                    return self._refuse(path, f"the required property {name!r} is not allowed")
        return True

    # limits

    def _limit(self, out: Object, schema: Object) -> None:
        """Add limits for the declared types."""
        kinds = schema.get("type")
        if kinds is None:
            self._close(out)
            return
        limits = self._limits
        for kind in (kinds,) if type(kinds) is str else kinds:
            if kind == "string":
                if limits.max_length is not None and out.keys().isdisjoint(_STRING_LIMITS):
                    self._add_limit(out, "maxLength", max(limits.max_length, out.get("minLength", 0)))
            elif kind == "array":
                if limits.max_items is not None and "maxItems" not in out and out.get("items", True) is not False:
                    least = max(out.get("minItems", 0), len(out.get("prefixItems", ())))
                    self._add_limit(out, "maxItems", max(limits.max_items, least))
            elif kind == "object":
                self._limit_object(out)
            elif kind == "integer" and limits.max_integer is not None:
                self._limit_integer(out, limits.max_integer)

    def _add_limit(self, out: Object, keyword: str, value: int) -> None:
        out[keyword] = value
        self._limited.append((out, keyword))

    def _close(self, out: Object) -> None:
        if self._limits.close_objects and out.get("properties") and "patternProperties" not in out:
            out.setdefault("additionalProperties", False)

    def _limit_object(self, out: Object) -> None:
        """Limit the undeclared properties. The engine does not count properties if a declared one is optional."""
        self._close(out)
        most = self._limits.max_properties
        if most is None or "maxProperties" in out or out.get("additionalProperties", True) is False:
            return
        required = out.get("required", ())
        if all(name in required for name in out.get("properties", ())):
            self._add_limit(out, "maxProperties", max(most + len(required), out.get("minProperties", 0)))

    def _limit_integer(self, out: Object, most: int) -> None:
        low, high = out.get("minimum", out.get("exclusiveMinimum")), out.get("maximum", out.get("exclusiveMaximum"))
        if low is None and (high is None or high >= -most):
            self._add_limit(out, "minimum", -most)
        if high is None and (low is None or low <= most):
            self._add_limit(out, "maximum", most)

    def _drop_many_limits(self, most: int) -> None:
        counts = [(out, keyword) for out, keyword in self._limited if keyword in ("maxItems", "maxProperties")]
        if len(counts) > most:
            for out, keyword in counts:
                del out[keyword]
            self._limited = [(out, keyword) for out, keyword in self._limited if keyword in out]

    def _adjust_limits(self) -> None:
        """Weaken limits where schemas are intersected, because the minimum may be declared in the other schema."""
        for out, keyword in self._limited:
            if keyword in ("maxLength", "maxItems"):
                out[keyword] = max(out[keyword], self._least)
            if (
                keyword == "maxProperties"
                or (keyword == "maxLength" and self._has_patterns)
                or (keyword in ("minimum", "maximum") and self._wide_numbers)
                or self._cautious
            ):
                del out[keyword]
        if len({value for _, _, value in self._multiples}) > 1:  # the engine's least common multiple may overflow
            for out, path, _ in self._multiples:
                out.pop("multipleOf", None)
                self._leave(path, "multipleOf")

    # references

    def _refer(self, ref: str, path: _SchemaPath) -> str:
        """Return a reference to the definition of the target, which is converted later."""
        pointer, target, in_resource = self._resolve(ref, path)
        name = self._names.get(pointer)
        if name is None:
            name = self._names[pointer] = _definition_name(pointer, self._defs, len(self._names))
            self._defs[name] = True  # reserves the name
            self._pending.append((name, pointer, target, in_resource))
        return f"#/$defs/{name}"

    def _resolve(self, ref: str, path: _SchemaPath) -> tuple[str, JSON, bool]:
        """Return the pointer and the schema of a target, and whether it is inside a schema with its own identifier."""
        if not self._in_resource and (ref == "#" or ref.startswith("#/")) and "%" not in ref:
            pointer = ref[1:]
        else:
            if self._identifiers is None:
                self._identifiers = Identifiers(self._document)
            found = self._identifiers.resolve(ref, _pointer(path))
            if found is None:
                raise _unresolved(ref, path)
            pointer = found
        target: JSON = self._document
        in_resource = False
        try:
            for segment in pointer.split("/")[1:]:
                if type(target) is list:
                    target = target[int(segment)]
                else:
                    target = target[segment.replace("~1", "/").replace("~0", "~")]
                    in_resource = in_resource or (type(target) is dict and type(target.get("$id")) is str)
        except (KeyError, IndexError, TypeError, ValueError):
            raise _unresolved(ref, path) from None
        return pointer, target, in_resource

    def _drop_siblings(self, schema: Object, path: _SchemaPath) -> None:
        """Leave the keywords beside a reference to the validator; up to draft 7 it ignores them, too."""
        if self._draft is None or self._draft > 7:
            for keyword in schema:
                if keyword in _HANDLERS:
                    self._leave(path, keyword)

    def _follow(self, ref: str) -> JSON:
        try:
            return self._resolve(ref, "")[1]
        except SchemaError:
            return None

    # keywords; each handler writes into `out`, and returns False if the schema accepts no value

    def _read_type(self, out: Object, schema: Object, keyword: str, value: JSON, path: _SchemaPath, depth: int) -> None:
        names = [value] if type(value) is str else value
        if type(names) is not list or not names or any(type(name) is not str or name not in TYPES for name in names):
            raise SchemaError(
                f"unknown type {value!r}", pointer=_pointer(path), hint=f"use one or more of {', '.join(TYPES)}"
            )
        out["type"] = value

    def _read_values(
        self, out: Object, schema: Object, keyword: str, value: JSON, path: _SchemaPath, depth: int
    ) -> JSON:
        """Keep `enum` and `const`, without numbers and characters that the engine cannot produce exactly."""
        if keyword == "const":
            if _is_exact(value):
                out["const"] = value
            else:
                self._leave(path, keyword)
            return True
        if type(value) is not list:
            raise SchemaError("enum must be a list", pointer=_pointer(path))
        if not value:
            return self._refuse(path, "enum is empty")
        exact = [one for one in value if _is_exact(one)]
        if exact:
            out["enum"] = exact
        else:
            self._leave(path, keyword)
        return True

    def _read_count(
        self, out: Object, schema: Object, keyword: str, value: JSON, path: _SchemaPath, depth: int
    ) -> None:
        if type(value) is float and value.is_integer():
            value = int(value)
        if type(value) is not int or value < 0:
            raise SchemaError(f"{keyword} must be a count, got {value!r}", pointer=_pointer(path))
        is_minimum = keyword.startswith("min")
        if is_minimum:
            self._least = max(self._least, value)
        if is_minimum and value > (_MAX_LENGTH if keyword == "minLength" else _MAX_MIN_COUNT):
            raise SchemaError(f"{keyword} {value:,} is too large to generate", pointer=_pointer(path))
        if keyword == "maxItems":
            most = _MAX_COUNT if self._items_left > 0 else 64
            value = min(value, max(most, _count(schema.get("minItems"))))
            self._items_left -= value
        elif keyword == "maxProperties":
            value = min(value, max(_MAX_COUNT, _count(schema.get("minProperties"))))
        elif keyword == "maxLength":
            value = min(value, _MAX_LENGTH)
        out[keyword] = value

    def _read_property_count(
        self, out: Object, schema: Object, keyword: str, value: JSON, path: _SchemaPath, depth: int
    ) -> None:
        """Keep a count of properties where the engine counts them: every declared property is required."""
        self._read_count(out, schema, keyword, value, path, depth)
        declared, required = _mapping(schema.get("properties")), _names(schema.get("required"))
        optional = declared.keys() - required
        closed = schema.get("additionalProperties") is False and not schema.get("patternProperties")
        is_trivial = value <= len(required) if keyword == "minProperties" else closed and value >= len(declared)
        if is_trivial:
            del out[keyword]
        elif self._cautious or (optional and not (closed and _is_one_of_many(schema, len(required)))):
            del out[keyword]
            self._leave(path, keyword)
        elif keyword == "minProperties" and value > len(required) + 1 and not closed:
            self._leave(path, keyword)  # the engine counts a repeated key twice

    def _read_number(
        self, out: Object, schema: Object, keyword: str, value: JSON, path: _SchemaPath, depth: int
    ) -> None:
        if type(value) is bool and keyword.startswith("exclusive"):  # draft 4
            limit = schema.get("minimum" if keyword == "exclusiveMinimum" else "maximum")
            if value and type(limit) in (int, float):
                out[keyword] = limit
            return
        if type(value) not in (int, float) or (type(value) is float and not isfinite(value)):
            raise SchemaError(f"{keyword} must be a number, got {value!r}", pointer=_pointer(path))
        if abs(value) >= _EXACT:
            self._wide_numbers = True
            self._leave(path, keyword)
            if abs(value) > _MAX_NUMBER:
                return
        out[keyword] = value

    def _read_multiple(
        self, out: Object, schema: Object, keyword: str, value: JSON, path: _SchemaPath, depth: int
    ) -> None:
        if type(value) not in (int, float) or not value > 0:
            raise SchemaError(f"multipleOf must be a positive number, got {value!r}", pointer=_pointer(path))
        if self._cautious or value > 1_000_000 or (value % 1 and len(repr(value)) > 8) or "e" in repr(value):
            self._leave(path, keyword)
            return
        if value % 1:
            self._leave(path, keyword)  # a validator may compute with binary fractions
        out[keyword] = value
        self._multiples.append((out, path, float(value)))

    def _read_pattern(
        self, out: Object, schema: Object, keyword: str, value: JSON, path: _SchemaPath, depth: int
    ) -> None:
        if type(value) is not str:
            raise SchemaError("pattern must be a string", pointer=_pointer(path))
        self._has_patterns = True
        if self._cautious or _UNSUPPORTED_PATTERN(value):
            self._leave(path, keyword)
        else:
            out[keyword] = value

    def _read_format(
        self, out: Object, schema: Object, keyword: str, value: JSON, path: _SchemaPath, depth: int
    ) -> None:
        """Keep the formats that the engine knows; most of its patterns are approximations."""
        if type(value) is not str or value not in ASSERTED or "string" not in type_names(schema):
            return
        self._has_patterns = True
        if value in _ENFORCED_FORMATS and not (self._cautious and "pattern" in schema):
            out[keyword] = value
        if value not in _EXACT_FORMATS:
            self._leave(path, keyword)

    def _read_required(
        self, out: Object, schema: Object, keyword: str, value: JSON, path: _SchemaPath, depth: int
    ) -> None:
        if type(value) is bool:  # draft 3
            return
        if type(value) is not list or any(type(name) is not str for name in value):
            raise SchemaError("required must be a list of names", pointer=_pointer(path))
        out[keyword] = value

    def _read_properties(
        self, out: Object, schema: Object, keyword: str, value: JSON, path: _SchemaPath, depth: int
    ) -> None:
        if type(value) is not dict:
            raise SchemaError(f"{keyword} must be an object", pointer=_pointer(path))
        inner = (path, keyword)
        convert = self._convert
        out[keyword] = {name: convert(one, (inner, name), depth + 1) for name, one in value.items()}

    def _read_pattern_properties(
        self, out: Object, schema: Object, keyword: str, value: JSON, path: _SchemaPath, depth: int
    ) -> None:
        if type(value) is not dict:
            raise SchemaError(f"{keyword} must be an object", pointer=_pointer(path))
        if (self._cautious and len(value) > 1) or any(_UNSUPPORTED_PATTERN(pattern) for pattern in value):
            self._leave(path, keyword)
            if "additionalProperties" in schema:
                self._leave(path, "additionalProperties")
                out["additionalProperties"] = True
            return
        self._read_properties(out, schema, keyword, value, path, depth)

    def _read_schema(
        self, out: Object, schema: Object, keyword: str, value: JSON, path: _SchemaPath, depth: int
    ) -> None:
        if keyword not in out:  # set if `patternProperties` or `propertyNames` replaced it
            out[keyword] = self._convert(value, (path, keyword), depth + 1)

    def _read_items(
        self, out: Object, schema: Object, keyword: str, value: JSON, path: _SchemaPath, depth: int
    ) -> None:
        """Convert `items`; a list of items is `prefixItems` since 2020-12, and `additionalItems` is `items`."""
        if keyword == "additionalItems":
            if type(schema.get("items")) is list:
                out["items"] = self._convert(value, (path, keyword), depth + 1)
        elif type(value) is list:
            inner = (path, keyword)
            out["prefixItems"] = [self._convert(one, (inner, index), depth + 1) for index, one in enumerate(value)]
            self._least = max(self._least, len(value))
        elif keyword == "items":
            out["items"] = self._convert(value, (path, keyword), depth + 1)
        else:
            raise SchemaError("prefixItems must be a list", pointer=_pointer(path))

    def _read_prefix_items(
        self, out: Object, schema: Object, keyword: str, value: JSON, path: _SchemaPath, depth: int
    ) -> None:
        if self._draft is None:
            self._read_items(out, schema, keyword, value, path, depth)

    def _read_all(self, out: Object, schema: Object, keyword: str, value: JSON, path: _SchemaPath, depth: int) -> JSON:
        branches = self._branches(keyword, value, path, depth)
        self._combined = True
        out.setdefault("allOf", []).extend(branch for branch in branches if branch is not True)
        if False not in branches:
            return True
        child = ((path, keyword), branches.index(False))
        return self._refuse(path, "a schema of allOf accepts no value", child)

    def _read_any(self, out: Object, schema: Object, keyword: str, value: JSON, path: _SchemaPath, depth: int) -> JSON:
        """Convert `anyOf`, and `oneOf` to it: exact if no value fits two branches."""
        branches = self._branches(keyword, value, path, depth)
        if keyword == "oneOf" and not branches_disjoint(value, type_names(schema), self._follow):
            self._leave(path, keyword)
        self._combined = self._combined or not schema.keys().isdisjoint(_CONSTRAINING)
        possible = [branch for branch in branches if branch is not False]
        if not possible:
            return self._refuse(path, f"no schema of {keyword} accepts a value", ((path, keyword), 0))
        if "anyOf" in out:
            self._combined = True
            out.setdefault("allOf", []).append({"anyOf": possible})
        else:
            out["anyOf"] = possible
        return True

    def _branches(self, keyword: str, value: JSON, path: _SchemaPath, depth: int) -> list[JSON]:
        if type(value) is not list or not value:
            raise SchemaError(f"{keyword} must be a list of schemas", pointer=_pointer(path))
        inner = (path, keyword)
        return [self._convert(one, (inner, index), depth + 1) for index, one in enumerate(value)]

    def _read_names(
        self, out: Object, schema: Object, keyword: str, value: JSON, path: _SchemaPath, depth: int
    ) -> None:
        """Rewrite `propertyNames` of a map to the properties that it allows, else leave it to the validator."""
        others = schema.get("additionalProperties", True)
        plain = type(value) is dict and schema.keys().isdisjoint(("properties", "patternProperties", "required"))
        rule = set(value) - {"type"} if plain and value.get("type", "string") == "string" else set()
        if not self._cautious and rule == {"pattern"} and not _UNSUPPORTED_PATTERN(str(value["pattern"])):
            out["patternProperties"] = {
                value["pattern"]: self._convert(others, (path, "additionalProperties"), depth + 1)
            }
            out["additionalProperties"] = False
        elif value is not True:
            self._leave(path, keyword)

    def _read_unevaluated(
        self, out: Object, schema: Object, keyword: str, value: JSON, path: _SchemaPath, depth: int
    ) -> None:
        """Rewrite to `additionalProperties` where no other schema evaluates properties."""
        if value is True or value == {}:
            return
        if value is False and keyword == "unevaluatedProperties" and schema.keys().isdisjoint(_EVALUATING):
            out["additionalProperties"] = False
        else:
            self._leave(path, keyword)

    def _read_unsupported(
        self, out: Object, schema: Object, keyword: str, value: JSON, path: _SchemaPath, depth: int
    ) -> None:
        if (keyword, value) != ("uniqueItems", False):
            self._leave(path, keyword)


def _pointer(path: _SchemaPath) -> str:
    segments: list[str | int] = []
    while type(path) is tuple:
        path, segment = path
        segments.append(segment)
    return child_pointer(path, *reversed(segments)) if segments else str(path)


def _draft_number(document: JSON) -> int | None:
    """Return 3 to 7 for an old draft, 8 for 2019-09, None for 2020-12 and without `$schema`."""
    declared = document.get("$schema") if type(document) is dict else None
    if type(declared) is str and _OLD_2019 in declared:
        return 8
    return old_draft_number(document)


def _definition_name(pointer: str, taken: Object, number: int) -> str:
    """Return the last segment of a pointer if it is a plain name, for readable schemas, else a number."""
    name = pointer.rpartition("/")[2]
    return name if name.isidentifier() and name.isascii() and name not in taken else f"definition{number}"


def _unresolved(ref: str, path: _SchemaPath) -> SchemaError:
    hint = "define the target in the same document"
    return SchemaError(f"the reference {ref[:200]!r} cannot be resolved", pointer=_pointer(path), hint=hint)


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


_KeywordReader = Callable[[_DecodingConverter, Object, Object, str, JSON, _SchemaPath, int], JSON]
_HANDLERS: dict[str, _KeywordReader] = {
    "type": _DecodingConverter._read_type,
    "enum": _DecodingConverter._read_values,
    "const": _DecodingConverter._read_values,
    **dict.fromkeys(("minLength", "maxLength", "minItems", "maxItems"), _DecodingConverter._read_count),
    **dict.fromkeys(("minProperties", "maxProperties"), _DecodingConverter._read_property_count),
    **dict.fromkeys(("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"), _DecodingConverter._read_number),
    "multipleOf": _DecodingConverter._read_multiple,
    "pattern": _DecodingConverter._read_pattern,
    "format": _DecodingConverter._read_format,
    "required": _DecodingConverter._read_required,
    "properties": _DecodingConverter._read_properties,
    "patternProperties": _DecodingConverter._read_pattern_properties,
    "additionalProperties": _DecodingConverter._read_schema,
    "items": _DecodingConverter._read_items,
    "additionalItems": _DecodingConverter._read_items,
    "prefixItems": _DecodingConverter._read_prefix_items,
    "allOf": _DecodingConverter._read_all,
    "anyOf": _DecodingConverter._read_any,
    "oneOf": _DecodingConverter._read_any,
    "propertyNames": _DecodingConverter._read_names,
    "unevaluatedProperties": _DecodingConverter._read_unevaluated,
    "unevaluatedItems": _DecodingConverter._read_unevaluated,
    **dict.fromkeys(
        "not if dependentRequired dependentSchemas dependencies contains uniqueItems $dynamicRef $recursiveRef".split(),
        _DecodingConverter._read_unsupported,
    ),
}
_PAIRS = (
    ("minLength", "maxLength", "string"),
    ("minItems", "maxItems", "array"),
    ("minProperties", "maxProperties", "object"),
)
_CHECKED = frozenset({"maxLength", "maxItems", "maxProperties", "maximum", "required"})
_STRING_LIMITS = frozenset({"maxLength", "pattern", "format"})
_EVALUATING = frozenset({*_IN_PLACE, "if", "dependentSchemas", "dependencies", "additionalProperties"})
_CONSTRAINING = frozenset(_HANDLERS) - {"anyOf", "oneOf"} | {"$ref"}
