"""`toolwire run`: a prompt, a model, your functions. And what is known of calls that ran before."""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..ir.errors import ConfigError
from ..ir.terminal import neutralise_line
from ..ir.text import dumps
from .live import Live
from .show import json_text, paint, table
from .tools_file import load_tools, store_at

if TYPE_CHECKING:
    from types import ModuleType

    from ..ir.parts import ToolCall, ToolResult
    from ..ir.request import Request
    from ..ir.response import Response
    from ..mcp.client.servers import McpServers
    from ..net.agent import Agent, Answer
    from ..net.client import ModelClient
    from ..run.records import Store
    from ..run.requests import Approve
    from ..run.toolbox import Toolbox

__all__ = ["add_to", "ask_person", "client_of"]

_EXAMPLES = """\
examples:
  toolwire run tools.py "What is the weather in Paris?" -m openai/gpt-5.6
  toolwire run tools.py "What is the weather in Paris?" -m local/smollm2      no key, no network
  toolwire run tools.py "Clean up the inbox" -m anthropic/claude-sonnet-5 --yes --max-iterations 5
  toolwire run tools.py "…" -m llama --base-url http://localhost:8080/v1 --json | jq .text
  toolwire run tools.py "…" -m openai/gpt-5.6 --mcp mcp.json        with the tools of MCP servers
  toolwire run --list                            calls that are running, done or of unknown outcome
  toolwire run --resolve KEY --result '"paid"'   you found out what happened
  toolwire run --resolve KEY --forget            … and that nothing did: it may run again

tools.py: its functions, or those marked with @toolwire.tool. A tool is taken to change something unless it says otherwise
(@toolwire.tool(effect="read")), and what changes something is asked for first, unless --yes is given.
exit codes: 0 answered   1 no answer (a budget is used up), or not resolved   2 wrong usage, or the model cannot be reached
"""


def add_to(commands: Any) -> None:
    parser = commands.add_parser(
        "run",
        help="give a model a prompt and your functions",
        description="Give a model a prompt and your functions, and run what it calls.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("tools", nargs="?", metavar="TOOLS.py", help="a file of functions")
    parser.add_argument("prompt", nargs="?", help="what to do; - is standard input")
    parser.add_argument("-m", "--model", help="provider/model")
    parser.add_argument("--base-url", help="where the model is, if not at its provider's")
    parser.add_argument("--key-env", metavar="NAME", help="the variable that holds the key for --base-url")
    parser.add_argument("--text", metavar="FORMAT", help="a model without tool calling: `toolwire formats` lists them")
    parser.add_argument("--system", default="", help="the system prompt")
    parser.add_argument("--yes", action="store_true", help="do not ask before calls that change something")
    parser.add_argument("--max-iterations", type=int, default=16, metavar="N", help="how often to ask the model (16)")
    parser.add_argument(
        "--store", metavar="URL", help="where calls are remembered: a file, redis://…, postgresql://…, none"
    )
    parser.add_argument("--trace", metavar="FILE", help="write what happens, one JSON object a line")
    parser.add_argument("--mcp", metavar="FILE", help="tools of these MCP servers, too: a file of mcpServers")
    parser.add_argument("--json", action="store_true", help="for machines")
    parser.add_argument("--list", action="store_true", help="show remembered calls")
    parser.add_argument("--resolve", metavar="KEY", help="say what became of a call whose outcome is unknown")
    parser.add_argument("--result", metavar="JSON", help="with --resolve: this came of it")
    parser.add_argument("--forget", action="store_true", help="with --resolve: nothing came of it, it may run again")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    if arguments.list:
        return _list(store_at(arguments.store), as_json=arguments.json)
    if arguments.resolve:
        return _resolve(store_at(arguments.store), arguments)
    for name, flag in (("tools", "a file of functions"), ("prompt", "a prompt"), ("model", "a model (-m)")):
        if not getattr(arguments, name):
            raise ConfigError(f"{flag} is missing", hint="toolwire run TOOLS.py PROMPT -m PROVIDER/MODEL")
    return asyncio.run(_answer(arguments))


async def _answer(arguments: argparse.Namespace) -> int:
    prompt = sys.stdin.read() if arguments.prompt == "-" else arguments.prompt
    module = load_tools(arguments.tools)
    live = Live(silent=arguments.json)
    answer: Answer | None = None
    async with client_of(arguments) as client, _servers(arguments) as servers:
        tools: list[ModuleType | Toolbox] = [module] if servers is None else [module, servers.toolbox()]
        async for event in _agent(client, tools, arguments).stream(prompt):
            answer = live.show(event) or answer
    assert answer is not None
    if arguments.json:
        _print_json(answer)
    elif not answer.finished:
        print(paint(neutralise_line(f"gave up: {answer.reason}"), "red", sys.stderr), file=sys.stderr)
    return 0 if answer.finished else 1


def client_of(arguments: argparse.Namespace) -> ModelClient:
    from ..net.client import ModelClient

    key = None
    if arguments.key_env:
        key = os.environ.get(arguments.key_env)
        if not key:
            raise ConfigError(f"the variable {arguments.key_env} is not set")
    return ModelClient(arguments.model, base_url=arguments.base_url, text=arguments.text, key=key)


@asynccontextmanager
async def _servers(arguments: argparse.Namespace) -> AsyncIterator[McpServers | None]:
    """The MCP servers, if any are asked for; what of them cannot be used is said."""
    if arguments.mcp is None:
        yield None
        return
    from ..mcp.client.servers import McpServers

    async with McpServers.from_config(arguments.mcp) as servers:
        for problem in servers.problems:
            print(paint(neutralise_line(f"left out: {problem}"), "yellow", sys.stderr), file=sys.stderr)
        yield servers


def _agent(client: ModelClient, tools: list[ModuleType | Toolbox], arguments: argparse.Namespace) -> Agent:
    from ..net.agent import Agent
    from ..run.policy import Policy
    from ..run.session import Budget

    return Agent(
        client,
        tools,
        system=arguments.system,
        budget=Budget(iterations=arguments.max_iterations),
        observers=[_Trace(arguments.trace)] if arguments.trace else [],
        store=None if arguments.store == "none" else store_at(arguments.store),
        policy=Policy() if arguments.yes else Policy(approve=("write", "idempotent")),
        approve=ask_person,
    )


def ask_person(step: Approve) -> bool:
    """On a terminal; where nobody can be asked, nobody agrees."""
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        return False
    question = f"{step.tool}({dumps(step.arguments)}): {step.why}. Run it? [y/N] "
    print(paint(neutralise_line(question), "yellow", sys.stderr), end="", file=sys.stderr, flush=True)
    return sys.stdin.readline().strip().lower() in ("y", "yes")


class _Trace:
    """An observer that writes JSON lines."""

    def __init__(self, file: str) -> None:
        try:
            self._out = Path(file).open("a", encoding="utf-8")  # noqa: SIM115  # open as long as the run
        except OSError as error:
            raise ConfigError(f"cannot write {file}: {error.strerror}") from error

    def called(self, call: ToolCall, result: ToolResult, seconds: float) -> None:
        self._line({"call": call, "result": result, "seconds": round(seconds, 6)})

    def asked(self, request: Request, response: Response, seconds: float) -> None:
        self._line({"request": request, "response": response, "seconds": round(seconds, 6)})

    def _line(self, what: dict[str, Any]) -> None:
        import msgspec

        self._out.write(msgspec.json.encode(what).decode() + "\n")
        self._out.flush()


def _print_json(answer: Answer) -> None:
    import msgspec

    document = {
        "text": answer.text,
        "finished": answer.finished,
        "reason": answer.reason,
        "messages": msgspec.to_builtins(answer.messages),
    }
    print(json_text(document))


def _list(store: Store, *, as_json: bool) -> int:
    import msgspec

    records = store.records()
    if as_json:
        print(json.dumps([msgspec.to_builtins(record) for record in records], indent=2))
        return 0
    if not records:
        print("nothing is remembered")
        return 0
    rows = [(record.key, record.state, _when(record.created_at), record.tool) for record in records]
    print("\n".join(table(rows, ("key", "state", "since", "tool"))))
    return 0


def _when(seconds: float) -> str:
    from datetime import datetime

    return datetime.fromtimestamp(seconds).astimezone().isoformat(" ", "seconds")


def _resolve(store: Store, arguments: argparse.Namespace) -> int:
    from ..ir.parts import ToolCall
    from ..run.results import to_record
    from ..stream.strict import parse

    if arguments.forget == (arguments.result is not None):
        raise ConfigError("--resolve needs to know what happened", hint="--result JSON, or --forget")
    record = store.get(arguments.resolve)
    result = None
    if arguments.result is not None and record is not None:
        result = to_record(ToolCall("", record.tool).result(parse(arguments.result)))
    if record is None or not store.resolve(arguments.resolve, result):
        print("toolwire: no call of unknown outcome has this key", file=sys.stderr)
        return 1
    return 0
