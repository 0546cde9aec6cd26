"""Clients of servers that are real processes."""

import asyncio
import os
import sys
import time
from contextlib import asynccontextmanager
from pathlib import Path

from mcp_server.running import ROOT, WORKSHOP, command, environment

from toolwire.ir.parts import ToolCall
from toolwire.mcp.client import McpClient, McpServers, ServerSpec

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
    return asyncio.run(asyncio.wait_for(test, 60))


async def until(true):
    end = time.monotonic() + 20
    while not true():
        assert time.monotonic() < end, "it did not happen"
        await asyncio.sleep(0.02)


def asked(name, /, **arguments):
    return ToolCall(f"call_{name}", name, arguments)


__all__ = [
    "MISBEHAVING",
    "ROOT",
    "McpClient",
    "McpServers",
    "asked",
    "misbehaving",
    "run",
    "toolbox_of",
    "until",
    "workshop",
]
