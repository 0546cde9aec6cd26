"""`toolwire mcp`: publish tools over MCP and use MCP servers.

The short subcommands are here: `bridge` connects a server of one transport to clients of the other, and `server-json`
writes the entry of a server for the MCP registry.
"""

from __future__ import annotations

import argparse
import asyncio
from typing import Any

from ...ir.errors import ConfigError
from ..sources.targets import add_target, load_tools, parse_spec
from ..terminal.options import add_command
from ..terminal.output import json_text
from .call import add_call, add_prompt, add_read
from .http import add_http_options, make_guard, parse_address, run_server, serve_app
from .inspect import add_to as add_inspect
from .serve import add_to as add_serve

_BRIDGE_HELP = """\
Forward MCP messages unchanged from one transport to the other.

examples:
  toolwire mcp bridge https://mcp.example.com/                 for clients that only start commands
  toolwire mcp bridge "npx -y my-server" --http :8000          for clients that use URLs, at http://127.0.0.1:8000/mcp

in a client's configuration:
  {"mcpServers": {"far": {"command": "toolwire", "args": ["mcp", "bridge", "https://mcp.example.com/"]}}}
"""


def add_bridge(commands: Any) -> None:
    parser = add_command(commands, "bridge", "serve a URL over stdio, or a command over HTTP", _BRIDGE_HELP, run_bridge)
    add_target(parser, files=False)
    parser.add_argument("--http", metavar="[HOST]:PORT", help="serve over HTTP instead of stdio")
    add_http_options(parser)


def run_bridge(arguments: argparse.Namespace) -> int:
    """Bridge a URL to stdio, or with `--http` a command to HTTP.

    Raises `ConfigError` for other combinations, which change no transport.
    """
    spec = parse_spec(arguments.target, arguments)
    if arguments.http is None:
        if spec.url is None:
            raise ConfigError("a command already uses stdio", hint="add --http :8000 to serve it over HTTP")
        from ...mcp.bridge import stdio_to_http
        from ...mcp.client.login import Browser, Login

        asyncio.run(stdio_to_http(spec, Login(Browser()) if arguments.login else None))
        return 0
    if spec.url is not None:
        raise ConfigError("a URL is already served over HTTP", hint="remove --http to serve it over stdio")
    return _serve(arguments)


def _serve(arguments: argparse.Namespace) -> int:
    """Serve the command over HTTP."""
    from ...mcp.bridge import BridgeApp

    host, port = parse_address(arguments.http)
    app = BridgeApp(parse_spec(arguments.target, arguments), path=arguments.path, guard=make_guard(arguments, host))
    run_server(serve_app(app, arguments.target, host, port, arguments.path))
    return 0


_SERVER_JSON_HELP = """\
Write the server.json that publishes a server in the MCP registry.

examples:
  toolwire mcp server-json tools.py --name io.github.me/weather --version 1.0.0 --pypi my-weather
  toolwire mcp server-json tools.py --name com.example/weather --version 1.0.0 --url https://example.com/mcp
"""


def add_server_json(commands: Any) -> None:
    """Register `toolwire mcp server-json` with its options."""
    parser = add_command(
        commands, "server-json", "write the server.json of the MCP registry", _SERVER_JSON_HELP, run_server_json
    )
    parser.add_argument("tools", metavar="TOOLS.py", help="a file of functions")
    parser.add_argument("--name", required=True, help="name with a reverse-DNS prefix: io.github.me/weather")
    parser.add_argument("--version", required=True, help="exact version of the server")
    parser.add_argument(
        "--description", help="its purpose, in at most 100 characters (the first line of the file's docstring)"
    )
    parser.add_argument("--title", help="display name")
    parser.add_argument("--repository", metavar="URL", help="URL of the source repository")
    parser.add_argument("--pypi", metavar="PACKAGE", help="the PyPI package that contains it")
    parser.add_argument("--url", help="URL of the HTTP endpoint")


def run_server_json(arguments: argparse.Namespace) -> int:
    """Print the registry entry of a file of functions."""
    from ...mcp.server.registry import server_json

    module = load_tools(arguments.tools)
    described = arguments.description or (module.__doc__ or "").strip().partition("\n")[0]
    if not described:
        hint = "add --description, or a docstring at the beginning of the file"
        raise ConfigError(f"{arguments.tools} has no docstring that describes the server", hint=hint)
    document = server_json(
        arguments.name,
        arguments.version,
        described,
        title=arguments.title,
        repository=arguments.repository,
        pypi=arguments.pypi,
        url=arguments.url,
    )
    print(json_text(document))
    return 0


_COMMANDS = (add_serve, add_inspect, add_call, add_read, add_prompt, add_bridge, add_server_json)

_HELP = """\
Model Context Protocol: version 2026-07-28 and earlier versions with a handshake, over stdio and HTTP.

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
    parser = add_command(commands, "mcp", "publish your functions to MCP clients, use any MCP server", _HELP)
    subcommands = parser.add_subparsers(metavar="COMMAND", required=True)
    for add in _COMMANDS:
        add(subcommands)
