import asyncio
from datetime import date

from toolwire import Agent, ToolCall, ToolResult, tool
from toolwire.ir import CallDelta, CallStart, ReasoningDelta, TextDelta
from toolwire.net import Answer, StreamItem


@tool(effect="read")
async def weather_forecast(location: str, forecast_date: date) -> str:
    return f"The forecast in {location} on {forecast_date} is 24°C and sunny."


weather_agent = Agent(
    "openai/gpt-5.2",
    [weather_forecast],
    system="Providing a weather forecast at the locations the user provides.",
)
output_messages: list[str] = []


def handle_event(event: StreamItem | Answer[str]) -> None:
    if isinstance(event, CallStart):
        output_messages.append(f"[Request] Starting call {event.key}: {event.name}")
    elif isinstance(event, TextDelta):
        output_messages.append(f"[Request] Part {event.key} text delta: {event.text!r}")
    elif isinstance(event, ReasoningDelta):
        output_messages.append(f"[Request] Part {event.key} thinking delta: {event.text!r}")
    elif isinstance(event, CallDelta):
        output_messages.append(f"[Request] Part {event.key} args delta: {event.text}")
    elif isinstance(event, ToolCall):
        output_messages.append(f"[Tools] The LLM calls tool={event.name!r} with args={event.arguments} ({event.id!r})")
    elif isinstance(event, ToolResult):
        output_messages.append(f"[Tools] Tool call {event.call_id!r} returned => {event.text}")
    elif isinstance(event, Answer):
        output_messages.append(f"[Output] {event.output}")


async def main() -> None:
    user_prompt = "What will the weather be like in Paris on Tuesday?"

    async for event in weather_agent.stream(user_prompt):
        handle_event(event)


asyncio.run(main())
print(output_messages)
