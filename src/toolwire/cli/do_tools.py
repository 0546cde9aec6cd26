"""Tools of other sources for `toolwire do`: APIs, functions and MCP servers run through a toolbox, specifications are shown."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from ..ir.errors import ConfigError
from ..ir.parts import Text, ToolCall, ToolResult
from ..ir.terminal import neutralise_line, neutralise_text
from ..ir.text import dumps
from ..ir.tools import Tool
from ..ir.value import Value
from .do_outcome import DoOutcome, OutcomeKind
from .do_question import confirm, letter_notes, show_action
from .live_approval import has_terminal
from .show import paint
from .tool_source import open_source, read_declared, source_kind

if TYPE_CHECKING:
    from ..run.calls.steps import Approve

__all__ = ["ToolSource", "read_source", "run_source_call"]


_MAX_PROBLEMS = 10


class ToolSource(Value, frozen=True):
    """The tools of a source. `is_callable` is False for specifications without an implementation."""

    name: str
    tools: tuple[Tool, ...]
    is_callable: bool


def read_source(source: str, arguments: argparse.Namespace) -> ToolSource:
    """Read the declarations of a source: a file or folder of API specifications, or any source of `toolwire run`."""
    is_folder = Path(source).is_dir()
    kind = "declarations" if is_folder else source_kind(source)
    if is_folder or (kind == "declarations" and Path(source).is_file()):
        return ToolSource(source, _read_specifications(source), is_callable=False)
    return ToolSource(source, read_declared(source, arguments), kind in ("functions", "openapi", "mcp"))


def _read_specifications(source: str) -> tuple[Tool, ...]:
    """Return the tools of a file or folder, each name once, and report entries that cannot be read."""
    from ..retrieve.api_specs import load_api_specs

    specs = load_api_specs(source)
    for problem in specs.problems[:_MAX_PROBLEMS]:
        print(paint(neutralise_line(f"skipped: {problem}"), "yellow", sys.stderr), file=sys.stderr)
    named: dict[str, Tool] = {}
    for tool in specs.tools:
        named.setdefault(tool.name, tool)
    if not named:
        raise ConfigError(
            f"{source} has no specifications", hint="give a JSON list of tools or of {name, signature, doc}"
        )
    return tuple(named.values())


async def run_source_call(
    request: str, call: ToolCall, source: ToolSource, offered: tuple[str, ...], arguments: argparse.Namespace
) -> DoOutcome:
    """Show a call, and run it through its toolbox after confirmation. A specification is only shown."""
    tool = next(tool for tool in source.tools if tool.name == call.name)
    document = {"name": call.name, "arguments": call.arguments, "source": source.name}
    effect = {"kinds": [tool.effect], "read_only": False}
    outcome = DoOutcome(request, "shown", call=document, effect=effect, candidates=offered)
    text = f"{call.name} {dumps(call.arguments)}"
    asks = source.is_callable and not arguments.dry_run and has_terminal()
    notes = [*_make_notes(tool, source, arguments), *letter_notes(text)]
    show_action(text, notes, as_json=arguments.json, asks=asks)
    if not source.is_callable:
        return _finish(outcome, "shown", "the specification has no implementation: the call is shown, not run")
    if arguments.dry_run:
        return outcome
    problem = confirm()
    if problem is not None:
        return _finish(outcome, *problem)
    result = await _run_through_toolbox(call, source, arguments)
    text = "".join(part.text for part in result.parts if isinstance(part, Text)) or dumps(result.structured)
    if not arguments.json:
        print(neutralise_text(text))
    kind: OutcomeKind = "failed" if result.is_error else "ran"
    message = "the call failed" if result.is_error else ""
    return DoOutcome(request, kind, message, call=document, effect=effect, candidates=offered, stdout=text)


async def _run_through_toolbox(call: ToolCall, source: ToolSource, arguments: argparse.Namespace) -> ToolResult:
    """Run the call with the policy of `toolwire run`. The person has confirmed exactly this call."""
    from ..net.tools.runner import Runner
    from ..run.calls.policy import Policy

    def approve(step: Approve) -> bool:
        return step.tool == call.name and step.arguments == call.arguments

    async with open_source(source.name, arguments) as box:
        runner = Runner(box, policy=Policy(approve=("write", "idempotent")), approve=approve)
        return (await runner.run([call]))[0]


def _make_notes(tool: Tool, source: ToolSource, arguments: argparse.Namespace) -> list[str]:
    """Return the effect that the source declares, and the target of a request."""
    from ..openapi.api_tools import ApiTool

    notes = [f"effect: {tool.effect}; {'source' if source.is_callable else 'specification'}: {source.name}"]
    if isinstance(tool, ApiTool) and arguments.api_url:
        base = arguments.api_url.rpartition("@")[2] if "@" in arguments.api_url else arguments.api_url
        notes.append(f"sends: {tool.method} {base.rstrip('/')}{tool.path}")
    return notes


def _finish(outcome: DoOutcome, kind: OutcomeKind, message: str) -> DoOutcome:
    from msgspec.structs import replace

    return replace(outcome, kind=kind, message=message)
