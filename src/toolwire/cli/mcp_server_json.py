"""`toolwire mcp server-json`: write the entry of a server for the MCP registry."""

from __future__ import annotations

import argparse
from typing import Any

from .show import json_text
from .tools_file import load_tools

__all__ = ["add_to"]

_EXAMPLES = """\
examples:
  toolwire mcp server-json tools.py --name io.github.me/weather --version 1.0.0 --pypi my-weather
  toolwire mcp server-json tools.py --name com.example/weather --version 1.0.0 --url https://example.com/mcp
"""


def add_to(commands: Any) -> None:
    parser = commands.add_parser(
        "server-json",
        help="write the server.json of the MCP registry",
        description="Write the server.json that publishes a server in the MCP registry.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
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
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    from ..mcp.server.registry import server_json

    module = load_tools(arguments.tools)
    described = arguments.description or (module.__doc__ or "").strip().partition("\n")[0]
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
