from toolwire import Agent, ToolCall, tool
from toolwire.testing import ScriptedModel, says


@tool(effect="read")
def get_weather(city: str) -> str:
    """Return the weather for a city."""
    return f"{city}: sunny"


def test_tool_workflow() -> None:
    model = ScriptedModel([says(ToolCall("call_1", "get_weather", {"city": "Tokyo"})), says("It is sunny in Tokyo.")])
    agent = Agent(model, [get_weather], name="Weather assistant")

    answer = agent.run_sync("What is the weather in Tokyo?")

    assert answer.output == "It is sunny in Tokyo."
    assert len(model.requests) == 2
    assert answer.results[0].text == "Tokyo: sunny"
    model.assert_complete()
