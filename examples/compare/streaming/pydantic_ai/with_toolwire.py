import asyncio

from toolwire import Agent

agent = Agent("gemini/gemini-3-flash-preview")


async def main() -> None:
    async for text in agent.stream_text('Where does "hello world" come from?'):
        print(text)


asyncio.run(main())
