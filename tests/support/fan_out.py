"""An agent with many subagents."""

import asyncio

from toolwire import Agent, Response, Text, ToolCall
from toolwire.ir.response import Usage

WIDTH = 100
"""Leaves per subagent; below the limit of calls per turn."""


class FanOut:
    """A model that calls a tool `width` times in its first turn, and answers then."""

    def __init__(self, tool="", width=0):
        self._calls = tuple(ToolCall(f"c{number}", tool, {"prompt": str(number)}) for number in range(width))

    async def ask(self, request):
        await asyncio.sleep(0)
        is_first = all(message.role != "assistant" for message in request.messages)
        parts = self._calls if is_first and self._calls else (Text("ok"),)
        return Response(parts=parts, usage=Usage(1, 1))


def agent_with(leaves, **options):
    leaf = Agent(FanOut(), **options).as_tool(name="leaf", description="Answer.")
    middle = Agent(FanOut("leaf", WIDTH), [leaf], **options).as_tool(name="middle", description="Ask leaves.")
    return Agent(FanOut("middle", leaves // WIDTH), [middle], **options)
