"""The answers of the model for each pair of programs, and the facts that both programs must show.

Both programs of a pair get the same answers, in the protocol of their requests. The only difference is the form of a
typed output: text if the request has an output schema, a call if the request offers a tool for the final answer.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias
from zlib import crc32

from msgspec.structs import replace

from toolwire import Request, Response, ToolCall
from toolwire.ir import Fault, Usage
from toolwire.testing import says

JSON: TypeAlias = Any
Reply: TypeAlias = Response | Fault | Callable[[Request], Response]


@dataclass(frozen=True)
class Scenario:
    """Answers of the model, and the expected outcome."""

    answers: tuple[Reply, ...]
    output: tuple[str, ...]  # texts that the program prints, in this order
    results: tuple[str, ...] = ()  # texts of tool results that the model receives
    prompts: tuple[str, ...] = ()  # texts of users and instructions that the model receives
    input: str = ""  # standard input of the program
    token: str = ""  # bearer token that the MCP server requires
    runner: str = "python"  # or pytest
    server: bool = False  # an MCP server with the tool `add`


def call(name: str, /, **arguments: object) -> ToolCall:
    """Build a call with an id that is derived from its arguments, so that calls of one answer have different ids."""
    return ToolCall(f"call_{crc32(json.dumps([name, arguments]).encode())}", name, arguments)


def answer(*parts: ToolCall | str) -> Response:
    return replace(says(*parts), usage=Usage(input=50, output=12))


def typed(value: JSON) -> Callable[[Request], Response]:
    """Answer with a typed output, in the form that the request asks for."""

    def reply(request: Request) -> Response:
        if request.output is not None and request.output.kind == "json_schema":
            return answer(json.dumps(_fit(value, request.output.schema)))
        final = next(tool for tool in request.tools if tool.name in {"final_result", "final_answer"})
        return answer(ToolCall("call_final", final.name, _fit(value, final.input_schema)))

    return reply


def delegate(name: str, prompt: str, **arguments: object) -> Callable[[Request], Response]:
    """Call a subagent, with these arguments if its tool has them, else with the prompt as its only argument."""

    def reply(request: Request) -> Response:
        schema = next(tool for tool in request.tools if tool.name == name).input_schema
        parameters = _property_names(schema)
        fitting = arguments if arguments.keys() <= set(parameters) else dict.fromkeys(parameters, prompt)
        return answer(call(name, **fitting))

    return reply


def _fit(value: JSON, schema: JSON) -> JSON:
    """Put a value that is not an object into the only property of the schema."""
    names = [] if hasattr(value, "keys") else _property_names(schema)
    return {names[0]: value} if names else value


def _property_names(schema: JSON) -> list[str]:
    return list(schema.get("properties", ()))


_FORECAST = call("weather_forecast", location="Paris", forecast_date="2030-01-01")
_JOKES = ["They called it Colgate.", "It was two-tired."]

SCENARIOS: dict[tuple[str, str], Scenario] = {
    ("weather", "pydantic_ai"): Scenario(
        (answer(_FORECAST), answer("It will be warm and sunny in Paris on Tuesday.")),
        ("weather_forecast", "24°C and sunny", "warm and sunny in Paris on Tuesday."),
        ("The forecast in Paris on 2030-01-01 is 24°C and sunny.",),
        ("Providing a weather forecast", "What will the weather be like in Paris on Tuesday?"),
    ),
    ("weather", "openai_agents"): Scenario(
        (answer(call("get_weather", city="Tokyo")), answer("The weather in Tokyo is sunny.")),
        ("[debug] get_weather called", "The weather in Tokyo is sunny."),
        ("14-20C", "Sunny with wind."),
        ("You are a helpful agent.", "What's the weather in Tokyo?"),
    ),
    ("extraction", "pydantic_ai"): Scenario(
        (answer(call("recent_reviews", product="Extract")), typed({"label": "positive", "score": 0.9})),
        ("label='positive' score=0.9",),
        ("The new release fixed everything I complained about!",),
        ("How are people feeling about the Extract app?",),
    ),
    ("extraction", "openai_agents"): Scenario(
        (typed({"name": "Science fair", "date": "Friday", "participants": ["Alice", "Bob"]}),),
        ("name='Science fair' date='Friday' participants=['Alice', 'Bob']",),
        prompts=("Extract calendar events from text",),
    ),
    ("approval", "pydantic_ai"): Scenario(
        (
            answer(
                call("delete_file", path="__init__.py"),
                call("update_file", path="README.md", content="Hello, world!"),
                call("update_file", path=".env", content=""),
            ),
            answer(call("update_file", path="README.md.bak", content="Hello, world!")),
            answer("Created a backup at README.md.bak."),
        ),
        ("delete_file", "Created a backup at README.md.bak."),
        (
            "Deleting files is not allowed",
            "File 'README.md' updated: 'Hello, world!'",
            "File '.env' updated: ''",
            "File 'README.md.bak' updated: 'Hello, world!'",
        ),
        ("Delete `__init__.py`", "Now create a backup of README.md"),
    ),
    ("approval", "openai_agents"): Scenario(
        (answer(call("get_temperature", city="Oakland")), answer("It is 20° Celsius in Oakland.")),
        ("Approve get_temperature", "Oakland", "[y/N]", "It is 20° Celsius in Oakland."),
        ("The temperature in Oakland is 20° Celsius",),
        input="y\n",
    ),
    ("dependencies", "pydantic_ai"): Scenario(
        (answer(call("roll_dice"), call("get_player_name")), answer("Congratulations Anne, you're a winner!")),
        ("Congratulations Anne, you're a winner!",),
        ("Anne",),
        ("You're a dice game", "My guess is 4"),
    ),
    ("dependencies", "openai_agents"): Scenario(
        (answer(call("fetch_user_age")), answer("The user John is 47 years old.")),
        ("The user John is 47 years old.",),
        ("The user John is 47 years old",),
        ("What is the age of the user?",),
    ),
    ("streaming", "pydantic_ai"): Scenario(
        (answer('The first known use of "hello, world" was in a 1974 textbook.'),),
        ("The firs", "book."),  # PydanticAI prints one piece per tenth of a second
        prompts=('Where does "hello world" come from?',),
    ),
    ("streaming", "openai_agents"): Scenario(
        (answer("Why did the bicycle fall over? It was two-tired!"),),
        ("Why did the bicycle fall over? It was two-tired!",),
        prompts=("You are a helpful assistant.", "Please tell me 5 jokes."),
    ),
    ("conversation", "pydantic_ai"): Scenario(
        (answer("They called it Colgate."), answer("It needs no explanation.")),
        ("They called it Colgate.", "It needs no explanation.", "Tell me a joke.", "Explain?"),
        prompts=("Be a helpful assistant.", "Explain?"),
    ),
    ("conversation", "openai_agents"): Scenario(
        (answer("San Francisco"), answer("California")),
        ("San Francisco", "California"),
        prompts=("Reply very concisely.", "What state is it in?"),
    ),
    ("subagents", "pydantic_ai"): Scenario(
        (
            delegate("joke_factory", "Please generate 2 jokes.", count=2),
            typed(_JOKES),
            answer("They called it Colgate."),
        ),
        ("They called it Colgate.", "150"),  # the tokens of both agents
        ("It was two-tired.",),
        ("Use the `joke_factory`", "Please generate 2 jokes."),
    ),
    ("subagents", "openai_agents"): Scenario(
        (
            delegate("translate_to_spanish", "Hello, how are you?", input="Hello, how are you?"),
            answer("Hola, ¿cómo estás?"),
            answer("In Spanish: Hola, ¿cómo estás?"),
        ),
        ("In Spanish: Hola, ¿cómo estás?",),
        ("Hola, ¿cómo estás?",),
        ("You are a translation agent.", "You translate the user's message to Spanish"),
    ),
    ("mcp", "pydantic_ai"): Scenario(
        (answer(call("add", a=7, b=5)), answer("The answer is 12.")),
        ("The answer is 12.",),
        ("12",),
        ("What is 7 plus 5?",),
        server=True,
    ),
    ("mcp", "openai_agents"): Scenario(
        (answer(call("add", a=7, b=22)), answer("The sum is 29.")),
        ("The sum is 29.",),
        ("29",),
        ("Use the MCP tools to answer the questions.", "Add 7 and 22."),
        server=True,
        token="token-of-the-test",
    ),
    ("retries", "pydantic_ai"): Scenario(
        (
            answer(call("get_user_by_name", name="John")),
            answer(call("get_user_by_name", name="John Doe")),
            typed({"user_id": 123, "message": "Hello John, would you be free for coffee?"}),
        ),
        ("John\nJohn Doe\n", "user_id=123 message='Hello John, would you be free for coffee?'"),
        ("No user found with name 'John', remember to provide their full name", "123"),
    ),
    ("retries", "openai_agents"): Scenario(
        (Fault("overloaded", "busy", 503, retry_after=0.01), answer("In 476 AD.")),
        ("In 476 AD.",),
        prompts=("When did the Roman Empire fall?",),
    ),
    ("testing", "pydantic_ai"): Scenario((), ("1 passed",), runner="pytest"),
    ("testing", "openai_agents"): Scenario((), ("1 passed",), runner="pytest"),
}
