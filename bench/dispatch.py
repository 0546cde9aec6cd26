"""Measure one call, from the arguments as text to the result as text, and a thousand at once, with the peers and the limit.

The limit is jiter, jsonschema-rs and msgspec around the bare function: parse, validate, call, write; for a thousand calls, also the
bare functions in one gather. The work of the peers differs: openai-agents is measured without its runner, pydantic-ai with its tool
manager, without instrumentation, mcp and langchain with their call in process.
"""

import asyncio
import json
import time

import jiter
import jsonschema_rs
import msgspec

from toolwire import ToolCall, tool
from toolwire.net.tools.runner import Runner

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
    runner = Runner(tool(effect="read")(function), max_parallel=MANY, max_per_turn=MANY)

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


def pydantic_ai(function):
    from pydantic_ai import RunContext
    from pydantic_ai.messages import ToolCallPart
    from pydantic_ai.models.test import TestModel
    from pydantic_ai.tool_manager import ToolManager
    from pydantic_ai.toolsets import FunctionToolset
    from pydantic_ai.usage import RunUsage

    context = RunContext(deps=None, model=TestModel(), usage=RunUsage(), run_step=1)
    manager = asyncio.run(ToolManager(FunctionToolset([function])).for_run_step(context))

    async def call():
        return json.dumps(await manager.handle_call(ToolCallPart(function.__name__, TEXT, "c")))

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
    "pydantic-ai ToolManager.handle_call": pydantic_ai,
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
    """Return the milliseconds for all of them: for one gather of calls, and for one scheduled turn."""
    runs = {"bare gather of the function": lambda: asyncio.gather(*(nap(**ARGUMENTS) for _ in range(MANY)))}
    runs |= {name: lambda call=call: asyncio.gather(*(call() for _ in range(MANY))) for name, call in calls.items()}
    runs["toolwire Runner, one turn"] = one_turn()
    best = dict.fromkeys(runs, float("inf"))

    async def measure():
        for _ in range(ROUNDS):
            for name, run in runs.items():
                started = time.process_time()
                await run()
                best[name] = min(best[name], (time.process_time() - started) * 1e3)

    asyncio.run(measure())
    return best


def one_turn():
    runner = Runner(tool(effect="read")(nap), max_parallel=MANY, max_per_turn=MANY)
    calls = [ToolCall(f"c{number}", "nap", ARGUMENTS) for number in range(MANY)]
    return lambda: runner.run(calls)


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
                "thousand": thousand(many),
                "missing": missing,
            }
        )
    )


if __name__ == "__main__":
    main()
