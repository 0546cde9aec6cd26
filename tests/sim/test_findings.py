"""What the simulator found in the code as it was: one case each, without the simulator."""

import asyncio
import importlib.util
import os

import pytest

import toolwire
from toolwire import Agent, Runner, ToolCall
from toolwire.ir.errors import ConfigError, StoreError
from toolwire.net.stores.memory import MemoryStore
from toolwire.run.values.records import MAX_LEASE, Claim, StoredRun
from toolwire.testing import ScriptedModel, says

YEAR = 366 * 86_400.0


class AwayOnce:
    """A store that cannot be reached for the claim with this number."""

    def __init__(self, inner, number):
        self._inner, self._left, self.runs = inner, number, inner.runs

    def __getattr__(self, name):
        return getattr(self._inner, name)

    def claim(self, claim):
        self._left -= 1
        if not self._left:
            raise StoreError("away")
        return self._inner.claim(claim)


def make_agent(store, noted, calls, *, delegates):
    """Return an agent whose model makes a call so often, to note 1 or to let a subagent note it."""

    @toolwire.tool(effect="write")
    def note(number: int) -> str:
        noted.append(number)
        return f"noted {number}"

    def lines(count, name, arguments):
        return [*(says(ToolCall(f"c{number}", name, arguments)) for number in range(count)), says("Done.")]

    if not delegates:
        return Agent(ScriptedModel(lines(calls, "note", {"number": 1})), Runner(note, store=store))
    inner = Agent(ScriptedModel(lines(1, "note", {"number": 1})), Runner(note, store=store), name="notes")
    tool = inner.as_tool("take_notes", "Take notes.", effect="write")
    return Agent(ScriptedModel(lines(calls, "take_notes", {"prompt": "1"})), Runner(tool, store=store))


@pytest.mark.parametrize("delegates", [False, True])
def test_call_repeated_after_the_store_was_away_has_the_same_key(delegates):
    """A process has made the call and died before it saved the run; the next one is refused its claim, and repeats it."""
    inner, noted = MemoryStore(), []

    async def run(store, calls):
        agent = make_agent(store, noted, calls, delegates=delegates)
        return await agent.run(await agent.session("Note 1.", run_id="r"))

    asyncio.run(run(inner, 1))
    assert inner.runs.delete("r")
    for record in inner.records():
        if record.tool == "take_notes":
            inner._records.pop(record.key)  # the subagent had ended, its call had not
    answer = asyncio.run(run(AwayOnce(inner, 1), 2))
    results = [part for message in answer.messages for part in message.parts if type(part).__name__ == "ToolResult"]
    assert [result.is_error for result in results] == [True, False]
    assert noted == [1]


@pytest.mark.parametrize("kind", ["record", "run"])
def test_lease_made_while_the_clock_was_ahead_is_over(kind):
    now = [1_700_000_000.0 + YEAR]
    memory = MemoryStore(lambda: now[0])
    if kind == "record":
        memory.claim(Claim("k", "pay", "f", "t"))
    else:
        memory.runs.append(StoredRun("r", token="t"), [b"x"], 0)
    now[0] -= YEAR
    if kind == "record":
        assert memory.get("k").state == "unknown"
    else:
        assert memory.runs.lease("r", "another", 60.0).token == "another"


def test_lease_longer_than_the_longest_is_refused():
    for lease in (0.0, MAX_LEASE + 1):
        with pytest.raises(ConfigError, match="lease must be positive and at most 3600"):
            Runner(lease=lease)


def test_append_whose_time_to_live_is_over_returns_the_run(store):
    """Redis deletes the run at once, and its script returned what was left of it."""
    assert store.runs.append(StoredRun("r"), [b"x"], 0, ttl=0.0).version == 1
    assert store.runs.get("r") is None


@pytest.mark.skipif(
    importlib.util.find_spec("dbos") is None and not os.environ.get("CI"), reason="dbos is not installed"
)
def test_run_that_a_worker_was_given_without_its_knowledge_is_put_back(tmp_path, monkeypatch):
    """The reply to DBOS's `start_queued_workflows` is lost: the run is in progress at a worker that does not know it."""
    from sim.test_fake_stores import RealQueues
    from toolwire.durable import DurableRuns, take_over

    with DurableRuns(str(tmp_path / "runs.db")) as runs:
        run_id = runs.enqueue("notes", "Note.")
        RealQueues(runs.client).start_queued("one", "v1", 16)
        rounds = take_over.WorkerRounds(runs, "one", "v1", 15.0)
        rounds.begin_heartbeat()
        assert runs.report(run_id).status == "running"
        rounds.perform(set)
        assert rounds.perform(lambda: {f"{run_id}:1"}) == {f"{run_id}:1"}, "it is executed after all"
        assert runs.report(run_id).status == "running"
        monkeypatch.setattr(take_over, "_UNSTARTED_SECONDS", 0.0)
        rounds.perform(lambda: {f"{run_id}:1"})
        assert runs.report(run_id).status == "running"
        rounds.perform(set)
        assert runs.report(run_id).status == "queued"
