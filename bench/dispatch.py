"""One call, from the arguments as text to the result as text; and a thousand at once. Beside the peers and the limit.

The limit is jiter, jsonschema-rs and msgspec around the bare function: parse, validate, call, write. What the peers do differs:
openai-agents is measured without its runner, pydantic-ai by its toolset, mcp and langchain by their call in process.
"""

import asyncio
import json
import time

import jiter
import jsonschema_rs
import msgspec

from toolwire import ToolCall, tool
from toolwire.net.runner import Runner

ARGUMENTS = {"a": 1, "b": 2}
TEXT = json.dumps(ARGUMENTS)
ROUNDS, CALLS = 7, 300
MANY, NAP = 1000, 0.01


async def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


async def nap(a: int, b: int) -> int:
    """Sleep, then add."""
    await asyncio.sleep(NAP)
    return a + b


def limit(function):
    validator = jsonschema_rs.validator_for(tool(function).input_schema)
    encode = msgspec.json.Encoder().encode

    async def call():
        arguments = jiter.from_json(TEXT.encode())
        assert validator.is_valid(arguments)
        return encode(await function(**arguments))

    return call


def ours(function):
    runner = Runner(tool(effect="read")(function), most_parallel=MANY, most_per_turn=MANY)

    async def call():
        made = ToolCall("c", function.__name__, jiter.from_json(TEXT.encode()), TEXT)
        (result,) = await runner.run([made], run_id="bench")
        return result.text

    return call


def openai_agents(function):
    from agents import function_tool
    from agents.tool_context import ToolContext

    made = function_tool(function)
    context = ToolContext(context=None, tool_name=function.__name__, tool_call_id="c", tool_arguments=TEXT)

    async def call():
        return json.dumps(await made.on_invoke_tool(context, TEXT))

    return call


def mcp_server(function):
    from mcp.server import MCPServer

    server = MCPServer("bench")
    server.add_tool(function)

    async def call():
        return await server.call_tool(function.__name__, json.loads(TEXT))

    return call


def langchain(function):
    from langchain_core.tools import StructuredTool

    made = StructuredTool.from_function(coroutine=function)

    async def call():
        return json.dumps(await made.ainvoke(json.loads(TEXT)))

    return call


CANDIDATES = {
    "bare parse, validate, call, write": limit,
    "toolwire Runner": ours,
    "openai-agents FunctionTool": openai_agents,
    "mcp MCPServer.call_tool": mcp_server,
    "langchain StructuredTool.ainvoke": langchain,
}


def micros(calls):
    best = dict.fromkeys(calls, float("inf"))

    async def measure():
        for call in calls.values():
            await call()
        for _ in range(ROUNDS):
            for name, call in calls.items():
                started = time.process_time()
                for _ in range(CALLS):
                    await call()
                best[name] = min(best[name], (time.process_time() - started) / CALLS * 1e6)

    asyncio.run(measure())
    return best


def thousand(calls):
    best = dict.fromkeys(calls, float("inf"))

    async def measure():
        for _ in range(3):
            for name, call in calls.items():
                started = time.process_time()
                await asyncio.gather(*(call() for _ in range(MANY)))
                best[name] = min(best[name], (time.process_time() - started) * 1e3)

    asyncio.run(measure())
    return best


def turn_of_a_thousand():
    """The same in one turn, by the schedule."""
    runner = Runner(tool(effect="read")(nap), most_parallel=MANY, most_per_turn=MANY)
    calls = [ToolCall(f"c{number}", "nap", ARGUMENTS) for number in range(MANY)]
    best = float("inf")
    for _ in range(3):
        started = time.process_time()
        asyncio.run(runner.run(calls))
        best = min(best, (time.process_time() - started) * 1e3)
    return best


def build(function):
    made, missing = {}, {}
    for name, make in CANDIDATES.items():
        try:
            made[name] = make(function)
        except Exception as error:
            missing[name] = f"{type(error).__name__}: {error}"
    return made, missing


def main():
    one, missing = build(add)
    many, _ = build(nap)
    many.pop("langchain StructuredTool.ainvoke", None)  # seconds of CPU
    print(
        json.dumps(
            {
                "micros": micros(one),
                "thousand": {**thousand(many), "toolwire Runner, one turn": turn_of_a_thousand()},
                "missing": missing,
            }
        )
    )


if __name__ == "__main__":
    main()
