"""Put runs of agents into queues, and follow, cancel and continue them, from any process that reaches the database.

runs = DurableRuns("runs.db")                   # one machine; many machines: postgresql://…
run_id = runs.enqueue("payments", "Pay the invoice", tenant="acme")
report = runs.wait(run_id)                      # executed by `toolwire worker`
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import dbos
import msgspec
from msgspec.structs import replace

from ..ir.errors import ConfigError
from ..net.agent.checkpoints import load_run
from ..net.model.interface import UserPrompt, prompt_message
from ..net.threads import run_blocking
from .jobs import (
    DEFAULT_QUEUE,
    RUN_WORKFLOW,
    SCHEDULE_WORKFLOW,
    DurableStatus,
    Job,
    RunReport,
    check_run_id,
    read_job,
    read_outcome,
)
from .queues import RunQueues
from .updates import POLL, RunUpdate, read_updates
from .webhooks import check_webhook

if TYPE_CHECKING:
    from ..net.agent.agent import Agent

_FIRST_POLL, _LAST_POLL = 0.05, 1.0  # seconds between two looks at a run that is awaited: a run takes seconds to days
# Seconds from the segment by which a waiting run is cancelled to its start: many times the statement that cancels it, which
# is repeated if the segment has started. If this process dies between the two, the run must not be delayed for long.
_CANCEL_DELAY = 60.0
_STATUSES: dict[str, DurableStatus] = {
    "ENQUEUED": "queued",
    "DELAYED": "delayed",
    "PENDING": "running",
    "CANCELLED": "cancelled",
}


class DurableRuns(RunQueues):
    """The durable runs of a store, and their queues."""

    def enqueue(
        self,
        agent: Agent[Any, Any] | str,
        prompt: UserPrompt,
        *,
        run_id: str = "",
        queue: str = DEFAULT_QUEUE,
        tenant: str = "",
        priority: int = 0,
        delay: float = 0.0,
        webhook: str = "",
    ) -> str:
        """Put a run into a queue, and return its id. A worker that has the agent executes it.

        `agent`: the agent, or its name if this process does not have it. `run_id`: an id of your own; a second run with
        the same id is not started. `tenant`: whose limits of the queue apply. `priority`: 0 is first, larger numbers are
        later. `delay`: seconds before the run may start. `webhook`: a URL that receives each end and each wait of the run.
        """
        name = agent if isinstance(agent, str) else agent.name
        if not name:
            raise ConfigError("a durable run needs the name of its agent", hint="pass Agent(…, name=…)")
        check_webhook(webhook)
        message = run_blocking(prompt_message(prompt))
        job = Job(
            check_run_id(run_id or secrets.token_hex(8)),
            name,
            message,
            queue=queue,
            tenant=tenant,
            priority=priority,
            webhook=webhook,
        )
        self.enqueue_job(job, delay=delay)
        return job.run_id

    def schedule(
        self,
        name: str,
        agent: Agent[Any, Any] | str,
        prompt: UserPrompt,
        cron: str,
        *,
        timezone: str | None = None,
        queue: str = DEFAULT_QUEUE,
        tenant: str = "",
        priority: int = 0,
        webhook: str = "",
    ) -> None:
        """Enqueue a run at each time of a cron expression, with five fields or six (seconds first). Replaces `name`.

        Each time starts one run, however many workers there are; its id is the name and the time.
        """
        message = run_blocking(prompt_message(prompt))
        agent_name = agent if isinstance(agent, str) else agent.name
        check_webhook(webhook)
        job = Job(
            check_run_id(name), agent_name, message, queue=queue, tenant=tenant, priority=priority, webhook=webhook
        )
        entry = {
            "schedule_name": name,
            "workflow_name": SCHEDULE_WORKFLOW,
            "schedule": cron,
            "context": msgspec.to_builtins(job),
            "cron_timezone": timezone,
        }
        try:
            self.client.apply_schedules([entry])
        except dbos.error.DBOSException as error:
            raise ConfigError(f"cannot schedule {name!r}: {error}") from None

    def unschedule(self, name: str) -> None:
        self.client.delete_schedule(name)

    def report(self, run_id: str) -> RunReport:
        """Return the report of a run. Raise ConfigError if there is no such durable run."""
        return self._make_report(*self._find(run_id))

    def list(self, limit: int = 100) -> list[RunReport]:
        """Return the reports of the newest runs."""
        found: dict[str, tuple[Any, Job]] = {}
        workflows = self.client.list_workflows(name=RUN_WORKFLOW, sort_desc=True, limit=4 * limit)
        for workflow in workflows:  # a run has few segments, and the latest is listed first
            job = read_job(workflow)
            if job.run_id not in found or found[job.run_id][1].segment < job.segment:
                found[job.run_id] = workflow, job
        return [self._make_report(*latest) for latest in list(found.values())[:limit]]

    def match(self, prefix: str) -> Sequence[str]:
        """Return the ids of the durable runs that begin with a text; only the run with this id, if there is one."""
        workflows = self.client.list_workflows(
            workflow_id_prefix=prefix, name=RUN_WORKFLOW, load_input=False, load_output=False
        )
        found = sorted({workflow.workflow_id.rpartition(":")[0] for workflow in workflows})
        return [prefix] if prefix in found else [run_id for run_id in found if run_id.startswith(prefix)]

    def _make_report(self, workflow: Any, job: Job) -> RunReport:
        """Combine the state of the latest segment with the calls that wait in the store."""
        report = RunReport(
            job.run_id,
            job.agent,
            _STATUSES.get(workflow.status, "failed"),
            reason=str(workflow.error or ""),
            queue=job.queue,
            tenant=job.tenant,
            priority=job.priority,
            version=workflow.app_version,
            executor=workflow.executor_id,
            segment=job.segment,
            created_at=workflow.created_at / 1000,
            changed_at=workflow.updated_at / 1000,
        )
        outcome = read_outcome(workflow)
        if outcome is None:
            return report
        if outcome.state == "done":
            return replace(report, status="done", output=outcome.output)
        if outcome.state != "waiting":
            is_continued = outcome.state in ("interrupted", "retried")
            return replace(report, status="queued" if is_continued else "failed", reason=outcome.reason)
        stored = self.store.runs.get(job.run_id)
        if stored is None:
            return replace(report, status="failed", reason="the run has expired: its calls were not decided in time")
        if stored.status == "running":  # decided; a worker enqueues the next segment
            return replace(report, status="queued")
        if stored.status != "waiting":
            return replace(report, status=stored.status, reason="the run was continued outside of the queues")
        pending = tuple(load_run(self.store, job.run_id, stored.tenant)[1].waiting)
        return replace(report, status="waiting", reason=outcome.reason, pending=pending)

    def wait(self, run_id: str, timeout: float | None = None, *, through_waits: bool = False) -> RunReport:
        """Wait until a run has ended, or waits for a decision unless `through_waits`, and return its report.

        Raise TimeoutError if it does neither within `timeout` seconds, StoreError if the database fails. In async code: `asyncio.to_thread(runs.wait, …)`.
        """
        end = None if timeout is None else time.monotonic() + timeout
        pause = _FIRST_POLL
        while True:
            report = self.report(run_id)
            if report.ended or (report.status == "waiting" and not through_waits):
                return report
            if end is not None and time.monotonic() >= end:
                raise TimeoutError(f"run {run_id} is {report.status} after {timeout:g} seconds")
            time.sleep(pause)
            pause = min(2 * pause, _LAST_POLL)

    def updates(self, run_id: str, after: str = "", *, through_waits: bool = False) -> Iterator[RunUpdate]:
        """Yield the events of a run from a position until it has ended, or waits unless `through_waits`."""
        while True:
            report = self.report(run_id)
            for update in read_updates(self.store.runs, run_id, after):
                after = update.position
                yield update
            if report.ended or (report.status == "waiting" and not through_waits):
                return
            time.sleep(POLL)

    def cancel(self, run_id: str) -> RunReport:
        """Cancel a run: it does not start, or its worker stops it within a second or two. `resume` continues it.

        A write that is in progress is awaited. Raise ConfigError if the run has ended.
        """
        workflow, job = self._find(run_id)
        if read_outcome(workflow) is not None and self._make_report(workflow, job).ended:
            raise ConfigError(f"run {run_id!r} has ended", hint=f"toolwire runs show {run_id}")
        while True:
            if read_outcome(workflow) is not None:
                # A run that waits has no workflow to cancel: its next segment is cancelled before it may start.
                job = job.next()
                self.enqueue_job(job, version=workflow.app_version, delay=_CANCEL_DELAY)
            self.client.cancel_workflow(job.workflow_id)
            workflow, job = self._find(run_id)  # the segment may have ended meanwhile, and another one may have begun
            report = self._make_report(workflow, job)
            if report.ended:
                return report

    def resume(self, run_id: str, *, version: str | None = None) -> RunReport:
        """Continue a run that was cancelled or failed with an error, or put a decided run into its queue at once.

        `version`: continue it with this version of its agent. A tool that the run offers and this version does not
        have is an error of the run, which can be continued with a version that has it.
        """
        workflow, job = self._find(run_id)
        outcome = read_outcome(workflow)
        if outcome is not None and outcome.state in ("done", "failed"):
            raise ConfigError(f"run {run_id!r} has ended: {outcome.state}", hint=f"toolwire runs retry {run_id}")
        if workflow.status in ("ENQUEUED", "DELAYED", "PENDING"):
            if version is None or version == workflow.app_version:
                return self.report(run_id)
            if workflow.status == "PENDING":
                raise ConfigError(f"run {run_id!r} is in progress", hint=f"toolwire runs cancel {run_id}")
            self.client.cancel_workflow(job.workflow_id)
        is_moved = version is not None and version != workflow.app_version
        self.enqueue_job(job.next(is_moved=is_moved), version=version or workflow.app_version)
        return self.report(run_id)

    def retry(self, run_id: str) -> RunReport:
        """Continue a run that failed with an error or was cancelled; start one that has ended again, as a new run."""
        workflow, job = self._find(run_id)
        outcome = read_outcome(workflow)
        if outcome is None or outcome.state not in ("done", "failed"):
            return self.resume(run_id)
        again = replace(job, run_id=secrets.token_hex(8), segment=1, failures=0, is_moved=False)
        self.enqueue_job(again)
        return self.report(again.run_id)

    def _find(self, run_id: str) -> tuple[Any, Job]:
        """Return the latest segment of a run, and its job. Raise ConfigError if there is no such durable run."""
        found = next(self.load(self.latest([run_id]).values()), None)
        if found is None:
            raise ConfigError(f"there is no durable run {run_id!r}", hint="toolwire runs list")
        return found
