# Source: https://github.com/pydantic/pydantic-ai/blob/v2.33.0/docs/mcp/client.md (Pydantic AI 2.33.0, MIT licence, copyright Pydantic Services Inc.).
# Complete on that page but for the import of asyncio and the last line, which the page asks to add.
import asyncio

from pydantic_ai import Agent
from pydantic_ai.mcp import MCPToolset

toolset = MCPToolset('http://localhost:8000/mcp')
agent = Agent('openai:gpt-5.2', toolsets=[toolset])

async def main():
    result = await agent.run('What is 7 plus 5?')
    print(result.output)


asyncio.run(main())
