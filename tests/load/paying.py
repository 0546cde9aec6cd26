"""Agents that pay once each. Processes import this module, so it has few imports."""

import asyncio
from collections import Counter
from contextlib import closing

import toolwire
from stores.worker import record_effect
from toolwire import Agent, ToolCall
from toolwire.net.stores import open_store
from toolwire.testing import ScriptedModel, says


def paying_agent(store, effects, name):
    """An agent that pays once. Its model answers in two turns."""

    @toolwire.tool(effect="write")
    def pay(name: str) -> str:
        """Pay an invoice."""
        record_effect(effects, name)
        return f"paid {name}"

    model = ScriptedModel([says(ToolCall(f"c-{name}", "pay", {"name": name})), says("Done.")])
    return Agent(model, [pay], store=store, approve=lambda step: True)


async def pay_all(store, effects, names):
    answers = await asyncio.gather(*(paying_agent(store, effects, name).run(f"Pay {name}.") for name in names))
    return Counter(answer.output for answer in answers)


def pay_in_process(url, effects, number, count):
    """Run agents of this process's own invoices, all at once."""
    with closing(open_store(url)) as store:
        names = [f"invoice-{number}-{index}" for index in range(count)]
        outputs = asyncio.run(pay_all(store, effects, names))
        assert outputs == {"Done.": count}, outputs
