"""`toolwire run`: run a prompt with a model and your functions, and list or resolve recorded calls."""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING, Any

from ..ir.errors import ConfigError
from ..ir.terminal import neutralise_line, reveal_line
from ..ir.text import dumps
from .answer_output import format_time, print_outcome
from .live import LivePrinter
from .openapi_options import add_api_options, open_api, refuse_api_options
from .plan_output import plans_of, print_plans
from .show import paint, table
from .tools_file import add_ttl_option, load_tools, open_store_at

if TYPE_CHECKING:
    from types import ModuleType

    from ..net.agent import Agent
    from ..net.answers import Answer
    from ..net.client import ModelClient
    from ..run.observe import Observer
    from ..run.plan import CallPlan
    from ..run.records import Store
    from ..run.steps import Approve
    from ..run.toolbox import Toolbox

__all__ = ["add_text_options", "add_to", "ask_person", "make_client", "open_toolboxes"]

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
    parser.add_argument("-m", "--model", help="provider/model")
    parser.add_argument("--base-url", help="base URL of the model, if not its provider's")
    parser.add_argument("--key-env", metavar="NAME", help="environment variable with the key for --base-url")
    add_text_options(parser)
    parser.add_argument("--system", default="", help="the system prompt")
    parser.add_argument("--yes", action="store_true", help="do not ask before calls with side effects")
    parser.add_argument(
        "--dry-run", action="store_true", help="call no function; the model receives the plan of each call instead"
    )
    parser.add_argument(
        "--suspend", action="store_true", help="let calls with side effects wait for `toolwire runs approve`"
    )
    parser.add_argument(
        "--max-iterations", type=int, default=16, metavar="N", help="maximum number of model requests (16)"
    )
    parser.add_argument(
        "--store", metavar="URL", help="store for the records of calls: a file, redis://…, postgresql://…, none"
    )
    add_ttl_option(parser)
    parser.add_argument(
        "--trace", metavar="FILE", help="record the run in FILE, for `toolwire trace show` and `toolwire trace replay`"
    )
    parser.add_argument("--mcp", metavar="FILE", help="add the tools of MCP servers: a file of mcpServers")
    parser.add_argument("--openapi", metavar="FILE", help="add the operations of an OpenAPI document (JSON or YAML)")
    add_api_options(parser)
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
    needed = () if arguments.openapi or arguments.mcp else (("tools", "a file of functions"),)
    for name, flag in (*needed, ("prompt", "a prompt"), ("model", "a model (-m)")):
        if not getattr(arguments, name):
            raise ConfigError(f"{flag} is missing", hint="toolwire run TOOLS.py PROMPT -m PROVIDER/MODEL")
    if arguments.suspend and (arguments.yes or arguments.store == "none"):
        raise ConfigError("--suspend needs a store, and calls that ask", hint="leave out --yes and --store none")
    return asyncio.run(_run_prompt(arguments))


async def _run_prompt(arguments: argparse.Namespace) -> int:
    """Run the prompt and print events as they arrive. Return 1 if the agent did not finish."""
    prompt = sys.stdin.read() if arguments.prompt == "-" else arguments.prompt
    files = [] if arguments.tools is None else [load_tools(arguments.tools)]
    live = LivePrinter(silent=arguments.json)
    answer: Answer | None = None
    plans: list[CallPlan] = []
    async with make_client(arguments) as client, open_toolboxes(arguments) as boxes:
        tools: list[ModuleType | Toolbox] = [*files, *boxes]
        async for event in _make_agent(client, tools, arguments).stream(prompt):
            answer = live.show(event) or answer
            plans += plans_of(event)
    assert answer is not None
    exit_code = print_outcome(answer, arguments, plans if arguments.dry_run else None)
    if arguments.dry_run and not arguments.json:
        print_plans(plans)
    return exit_code


def add_text_options(parser: argparse.ArgumentParser) -> None:
    """Add the options for a model without tool calling."""
    parser.add_argument(
        "--text", metavar="FORMAT", help="text format for a model without tool calling; see `toolwire formats`"
    )
    parser.add_argument(
        "--via",
        choices=["chat", "completions"],
        default="chat",
        help="endpoint for --text: chat, or the raw completion endpoint of a local server",
    )
    parser.add_argument(
        "--template", metavar="NAME", help="chat template for --via completions (default: by the model)"
    )


def make_client(arguments: argparse.Namespace) -> ModelClient:
    """Make the client of the model. A missing `--key-env` variable is an error, not a request without a key."""
    from ..bridge.emulation_settings import EmulationSettings
    from ..net.client import ModelClient

    if arguments.text is None and (arguments.via != "chat" or arguments.template is not None):
        raise ConfigError("--via and --template need a text format", hint="add --text FORMAT; see `toolwire formats`")
    text = None if arguments.text is None else EmulationSettings(arguments.text, arguments.via, arguments.template)
    key = None
    if arguments.key_env:
        key = os.environ.get(arguments.key_env)
        if not key:
            raise ConfigError(f"environment variable {arguments.key_env} is not set")
    return ModelClient(arguments.model, base_url=arguments.base_url, text=text, key=key)


@asynccontextmanager
async def open_toolboxes(arguments: argparse.Namespace) -> AsyncIterator[list[Toolbox]]:
    """Open the MCP servers and the OpenAPI document, if any are given, and report their problems."""
    async with AsyncExitStack() as stack:
        boxes: list[Toolbox] = []
        if arguments.mcp is not None:
            from ..mcp.client.servers import McpServers

            servers = await stack.enter_async_context(McpServers.from_config(arguments.mcp))
            for problem in servers.problems:
                print(paint(neutralise_line(f"skipped: {problem}"), "yellow", sys.stderr), file=sys.stderr)
            boxes.append(servers.toolbox())
        if arguments.openapi is not None:
            boxes.append(await stack.enter_async_context(open_api(arguments.openapi, arguments)))
        yield boxes


def _make_agent(client: ModelClient, tools: list[ModuleType | Toolbox], arguments: argparse.Namespace) -> Agent:
    """Make the agent. Without `--yes`, calls with side effects need the approval of `ask_person`."""
    from ..net.agent import Agent
    from ..net.runner import Runner
    from ..run.policy import Policy
    from ..run.session import Budget

    observers = _make_observers(arguments)
    runner = Runner(
        *tools,
        observers=observers,
        store=None if arguments.store == "none" else open_store_at(arguments.store),
        policy=Policy() if arguments.yes else Policy(approve=("write", "idempotent")),
        approve="suspend" if arguments.suspend else ask_person,
        ttl=arguments.ttl,
        dry_run=arguments.dry_run,
    )
    budget = Budget(iterations=arguments.max_iterations)
    return Agent(client, runner, system=arguments.system, budget=budget, observers=observers)


def _make_observers(arguments: argparse.Namespace) -> list[Observer]:
    """Make the observer that records the run."""
    if not arguments.trace:
        return []
    from ..net.trace_observer import TraceObserver

    key = os.environ.get(arguments.key_env) if arguments.key_env else None
    return [TraceObserver(arguments.trace, secrets=[] if key is None else [key])]


def ask_person(step: Approve) -> bool:
    """Ask for approval on the terminal; deny without a terminal."""
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        return False
    question = f"{step.tool}({dumps(step.arguments)}): {step.why}. Run it? [y/N] "
    print(paint(reveal_line(question), "yellow", sys.stderr), end="", file=sys.stderr, flush=True)
    return sys.stdin.readline().strip().lower() in ("y", "yes")


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
