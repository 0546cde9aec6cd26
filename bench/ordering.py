"""Measure the ordering of the calls of a turn: the schedule's own work per call, and the latency that the rule costs.

The rule: a read waits for earlier writes of its turn, unless both declare different resources. The turn is one write and four reads,
each 100 ms, without declared resources, with different ones, and as pure calls, which never wait.
"""

import asyncio
import time

from toolwire import Runner, Toolbox, ToolCall, tool
from toolwire.run import Options
from toolwire.run.calls.schedule import Schedule
from toolwire.run.tools.toolbox import Entry

ROUNDS, NAP = 30, 0.1


async def work(n: int) -> int:
    """Sleep."""
    await asyncio.sleep(NAP)
    return n


def named(name: str, effect: str, resource=None) -> Entry:
    made = tool(name=name, effect=effect)(work)
    return Entry(made, work, Options(resource=resource))


BOX = Toolbox(named("read", "read"), named("write", "write"), named("each", "write", lambda given: str(given["n"])))
PATTERNS = {
    "1 read": (["read"], 1),
    "16 reads": (["read"], 16),
    "256 reads": (["read"], 256),
    "128 writes, a read after each": (["write", "read"], 256),
    "256 writes on 256 resources": (["each"], 256),
    "128 writes on 128 resources, a read after each": (["each", "read"], 256),
}


def schedule_turn(calls: list[ToolCall]) -> None:
    schedule, running = Schedule(BOX), []
    for call in calls:
        schedule.add(call)
        running += schedule.take_ready()
    while running:
        schedule.mark_finished(running.pop(0))
        running += schedule.take_ready()


def measure_schedule() -> None:
    for label, (names, count) in PATTERNS.items():
        calls = [ToolCall(str(n), names[n % len(names)], {"n": n}) for n in range(count)]
        best = float("inf")
        for _ in range(ROUNDS):
            started = time.perf_counter()
            schedule_turn(calls)
            best = min(best, time.perf_counter() - started)
        print(f"{label:50} {best / count * 1e6:6.1f} µs per call")


def measure_latency() -> None:
    turns = {
        "no resources declared": (named("write", "write"), named("read", "read")),
        "different resources": (named("write", "write", "orders"), named("read", "read", "weather")),
        "pure calls after the write": (named("write", "write"), named("read", "pure")),
    }
    for label, tools in turns.items():
        runner = Runner(Toolbox(*tools))
        calls = [ToolCall(str(n), "write" if n == 0 else "read", {"n": n}) for n in range(5)]
        started = time.perf_counter()
        runner.run_sync(calls)
        print(f"{label:50} {(time.perf_counter() - started) * 1e3:6.0f} ms per turn")
        runner.close()


if __name__ == "__main__":
    measure_schedule()
    measure_latency()
