"""`toolwire mcp read`: read a resource of an MCP server."""

from __future__ import annotations

import argparse
import asyncio
from typing import TYPE_CHECKING, Any

from ..ir.errors import ConfigError, ToolwireError
from .mcp_arguments import nearest
from .mcp_call import open_client
from .mcp_result import PartPrinter, add_output_option
from .mcp_target import add_target
from .mcp_traffic import add_traffic_options
from .show import json_text

if TYPE_CHECKING:
    from ..ir.pointer import JSON
    from ..mcp.client.client import McpClient

__all__ = ["add_to"]

_EXAMPLES = """\
examples:
  toolwire mcp read tools.py notes://today
  toolwire mcp read https://mcp.example.com/ file:///logo.png --output logo.png
  toolwire mcp read "npx -y @modelcontextprotocol/server-everything" demo://resource/static/document/features.md --json

`toolwire mcp inspect SERVER` lists the resources and templates. Replace each {name} of a template by a value.
exit codes: 0 done   2 wrong usage, unknown resource, or no answer
"""


def add_to(commands: Any) -> None:
    parser = commands.add_parser(
        "read",
        help="read a resource of a server",
        description="Read a resource of an MCP server and print its contents.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add_target(parser, files=False)
    parser.add_argument("uri", metavar="URI", help="address of the resource")
    add_output_option(parser)
    add_traffic_options(parser)
    parser.add_argument("--json", action="store_true", help="print the contents as MCP JSON")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    from ..mcp.protocol.content import decode_content

    contents = asyncio.run(_read(arguments))
    if arguments.json:
        print(json_text({"contents": contents}))
        return 0
    printer = PartPrinter(arguments.output, show_all=arguments.all)
    printer.print_parts(decode_content({"content": [{"type": "resource", "resource": one} for one in contents]}))
    printer.finish()
    return 0


async def _read(arguments: argparse.Namespace) -> list[JSON]:
    from ..mcp.protocol.rpc import RpcError

    async with open_client(arguments) as client:
        try:
            return await client.read(arguments.uri)
        except RpcError as error:
            hint = await _suggest(client, arguments.uri)
            raise ConfigError(f"cannot read {arguments.uri}: {error.message}", hint=hint) from None


async def _suggest(client: McpClient, uri: str) -> str:
    """Return a hint with the most similar address, as far as the server lists its resources."""
    try:
        listed = await client.resources()
    except ToolwireError:
        return ""
    addresses = [one.get("uri") or one.get("uriTemplate") for one in listed if type(one) is dict]
    known = [one for one in addresses if type(one) is str]
    if not known:
        return "the server lists no resources"
    close = nearest(uri, known)
    return "toolwire mcp inspect SERVER lists the resources" if close is None else f"did you mean {close}?"
