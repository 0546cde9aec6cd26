"""Tools that the gateway runs: an output that was cut is readable in the next turn of the same request."""

import asyncio

import toolwire
from toolwire import Message, Request, Response, Runner, Text, ToolCall
from toolwire.gateway.gateway_tools import GatewayTools
from toolwire.ir.response import Stop


@toolwire.tool(effect="read", output_limit=100)
async def report() -> str:
    return "x" * 1000


def asks_for(*calls):
    return Response(parts=calls, stop=Stop("tool_calls"))


def test_a_cut_output_is_readable_from_the_next_turn():
    async def run():
        runner = Runner(report)
        client = Request("m", (Message("user", (Text("go"),)),), (toolwire.Tool("own"),))
        tools = GatewayTools(runner, client, "run1")
        first = [tool.name for tool in tools.request.tools]
        assert not tools.is_gateway_tool("read_output")
        assert await tools.run(asks_for(ToolCall("1", "report", {})))
        second = [tool.name for tool in tools.request.tools]
        assert await tools.run(asks_for(ToolCall("2", "read_output", {"id": "out1", "limit": 3})))
        (result,) = tools.request.messages[-1].parts
        other = GatewayTools(runner, client, "run2")
        runner.close()
        return first, second, result.text, [tool.name for tool in other.request.tools]

    first, second, text, other = asyncio.run(run())
    assert first == other == ["own", "report"]
    assert second == ["own", "report", "read_output", "search_output"]
    assert text.startswith("xxx\n\n[characters 0 to 3 of 1,000]")
