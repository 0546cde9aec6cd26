"""Many subagents: the work of a leaf does not depend on the number of leaves (RU3)."""

import asyncio
import threading

import pytest

from fan_out import WIDTH, agent_with
from loop_turns import MOST_CALLS, Turns
from toolwire import Message, Request, Text
from toolwire.ir.response import Usage
from toolwire.net import TraceObserver
from toolwire.net.stores.memory import MemoryStore
from toolwire.run import Budget, Session
from work_counter import assert_linear, count_work


@pytest.mark.finding("RU3")
@pytest.mark.parametrize("kind", ["plain", "budget", "trace"])
def test_work_is_linear_in_the_number_of_subagents(kind, tmp_path):
    options = {
        "plain": {},
        "budget": {"budget": Budget(tokens=10**9, cost=1e9)},
        "trace": {"observers": [TraceObserver(folder=tmp_path)]},
    }[kind]
    costs = []
    for leaves in (100, 300):
        agent = agent_with(leaves, **options)
        costs.append((leaves, count_work(lambda agent=agent: asyncio.run(agent.run("Go.")))))
    assert_linear(costs, slack=1.2)


@pytest.mark.finding("RU3")
@pytest.mark.parametrize("leaves", [1000, pytest.param(10_000, marks=pytest.mark.full)])
def test_no_turn_of_the_loop_is_long(leaves):
    async def scenario():
        async with Turns() as turns:
            answer = await agent_with(leaves, store=MemoryStore()).run("Go.")
        return turns, answer

    turns, answer = asyncio.run(scenario())
    requests = leaves + 2 * (leaves // WIDTH) + 2
    assert (answer.text, answer.usage.input) == ("ok", requests)
    assert turns.longest < MOST_CALLS


@pytest.mark.finding("RU3")
def test_usage_from_many_threads_is_counted_once():
    """Subagents in threads report to the same run while it checks its budget."""
    session = Session(
        Request(model="m", messages=(Message("user", (Text("Hi."),)),)), now=lambda: 0.0, budget=Budget(tokens=10**9)
    )

    def report():
        for _ in range(500):
            session.add_usage(Usage(1, 2), 0.5)

    threads = [threading.Thread(target=report) for _ in range(4)]
    for thread in threads:
        thread.start()
    for _ in range(500):
        session.next()
    for thread in threads:
        thread.join()
    session.next()
    assert (session.state.usage, session.state.cost) == (Usage(2000, 4000), 1000.0)
