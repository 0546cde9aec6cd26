import asyncio

from toolwire import Agent
from toolwire.mcp import McpServers, ServerSpec


async def main() -> None:
    async with McpServers([ServerSpec("calculator", url="http://localhost:8000/mcp")]) as servers:
        answer = await Agent("openai/gpt-5.2", servers.toolbox()).run("What is 7 plus 5?")
        print(answer.output)


asyncio.run(main())
