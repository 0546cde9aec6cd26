"""`toolwire mcp server-json`: what the MCP registry wants to know of a server."""

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
        description="Write the server.json with which a server is published in the MCP registry.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("tools", metavar="TOOLS.py", help="a file of functions")
    parser.add_argument("--name", required=True, help="reverse DNS and a name: io.github.me/weather")
    parser.add_argument("--version", required=True, help="the version of the server, no range")
    parser.add_argument(
        "--description", help="what it is for, in 100 characters (the first line of the file's docstring)"
    )
    parser.add_argument("--title", help="its name for people")
    parser.add_argument("--repository", metavar="URL", help="where its source is")
    parser.add_argument("--pypi", metavar="PACKAGE", help="the package on PyPI that brings it")
    parser.add_argument("--url", help="where it is served over HTTP")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    from ..mcp.registry import server_json

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
