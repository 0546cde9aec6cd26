"""Processes that suspend a run, approve its call and continue it, and kill themselves between two operations of the store.

An effect is a line in a file, written at once.
"""

import os
import signal
from contextlib import closing

import toolwire
from stores.servers import open_test_store
from stores.worker import record_effect
from toolwire import Agent, Runner, ToolCall
from toolwire.net import approve_call
from toolwire.run import Ask, Policy
from toolwire.testing import ScriptedModel, says

LEASE = 0.3
PAY = ToolCall("pay-1", "pay", {"amount": 5})
NOTE = ToolCall("note-1", "note", {"text": "start"})


class KillSwitch:
    """Wraps a store. The process kills itself before or after the operation with this number."""

    def __init__(self, store, die_at):
        self._store = store
        self._die_at = die_at
        self.count = 0

    def __getattr__(self, name):
        operation = getattr(self._store, name)
        # `renew` and `sweep` run in the background, whenever their time has come
        return operation if name in ("close", "renew", "sweep") else self._counted(operation)

    @property
    def runs(self):
        switch = KillSwitch(self._store.runs, self._die_at)
        switch._counted = self._counted
        return switch

    def _counted(self, operation):
        def run(*arguments, **options):
            number, self.count = self.count, self.count + 1
            self._die_if_at((number, "before"))
            result = operation(*arguments, **options)
            self._die_if_at((number, "after"))
            return result

        return run

    def _die_if_at(self, point):
        if point == self._die_at:
            os.kill(os.getpid(), signal.SIGKILL)


def make_agent(store, effects, lines=(), approve="suspend"):
    @toolwire.tool(effect="write")
    def pay(amount: int) -> str:
        """Pay an amount."""
        record_effect(effects, f"pay {amount}")
        return f"paid {amount}"

    @toolwire.tool(effect="write")
    def note(text: str) -> str:
        """Note a text; needs no approval."""
        record_effect(effects, f"note {text}")
        return "noted"

    policy = Policy(checks=(lambda pending: Ask("it costs money") if pending.call.name == "pay" else None,))
    runner = Runner(pay, note, store=store, policy=policy, approve=approve, lease=LEASE)
    return Agent(ScriptedModel(lines), runner)


def suspend(url, effects, die_at=None):
    """Start a run that notes something and waits for the payment. Returns its id and the number of store operations."""
    with closing(KillSwitch(open_test_store(url), die_at)) as store:
        answer = make_agent(store, effects, [says(NOTE, PAY)]).run_sync("Pay 5.")
        assert answer.suspended
        return answer.run_id, store.count


def approve(url, run_id, die_at=None):
    with closing(KillSwitch(open_test_store(url), die_at)) as store:
        approve_call(store, run_id, "pay-1")


def resume(url, effects, run_id, die_at=None):
    """Continue the run. Returns its answer and the number of store operations."""
    with closing(KillSwitch(open_test_store(url), die_at)) as store:
        answer = make_agent(store, effects, [says("Done."), says("Done.")]).resume_sync(run_id)
        return answer, store.count
