"""A Python function as a tool."""

import functools
from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

import pytest
from pydantic import Field
from typing_extensions import Doc, TypedDict

import toolwire
from toolwire.ir import ConfigError, SchemaError


@toolwire.tool
def get_weather(city: str, unit: Literal["celsius", "fahrenheit"] = "celsius", days: int | None = None) -> str:
    """Current weather for a city."""
    return f"22 {unit} in {city}"


def test_tool_is_built_from_name_docstring_and_type_hints():
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


def test_tool_can_be_called_like_its_function():
    assert get_weather("Paris") == "22 celsius in Paris"


def test_tool_accepts_decorator_arguments():
    @toolwire.tool(name="now", description="The time.", strict=True, effect="read")
    def clock() -> str:
        return "10:00"

    assert (clock.name, clock.description, clock.strict, clock.effect) == ("now", "The time.", True, "read")
    assert clock.input_schema == {"type": "object", "properties": {}}


def test_any_parameter_name_is_allowed():
    @toolwire.tool
    def odd(model_config: int, schema: str = "", _private: bool = False) -> None: ...

    assert list(odd.input_schema["properties"]) == ["model_config", "schema", "_private"]


def test_nested_models_become_definitions():
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
def test_unsupported_parameters_are_rejected(function):
    with pytest.raises(SchemaError):
        toolwire.tool(function)


def test_a_tool_is_declared_on_every_wire():
    for wire in toolwire.wire.names():
        written, losses = toolwire.wire.get(wire).encode_tools((get_weather,))
        assert not list(losses)
        (back,) = toolwire.wire.get(wire).decode_tools(written)
        assert back.input_schema == get_weather.input_schema


class Shop:
    """Sells things."""

    @toolwire.tool
    def buy(self, item: str) -> str:
        return f"{type(self).__name__} {item}"

    def __call__(self, item: str) -> str:
        """Sell one."""
        return item


def test_method_tool_has_no_self_parameter():
    assert Shop.buy.input_schema["required"] == ["item"]
    assert Shop().buy("tea") == "Shop tea"


def test_partials_and_callable_objects_become_tools():
    def add(a: int, b: int = 1) -> int:
        """Adds."""
        return a + b

    fixed = toolwire.tool(functools.partial(add, b=3))
    assert (fixed.name, fixed.description, fixed(a=1)) == ("add", "Adds.", 4)
    assert (toolwire.tool(Shop()).name, toolwire.tool(Shop()).description) == ("Shop", "Sells things.")


def test_field_as_a_default_is_used():
    @toolwire.tool
    def search(limit: int = Field(3, ge=1, description="how many"), kind: str = Field("a", title="Sort of thing")): ...

    assert search.input_schema["properties"] == {
        "limit": {"default": 3, "description": "how many", "minimum": 1, "type": "integer"},
        "kind": {"default": "a", "title": "Sort of thing", "type": "string"},
    }


def test_default_without_json_form_is_omitted():
    @toolwire.tool
    def wait(seconds: float = float("nan")): ...

    assert wait.input_schema["properties"] == {"seconds": {"type": "number"}}


def broken_text(a: "list[int") -> None: ...  # noqa: F722
def broken_name(a: "typing.Nope") -> None: ...  # noqa: F821
def broken_pattern(a: Annotated[str, Field(pattern="(")]) -> None: ...
def class_variable(a: ClassVar[int]) -> None: ...


@pytest.mark.parametrize("thing", [broken_text, broken_name, broken_pattern, class_variable, "x", 5, lambda a: a])
def test_unsupported_objects_are_rejected_as_tools(thing):
    with pytest.raises(SchemaError):
        toolwire.tool(thing)


def test_unknown_effect_is_rejected():
    with pytest.raises(ConfigError, match="unknown effect"):
        toolwire.tool(effect="nope")


def google(city: str, days: int = 1, *, loud: bool = False):
    """The forecast.

    More words.

    Args:
        city (str): the place,
            wherever it is
        days: how many
    Returns:
        words
    """


def numpy_style(city: str, days: int = 1, *, loud: bool = False):
    """The forecast.

    More words.

    Parameters
    ----------
    city : str
        the place,
        wherever it is
    days : int, optional
        how many

    Returns
    -------
    str
        words
    """


def sphinx(city: str, days: int = 1, *, loud: bool = False):
    """The forecast.

    More words.

    :param city: the place,
        wherever it is
    :param int days: how many
    :returns: words
    """


@pytest.mark.parametrize("function", [google, numpy_style, sphinx])
def test_parameter_descriptions_are_read_from_three_docstring_styles(function):
    made = toolwire.tool(function)
    assert made.description == "The forecast.\n\nMore words."
    said = {name: field.get("description") for name, field in made.input_schema["properties"].items()}
    assert said == {"city": "the place, wherever it is", "days": "how many", "loud": None}


def test_field_description_overrides_the_docstring():
    @toolwire.tool
    def search(query: Annotated[str, Field(description="its own words")]):
        """Search.

        Args:
            query: other words
        """

    assert search.input_schema["properties"]["query"]["description"] == "its own words"


class Weather(TypedDict):
    degrees: float


@dataclass
class Place:
    name: str


@pytest.mark.parametrize("returned", [Weather, Place])
def test_returned_object_type_gets_an_output_schema(returned):
    def get() -> returned: ...

    async def get_later() -> returned: ...

    for function in (get, get_later):
        assert toolwire.tool(function).output_schema["type"] == "object"


@pytest.mark.parametrize("returned", [str, None, int, list[str], dict[str, int], object()])
def test_other_return_types_get_no_output_schema(returned):
    def get() -> returned: ...

    assert toolwire.tool(get).output_schema is None


def test_text_of_an_annotation_describes_the_parameter():
    def weather(
        city: Annotated[str, "the city"],
        unit: Annotated[str, Doc("celsius or kelvin")],
        days: Annotated[int, "ignored", Field(description="how many days")] = 1,
    ) -> str:
        """Weather.

        Args:
            city: from the docstring
        """

    properties = toolwire.tool(weather).input_schema["properties"]
    assert {name: field["description"] for name, field in properties.items()} == {
        "city": "the city",
        "unit": "celsius or kelvin",
        "days": "how many days",
    }
