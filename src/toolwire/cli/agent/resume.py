"""Continue a stored run in this process, for `toolwire runs resume`."""

from __future__ import annotations

import argparse
import asyncio
from contextlib import aclosing
from typing import TYPE_CHECKING

from msgspec.structs import replace

from ...ir.terminal import neutralise_text
from ...run.values.records import Store
from .live import LivePrinter
from .options import make_agent, make_client, open_tools
from .output import JsonEvents, print_outcome

if TYPE_CHECKING:
    from ...net.agent.answers import Answer
    from ...run.session.loop import Session


def resume(store: Store, session: Session, arguments: argparse.Namespace) -> int:
    """Continue the run and print events as they arrive. Return 1 if it gave no answer, or waits again."""
    has_ended = session.state.phase == "done"
    answer = asyncio.run(_resume(store, session, arguments))
    if has_ended and not arguments.json:
        print(neutralise_text(answer.text))
    return print_outcome(answer, arguments)


async def _resume(store: Store, session: Session, arguments: argparse.Namespace) -> Answer[str]:
    """Continue the run, print its events, and return its answer.

    Further calls with side effects are suspended, unless `--yes` is given.
    """
    iterations = arguments.max_iterations
    budget = None if iterations is None else replace(session.budget, iterations=iterations)
    live = JsonEvents() if arguments.json else LivePrinter()
    answer: Answer[str] | None = None
    async with open_tools(arguments) as tools, make_client(arguments) as client:
        agent = make_agent(
            client, tools, arguments, store=store, approve="suspend", budget=budget, tenant=arguments.tenant
        )
        async with agent, aclosing(agent.resume_stream(session.state.run_id)) as events:
            async for event in events:
                answer = live.show(event) or answer
    assert answer is not None
    return answer
