"""Checks judge the values that a tool receives: converted to its types, with defaults filled in."""

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass
from decimal import Decimal
from enum import IntEnum
from fractions import Fraction
from typing import Annotated, Any, NamedTuple

import pytest
from pydantic import AfterValidator, BaseModel, Field, HttpUrl
from typing_extensions import TypedDict

from toolwire import ToolCall, tool
from toolwire.ir.errors import ConfigError
from toolwire.ir.tools import Tool
from toolwire.net.tools.runner import Runner
from toolwire.run.calls.policy import Policy, at_most, hosts
from toolwire.run.tools.toolbox import Entry
from toolwire.run.values.results import result_code

tool_got: list[Any] = []


@pytest.fixture(autouse=True)
def clear_received():
    tool_got.clear()


def run(function, arguments, *checks, **options):
    source = function if isinstance(function, Entry) else tool(effect="read")(function)
    runner = Runner(source, policy=Policy(checks=checks), **options)
    name = source.tool.name if isinstance(source, Entry) else source.name
    (result,) = asyncio.run(runner.run([ToolCall("1", name, arguments)]))
    return result


def decimal(amount: Decimal) -> str:
    """Pay."""
    tool_got.append(amount)
    return "paid"


def number_or_text(amount: int | str) -> str:
    """Pay."""
    tool_got.append(amount)
    return "paid"


def anything(amount: Any) -> str:
    """Pay."""
    tool_got.append(amount)
    return "paid"


def optional(amount: int | None = None) -> str:
    """Pay."""
    tool_got.append(amount)
    return "paid"


def generous(amount: int = 5000) -> str:
    """Pay."""
    tool_got.append(amount)
    return "paid"


def modest(amount: int = 50) -> str:
    """Pay."""
    tool_got.append(amount)
    return "paid"


def generous_field(amount: int = Field(5000, le=9000)) -> str:
    """Pay."""
    tool_got.append(amount)
    return "paid"


def modest_field(amount: int = Field(50, le=9000)) -> str:
    """Pay."""
    tool_got.append(amount)
    return "paid"


def several(amount: list[Decimal]) -> str:
    """Pay."""
    tool_got.append(amount)
    return "paid"


def stream_of(amount: Iterable[int]) -> str:
    """Pay."""
    tool_got.append(list(amount))
    return "paid"


def hundredfold(amount: Annotated[int, AfterValidator(lambda euros: euros * 100)]) -> str:
    """Pay in cents."""
    tool_got.append(amount)
    return "paid"


class Coin(IntEnum):
    SMALL = 1
    LARGE = 500


def coin(amount: Coin) -> str:
    """Pay."""
    tool_got.append(amount)
    return "paid"


@pytest.mark.finding("Z6")
@pytest.mark.parametrize(
    ("function", "arguments"),
    [
        (decimal, {"amount": "5000"}),
        (decimal, {"amount": "1e9"}),
        (decimal, {"amount": "100.000000000000000000000001"}),
        (decimal, {"amount": 101}),
        (number_or_text, {"amount": "5000"}),
        (number_or_text, {"amount": "5"}),
        (number_or_text, {"amount": ""}),
        (anything, {"amount": True}),
        (anything, {"amount": None}),
        (anything, {"amount": {"value": 5}}),
        (anything, {"amount": float("nan")}),
        (anything, {"amount": float("inf")}),
        (anything, {"amount": float("-inf")}),
        (anything, {"amount": 10**5000}),
        (anything, {"amount": [1, [2, "3"]]}),
        (optional, {"amount": None}),
        (optional, {}),
        (generous, {}),
        (generous_field, {}),
        (several, {"amount": [1, "99", "1e3"]}),
        (stream_of, {"amount": [1, 2]}),
        (hundredfold, {"amount": 50}),
        (coin, {"amount": 500}),
    ],
)
def test_at_most_applies_to_every_spelling_of_a_number(function, arguments):
    result = run(function, arguments, at_most("amount", 100))
    assert result_code(result) == "denied", result.text
    assert "amount" in result.text and "100" in result.text
    assert tool_got == []


@pytest.mark.finding("Z6")
@pytest.mark.parametrize(
    ("function", "arguments", "received"),
    [
        (decimal, {"amount": "99.5"}, Decimal("99.5")),
        (decimal, {"amount": 100}, Decimal(100)),
        (number_or_text, {"amount": 5}, 5),
        (anything, {"amount": -7.5}, -7.5),
        (modest, {}, 50),
        (modest_field, {}, 50),
        (several, {"amount": ["1e2", 3]}, [Decimal(100), Decimal(3)]),
        (several, {"amount": []}, []),
        (hundredfold, {"amount": 1}, 100),
        (coin, {"amount": 1}, Coin.SMALL),
    ],
)
def test_numbers_within_the_limit_reach_the_tool(function, arguments, received):
    result = run(function, arguments, at_most("amount", 100))
    assert not result.is_error, result.text
    assert tool_got == [received]
    assert type(tool_got[0]) is type(received)


def test_checks_ignore_tools_without_the_argument():
    def greet(name: str) -> str:
        """Greet."""
        return f"hello {name}"

    assert run(greet, {"name": "Ann"}, at_most("amount", 100), hosts("url", "example.com")).text == "hello Ann"


class Money(BaseModel):
    value: Decimal = Field(alias="amount")


class Order(BaseModel):
    total: Money
    fee: int = 500


@dataclass
class Basket:
    prices: list[float]


class Pair(NamedTuple):
    count: int
    price: int


class Wish(TypedDict, total=False):
    price: int


def nested(
    order: Order | None = None, basket: Basket | None = None, pair: Pair | None = None, wish: Wish | None = None
):
    """Order."""
    tool_got.append((order, basket, pair, wish))


@pytest.mark.finding("Z6")
@pytest.mark.parametrize(
    ("pointer", "arguments", "refused"),
    [
        ("/order/total/amount", {"order": {"total": {"amount": "5000"}}}, True),
        ("/order/total/amount", {"order": {"total": {"amount": "50"}}}, False),
        ("/order/total/value", {"order": {"total": {"amount": "5000"}}}, True),
        ("/order/fee", {"order": {"total": {"amount": "5"}}}, True),
        ("/order/fee", {"order": {"total": {"amount": "5"}, "fee": 5}}, False),
        ("/order/tax", {"order": {"total": {"amount": "5"}}}, True),
        ("/order/total/amount", {}, False),
        ("/basket/prices", {"basket": {"prices": [1, 2.5, 101]}}, True),
        ("/basket/prices", {"basket": {"prices": [1, 2.5]}}, False),
        ("/pair/count", {"pair": [101, 1]}, True),
        ("/pair/count", {"pair": [1, 101]}, False),
        ("/wish/price", {"wish": {"price": 101}}, True),
        ("/wish/price", {"wish": {}}, False),
        ("basket", {"basket": {"prices": [1]}}, True),
    ],
)
def test_a_pointer_reaches_values_inside_an_argument(pointer, arguments, refused):
    result = run(nested, arguments, at_most(pointer, 100))
    assert (result_code(result) == "denied") is refused, result.text
    assert len(tool_got) == (0 if refused else 1)


def remote(schema):
    """A tool whose function takes any argument, as the tools of an MCP server do."""

    async def function(**arguments):
        tool_got.append(arguments)
        return "done"

    return Entry(Tool("remote", "Do it elsewhere.", schema, effect="read"), function)


@pytest.mark.finding("Z6")
@pytest.mark.parametrize(
    ("declared", "arguments", "refused"),
    [
        ({"type": "number", "default": 5000}, {}, True),
        ({"type": "number", "default": 5}, {}, False),
        ({"type": "number"}, {}, False),
        ({"type": ["number", "string"]}, {"amount": "5000"}, True),
        ({"type": "array", "items": {"type": "number"}}, {"amount": [1, 5000]}, True),
        (True, {"amount": 5000}, True),
    ],
)
def test_schema_default_is_checked_when_the_function_has_none(declared, arguments, refused):
    result = run(remote({"type": "object", "properties": {"amount": declared}}), arguments, at_most("amount", 100))
    assert (result_code(result) == "denied") is refused, result.text
    assert len(tool_got) == (0 if refused else 1)


@pytest.mark.parametrize("limit", [float("nan"), float("inf"), True, "100", None])
def test_limit_must_be_a_finite_number(limit):
    with pytest.raises(ConfigError, match="finite number"):
        at_most("amount", limit)


@pytest.mark.parametrize(("most", "refused"), [(Decimal("0.3"), True), (Decimal(2), False), (1, True), (1.5, False)])
def test_limits_and_values_of_different_numeric_types_are_compared(most, refused):
    def part(amount: Fraction) -> str:
        """Pay a part."""
        return "paid"

    schema = {"type": "object", "properties": {"amount": {}}}
    entry = Entry(Tool("part", "Pay a part.", schema, effect="read"), part)
    result = run(entry, {"amount": "3/2"}, at_most("amount", most))
    assert (result_code(result) == "denied") is refused, result.text


def fetch(url: HttpUrl) -> str:
    """Fetch."""
    tool_got.append(str(url))
    return "fetched"


def fetch_default(url: str = "http://169.254.169.254/latest") -> str:
    """Fetch."""
    tool_got.append(url)
    return "fetched"


def fetch_text(url: str) -> str:
    """Fetch."""
    tool_got.append(url)
    return "fetched"


@pytest.mark.finding("Z6")
@pytest.mark.parametrize(
    ("function", "arguments", "refused"),
    [
        (fetch, {"url": "https://api.example.com/x"}, False),
        (fetch, {"url": "HTTPS://API.example.com"}, False),
        (fetch, {"url": "https://evil.org/"}, True),
        (fetch, {"url": "https://example.com:pw@evil.org/"}, True),
        (fetch_default, {}, True),
        (fetch_default, {"url": "https://api.example.com"}, False),
        (fetch_text, {"url": "https://evil.org\n.example.com/"}, True),
        (fetch_text, {"url": "https://evil.org\t.example.com/"}, True),
        (fetch_text, {"url": "\x00https://api.example.com/"}, True),
        (fetch_text, {"url": "https://evil.org\x00.example.com/"}, True),
        (fetch_text, {"url": "https://evil.org%00.example.com/"}, True),
        (fetch_text, {"url": "https://evil.org%2f.example.com/"}, True),
        (fetch_text, {"url": "https://evil.org;.example.com/"}, True),
        (fetch_text, {"url": "https://evil.org&.example.com/"}, True),
        (fetch_text, {"url": "https://evil.org .example.com/"}, True),
        (fetch_text, {"url": "https://bücher.example.com/"}, False),
    ],
)
def test_hosts_checks_the_url_that_the_tool_receives(function, arguments, refused):
    result = run(function, arguments, hosts("url", "*.example.com"))
    assert (result_code(result) == "denied") is refused, result.text
    assert len(tool_got) == (0 if refused else 1)
