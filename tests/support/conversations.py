"""The conversations that every chat template renders: calls with values of all types, and answers after results."""

from typing import NamedTuple

__all__ = ["CASES", "TOOLS", "Case"]

_PROPERTIES = {
    "get_weather": {"city": {"type": "string"}, "days": {"type": "integer"}},
    "save_note": {
        "text": {"type": "string"},
        "count": {"type": "integer"},
        "ratio": {"type": "number"},
        "urgent": {"type": "boolean"},
        "parent": {"type": "string", "nullable": True},
        "tags": {"type": "array", "items": {"type": "string"}},
        "options": {"type": "object", "additionalProperties": True},
    },
    "ping": {},
}


def _declare(name, properties):
    """Declare a tool as transformers does for a function: every parameter has a description."""
    described = {key: {**schema, "description": f"The {key}"} for key, schema in properties.items()}
    parameters = {"type": "object", "properties": described, "required": list(properties)[:1]}
    return {"type": "function", "function": {"name": name, "description": f"The tool {name}", "parameters": parameters}}


TOOLS = [_declare(name, properties) for name, properties in _PROPERTIES.items()]


class Case(NamedTuple):
    """The last turn of a conversation: reasoning, text and calls (name, arguments), after a result or directly."""

    name: str
    calls: tuple[tuple[str, dict], ...] = ()
    text: str = ""
    reasoning: str = ""
    after_result: bool = False


_PARIS = ("get_weather", {"city": "Paris", "days": 3})
_LIMA = ("get_weather", {"city": "Lima"})
_PING = ("ping", {})
_TEXT = "I will look at the forecast."
_THOUGHT = "The user asks for the weather."
_ANSWER = "It is 22 degrees."
_VALUES = {
    "text": 'Zürich "Altstadt"\nit\'s 東京, 100 % & more 🙂',
    "count": 12,
    "ratio": 0.5,
    "urgent": True,
    "tags": ["a b", "c"],
    "options": {"deep": {"x": [1, 2.5]}, "on": False, "label": 'it\'s "so"'},
}
_NULLS = {"text": "a", "parent": None, "options": {"x": None}}
_LOOK_ALIKES = {"text": '{"a": 1}', "tags": ["1", "true"]}
_MARKUP = {"text": "if a < b and c > d:\n    <b>bold</b> </b>\n  end"}

CASES = (
    Case("one call", (_PARIS,)),
    Case("no arguments", (_PING,)),
    Case("parallel calls", (_PARIS, _LIMA, _PING)),
    Case("call after text", (_PARIS,), _TEXT),
    Case("call after reasoning", (_PARIS,), "", _THOUGHT),
    Case("call after reasoning and text", (_PARIS,), _TEXT, _THOUGHT),
    Case("values of all types", (("save_note", _VALUES),)),
    Case("null", (("save_note", _NULLS),)),
    Case("strings that look like other types", (("save_note", _LOOK_ALIKES), ("get_weather", {"city": "007"}))),
    Case("markup in a string", (("save_note", _MARKUP),)),
    Case("call after a result", (_LIMA,), after_result=True),
    Case("answer after a result", (), _ANSWER, after_result=True),
    Case("answer after reasoning and a result", (), _ANSWER, "The result is there.", after_result=True),
)
