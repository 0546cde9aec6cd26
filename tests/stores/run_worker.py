"""A process that performs a run of several turns, and kills itself between two operations of the store."""

from contextlib import closing

import toolwire
from stores.approval_worker import LEASE, KillSwitch
from stores.servers import open_test_store
from stores.worker import record_effect
from toolwire import Agent, Runner, ToolCall
from toolwire.run import Compaction
from toolwire.testing import ScriptedModel, says

TURNS = 4


def perform(url, effects, die_at=None, run_id=None):
    """Start a run that notes something in each turn, or continue it. Return its answer and the number of operations."""
    with closing(KillSwitch(open_test_store(url), die_at)) as store:

        @toolwire.tool(effect="write")
        def note(number: int) -> str:
            """Note a number."""
            record_effect(effects, f"note {number}")
            return "noted " + "x" * 500

        def answer(request):
            """Continue where the conversation is: the model has no state of its own."""
            record_effect(effects.with_name("requests"), str(len(request.messages)))
            calls = [part for message in request.messages for part in message.parts if isinstance(part, ToolCall)]
            turn = calls[-1].arguments["number"] + 1 if calls else 0
            return says("Done.") if turn == TURNS else says(ToolCall(f"n{turn}", "note", {"number": turn}))

        runner = Runner(note, store=store, approve=lambda step: True, lease=LEASE)
        agent = Agent(ScriptedModel([answer] * (TURNS + 1)), runner, compaction=Compaction(max_tokens=150, keep_last=1))
        return (agent.run_sync("Note.") if run_id is None else agent.resume_sync(run_id)), store.count
