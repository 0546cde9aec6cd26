"""The database of DBOS and its executors, as far as `toolwire.durable` uses them; compared with DBOS in `test_fake_queues`.

    ENQUEUED ──start_queued──▶ PENDING ──record_outcome (by its owner)──▶ SUCCESS
    DELAYED ──its time──▶ ENQUEUED      └──resume──▶ ENQUEUED            any but SUCCESS ──cancel──▶ CANCELLED

Each start has a new owner token, and only the present owner's outcome is accepted. `_QueueClient` raises StoreError if the
database cannot be reached. DBOS itself repeats the recording of an outcome until then, and a start at its next look.
"""

import asyncio
import contextvars
import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import Any

from sim.world import Link, Machine, Pool, Process, World, present_process, present_world
from toolwire.ir.errors import StoreError

_POLL = 2.0  # seconds between two looks at the queues; `durable.queues._QUEUE_POLL` would make schedules slow
_ENDED = ("SUCCESS", "ERROR")
_workflow_id: contextvars.ContextVar[str] = contextvars.ContextVar("workflow_id")


@dataclass
class Workflow:
    """A row of `workflow_status`."""

    workflow_id: str
    name: str
    queue_name: str | None
    input: Any
    created_at: float
    status: str = "ENQUEUED"
    executor_id: str | None = None
    app_version: str | None = None
    priority: int = 0
    delay_until: float = 0.0
    output: Any = None
    error: Any = None
    attributes: dict[str, Any] = field(default_factory=dict)
    updated_at: float = 0.0
    owner: int | None = None


class QueueDatabase:
    """The tables of DBOS, with the clock of their server."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._owners = itertools.count(1)
        self.workflows: dict[str, Workflow] = {}
        self.watch_attributes: Callable[[Workflow, dict[str, Any]], None] = lambda workflow, attributes: None

    def register_queue(self, name: str, **options: Any) -> None: ...

    def enqueue(self, options: dict[str, Any], *args: Any) -> None:
        """Enqueue a workflow, unless its id is known."""
        delay, now = options.get("delay_seconds", 0.0), self._now()
        workflow = Workflow(
            options["workflow_id"],
            options["workflow_name"],
            options["queue_name"],
            {"args": list(args), "kwargs": {}},
            now,
            status="DELAYED" if delay else "ENQUEUED",
            app_version=options.get("app_version"),
            priority=options.get("priority", 0),
            delay_until=now + delay,
        )
        self.workflows.setdefault(workflow.workflow_id, workflow)

    def list_workflows(
        self,
        *,
        workflow_ids: Sequence[str] | None = None,
        workflow_id_prefix: str | Sequence[str] | None = None,
        name: str | Sequence[str] | None = None,
        status: str | Sequence[str] | None = None,
        executor_id: str | None = None,
        sort_desc: bool = False,
        limit: int | None = None,
        load_input: bool = True,
        load_output: bool = True,
    ) -> list[Workflow]:
        prefixes = None if workflow_id_prefix is None else tuple(_as_list(workflow_id_prefix))
        found = [
            replace(
                row,
                input=row.input if load_input else None,
                output=row.output if load_output else None,
                attributes=dict(row.attributes),
            )
            for row in self.workflows.values()
            if (not workflow_ids or row.workflow_id in workflow_ids)
            and (prefixes is None or row.workflow_id.startswith(prefixes))
            and (name is None or row.name in _as_list(name))
            and (status is None or row.status in _as_list(status))
            and (executor_id is None or row.executor_id == executor_id)
        ]
        return (found[::-1] if sort_desc else found)[:limit]

    def update_workflow_attributes(self, workflow_id: str, attributes: dict[str, Any], *, merge: bool) -> None:
        assert merge
        if workflow_id in self.workflows:
            self.watch_attributes(self.workflows[workflow_id], attributes)
            self.workflows[workflow_id].attributes |= attributes

    def cancel_workflow(self, workflow_id: str) -> None:
        row = self.workflows.get(workflow_id)
        if row is not None and row.status not in _ENDED:
            row.status, row.owner, row.queue_name = "CANCELLED", None, None

    def resume_workflow(self, workflow_id: str, queue_name: str | None = None) -> None:
        """Put a workflow back into a queue, also a cancelled one, and one that its executor still executes."""
        row = self.workflows[workflow_id]
        if row.status not in _ENDED:
            row.status, row.owner, row.queue_name = "ENQUEUED", None, queue_name

    def start_queued(self, executor_id: str, version: str, free: int) -> list[Workflow]:
        """Give the oldest workflows of a version to an executor. Delayed ones whose time has come are enqueued first."""
        for row in self.workflows.values():
            if row.status == "DELAYED" and row.delay_until <= self._now():
                row.status = "ENQUEUED"
        ready = [
            row for row in self.workflows.values() if row.status == "ENQUEUED" and row.app_version in (None, version)
        ]
        ready.sort(key=lambda row: (row.priority, row.created_at))
        for row in ready[:free]:
            row.status, row.executor_id, row.app_version = "PENDING", executor_id, version
            row.owner = next(self._owners)
        return [replace(row) for row in ready[:free]]

    def record_outcome(self, workflow_id: str, owner: int, output: Any) -> bool:
        """Accept the outcome of the present owner. Return False for another one."""
        row = self.workflows.get(workflow_id)
        if row is None or row.status != "PENDING" or row.owner != owner:
            return False
        row.status, row.output, row.owner = "SUCCESS", output, None
        return True


def _as_list(value: str | Sequence[str]) -> Sequence[str]:
    return [value] if isinstance(value, str) else value


class RemoteQueues:
    """`DBOSClient` as a process uses it: each method is a message."""

    def __init__(self, database: QueueDatabase, process: Process) -> None:
        self._database = database
        self._link = Link(process)

    def __getattr__(self, name: str) -> Callable[..., Any]:
        operation = getattr(self._database, name)
        return lambda *args, **options: self._link.call(f"dbos {name}", lambda: operation(*args, **options))

    def destroy(self) -> None: ...


class Executor:
    """DBOS in a process: it takes workflows from the queues and records their outcomes."""

    def __init__(self, database: QueueDatabase, config: dict[str, Any]) -> None:
        self._client = RemoteQueues(database, present_process())
        self.executor_id = config["executor_id"]
        self._version = config["application_version"]
        self._functions: dict[str, Callable[..., Any]] = {}
        self._running = 0
        self._is_stopping = False
        self._threads = Pool(16)

    @property
    def workflow_id(self) -> str:
        return _workflow_id.get()

    def workflow(self, *, name: str) -> Callable[[Callable[..., Any]], None]:
        return lambda function: self._functions.__setitem__(name, function)

    def launch(self) -> None:
        present_process().start(self._dispatch())

    def listen_queues(self, queues: Sequence[str]) -> None: ...

    def set_latest_application_version(self, version: str) -> None: ...

    def destroy(self, *, workflow_completion_timeout_sec: float) -> None:
        """Take no further workflows, and wait for the present ones."""
        self._is_stopping = True
        world = present_world()
        end = world.loop.now + workflow_completion_timeout_sec
        while self._running and world.loop.now < end:
            world.block(0.5)

    async def _dispatch(self) -> None:
        while not self._is_stopping:
            await asyncio.wrap_future(self._threads.submit(self._take_queued))
            await asyncio.sleep(_POLL * present_world().random.uniform(0.8, 1.2))

    def _take_queued(self) -> None:
        try:
            rows = self._client.start_queued(self.executor_id, self._version, 8 - self._running)
        except StoreError:
            return  # what was started without a reply is taken over when this executor is dead, or at its next look
        for row in rows:
            self._running += 1
            self._threads.submit(lambda row=row: self._execute(row))

    def _execute(self, row: Workflow) -> None:
        _workflow_id.set(row.workflow_id)
        try:
            output = self._functions[row.name](*row.input["args"])
            while True:
                try:
                    self._client.record_outcome(row.workflow_id, row.owner, output)
                except StoreError:
                    continue
                return
        finally:
            self._running -= 1


def fake_dbos(database: QueueDatabase) -> SimpleNamespace:
    """Return the module `dbos` for the processes of a world, each with its own singleton."""

    class Singleton:
        def __call__(self, *, config: dict[str, Any]) -> None:
            present_process().dbos = Executor(database, config)

        def __getattr__(self, name: str) -> Any:
            return getattr(present_process().dbos, name)

    return SimpleNamespace(DBOS=Singleton(), DBOSPortableJSONSerializer=lambda: None)


def open_queues(world: World, machine: Machine) -> QueueDatabase:
    return QueueDatabase(machine.wall)
