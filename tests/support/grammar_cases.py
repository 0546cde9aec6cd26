"""Tools and calls for tests of grammars, with all kinds of parameters."""

from toolwire.ir.parts import ToolCall
from toolwire.ir.tools import Tool

_POSITION = {
    "type": "object",
    "properties": {"lat": {"type": "number"}, "name": {"type": "string"}},
    "required": ["lat"],
    "additionalProperties": False,
}
_NODE = {
    "type": "object",
    "properties": {
        "v": {"type": "integer"},
        "kids": {"type": "array", "items": {"$ref": "#/$defs/node"}, "maxItems": 2},
    },
    "required": ["v"],
    "additionalProperties": False,
}

WEATHER = Tool(
    "get_weather",
    input_schema={
        "type": "object",
        "properties": {
            "city": {"type": "string", "maxLength": 40},
            "days": {"type": "integer", "minimum": 1, "maximum": 9},
            "unit": {"enum": ["C", "F"]},
            "tags": {"type": "array", "items": {"type": "string", "maxLength": 8}, "maxItems": 3},
            "deep": {"type": ["boolean", "null"]},
            "where": _POSITION,
            "note": {"type": ["string", "null"]},
        },
        "required": ["city"],
    },
)
NOW = Tool("now", input_schema={"type": "object", "properties": {}})
STORE = Tool(
    "store",
    input_schema={
        "type": "object",
        "properties": {"value": {}, "meta": {"type": "object"}, "tree": {"$ref": "#/$defs/node"}},
        "required": ["value"],
        "$defs": {"node": _NODE},
    },
)
TOOLS = (WEATHER, NOW, STORE)

_FULL = {
    "city": "Paris",
    "days": 3,
    "unit": "C",
    "tags": ["a", "b"],
    "deep": True,
    "where": {"lat": 1.5, "name": "x"},
    "note": None,
}


def _call(name: str, **arguments: object) -> ToolCall:
    return ToolCall(id="a1b2c3d4e", name=name, arguments=arguments)


CALLS = (
    _call("get_weather", **_FULL),
    _call("get_weather", city='O\'Neill "x" é\nn', note="42nd <street>"),
    _call("now"),
    _call("store", value="abc"),
    _call("store", value="x", tree={"v": 1, "kids": [{"v": 2}, {"v": -3, "kids": []}]}),
)
