"""Agents of PydanticAI with their steps in our store: a run that was killed continues without a second effect."""

import asyncio
import signal
import subprocess
import sys
import threading
import time

import pytest

from toolwire.ir.errors import ConfigError
from toolwire.net import open_store
from waiting import SAFETY


@pytest.fixture(scope="module", autouse=True)
def peer():
    """Import PydanticAI where its tests run: it takes seconds, which every worker would spend on collecting them."""
    pytest.importorskip("pydantic_ai.durable_exec")


PROGRAM = """
import asyncio, os, signal, sys
from pathlib import Path
from pydantic_ai import Agent
from pydantic_ai.messages import ModelResponse, TextPart, ToolCallPart
from pydantic_ai.models.function import FunctionModel
from pydantic_ai.toolsets import FunctionToolset
from toolwire.adapters.pydantic_ai_durability import StoreDurability
from toolwire.net import open_store

folder, killed = Path(sys.argv[1]), sys.argv[2]


def happen(event):
    with (folder / "log").open("ab", buffering=0) as log:
        log.write(event.encode() + b"\\n")
    if killed == event:
        os.kill(os.getpid(), signal.SIGKILL)


def answer(messages, info):
    answered = sum(isinstance(message, ModelResponse) for message in messages)
    happen(f"request {answered + 1}")
    if answered == 2:
        return ModelResponse(parts=[TextPart("paid and checked")])
    calls = [[("pay", {"order": 17}), ("check", {"order": 17})], [("pay", {"order": 18})]][answered]
    return ModelResponse(parts=[ToolCallPart(name, given) for name, given in calls])


toolset = FunctionToolset(id="shop")


@toolset.tool_plain
def pay(order: int) -> str:
    happen(f"pay {order}")
    return f"paid {order}"


@toolset.tool_plain(metadata={"toolwire": {"effect": "read"}})
def check(order: int) -> str:
    happen(f"check {order}")
    return f"checked {order}"


def make():
    durability = StoreDurability(open_store(str(folder / "runs.db")), lease=0.5)
    return durability, Agent(FunctionModel(answer), name="orders", toolsets=[toolset], capabilities=[durability])


async def main():
    durability, agent = make()
    with durability.run("order-17"):
        result = await agent.run("Pay.")
    print(result.output, result.run_id)


if __name__ == "__main__":
    asyncio.run(main())
"""
EVENTS = ["request 1", "pay 17", "check 17", "request 2", "pay 18", "request 3"]


class StoreWrapper:
    """A store with some operations replaced."""

    def __init__(self, store):
        self.store = store

    def __getattr__(self, name):
        return getattr(self.store, name)


class ForgottenRequests(StoreWrapper):
    """Stores no results of model requests."""

    def complete(self, key, token, *options):
        return self.store.release(key, token) if "model" in key else self.store.complete(key, token, *options)


class SlowClaims(StoreWrapper):
    """Waits before it claims the first write."""

    def __init__(self, store):
        super().__init__(store)
        self.begun, self.may_claim = threading.Event(), threading.Event()

    def claim(self, claim):
        if "pay" in claim.key:
            self.begun.set()
            assert self.may_claim.wait(SAFETY)
        return self.store.claim(claim)


class LostLeases(StoreWrapper):
    """Loses the claim of the first model request once."""

    is_lost = False

    def complete(self, key, token, *options):
        if "model" in key and not self.is_lost:
            self.is_lost = True
            self.store.release(key, token)
        return self.store.complete(key, token, *options)


def start(tmp_path, killed=""):
    file = tmp_path / "program.py"
    file.write_text(PROGRAM)
    return subprocess.run(
        [sys.executable, "-W", "default", str(file), str(tmp_path), killed], capture_output=True, text=True, check=False
    )


def happened(tmp_path):
    return (tmp_path / "log").read_text().splitlines()


@pytest.mark.parametrize("event", ["request 1", "check 17", "request 2", "request 3"])
def test_killed_run_continues_and_repeats_only_the_interrupted_read(tmp_path, event):
    assert start(tmp_path, event).returncode == -signal.SIGKILL
    before = happened(tmp_path)
    second = start(tmp_path)
    assert second.stdout.startswith("paid and checked"), second.stderr
    assert happened(tmp_path) == [*before, *EVENTS[EVENTS.index(event) :]]
    third = start(tmp_path)  # a finished run is read only, and keeps its id
    assert third.stdout == second.stdout
    assert len(happened(tmp_path)) == len(EVENTS) + 1


@pytest.mark.parametrize("event", ["pay 17", "pay 18"])
def test_interrupted_write_is_unknown_until_it_is_resolved(tmp_path, event):
    assert start(tmp_path, event).returncode == -signal.SIGKILL
    before = happened(tmp_path)
    for _ in range(2):
        repeated = start(tmp_path)
        assert repeated.returncode == 1
        assert (
            "UnknownStep: the outcome of the step orders__function_toolset__shop.call_tool:pay is unknown"
            in repeated.stderr
        )
        assert happened(tmp_path) == before
    store = open_store(str(tmp_path / "runs.db"))
    [record] = store.records("unknown")
    assert store.resolve(record.key, None)
    store.close()
    assert start(tmp_path).stdout.startswith("paid and checked")
    assert happened(tmp_path) == [*before, *EVENTS[EVENTS.index(event) :]]


@pytest.fixture
def program(tmp_path, monkeypatch):
    """Return the names of the program, executed in this process."""
    monkeypatch.setattr(sys, "argv", ["program", str(tmp_path), ""])
    names = {"__name__": "program"}
    exec(PROGRAM, names)
    return names


def make_agent(program, durability, answer=None):
    model = program["FunctionModel"](answer or program["answer"])
    return program["Agent"](model, name="orders", toolsets=[program["toolset"]], capabilities=[durability])


def test_run_outside_of_the_block_is_not_stored(program, tmp_path):
    _, agent = program["make"]()
    for _ in range(2):
        assert asyncio.run(agent.run("Pay.")).output == "paid and checked"
    assert happened(tmp_path) == EVENTS * 2


def test_other_ids_are_other_runs(program, tmp_path):
    durability, agent = program["make"]()
    for run_id in ("one", "two", "one"):
        with durability.run(run_id):
            asyncio.run(agent.run("Pay."))
    assert happened(tmp_path) == EVENTS * 2


def test_two_runs_with_one_id_at_a_time_have_their_effects_once(program, tmp_path):
    durability, agent = program["make"]()

    async def run():
        with durability.run("same"):
            return (await agent.run("Pay.")).output

    async def both():
        return await asyncio.gather(run(), run())

    assert asyncio.run(both()) == ["paid and checked"] * 2
    assert happened(tmp_path) == EVENTS


def test_write_that_raises_is_unknown_and_a_lease_is_renewed(program, tmp_path):
    from pydantic_ai import Agent
    from pydantic_ai.toolsets import FunctionToolset

    from toolwire.adapters.pydantic_ai_durability import UnknownStep

    durability, _ = program["make"]()
    toolset = FunctionToolset(id="shop")

    @toolset.tool_plain
    async def pay(order: int) -> str:
        await asyncio.sleep(0.7)  # longer than the lease
        raise ValueError("the connection was lost")

    @toolset.tool_plain
    def check(order: int) -> str:
        return "checked"

    model = program["FunctionModel"](program["answer"])
    agent = Agent(model, name="orders", toolsets=[toolset], capabilities=[durability])
    with durability.run("fails"), pytest.raises(ValueError, match="the connection was lost"):
        asyncio.run(agent.run("Pay."))
    with durability.run("fails"), pytest.raises(UnknownStep, match="is unknown") as caught:
        asyncio.run(agent.run("Pay."))
    assert caught.value.key in caught.value.hint


def test_other_prompt_or_arguments_are_refused(program, tmp_path):
    from toolwire.adapters.pydantic_ai_durability import ChangedRun

    durability, agent = program["make"]()
    with durability.run("order-17"):
        asyncio.run(agent.run("Pay order 17."))
    with durability.run("order-17"), pytest.raises(ChangedRun, match="with another prompt or other arguments"):
        asyncio.run(agent.run("Pay order 18."))
    assert happened(tmp_path) == EVENTS


def test_other_arguments_of_a_repeated_write_are_refused(program, tmp_path):
    """The repeated request to the model calls the tool with other arguments."""
    from pydantic_ai.messages import ModelResponse, TextPart, ToolCallPart

    from toolwire.adapters.pydantic_ai_durability import ChangedRun, StoreDurability

    def answer(messages, info):
        if len(messages) == 1:
            return ModelResponse(parts=[ToolCallPart("pay", {"order": order})])
        return ModelResponse(parts=[TextPart("paid")])

    durability = StoreDurability(ForgottenRequests(open_store(str(tmp_path / "runs.db"))))
    agent = make_agent(program, durability, answer)
    for order in (1, 1):
        with durability.run("same"):
            asyncio.run(agent.run("Pay."))
    order = 2
    with durability.run("same"), pytest.raises(ChangedRun, match="call_tool:pay was run with another prompt"):
        asyncio.run(agent.run("Pay."))
    assert happened(tmp_path) == ["pay 1"]


def test_run_is_refused_after_its_time_to_live_instead_of_a_second_write(program, tmp_path, monkeypatch):
    from toolwire.adapters import pydantic_ai_durability

    durability, agent = program["make"]()
    with durability.run("late"):
        asyncio.run(agent.run("Pay."))
    now = time.time()
    for days in (6.9, 7.1, 100, 300):
        monkeypatch.setattr(time, "time", lambda days=days: now + days * 24 * 60 * 60)
        if days < 7:
            with durability.run("late"):
                asyncio.run(agent.run("Pay."))
        else:
            refused = pytest.raises(pydantic_ai_durability.ChangedRun, match="began more than 604800 seconds ago")
            with durability.run("late"), refused:
                asyncio.run(agent.run("Pay."))
    assert happened(tmp_path) == EVENTS


def test_write_that_is_cancelled_while_it_is_claimed_runs_in_the_repetition(program, tmp_path):
    from toolwire.adapters.pydantic_ai_durability import StoreDurability

    store = SlowClaims(open_store(str(tmp_path / "runs.db")))
    durability = StoreDurability(store)
    agent = make_agent(program, durability)

    async def run():
        with durability.run("cancelled"):
            return (await agent.run("Pay.")).output

    async def cancel():
        task = asyncio.create_task(run())
        await asyncio.to_thread(store.begun.wait)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        store.may_claim.set()

    asyncio.run(cancel())
    assert happened(tmp_path) == ["request 1"]
    assert asyncio.run(run()) == "paid and checked"
    assert happened(tmp_path) == EVENTS


def test_read_that_another_process_took_over_returns_its_result(program, tmp_path):
    from toolwire.adapters.pydantic_ai_durability import StoreDurability

    durability = StoreDurability(LostLeases(open_store(str(tmp_path / "runs.db"))))
    agent = make_agent(program, durability)
    with durability.run("slow"):
        assert asyncio.run(agent.run("Pay.")).output == "paid and checked"
    assert happened(tmp_path) == ["request 1", *EVENTS]


def test_wrong_settings_are_refused(program):
    from toolwire.adapters.pydantic_ai_durability import StoreDurability

    store = open_store("memory:")
    with pytest.raises(ConfigError, match="lease and ttl must be positive, got 0 and 1"):
        StoreDurability(store, lease=0, ttl=1)
    with pytest.raises(ConfigError, match="a durable run needs an id"), StoreDurability(store).run(""):
        pass
