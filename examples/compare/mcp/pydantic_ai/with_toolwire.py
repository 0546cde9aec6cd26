import asyncio

from toolwire import Agent
from toolwire.mcp import McpServers


async def main() -> None:
    async with McpServers.at("http://localhost:8000/mcp") as servers:
        agent = Agent("openai/gpt-5.2", servers.toolbox())
        answer = await agent.run("What is 7 plus 5?")
        print(answer.output)


asyncio.run(main())
