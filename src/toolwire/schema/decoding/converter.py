"""Convert a JSON Schema for constrained decoding, and list the keywords that the engine does not enforce.

    decoded = decoding_schema(schema)
    decoded.schema      # in JSON Schema 2020-12; llguidance 1.9 enforces every keyword of it
    decoded.residual    # (pointer, keyword) of the keywords that a validator has to check after generation

References of any draft become definitions of the converted schema.

Every value of `decoded.schema` is valid for `schema` without the residual keywords. The converse does not hold: limits
on lengths keep a model that repeats itself from running until its token limit. The order of properties is the order in
which they are declared: engines generate objects in this order, which is no loss, because any order is valid.

The conversion is one pass, whose cost is linear in the schema, because it runs before each compilation.
"""

from __future__ import annotations

from collections.abc import Callable

from ...ir.errors import SchemaError
from ...ir.pointer import JSON, Object
from ...ir.value import Value
from ..keywords import Identifiers, old_draft_number
from .assertions import ASSERTIONS, branches_disjoint, find_unsupported_syntax, type_names
from .limits import DEFAULT_LIMITS, AddedLimits, DecodingLimits, DecodingState, Residual, SchemaPath, schema_pointer


class DecodingReferences:
    """The definitions of one document, by name, and the targets that are not converted yet.

    `pending` has the name, the pointer and the schema of a target, and whether it is inside a schema with its own
    identifier.
    """

    __slots__ = ("_document", "_identifiers", "_names", "definitions", "pending")

    def __init__(self, document: JSON) -> None:
        self._document = document
        self._identifiers: Identifiers | None = None
        self._names: dict[str, str] = {}  # pointer of a definition → its name
        self.definitions: Object = {}
        self.pending: list[tuple[str, str, JSON, bool]] = []

    def refer(self, ref: str, path: SchemaPath, *, in_resource: bool) -> str:
        """Return a reference to the definition of the target, which is converted later."""
        pointer, target, target_in_resource = self.resolve(ref, path, in_resource=in_resource)
        name = self._names.get(pointer)
        if name is None:
            name = self._names[pointer] = _definition_name(pointer, self.definitions, len(self._names))
            self.definitions[name] = True  # reserves the name
            self.pending.append((name, pointer, target, target_in_resource))
        return f"#/$defs/{name}"

    def resolve(self, ref: str, path: SchemaPath, *, in_resource: bool) -> tuple[str, JSON, bool]:
        """Return the pointer and the schema of a target, and whether it is inside a schema with its own identifier.

        `in_resource`: the reference itself is inside such a schema. SchemaError if it cannot be resolved.
        """
        if not in_resource and (ref == "#" or ref.startswith("#/")) and "%" not in ref:
            pointer = ref[1:]
        else:
            if self._identifiers is None:
                self._identifiers = Identifiers(self._document)
            found = self._identifiers.resolve(ref, schema_pointer(path))
            if found is None:
                raise _unresolved(ref, path)
            pointer = found
        target: JSON = self._document
        target_in_resource = False
        try:
            for segment in pointer.split("/")[1:]:
                if type(target) is list:
                    target = target[int(segment)]
                else:
                    target = target[segment.replace("~1", "/").replace("~0", "~")]
                    target_in_resource = target_in_resource or (type(target) is dict and type(target.get("$id")) is str)
        except (KeyError, IndexError, TypeError, ValueError):
            raise _unresolved(ref, path) from None
        return pointer, target, target_in_resource


def _definition_name(pointer: str, taken: Object, number: int) -> str:
    """Return the last segment of a pointer if it is a plain name, for readable schemas, else a number."""
    name = pointer.rpartition("/")[2]
    return name if name.isidentifier() and name.isascii() and name not in taken else f"definition{number}"


def _unresolved(ref: str, path: SchemaPath) -> SchemaError:
    hint = "define the target in the same document"
    return SchemaError(f"the reference {ref[:200]!r} cannot be resolved", pointer=schema_pointer(path), hint=hint)


class DecodingSchema(Value, frozen=True):
    """A schema for constrained decoding, and the keywords of the original that a validator has to check."""

    schema: Object
    residual: tuple[Residual, ...] = ()


MAX_NODES = 20_000  # the engine compiles each of them; not measured
"""Subschemas of one document."""
_MAX_DEPTH = 56  # the engine reads at most 128 levels of JSON, two for each level of properties
_IN_PLACE = ("anyOf", "oneOf", "allOf", "$ref")
_OLD_2019 = "draft/2019-09"


def decoding_schema(schema: JSON, *, limits: DecodingLimits = DEFAULT_LIMITS, cautious: bool = False) -> DecodingSchema:
    """Convert a schema; SchemaError with a pointer if it is malformed, too large, or accepts no value.

    `cautious` also removes keywords that the engine supports only in some combinations. Use it after the engine has
    refused the first conversion.
    """
    if type(schema) is not dict and type(schema) is not bool:
        raise SchemaError(f"a schema must be an object or a boolean, got {type(schema).__name__}")
    return _DecodingConverter(schema, limits, cautious=cautious).convert()


class _DecodingConverter(DecodingState):
    """One conversion, with the readers of keywords that have subschemas."""

    __slots__ = ("_combined", "_depth", "_document", "_draft", "_in_resource", "_limits", "_nodes", "_references")

    def __init__(self, document: JSON, limits: DecodingLimits, *, cautious: bool) -> None:
        super().__init__(cautious=cautious)
        self._document = document
        self._limits = AddedLimits(limits)
        self._references = DecodingReferences(document)
        self._draft = _draft_number(document)
        self._nodes = 0
        self._depth = 0  # schemas around the current one
        self._in_resource = False  # inside a schema with its own identifier
        self._combined = False  # schemas are intersected somewhere

    def convert(self) -> DecodingSchema:
        """Convert the document with its definitions, and add limits; SchemaError if it accepts no value.

        Where schemas are intersected, added limits and `multipleOf` are weakened afterwards: the other schema may need
        more.
        """
        root = self._convert(self._document, "")
        if root is False:
            pointer, reason = self.causes[""]
            raise SchemaError(
                f"the schema accepts no value: {reason}", pointer=pointer, hint="correct the schema at this pointer"
            )
        definitions, pending = self._references.definitions, self._references.pending
        while pending:
            name, pointer, schema, self._in_resource = pending.pop()
            definitions[name] = self._convert(schema, pointer)
        self._limits.drop_many()
        if self._combined:
            self._limits.weaken(
                self.least,
                has_patterns=self.has_patterns,
                has_wide_numbers=self.has_wide_numbers,
                cautious=self.cautious,
            )
            self._drop_multiples()
        schema = {} if root is True else root
        if definitions:
            schema = {**schema, "$defs": definitions}
        return DecodingSchema(schema, tuple(self.residual))

    def _drop_multiples(self) -> None:
        """Drop `multipleOf` where schemas are intersected: the engine's least common multiple may overflow."""
        if len({value for _, _, value in self.multiples}) > 1:
            for out, path, _ in self.multiples:
                out.pop("multipleOf", None)
                self.leave(path, "multipleOf")

    # one schema

    def _convert(self, schema: JSON, path: SchemaPath) -> JSON:
        """Return the converted schema, or False if it accepts no value; SchemaError if it is invalid or too large."""
        if schema is True:
            return True
        if schema is False:
            return self.refuse(path, "it is false")
        if type(schema) is not dict:
            raise SchemaError("a schema must be an object or a boolean", pointer=schema_pointer(path))
        self._nodes += 1
        if self._nodes > MAX_NODES or self._depth > _MAX_DEPTH:
            is_deep = self._depth > _MAX_DEPTH
            limit = f"nested deeper than {_MAX_DEPTH} levels" if is_deep else f"larger than {MAX_NODES:,} nodes"
            raise SchemaError(f"the schema is {limit}", pointer=schema_pointer(path), hint="use a smaller schema")
        outer = self._in_resource
        if "$id" in schema and path != "" and type(schema["$id"]) is str:
            self._in_resource = True
        self._depth += 1
        converted = self._convert_keywords(schema, path)
        self._depth -= 1
        self._in_resource = outer
        return converted

    def _convert_keywords(self, schema: Object, path: SchemaPath) -> JSON:
        """Convert a schema keyword by keyword, and add limits; return False if it accepts no value.

        Up to draft 7, and for a cautious conversion, keywords beside `$ref` are dropped. SchemaError if that is no
        string.
        """
        out: Object = {}
        ref = schema.get("$ref")
        if ref is not None:
            if type(ref) is not str:
                raise SchemaError("$ref must be a string", pointer=schema_pointer(path))
            out["$ref"] = self._references.refer(ref, path, in_resource=self._in_resource)
            if self.cautious or (self._draft is not None and self._draft <= 7):
                self._drop_siblings(schema, path)
                return out
        for keyword, value in schema.items():
            reader = _READERS.get(keyword)
            if reader is not None and reader(self, out, schema, keyword, value, path) is False:
                return False
        if ref is not None:
            self._combined = self._combined or len(out) > 1
        elif "enum" not in out and "const" not in out:
            self._limits.add(out, schema)
        return out if _CHECKED.isdisjoint(out) or self._is_satisfiable(out, path) else False

    def _is_satisfiable(self, out: Object, path: SchemaPath) -> bool:
        """Return False, and record the cause, if two keywords contradict each other; the engine compares schemas."""
        kind = out.get("type")
        for keyword, most, name in _PAIRS:
            if kind == name and most in out and out.get(keyword, 0) > out[most]:
                return self.refuse(path, f"{keyword} is greater than {most}")
        if kind in ("integer", "number") and "maximum" in out and out.get("minimum", out["maximum"]) > out["maximum"]:
            return self.refuse(path, "minimum is greater than maximum")
        if kind == "object" and "required" in out:
            properties = out.get("properties", {})
            for name in out["required"]:
                if properties.get(name) is False:
                    reason = f"the required property {name!r} accepts no value"
                    return self.refuse(path, reason, ((path, "properties"), name))
                if (
                    out.get("additionalProperties") is False
                    and name not in properties
                    and "patternProperties" not in out
                ):
                    return self.refuse(path, f"the required property {name!r} is not allowed")
        return True

    def _drop_siblings(self, schema: Object, path: SchemaPath) -> None:
        """Leave the keywords beside a reference to the validator; up to draft 7 it ignores them, too."""
        if self._draft is None or self._draft > 7:
            for keyword in schema:
                if keyword in _READERS:
                    self.leave(path, keyword)

    def _follow(self, ref: str) -> JSON:
        try:
            return self._references.resolve(ref, "", in_resource=self._in_resource)[1]
        except SchemaError:
            return None

    # keywords with subschemas; each reader writes into `out`, and returns False if the schema accepts no value

    def _read_properties(self, out: Object, schema: Object, keyword: str, value: JSON, path: SchemaPath) -> None:
        if type(value) is not dict:
            raise SchemaError(f"{keyword} must be an object", pointer=schema_pointer(path))
        inner = (path, keyword)
        convert = self._convert
        out[keyword] = {name: convert(part, (inner, name)) for name, part in value.items()}

    def _read_pattern_properties(
        self, out: Object, schema: Object, keyword: str, value: JSON, path: SchemaPath
    ) -> None:
        """Convert `patternProperties`, or leave them to the validator if the engine does not support a pattern.

        Then `additionalProperties` is left to it, too, because it depends on the patterns. SchemaError if it is no
        object.
        """
        if type(value) is not dict:
            raise SchemaError(f"{keyword} must be an object", pointer=schema_pointer(path))
        if (self.cautious and len(value) > 1) or any(find_unsupported_syntax(pattern) for pattern in value):
            self.leave(path, keyword)
            if "additionalProperties" in schema:
                self.leave(path, "additionalProperties")
                out["additionalProperties"] = True
            return
        self._read_properties(out, schema, keyword, value, path)

    def _read_schema(self, out: Object, schema: Object, keyword: str, value: JSON, path: SchemaPath) -> None:
        if keyword not in out:  # set if `patternProperties` or `propertyNames` replaced it
            out[keyword] = self._convert(value, (path, keyword))

    def _read_items(self, out: Object, schema: Object, keyword: str, value: JSON, path: SchemaPath) -> None:
        """Convert `items`, `prefixItems` and `additionalItems` to the form of 2020-12.

        There, a list of items is `prefixItems`, and `additionalItems` is `items`. SchemaError if `prefixItems` is no
        list.
        """
        if keyword == "additionalItems":
            if type(schema.get("items")) is list:
                out["items"] = self._convert(value, (path, keyword))
        elif type(value) is list:
            inner = (path, keyword)
            out["prefixItems"] = [self._convert(item, (inner, index)) for index, item in enumerate(value)]
            self.least = max(self.least, len(value))
        elif keyword == "items":
            out["items"] = self._convert(value, (path, keyword))
        else:
            raise SchemaError("prefixItems must be a list", pointer=schema_pointer(path))

    def _read_prefix_items(self, out: Object, schema: Object, keyword: str, value: JSON, path: SchemaPath) -> None:
        if self._draft is None:
            self._read_items(out, schema, keyword, value, path)

    def _read_all(self, out: Object, schema: Object, keyword: str, value: JSON, path: SchemaPath) -> JSON:
        branches = self._branches(keyword, value, path)
        self._combined = True
        out.setdefault("allOf", []).extend(branch for branch in branches if branch is not True)
        if False not in branches:
            return True
        child = ((path, keyword), branches.index(False))
        return self.refuse(path, "a schema of allOf accepts no value", child)

    def _read_any(self, out: Object, schema: Object, keyword: str, value: JSON, path: SchemaPath) -> JSON:
        """Convert `anyOf`, or `oneOf` to it, exact if no value fits two branches; False if no branch is possible."""
        branches = self._branches(keyword, value, path)
        if keyword == "oneOf" and not branches_disjoint(value, type_names(schema), self._follow):
            self.leave(path, keyword)
        self._combined = self._combined or not schema.keys().isdisjoint(_CONSTRAINING)
        possible = [branch for branch in branches if branch is not False]
        if not possible:
            return self.refuse(path, f"no schema of {keyword} accepts a value", ((path, keyword), 0))
        if "anyOf" in out:
            self._combined = True
            out.setdefault("allOf", []).append({"anyOf": possible})
        else:
            out["anyOf"] = possible
        return True

    def _branches(self, keyword: str, value: JSON, path: SchemaPath) -> list[JSON]:
        if type(value) is not list or not value:
            raise SchemaError(f"{keyword} must be a list of schemas", pointer=schema_pointer(path))
        inner = (path, keyword)
        return [self._convert(part, (inner, index)) for index, part in enumerate(value)]

    def _read_names(self, out: Object, schema: Object, keyword: str, value: JSON, path: SchemaPath) -> None:
        """Rewrite `propertyNames` of a map to the properties that it allows, else leave it to the validator."""
        others = schema.get("additionalProperties", True)
        plain = type(value) is dict and schema.keys().isdisjoint(("properties", "patternProperties", "required"))
        rule = set(value) - {"type"} if plain and value.get("type", "string") == "string" else set()
        if not self.cautious and rule == {"pattern"} and not find_unsupported_syntax(str(value["pattern"])):
            out["patternProperties"] = {value["pattern"]: self._convert(others, (path, "additionalProperties"))}
            out["additionalProperties"] = False
        elif value is not True:
            self.leave(path, keyword)

    def _read_unevaluated(self, out: Object, schema: Object, keyword: str, value: JSON, path: SchemaPath) -> None:
        """Rewrite to `additionalProperties` where no other schema evaluates properties."""
        if value is True or value == {}:
            return
        if value is False and keyword == "unevaluatedProperties" and schema.keys().isdisjoint(_EVALUATING):
            out["additionalProperties"] = False
        else:
            self.leave(path, keyword)

    def _read_unsupported(self, out: Object, schema: Object, keyword: str, value: JSON, path: SchemaPath) -> None:
        if (keyword, value) != ("uniqueItems", False):
            self.leave(path, keyword)


def _draft_number(document: JSON) -> int | None:
    """Return 3 to 7 for an old draft, 8 for 2019-09, None for 2020-12 and without `$schema`."""
    declared = document.get("$schema") if type(document) is dict else None
    if type(declared) is str and _OLD_2019 in declared:
        return 8
    return old_draft_number(document)


_KeywordReader = Callable[[_DecodingConverter, Object, Object, str, JSON, SchemaPath], JSON]
_READERS: dict[str, _KeywordReader] = {
    **ASSERTIONS,
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
_EVALUATING = frozenset({*_IN_PLACE, "if", "dependentSchemas", "dependencies", "additionalProperties"})
_CONSTRAINING = frozenset(_READERS) - {"anyOf", "oneOf"} | {"$ref"}
