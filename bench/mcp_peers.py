"""Serve one tool with each of the measured servers: `python mcp_peers.py toolwire|sdk|fastmcp stdio|PORT`."""

import sys


def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


async def plus(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


def ours():
    from toolwire import tool
    from toolwire.mcp import Server

    return Server(tool(effect="read", name="add")(plus), name="bench")


def serve_ours(way: str) -> None:
    import asyncio

    from toolwire.mcp import HttpApp, serve_stdio

    if way == "stdio":
        asyncio.run(serve_stdio(ours()))
    else:
        _uvicorn(HttpApp(ours()), way)


def sdk():
    from mcp.server import MCPServer

    server = MCPServer("bench")
    server.add_tool(plus, name="add")
    return server


def serve_sdk(way: str) -> None:
    if way == "stdio":
        sdk().run("stdio")
    else:
        _uvicorn(sdk().streamable_http_app(), way)


def fast():
    from fastmcp import FastMCP

    server = FastMCP("bench")
    server.tool(plus, name="add")
    return server


def serve_fast(way: str) -> None:
    if way == "stdio":
        fast().run("stdio", show_banner=False)
    else:
        _uvicorn(fast().http_app(), way)


def _uvicorn(app, port: str) -> None:
    import uvicorn

    uvicorn.run(app, port=int(port), log_level="error", access_log=False)


SERVERS = {"toolwire": serve_ours, "sdk": serve_sdk, "fastmcp": serve_fast}

if __name__ == "__main__":
    SERVERS[sys.argv[1]](sys.argv[2])
