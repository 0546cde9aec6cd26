"""`toolwire mcp inspect`: list the tools, prompts and resources of MCP servers, and rate their tools per provider."""

from __future__ import annotations

import argparse
import asyncio
import json
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from ...audit.findings import TARGETS, parse_targets
from ...ir.errors import ToolwireError
from ...ir.terminal import count_of, reveal_line
from ..audit import format_levels, print_explain_hint, print_table
from ..sources.documents import replace_file
from ..sources.listing import MAX_ITEMS, Listing
from ..sources.targets import add_target, connect_servers
from ..terminal.options import add_command, add_flag, add_list
from ..terminal.output import json_text, paint, paragraph, print_note, table
from .traffic import TrafficLog, add_traffic_options

if TYPE_CHECKING:
    from collections.abc import Sized

    from ...audit.report import Report
    from ...ir.pointer import JSON, Object
    from ...ir.tools import Tool
    from ...mcp.client.client import McpClient
    from ...mcp.client.servers import McpServers


_MAX_ROWS = 100  # of findings; a server with many tools has more; --all prints the rest
_MAX_MESSAGE = 200  # characters of a finding, which may quote a description

_HELP = """\
Show the tools of MCP servers with their parameters, their resources and prompts, the latency, and for each tool its
support per provider, its tokens and its problems.

examples:
  toolwire mcp inspect "toolwire mcp serve tools.py"
  toolwire mcp inspect "npx -y @modelcontextprotocol/server-everything" --target openai_strict,gemini
  toolwire mcp inspect https://mcp.example.com/ --schema anthropic_strict     each schema as sent to that provider
  toolwire mcp inspect tools.py --traffic                                     every message, with its latency
  toolwire mcp inspect mcp.json --json
  toolwire mcp inspect mcp.json --lock tools.lock                             record the current tools
  toolwire mcp inspect mcp.json --check-lock tools.lock

`toolwire mcp read` reads a resource, `toolwire mcp prompt` gets a prompt, `toolwire mcp call` calls a tool.
✓ accepted unchanged   ~ rejected as written, accepted as toolwire translates it
! translated, but not fully enforced (number of losses)   ✗ rejected, also as toolwire translates it
⚠ accepted, but dangerous: hidden characters, instructions, or an example that violates the schema
exit codes: 0 no error   1 errors of tools or lists, or tools that differ from the lock   2 wrong usage, or no server
"""


def add_to(commands: Any) -> None:
    """Register `toolwire mcp inspect` with its options."""
    parser = add_command(
        commands, "inspect", "show the tools, resources and prompts of a server, and problems per provider", _HELP, run
    )
    add_target(parser)
    add_list(parser, "--target", dest="targets", metavar="NAME", help="only these providers")
    parser.add_argument("--schema", metavar="NAME", help="show the schemas as sent to this provider")
    add_list(parser, "--ignore", metavar="ID", help="skip rules whose id starts with ID")
    parser.add_argument("--lock", metavar="FILE", help="record the current tools")
    parser.add_argument("--check-lock", metavar="FILE", help="report tools that differ from the lock")
    add_traffic_options(parser)
    add_flag(parser, "--json", "print everything as JSON")


def run(arguments: argparse.Namespace) -> int:
    return asyncio.run(_inspect(arguments))


async def _inspect(arguments: argparse.Namespace) -> int:
    """Connect to the servers, and write the lock or print JSON, schemas or an overview.

    Return 1 if a server or a list has a problem, or a tool an error.
    """
    from ...audit.report import Report
    from ...audit.tools import audit_tools, errors_by_target

    given = parse_targets(arguments.targets)
    targets = given or TARGETS
    wanted = parse_targets([arguments.schema] if arguments.schema else [])
    log = TrafficLog(show=arguments.traffic, show_all=arguments.all)
    servers = connect_servers(arguments.target, arguments, lock=arguments.check_lock, traffic=log)
    log.add_servers(client.spec for client in servers.clients.values())
    async with servers:
        tools = servers.toolbox().tools
        if arguments.lock:
            return _write_lock(arguments.lock, servers)
        is_complete = arguments.all or arguments.json
        shown = tools if is_complete else tools[:MAX_ITEMS]
        if wanted and not arguments.json:
            _print_schemas(shown, wanted[0], len(tools))
            return 1 if servers.problems else 0
        contents = {name: await _read_contents(client) for name, client in servers.clients.items()}
        findings = audit_tools(shown, ignore=[prefix.upper() for prefix in arguments.ignore], targets=given)
        report = Report(shown, findings, targets, errors=errors_by_target([shown], targets))
        if arguments.json:
            print(json_text(_report_as_json(servers, contents, report, log)))
        else:
            _print_servers(servers, contents, log, show_all=arguments.all)
            _print_report(servers, report, len(tools), show_all=arguments.all)
        has_errors = any(finding.level == "error" for finding in findings)
        return int(has_errors or bool(servers.problems) or any(listed.problems for listed in contents.values()))


class _Contents(NamedTuple):
    """The lists of a server besides its tools. `problems`: the lists that it could not return, with the reason."""

    resources: list[JSON]
    prompts: list[JSON]
    problems: list[str]


async def _read_contents(client: McpClient) -> _Contents:
    """List the resources and prompts of a server.

    A failed list is empty and becomes a problem; both are empty if no connection was made.
    """
    lists: dict[str, list[JSON]] = {}
    problems = []
    for name, fetch in (("resources", client.resources), ("prompts", client.prompts)):
        lists[name] = []
        if client.greeting is None:
            continue
        try:
            lists[name] = await fetch()
        except ToolwireError as error:
            problems.append(f"the {name} cannot be listed: {error}")
    return _Contents(lists["resources"], lists["prompts"], problems)


def _write_lock(file: str, servers: McpServers) -> int:
    locked = servers.lock()
    replace_file(file, json.dumps(locked, indent=2, sort_keys=True) + "\n", mode=0o666)
    print_note(f"tools recorded in {file}: {len(locked['tools'])}", None)
    return 0


def _print_servers(servers: McpServers, contents: dict[str, _Contents], log: TrafficLog, *, show_all: bool) -> None:
    """Print each server: its name, latency, instructions, tools, resources and prompts."""
    listing = Listing(show_all=show_all)
    for name, client in servers.clients.items():
        if client.greeting is None:
            continue
        listed, card = contents[name], client.greeting.card
        lists = {"tool": client.tools, "resource": listed.resources, "prompt": listed.prompts}
        counts = ", ".join(count_of(len(items), noun) for noun, items in lists.items())
        title = f"{card.info.get('name', name)} {card.info.get('version', '')}".strip()[:200]
        for line in paragraph(f"{title}, MCP {client.greeting.version}: {counts}"):
            print(paint(line, "bold"))
        print("\n".join(paragraph(f"latency: {log.summary(name)}")))
        if card.instructions:
            print("instructions:")
            listing.print_text(card.instructions)
        _print_section("tools", client.tools)
        listing.print_tools(list(client.tools.values()))
        _print_section("resources", listed.resources)
        listing.print_resources(listed.resources)
        _print_section("prompts", listed.prompts)
        listing.print_prompts(listed.prompts)
        for problem in listed.problems:
            print_note(problem, "red")
        print()


def _print_section(title: str, items: Sized) -> None:
    if items:
        print(paint(f"\n── {title} ──", "bold"))


def _print_report(servers: McpServers, report: Report, total: int, *, show_all: bool) -> None:
    """Print the support per provider, the skipped tools, and the totals."""
    from ...audit.report import count_levels

    limits = {} if show_all else {"max_rows": _MAX_ROWS, "max_message": _MAX_MESSAGE}
    print_table(report, **limits)
    for problem in servers.problems if show_all else servers.problems[:MAX_ITEMS]:
        print_note(f"skipped: {str(problem)[:1000]}", "red")
    levels = format_levels(count_levels(report.findings))
    shown = len(report.tools)
    count = count_of(total, "tool") if shown == total else f"the first {shown} of {total:,} tools (--all checks them)"
    print_note(f"{count}: {levels}", "bold")
    print_explain_hint(report)


def _print_schemas(tools: tuple[Tool, ...], target: str, total: int) -> None:
    """Print the schema of each tool as sent to `target`, with the losses."""
    for tool in tools:
        lowered = _lower_schema(tool, target)
        print(paint(reveal_line(f"── {tool.name} ──"), "bold"))
        print(json_text(lowered["schema"]))
        rows = [
            (loss["severity"], loss["path"] or "/", f"{loss['concept']} {loss['action']}", loss["detail"])
            for loss in lowered["losses"]
        ]
        print("\n".join([*table(rows, ("severity", "location", "loss", "reason")), ""]) if rows else "")
    if total > len(tools):
        print(f"the first {len(tools)} of {total:,} tools; --all shows them")


def _lower_schema(tool: Tool, target: str) -> Object:
    from ...schema.dialects import DIALECTS
    from ...schema.lowering.lowered import lower

    lowered = lower({"type": "object"} if tool.input_schema is None else tool.input_schema, DIALECTS[target])
    return {"schema": lowered.schema, "losses": [msgspec.to_builtins(loss) for loss in lowered.losses]}


def _report_as_json(servers: McpServers, contents: dict[str, _Contents], report: Report, log: TrafficLog) -> Object:
    """Return the servers, their problems and the audit. A server without a greeting was not reached."""
    from ...audit.report import as_json

    shown: Object = {}
    for name, client in servers.clients.items():
        greeting = client.greeting
        shown[name] = {
            "protocol": None if greeting is None else greeting.version,
            "info": {} if greeting is None else greeting.card.info,
            "capabilities": {} if greeting is None else greeting.card.capabilities,
            "instructions": None if greeting is None else greeting.card.instructions,
            "tools": list(client.tools),
            "resources": contents[name].resources,
            "prompts": contents[name].prompts,
            "problems": contents[name].problems,
            "latency": log.as_json(name),
        }
    offered = {tool.name: tool for tool in report.tools}
    declared = {
        name: _tool_as_json(server, tool, offered[name], report.targets)
        for server, tool, name in servers.named_tools()
        if name in offered
    }
    problems = [{"server": row.server, "tool": row.tool, "reason": row.reason} for row in servers.problems]
    return {"servers": shown, "problems": problems, "declared": declared, **as_json(report)}


def _tool_as_json(server: str, tool: Tool, offered: Tool, targets: tuple[str, ...]) -> Object:
    """Return one tool as declared, and as sent to each provider."""
    extra = tool.extra.get("mcp", {})
    return {
        "server": server,
        "name": tool.name,
        "title": extra.get("title"),
        "annotations": extra.get("annotations"),
        "description": tool.description,
        "effect": tool.effect,
        "input_schema": tool.input_schema,
        "output_schema": tool.output_schema,
        "sent": {target: _lower_schema(offered, target) for target in targets},
    }
