"""The interface of a fine-tuning service, and its jobs as values.

A service is a class with these operations. It keeps no state: everything that a later process needs is in the folder of
the run (`submission`). Files and jobs are found again by the tag of the run, so that none is made twice.
"""

from __future__ import annotations

from pathlib import Path
from typing import Literal, Protocol, TypeAlias

from ...ir.pointer import Object
from ...ir.value import Value
from .datasets import FileRules

JobPhase: TypeAlias = Literal["checking", "waiting", "active", "done", "failed", "cancelled"]
"""`checking`: validated before it runs; `waiting`: valid, and needs `start`. The last three are final."""


class TuningJob(Value, frozen=True, kw_only=True):
    """A job, as its service reports it. `status` is the service's own name of the phase, `answer` its whole answer."""

    id: str
    phase: JobPhase
    status: str
    model: str | None = None  # the name of the tuned model, when there is one
    problem: str = ""  # why it failed
    is_file_problem: bool = False  # … because of the training file
    trained_tokens: int | None = None
    cost: float | None = None  # in `currency`, as the service calculated it
    currency: str = "USD"
    answer: Object = {}

    @property
    def is_final(self) -> bool:
        return self.phase in ("done", "failed", "cancelled")


class JobPlan(Value, frozen=True, kw_only=True):
    """A job that will be created. `tag` is unique to the run, and in the names of its files."""

    tag: str
    model: str
    epochs: int
    training_file: str = ""
    validation_file: str | None = None
    suffix: str | None = None
    seed: int | None = None
    learning_rate: float | None = None


class ServiceQuote(Value, frozen=True):
    """The price of a job that the service itself estimates before it starts."""

    usd: float | None
    tokens: int | None = None
    problem: str = ""  # why the service would not run the job


class TuningService(Protocol):
    """One service. Methods raise UpstreamError for errors of the service, RefusedTrainingFile for a refused file."""

    @property
    def name(self) -> str: ...
    @property
    def address(self) -> str:
        """Return where the files and the job of a run are, such as the base URL and the project."""
        ...

    @property
    def rules(self) -> FileRules: ...
    @property
    def notice(self) -> str:
        """A limitation that a user should know before the upload; empty if there is none."""
        ...

    @property
    def is_quoted(self) -> bool:
        """Return whether the service itself calculates the price of a job before it starts."""
        ...

    def check_plan(self, plan: JobPlan) -> None:
        """Raise ConfigError for an option that the service does not have, or limits."""
        ...

    async def find_file(self, name: str, size: int) -> str | None:
        """Return the id of a complete uploaded file with this name, or None."""
        ...

    async def upload(self, file: Path, name: str) -> str:
        """Upload a file, and return its id. It is sent once."""
        ...

    async def quote(self, plan: JobPlan) -> ServiceQuote | None:
        """Return the service's own estimate for uploaded files, or None if it has none before the job exists."""
        ...

    async def find_job(self, plan: JobPlan) -> TuningJob | None:
        """Return the job of this run: the one that trains on its file. None if there is none yet."""
        ...

    async def create(self, plan: JobPlan) -> TuningJob:
        """Create a job. The request is sent once."""
        ...

    async def start(self, job_id: str) -> None:
        """Start a job that waits after its validation; for services whose jobs wait."""
        ...

    async def get(self, job_id: str) -> TuningJob: ...
    async def cancel(self, job_id: str) -> TuningJob: ...
    async def progress(self, job_id: str) -> str:
        """Return the newest message about a running job, or an empty text."""
        ...

    async def fetch(self, job: TuningJob, folder: Path) -> Object:
        """Write result files into a folder, and return a description of them: checkpoints, events, names of files."""
        ...
