"""`toolwire worker`: execute the queued runs of agents, from a Python file or from options."""

from __future__ import annotations

import argparse
import asyncio
import logging
import os
from contextlib import closing
from typing import TYPE_CHECKING, Any

from ...ir.errors import ConfigError
from ..sources.targets import load_tools, open_store_at, positive_seconds
from ..terminal.options import add_command, add_flag, add_list
from .durable import DEFAULT_AGENT, open_durable
from .options import add_agent_options, add_model_options, add_tool_options, make_agent, make_client, open_tools

if TYPE_CHECKING:
    from ...durable import DurableRuns
    from ...net.agent.agent import Agent

_HELP = """\
Execute runs that `toolwire run --durable`, `DurableRuns.enqueue` and schedules put into queues. Start any number of
workers, on one machine with SQLite, on many with PostgreSQL; if one dies, the others finish its runs.

examples:
  toolwire worker app.py                              the agents of a file, which have names and a store
  toolwire worker -t tools.py -m openai/gpt-5.6       one agent, from options
  toolwire worker app.py --queue mail --queue reports       only these queues
  toolwire worker app.py --version 2                  name the version; by default, it follows from the agents
  toolwire run --durable "Pay the invoice" --agent payments       enqueue a run, and follow it
  toolwire runs list                                  queued, running, waiting and finished runs

A run is finished by the version that began it; new runs are taken by the version that was deployed last. SIGTERM: the
worker takes no further runs, gives its runs --grace seconds, and hands the others over. Webhooks are signed with
TOOLWIRE_WEBHOOK_SECRET (whsec_…), if it is set.
exit codes: 0 stopped   2 wrong usage
"""


def add_to(commands: Any) -> None:
    parser = add_command(commands, "worker", "execute the queued runs of your agents", _HELP, run)
    parser.add_argument("app", nargs="?", metavar="FILE", help="a Python file with named agents")
    add_list(parser, "--queue", metavar="NAME", help="take runs of this queue only; repeatable")
    parser.add_argument("--version", default="", metavar="NAME", help="the version of the agents (default: computed)")
    add_flag(parser, "--latest", "give new runs to this version, also if another one was deployed after it")
    parser.add_argument(
        "--heartbeat", type=positive_seconds, default=15.0, metavar="SECONDS",
        help="a worker without a sign of life for this time counts as dead (15)",
    )  # fmt: skip
    parser.add_argument(
        "--grace", type=positive_seconds, default=20.0, metavar="SECONDS",
        help="how long runs may continue after SIGTERM (20)",
    )  # fmt: skip
    add_model_options(parser)
    parser.add_argument("--system", default="", help="the system prompt of the agent")
    add_flag(parser, "--yes", "run calls with side effects without approval (default: they wait)")
    add_agent_options(parser, iterations=16)
    add_tool_options(parser)


def run(arguments: argparse.Namespace) -> int:
    """Execute runs until SIGTERM or SIGINT."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s", datefmt="%H:%M:%S")
    logging.getLogger("dbos").setLevel(logging.WARNING)
    if (arguments.app is None) == (not arguments.tools):
        raise ConfigError(
            "a worker needs a file of agents, or tools", hint="toolwire worker FILE, or -t TOOLS -m MODEL"
        )
    asyncio.run(_serve_file(arguments) if arguments.app is not None else _serve_options(arguments))
    return 0


async def _serve_file(arguments: argparse.Namespace) -> None:
    """Execute the runs of the agents of a file. Its own `DurableRuns`, if it has any, has the address of the store."""
    from ...durable import DurableRuns
    from ...net.agent.agent import Agent

    values = list(vars(load_tools(arguments.app, "give a Python file with your agents")).values())
    agents = [value for value in values if isinstance(value, Agent) and value.name]
    if not agents:
        raise ConfigError(
            f"{arguments.app} has no agents with names", hint="agent = Agent(…, name=…, store=runs.store)"
        )
    opened = next((value for value in values if isinstance(value, DurableRuns)), None)
    await _serve(opened or open_durable(arguments), agents, arguments)


async def _serve_options(arguments: argparse.Namespace) -> None:
    """Execute the runs of one agent, with the tools and the model of the command line."""
    from ...run.session.state import Budget

    async with open_tools(arguments) as tools, make_client(arguments) as client:
        with closing(open_store_at(arguments.store)) as store:
            agent = make_agent(
                client,
                tools,
                arguments,
                store=store,
                approve="suspend",
                budget=Budget(iterations=arguments.max_iterations),
                system=arguments.system,
                name=DEFAULT_AGENT,
            )
            async with agent:
                await _serve(open_durable(arguments), [agent], arguments)


async def _serve(runs: DurableRuns, agents: list[Agent[Any, Any]], arguments: argparse.Namespace) -> None:
    from ...durable import RunWorker

    with closing(runs):
        worker = RunWorker(
            runs,
            agents,
            version=arguments.version,
            is_latest=arguments.latest,
            queues=arguments.queue,
            heartbeat=arguments.heartbeat,
            grace=arguments.grace,
            webhook_secret=os.environ.get("TOOLWIRE_WEBHOOK_SECRET", ""),
        )
        await worker.serve_until_signal()
