"""`toolwire tools cost`: the tokens of each declaration, the tools that were called, and the saving by retrieval."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from itertools import accumulate
from typing import TYPE_CHECKING, Any, NamedTuple

from .bar_chart import Bar, BarGroup, check_plot_path, draw_bar, write_plot
from .recorded_calls import RecordedCalls
from .show import count_of, json_text, paint, table
from .tool_source import add_source_options
from .tools_groups import GROUP_SOURCE_HELP, read_groups
from .tools_open import parse_count

if TYPE_CHECKING:
    from ..ir.tools import Tool

__all__ = ["add_cost"]

_WIRES = ("openai_chat", "openai_responses", "anthropic", "gemini", "ollama")
_BAR_WIDTH = 20
_MAX_PLOTTED = 60
_MAX_SERVERS = 20  # rows of the table of servers
_EXAMPLES = """\
examples:
  toolwire tools cost mcp.json                                  tokens of the tools of your MCP servers
  toolwire tools cost tools.py --recordings traces/*.jsonl      also the number of calls of each tool
  toolwire tools cost pets.yaml -k 8 --plot cost.svg
  toolwire tools cost requests.jsonl --recordings requests.jsonl --json

tokens: an estimate for the declaration on the wire of --wire. sum: the share of this tool and of those above it.
Recordings: traces, HAR files, and JSON Lines of requests and answers.
exit codes: 0 done   2 wrong usage, or unreadable source
"""


class ToolCost(NamedTuple):
    """The cost of one declaration. `calls` is None without recordings."""

    name: str
    server: str
    tokens: int
    calls: int | None


def add_cost(actions: Any) -> None:
    parser = actions.add_parser(
        "cost",
        help="count the tokens of the declarations, and the calls in recordings",
        description="Estimate the tokens of each declaration, and the saving if a request has only the best tools.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("source", nargs="+", metavar="[NAME=]SOURCE", help=GROUP_SOURCE_HELP)
    parser.add_argument(
        "--recordings", nargs="+", default=[], metavar="FILE", help="recordings whose calls are counted"
    )
    parser.add_argument(
        "-k", type=parse_count, default=5, metavar="NUMBER", help="tools per request with retrieval (5)"
    )
    parser.add_argument("--wire", choices=_WIRES, default=_WIRES[0], help="the form of the declarations (openai_chat)")
    parser.add_argument("--top", type=parse_count, default=30, metavar="NUMBER", help="rows of the table (30)")
    parser.add_argument("--plot", metavar="FILE", help="write a chart to FILE.svg or FILE.html")
    parser.add_argument("--json", action="store_true", help="print the result as JSON")
    add_source_options(parser)
    parser.set_defaults(run=_cost)


def _cost(arguments: argparse.Namespace) -> int:
    check_plot_path(arguments.plot)
    tools = [(group.server, tool) for group in read_groups(arguments.source, arguments) for tool in group.tools]
    recorded = None
    if arguments.recordings:
        recorded = RecordedCalls()
        for file in arguments.recordings:
            recorded.add_file(file)
    costs = _measure(tools, arguments.wire, recorded)
    if arguments.json:
        print(json_text(_document(costs, arguments, recorded)))
    else:
        _print_table(costs, arguments.top)
        _print_servers(costs)
        _print_summary(costs, arguments.k, recorded)
    if arguments.plot:
        _plot(costs, arguments.plot)
        print(f"wrote {arguments.plot}", file=sys.stderr)
    return 0


def _measure(tools: Sequence[tuple[str, Tool]], wire: str, recorded: RecordedCalls | None) -> list[ToolCost]:
    """Return the costs, the largest first."""
    from ..audit.tokens import declaration_tokens

    costs = [
        ToolCost(
            tool.name,
            server,
            declaration_tokens(tool, wire),
            None if recorded is None else recorded.counts[tool.name],
        )
        for server, tool in tools
    ]
    return sorted(costs, key=lambda cost: (-cost.tokens, cost.name))


def _print_table(costs: Sequence[ToolCost], top: int) -> None:
    total = sum(cost.tokens for cost in costs)
    sums = list(accumulate(cost.tokens for cost in costs))
    rows = [
        (
            cost.name,
            cost.server,
            str(cost.tokens),
            _percent(cost.tokens, total),
            _percent(reached, total),
            *(() if cost.calls is None else (str(cost.calls),)),
            draw_bar(cost.tokens, costs[0].tokens, _BAR_WIDTH),
        )
        for cost, reached in zip(costs[:top], sums, strict=False)
    ]
    calls = () if costs[0].calls is None else ("calls",)
    head, *rest = table(rows, ("tool", "server", "tokens", "share", "sum", *calls, ""))
    print("\n".join([paint(head, "bold"), *rest]))
    if len(costs) > top:
        print(f"… {count_of(len(costs) - top, 'more tool')}; show them with --top {len(costs)}")


def _print_servers(costs: Sequence[ToolCost]) -> None:
    """Print the sum of each server, if there are several."""
    servers: dict[str, list[ToolCost]] = {}
    for cost in costs:
        servers.setdefault(cost.server, []).append(cost)
    if len(servers) < 2:
        return
    total = sum(cost.tokens for cost in costs)
    sums = sorted(((sum(cost.tokens for cost in own), server) for server, own in servers.items()), reverse=True)
    rows = []
    for tokens, server in sums[:_MAX_SERVERS]:
        own = servers[server]
        calls = () if own[0].calls is None else (str(sum(cost.calls or 0 for cost in own)),)
        bar = draw_bar(tokens, sums[0][0], _BAR_WIDTH)
        rows.append((server, str(len(own)), str(tokens), _percent(tokens, total), *calls, bar))
    head, *rest = table(
        rows, ("server", "tools", "tokens", "share", *(("calls",) if costs[0].calls is not None else ()), "")
    )
    print("\n".join(["", paint(head, "bold"), *rest]))
    if len(sums) > _MAX_SERVERS:
        print(f"… {count_of(len(sums) - _MAX_SERVERS, 'more server')}")


def _print_summary(costs: Sequence[ToolCost], k: int, recorded: RecordedCalls | None) -> None:
    total = sum(cost.tokens for cost in costs)
    print(f"\n{count_of(len(costs), 'tool')}, about {total} tokens in every request")
    if recorded is not None:
        unused = [cost.tokens for cost in costs if not cost.calls]
        print(
            f"{count_of(recorded.counts.total(), 'call')} in {count_of(recorded.requests, 'request')}; "
            f"{count_of(len(unused), 'tool')} never called: {sum(unused)} tokens ({_percent(sum(unused), total)})"
        )
    if len(costs) > k:
        mean, most = _retrieved_tokens(costs, k)
        print(
            f"with {count_of(k, 'retrieved tool')} per request: about {mean} tokens, at most {most}; "
            f"saves about {_percent(total - mean, total)}"
        )


def _retrieved_tokens(costs: Sequence[ToolCost], k: int) -> tuple[int, int]:
    """Return the tokens of `k` tools: `k` times the mean, and those of the `k` longest declarations."""
    total = sum(cost.tokens for cost in costs)
    return round(total * min(k, len(costs)) / len(costs)), sum(cost.tokens for cost in costs[:k])


def _percent(part: int, total: int) -> str:
    return f"{100 * part / total:.1f} %" if total else "0.0 %"


def _plot(costs: Sequence[ToolCost], path: str) -> None:
    bars = []
    for cost in costs[:_MAX_PLOTTED]:
        calls = "" if cost.calls is None else f", {count_of(cost.calls, 'call')}"
        kind = 1 if cost.calls == 0 else 0
        bars.append(Bar(cost.name, cost.tokens, f"{cost.tokens}{calls}", kind))
    title = "Tokens per declaration"
    if len(costs) > _MAX_PLOTTED:
        title += f" (the {_MAX_PLOTTED} longest of {len(costs)})"
    write_plot(path, title, [BarGroup("", bars)], costs[0].tokens)


def _document(
    costs: Sequence[ToolCost], arguments: argparse.Namespace, recorded: RecordedCalls | None
) -> dict[str, Any]:
    total = sum(cost.tokens for cost in costs)
    mean, most = _retrieved_tokens(costs, arguments.k)
    document: dict[str, Any] = {
        "wire": arguments.wire,
        "tokens": total,
        "tools": [
            {
                "name": cost.name,
                "server": cost.server,
                "tokens": cost.tokens,
                **({} if cost.calls is None else {"calls": cost.calls}),
            }
            for cost in costs
        ],
        "retrieval": {"k": arguments.k, "mean_tokens": mean, "max_tokens": most},
    }
    if recorded is not None:
        names = {cost.name for cost in costs}
        document["recordings"] = {
            "requests": recorded.requests,
            "calls": recorded.counts.total(),
            "unknown_tools": sorted(name for name in recorded.counts if name not in names),
        }
    return document
