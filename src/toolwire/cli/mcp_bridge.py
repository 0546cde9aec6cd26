"""`toolwire mcp bridge`: connect a server of one transport to clients of the other."""

from __future__ import annotations

import argparse
import asyncio
import sys
from typing import Any

from ..ir.errors import ConfigError
from .mcp_http import add_http_options, make_guard, parse_address, run_server, serve_app
from .mcp_target import add_target, parse_spec

__all__ = ["add_to"]

_EXAMPLES = """\
examples:
  toolwire mcp bridge https://mcp.example.com/                 for clients that only start commands
  toolwire mcp bridge "npx -y my-server" --http :8000          for clients that use URLs, at http://127.0.0.1:8000/mcp

in a client's configuration:
  {"mcpServers": {"far": {"command": "toolwire", "args": ["mcp", "bridge", "https://mcp.example.com/"]}}}
"""


def add_to(commands: Any) -> None:
    parser = commands.add_parser(
        "bridge",
        help="serve a URL over stdio, or a command over HTTP",
        description="Forward MCP messages unchanged from one transport to the other.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add_target(parser, files=False)
    parser.add_argument("--http", metavar="[HOST]:PORT", help="serve over HTTP instead of stdio")
    add_http_options(parser)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Bridge a URL to stdio, or with `--http` a command to HTTP. Other combinations change no transport."""
    spec = parse_spec(arguments.target, arguments)
    if arguments.http is None:
        if spec.url is None:
            raise ConfigError("a command already uses stdio", hint="add --http :8000 to serve it over HTTP")
        from ..mcp.bridge import stdio_to_http
        from ..mcp.client.login import Browser, Login

        asyncio.run(stdio_to_http(spec, Login(Browser()) if arguments.login else None))
        return 0
    if spec.url is not None:
        raise ConfigError("a URL is already served over HTTP", hint="remove --http to serve it over stdio")
    return _serve(arguments)


def _serve(arguments: argparse.Namespace) -> int:
    """Serve the command over HTTP with uvicorn."""
    from ..mcp.bridge import BridgeApp

    host, port = parse_address(arguments.http)
    app = BridgeApp(parse_spec(arguments.target, arguments), path=arguments.path, guard=make_guard(arguments, host))
    print(f"serving {arguments.target} at http://{host}:{port}{arguments.path}", file=sys.stderr, flush=True)
    run_server(serve_app(app, host, port))
    return 0
