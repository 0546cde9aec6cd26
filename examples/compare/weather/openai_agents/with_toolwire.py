import asyncio
from typing import Annotated

from pydantic import BaseModel, Field

from toolwire import Agent, tool


class Weather(BaseModel):
    city: str = Field(description="The city name")
    temperature_range: str = Field(description="The temperature range in Celsius")
    conditions: str = Field(description="The weather conditions")


@tool(effect="read")
def get_weather(city: Annotated[str, "The city to get the weather for"]) -> Weather:
    """Get the current weather information for a specified city."""
    print("[debug] get_weather called")
    return Weather(city=city, temperature_range="14-20C", conditions="Sunny with wind.")


agent = Agent("openai/gpt-5.6", [get_weather], name="Hello world", system="You are a helpful agent.")


async def main() -> None:
    answer = await agent.run("What's the weather in Tokyo?")
    print(answer.output)


asyncio.run(main())
