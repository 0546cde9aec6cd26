"""Translate OpenAPI's `nullable: true` into JSON Schema.

Only the keyword counts: a property named `nullable`, or the same key in an `enum` or a `default`, is data. The possible
targets of references stay in place: types and enums are extended there, and only combinators move, into an `anyOf` with
null.
"""

from __future__ import annotations

from ..ir.pointer import JSON, Object
from .keywords import DATA, MAPS

__all__ = ["replace_nullable"]

_COMBINATORS = ("$ref", "$dynamicRef", "$recursiveRef", "allOf", "anyOf", "oneOf", "not", "if", "then", "else")


def replace_nullable(schema: JSON) -> JSON:
    """Return a copy in which `nullable: true` is replaced by a null type.

    >>> replace_nullable({"type": "string", "nullable": True})
    {'type': ['string', 'null']}
    """
    if type(schema) is list:
        return [replace_nullable(item) for item in schema]
    if type(schema) is not dict:
        return schema
    out: Object = {}
    for keyword, value in schema.items():
        if keyword in DATA:
            out[keyword] = value
        elif keyword in MAPS and type(value) is dict:
            out[keyword] = {key: replace_nullable(item) for key, item in value.items()}
        else:
            out[keyword] = replace_nullable(value)
    return _allow_null(out) if out.get("nullable") is True else out


def _allow_null(schema: Object) -> Object:
    """Extend a schema by null in place, and remove its `nullable`."""
    del schema["nullable"]
    kinds = schema.get("type")
    if kinds is not None:
        types = kinds if type(kinds) is list else [kinds]
        schema["type"] = types if "null" in types else [*types, "null"]
    if "const" in schema:
        schema["enum"] = [schema.pop("const")]
    if type(schema.get("enum")) is list and None not in schema["enum"]:
        schema["enum"] = [*schema["enum"], None]
    combined = {keyword: schema.pop(keyword) for keyword in _COMBINATORS if keyword in schema}
    if combined:
        schema["anyOf"] = [combined, {"type": "null"}]
    return schema
