# Source: https://github.com/pydantic/pydantic-ai/blob/v2.33.0/docs/output.md (Pydantic AI 2.33.0, MIT licence, copyright Pydantic Services Inc.).
# Complete on that page but for the import of asyncio and the last line, which the page asks to add.
import asyncio

from pydantic_ai import Agent

agent = Agent('google:gemini-3-flash-preview')


async def main():
    async with agent.run_stream('Where does "hello world" come from?') as result:
        async for message in result.stream_text(delta=True):
            print(message)


asyncio.run(main())
