"""Scenario: workers execute queued runs of agents, die, pause, are cut off and updated; people approve calls and cancel.

Driven: `RunWorker` and `WorkerRounds` (heartbeats, take-over, fencing, waking), `DurableRuns`, `Checkpoints` (leases of
runs), `Agent`, `Runner(lease=…)` and all that `calls` drives. The database of DBOS is `fake_queues`.

    effects      a write of a run has its effect once
    runs         every run ends; its result for each write is that of its effect, or that the outcome is unknown
    leases       one process at a time continues a run, and only its appends are accepted (`monitor`)
    webhooks     each end and each wait of a run is posted; once if nothing fails
    reservations when all is over, no run is leased, and no claim but the heartbeats of live workers is running
"""

import asyncio
from collections import defaultdict
from typing import Any
from unittest import mock

from msgspec.structs import replace

from sim.fake_queues import QueueDatabase, RemoteQueues, fake_dbos
from sim.monitor import MonitoredStore, RemoteStore
from sim.world import Machine, Process, World, in_thread, present_process, present_world
from toolwire import Agent, Runner, ToolCall, tool
from toolwire.durable import DurableRuns
from toolwire.durable.jobs import RUN_WORKFLOW
from toolwire.durable.queues import describe_error
from toolwire.durable.worker import RunWorker
from toolwire.ir.errors import ConfigError, StoreError
from toolwire.ir.parts import ToolResult
from toolwire.net.agent.checkpoints import approve_call, load_run
from toolwire.net.stores.memory import MemoryStore
from toolwire.run import Policy, Suspend
from toolwire.testing import says

CHAOS = 150.0  # virtual seconds with faults
LIMIT = 6_000.0  # virtual seconds for all runs to end after that: a delay after failures has ten minutes
HEARTBEAT, POLL, LEASE = 15.0, 3.0, 30.0
WRITES = 3  # of each run
FAILURES = 8  # in a row, after which a run has failed
REPETITIONS = 4  # of calls that were refused; a run that repeats a call more often ends by its budget


@tool(effect="write")
async def note(run: str, number: int) -> str:
    """Note a number for a run."""
    world = present_world()
    runs = present_process().shared
    await asyncio.sleep(world.random.uniform(0.0, runs.longest))
    runs.perform(run, number)
    await asyncio.sleep(world.random.uniform(0.0, runs.longest))
    return f"noted {number}"


class FollowingModel:
    """A model that goes on where the conversation is, and repeats a call that was not made. Its prompt names the run."""

    model = "following"

    def __init__(self, make_call: Any, count: int) -> None:
        self._make_call = make_call
        self._count = count

    async def ask(self, request: Any) -> Any:
        world = present_world()
        await asyncio.sleep(world.random.uniform(0.1, 5.0))
        if self._count == 0 or world.random.random() < 0.04:
            raise ConnectionError("reset")
        results = [part for message in request.messages for part in message.parts if isinstance(part, ToolResult)]
        number = sum(not was_refused(result) for result in results)
        if number == self._count or len(results) - number == REPETITIONS:
            return says("Done.")
        call = self._make_call(request.messages[0].parts[0].text, number)
        return says(replace(call, id=f"c{len(results)}"))


def was_refused(result: ToolResult) -> bool:
    return result.is_error and ("Not run:" in result.text or "still running" in result.text)


def make_agents(store: RemoteStore, *, approves: bool) -> list[Agent[Any, Any]]:
    options = {"store": store, "lease": LEASE}
    asks = {"policy": Policy(approve=("write",)), "approve": lambda step: Suspend()} if approves else {}

    def call_note(prompt: str, number: int) -> ToolCall:
        return ToolCall(f"c{number}", "note", {"run": prompt, "number": number})

    notes = Agent(FollowingModel(call_note, WRITES), Runner(note, **options, **asks), name="notes")
    delegation = notes.as_tool("take_notes", "Take notes.", effect="write")

    def delegate(prompt: str, number: int) -> ToolCall:
        return ToolCall("d0", "take_notes", {"prompt": prompt})

    lead = Agent(FollowingModel(delegate, 1), Runner(delegation, **options), name="lead")
    broken = Agent(FollowingModel(call_note, 0), Runner(**options), name="broken")  # its model never answers
    return [notes, lead, broken]


class Receiver:
    """Receives webhooks, in place of `WebhookSender`."""

    async def send(self, delivery: Any) -> str:
        world, runs = present_world(), present_process().shared
        # Also longer than a worker may take to begin a workflow: one that it executes is not put back.
        await asyncio.sleep(world.random.choice((0.2, 8.0, 100.0)))
        if world.is_chaotic and world.random.random() < 0.25:
            return "status 503"
        runs.posted[delivery.message_id] += 1
        return ""

    async def aclose(self) -> None: ...


class SimWorker(RunWorker):
    """A worker whose workflow threads are greenlets."""

    def _in_loop(self, work: Any) -> Any:
        assert self._loop is not None
        return present_world().wait(asyncio.run_coroutine_threadsafe(work, self._loop))


class Runs:
    """One run of the scenario."""

    def __init__(self, world: World) -> None:
        draw = world.random
        self.world = world
        self.server = Machine(world)
        self.store = MonitoredStore(
            world, self.server, MemoryStore(self.server.wall, self.server.wall), has_ticks=False
        )
        self.queues = QueueDatabase(self.server.wall)
        self.queues.watch_attributes = self.check_take_over
        self.approves = draw.random() < 0.4
        self.longest = draw.choice((2.0, 2.0, 25.0))  # of half a write: shorter than a stop, or longer than a lease
        # Where the network is good, what a worker may do late is known.
        self.is_prompt = not world.loss and world.delay <= 0.02
        self.has_jumped = False
        self.cancelled: dict[str, float] = {}  # when runs were cancelled
        self.effects: dict[tuple[str, int], int] = defaultdict(int)
        self.posted: dict[str, int] = defaultdict(int)  # webhooks, by their message ids
        self.run_ids = [f"run{number}" for number in range(draw.randint(2, 4))]
        self.workers: list[tuple[Process, asyncio.Event]] = []
        self.count = 0
        self.people: list[Process] = []

    def perform(self, run: str, number: int) -> None:
        """Note an effect."""
        self.effects[run, number] += 1
        self.world.note(f"effect {number} of {run}")
        if self.effects[run, number] > 1:
            self.world.fail(f"effect {number} of {run} happened twice")
        late = self.world.loop.now - self.cancelled.get(run, float("inf"))
        if late > self.longest + 1.2 * POLL + 3.0 and self.is_undisturbed(present_process()):
            self.world.fail(f"effect {number} of {run} happened {late:.0f} s after the run was cancelled")

    def is_undisturbed(self, process: Process) -> bool:
        """Return True if nothing excuses a delay of this process."""
        was_disturbed = process.was_cut_off or process.was_paused or self.world.loop.now < self.world.away_until + 10.0
        return self.is_prompt and process.is_alive and not was_disturbed

    def check_take_over(self, workflow: Any, attributes: dict[str, Any]) -> None:
        """A worker that works is not taken for dead, also after the database was away."""
        owner = next((process for process, _ in self.workers if process.name == workflow.executor_id), None)
        if owner is None or "take_overs" not in attributes or workflow.status != "PENDING" or self.has_jumped:
            return
        is_stopping = any(process is owner and stop.is_set() for process, stop in self.workers)
        if self.is_undisturbed(owner) and not is_stopping:
            self.world.fail(f"{workflow.workflow_id} was taken from {owner.name}, which works")

    def open_runs(self, process: Process) -> DurableRuns:
        runs = DurableRuns("simulated.db")
        runs.store = RemoteStore(self.store, process)
        runs._client = RemoteQueues(self.queues, process)
        runs._known_queues.add("default")
        process.shared = self
        return runs

    def start_worker(self) -> None:
        self.count += 1
        process, stop = Process(self.world, f"worker {self.count}", Machine(self.world)), asyncio.Event()
        runs = self.open_runs(process)
        agents = make_agents(runs.store, approves=self.approves)
        worker = SimWorker(runs, agents, version="v1", heartbeat=HEARTBEAT, poll=POLL, grace=5.0)
        worker.executor_id = worker._rounds._executor_id = process.name
        worker._webhooks = Receiver()
        self.workers.append((process, stop))
        process.start(self.serve(process, worker, stop))

    async def serve(self, process: Process, worker: SimWorker, stop: asyncio.Event) -> None:
        try:
            await worker.serve(stop)
        except StoreError:  # its first heartbeat failed: the process ends
            pass
        self.world.note(f"{process.name} has ended")
        if stop.is_set() and self.is_undisturbed(process) and self.longest < HEARTBEAT:
            self.check_leases(process)
        process.kill()

    def check_leases(self, process: Process) -> None:
        """A worker that has stopped in good order leaves no lease: others continue its runs at once."""
        now = self.server.wall()
        for run_id, run in self.store.known.items():
            if self.store.owners.get(run.token) == process.name and run.token and run.lease_until > now:
                self.world.fail(f"{process.name} has stopped, and still leases {run_id}")

    def living(self) -> list[tuple[Process, asyncio.Event]]:
        return [(process, stop) for process, stop in self.workers if process.is_alive and not stop.is_set()]

    async def enqueue(self) -> None:
        process = self.start_person("client")
        runs = self.open_runs(process)
        for number, run_id in enumerate(self.run_ids):
            agent = "lead" if number % 3 == 2 else "notes"
            await process.start(self.insist(runs.enqueue, agent, run_id, run_id=run_id, webhook="https://example.com/"))
        if self.world.calm:
            await process.start(self.insist(runs.enqueue, "broken", "broken", run_id="broken"))

    def start_person(self, name: str) -> Process:
        process = Process(self.world, name, Machine(self.world))
        self.people.append(process)
        return process

    async def insist(self, work: Any, *args: Any, **options: Any) -> Any:
        """Repeat an operation until the store can be reached."""
        while True:
            try:
                return await in_thread(lambda: work(*args, **options))
            except StoreError:
                await asyncio.sleep(1.0)

    async def approve(self) -> None:
        """Approve what waits, as two people at the same time may do."""
        store = self.open_runs(present_process()).store
        while True:
            await asyncio.sleep(self.world.random.uniform(5.0, 20.0))
            try:
                for stored in await in_thread(store.runs.list, "waiting"):
                    _, session = await in_thread(load_run, store, stored.run_id)
                    for call in session.waiting:
                        if call.tool == "note":
                            await in_thread(approve_call, store, stored.run_id, call.call_id)
            except (StoreError, ConfigError):
                continue  # another person was faster, or the store is away

    async def operate(self) -> None:
        """Cancel a run now and then, and resume it; at the end, resume what failed for a while."""
        runs = self.open_runs(present_process())
        while True:
            await asyncio.sleep(self.world.random.expovariate(1 / 30.0))
            run_id = self.world.random.choice(self.run_ids)
            try:
                report = await in_thread(runs.report, run_id)
                if self.world.is_chaotic and report.status == "running":
                    self.world.note(f"{run_id} is cancelled")
                    await in_thread(runs.cancel, run_id)
                    self.cancelled[run_id] = self.world.loop.now
                elif report.status in ("cancelled", "failed"):
                    self.world.note(f"{run_id} is resumed, {report.reason}")
                    self.cancelled.pop(run_id, None)
                    await in_thread(runs.resume, run_id)
            except (StoreError, ConfigError):
                continue

    async def disturb(self) -> None:
        world, draw = self.world, self.world.random
        while True:
            await asyncio.sleep(draw.expovariate(1 / 15.0))
            if not world.is_chaotic:
                break
            living, event = self.living(), draw.random()
            if not living:
                self.start_worker()
                continue
            process, stop = draw.choice(living)
            if event < 0.35:
                process.kill()
                self.start_worker()
            elif event < 0.5:
                world.note(f"{process.name} is told to stop")
                stop.set()
                self.start_worker()
            elif event < 0.65:
                process.pause(draw.choice((2.0, 20.0, 50.0)))
            elif event < 0.8:
                process.cut_off(draw.choice((2.0, 20.0, 50.0)))
            elif event < 0.9:
                world.cut_off_all(draw.choice((2.0, 20.0, 40.0)))
            else:
                self.has_jumped = True
                machine = draw.choice((self.server, process.machine))
                machine.offset += draw.choice((-20.0, 5.0, 60.0))
                world.note(f"a clock jumps to {machine.offset:+.0f} s")
        for process, _ in self.workers:
            process.cut_off_until = 0.0

    async def run(self) -> None:
        world = self.world
        for _ in range(world.random.randint(1, 3)):
            self.start_worker()
        world.chaos_ends = world.loop.now + CHAOS
        await self.enqueue()
        if self.approves:
            for number in range(2):
                person = self.start_person(f"person {number}")
                person.start(self.approve())
        if not world.calm:
            operator = self.start_person("operator")
            operator.start(self.operate())
            await self.disturb()
        end = world.loop.now + LIMIT
        while not self.is_over():
            if not self.living():  # also one whose first heartbeat failed ends
                self.start_worker()
            if world.loop.now > end:
                rows = [(row.workflow_id, row.status, row.executor_id) for row in self.queues.workflows.values()]
                world.fail(f"runs have not ended: {rows}")
            await asyncio.sleep(10.0)
        await asyncio.sleep(3 * LEASE + 60.0)  # a message may be a minute late
        await self.check_end()
        await self.check_stop()

    async def check_stop(self) -> None:
        """Workers without runs stop at once."""
        stopping = self.living()
        for _, stop in stopping:
            stop.set()
        await asyncio.sleep(4.0)
        for process, _ in stopping:
            if process.is_alive and self.world.delay <= 0.02 and not process.is_paused:
                self.world.fail(f"{process.name} has no run, and has not stopped")

    def is_over(self) -> bool:
        latest = {row.workflow_id.partition(":")[0]: row.status for row in self.segments()}
        stored = [self.store.store.runs.get(run_id) for run_id in self.run_ids]
        has_ended = all(run is not None and run.status in ("done", "failed") for run in stored)
        return has_ended and set(latest.values()) == {"SUCCESS"} and not self.active()

    def segments(self) -> list[Any]:
        return [row for row in self.queues.workflows.values() if row.name == RUN_WORKFLOW]

    def active(self) -> list[str]:
        """Return the segments that are or will be executed."""
        rows = self.queues.workflows.values()
        return [row.workflow_id for row in rows if row.status in ("PENDING", "ENQUEUED", "DELAYED")]

    async def check_end(self) -> None:
        process = self.start_person("the last process")
        runs = self.open_runs(process)
        for run_id in self.run_ids:
            report = await process.start(in_thread(runs.report, run_id))
            # A run whose calls were all refused ends by its budget, and says so.
            gave_up = report.status == "failed" and "only errors" in report.reason and not self.world.calm
            if report.status != "done" and not gave_up:
                self.world.fail(f"{run_id} is {report.status}: {report.reason}")
            made = [result for result in self.results(run_id) if not was_refused(result)]
            for number, result in enumerate(made):
                count = self.effects[run_id, number]
                if not result.is_error and count != 1:
                    self.world.fail(f"effect {number} of {run_id} is done, and happened {count} times")
                if result.is_error and not ("may or may not" in result.text or "may have taken" in result.text):
                    self.world.fail(f"effect {number} of {run_id}: {result.text}")
                # The model of a subagent fails now and then, which its caller reads as an unknown outcome.
                if result.is_error and self.world.calm and self.run_ids.index(run_id) % 3 != 2:
                    self.world.fail(f"effect {number} of {run_id} is unknown, although nothing failed")
        now = self.server.wall()
        if self.world.calm:
            segments = [row for row in self.segments() if row.workflow_id.startswith("broken:")]
            if len(segments) != FAILURES + 1 or segments[-1].output["state"] != "error":
                self.world.fail(f"a run whose model never answers had {len(segments)} segments")
        for row in self.segments():
            has_webhook = row.workflow_id.partition(":")[0] in self.run_ids and row.status == "SUCCESS"
            if has_webhook and row.output["state"] in ("done", "failed", "error", "waiting"):
                count = self.posted[row.workflow_id]
                if not count or (count > 1 and self.world.calm):
                    self.world.fail(f"{row.output['state']} of {row.workflow_id} was posted {count} times")
        leased = [run.run_id for run in self.store.store.runs.list() if run.token and run.lease_until > now]
        alive = {f"toolwire-worker/{process.name}" for process, _ in self.living()}
        running = {record.key for record in self.store.store.records("running")} - alive
        if leased or running:
            self.world.fail(f"reservations did not end: {leased} {sorted(running)}")

    def results(self, run_id: str) -> list[ToolResult]:
        """Return the results of the notes of a run, or of its subagent's run."""
        store = self.store.store
        inner = [run.run_id for run in store.runs.list() if run.run_id.startswith(f"{run_id}.")]
        _, session = load_run(_Stored(store), inner[0] if inner else run_id)
        messages = session.state.request.messages
        return [part for message in messages for part in message.parts if isinstance(part, ToolResult)]


class _Stored:
    """A store whose runs are read without a network."""

    def __init__(self, store: Any) -> None:
        self.runs = store.runs


def check_error(error: BaseException) -> str:
    """Describe an error that a worker logs. A worker survives mistakes in its code, too, and would hide them."""
    if isinstance(error, (AttributeError, LookupError, TypeError)):
        present_world().fail(f"a worker has caught {error!r}")
    return describe_error(error)


def simulate(seed: int) -> World:
    world = World(seed, calm=seed % 5 == 0)
    with (
        mock.patch("toolwire.durable.worker.dbos", fake_dbos(QueueDatabase(lambda: 0.0))) as module,
        mock.patch("toolwire.durable.worker.describe_error", check_error),
    ):
        scenario = Runs(world)
        module.DBOS = fake_dbos(scenario.queues).DBOS
        world.run(scenario.run())
    return world
