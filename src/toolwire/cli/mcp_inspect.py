"""`toolwire mcp inspect`: list the tools, prompts and resources of MCP servers, and rate their tools per provider."""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..ir.terminal import neutralise_line
from .audit import print_table
from .mcp_target import add_target, open_servers
from .show import json_text, paint, table

if TYPE_CHECKING:
    from ..audit.report import Report
    from ..ir.pointer import Object
    from ..ir.tools import Tool
    from ..mcp.client.servers import McpServers

__all__ = ["add_to"]

_EXAMPLES = """\
examples:
  toolwire mcp inspect "toolwire mcp serve tools.py"
  toolwire mcp inspect "npx -y @modelcontextprotocol/server-everything" --target openai_strict,gemini
  toolwire mcp inspect https://mcp.example.com/ --schema anthropic_strict     each schema as sent to that provider
  toolwire mcp inspect mcp.json --json
  toolwire mcp inspect mcp.json --lock tools.lock                             record the current tools
  toolwire mcp inspect mcp.json --check-lock tools.lock

✓ accepted unchanged   ~ lowered without loss   ! not fully enforced (number of losses)   ✗ not accepted
exit codes: 0 all tools are usable   1 some are not, or tools differ from the lock   2 wrong usage, or no server
"""


def add_to(commands: Any) -> None:
    parser = commands.add_parser(
        "inspect",
        help="show the tools of a server and their problems per provider",
        description="Show the tools of MCP servers with their support per provider, their tokens and their problems.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add_target(parser)
    parser.add_argument(
        "--target", dest="targets", action="append", default=[], metavar="NAME", help="only these providers"
    )
    parser.add_argument("--schema", metavar="NAME", help="show the schemas as sent to this provider")
    parser.add_argument(
        "--ignore", action="append", default=[], metavar="ID", help="skip rules whose id starts with ID"
    )
    parser.add_argument("--lock", metavar="FILE", help="record the current tools")
    parser.add_argument("--check-lock", metavar="FILE", help="report tools that differ from the lock")
    parser.add_argument("--json", action="store_true", help="print everything as JSON")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    return asyncio.run(_inspect(arguments))


async def _inspect(arguments: argparse.Namespace) -> int:
    """Connect to the servers and write the lock, or print JSON, schemas or an overview."""
    from ..audit.report import Report
    from ..audit.targets import TARGETS, parse_targets
    from ..audit.tools import audit_tools

    targets = parse_targets(arguments.targets) or TARGETS
    wanted = parse_targets([arguments.schema] if arguments.schema else [])
    async with open_servers(arguments, lock=arguments.check_lock) as servers:
        tools = servers.toolbox().tools
        if arguments.lock:
            return _write_lock(arguments.lock, servers)
        report = Report(tools, audit_tools(tools, ignore=arguments.ignore), targets)
        if arguments.json:
            print(json_text(await _report_as_json(servers, report)))
        elif wanted:
            _print_schemas(tools, wanted[0])
        else:
            await _print_servers(servers, report)
        return 1 if servers.problems else 0


def _write_lock(file: str, servers: McpServers) -> int:
    locked = servers.lock()
    Path(file).write_text(json.dumps(locked, indent=2, sort_keys=True) + "\n", encoding="utf-8")
    print(f"tools recorded in {file}: {len(locked['tools'])}", file=sys.stderr)
    return 0


async def _print_servers(servers: McpServers, report: Report) -> None:
    """Print each server, the table of its tools, the skipped tools, and the totals."""
    from ..audit.report import count_levels

    for name, client in servers.clients.items():
        if client.greeting is None:
            continue
        info, version = client.greeting.card.info, client.greeting.version
        resources, prompts = len(await client.resources()), len(await client.prompts())
        shown = f"{info.get('name', name)} {info.get('version', '')}".strip()
        print(
            paint(
                neutralise_line(
                    f"{shown}, MCP {version}: {_format_counts(tools=len(client.tools), resources=resources, prompts=prompts)}"
                ),
                "bold",
            )
        )
    print()
    print_table(report)
    for problem in servers.problems:
        print(paint(neutralise_line(f"skipped: {problem}"), "red", sys.stderr), file=sys.stderr)
    total = ", ".join(f"{number} {level}" for level, number in count_levels(report.findings).items())
    count = "1 tool" if len(report.tools) == 1 else f"{len(report.tools)} tools"
    print(paint(f"{count}: {total}", "bold"), file=sys.stderr)


def _format_counts(**numbers: int) -> str:
    return ", ".join(f"{number} {what.removesuffix('s') if number == 1 else what}" for what, number in numbers.items())


def _print_schemas(tools: tuple[Tool, ...], target: str) -> None:
    """Print the schema of each tool as sent to `target`, with the losses."""
    for tool in tools:
        found = _lower_schema(tool, target)
        print(paint(neutralise_line(f"── {tool.name} ──"), "bold"))
        print(json_text(found["schema"]))
        rows = [
            (loss["severity"], loss["path"] or "/", f"{loss['concept']} {loss['action']}", loss["detail"])
            for loss in found["losses"]
        ]
        print("\n".join([*table(rows, ("severity", "location", "loss", "reason")), ""]) if rows else "")


def _lower_schema(tool: Tool, target: str) -> Object:
    import msgspec

    from ..schema.dialects import DIALECTS
    from ..schema.lowering import lower

    lowered = lower({"type": "object"} if tool.input_schema is None else tool.input_schema, DIALECTS[target])
    return {"schema": lowered.schema, "losses": [msgspec.to_builtins(loss) for loss in lowered.losses]}


async def _report_as_json(servers: McpServers, report: Report) -> Object:
    """Return the servers, their problems and the audit. A server without a greeting was not reached."""
    from ..audit.report import as_json

    shown: Object = {}
    for name, client in servers.clients.items():
        greeting = client.greeting
        shown[name] = {
            "protocol": None if greeting is None else greeting.version,
            "info": {} if greeting is None else greeting.card.info,
            "instructions": None if greeting is None else greeting.card.instructions,
            "tools": list(client.tools),
            "resources": [] if greeting is None else await client.resources(),
            "prompts": [] if greeting is None else await client.prompts(),
        }
    declared = {
        tool.name: {
            "description": tool.description,
            "effect": tool.effect,
            "input_schema": tool.input_schema,
            "output_schema": tool.output_schema,
            "sent": {target: _lower_schema(tool, target) for target in report.targets},
        }
        for tool in report.tools
    }
    problems = [{"server": one.server, "tool": one.tool, "words": one.reason} for one in servers.problems]
    return {"servers": shown, "problems": problems, "declared": declared, **as_json(report)}
