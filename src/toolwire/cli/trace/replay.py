"""`toolwire trace replay`: repeat a recorded run; translate a recorded request, or send it to another model.

A run is repeated offline, and its first difference is explained.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec.structs import replace

from ...ir.errors import ConfigError
from ...ir.losses import Losses
from ...ir.terminal import count_of, neutralise_text
from ...ir.text import dumps
from ..sources.targets import load_tools
from ..terminal.options import read_variable
from ..terminal.output import json_text, paint, print_losses, print_note, print_text, table
from .exchange import decode_answer, decode_client_request
from .show import load_trace

if TYPE_CHECKING:
    from ...ir.request import Request
    from ...ir.response import Response
    from ...net.agent.agent import Agent
    from ...net.trace.replay import ReplayTools
    from ...run.traces.recordings import ExchangeTrace, RunTrace
    from ...run.traces.replay import ReplayDifference


def replay_recorded_run(trace: RunTrace, arguments: argparse.Namespace) -> int:
    """Repeat the run, print the first difference, and return 1 if there is one.

    Raises `ConfigError` for options of exchanges, and for options that exclude each other.
    """
    from ...net.trace.replay import replay_run
    from ...run.tools.toolbox import Toolbox
    from ...run.traces.replay import ReplayDifference

    if arguments.target or arguments.url or arguments.model:
        raise ConfigError(
            "--to, --url and --model are for recorded exchanges, and this is a run",
            hint="leave them out: a run is repeated with its recorded responses",
        )
    if arguments.tools and arguments.agent:
        raise ConfigError("give either --tools or --agent", hint="--run-reads runs the pure and read tools of an agent")
    if arguments.run_reads and not arguments.agent:
        raise ConfigError("--run-reads needs --agent", hint="add --agent FILE.py:NAME, or use --tools TOOLS.py")
    agent = None if arguments.agent is None else _load_agent(arguments.agent)
    box = None if arguments.tools is None else Toolbox(load_tools(arguments.tools))
    tools: ReplayTools = "read" if arguments.tools or arguments.run_reads else "recorded"
    difference: ReplayDifference | None = None
    try:
        asyncio.run(replay_run(trace, agent, tools=tools, box=box))
    except ReplayDifference as error:
        difference = error
    _print_run(trace, difference, as_json=arguments.json)
    return 0 if difference is None else 1


def _load_agent(place: str) -> Agent[Any, Any]:
    """Return the agent at FILE.py:NAME. Raises `ConfigError` for another form, and if the file has no such agent."""
    from ...net.agent.agent import Agent

    file, mark, name = place.rpartition(":")
    if not mark or not name.isidentifier():
        raise ConfigError(f"--agent must be FILE.py:NAME, got {place!r}")
    agent = getattr(load_tools(file, "give a Python file that defines the agent"), name, None)
    if not isinstance(agent, Agent):
        raise ConfigError(f"{file} has no agent {name!r}", hint=f"define {name} = Agent(…) at the top level")
    return agent


def _print_run(trace: RunTrace, error: ReplayDifference | None, *, as_json: bool) -> None:
    """Print that the replay is identical, or the first difference."""
    if as_json:
        difference = None if error is None else msgspec.to_builtins(error.difference)
        print(json_text({"id": trace.header.id, "same": error is None, "difference": difference}))
    elif error is None:
        requests, calls = len(trace.turns()), len(trace.calls())
        print_text(f"the replay is identical: {count_of(requests, 'request')}, {count_of(calls, 'call')}")
    else:
        print(paint(neutralise_text(str(error)), "red", sys.stderr), file=sys.stderr)


def replay(arguments: argparse.Namespace) -> int:
    """Repeat a run, or replay the request of an exchange; return the exit code.

    Raises `ConfigError` for options of the other kind of trace, or missing options.
    """
    from ...run.traces.recordings import RunTrace

    if arguments.store is not None and not arguments.tools and not arguments.agent:
        hint = "add --agent FILE.py:NAME or --tools TOOLS.py"
        raise ConfigError("a stored run has only the names of its tools", hint=hint)
    trace = load_trace(arguments)
    if isinstance(trace, RunTrace):
        return replay_recorded_run(trace, arguments)
    if arguments.tools or arguments.agent or arguments.run_reads:
        raise ConfigError("--tools, --agent and --run-reads are for recorded runs, and this is an exchange")
    if not arguments.target:
        raise ConfigError("a recorded exchange needs a target", hint="add --to WIRE or --to PROVIDER/MODEL")
    return _replay_exchange(trace, arguments)


def _replay_exchange(trace: ExchangeTrace, arguments: argparse.Namespace) -> int:
    """Translate the recorded request if the target is a wire, or send it if there is a model or a URL.

    Raises `ConfigError` for an invalid recorded request and an unknown target.
    """
    from ...wire import names

    request = decode_client_request(trace)
    if request is None:
        raise ConfigError(f"the request in {arguments.file} is not a valid {trace.ingress.request.wire} request")
    wire = arguments.target if arguments.target.partition("@")[0] in names() else None
    model = arguments.model or (arguments.target if wire is None else None)
    if model is None and arguments.url is None:
        return _translate(trace, request, arguments)
    if wire is None and "/" not in arguments.target and arguments.url is None:
        raise ConfigError(
            f"{arguments.target!r} is neither a wire nor a model",
            hint=f"use one of the wires {', '.join(names())}, or a model as PROVIDER/MODEL",
        )
    return asyncio.run(_send_request(trace, request, wire, model or request.model, arguments))


def _translate(trace: ExchangeTrace, request: Request, arguments: argparse.Namespace) -> int:
    """Print the request as `target` receives it, and the losses. Nothing is sent."""
    from ...bridge.translation.documents import translate_request

    source, target = trace.ingress.request.wire, arguments.target
    done = translate_request(trace.ingress.data, source=source, target=target, model=request.model)
    if arguments.json:
        losses = [msgspec.to_builtins(loss) for loss in done.losses]
        print(json_text({"source": source, "target": target, "body": done.body, "losses": losses}))
        return 0
    print(json_text(done.body), flush=True)
    print_losses(f"{source} → {target}: ", done.losses)
    return 0


async def _send_request(
    trace: ExchangeTrace, request: Request, wire: str | None, model: str, arguments: argparse.Namespace
) -> int:
    """Send the request to a model, print both answers, and return 1 if the calls differ from the recorded calls."""
    from ...net.model.client import ModelClient

    key = read_variable(arguments.key_env)
    losses = Losses()
    at_url = arguments.url is not None  # with a URL, the name has no provider prefix
    name = f"openai/{model}" if at_url else model
    wire = wire or (trace.ingress.request.wire if at_url else None)
    async with ModelClient(name, base_url=arguments.url, key=key, wire=wire) as client:
        response = await client.ask(replace(request, stream=None), losses=losses)
    before = decode_answer(trace.ingress)
    alike = before is not None and _call_pairs(before) == _call_pairs(response)
    if arguments.json:
        _print_json(model, before, response, losses, alike=alike)
    else:
        _print(model, before, response, losses)
    return 0 if alike else 1


def _print(model: str, before: Response | None, after: Response, losses: Losses) -> None:
    rows = [("recorded", *row) for row in _response_rows(before)] + [(model, *row) for row in _response_rows(after)]
    print("\n".join(table(rows, ("answer", "", "content"))))
    print_losses("", tuple(losses))
    if before is None or _call_pairs(before) != _call_pairs(after):
        print_note("the calls differ")


def _response_rows(response: Response | None) -> list[tuple[str, str]]:
    if response is None:
        return [("", "no answer")]
    rows = [("call", f"{name} {arguments}") for name, arguments in _call_pairs(response)]
    if response.text:
        rows.append(("text", " ".join(response.text.split())))
    return rows or [("", "empty answer")]


def _call_pairs(response: Response) -> list[tuple[str, str]]:
    """Return names and arguments of the calls, without ids, which differ in every response."""
    return [(call.name, dumps(call.arguments)) for call in response.calls]


def _print_json(model: str, before: Response | None, after: Response, losses: Losses, *, alike: bool) -> None:
    """Print the recorded and the new answer as JSON; `alike` is true if their calls are equal."""
    document = {
        "model": model,
        "recorded": msgspec.to_builtins(before),
        "answer": msgspec.to_builtins(after),
        "losses": [msgspec.to_builtins(loss) for loss in losses],
        "same_calls": alike,
    }
    print(json_text(document))
