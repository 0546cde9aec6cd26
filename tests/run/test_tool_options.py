"""`@toolwire.tool(...)` takes the execution options, checks them, and a toolbox takes them over."""

import pytest

import toolwire
from tables import every_case
from toolwire import Toolbox
from toolwire.ir.errors import ConfigError, SchemaError
from toolwire.run import Options, OptionValues


def test_the_options_of_the_decorator_reach_the_toolbox():
    @toolwire.tool(
        effect="read",
        timeout=5,
        retries=1,
        resource="weather",
        rate=2,
        cache=60,
        transient=(OSError,),
        approve="costs money",
        untrusted=True,
        isolation="process",
        key=lambda arguments: arguments["city"],
        output_limit=100,
        max_parallel=3,
        ttl=3600,
        strict=True,
        examples=[{"city": "Paris"}],
    )
    def get_weather(city: str) -> str:
        """Weather."""
        return city

    assert get_weather("Rome") == "Rome"
    assert (get_weather.strict, get_weather.examples) == (True, ({"city": "Paris"},))
    options = Toolbox(get_weather).find("get_weather").options
    assert options is get_weather.options
    assert (options.timeout, options.retries, options.resource, options.rate, options.cache) == (5, 1, "weather", 2, 60)
    assert (options.transient, options.approve, options.untrusted) == ((OSError,), "costs money", True)
    assert (options.isolation, options.output_limit, options.max_parallel, options.ttl) == ("process", 100, 3, 3600)
    assert options.key({"city": "Oslo"}) == "Oslo"
    assert Toolbox(get_weather).with_options(timeout=9).find("get_weather").options.retries == 1


def test_a_tool_made_from_a_method_keeps_its_options_when_it_is_bound():
    class Station:
        @toolwire.tool(effect="read", timeout=7)
        def read(self, city: str) -> str:
            return f"{city}!"

    bound = Station().read
    assert bound("Oslo") == "Oslo!"
    assert Toolbox(bound).find("read").options.timeout == 7


def test_the_typed_keyword_arguments_are_the_fields_of_the_options():
    assert set(OptionValues.__annotations__) == set(Options.__struct_fields__)


@every_case(
    ("options", "message"),
    [
        ({"timeout": 0}, "timeout must be positive, got 0"),
        ({"timeout": "5"}, "timeout must be a number, got '5'"),
        ({"rate": float("nan")}, "rate must be positive, got nan"),
        ({"retries": -1}, "retries must not be negative, got -1"),
        ({"retries": 1.5}, "retries must be an integer, got 1.5"),
        ({"max_parallel": True}, "max_parallel must be an integer, got True"),
        ({"isolation": "vm"}, "isolation must be thread or process, got 'vm'"),
        ({"resource": ""}, "resource must be a name or a function of the arguments, got ''"),
        ({"approve": 3}, "approve must be a bool, a reason or a function, got 3"),
        ({"transient": (ValueError, "x")}, "transient must contain exception classes, got 'x'"),
        ({"transient": 7}, "transient must contain exception classes, got 7"),
        ({"key": "id"}, "key must be a function, got 'id'"),
        ({"cache": 5}, "cache applies to pure and read tools only, not to effect='write'"),
        ({"time_out": 5}, "a tool has no option 'time_out'"),
        ({"effect": "none"}, "unknown effect 'none'"),
    ],
)
def test_an_invalid_option_is_refused_at_the_declaration(options, message):
    with pytest.raises(ConfigError) as caught:
        toolwire.tool(**options)
    assert caught.value.message == message


def test_an_unknown_option_suggests_the_right_one():
    for give in (toolwire.tool, Toolbox().with_options):
        with pytest.raises(ConfigError) as caught:
            give(time_out=5)
        assert caught.value.hint == "did you mean 'timeout'?"


def test_an_example_that_does_not_fit_the_schema_is_refused():
    with pytest.raises(SchemaError, match="example 1 does not fit the schema"):

        @toolwire.tool(examples=[{"city": "Rome"}, {"city": 3}])
        def get_weather(city: str) -> str:
            return city
