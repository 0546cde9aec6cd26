"""`toolwire trace replay` of a run: repeat it offline and explain the first difference."""

from __future__ import annotations

import argparse
import asyncio
import sys
from typing import TYPE_CHECKING, Any

from ..ir.errors import ConfigError
from ..ir.terminal import neutralise_text
from .show import count_of, json_text, paint
from .tools_file import load_tools

if TYPE_CHECKING:
    from ..net.agent.agent import Agent
    from ..net.trace.replay import ReplayTools
    from ..run.traces.recordings import RunTrace
    from ..run.traces.replay import ReplayDifference

__all__ = ["replay_recorded_run"]


def replay_recorded_run(trace: RunTrace, arguments: argparse.Namespace) -> int:
    """Repeat the run. Return 1 if it differs from the recording."""
    from ..net.trace.replay import replay_run
    from ..run.tools.toolbox import Toolbox
    from ..run.traces.replay import ReplayDifference

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
    _print(trace, difference, as_json=arguments.json)
    return 0 if difference is None else 1


def _load_agent(place: str) -> Agent[Any, Any]:
    """Load an agent from FILE.py:NAME."""
    from ..net.agent.agent import Agent

    file, mark, name = place.rpartition(":")
    if not mark or not name.isidentifier():
        raise ConfigError(f"--agent must be FILE.py:NAME, got {place!r}")
    agent = getattr(load_tools(file, "give a Python file that defines the agent"), name, None)
    if not isinstance(agent, Agent):
        raise ConfigError(f"{file} has no agent {name!r}", hint=f"define {name} = Agent(…) at the top level")
    return agent


def _print(trace: RunTrace, error: ReplayDifference | None, *, as_json: bool) -> None:
    import msgspec

    if as_json:
        found = None if error is None else msgspec.to_builtins(error.difference)
        print(json_text({"id": trace.header.id, "same": error is None, "difference": found}))
    elif error is None:
        requests, calls = len(trace.turns()), len(trace.calls())
        print(f"the replay is identical: {count_of(requests, 'request')}, {count_of(calls, 'call')}")
    else:
        print(paint(neutralise_text(str(error)), "red", sys.stderr), file=sys.stderr)
