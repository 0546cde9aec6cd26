"""JSON Schema subsets of the providers, written down independently of `toolwire.schema`, which they judge."""

from __future__ import annotations

import re
from collections.abc import Iterator

from ...ir.pointer import JSON, Object, child_pointer
from ..findings import Hit
from .documents import short_repr, texts_in

_MAPS = ("properties", "$defs", "definitions", "patternProperties", "dependentSchemas", "defs")
_LISTS = ("anyOf", "oneOf", "allOf", "prefixItems")
_SINGLE = (
    "items",
    "additionalProperties",
    "not",
    "if",
    "then",
    "else",
    "contains",
    "propertyNames",
    "unevaluatedProperties",
    "unevaluatedItems",
)
_FORMATS = frozenset({"date-time", "time", "date", "duration", "email", "hostname", "ipv4", "ipv6", "uuid"})
_OPENAI_REJECTED = (
    "allOf oneOf not if then else dependentRequired dependentSchemas patternProperties propertyNames minProperties "
    "maxProperties unevaluatedProperties unevaluatedItems contains minContains maxContains uniqueItems prefixItems"
).split()
_ANTHROPIC_REJECTED = (
    "oneOf not if then else dependentRequired dependentSchemas patternProperties propertyNames minProperties "
    "maxProperties unevaluatedProperties unevaluatedItems contains minContains maxContains uniqueItems prefixItems "
    "minimum maximum exclusiveMinimum exclusiveMaximum multipleOf minLength maxLength maxItems"
).split()
_LOOKAROUND = re.compile(r"\(\?(?:=|!|<=|<!)")
_OPENAPI_KEYWORDS = frozenset(
    """type format title description nullable enum maxItems minItems properties required minProperties maxProperties
    minLength maxLength pattern example anyOf propertyOrdering default items minimum maximum""".split()
)
_VERTEX_KEYWORDS = _OPENAPI_KEYWORDS | {"additionalProperties", "ref", "defs", "$ref", "$defs"}
_OPENAPI_TYPES = frozenset({"STRING", "NUMBER", "INTEGER", "BOOLEAN", "ARRAY", "OBJECT", "NULL"})
_DEPTH = 200  # below Python's limit of recursion; far beyond the depth that any provider accepts
_DEFINITION = re.compile(r"/(?:\$defs|definitions)/[^/]+")


def subschemas(schema: JSON, at: str = "", depth: int = 0) -> Iterator[tuple[str, Object]]:
    """Yield every subschema with its pointer, the outer before the inner, down to `_DEPTH`."""
    if type(schema) is not dict or depth > _DEPTH:
        return
    yield at, schema
    for key in _MAPS:
        inner = schema.get(key)
        for name, one in inner.items() if type(inner) is dict else ():
            yield from subschemas(one, child_pointer(at, key, name), depth + 1)
    for key in _LISTS:
        inner = schema.get(key)
        for index, one in enumerate(inner) if type(inner) is list else ():
            yield from subschemas(one, child_pointer(at, key, index), depth + 1)
    for key in _SINGLE:
        yield from subschemas(schema.get(key), child_pointer(at, key), depth + 1)


def _types(node: Object) -> list[JSON]:
    kind = node.get("type")
    return kind if type(kind) is list else [kind]


def root_type(schema: JSON) -> Iterator[Hit]:
    if type(schema) is dict and schema.get("type") != "object":
        where = "/type" if "type" in schema else ""
        yield Hit(where, f'the root must have "type": "object", got {short_repr(schema.get("type"))}')


def root_combinators(schema: JSON, keywords: tuple[str, ...]) -> Iterator[Hit]:
    for keyword in keywords:
        if type(schema) is dict and keyword in schema:
            yield Hit(f"/{keyword}", f"{keyword} is not allowed at the root of a schema")


def openai_strict(schema: JSON) -> Iterator[Hit]:
    """Report violations of strict mode: open objects, optional properties, keywords outside of the subset, limits."""
    properties = 0
    for at, node in subschemas(schema):
        yield from _strict_object(at, node, all_required=True)
        yield from _rejected_keywords(at, node, _OPENAI_REJECTED)
        yield from _strict_scalars(at, node, _FORMATS)
        if "$ref" in node and len(node) > 1 and set(node) - {"$ref", "$defs", "definitions"}:
            yield Hit(at, "$ref must not have other keywords beside it")
        if "array" in _types(node) and type(node.get("items")) is not dict:
            yield Hit(at, "an array needs items")
        inner = node.get("properties")
        properties += len(inner) if type(inner) is dict else 0
    if properties > 5000:
        yield Hit("", f"a schema may have at most 5000 properties, got {properties}")


def anthropic_strict(schema: JSON) -> Iterator[Hit]:
    """Report violations of the subset for strict tools and structured outputs, recursion included."""
    for at, node in subschemas(schema):
        yield from _strict_object(at, node, all_required=False)
        yield from _rejected_keywords(at, node, _ANTHROPIC_REJECTED)
        yield from _strict_scalars(at, node, _FORMATS | {"uri"})
        if node.get("minItems") not in (None, 0, 1):
            yield Hit(f"{at}/minItems", f"minItems must be 0 or 1, got {node['minItems']!r}")
        for index, value in enumerate(node["enum"] if type(node.get("enum")) is list else ()):
            if type(value) in (dict, list):
                yield Hit(f"{at}/enum/{index}", "enum values must be strings, numbers, booleans or null")
    yield from _recursion(schema)


def _strict_object(at: str, node: Object, *, all_required: bool) -> Iterator[Hit]:
    """Report an object that allows other properties or, with `all_required`, does not require all."""
    properties = node.get("properties")
    if "object" not in _types(node) and type(properties) is not dict:
        return
    if node.get("additionalProperties") is not False:
        where = f"{at}/additionalProperties" if "additionalProperties" in node else at
        yield Hit(where, '"additionalProperties" must be false')
    required = node.get("required")
    missing = set(properties if type(properties) is dict else ()) - set(texts_in(required))
    if all_required and missing:
        yield Hit(
            f"{at}/required" if required else at,
            f"`required` must list every property, {short_repr(min(missing))} is missing",
        )


def _rejected_keywords(at: str, node: Object, rejected: list[str]) -> Iterator[Hit]:
    for keyword in rejected:
        if keyword in node:
            yield Hit(child_pointer(at, keyword), f"{keyword} is not supported")


def _strict_scalars(at: str, node: Object, formats: frozenset[str]) -> Iterator[Hit]:
    if "format" in node and str(node["format"]) not in formats:
        yield Hit(f"{at}/format", f"the format {node['format']!r} is not supported")
    pattern = node.get("pattern")
    if type(pattern) is str and _LOOKAROUND.search(pattern):
        yield Hit(f"{at}/pattern", "a pattern must not use lookaround")


def _recursion(schema: JSON) -> Iterator[Hit]:
    """Report the first definition that contains a reference to itself, directly or through others.

    A depth-first search with its own stack, because a schema may be nested deeply.
    """
    targets: dict[str, set[str]] = {}
    for at, node in subschemas(schema):
        definition = _DEFINITION.match(at)
        reference = node.get("$ref")
        if type(reference) is str:
            targets.setdefault(definition[0] if definition else "", set()).add(reference[1:])
    open_targets: dict[str, bool] = {}  # True while the definition is on the path of the search
    for start, first in targets.items():
        path = [(start, iter(first))] if start not in open_targets else []
        open_targets.setdefault(start, bool(path))
        while path:
            at, references = path[-1]
            target = next(references, None)
            if target is None:
                open_targets[at] = False
                path.pop()
            elif open_targets.get(target):
                yield Hit(target, "a schema must not be recursive")
                return
            elif target in targets and target not in open_targets:
                open_targets[target] = True
                path.append((target, iter(targets[target])))


def anthropic_property_names(schema: JSON) -> Iterator[Hit]:
    """Report property names that Anthropic does not accept."""
    legal = re.compile(r"[a-zA-Z0-9_.-]{1,64}").fullmatch
    for at, node in subschemas(schema):
        properties = node.get("properties")
        for name in properties if type(properties) is dict else ():
            if not legal(name):
                yield Hit(
                    f"{at}/properties",
                    f"property names may have letters, digits, _ . -, at most 64, got {short_repr(name)}",
                )


def count_parameters(schema: JSON) -> tuple[int, int]:
    """Return the number of optional parameters and of parameters with a union type."""
    optional = unions = 0
    for _, node in subschemas(schema):
        properties = node.get("properties")
        if type(properties) is dict:
            optional += len(set(properties) - set(texts_in(node.get("required"))))
        unions += "anyOf" in node or type(node.get("type")) is list
    return optional, unions


def gemini_parameters(schema: JSON, *, vertex: bool) -> Iterator[Hit]:
    """Report violations of the OpenAPI subset of `parameters` and `responseSchema`."""
    known = _VERTEX_KEYWORDS if vertex else _OPENAPI_KEYWORDS
    for at, node in subschemas(schema):
        for keyword in node:
            if _camel(keyword) not in known:
                yield Hit(child_pointer(at, keyword), f"{keyword} is not a field of a schema")
        yield from _openapi_type(at, node)
        yield from _openapi_enum(at, node)
        yield from _openapi_object(at, node)


def _camel(key: str) -> str:
    first, *rest = key.split("_")
    return first + "".join(part.capitalize() for part in rest)


def _openapi_type(at: str, node: Object) -> Iterator[Hit]:
    kind = node.get("type")
    if "type" in node and (type(kind) is not str or kind.upper() not in _OPENAPI_TYPES):
        yield Hit(f"{at}/type", f"type must be one of {', '.join(sorted(_OPENAPI_TYPES))}, got {short_repr(kind)}")
    elif type(kind) is str and kind.upper() == "ARRAY" and type(node.get("items")) is not dict:
        yield Hit(at, "an array needs items")


def _openapi_enum(at: str, node: Object) -> Iterator[Hit]:
    """Report an enum of a type that has none, and values that are not non-empty strings."""
    values = node.get("enum")
    if type(values) is not list:
        return
    if str(node.get("type", "STRING")).upper() not in ("STRING", "INTEGER", "NUMBER"):
        yield Hit(f"{at}/enum", f"enum is only allowed for strings, not for {node.get('type')!r}")
    for index, value in enumerate(values):
        if type(value) is not str or not value:
            yield Hit(f"{at}/enum/{index}", f"enum values must be non-empty strings, got {short_repr(value)}")


def _openapi_object(at: str, node: Object) -> Iterator[Hit]:
    properties = node.get("properties")
    names = set(properties) if type(properties) is dict else set()
    required = node.get("required")
    for index, name in enumerate(required if type(required) is list else ()):
        if str(name) not in names:
            yield Hit(f"{at}/required/{index}", f"the required property {short_repr(name)} is not defined")


def gemini_json_schema(schema: JSON) -> Iterator[Hit]:
    """Report keywords beside `$ref` below the root: `parametersJsonSchema` and `responseJsonSchema` reject them."""
    for at, node in subschemas(schema):
        beside = sorted(key for key in node if not key.startswith("$") and key not in ("description", "default"))
        if "$ref" in node and beside and at:
            yield Hit(at, f"$ref allows only keywords that start with $ beside it, got {beside[0]}")
