"""`toolwire mcp call`: call one tool of an MCP server."""

from __future__ import annotations

import argparse
import asyncio
import sys
from typing import TYPE_CHECKING, Any

from ..ir.errors import ConfigError
from ..ir.terminal import neutralise_line, neutralise_text
from .mcp_target import add_target, parse_spec
from .show import json_text

if TYPE_CHECKING:
    from ..ir.parts import ToolResult
    from ..ir.pointer import Object

__all__ = ["add_to"]

_EXAMPLES = """\
examples:
  toolwire mcp call "toolwire mcp serve tools.py" add '{"a": 1, "b": 2}'
  toolwire mcp call https://mcp.example.com/ search '{"query": "tea"}' --header 'Authorization=Bearer ${TOKEN}'
  echo '{"a": 1, "b": 2}' | toolwire mcp call "toolwire mcp serve tools.py" add -

exit codes: 0 done   1 the tool reported an error   2 wrong usage, unknown tool, or no answer
"""


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
    parser.add_argument(
        "arguments", metavar="JSON", nargs="?", default="{}", help="arguments of the call; - is standard input"
    )
    parser.add_argument("--key", help="an idempotency key: toolwire servers run a call with it at most once")
    parser.add_argument("--json", action="store_true", help="print the whole result as MCP JSON")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    from ..stream.strict import parse_object

    text = sys.stdin.read() if arguments.arguments == "-" else arguments.arguments
    result = asyncio.run(_call_tool(arguments, parse_object(text)))
    if arguments.json:
        from ..mcp.protocol.calls import encode_result

        print(json_text(encode_result(result)))
    else:
        _print_result(result)
    return 1 if result.is_error else 0


async def _call_tool(arguments: argparse.Namespace, tool_arguments: Object) -> ToolResult:
    """Call the tool. For an unusable or unknown tool, raise ConfigError with the reason and the available tools."""
    from ..ir.parts import ToolCall
    from ..mcp.client.client import McpClient
    from ..mcp.client.login import Browser, Login

    login = Login(Browser()) if arguments.login else None
    async with McpClient(parse_spec(arguments.target, arguments), watch=_print_progress, login=login) as client:
        if arguments.tool not in client.tools:
            problem = next((one.reason for one in client.problems if one.tool == arguments.tool), "")
            words = f"cannot be used: {problem}" if problem else "does not exist"
            raise ConfigError(
                f"the tool {arguments.tool} {words}", hint=f"available: {', '.join(client.tools) or 'none'}"
            )
        return await client.call(ToolCall("call", arguments.tool, tool_arguments), key=arguments.key)


def _print_progress(_: str, progress: Any) -> None:
    of = "" if progress.total is None else f"/{progress.total:g}"
    print(neutralise_line(f"{progress.progress:g}{of} {progress.message or ''}".rstrip()), file=sys.stderr)


def _print_result(result: ToolResult) -> None:
    """Print the text of a result, and only the type of media, which a terminal cannot show."""
    from ..ir.parts import Text

    for part in result.parts:
        if isinstance(part, Text):
            _print_text(part.text)
        else:
            kind = getattr(part, "media_type", None) or getattr(part, "type", "something")
            print(neutralise_line(f"[{kind}]"))
    if not result.parts:
        _print_text(result.text)


def _print_text(text: str) -> None:
    text = neutralise_text(text)
    print(text, end="" if text.endswith("\n") else "\n")
