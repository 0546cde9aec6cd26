"""`toolwire mcp`: publish tools over MCP and use MCP servers. Each subcommand has its own module.

Separate because every command of the program has a module of its own.
"""

from __future__ import annotations

import argparse
from typing import Any

from .mcp_bridge import add_to as add_bridge
from .mcp_call import add_to as add_call
from .mcp_inspect import add_to as add_inspect
from .mcp_prompt import add_to as add_prompt
from .mcp_read import add_to as add_read
from .mcp_serve import add_to as add_serve
from .mcp_server_json import add_to as add_server_json

__all__ = ["add_to"]

_COMMANDS = (add_serve, add_inspect, add_call, add_read, add_prompt, add_bridge, add_server_json)

_EXAMPLES = """\
examples:
  toolwire mcp serve tools.py                    for a client that starts the server (stdio)
  toolwire mcp serve tools.py --http :8000       for clients on this machine, at http://127.0.0.1:8000/mcp
  toolwire mcp inspect "npx -y @modelcontextprotocol/server-everything"
  toolwire mcp call https://mcp.example.com/ search query=tea limit=5
  toolwire mcp read tools.py notes://today       a resource
  toolwire mcp prompt tools.py review code=@main.py
  toolwire mcp bridge https://mcp.example.com/   a remote server for clients that only start commands
  toolwire mcp server-json tools.py --name io.github.me/weather --version 1.0.0 > server.json
"""


def add_to(commands: Any) -> None:
    parser = commands.add_parser(
        "mcp",
        help="publish your functions to every MCP client, use any MCP server",
        description="Model Context Protocol: version 2026-07-28 and earlier versions with a handshake, over stdio and HTTP.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    subcommands = parser.add_subparsers(metavar="COMMAND", required=True)
    for add in _COMMANDS:
        add(subcommands)
