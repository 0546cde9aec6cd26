"""Schemas of structured outputs that some provider cannot express as they are."""

TREE = {
    "type": "object",
    "properties": {"name": {"type": "string"}, "children": {"type": "array", "items": {"$ref": "#"}}},
    "required": ["name"],
}
SCHEMAS = {
    "plain": {
        "type": "object",
        "properties": {"city": {"type": "string"}, "days": {"type": "integer"}},
        "required": ["city", "days"],
        "additionalProperties": False,
    },
    "optional properties": {
        "type": "object",
        "properties": {"city": {"type": "string"}, "days": {"type": "integer"}, "note": {"type": "string"}},
        "required": ["days"],
    },
    "free-form map": {
        "type": "object",
        "properties": {"scores": {"type": "object", "additionalProperties": {"type": "number"}}},
        "required": ["scores"],
    },
    "map at the root": {"type": "object", "additionalProperties": {"type": "integer"}},
    "any object": {"type": "object"},
    "any value": {"type": "object", "properties": {"value": {}}, "required": ["value"]},
    "nullable": {
        "type": "object",
        "properties": {"a": {"type": ["string", "null"]}, "b": {"anyOf": [{"type": "integer"}, {"type": "null"}]}},
        "required": ["a"],
    },
    "union": {
        "type": "object",
        "properties": {
            "shape": {
                "oneOf": [
                    {"type": "object", "properties": {"radius": {"type": "number"}}, "required": ["radius"]},
                    {"type": "object", "properties": {"side": {"type": "number"}}, "required": ["side"]},
                ]
            }
        },
        "required": ["shape"],
    },
    "recursive": TREE,
    "definitions": {
        "type": "object",
        "properties": {"home": {"$ref": "#/$defs/Place"}, "work": {"$ref": "#/$defs/Place", "description": "Office"}},
        "required": ["home"],
        "$defs": {"Place": {"type": "object", "properties": {"zip": {"type": "string"}}, "required": ["zip"]}},
    },
    "bounds": {
        "type": "object",
        "properties": {
            "count": {"type": "integer", "minimum": 1, "maximum": 9},
            "share": {"type": "number", "exclusiveMinimum": 0, "multipleOf": 0.5},
            "code": {"type": "string", "minLength": 2, "maxLength": 4},
            "tags": {"type": "array", "items": {"type": "string"}, "minItems": 2, "maxItems": 3, "uniqueItems": True},
        },
        "required": ["count", "share", "code", "tags"],
    },
    "formats and patterns": {
        "type": "object",
        "properties": {
            "at": {"type": "string", "format": "date-time"},
            "page": {"type": "string", "format": "uri"},
            "id": {"type": "string", "pattern": "^[a-z]{3}$"},
        },
        "required": ["at", "page", "id"],
    },
    "enums": {
        "type": "object",
        "properties": {"level": {"enum": [1, 2, 3]}, "unit": {"const": "C"}, "mixed": {"enum": ["a", 1, None, True]}},
        "required": ["level", "unit", "mixed"],
    },
    "tuple": {
        "type": "object",
        "properties": {
            "point": {"type": "array", "prefixItems": [{"type": "number"}, {"type": "string"}], "items": False}
        },
        "required": ["point"],
    },
    "illegal names": {
        "type": "object",
        "properties": {"größe in cm": {"type": "number"}, "a/b": {"type": "string"}},
        "required": ["größe in cm"],
    },
    "array at the root": {
        "type": "array",
        "items": {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]},
    },
    "string at the root": {"type": "string", "maxLength": 30},
    "enum at the root": {"enum": ["yes", "no"]},
    "union at the root": {
        "anyOf": [
            {
                "type": "object",
                "properties": {"a": {"type": "string"}},
                "required": ["a"],
                "additionalProperties": False,
            },
            {
                "type": "object",
                "properties": {"b": {"type": "number"}},
                "required": ["b"],
                "additionalProperties": False,
            },
        ]
    },
}
