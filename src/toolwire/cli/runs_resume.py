"""`toolwire runs resume`: continue a stored run with a model and the functions of a file.

Separate because it starts an agent; the other verbs only read and change the store.
"""

from __future__ import annotations

import argparse
import asyncio
from typing import TYPE_CHECKING

from ..ir.terminal import neutralise_text
from .answer_output import print_outcome
from .run import make_client, open_toolboxes
from .tools_file import load_tools

if TYPE_CHECKING:
    from types import ModuleType

    from ..net.answers import Answer
    from ..run.records import Store
    from ..run.toolbox import Toolbox

__all__ = ["resume"]


def resume(store: Store, run_id: str, arguments: argparse.Namespace) -> int:
    """Continue the run and print its answer. Return 1 if it gave none, or waits again."""
    answer = asyncio.run(_resume(store, run_id, arguments))
    if answer.finished and not arguments.json:
        print(neutralise_text(answer.text))
    return print_outcome(answer, arguments)


async def _resume(store: Store, run_id: str, arguments: argparse.Namespace) -> Answer[str]:
    """Continue the run with an agent that suspends further calls with side effects, unless `--yes` is given."""
    from ..net.agent import Agent
    from ..net.runner import Runner
    from ..run.policy import Policy

    policy = Policy() if arguments.yes else Policy(approve=("write", "idempotent"))
    files = [] if arguments.tools is None else [load_tools(arguments.tools)]
    async with make_client(arguments) as client, open_toolboxes(arguments) as boxes:
        tools: list[ModuleType | Toolbox] = [*files, *boxes]
        runner = Runner(*tools, store=store, policy=policy, approve="suspend", tenant=arguments.tenant)
        return await Agent(client, runner).resume(run_id)
