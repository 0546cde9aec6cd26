"""Output types: the schema of any type, and the typed value of an answer."""

import json
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from enum import Enum
from typing import Annotated, Literal

import pytest
from pydantic import AfterValidator, BaseModel, ConfigDict, Field
from typing_extensions import TypedDict

from tables import every_case
from toolwire import ToolCall
from toolwire.ir import ConfigError, SchemaError
from toolwire.run import StructuredOutput
from toolwire.schema import validator


class City(BaseModel):
    """A city."""

    name: str
    population: int = Field(ge=0)
    founded: datetime | None = None


@dataclass
class Point:
    x: float
    y: float = 0.0


class Move(TypedDict):
    to: Point
    speed: Literal["slow", "fast"]


class Colour(Enum):
    RED = "red"
    BLUE = "blue"


class Tree(BaseModel):
    name: str
    children: list["Tree"] = []


def even(value: int) -> int:
    if value % 2:
        raise ValueError("must be even")
    return value


TYPES = {
    "model": (StructuredOutput(City), '{"name": "Oslo", "population": 7}', City(name="Oslo", population=7)),
    "dataclass": (StructuredOutput(Point), '{"x": 1}', Point(1.0)),
    "TypedDict": (StructuredOutput(Move), '{"to": {"x": 1}, "speed": "slow"}', {"to": Point(1.0), "speed": "slow"}),
    "union": (StructuredOutput[City | Point](), '{"x": 2, "y": 3}', Point(2.0, 3.0)),
    "optional": (StructuredOutput[Point | None](), "null", None),
    "integer": (StructuredOutput(int), "5", 5),
    "list": (StructuredOutput(list[str]), '["a", "b"]', ["a", "b"]),
    "tuple": (StructuredOutput(tuple[int, str]), '[1, "a"]', (1, "a")),
    "enum": (StructuredOutput(Colour), '"red"', Colour.RED),
    "literal": (StructuredOutput[Literal["yes", "no"]](), '"no"', "no"),
    "recursive": (StructuredOutput(Tree), '{"name": "a", "children": [{"name": "b"}]}', None),
    "schema": (StructuredOutput({"type": "array", "items": {"type": "integer"}}), "[1, 2]", [1, 2]),
}


@every_case("kind", TYPES)
def test_answer_of_every_type_is_read_from_text_and_from_a_call(kind):
    spec, text, expected = TYPES[kind]
    output = spec.resolve()
    validator(output.arguments_schema)
    assert output.arguments_schema["type"] == "object"
    reading = output.read_text(text)
    assert reading.problems == ()
    if expected is not None:
        assert reading.value == expected and type(reading.value) is type(expected)
    raw = text if output.arguments_schema is output.schema else f'{{"result": {text}}}'
    assert output.read_call(ToolCall("1", "final_answer", None, raw)) == reading


def test_schema_has_no_derived_titles_and_keeps_the_description():
    schema = StructuredOutput(City).resolve().schema
    assert "title" not in str(schema)
    assert schema["description"] == "A city."


def test_references_of_a_wrapped_schema_stay_valid():
    schema = {
        "type": "array",
        "items": {"anyOf": [{"$ref": "#"}, {"$ref": "#/$defs/leaf"}, {"const": {"$ref": "#"}}]},
        "$defs": {"leaf": {"type": "integer"}, "list": {"$ref": "#/items"}},
    }
    wrapped = StructuredOutput(schema).resolve().arguments_schema
    check = validator(wrapped)
    assert check.accepts({"result": [1, [2, []], {"$ref": "#"}]})
    assert not check.accepts({"result": [1, ["a"]]})
    assert not check.accepts({"result": 1})


def test_invalid_answer_has_problems_with_paths():
    output = StructuredOutput(City).resolve()
    (problem,) = output.read_text('{"name": "Oslo", "population": -1}').problems
    assert problem.path == "/population" and "-1" in problem.message
    (problem,) = StructuredOutput(list[int]).resolve().read_call(ToolCall("1", "f", {"result": [1, "x"]})).problems
    assert problem.path == "/1"


def test_validators_of_the_type_report_problems():
    class Even(BaseModel):
        value: Annotated[int, AfterValidator(even)]

    (problem,) = StructuredOutput(Even).resolve().read_text('{"value": 3}').problems
    assert (problem.path, problem.message) == ("/value", "Value error, must be even")


def test_validator_that_raises_any_exception_reports_a_problem():
    def look_up(value: str) -> str:
        return {"a": "A"}[value]

    reading = StructuredOutput(Annotated[str, AfterValidator(look_up)]).resolve().read_text('"b"')
    assert "KeyError" in str(reading.problems[0])


def test_strict_model_is_read_as_json():
    class Strict(BaseModel):
        model_config = ConfigDict(strict=True)
        at: datetime
        parts: tuple[int, ...]

    reading = StructuredOutput(Strict).resolve().read_text('{"at": "2026-01-01T10:00:00", "parts": [1]}')
    assert reading.value == Strict(at=datetime(2026, 1, 1, 10), parts=(1,))


@pytest.mark.parametrize(
    "text",
    [
        '```json\n{"name": "Oslo", "population": 7,}\n```',
        '{"name": "Oslo", "population": "7"}',
        'Here it is: {"name": "Oslo", "population": 7}',
        '{"arguments": {"name": "Oslo", "population": 7}}',
    ],
)
def test_unambiguous_slips_are_repaired(text):
    assert StructuredOutput(City).resolve().read_text(text).value == City(name="Oslo", population=7)


@pytest.mark.parametrize("policy", ["strict", "safe"])
def test_repair_policy_limits_the_repair(policy):
    output = StructuredOutput(City, repair=policy).resolve()
    assert output.read_text('{"name": "Oslo", "population": "7"}').problems


@pytest.mark.parametrize("text", ['{"name": "Oslo", "population": 1', '{"name": "Os', "", "  ", "Oslo"])
def test_truncated_empty_and_prose_answers_are_refused(text):
    assert StructuredOutput(City).resolve().read_text(text, finished=False).problems
    assert StructuredOutput(list[int]).resolve().read_text(text[:-3], finished=False).problems


class Price(BaseModel):
    amount: Decimal
    rate: float = 0.5
    tax: Decimal | None = Field(None, ge=0)


@pytest.mark.parametrize("digits", ["1234567890123456789.12", "3.14159265358979323846", "1.5", "7", "1" * 30])
def test_decimal_keeps_all_digits(digits):
    number = Decimal(digits)
    for output_type, text, expected in (
        (Decimal, digits, number),
        (list[Decimal], f"[0.1, {digits}]", [Decimal("0.1"), number]),
        (Price, f'{{"amount": {digits}, "tax": {digits}, "rate": {digits}}}', None),
    ):
        output = StructuredOutput(output_type).resolve()
        expected = expected or Price(amount=number, tax=number, rate=float(digits))
        assert output.read_text(text).value == expected
        raw = text if text.startswith("{") else f'{{"result": {text}}}'
        call = ToolCall("1", "final_answer", json.loads(raw), raw)
        assert output.read_call(call).value == expected


@pytest.mark.parametrize("raw", ["broken", '{"result": 9}', ""])
def test_text_of_other_arguments_is_not_used(raw):
    call = ToolCall("1", "final_answer", {"result": 1.5}, raw)
    assert StructuredOutput(Decimal).resolve().read_call(call).value == Decimal("1.5")


def test_only_types_with_decimals_are_parsed_exactly():
    text = '{"name": "Oslo", "population": 7, "rate": 3.14159265358979323846}'
    assert StructuredOutput(dict[str, float | int | str]).resolve().read_text(text).value["rate"] == 3.141592653589793


@every_case("output_type", [int, float, int | None, bool])
@every_case("text", ["12", " 1\n", "-1.5e3"])
def test_number_at_the_end_of_a_truncated_answer_is_refused(output_type, text):
    output = StructuredOutput(output_type).resolve()
    assert output.read_text(text, finished=False).problems[0].keyword == "truncated"


def test_complete_value_at_the_limit_of_tokens_is_accepted():
    assert StructuredOutput(list[int]).resolve().read_text("[1, 2]", finished=False).value == [1, 2]


def test_truncated_call_is_refused():
    call = ToolCall("1", "final_answer", None, '{"name": "Oslo", "population": 12', "truncated")
    assert StructuredOutput(City).resolve().read_call(call).problems[0].keyword == "truncated"


def test_object_without_its_wrapper_is_accepted():
    output = StructuredOutput[City | Point]().resolve()
    assert output.read_call(ToolCall("1", "final_answer", {"x": 1})).value == Point(1.0)


@pytest.mark.parametrize(
    ("make", "error"),
    [
        (lambda: StructuredOutput().resolve(), ConfigError),
        (lambda: StructuredOutput(City, mode="magic"), ConfigError),
        (lambda: StructuredOutput(City, retries=-1), ConfigError),
        (lambda: StructuredOutput(City, repair="no"), ConfigError),
        (lambda: StructuredOutput(City, tries=3), ConfigError),
        (lambda: StructuredOutput(object()).resolve(), ConfigError),
        (lambda: StructuredOutput({"type": "nothing"}).resolve(), SchemaError),
    ],
)
def test_unusable_output_type_is_refused(make, error):
    with pytest.raises(error):
        make()


class Style(BaseModel):
    style: Annotated[dict, Field(json_schema_extra={"enum": [{"format": "x"}, {"format": "y"}]})]
    default: datetime | None = None
    format: str = ""


def test_values_of_a_schema_keep_their_formats():
    output = StructuredOutput(Style).resolve()
    assert output.read_text('{"style": {"format": "y"}, "default": "2026-11-16T10:00:00"}').problems == ()
    assert output.read_text('{"style": {"format": "z"}}').problems != ()
