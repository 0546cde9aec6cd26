"""A Python function as a tool."""

from typing import Literal

import pytest

import toolwire
from toolwire.ir import SchemaError


@toolwire.tool
def get_weather(city: str, unit: Literal["celsius", "fahrenheit"] = "celsius", days: int | None = None) -> str:
    """Current weather for a city."""
    return f"22 {unit} in {city}"


def test_name_docstring_and_hints_make_the_tool():
    assert isinstance(get_weather, toolwire.Tool)
    assert get_weather.name == "get_weather"
    assert get_weather.description == "Current weather for a city."
    assert get_weather.effect == "write"
    assert get_weather.input_schema == {
        "type": "object",
        "properties": {
            "city": {"type": "string"},
            "unit": {"default": "celsius", "enum": ["celsius", "fahrenheit"], "type": "string"},
            "days": {"anyOf": [{"type": "integer"}, {"type": "null"}], "default": None},
        },
        "required": ["city"],
    }


def test_the_function_can_still_be_called():
    assert get_weather("Paris") == "22 celsius in Paris"


def test_with_arguments_it_is_a_decorator():
    @toolwire.tool(name="now", description="The time.", strict=True, effect="read")
    def clock() -> str:
        return "10:00"

    assert (clock.name, clock.description, clock.strict, clock.effect) == ("now", "The time.", True, "read")
    assert clock.input_schema == {"type": "object", "properties": {}}


def test_any_parameter_name_will_do():
    @toolwire.tool
    def odd(model_config: int, schema: str = "", _private: bool = False) -> None: ...

    assert list(odd.input_schema["properties"]) == ["model_config", "schema", "_private"]


def test_nested_models():
    from pydantic import BaseModel

    class Place(BaseModel):
        name: str
        tags: dict[str, int] = {}

    @toolwire.tool
    def visit(place: Place) -> None: ...

    assert visit.input_schema["properties"] == {"place": {"$ref": "#/$defs/Place"}}
    assert visit.input_schema["$defs"]["Place"]["properties"]["name"] == {"type": "string"}


def bad_args(*args: int) -> None: ...
def bad_kwargs(**kwargs: int) -> None: ...
def positional(a: int, /) -> None: ...
def opaque(a: object()) -> None: ...
def forward(a: "Nowhere") -> None: ...  # noqa: F821


@pytest.mark.parametrize("function", [bad_args, bad_kwargs, positional, opaque, forward])
def test_what_a_model_cannot_fill_in_is_refused(function):
    with pytest.raises(SchemaError):
        toolwire.tool(function)


def test_a_tool_is_declared_on_every_wire():
    for wire in toolwire.wire.names():
        written, losses = toolwire.wire.get(wire).encode_tools((get_weather,))
        assert not list(losses)
        (back,) = toolwire.wire.get(wire).decode_tools(written)
        assert back.input_schema == get_weather.input_schema
