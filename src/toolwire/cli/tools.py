"""`toolwire tools`: list the tools of any source, index and search them, and measure their cost."""

from __future__ import annotations

import argparse
import sys
import textwrap
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any

from ..ir.errors import ConfigError
from ..ir.terminal import neutralise_text
from .parameter_text import list_parameters
from .show import count_of, json_text, paint, table
from .tool_source import add_source_options, source_kind
from .tools_cost import add_cost
from .tools_eval import add_eval
from .tools_groups import GROUP_SOURCE_HELP, is_folder, read_source, split_name
from .tools_index import add_index
from .tools_search import add_search

if TYPE_CHECKING:
    from ..ir.tools import Tool

__all__ = ["add_to"]

_MAX_LINE = 100  # characters of a description in the list
_COUNTED_WIRE = "openai_chat"  # the declarations that are counted

_EXAMPLES = """\
examples:
  toolwire tools list tools.py                    your functions
  toolwire tools list pets.yaml --api-tag pets    the operations of an OpenAPI document
  toolwire tools list "npx -y @modelcontextprotocol/server-everything"      the tools of an MCP server
  toolwire tools list requests.jsonl              the tools that recorded requests declare
  toolwire tools show tools.py get_weather        its parameters and its result
  toolwire tools list tools.py --json > tools.json        declarations in MCP's form, which every command reads
  toolwire tools index tools.py pets.yaml -o tools.index  an index for thousands of tools
  toolwire tools search tools.index "find a pet"          the tools that fit a request
  toolwire tools cost mcp.json                            tokens of each declaration

effects: pure and read have no side effects; idempotent and write have. tokens: an estimate for the declaration.
exit codes: 0 done   2 wrong usage, unreadable source or unknown tool
"""


def add_to(commands: Any) -> None:
    parser = commands.add_parser(
        "tools",
        help="list, index and search the tools of a file, an MCP server, an API or a recording",
        description="List the tools of any source, index and search them, and measure their cost.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    actions = parser.add_subparsers(metavar="ACTION", required=True)
    listing = actions.add_parser(
        "list", help="list the tools", epilog=_EXAMPLES, formatter_class=parser.formatter_class
    )
    listing.add_argument("source", nargs="+", metavar="SOURCE", help=GROUP_SOURCE_HELP)
    listing.set_defaults(run=_list)
    showing = actions.add_parser("show", help="show one tool", epilog=_EXAMPLES, formatter_class=parser.formatter_class)
    showing.add_argument("source", nargs=1, metavar="SOURCE", help=GROUP_SOURCE_HELP)
    showing.add_argument("name", metavar="NAME", help="the name of the tool")
    showing.set_defaults(run=_show)
    for action in (listing, showing):
        action.add_argument("--json", action="store_true", help="print the declarations as JSON, in MCP's form")
        add_source_options(action)
    add_index(actions)
    add_search(actions)
    add_eval(actions)
    add_cost(actions)


def _read_sources(arguments: argparse.Namespace) -> list[Tool]:
    return [tool for source in arguments.source for _, tool in read_source(source, arguments)]


def _list(arguments: argparse.Namespace) -> int:
    from ..audit.tokens import declaration_tokens

    tools = _read_sources(arguments)
    if arguments.json:
        _print_json(tools)
        return 0
    tokens = [declaration_tokens(tool, _COUNTED_WIRE) for tool in tools]
    rows = [(tool.name, tool.effect, str(count), _first_line(tool)) for tool, count in zip(tools, tokens, strict=True)]
    if rows:
        head, *rest = table(rows, ("tool", "effect", "tokens", "description"))
        print("\n".join([paint(head, "bold"), *rest]))
    if any(_is_mcp(source) for source in arguments.source):
        print("effects of MCP servers are write, unless the server is trusted in an mcpServers file", file=sys.stderr)
    print(f"{count_of(len(tools), 'tool')}, about {count_of(sum(tokens), 'token')}", file=sys.stderr)
    return 0


def _is_mcp(given: str) -> bool:
    source = split_name(given)[1]
    return not is_folder(source) and source_kind(source) == "mcp"


def _show(arguments: argparse.Namespace) -> int:
    tools = {tool.name: tool for tool in _read_sources(arguments)}
    tool = tools.get(arguments.name)
    if tool is None:
        close = get_close_matches(arguments.name, list(tools)[:10_000], 3)
        hint = f"did you mean {', '.join(close)}?" if close else "list them with toolwire tools list SOURCE"
        raise ConfigError(f"unknown tool {arguments.name!r}", hint=hint)
    if arguments.json:
        _print_json([tool])
        return 0
    lines = [f"{paint(tool.name, 'bold')}  {tool.effect}", "", tool.description or "(no description)"]
    for title, schema in (("parameters", tool.input_schema), ("result", tool.output_schema)):
        rows, is_cut = list_parameters(schema) if schema else ([], False)
        cells = [
            (
                row.path,
                row.type,
                "required" if row.required else f"= {row.default}" if row.default else "",
                row.description,
            )
            for row in rows
        ]
        lines += ["", *table(cells, (title, "type", "", "description"))] if cells else []
        lines += ["…"] if is_cut else []
    print(neutralise_text("\n".join(lines)))
    return 0


def _print_json(tools: list[Tool]) -> None:
    from ..bridge.translation.tool_lists import encode_tools

    print(json_text({"tools": encode_tools(tools, "mcp").body}))


def _first_line(tool: Tool) -> str:
    lines = (tool.description or "").strip().splitlines()
    return textwrap.shorten(lines[0], _MAX_LINE, placeholder="…") if lines else ""
