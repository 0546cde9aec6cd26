"""`toolwire tools search`: find tools for a request."""

from __future__ import annotations

import argparse
import sys
import textwrap
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any

from ..ir.errors import ConfigError
from .show import count_of, json_text, paint, table
from .tools_open import INDEX_HELP, add_index_options, open_index, parse_count

if TYPE_CHECKING:
    from ..retrieve.index import ToolIndex
    from ..retrieve.ranking import SearchHit

__all__ = ["add_search"]

_MAX_LINE = 48  # characters of a description
_EFFECTS = ("pure", "read", "idempotent", "write")
_EXAMPLES = """\
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
    parser = actions.add_parser(
        "search",
        help="find tools for a request",
        description="Find the tools that fit a request best.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("source", metavar="FILE|SOURCE", help=INDEX_HELP)
    parser.add_argument("query", metavar="QUERY", help="the request")
    parser.add_argument("-k", type=parse_count, default=5, metavar="NUMBER", help="the number of tools (5)")
    parser.add_argument("--effect", action="append", choices=_EFFECTS, help="only tools with this effect; repeatable")
    parser.add_argument("--server", action="append", metavar="NAME", help="only tools of this server; repeatable")
    add_index_options(parser)
    parser.set_defaults(run=_search)


def _search(arguments: argparse.Namespace) -> int:
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
    known = sorted({indexed.server for indexed in index})
    if server not in known:
        close = get_close_matches(server, known, 3)
        hint = f"did you mean {', '.join(close)}?" if close else f"its servers: {', '.join(known[:20])}"
        raise ConfigError(f"the index has no server {server!r}", hint=hint)


def _print_hits(hits: list[SearchHit], total: int) -> None:
    rows = [
        (hit.tool.name, hit.server, hit.tool.effect, f"{hit.score:.3f}", _first_line(hit), "; ".join(hit.reasons))
        for hit in hits
    ]
    if rows:
        head, *rest = table(rows, ("tool", "server", "effect", "score", "description", "reason"))
        print("\n".join([paint(head, "bold"), *rest]))
    found = count_of(len(hits), "tool") if hits else "no tool"
    print(f"{found} of {total}", file=sys.stderr)


def _first_line(hit: SearchHit) -> str:
    lines = (hit.tool.description or "").strip().splitlines()
    return textwrap.shorten(lines[0], _MAX_LINE, placeholder="…") if lines else ""


def _describe(hit: SearchHit) -> dict[str, Any]:
    from ..bridge.translation.tool_lists import encode_tools

    return {
        "name": hit.tool.name,
        "server": hit.server,
        "effect": hit.tool.effect,
        "score": round(hit.score, 6),
        "reasons": list(hit.reasons),
        "declaration": encode_tools([hit.tool], "mcp").body[0],
    }
