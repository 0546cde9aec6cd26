import asyncio

from toolwire import Agent


async def main() -> None:
    agent = Agent("openai/gpt-5.6", system="You are a helpful assistant.")
    async for text in agent.stream_text("Please tell me 5 jokes."):
        print(text, end="", flush=True)


asyncio.run(main())
