"""The calls of Python functions and the bytecode instructions that a request costs. They do not depend on the machine.

A change that needs more of them is either worth it, and raises `request_budget.json`, or repeats work that was done
before. `bench/gateway/run.py --count` shows the functions. Instructions are counted on Python 3.11: other versions have others.
"""

import json
import sys
from collections import Counter
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

import pytest

from hostile import TEXT_ANSWER, body_of, connect, gateway_to, path_of, read_answer, request_bytes, run
from toolwire.gateway.keys import hash_key
from toolwire.gateway.observe.metrics import Metrics

sys.path.append(str(Path(__file__).parents[3] / "bench" / "gateway"))
from instructions import OTHER, InstructionCounter

REQUESTS = 20
BUDGETS = json.loads(Path(__file__).with_name("request_budget.json").read_text(encoding="utf-8"))
EXCHANGES = [tuple(name.split(" to ")) for name in BUDGETS]
TOLERANCE = 1.02  # of the instructions of a phase
KEY = "sk-client"
SETTINGS = {"keys": {"client": {"hash": hash_key(KEY), "requests_per_minute": 10**8}}}


@contextmanager
def counted_calls():
    """Count the calls of functions of the package by module and name."""
    calls = Counter()

    def count(frame, event, _argument):
        module = frame.f_globals.get("__name__", "")
        if event == "call" and module.startswith("toolwire.") and not module.startswith("toolwire.testing"):
            calls[f"{module}.{frame.f_code.co_qualname}"] += 1

    sys.setprofile(count)
    try:
        yield calls
    finally:
        sys.setprofile(None)


@asynccontextmanager
async def requests_to(front, wire):
    """Send requests through a gateway with a key, limits and metrics; the first ones fill caches."""
    model = f"{wire}/m"
    headers = {"authorization": f"Bearer {KEY}"}
    data = request_bytes(path_of(front, model), body_of(front, model=model), headers)
    script = [TEXT_ANSWER] * (2 * REQUESTS)
    async with gateway_to(*script, document=SETTINGS, sinks=[Metrics(batch=1)]) as (gateway, _):
        reader, writer = await connect(gateway)

        async def send(count=REQUESTS):
            for _ in range(count):
                writer.write(data)
                assert (await read_answer(reader)).status == 200

        await send()
        yield send
        writer.close()


@pytest.mark.parametrize(("front", "wire"), EXCHANGES)
@run
async def test_request_needs_no_more_calls_than_its_budget(front, wire):
    counts = []
    async with requests_to(front, wire) as send:
        for _ in range(REQUESTS):
            with counted_calls() as calls:
                await send(1)
            counts.append(calls)
    fewest = min(counts, key=Counter.total)  # timers of the server add calls to some of them
    assert fewest.total() <= BUDGETS[f"{front} to {wire}"]["calls"], fewest.most_common(40)


async def count_phases(send):
    """Count the instructions of each phase: the fewest of all requests, because timers add some to a few of them."""
    fewest = {}
    for _ in range(REQUESTS):
        counter = InstructionCounter()
        counter.start()
        try:
            await send(1)
        finally:
            counter.stop()
        for name, count in counter.phases.items():
            fewest[name] = min(fewest.get(name, count), count)
    return {name: count for name, count in fewest.items() if name not in ("", OTHER)}


@pytest.mark.skipif(sys.version_info[:2] != (3, 11), reason="each version has its own instructions")
@pytest.mark.parametrize(("front", "wire"), EXCHANGES)
@run
async def test_no_phase_of_a_request_needs_more_instructions_than_its_budget(front, wire):
    async with requests_to(front, wire) as send:
        phases = await count_phases(send)
    budget = BUDGETS[f"{front} to {wire}"]["instructions"]
    assert phases.keys() == budget.keys()
    exceeded = [name for name, count in phases.items() if count > budget.get(name, 0) * TOLERANCE]
    assert not exceeded, (exceeded, json.dumps(phases))
