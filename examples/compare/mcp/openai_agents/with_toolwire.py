import asyncio
import os

from toolwire import Agent
from toolwire.mcp import McpServers, ServerSpec


async def main() -> None:
    token = os.environ["MCP_SERVER_TOKEN"]
    async with McpServers(
        [
            ServerSpec(
                "calculator",
                url="http://localhost:8000/mcp",
                headers={"Authorization": f"Bearer {token}"},
                timeout=10,
            )
        ]
    ) as servers:
        agent = Agent("openai/gpt-5.6", servers.toolbox(), system="Use the MCP tools to answer the questions.")
        answer = await agent.run("Add 7 and 22.")
        print(answer.output)


asyncio.run(main())
