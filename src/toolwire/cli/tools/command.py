"""`toolwire tools`: list, show and search the tools of any source. Other modules index them and measure cost and quality."""

from __future__ import annotations

import argparse
import textwrap
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any

from ...ir.errors import ConfigError
from ...ir.terminal import count_of, reveal_line
from ..sources.listing import list_parameters
from ..sources.tool_source import add_source_options, source_kind
from ..terminal.options import add_command, add_flag, positive_number
from ..terminal.output import json_text, paint, print_note, table, text_lines
from .cost import add_cost
from .evaluation import add_eval
from .groups import (
    GROUP_SOURCE_HELP,
    INDEX_HELP,
    add_index_options,
    is_folder,
    open_index,
    read_source,
    split_name,
)
from .index import add_index

if TYPE_CHECKING:
    from ...ir.tools import Tool
    from ...retrieve.index import ToolIndex
    from ...retrieve.ranking import SearchHit


_MAX_HIT_LINE = 48  # characters of a description, beside name, score and reason
_EFFECTS = ("pure", "read", "idempotent", "write")
_SEARCH_HELP = """\
Find the tools that fit a request best.

examples:
  toolwire tools search tools.index "close the issue about the login page"
  toolwire tools search tools.index "list repositories" -k 3 --effect read --server github
  toolwire tools search pets.yaml "find a pet" --words-only            a source, without an index file
  toolwire tools search tools.index "send mail" --json                 declarations, scores and reasons

A higher score is better; scores of different queries are not comparable. reason: the words in common per field, and the
similarity of the meanings from 0 to 1.
exit codes: 0 found   1 no tool fits   2 wrong usage, or unreadable file
"""


def add_search(actions: Any) -> None:
    parser = add_command(actions, "search", "find tools for a request", _SEARCH_HELP, _search)
    parser.add_argument("source", metavar="FILE|SOURCE", help=INDEX_HELP)
    parser.add_argument("query", metavar="QUERY", help="the request")
    parser.add_argument("-k", type=positive_number, default=5, metavar="NUMBER", help="the number of tools (5)")
    parser.add_argument("--effect", action="append", choices=_EFFECTS, help="only tools with this effect; repeatable")
    parser.add_argument("--server", action="append", metavar="NAME", help="only tools of this server; repeatable")
    add_index_options(parser)


def _search(arguments: argparse.Namespace) -> int:
    """Search an index or a source, and print the hits.

    Returns 1 if there are none. Raises `ConfigError` for an empty query and an unknown --server.
    """
    if not arguments.query.strip():
        raise ConfigError("the query is empty", hint="describe the task")
    index = open_index(arguments.source, arguments)
    for server in arguments.server or ():
        _require_server(index, server)
    hits = index.search(arguments.query, arguments.k, effects=arguments.effect, servers=arguments.server)
    if arguments.json:
        print(json_text({"query": arguments.query, "tools": [_describe(hit) for hit in hits]}))
    else:
        _print_hits(hits, len(index))
    return 0 if hits else 1


def _require_server(index: ToolIndex, server: str) -> None:
    """Raise ConfigError if the index has no server of this name."""
    known = sorted({indexed.server for indexed in index})
    if server not in known:
        close = get_close_matches(server, known, 3)
        hint = f"did you mean {', '.join(map(repr, close))}?" if close else f"its servers: {', '.join(known[:20])}"
        raise ConfigError(f"the index has no server {server!r}", hint=hint)


def _print_hits(hits: list[SearchHit], total: int) -> None:
    """Print the hits as a table, and their number on standard error."""
    rows = [
        (hit.tool.name, hit.server, hit.tool.effect, f"{hit.score:.3f}", _first_hit_line(hit), "; ".join(hit.reasons))
        for hit in hits
    ]
    if rows:
        headers = ("tool", "server", "effect", "score", "description", "reason")
        print("\n".join(table(rows, headers, bold=True)))
    found = count_of(len(hits), "tool") if hits else "no tool"
    print_note(f"{found} of {total}", None)


def _first_hit_line(hit: SearchHit) -> str:
    lines = (hit.tool.description or "").strip().splitlines()
    return textwrap.shorten(lines[0], _MAX_HIT_LINE, placeholder="…") if lines else ""


def _describe(hit: SearchHit) -> dict[str, Any]:
    """Return a hit as JSON, with the tool's declaration in MCP's form."""
    from ...bridge.translation.tool_lists import encode_tools

    return {
        "name": hit.tool.name,
        "server": hit.server,
        "effect": hit.tool.effect,
        "score": round(hit.score, 6),
        "reasons": list(hit.reasons),
        "declaration": encode_tools([hit.tool], "mcp").body[0],
    }


_MAX_LINE = 100  # characters of a description in the list: one line of a wide terminal with the name
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
    """Register `toolwire tools` with its actions: list, show, index, search, eval, cost."""
    about = "list, show, index and search tools of any source"
    text = "List the tools of any source, index and search them, and measure their cost."
    parser = add_command(commands, "tools", about, f"{text}\n\n{_EXAMPLES}")
    actions = parser.add_subparsers(metavar="ACTION", required=True)
    listing = add_command(actions, "list", "list the tools", f"\n\n{_EXAMPLES}", _list)
    listing.add_argument("source", nargs="+", metavar="SOURCE", help=GROUP_SOURCE_HELP)
    showing = add_command(actions, "show", "show one tool", f"\n\n{_EXAMPLES}", _show)
    showing.add_argument("source", nargs=1, metavar="SOURCE", help=GROUP_SOURCE_HELP)
    showing.add_argument("name", metavar="NAME", help="the name of the tool")
    for action in (listing, showing):
        add_flag(action, "--json", "print the declarations as JSON, in MCP's form")
        add_source_options(action)
    add_index(actions)
    add_search(actions)
    add_eval(actions)
    add_cost(actions)


def _read_sources(arguments: argparse.Namespace) -> list[Tool]:
    return [tool for source in arguments.source for _, tool in read_source(source, arguments)]


def _list(arguments: argparse.Namespace) -> int:
    """Print the tools with an estimate of their tokens."""
    from ...audit.tokens import declaration_tokens

    tools = _read_sources(arguments)
    if arguments.json:
        _print_json(tools)
        return 0
    tokens = [declaration_tokens(tool, _COUNTED_WIRE) for tool in tools]
    rows = [(tool.name, tool.effect, str(count), _first_line(tool)) for tool, count in zip(tools, tokens, strict=True)]
    if rows:
        print("\n".join(table(rows, ("tool", "effect", "tokens", "description"), bold=True, hide=("tokens",))))
    kinds = {_kind(source) for source in arguments.source}
    if "mcp" in kinds:
        print_note("effects of MCP servers are write, unless the server is trusted in an mcpServers file", None)
    if "functions" in kinds and any(tool.effect == "write" for tool in tools):
        print_note('a function counts as write unless it declares its effect: @tool(effect="read")', None)
    print_note(f"{count_of(len(tools), 'tool')}, about {count_of(sum(tokens), 'token')}", None)
    if tools:
        print_note("toolwire tools show SOURCE NAME shows the parameters of a tool", None)
    return 0


def _kind(given: str) -> str:
    source = split_name(given)[1]
    return "folder" if is_folder(source) else source_kind(source)


def _show(arguments: argparse.Namespace) -> int:
    """Print a tool with the parameters of its schemas.

    Raises `ConfigError`, with similar names, if it does not exist.
    """
    tools = {tool.name: tool for tool in _read_sources(arguments)}
    tool = tools.get(arguments.name)
    if tool is None:
        close = get_close_matches(arguments.name, list(tools)[:10_000], 3)
        hint = f"did you mean {', '.join(map(repr, close))}?" if close else "list them with toolwire tools list SOURCE"
        raise ConfigError(f"unknown tool {arguments.name!r}", hint=hint)
    if arguments.json:
        _print_json([tool])
        return 0
    lines = [
        f"{paint(reveal_line(tool.name), 'bold')}  {tool.effect}",
        "",
        *text_lines(tool.description or "(no description)"),
    ]
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
    print("\n".join(lines))
    return 0


def _print_json(tools: list[Tool]) -> None:
    from ...bridge.translation.tool_lists import encode_tools

    print(json_text({"tools": encode_tools(tools, "mcp").body}))


def _first_line(tool: Tool) -> str:
    lines = (tool.description or "").strip().splitlines()
    return textwrap.shorten(lines[0], _MAX_LINE, placeholder="…") if lines else ""
