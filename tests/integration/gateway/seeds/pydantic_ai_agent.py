"""PydanticAI as a tutorial uses it, with the model of the first argument: its provider decides the protocol."""

import sys

from pydantic_ai import Agent

agent = Agent(sys.argv[1])


@agent.tool_plain
def get_weather(location: str, unit: str = "celsius") -> str:
    """Get the current weather for a location."""
    print(f"call: get_weather {location}")
    return f"22C, sunny in {location}"


result = agent.run_sync("What is the weather in Paris?")
print(f"answer: {result.output}")
