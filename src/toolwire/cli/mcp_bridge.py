"""`toolwire mcp bridge`: a server of one transport for clients of the other."""

from __future__ import annotations

import argparse
import asyncio
import sys
from typing import Any

from ..ir.errors import ConfigError, MissingExtra
from .mcp_serve import address_of, guard_of
from .mcp_target import add_target, one_spec

__all__ = ["add_to"]

_EXAMPLES = """\
examples:
  toolwire mcp bridge https://mcp.example.com/                 for a client that starts commands
  toolwire mcp bridge "npx -y my-server" --http :8000          for clients that know addresses, at http://127.0.0.1:8000/mcp

in a client's configuration:
  {"mcpServers": {"far": {"command": "toolwire", "args": ["mcp", "bridge", "https://mcp.example.com/"]}}}
"""


def add_to(commands: Any) -> None:
    parser = commands.add_parser(
        "bridge",
        help="stdio in front of an address, HTTP in front of a command",
        description="Pass MCP on from one transport to the other, as it is.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add_target(parser, files=False)
    parser.add_argument(
        "--http", metavar="[HOST]:PORT", help="serve over HTTP; without it, on standard input and output"
    )
    parser.add_argument("--path", default="/mcp", help="where it answers over HTTP (/mcp)")
    parser.add_argument("--allow-host", action="append", default=[], metavar="NAME", help="a name it is reached by")
    parser.add_argument("--allow-origin", action="append", default=[], metavar="URL", help="a web page that may use it")
    parser.add_argument("--token-env", metavar="NAME", help="the variable that holds the bearer token to ask for")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    spec = one_spec(arguments)
    if arguments.http is None:
        if spec.url is None:
            raise ConfigError("a command is on stdio already", hint="--http :8000 puts it on HTTP")
        from ..mcp.bridge import stdio_to_http
        from ..mcp.client.login import Browser, Login

        asyncio.run(stdio_to_http(spec, Login(Browser()) if arguments.login else None))
        return 0
    if spec.url is not None:
        raise ConfigError("a URL is on HTTP already", hint="leave --http out to put it on stdio")
    return _serve(arguments)


def _serve(arguments: argparse.Namespace) -> int:
    from ..mcp.bridge import BridgeApp

    try:
        import uvicorn
    except ImportError:
        raise MissingExtra("HTTP needs uvicorn", hint="pip install 'toolwire[mcp]'") from None
    host, port = address_of(arguments.http)
    app = BridgeApp(one_spec(arguments), path=arguments.path, guard=guard_of(arguments, host))
    print(f"serving {arguments.target} at http://{host}:{port}{arguments.path}", file=sys.stderr, flush=True)
    config = uvicorn.Config(
        app, host.strip("[]"), port, log_level="warning", access_log=False, timeout_graceful_shutdown=3
    )
    uvicorn.Server(config).run()
    return 0
