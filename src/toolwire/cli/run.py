"""`toolwire run`: run a prompt with a model and your functions, and list or resolve recorded calls."""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
from typing import TYPE_CHECKING, Any

from ..ir.errors import ConfigError
from ..ir.terminal import neutralise_line, reveal_line
from ..ir.text import dumps
from .agent_options import add_agent_options, add_model_options, make_agent, make_client, open_tools
from .answer_output import format_time, print_outcome
from .live import LivePrinter
from .openapi_options import refuse_api_options
from .plan_output import plans_of, print_plans
from .show import paint, table
from .tools_file import open_store_at

if TYPE_CHECKING:
    from ..net.answers import Answer
    from ..run.plan import CallPlan
    from ..run.records import Store
    from ..run.steps import Approve

__all__ = ["add_to", "ask_person"]

_EXAMPLES = """\
examples:
  toolwire run tools.py "What is the weather in Paris?" -m openai/gpt-5.6
  toolwire run tools.py "What is the weather in Paris?" -m local/smollm2      no key, no network
  toolwire run tools.py "Clean up the inbox" -m anthropic/claude-sonnet-5 --yes --max-iterations 5
  toolwire run tools.py "…" -m llama --base-url http://localhost:8080/v1 --json | jq .text
  toolwire run tools.py "…" -m llamacpp/qwen3-8b --text hermes --via completions    if the server's tool parser fails
  toolwire run tools.py "…" -m openai/gpt-5.6 --mcp mcp.json        with the tools of MCP servers
  toolwire run "…" -m openai/gpt-5.6 --openapi pets.json --api-url https://api.example.com --api-auth-env PETS_TOKEN
  toolwire run tools.py "Clean up the inbox" -m openai/gpt-5.6 --dry-run    show the calls, their effects and approvals
  toolwire run tools.py "Pay the invoice" -m openai/gpt-5.6 --suspend    calls wait; see `toolwire runs --help`
  toolwire run tools.py "…" -m openai/gpt-5.6 --store runs.db --ttl 604800       results of writes are kept for a week
  toolwire run --list                            recorded calls: running, done or of unknown outcome
  toolwire run --resolve KEY --result '"paid"'   record the outcome that you found out
  toolwire run --resolve KEY --forget            the call had no effect and may run again

tools.py: its functions, or those marked with @toolwire.tool. A tool is assumed to have side effects unless declared
otherwise (@toolwire.tool(effect="read")). Calls with side effects need your approval, unless --yes is given.
exit codes: 0 answered   1 no answer (budget exhausted), waiting for approval, or not resolved   2 wrong usage, or the model is unreachable
"""


def add_to(commands: Any) -> None:
    parser = commands.add_parser(
        "run",
        help="run a prompt with a model that can call your functions",
        description="Send a prompt and your functions to a model, and execute its calls.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "tools", nargs="?", metavar="TOOLS.py", help="a file of functions; may be omitted with --openapi or --mcp"
    )
    parser.add_argument("prompt", nargs="?", help="the prompt; - is standard input")
    add_model_options(parser)
    parser.add_argument("--system", default="", help="the system prompt")
    parser.add_argument("--yes", action="store_true", help="do not ask before calls with side effects")
    parser.add_argument(
        "--dry-run", action="store_true", help="call no function; the model receives the plan of each call instead"
    )
    parser.add_argument(
        "--suspend", action="store_true", help="let calls with side effects wait for `toolwire runs approve`"
    )
    add_agent_options(parser, iterations=16)
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--list", action="store_true", help="list recorded calls")
    parser.add_argument("--resolve", metavar="KEY", help="resolve a call of unknown outcome")
    parser.add_argument("--result", metavar="JSON", help="with --resolve: the result of the call")
    parser.add_argument(
        "--forget", action="store_true", help="with --resolve: the call had no effect and may run again"
    )
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """List or resolve recorded calls, or run the prompt, which requires tools, a prompt and a model."""
    if arguments.list:
        return _list_records(open_store_at(arguments.store), as_json=arguments.json)
    if arguments.resolve:
        return _resolve_record(open_store_at(arguments.store), arguments)
    if arguments.openapi is None:
        refuse_api_options(arguments, "add --openapi FILE")
    if arguments.prompt is None and (arguments.openapi or arguments.mcp):
        arguments.tools, arguments.prompt = None, arguments.tools
    _check_usage(arguments)
    return asyncio.run(_run_prompt(arguments))


def _check_usage(arguments: argparse.Namespace) -> None:
    """Raise ConfigError for missing arguments, and for options that exclude each other."""
    usage = "toolwire run TOOLS.py PROMPT -m PROVIDER/MODEL"
    has_other_tools = arguments.openapi or arguments.mcp
    if arguments.tools and arguments.prompt is None and not has_other_tools:
        message = "one argument given: a file of functions and a prompt are needed"
        raise ConfigError(message, hint=f"{usage}; without tools: toolwire chat")
    needed = () if has_other_tools else (("tools", "a file of functions"),)
    for name, flag in (*needed, ("prompt", "a prompt"), ("model", "a model (-m)")):
        if not getattr(arguments, name):
            raise ConfigError(f"{flag} is missing", hint=usage)
    if arguments.suspend and (arguments.yes or arguments.store == "none"):
        raise ConfigError("--suspend cannot be combined with --yes or --store none", hint="leave out one of them")


async def _run_prompt(arguments: argparse.Namespace) -> int:
    """Run the prompt and print events as they arrive. Return 1 if the agent did not finish."""
    from ..run.session import Budget

    prompt = sys.stdin.read() if arguments.prompt == "-" else arguments.prompt
    live = LivePrinter(silent=arguments.json, approval_hint="" if _has_terminal() else "use --yes or --suspend")
    answer: Answer | None = None
    plans: list[CallPlan] = []
    async with open_tools(arguments) as tools, make_client(arguments) as client:
        agent = make_agent(
            client,
            tools,
            arguments,
            store=None if arguments.store == "none" else open_store_at(arguments.store),
            approve="suspend" if arguments.suspend else ask_person,
            budget=Budget(iterations=arguments.max_iterations),
            system=arguments.system,
            dry_run=arguments.dry_run,
        )
        async for event in agent.stream(prompt):
            answer = live.show(event) or answer
            plans += plans_of(event)
    assert answer is not None
    exit_code = print_outcome(answer, arguments, plans if arguments.dry_run else None)
    if arguments.dry_run and not arguments.json:
        print_plans(plans)
    return exit_code


def ask_person(step: Approve) -> bool:
    """Ask for approval on the terminal; deny without a terminal."""
    if not _has_terminal():
        return False
    question = f"{step.tool}({dumps(step.arguments)}): {step.why}. Run it? [y/N] "
    print(paint(reveal_line(question), "yellow", sys.stderr), end="", file=sys.stderr, flush=True)
    return sys.stdin.readline().strip().lower() in ("y", "yes")


def _has_terminal() -> bool:
    return sys.stdin.isatty() and sys.stderr.isatty()


def _list_records(store: Store, *, as_json: bool) -> int:
    """Print the recorded calls of the store."""
    import msgspec

    records = store.records()
    if as_json:
        print(json.dumps([msgspec.to_builtins(record) for record in records], indent=2))
        return 0
    if not records:
        print("no recorded calls")
        return 0
    rows = [(record.key, record.state, format_time(record.created_at), record.tool) for record in records]
    print("\n".join(table(rows, ("key", "state", "since", "tool"))))
    return 0


def _resolve_record(store: Store, arguments: argparse.Namespace) -> int:
    """Record the outcome of a call whose outcome is unknown: `--result`, or None if it may run again (`--forget`)."""
    from ..ir.parts import ToolCall
    from ..run.results import to_record
    from ..stream.strict import parse

    if arguments.forget == (arguments.result is not None):
        raise ConfigError("--resolve requires an outcome", hint="add --result JSON or --forget")
    record = store.get(arguments.resolve)
    result = None
    if arguments.result is not None and record is not None:
        result = to_record(ToolCall("", record.tool).result(parse(arguments.result)))
    if record is None or not store.resolve(arguments.resolve, result):
        print("toolwire: no call of unknown outcome has this key", file=sys.stderr)
        return 1
    return 0
