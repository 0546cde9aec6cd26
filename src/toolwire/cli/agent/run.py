"""`toolwire run`: run one prompt with a model and tools, and list or resolve recorded calls (`--list`, `--resolve`)."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, aclosing, closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from ...ir.errors import ConfigError, ToolwireError
from ...ir.hints import translate_hint
from ...stream.strict import parse, parse_object
from ..sources.targets import open_store_at
from ..terminal.input import ApprovalPrompt, has_terminal, replace_invalid
from ..terminal.options import add_command, add_flag, add_list
from ..terminal.output import print_note, table
from .live import LivePrinter
from .live_loop import AgentThread, Interrupted, report_waiting
from .options import (
    add_agent_options,
    add_model_options,
    add_tool_options,
    announce_model,
    make_agent,
    make_client,
    make_price,
    open_tools,
)
from .output import JsonEvents, format_time, plans_of, print_event, print_outcome, print_plans

if TYPE_CHECKING:
    from ...net.agent.answers import Answer
    from ...net.model.interface import PromptItem
    from ...run.calls.plan import CallPlan
    from ...run.tools.toolbox import Toolbox
    from ...run.values.records import Store


def list_records(store: Store, *, as_json: bool) -> int:
    """Print the recorded calls of the store as a table or JSON. The exit code is always 0."""
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


def resolve_record(store: Store, arguments: argparse.Namespace) -> int:
    """Record the outcome of a call whose outcome is unknown: `--result`, or None if it may run again (`--forget`).

    Returns 1 if no such call has the key. Raises `ConfigError` unless exactly one of the two is given.
    """
    from ...ir.parts import ToolCall
    from ...run.values.results import to_record

    if arguments.forget == (arguments.result is not None):
        raise ConfigError("--resolve requires an outcome", hint="add --result JSON or --forget")
    record = store.get(arguments.resolve)
    result = None
    if arguments.result is not None and record is not None:
        result = to_record(ToolCall("", record.tool).result(parse(arguments.result)))
    if record is None or not store.resolve(arguments.resolve, result):
        print_note("toolwire: no call of unknown outcome has this key", None)
        return 1
    return 0


_MAX_PATH = 255  # characters of a prompt that could be the name of a file (NAME_MAX of Linux)

_HELP = """\
Send a prompt and your tools to a model, and execute its calls.

examples:
  toolwire run "What is the weather in Paris?" -t tools.py -m openai/gpt-5.6
  toolwire run "What is the weather in Paris?" -t tools.py -m local/smollm2     no key, no network
  toolwire run "Clean up the inbox" -t mcp.json -m anthropic/claude-sonnet-5 --yes --max-iterations 5
  toolwire run "Which pets are there?" -t pets.json --api-url https://api.example.com -m openai/gpt-5.6
  toolwire run "…" -t tools.py -t "npx -y some-mcp-server" -m openai/gpt-5.6    tools of several sources
  toolwire run "What is in this picture?" --attach cat.png -m openai/gpt-5.6
  git diff | toolwire run --system "Write a commit message." -m openai/gpt-5.6
  toolwire run "The three largest cities" -m openai/gpt-5.6 --output-schema cities.schema.json | jq .
  toolwire run "…" -t tools.py -m llama --base-url http://localhost:8080/v1 --json | jq 'select(.type == "call")'
  toolwire run "…" -t tools.py -m llamacpp/qwen3-8b --text hermes --via completions    if the server's tool parser fails
  toolwire run "Clean up the inbox" -t tools.py -m openai/gpt-5.6 --dry-run    show the calls, their effects and approvals
  toolwire run "Pay the invoice" -t tools.py -m openai/gpt-5.6 --suspend    calls wait; see `toolwire runs --help`
  toolwire run "…" -t tools.py -m openai/gpt-5.6 --store runs.db --ttl 604800    results of writes are kept for a week
  toolwire run --durable "Pay the invoice" --agent payments    executed by `toolwire worker`; survives its death
  toolwire run --list                            recorded calls: running, done or of unknown outcome
  toolwire run --resolve KEY --result '"paid"'   record the outcome that you found out
  toolwire run --resolve KEY --forget            the call had no effect and may run again

A tool is assumed to have side effects unless declared otherwise (@toolwire.tool(effect="read")). Calls with side effects
need your approval, unless --yes is given. The answer goes to standard output, calls and results to standard error.
exit codes: 0 answered   1 no answer (budget exhausted), waiting for approval, or not resolved
            2 wrong usage, or the model is unreachable   130 interrupted
"""


def add_to(commands: Any) -> None:
    """Register `toolwire run` with its options."""
    parser = add_command(commands, "run", "run one prompt with a model that can call your tools", _HELP, run)
    parser.add_argument("prompt", nargs="?", help="the prompt; - is standard input, and none is a pipe")
    add_model_options(parser)
    parser.add_argument("--system", default="", help="the system prompt")
    add_list(parser, "--attach", metavar="FILE", help="add a file to the prompt: image, PDF, text; repeatable")
    parser.add_argument(
        "--output-schema", metavar="FILE", help="print an answer that matches this JSON Schema, and nothing else"
    )
    add_flag(parser, "--yes", "do not ask before calls with side effects")
    add_flag(parser, "--dry-run", "call no function; the model receives the plan of each call instead")
    add_flag(parser, "--suspend", "let calls with side effects wait for `toolwire runs approve`")
    add_flag(parser, "--durable", "put the run into a queue; `toolwire worker` executes it")
    parser.add_argument(
        "--agent", default="agent", metavar="NAME", help="with --durable: the agent of the worker (agent)"
    )
    parser.add_argument("--queue", default="default", metavar="NAME", help="with --durable: the queue (default)")
    add_flag(parser, "--detach", "with --durable: print the id of the run, and do not wait for it")
    add_flag(parser, "--quiet", "do not print calls, results and notes")
    add_flag(parser, "--json", "print one JSON object per line: the events, and the answer as the last one")
    add_agent_options(parser, iterations=16)
    add_flag(parser, "--list", "list recorded calls")
    parser.add_argument("--resolve", metavar="KEY", help="resolve a call of unknown outcome")
    parser.add_argument("--result", metavar="JSON", help="with --resolve: the result of the call")
    add_flag(parser, "--forget", "with --resolve: the call had no effect and may run again")
    add_tool_options(parser)


def run(arguments: argparse.Namespace) -> int:
    """List or resolve recorded calls, or run the prompt and return its exit code; 130 after Ctrl-C.

    With --json, an error is printed as an event, too, before it is raised.
    """
    if arguments.list or arguments.resolve:
        with closing(open_store_at(arguments.store, must_exist=True)) as store:
            return list_records(store, as_json=arguments.json) if arguments.list else resolve_record(store, arguments)
    _check_usage(arguments)
    prompt = _read_prompt(arguments)
    if arguments.durable:
        return _run_durable(arguments, prompt)
    make_price(arguments.price)
    _read_output_type(arguments.output_schema)  # wrong usage is reported before anything else is printed
    try:
        return _PromptRun(arguments).run(prompt)
    except Interrupted:
        if arguments.json:
            print_event({"type": "error", "message": "interrupted"})
        print_note("stopped", None)
        return 130
    except ToolwireError as error:
        if arguments.json:
            error.hint = translate_hint(error.hint, "option")
            print_event({"type": "error", "message": str(error)})
        raise


def _run_durable(arguments: argparse.Namespace, prompt: list[PromptItem]) -> int:
    """Enqueue the prompt. The tools and the model are the worker's."""
    from .durable import run_durable

    if arguments.tools or arguments.dry_run or arguments.output_schema:
        raise ConfigError(
            "--durable takes no tools, --dry-run or --output-schema", hint="give them to the agent of toolwire worker"
        )
    return run_durable(arguments, prompt)


def _check_usage(arguments: argparse.Namespace) -> None:
    """Raise `ConfigError` for a missing prompt or model, a Python file as prompt, and options that exclude each other."""
    usage = "toolwire run PROMPT -t TOOLS -m PROVIDER/MODEL"
    if arguments.prompt is None and sys.stdin.isatty():
        raise ConfigError("a prompt is missing", hint=usage)
    if (
        arguments.prompt
        and len(arguments.prompt) < _MAX_PATH
        and arguments.prompt.endswith(".py")
        and Path(arguments.prompt).is_file()
    ):
        raise ConfigError(f"the prompt is a file: {arguments.prompt}", hint=f"tools: -t {arguments.prompt}; {usage}")
    if arguments.suspend and (arguments.yes or arguments.store == "none"):
        raise ConfigError("--suspend cannot be combined with --yes or --store none", hint="leave out one of them")


def _read_prompt(arguments: argparse.Namespace) -> list[PromptItem]:
    """Return the prompt and the attached files.

    Standard input is read only without a prompt, because it may never end. Raises `ConfigError` for an empty prompt
    without files, and for missing files.
    """
    text = replace_invalid(sys.stdin.read() if arguments.prompt in (None, "-") else arguments.prompt)
    if not text.strip() and not arguments.attach:
        raise ConfigError("the prompt is empty", hint="toolwire run PROMPT -t TOOLS -m PROVIDER/MODEL")
    files = [Path(file) for file in arguments.attach]
    for file in files:
        if not file.is_file():
            raise ConfigError(f"cannot read {file}: not a file", hint="--attach FILE")
    return [*([text] if text.strip() else []), *files]


def _read_output_type(file: str | None) -> Any:
    """Return the answer's type: the JSON Schema in a file, or text without a file.

    Raises `ConfigError` for an unreadable or invalid schema.
    """
    if file is None:
        return str
    from ...run.session.output import StructuredOutput

    hint = "give a file with a JSON Schema"
    try:
        output = StructuredOutput(parse_object(Path(file).read_bytes()), name="answer")
        output.resolve()
    except OSError as error:
        raise ConfigError(f"cannot read {file}: {error.strerror}", hint=hint) from None
    except ToolwireError as error:
        raise ConfigError(f"{file} is not a JSON Schema: {error.message}", hint=hint) from None
    return output


class _PromptRun:
    """One prompt: its events are printed as they arrive, and its approvals asked."""

    def __init__(self, arguments: argparse.Namespace) -> None:
        """Choose the output (JSON lines or a live printer) and create the thread in which the agent runs."""
        self._arguments = arguments
        self._answer: Answer[Any] | None = None
        self._plans: list[CallPlan] = []
        self._box: Toolbox | None = None
        self._is_structured = arguments.output_schema is not None
        self._live = JsonEvents() if arguments.json else self._make_printer()
        on_question = self._live.show_question if isinstance(self._live, JsonEvents) else None
        approval = ApprovalPrompt(lambda: self._box, on_question)
        self._thread = AgentThread(approval.ask, report_waiting)

    def _make_printer(self) -> LivePrinter:
        hint = "" if has_terminal() else "use --yes or --suspend"
        return LivePrinter(
            shows_text=not self._is_structured, shows_calls=not self._arguments.quiet, approval_hint=hint
        )

    def run(self, prompt: list[PromptItem]) -> int:
        """Run the prompt, and print its outcome. Return 1 if the agent did not finish."""
        try:
            self._thread.show(self._stream(prompt), self._show)
        finally:
            self._live.close()
            self._thread.close()
        arguments, answer = self._arguments, self._answer
        assert answer is not None
        plans = self._plans if arguments.dry_run else None
        exit_code = print_outcome(answer, arguments, plans, is_structured=self._is_structured)
        if arguments.dry_run and not arguments.json:
            print_plans(self._plans)
        return exit_code

    def _show(self, event: Any) -> None:
        self._answer = self._live.show(event) or self._answer
        self._plans += plans_of(event)

    async def _stream(self, prompt: list[PromptItem]) -> AsyncGenerator[Any, None]:
        """Yield the events of an agent with the tools, client and store of the command line.

        Sets `_box`, which the approval prompt reads.
        """
        from ...run.session.state import Budget

        arguments = self._arguments
        output_type = _read_output_type(arguments.output_schema)
        async with open_tools(arguments) as tools, make_client(arguments) as client, AsyncExitStack() as stack:
            has_store = arguments.store != "none"
            agent = make_agent(
                client,
                tools,
                arguments,
                store=stack.enter_context(closing(open_store_at(arguments.store))) if has_store else None,
                approve="suspend" if arguments.suspend else self._thread.approve,
                budget=Budget(iterations=arguments.max_iterations),
                system=arguments.system,
                output_type=output_type,
                dry_run=arguments.dry_run,
            )
            stack.push_async_exit(agent)
            self._box = agent.runner.box
            if not arguments.quiet and not arguments.json:
                announce_model(arguments.model, base_url=arguments.base_url)
            async with aclosing(agent.stream(prompt)) as events:
                async for event in events:
                    yield event
