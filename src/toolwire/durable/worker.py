"""A worker: execute the queued runs of some agents in this process, and take over the runs of workers that died.

DBOS owns queues, limits, schedules and versions. The store of toolwire owns the runs and the claims of their calls, so that
an effect happens once, also if two workers execute a run. What makes this safe:

- A worker that was only paused may be taken for dead, so that two workers execute one workflow. The lease of the stored
  run lets one of them continue it, the fencing tokens of the lease and of each claim refuse late writes of the other,
  and DBOS accepts the outcome of the workflow's present owner only. The other worker stops its run in its next round.
- A segment that is executed again continues where the store is, and the next segment of a run has one id, so it is
  enqueued once however many workers try.

The process of a worker dies at any point: a run continues after the leases of its heartbeat, its run and its call have
expired, whichever is last, and a poll of each of the two loops.
"""

from __future__ import annotations

import asyncio
import logging
import os
import random
import secrets
import signal
import socket
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from hashlib import sha256
from typing import Any

import dbos
import msgspec

from ..ir.errors import ConfigError, EncodeError, StoreError
from ..net.agent.agent import Agent
from ..net.agent.answers import Answer
from ..net.agent.checkpoints import load_run
from ..run.calls.outcomes import find_transient
from ..run.values.keys import canonical_json
from ..run.values.records import RunConflict
from .jobs import RUN_WORKFLOW, SCHEDULE_WORKFLOW, WEBHOOK_WORKFLOW, Job, SegmentOutcome, make_outcome
from .queues import describe_error
from .runs import DurableRuns
from .take_over import WorkerRounds
from .webhooks import WEBHOOK_QUEUE, WebhookAttempt, WebhookSender, enqueue_next_attempt, enqueue_outcome

_log = logging.getLogger("toolwire.durable")

_HEARTBEAT = 15.0  # seconds; renewed three times within it, and added to the time after which a run is taken over
_POLL = 1.0  # seconds between two rounds of a worker's tasks: three small queries
_GRACE = 20.0  # seconds that runs may continue after a signal to stop; Kubernetes kills after 30 by default
_MAX_FAILURES = 8  # temporary failures in a row, half an hour in total
_FIRST_DELAY, _MAX_DELAY = 2.0, 600.0  # seconds after a temporary failure, doubled each time
# The values themselves cannot be enqueued. Every other error may be the database's: DBOS and drivers have many.
_PERMANENT = (ConfigError, EncodeError, msgspec.MsgspecError, RecursionError, TypeError, ValueError)
_DRAIN_SECONDS = 5  # after the grace period: to cancel the runs that are left, and to enqueue their next segments


class RunWorker:
    """Executes the runs of `agents`, until it is stopped. A process has one worker, and no DBOS application of its own.

    `version`: the version of the agents, by default computed from their models, prompts and tools. A run is finished by
    the version that began it; new runs are taken by the version that was deployed last, or started with `is_latest`.
    `queues`: only these. `deps`: the dependencies of all runs. `heartbeat`: seconds without a sign of life after which
    others take over. `grace`: seconds for the runs in progress after a signal to stop. `webhook_secret`: webhooks are
    signed with it, see `durable.webhooks`.
    """

    def __init__(
        self,
        runs: DurableRuns,
        agents: Iterable[Agent[Any, Any]],
        *,
        version: str = "",
        is_latest: bool = False,
        queues: Sequence[str] = (),
        deps: Any = None,
        heartbeat: float = _HEARTBEAT,
        poll: float = _POLL,
        grace: float = _GRACE,
        webhook_secret: str = "",
    ) -> None:
        """Raise ConfigError for agents without a name or a store, and for an invalid secret."""
        self._runs = runs
        self._agents = {agent.name: agent for agent in _check_agents(agents)}
        self.version = version or _compute_version(self._agents.values())
        self.executor_id = f"{socket.gethostname()}-{os.getpid()}-{secrets.token_hex(4)}"
        self._is_latest = is_latest
        self._queues = tuple(queues)
        self._deps = deps
        self._heartbeat_seconds = heartbeat
        self._poll = poll
        self._grace = grace
        self._tasks: dict[asyncio.Task[Any], str] = {}  # the workflow of each local run
        self._executing: dict[object, str] = {}  # the workflow of each thread of DBOS that executes one
        self._fenced: set[asyncio.Task[Any]] = set()  # runs that are no longer this worker's, and were cancelled
        self._rounds = WorkerRounds(runs, self.executor_id, self.version, heartbeat)
        self._threads = ThreadPoolExecutor(4, "toolwire-worker")
        self._heartbeat_thread = ThreadPoolExecutor(1, "toolwire-heartbeat")  # nothing slow delays a heartbeat
        self._has_launched = False
        self._is_stopping = False
        self._has_stopped = False
        self._loop: asyncio.AbstractEventLoop | None = None
        self._webhooks = WebhookSender(webhook_secret)

    def run(self) -> None:
        """Execute runs until SIGTERM or SIGINT."""
        asyncio.run(self.serve_until_signal())

    async def serve_until_signal(self) -> None:
        """Like `run`, on an event loop."""
        stop = asyncio.Event()
        for number in (signal.SIGTERM, signal.SIGINT):
            with suppress(NotImplementedError):  # Windows
                asyncio.get_running_loop().add_signal_handler(number, stop.set)
        await self.serve(stop)

    async def serve(self, stop: asyncio.Event) -> None:
        """Execute runs until `stop` is set, then hand over those that do not end in time."""
        self._loop = asyncio.get_running_loop()
        # Before the first workflow: other workers take over the workflows of an executor without a heartbeat.
        await self._in_heartbeat_thread(self._rounds.begin_heartbeat)
        heartbeat = asyncio.create_task(self._beat())
        try:
            await self._serve_rounds(stop)
        finally:
            heartbeat.cancel()
            with suppress(StoreError):
                await self._in_heartbeat_thread(self._rounds.end_heartbeat)
            await self._webhooks.aclose()
            self._heartbeat_thread.shutdown(wait=False)
            self._threads.shutdown(wait=False)

    async def _serve_rounds(self, stop: asyncio.Event) -> None:
        try:
            await self._in_thread(self._launch)
            _log.info("worker %s executes %s, version %s", self.executor_id, ", ".join(self._agents), self.version)
            while not stop.is_set():
                await self._perform_round()
                with suppress(TimeoutError):
                    await asyncio.wait_for(stop.wait(), self._poll * random.uniform(0.8, 1.2))
        finally:
            self._is_stopping = True
            if self._has_launched:
                await self._drain()

    async def _in_thread(self, work: Callable[..., Any], *arguments: Any) -> Any:
        return await asyncio.get_running_loop().run_in_executor(self._threads, work, *arguments)

    async def _in_heartbeat_thread(self, work: Callable[[], None]) -> None:
        await asyncio.get_running_loop().run_in_executor(self._heartbeat_thread, work)

    # Start and stop.

    def _launch(self) -> None:
        """Start DBOS in this process. Raise ConfigError if the program has an application of its own."""
        config: dbos.DBOSConfig = {
            "name": self._runs.application,
            "system_database_url": self._runs.database,
            "serializer": dbos.DBOSPortableJSONSerializer(),
            "executor_id": self.executor_id,
            "application_version": self.version,
            "run_migrations": False,  # the client has performed them
            "log_level": "WARNING",
            "db_engine_kwargs": {"hide_parameters": True},  # prompts, in logged errors
        }
        assert self._runs.client is not None
        dbos.DBOS(config=config)
        if dbos.DBOS.executor_id != self.executor_id:
            hint = "run the worker in a process of its own: toolwire worker"
            raise ConfigError("this process has a DBOS application; a worker needs DBOS for itself", hint=hint)
        self._has_launched = True
        self._register_workflows()
        if self._queues:
            dbos.DBOS.listen_queues([*self._queues, WEBHOOK_QUEUE])
        dbos.DBOS.launch()
        if self._is_latest:
            dbos.DBOS.set_latest_application_version(self.version)

    def _register_workflows(self) -> None:
        self._register(RUN_WORKFLOW, self._execute_workflow)
        self._register(SCHEDULE_WORKFLOW, self._enqueue_scheduled)
        self._register(WEBHOOK_WORKFLOW, self._post_webhook)

    def _register(self, name: str, work: Callable[..., Any]) -> None:
        """Register a workflow. It is a function, because DBOS marks it, and a bound method cannot be marked."""

        def execute(*arguments: Any) -> Any:
            mark = object()
            self._executing[mark] = str(dbos.DBOS.workflow_id)
            try:
                return work(*arguments)
            finally:
                del self._executing[mark]

        dbos.DBOS.workflow(name=name)(execute)

    async def _drain(self) -> None:
        """Take no further runs, let the present ones end within the grace period, and hand over the others.

        A run whose write does not end even after that stays this worker's in the database, and others take it over.
        """
        seconds = int(self._grace) + _DRAIN_SECONDS
        closing = self._in_thread(lambda: dbos.DBOS.destroy(workflow_completion_timeout_sec=seconds))
        destroyed = asyncio.ensure_future(closing)
        end = time.monotonic() + self._grace
        while self._tasks and (left := end - time.monotonic()) > 0:
            await asyncio.wait(self._tasks, timeout=min(self._poll, left))
            await self._perform_round()  # a run may be cancelled meanwhile
        for task in self._tasks.keys() - self._fenced:
            task.cancel()
        await destroyed
        self._has_stopped = True

    # The tasks beside the runs (`take_over`).

    async def _beat(self) -> None:
        while True:
            await asyncio.sleep(self._heartbeat_seconds / 3)
            try:
                await self._in_heartbeat_thread(self._rounds.renew_heartbeat)
            except Exception as error:  # noqa: BLE001  # a worker without heartbeats loses all its runs
                _log.warning("cannot renew the heartbeat: %s", describe_error(error))

    async def _perform_round(self) -> None:
        """Perform the tasks once. A database that is away is logged, and tried again in the next round."""
        before = dict(self._tasks)  # first: a workflow is this worker's before its run begins
        try:
            owned = await self._in_thread(self._rounds.perform, lambda: set(self._executing.copy().values()))
        except Exception as error:  # noqa: BLE001  # DBOS raises errors of SQLAlchemy and of its drivers
            self._rounds.distrust_heartbeats()
            _log.warning("the queues cannot be read: %s", describe_error(error))
            return
        for task, workflow_id in before.items():
            # Cancelled once: a second time would end the wait for a write that is in progress.
            if workflow_id not in owned and task in self._tasks and task not in self._fenced:
                self._fenced.add(task)
                task.cancel()

    # The workflows, in threads of DBOS.

    def _execute_workflow(self, job: dict[str, Any]) -> dict[str, Any]:
        """Execute a segment, and return its outcome. It raises nothing: DBOS has no JSON form of exceptions."""
        segment = msgspec.convert(job, Job)
        outcome: SegmentOutcome = self._in_loop(self._execute(segment)).without_surrogates()
        if segment.webhook and outcome.state in ("done", "failed", "error", "waiting"):
            self._in_loop(self._until_reached(segment.run_id, enqueue_outcome, self._runs, segment, outcome))
        return dict(msgspec.to_builtins(outcome))

    def _in_loop(self, work: Any) -> Any:
        assert self._loop is not None
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    def _enqueue_scheduled(self, scheduled_at: str, job: dict[str, Any]) -> str:
        """Enqueue the run of a schedule. Its id is derived from the time, so that it is started once."""
        template = msgspec.convert(job, Job)
        moment = "".join(character for character in str(scheduled_at)[:19] if character.isdigit())
        scheduled = msgspec.structs.replace(template, run_id=f"{template.run_id}-{moment}")
        self._in_loop(self._until_reached(scheduled.run_id, self._runs.enqueue_job, scheduled))
        return scheduled.run_id

    def _post_webhook(self, delivery: dict[str, Any]) -> None:
        self._in_loop(self._send_webhook(msgspec.convert(delivery, WebhookAttempt)))

    async def _send_webhook(self, delivery: WebhookAttempt) -> None:
        reason = await self._webhooks.send(delivery)
        if reason:
            await self._until_reached(delivery.message_id, enqueue_next_attempt, self._runs, delivery, reason)

    # The runs, in the event loop.

    async def _execute(self, job: Job) -> SegmentOutcome:
        """Start or continue a run, and return how its segment ended.

        A run that was cancelled because it is no longer this worker's has no further segment here.
        """
        task = asyncio.current_task()
        assert task is not None
        self._tasks[task] = job.workflow_id
        try:
            if self._is_stopping:
                raise asyncio.CancelledError
            answer = await self._continue_run(job)
        except (asyncio.CancelledError, Exception) as error:  # noqa: BLE001  # whatever its tools and observers raise
            failure = error
        else:
            return make_outcome(answer)
        finally:
            self._tasks.pop(task, None)  # from here on, nothing cancels the task
            is_fenced = task in self._fenced
            self._fenced.discard(task)
        if is_fenced:
            return SegmentOutcome("interrupted")
        if self._is_stopping and isinstance(failure, asyncio.CancelledError):
            return await self._enqueue_next(job, SegmentOutcome("interrupted"), 0, 0.0)
        return await self._retry_later(job, failure)

    async def _continue_run(self, job: Job) -> Answer[Any]:
        """Start a run, or continue it where the store is. While another process has its lease, wait."""
        agent = self._agents.get(job.agent)
        if agent is None:
            raise ConfigError(
                f"version {self.version} has no agent {job.agent!r}", hint="deploy it, then: toolwire runs resume"
            )
        runs, deps = self._runs.store.runs, agent.select_deps(self._deps)
        while True:
            stored = await self._in_thread(runs.get, job.run_id)
            try:
                if stored is None:
                    session = await agent.session(job.prompt, deps=deps, run_id=job.run_id)
                    await self._in_thread(self._rounds.mark_begun, job, agent.runner.record_ttl)
                    return await agent.run(session, deps=deps)
                if job.is_moved:
                    await self._in_thread(self._check_tools, agent, job.run_id)
                return await agent.resume(job.run_id, deps=deps)
            except RunConflict:  # the lease of a worker that died or was superseded: it ends by itself
                await asyncio.sleep(self._poll * random.uniform(0.5, 1.0))

    def _check_tools(self, agent: Agent[Any, Any], run_id: str) -> None:
        """Raise ConfigError if the run was offered tools that this version does not have, or has with another definition."""
        _, session = load_run(self._runs.store, run_id, agent.runner.tenant)
        present = {tool.name: tool for each in (agent, *agent.transfers) for tool in each.runner.box.tools}
        missing = [
            offered.name
            for offered in session.state.offered
            if offered.name not in present or not offered.matches(present[offered.name])
        ]
        if missing:
            raise ConfigError(
                f"version {self.version} lacks tools of the run, or has changed them: {', '.join(missing)}",
                hint=f"toolwire runs resume {run_id} with a version that has them",
            )

    async def _retry_later(self, job: Job, error: BaseException) -> SegmentOutcome:
        """Enqueue the next segment after a temporary failure, with a growing delay. Otherwise the run has failed.

        CancelledError is temporary: something in the run was cancelled, not the run.
        """
        is_temporary = (
            isinstance(error, (StoreError, asyncio.CancelledError)) or find_transient(error, time.time) is not None
        )
        reason = describe_error(error)
        if not is_temporary or job.failures >= _MAX_FAILURES:
            _log.error("run %s failed: %s", job.run_id, reason)
            return SegmentOutcome("error", reason=reason)
        delay = min(_MAX_DELAY, _FIRST_DELAY * 2**job.failures) * random.uniform(0.75, 1.25)
        _log.warning("run %s is retried in %.0f seconds: %s", job.run_id, delay, reason)
        return await self._enqueue_next(job, SegmentOutcome("retried", reason=reason), job.failures + 1, delay)

    async def _enqueue_next(self, job: Job, outcome: SegmentOutcome, failures: int, delay: float) -> SegmentOutcome:
        """Enqueue the segment that follows, unless the run was cancelled or taken over.

        Return the outcome of this segment: `outcome`, or an error if the next segment can never be enqueued. This segment does not end before: without a successor the run would be lost. If this worker dies meanwhile, another
        one takes the segment over.
        """

        def enqueue() -> None:
            if self._rounds.is_in_progress(job.workflow_id, self.executor_id):
                self._runs.enqueue_job(job.next(failures=failures), version=self.version, delay=delay)

        reason = await self._until_reached(job.run_id, enqueue)
        return SegmentOutcome("error", reason=reason) if reason else outcome

    async def _until_reached(self, run_id: str, work: Callable[..., None], *arguments: Any) -> str:
        """Perform work as soon as the database can be reached, and return an empty text, or log and return a permanent error.

        Raise CancelledError once the worker has stopped.
        """
        while not self._has_stopped:
            try:
                await self._in_thread(work, *arguments)
            except _PERMANENT as error:
                _log.error("run %s cannot be enqueued: %s", run_id, describe_error(error))
                return describe_error(error)
            except Exception as error:  # noqa: BLE001  # see `_PERMANENT`
                _log.warning("run %s cannot be enqueued, trying again: %s", run_id, describe_error(error))
                await asyncio.sleep(self._poll)
            else:
                return ""
        raise asyncio.CancelledError


def _check_agents(agents: Iterable[Agent[Any, Any]]) -> list[Agent[Any, Any]]:
    """Return the agents. Raise ConfigError unless each has a store, and a name of its own."""
    found = list(agents)
    names = [agent.name for agent in found]
    if not found or "" in names or len(set(names)) != len(names):
        raise ConfigError(f"the agents of a worker need different names, got {names}", hint="pass Agent(…, name=…)")
    for agent in found:
        if agent.runner.store is None:
            raise ConfigError(f"agent {agent.name!r} has no store", hint="pass Agent(…, store=runs.store)")
    return found


def _compute_version(agents: Iterable[Agent[Any, Any]]) -> str:
    """Return a hash of the parts of the agents that decide how a run continues."""
    definitions = {agent.name: agent.definition() for agent in agents}
    return sha256(canonical_json(definitions)).hexdigest()[:12]
