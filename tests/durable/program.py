"""A worker process for the tests, and its agents: their tools leave a line in a file, and block where a test wants to kill.

A point is `model N` (the request with N calls in its conversation), `tool N` (the call has had its effect) or `after N`.
"""

import asyncio

import toolwire
from stores.worker import record_effect
from toolwire import Agent, Runner, ToolCall
from toolwire.durable import DurableRuns, RunWorker
from toolwire.ir.folding import unfold
from toolwire.run import Policy, Suspend
from toolwire.testing import says

_FAILURES = {
    "temporary": ConnectionError("reset"),
    "cancelled": asyncio.CancelledError(),  # of something in the run
    "permanent": ValueError("no such model"),
    "surrogate": ValueError("no model a\ud800ü"),
}
TURNS = 2
LEASE = 1.0  # seconds; as short as a loaded machine allows, since a renewal must come in time
HEARTBEAT = 1.0
POLL = 0.1


class FollowingModel:
    """A model that goes on where the conversation is, as a real one does: it notes 0, 1, … and then says so."""

    model = "following"

    def __init__(self, folder, calls):
        self._folder = folder
        self._calls = calls

    async def ask(self, request):
        number = sum(isinstance(part, ToolCall) for message in request.messages for part in message.parts)
        await block_at(self._folder, f"model {number}")
        failure = self._folder / "failure"
        if failure.exists():
            kind = failure.read_text()
            failure.unlink()
            raise _FAILURES[kind]
        return says("Done.") if number == len(self._calls) else says(ToolCall(f"c{number}", *self._calls[number]))

    async def stream(self, request):
        for event in unfold(await self.ask(request)):
            yield event


async def block_at(folder, point):
    """Wait for the kill at the point that the test has chosen, once."""
    chosen = folder / "point"
    if chosen.exists() and chosen.read_text() == point:
        (folder / "reached").touch()
        await asyncio.sleep(3600)


def make_agents(store, folder, *, approves=False, has_tool=True):
    """Return the agent that notes numbers, and one that delegates to it."""

    @toolwire.tool(effect="write")
    async def note(number: int) -> str:
        """Note a number."""
        record_effect(folder / "effects", str(number))
        await block_at(folder, f"tool {number}")
        return f"noted {number}"

    policy = Policy(approve=("write",)) if approves else Policy()
    options = {"store": store, "lease": LEASE, "policy": policy, "approve": lambda step: Suspend()}
    calls = [("note", {"number": number}) for number in range(TURNS)]
    tools = [note] if has_tool else []
    notes = Agent(FollowingModel(folder, calls), Runner(*tools, **options), name="notes")
    delegation = notes.as_tool("take_notes", "Take notes.", effect="write")
    options["policy"] = Policy()
    lead = Agent(
        FollowingModel(folder / "lead", [("take_notes", {"prompt": "Note."})]),
        Runner(delegation, **options),
        name="lead",
    )
    return [notes, lead]


def work(url, folder, *, version="", poll=POLL, **options):
    """Execute the runs of a store until killed or terminated."""
    (folder / "lead").mkdir(exist_ok=True)
    with DurableRuns(url) as runs:
        agents = make_agents(runs.store, folder, **options)
        RunWorker(runs, agents, version=version, heartbeat=HEARTBEAT, poll=poll, grace=0.5).run()
