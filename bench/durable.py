"""Kill workers of durable runs, and measure their take-over, throughput and latency.

    python bench/durable.py                               all of the following, for `make bench`
    python bench/durable.py chaos --store sqlite          three workers, 200 runs, one worker killed every second
    python bench/durable.py chaos --store postgres --kill-database 10
    python bench/durable.py take-over                     the time until another worker continues a run
    python bench/durable.py turns                         CPU and time per turn, compared with an agent without queues

A run of `chaos` makes three writes. Every fourth one needs approvals, which another process gives, and every fifth
one makes its writes in a subagent. A write leaves a line in a file with the run and the number of the call, so that a
second execution is visible. A run has to end with its answer; a write that was interrupted may be reported as unknown.
"""

import argparse
import asyncio
import json
import os
import random
import statistics
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))
sys.path.insert(0, str(Path(__file__).parent.parent / "tests" / "support"))

import toolwire
from stores.servers import PROCESSES, Postgres
from stores.worker import record_effect
from toolwire import Agent, Runner, ToolCall, ToolResult
from toolwire.durable import DurableRuns, RunWorker
from toolwire.durable.queues import WORKER_KEY
from toolwire.ir.folding import unfold
from toolwire.net import approve_call
from toolwire.net.agent.checkpoints import load_run
from toolwire.run import CallContext, Policy, RunConflict
from toolwire.testing import says

TURNS = 3
MODEL_SECONDS = 0.05  # a fast model; a real one takes seconds, so that more runs would be in progress at a kill


class FollowingModel:
    """A model that goes on where the conversation is."""

    model = "following"

    def __init__(self, calls, seconds):
        self._calls = calls
        self._seconds = seconds

    async def ask(self, request):
        await asyncio.sleep(self._seconds)
        number = sum(isinstance(part, ToolCall) for message in request.messages for part in message.parts)
        return says("Done.") if number == len(self._calls) else says(ToolCall(f"c{number}", *self._calls[number]))

    async def stream(self, request):
        for event in unfold(await self.ask(request)):
            yield event


def make_agents(store, effects, *, lease, seconds=MODEL_SECONDS):
    @toolwire.tool(effect="write")
    async def note(number: int, context: CallContext) -> str:
        """Note a number."""
        record_effect(effects, f"{context.run_id} {number}")
        await asyncio.sleep(seconds / 2)
        return f"noted {number}"

    def make(name, calls, *tools, approves=False):
        policy = Policy(approve=("write",)) if approves else Policy()
        runner = Runner(*tools, store=store, lease=lease, policy=policy, approve="suspend")
        return Agent(FollowingModel(calls, seconds), runner, name=name)

    calls = [("note", {"number": number}) for number in range(TURNS)]
    plain, asking = make("plain", calls, note), make("asking", calls, note, approves=True)
    lead = make("lead", [("delegate", {"prompt": "Note."})], plain.as_tool("delegate", "Delegate.", effect="write"))
    return [plain, asking, lead]


def work(url, effects, lease, heartbeat, poll, seconds=MODEL_SECONDS):
    with DurableRuns(url) as runs:
        agents = make_agents(runs.store, effects, lease=lease, seconds=seconds)
        RunWorker(runs, agents, heartbeat=heartbeat, poll=poll, grace=5).run()


class Workers:
    """Worker processes that are killed and replaced."""

    def __init__(self, url, effects, *, lease, heartbeat, poll=0.5, seconds=MODEL_SECONDS):
        self._arguments = (url, effects, lease, heartbeat, poll, seconds)
        self.processes = []

    def start(self):
        process = PROCESSES.Process(target=work, args=self._arguments)
        process.start()
        self.processes.append(process)
        return process

    def kill(self, process):
        self.processes.remove(process)
        process.kill()
        process.join()

    def stop(self):
        for process in list(self.processes):
            self.kill(process)


def open_server(name, folder):
    """Return the address of an empty store, and the server, if it has one."""
    if name == "sqlite":
        return str(folder / "runs.db"), None
    server = Postgres()
    return server.url, server


def chaos(arguments):
    chance = random.Random(arguments.seed)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        url, server = open_server(arguments.store, folder)
        runs = DurableRuns(url)
        kinds = {}
        for number in range(arguments.runs):
            kind = "asking" if number % 4 == 0 else "lead" if number % 5 == 0 else "plain"
            kinds[runs.enqueue(kind, "Note.")] = kind
        workers = Workers(url, folder / "effects", lease=arguments.lease, heartbeat=arguments.heartbeat)
        for _ in range(arguments.workers):
            workers.start()
        started, kills, restarts, pending = time.monotonic(), 0, 0, set(kinds)
        next_restart = started + (arguments.kill_database or float("inf"))
        while pending:
            time.sleep(arguments.every)
            workers.kill(chance.choice(workers.processes))
            workers.start()
            kills += 1
            if server is not None and time.monotonic() >= next_restart:
                server.crash()
                restarts, next_restart = restarts + 1, time.monotonic() + arguments.kill_database
            try:
                decide(runs.store)
                pending -= {report.run_id for report in runs.list(arguments.runs) if report.ended}
            except Exception as error:  # the database is away
                print(f"  {type(error).__name__}", file=sys.stderr)
            print(f"  {time.monotonic() - started:.0f} s: {len(pending)} runs left", file=sys.stderr)
            if time.monotonic() - started > arguments.limit:
                break
        seconds = time.monotonic() - started
        workers.stop()
        result = count(runs, kinds, folder / "effects")
        result = {
            "store": arguments.store,
            "kills": kills,
            "database restarts": restarts,
            "seconds": round(seconds),
            **result,
            "right": result["writes twice"] == result["lost runs"] == result["missing writes"] == 0,
        }
        runs.close()
        if server is not None:
            server.stop()
    return result


def decide(store):
    """Approve every waiting call, as people in other processes do."""
    for stored in store.runs.list("waiting", 1000):
        _, session = load_run(store, stored.run_id)
        for call in session.waiting:
            if call.needs == "approval":
                try:
                    approve_call(store, stored.run_id, call.call_id)
                except (RunConflict, toolwire.ToolwireError):  # a worker continues it
                    break


def count(runs, kinds, effects):
    """Compare the effects with the results that the models have read."""
    lines = Counter(effects.read_text().split("\n")[:-1])
    reports = {run_id: runs.report(run_id) for run_id in kinds}
    unknown, missing = 0, 0
    for stored in runs.store.runs.list(limit=100_000):
        _, session = load_run(runs.store, stored.run_id)
        parts = [part for message in session.state.request.messages for part in message.parts]
        calls = {part.id: part for part in parts if isinstance(part, ToolCall) and part.name == "note"}
        for part in parts:
            if isinstance(part, ToolResult) and part.call_id in calls:
                number = calls[part.call_id].arguments["number"]
                unknown += part.is_error
                missing += not part.is_error and lines[f"{stored.run_id} {number}"] == 0
    return {
        "runs": len(kinds),
        "done": sum(report.status == "done" for report in reports.values()),
        "lost runs": sum(report.status != "done" for report in reports.values()),
        "states": dict(Counter(f"{report.status} {report.reason[:80]}" for report in reports.values())),
        "writes": len(lines),
        "writes twice": sum(number > 1 for number in lines.values()),
        "missing writes": missing,
        "unknown writes": unknown,
        "segments": max(report.segment for report in reports.values()),
    }


def take_over(arguments):
    """Kill a worker during a model turn, and measure the time until another one asks the model again."""
    rows = []
    for lease, heartbeat, rounds in ((5.0, 5.0, 3), (60.0, 15.0, 1)):
        for store in arguments.stores:
            seconds = [measure_take_over(store, lease, heartbeat) for _ in range(rounds)]
            rows.append({"store": store, "lease": lease, "heartbeat": heartbeat, "seconds": sorted(seconds)})
            print(json.dumps(rows[-1]), file=sys.stderr)
    return rows


def measure_take_over(store, lease, heartbeat):
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        url, server = open_server(store, folder)
        with DurableRuns(url) as runs:
            options = {"lease": lease, "heartbeat": heartbeat, "poll": 1.0, "seconds": 2.0}
            workers = Workers(url, folder / "effects", **options)
            first = workers.start()
            run_id = runs.enqueue("plain", "Note.")
            while runs.store.runs.get(run_id) is None:
                time.sleep(0.02)
            workers.start()
            while sum(record.key.startswith(WORKER_KEY) for record in runs.store.records("running")) < 2:
                time.sleep(0.05)
            before = runs.report(run_id).executor
            killed = time.monotonic()
            workers.kill(first)
            stored = runs.store.runs.get(run_id)
            while runs.report(run_id).executor == before or runs.store.runs.get(run_id).token in ("", stored.token):
                time.sleep(0.05)
            seconds = time.monotonic() - killed
            workers.stop()
        if server is not None:
            server.stop()
    return round(seconds, 1)


def turns(arguments):
    """CPU of all processes and time per turn: a bare agent, one with a store, and durable runs of one worker."""
    rows = []
    for store in arguments.stores:
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            url, server = open_server(store, folder)
            with DurableRuns(url) as runs:
                for kind, opened in (("bare", None), ("stored", runs.store)):
                    agent = make_agents(opened, folder / "effects", lease=60.0, seconds=0.0)[0]
                    rows.append({"store": store, "agent": kind, **measure_agent(agent, arguments.runs)})
                rows.append({"store": store, "agent": "durable", **measure_durable(runs, url, folder, arguments.runs)})
            if server is not None:
                server.stop()
        for row in rows[-3:]:
            print(json.dumps(row), file=sys.stderr)
    return rows


def measure_agent(agent, count):
    async def run_all():
        limit = asyncio.Semaphore(16)  # as many runs at a time as a worker has by default

        async def run():
            async with limit:
                await agent.run("Note.")

        await asyncio.gather(*(run() for _ in range(count)))

    cpu, wall = time.process_time(), time.perf_counter()
    asyncio.run(run_all())
    found = per_turn(time.process_time() - cpu, time.perf_counter() - wall, count)
    return found | latency(lambda: agent.run_sync("Note."))


def measure_durable(runs, url, folder, count):
    workers = Workers(url, folder / "effects", lease=60.0, heartbeat=15.0, poll=1.0, seconds=0.0)
    worker = workers.start()
    runs.wait(runs.enqueue("plain", "Note."))  # the worker is ready
    before = cpu_of(worker.pid) + time.process_time()
    start = time.perf_counter()
    pending = {runs.enqueue("plain", "Note.") for _ in range(count)}
    while pending:
        time.sleep(0.2)
        pending -= {report.run_id for report in runs.list(count + 10) if report.ended}
    wall = time.perf_counter() - start
    cpu = cpu_of(worker.pid) + time.process_time() - before
    found = per_turn(cpu, wall, count) | latency(lambda: runs.wait(runs.enqueue("plain", "Note.")))
    workers.stop()
    return found


def latency(run):
    """The time of a run while no other one is in progress, divided by its turns."""
    seconds = []
    for _ in range(20):
        start = time.perf_counter()
        run()
        seconds.append(time.perf_counter() - start)
    return {"ms per turn of one run": round(statistics.median(seconds) / (TURNS + 1) * 1e3, 1)}


def per_turn(cpu, wall, count):
    number = count * (TURNS + 1)
    return {"CPU ms per turn": round(cpu / number * 1e3, 2), "turns per second": round(number / wall)}


def cpu_of(pid):
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def measure_all(_):
    parser = make_parser()
    outages = (["sqlite"], ["postgres"], ["postgres", "--kill-database", "6"])
    return {
        "chaos": [chaos(parser.parse_args(["chaos", "--store", *options])) for options in outages],
        "take_over": take_over(parser.parse_args(["take-over"])),
        "turns": turns(parser.parse_args(["turns"])),
    }


def make_parser():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.set_defaults(run=measure_all)
    commands = parser.add_subparsers()
    command = commands.add_parser("chaos")
    command.add_argument("--store", choices=["sqlite", "postgres"], default="sqlite")
    command.add_argument("--runs", type=int, default=200)
    command.add_argument("--workers", type=int, default=3)
    command.add_argument("--every", type=float, default=1.0, help="seconds between two kills")
    command.add_argument("--kill-database", type=float, help="seconds between two kills of PostgreSQL")
    command.add_argument("--lease", type=float, default=3.0)
    command.add_argument("--heartbeat", type=float, default=3.0)
    command.add_argument("--limit", type=float, default=900.0, help="seconds after which the rest counts as lost")
    command.add_argument("--seed", type=int, default=1)
    command.set_defaults(run=chaos)
    for name, run in (("take-over", take_over), ("turns", turns)):
        command = commands.add_parser(name)
        command.add_argument("--stores", nargs="+", default=["sqlite", "postgres"])
        command.add_argument("--runs", type=int, default=100)
        command.set_defaults(run=run)
    return parser


def main():
    PROCESSES.set_forkserver_preload(["jsonschema_rs", "dbos", "toolwire.durable.worker", "toolwire.testing.models"])
    arguments = make_parser().parse_args()
    result = arguments.run(arguments)
    print(json.dumps(result))
    if isinstance(result, dict):
        sys.exit(not all(found["right"] for found in result.get("chaos", [{"right": result.get("right", True)}])))


if __name__ == "__main__":
    main()
