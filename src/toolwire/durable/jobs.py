"""The values of durable runs: the job in a queue, its outcome, and the report of a run.

A run is executed in segments. A segment is one DBOS workflow: it starts or continues the run, and ends when the run has
ended or waits for a decision. So a run that waits for days occupies no worker and no place in its queue.

    segment 1 ──waits──▶ (a person decides) ──▶ segment 2 ──worker stops──▶ segment 3 ──▶ done

DBOS has the jobs, and nothing else about a run: the conversation and its events are in the store of toolwire. A segment
may therefore be executed again from its beginning; it continues where the store is.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import msgspec
from msgspec.structs import replace

from ..ir.errors import ConfigError
from ..ir.request import Message
from ..ir.value import Value
from ..run.values.waiting import WaitingCall

if TYPE_CHECKING:
    from ..net.agent.answers import Answer

RUN_WORKFLOW = "toolwire.run"
SCHEDULE_WORKFLOW = "toolwire.schedule"
WEBHOOK_WORKFLOW = "toolwire.webhook"
WORKFLOWS = [RUN_WORKFLOW, SCHEDULE_WORKFLOW, WEBHOOK_WORKFLOW]
DEFAULT_QUEUE = "default"

_RUN_ID = re.compile(
    r"[A-Za-z0-9_-]{1,120}"
)  # no "." or ":", which separate subagents and segments; a store allows 255

SegmentState: TypeAlias = Literal["done", "failed", "waiting", "interrupted", "retried", "error"]
"""`interrupted` and `retried`: another segment continues the run. `error`: an exception, after which it can be retried."""

DurableStatus: TypeAlias = Literal["queued", "delayed", "running", "waiting", "done", "failed", "cancelled"]


class Job(Value, frozen=True):
    """A segment of a run, in a queue.

    `failures`: consecutive segments that ended with a temporary failure. `is_moved`: the run was started by another
    version of its agent.
    """

    run_id: str
    agent: str
    prompt: Message
    queue: str = DEFAULT_QUEUE
    tenant: str = ""
    priority: int = 0
    webhook: str = ""
    segment: int = 1
    failures: int = 0
    is_moved: bool = False

    @property
    def workflow_id(self) -> str:
        return segment_id(self.run_id, self.segment)

    def next(self, *, failures: int = 0, is_moved: bool = False) -> Job:
        """Return the segment that continues the run. It has one id, so that it is enqueued once."""
        return replace(self, segment=self.segment + 1, failures=failures, is_moved=is_moved or self.is_moved)


class SegmentOutcome(Value, frozen=True):
    """The outcome of a segment: `output` of a run that is done, `reason` of one that is not."""

    state: SegmentState
    output: Any = None
    reason: str = ""

    def without_surrogates(self) -> SegmentOutcome:
        """Replace lone surrogates by question marks. A model can write them, and no database and no webhook can carry them."""
        text = json.dumps(msgspec.to_builtins(self), ensure_ascii=False)
        return msgspec.convert(json.loads(text.encode(errors="replace")), SegmentOutcome)


class RunReport(Value, frozen=True):
    """A durable run as it is now.

    `output` is the answer as JSON, `reason`: why there is none. `pending`: the calls that wait for a decision.
    `version` is the version of the agent that executes the run, None before a worker has taken it. Times are seconds since the epoch.
    """

    run_id: str
    agent: str
    status: DurableStatus
    output: Any = None
    reason: str = ""
    pending: tuple[WaitingCall, ...] = ()
    queue: str = DEFAULT_QUEUE
    tenant: str = ""
    priority: int = 0
    version: str | None = None
    executor: str | None = None
    segment: int = 1
    created_at: float = 0.0
    changed_at: float = 0.0

    @property
    def ended(self) -> bool:
        return self.status in ("done", "failed", "cancelled")


def check_run_id(run_id: str) -> str:
    """Return the id. Raise ConfigError if it cannot be the id of a durable run."""
    if not _RUN_ID.fullmatch(run_id):
        raise ConfigError(f"invalid run id {run_id!r}", hint="use 1 to 120 letters, digits, - and _")
    return run_id


def segment_id(run_id: str, segment: int) -> str:
    return f"{run_id}:{segment}"


def split_segment_id(workflow_id: str) -> tuple[str, int]:
    """Return the run of a segment, and the number of the segment.

    >>> split_segment_id("invoice-7:2")
    ('invoice-7', 2)
    """
    run_id, _, number = workflow_id.rpartition(":")
    return run_id, int(number)


def root_run(run_id: str) -> str:
    """Return the run to which the run of a subagent belongs.

    >>> root_run("3f2a.9c1b.77d0"), root_run("3f2a")
    ('3f2a', '3f2a')
    """
    return run_id.partition(".")[0]


def read_job(workflow: Any) -> Job:
    """Return the job of a workflow that DBOS has listed with its input."""
    return msgspec.convert(workflow.input["args"][0], Job)


def read_outcome(workflow: Any) -> SegmentOutcome | None:
    """Return the outcome of a workflow that DBOS has listed with its output; None if it has not ended by itself."""
    return msgspec.convert(workflow.output, SegmentOutcome) if workflow.status == "SUCCESS" else None


def make_outcome(answer: Answer[Any]) -> SegmentOutcome:
    """Return the outcome of a segment that has ended by itself."""
    if answer.suspended:
        return SegmentOutcome("waiting", reason=answer.reason)
    if not answer.finished:
        return SegmentOutcome("failed", reason=answer.reason)
    try:
        return SegmentOutcome("done", msgspec.to_builtins(answer.output))
    except TypeError:  # a type that only pydantic knows; its text is JSON
        return SegmentOutcome("done", answer.text)
