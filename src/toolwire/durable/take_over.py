"""The tasks of a worker beside its runs: heartbeats, taking over from workers that died, waking runs that were decided.

    heartbeat   A record in the store, with a lease. A worker whose lease has expired counts as dead.
    take over   The workflows of dead workers are put back into their queues (`resume_workflow`).
    put back    So are those that this worker was given and does not execute.
    wake        A run that waited and was decided, by whatever process, gets its next segment.

DBOS recovers the workflows of other executors only with its commercial service. Its public interface lists them by
executor, and resumes them, also a live executor's. So the heartbeats decide, and a claim in the store lets one
worker at a time take over from a dead one. A worker that was only paused is fenced (`worker`).

DBOS gives workflows to a worker in one transaction (`start_queued_workflows`), which it does not repeat. If the reply to
its commit is lost, they belong to a live worker that does not know them, and no other worker would take them over (tests/sim).
"""

from __future__ import annotations

import logging
import random
import secrets
import time
from collections.abc import Callable, Collection
from typing import Any

from ..ir.errors import ConfigError, StoreError
from ..run.values.records import DAY, Claim
from .jobs import WORKFLOWS, Job, read_outcome, root_run, segment_id
from .queues import WORKER_KEY
from .runs import DurableRuns

_log = logging.getLogger("toolwire.durable")

# Of the claim to take over from a worker: far more than listing and resuming its workflows takes, and short, because the
# worker that takes over may die, too.
_TAKE_OVER_SECONDS = 10.0
_MAX_TAKE_OVERS = 100  # as DBOS's own limit: a run that kills every worker must end
# Workers whose heartbeats one round reads. The rounds of all workers together read each heartbeat eight times a second:
# a hundred workers that read each other's would read ten thousand.
_MAX_CHECKED = 8
_MAX_READY = 1000  # decided runs that one round wakes; the next round wakes the next ones
# Seconds in which a worker begins a workflow that it was given, or DBOS records its outcome: it takes milliseconds, and
# nothing is lost if it takes longer, because a segment that is executed twice continues where the store is.
_UNSTARTED_SECONDS = 60.0
_BEGUN = "begun_at"  # the attribute of a workflow that has the time at which its run began
_RECORD_NAME = "toolwire worker"  # of a heartbeat, which `toolwire run --list` prints


class WorkerRounds:
    """The tasks of one worker. The methods use the network, and are called in threads."""

    def __init__(self, runs: DurableRuns, executor_id: str, version: str, heartbeat: float) -> None:
        self._runs = runs
        self._executor_id = executor_id
        self._version = version
        self._heartbeat = heartbeat
        self._token = secrets.token_hex(16)
        self._take_over_after = 0.0  # monotonic time
        self._unstarted: dict[str, float] = {}  # workflows that are not executed here, and since when (monotonic)

    def begin_heartbeat(self) -> None:
        key = f"{WORKER_KEY}{self._executor_id}"
        self._runs.store.claim(self._make_claim(key, self._heartbeat, self._version))

    def renew_heartbeat(self) -> None:
        """Renew the lease of the heartbeat. A failure is logged: the next attempt is made before the lease expires."""
        try:
            if not self._is_alive(self._executor_id):
                self.distrust_heartbeats()
            if not self._runs.store.renew(f"{WORKER_KEY}{self._executor_id}", self._token, self._heartbeat):
                self.begin_heartbeat()  # the record was lost, or deleted by a worker that took over
        except StoreError as error:
            self.distrust_heartbeats()
            _log.warning("cannot renew the heartbeat: %s", error)

    def end_heartbeat(self) -> None:
        """Delete the heartbeat: other workers take over at once."""
        self._runs.store.release(f"{WORKER_KEY}{self._executor_id}", self._token)

    def distrust_heartbeats(self) -> None:
        """Take over nothing until every live worker has renewed its heartbeat.

        While a database is away, and when the clock of the store jumps, the leases of all workers expire. A worker
        notices that by its own.
        """
        self._take_over_after = time.monotonic() + self._heartbeat
        self._unstarted = {}  # DBOS cannot record an outcome either

    def perform(self, executing: Callable[[], Collection[str]]) -> set[str]:
        """Take over from dead workers, wake decided runs, and return the workflows that this worker was given.

        `executing` returns those that it executes, also before and after their runs.
        """
        # One query for all tasks. Its rows are the runs in progress on all machines, without their prompts.
        pending = self._runs.client.list_workflows(
            status="PENDING", name=WORKFLOWS, load_input=False, load_output=False
        )
        others = sorted({workflow.executor_id for workflow in pending} - {self._executor_id, None})
        checked = random.sample(others, min(_MAX_CHECKED, len(others)))
        dead = [executor_id for executor_id in checked if not self._is_alive(executor_id)]
        if dead and not self._is_alive(self._executor_id):
            self.distrust_heartbeats()
        if time.monotonic() >= self._take_over_after:
            for executor_id in dead:
                self._take_over(executor_id)
        own = [workflow for workflow in pending if workflow.executor_id == self._executor_id]
        self._put_back_unstarted(own, executing())
        self._wake()
        return {workflow.workflow_id for workflow in own}

    def _put_back_unstarted(self, own: list[Any], executing: Collection[str]) -> None:
        """Put the workflows back into their queues that this worker has not executed for a while."""
        now = time.monotonic()
        unstarted = [workflow for workflow in own if workflow.workflow_id not in executing]
        before = self._unstarted  # the thread of the heartbeat may replace it meanwhile
        since = {workflow.workflow_id: before.get(workflow.workflow_id, now) for workflow in unstarted}
        self._unstarted = since
        for workflow in unstarted:
            if now >= since[workflow.workflow_id] + _UNSTARTED_SECONDS:
                _log.warning("put %s back into its queue: it was not begun", workflow.workflow_id)
                self._resume(workflow)

    def _is_alive(self, executor_id: str) -> bool:
        record = self._runs.store.get(f"{WORKER_KEY}{executor_id}")
        return record is not None and record.state == "running"

    def is_in_progress(self, workflow_id: str, executor_id: str) -> bool:
        """Return whether an executor executes a workflow: it was neither cancelled nor taken over."""
        found = self._runs.client.list_workflows(workflow_ids=[workflow_id], load_input=False, load_output=False)
        return any(workflow.status == "PENDING" and workflow.executor_id == executor_id for workflow in found)

    def mark_begun(self, job: Job, record_ttl: float) -> None:
        """Record that a run begins. Raise ConfigError if it began so long ago that the store may have deleted it.

        Its calls would run twice. A store keeps a run for `record_ttl` after its last step. Half of it is safe whatever
        the clocks of workers are: a run that began later and is not in the store has made no step.
        """
        ids = [segment_id(job.run_id, number) for number in range(1, job.segment + 1)]
        segments = self._runs.client.list_workflows(workflow_ids=ids, load_input=False, load_output=False)
        now = time.time()
        if now - min([now, *((segment.attributes or {}).get(_BEGUN, now) for segment in segments)]) > record_ttl / 2:
            raise ConfigError(
                f"run {job.run_id!r} has expired in the store", hint="check its effects, then start a new run"
            )
        self._runs.client.update_workflow_attributes(job.workflow_id, {_BEGUN: now}, merge=True)

    def _make_claim(self, key: str, lease: float, fingerprint: str = "") -> Claim:
        return Claim(key, _RECORD_NAME, fingerprint, self._token, lease, DAY, reclaim=True, durable=False)

    def _take_over(self, executor_id: str) -> None:
        """Put the workflows of a dead worker back into their queues, unless another worker does."""
        # Without the claim, a second worker could resume a workflow that the first one has resumed and a third has taken.
        claim = self._make_claim(f"toolwire-take-over/{executor_id}", _TAKE_OVER_SECONDS)
        if self._runs.store.claim(claim).token != claim.token:
            return
        client = self._runs.client
        try:
            if self._is_alive(executor_id):  # it has renewed its heartbeat while this worker took over from another one
                return
            for workflow in client.list_workflows(
                status="PENDING", name=WORKFLOWS, executor_id=executor_id, load_input=False, load_output=False
            ):
                count = (workflow.attributes or {}).get("take_overs", 0) + 1
                if count > _MAX_TAKE_OVERS:
                    client.cancel_workflow(workflow.workflow_id)
                    _log.error("%s was cancelled: %d workers died with it", workflow.workflow_id, count)
                    continue
                _log.warning("take over %s of worker %s, which died", workflow.workflow_id, executor_id)
                client.update_workflow_attributes(workflow.workflow_id, {"take_overs": count}, merge=True)
                self._resume(workflow)
            self._runs.store.resolve(f"{WORKER_KEY}{executor_id}", None)
        finally:
            self._runs.store.release(claim.key, claim.token)

    def _resume(self, workflow: Any) -> None:
        """Put a workflow back into its queue, unless it was cancelled or taken over: DBOS resumes these, too."""
        if self.is_in_progress(workflow.workflow_id, workflow.executor_id):
            self._runs.client.resume_workflow(workflow.workflow_id, queue_name=workflow.queue_name)

    def _wake(self) -> None:
        """Enqueue the next segment of each run that waited and was decided, itself or in the run of a subagent."""
        segments = self._runs.latest(map(root_run, self._runs.store.runs.ready(_MAX_READY)))
        ended = [segment for segment in segments.values() if segment.status == "SUCCESS"]
        for workflow, job in self._runs.load(ended):
            outcome = read_outcome(workflow)
            if outcome is not None and outcome.state == "waiting":
                self._runs.enqueue_job(job.next(), version=workflow.app_version)
