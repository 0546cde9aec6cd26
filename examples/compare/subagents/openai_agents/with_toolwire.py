import asyncio

from toolwire import Agent

spanish_agent = Agent(
    "openai/gpt-5.6",
    name="Spanish agent",
    system="You translate the user's message to Spanish",
)

french_agent = Agent(
    "openai/gpt-5.6",
    name="French agent",
    system="You translate the user's message to French",
)

orchestrator_agent = Agent(
    "openai/gpt-5.6",
    [
        spanish_agent.as_tool("translate_to_spanish", "Translate the user's message to Spanish"),
        french_agent.as_tool("translate_to_french", "Translate the user's message to French"),
    ],
    name="orchestrator_agent",
    system=(
        "You are a translation agent. You use the tools given to you to translate. "
        "If asked for multiple translations, you call the relevant tools."
    ),
)


async def main() -> None:
    answer = await orchestrator_agent.run("Say 'Hello, how are you?' in Spanish.")
    print(answer.output)


asyncio.run(main())
