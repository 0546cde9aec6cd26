"""Clients of servers that are real processes."""

import asyncio
import os
import sys
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from mcp_server.server_process import ROOT, WORKSHOP, command, environment
from toolwire.ir.parts import ToolCall
from toolwire.mcp.client import McpClient, McpServers, ServerSpec
from waiting import SAFETY, until

MISBEHAVING = Path(__file__).parent / "misbehaving.py"


def misbehaving(*options, effects=None, name="m", **settings):
    env = {"EFFECTS": str(effects or os.devnull)}
    return ServerSpec(name, command=sys.executable, args=(str(MISBEHAVING), *options), env=env, **settings)


def workshop(*options, effects=None, name="workshop", tools=WORKSHOP, **settings):
    """Our own server, over stdio."""
    program, *args = command(tools, *(options or ("--store", "memory:")))
    env = {key: environment(effects)[key] for key in ("PYTHONPATH", "EFFECTS")}
    return ServerSpec(name, command=program, args=tuple(args), env=env, **settings)


@asynccontextmanager
async def toolbox_of(*specs, **options):
    async with McpServers(specs, **options) as servers:
        yield servers, servers.toolbox()


def run(test):
    return asyncio.run(asyncio.wait_for(test, 2 * SAFETY))


async def cancel_once(begun, call):
    """Cancel a call as soon as `begun()` is true."""
    calling = asyncio.create_task(call)
    await until(begun)
    calling.cancel()
    with pytest.raises(asyncio.CancelledError):
        await calling


def tool_call(name, /, **arguments):
    return ToolCall(f"call_{name}", name, arguments)


__all__ = [
    "MISBEHAVING",
    "ROOT",
    "McpClient",
    "McpServers",
    "cancel_once",
    "misbehaving",
    "run",
    "tool_call",
    "toolbox_of",
    "until",
    "workshop",
]
