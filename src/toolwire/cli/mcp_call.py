"""`toolwire mcp call`: call one tool of an MCP server."""

from __future__ import annotations

import argparse
import asyncio
import sys
from typing import TYPE_CHECKING, Any

from ..ir.errors import ConfigError
from ..ir.terminal import neutralise_line
from .mcp_arguments import ARGUMENT_HELP, apply_schema, nearest, read_assignments
from .mcp_result import PartPrinter, add_output_option, print_result
from .mcp_target import add_target, parse_spec
from .mcp_traffic import TrafficLog, add_traffic_options
from .show import json_text

if TYPE_CHECKING:
    from ..ir.parts import ToolResult
    from ..ir.pointer import Object
    from ..mcp.client.client import McpClient
    from .mcp_arguments import Assignment

__all__ = ["add_to", "open_client"]

_EXAMPLES = """\
examples:
  toolwire mcp call "toolwire mcp serve tools.py" forecast city=Oslo days=2
  toolwire mcp call https://mcp.example.com/ search query=tea --header 'Authorization=Bearer ${TOKEN}'
  toolwire mcp call tools.py search tags=a tags=b filter.name=tea      arrays and nested objects
  toolwire mcp call tools.py search filter:='{"name": "tea"}'          a JSON value
  toolwire mcp call tools.py summarise text=@notes.txt                 the content of a file
  toolwire mcp call tools.py add '{"a": 1, "b": 2}'                    all arguments as JSON, sent as they are
  echo '{"a": 1, "b": 2}' | toolwire mcp call tools.py add -
  toolwire mcp call tools.py draw what=cat --output cat.png
  toolwire mcp call tools.py add a=1 b=2 --traffic                     every message, with the latency

Values get the type that the schema of the tool declares; unknown and missing arguments are reported before the call.
exit codes: 0 done   1 the tool reported an error   2 wrong usage, unknown tool, or no answer
"""
_MAX_LISTED = 20


def add_to(commands: Any) -> None:
    parser = commands.add_parser(
        "call",
        help="call a tool of a server",
        description="Call a tool of an MCP server and print the result.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add_target(parser, files=False)
    parser.add_argument("tool", metavar="TOOL", help="name of the tool")
    parser.add_argument("arguments", metavar="ARGUMENT", nargs="*", help=ARGUMENT_HELP)
    parser.add_argument("--key", help="an idempotency key: toolwire servers run a call with it at most once")
    add_output_option(parser)
    add_traffic_options(parser)
    parser.add_argument("--json", action="store_true", help="print the whole result as MCP JSON")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    given = read_assignments(arguments.arguments)
    result = asyncio.run(_call_tool(arguments, given))
    if arguments.json:
        from ..mcp.protocol.calls import encode_result

        print(json_text(encode_result(result)))
    else:
        print_result(result, PartPrinter(arguments.output, show_all=arguments.all))
    return 1 if result.is_error else 0


def open_client(arguments: argparse.Namespace) -> McpClient:
    """Return the client of the server given on the command line, with its progress and traffic."""
    from ..mcp.client.client import McpClient
    from ..mcp.client.login import Browser, Login

    spec = parse_spec(arguments.target, arguments)
    log = TrafficLog(show=True, show_all=arguments.all) if arguments.traffic else None
    if log is not None:
        log.add_servers([spec])
    login = Login(Browser()) if arguments.login else None
    return McpClient(spec, watch=_print_progress, login=login, traffic=log)


async def _call_tool(arguments: argparse.Namespace, given: Object | list[Assignment]) -> ToolResult:
    """Call the tool. For an unusable or unknown tool, raise ConfigError with the reason and the available tools."""
    from ..ir.parts import ToolCall

    async with open_client(arguments) as client:
        name = arguments.tool
        if name not in client.tools:
            raise _unusable_tool(client, name)
        if isinstance(given, list):
            given = apply_schema(given, client.tools[name].input_schema, name)
        return await client.call(ToolCall("call", name, given), key=arguments.key)


def _unusable_tool(client: McpClient, name: str) -> ConfigError:
    problem = next((one.reason for one in client.problems if one.tool == name), "")
    if problem:
        return ConfigError(f"the tool {name} cannot be used: {problem}")
    close = nearest(name, list(client.tools))
    names = list(client.tools)[:_MAX_LISTED]
    more = "" if len(client.tools) <= _MAX_LISTED else f" and {len(client.tools) - _MAX_LISTED} more"
    suggestion = "" if close is None else f"did you mean {close}? "
    return ConfigError(
        f"the tool {name} does not exist", hint=f"{suggestion}available: {', '.join(names) or 'none'}{more}"
    )


def _print_progress(_: str, progress: Any) -> None:
    of = "" if progress.total is None else f"/{progress.total:g}"
    print(neutralise_line(f"{progress.progress:g}{of} {progress.message or ''}".rstrip()), file=sys.stderr)
