"""`toolwire runs resume`: continue a stored run with a model and tools.

Separate because it starts an agent; the other verbs only read and change the store.
"""

from __future__ import annotations

import argparse
import asyncio
from typing import TYPE_CHECKING

from ..ir.terminal import neutralise_text
from .agent_options import make_agent, make_client, open_tools
from .answer_output import print_outcome
from .live import LivePrinter
from .run_events import JsonEvents

if TYPE_CHECKING:
    from ..net.agent.answers import Answer
    from ..run.session.loop import Session
    from ..run.values.records import Store

__all__ = ["resume"]


def resume(store: Store, session: Session, arguments: argparse.Namespace) -> int:
    """Continue the run and print events as they arrive. Return 1 if it gave no answer, or waits again."""
    has_ended = session.state.phase == "done"
    answer = asyncio.run(_resume(store, session, arguments))
    if has_ended and not arguments.json:
        print(neutralise_text(answer.text))
    return print_outcome(answer, arguments)


async def _resume(store: Store, session: Session, arguments: argparse.Namespace) -> Answer[str]:
    """Continue the run with an agent that suspends further calls with side effects, unless `--yes` is given."""
    from msgspec.structs import replace

    iterations = arguments.max_iterations
    budget = None if iterations is None else replace(session.budget, iterations=iterations)
    live = JsonEvents() if arguments.json else LivePrinter()
    answer: Answer[str] | None = None
    async with open_tools(arguments) as tools, make_client(arguments) as client:
        agent = make_agent(
            client, tools, arguments, store=store, approve="suspend", budget=budget, tenant=arguments.tenant
        )
        async for event in agent.resume_stream(session.state.run_id):
            answer = live.show(event) or answer
    assert answer is not None
    return answer
