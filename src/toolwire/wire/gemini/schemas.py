"""Convert Gemini's schema language, a subset of OpenAPI 3.0, to JSON Schema.

The fields `parameters`, `response` and `responseSchema` hold a protobuf message, the others (`parametersJsonSchema`,
`responseJsonSchema`) hold JSON Schema. The differences:

    {"type": "INTEGER", "nullable": true}                       {"type": ["integer", "null"]}
    {"type": "INTEGER", "enum": ["1", "2"]}                     {"type": "integer", "enum": [1, 2]}
    {"minItems": "1"}  (int64 is a string in protobuf JSON)     {"minItems": 1}
    {"propertyOrdering": ["b", "a"], "properties": …}           properties in this order
    {"example": 1}, {"ref": "#/defs/A"}, {"any_of": […]}        {"examples": [1]}, {"$ref": "#/$defs/A"}, {"anyOf": […]}

The conversion is not invertible: types may be in either case, and both spellings of a field are accepted. The codec
therefore keeps the original in the form of its owner, and writes it back if its conversion still equals the canonical
schema. A changed schema is written to the field for JSON Schema.
"""

from __future__ import annotations

from ...ir.pointer import JSON, Object, join

_TYPES = ("type_unspecified", "string", "number", "integer", "boolean", "array", "object", "null")
"""Types, indexed by their numbers in the protobuf enum."""
_FIELDS = {
    "any_of": "anyOf",
    "min_items": "minItems",
    "max_items": "maxItems",
    "min_length": "minLength",
    "max_length": "maxLength",
    "min_properties": "minProperties",
    "max_properties": "maxProperties",
    "property_ordering": "propertyOrdering",
    "additional_properties": "additionalProperties",
    "ref": "$ref",
    "defs": "$defs",
}
"""Fields with another name in JSON Schema, or another spelling."""
_MAPS = frozenset({"properties", "$defs", "definitions"})
_LISTS = frozenset({"anyOf", "oneOf", "allOf", "prefixItems"})
_SCHEMAS = frozenset({"items", "additionalProperties", "not"})
_DATA = frozenset({"default", "example"})
_NUMBERS = frozenset(
    "minItems maxItems minLength maxLength minProperties maxProperties minimum maximum".split(),
)


def read_schema(raw: Object) -> Object:
    """Return the JSON Schema with the meaning of a Gemini schema.

    >>> read_schema({"type": "STRING", "nullable": True, "maxLength": "5"})
    {'type': ['string', 'null'], 'maxLength': 5}
    """
    out: Object = {}
    for field, value in raw.items():
        keyword = _FIELDS.get(field, field)
        if value is None and keyword not in _DATA:
            continue  # null is an unset field in protobuf JSON
        out[keyword] = _read_value(keyword, value)
    _read_types(out)
    _read_enum(out)
    _order_properties(out)
    if "example" in out:
        out.setdefault("examples", [out.pop("example")])
    if out.pop("nullable", None) is True:
        _allow_null(out)
    return out


def _read_value(keyword: str, value: JSON) -> JSON:
    """Convert the value of a keyword: schemas inside it, numbers as text, references to `defs`."""
    if keyword in _MAPS and type(value) is dict:
        return {name: read_schema(inner) if type(inner) is dict else inner for name, inner in value.items()}
    if keyword in _LISTS and type(value) is list:
        return [read_schema(inner) if type(inner) is dict else inner for inner in value]
    if keyword in _SCHEMAS and type(value) is dict:
        return read_schema(value)
    if keyword in _NUMBERS and type(value) is str:
        return _parse_number(value)
    if keyword == "$ref" and type(value) is str:
        return value.replace("#/defs/", "#/$defs/", 1)
    return value


def _read_types(schema: Object) -> None:
    """Write types in lower case; remove `TYPE_UNSPECIFIED`."""
    kind = schema.get("type")
    if type(kind) is list:
        schema["type"] = [_type_name(one) for one in kind]
    elif kind is not None:
        schema["type"] = _type_name(kind)
        if schema["type"] == _TYPES[0]:
            del schema["type"]


def _type_name(kind: JSON) -> JSON:
    if type(kind) is int and 0 <= kind < len(_TYPES):
        return _TYPES[kind]
    return kind.lower() if type(kind) is str and kind.lower() in _TYPES else kind


def _read_enum(schema: Object) -> None:
    """Give the values of an enum the type of the schema: Gemini writes all of them as strings."""
    values = schema.get("enum")
    if type(values) is not list:
        return
    if not values:  # an empty repeated field is unset
        del schema["enum"]
    elif schema.get("type") in ("integer", "number"):
        schema["enum"] = [_parse_number(value) if type(value) is str else value for value in values]
    elif schema.get("type") == "boolean":
        schema["enum"] = [_BOOLEANS.get(value, value) if type(value) is str else value for value in values]
    if schema.get("format") == "enum":  # it repeats that there is an enum
        del schema["format"]


_BOOLEANS: dict[str, JSON] = {"true": True, "false": False}


def _parse_number(text: str) -> JSON:
    """Return the number that the text contains, or the text itself."""
    try:
        number = float(text)
        return int(text) if "." not in text and number.is_integer() and "e" not in text.lower() else number
    except (ValueError, OverflowError):
        return text


def _order_properties(schema: Object) -> None:
    """Apply `propertyOrdering`: JSON Schema has no such keyword, and providers follow the order of the properties."""
    order, properties = schema.pop("propertyOrdering", None), schema.get("properties")
    if type(order) is list and type(properties) is dict:
        first = [name for name in order if type(name) is str and name in properties]
        schema["properties"] = {name: properties[name] for name in dict.fromkeys([*first, *properties])}


def _allow_null(schema: Object) -> None:
    """Extend a schema by null in place: in its types, its enum and its alternatives."""
    kind = schema.get("type")
    if kind is not None and kind != "null":
        schema["type"] = [*kind, "null"] if type(kind) is list else [kind, "null"]
    if type(schema.get("enum")) is list:
        schema["enum"] = [*schema["enum"], None]
    if type(schema.get("anyOf")) is list:
        schema["anyOf"] = [*schema["anyOf"], {"type": "null"}]
    if "$ref" in schema:
        schema["anyOf"] = [{"$ref": schema.pop("$ref")}, {"type": "null"}]


def read_parameters(raw: Object) -> Object:
    """Return the JSON Schema of arguments, which are always an object, even if the Gemini schema is nullable."""
    return read_schema({**raw, "nullable": None} if "nullable" in raw else raw)


def document_pointer(raw: JSON, path: list[str]) -> str:
    """Map a path in the converted schema to a pointer into the original schema `raw`."""
    segments: list[str] = []
    for segment in path:
        name = segment
        if type(raw) is dict and segment not in raw:
            name = next((field for field, keyword in _RENAMED if keyword == segment and field in raw), segment)
        raw = raw.get(name) if type(raw) is dict else raw[int(name)] if _is_index(raw, name) else None
        segments.append(name)
    return join(*segments)


_RENAMED = (*_FIELDS.items(), ("example", "examples"))


def _is_index(value: JSON, segment: str) -> bool:
    return type(value) is list and segment.isdecimal() and int(segment[:18]) < len(value)
