"""Mistral: files and fine-tuning jobs, as mistralai 2.4.13 requests them (`files.py`, `fine_tuning_jobs.py`).

Newer versions of the SDK have no fine-tuning jobs. A job is created with `auto_start: false`: Mistral validates the
files and calculates the price, and the job runs after `start`. So a job that is created twice costs nothing. The job of
a run is found by its training file.
"""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

from ...ir.errors import ConfigError
from ...ir.pointer import Object
from ...ir.response import UpstreamError
from .datasets import FileRules, encode_mistral
from .openai_service import refused_upload
from .service import JobPhase, JobPlan, ServiceQuote, TuningJob
from .service_answers import read_count, read_list, read_number, read_object, read_text, require_text
from .service_api import ServiceApi, page_numbers

_PHASES: dict[str, JobPhase] = {
    "QUEUED": "checking",
    "STARTED": "checking",
    "VALIDATING": "checking",
    "VALIDATED": "waiting",
    "SUCCESS": "done",
    "FAILED": "failed",
    "FAILED_VALIDATION": "failed",
    "CANCELLED": "cancelled",
}
_PAGE = 100  # rows of a request, the default of the SDK
_MAX_SUFFIX = 18  # characters: mistralai 1.2, models/jobin.py


class MistralService:
    """Fine-tuning at Mistral."""

    name: ClassVar[str] = "mistral"
    # https://docs.mistral.ai/capabilities/finetuning/text_vision_finetuning: 512 MB for a file
    rules: ClassVar[FileRules] = FileRules(encode=encode_mistral, least_examples=1, most_bytes=512 * 1024 * 1024)
    is_quoted: ClassVar[bool] = True
    # https://docs.mistral.ai/capabilities/finetuning, read 2026-11
    notice: ClassVar[str] = (
        "Mistral charges at least 4 USD for a job and 2 USD a month for a stored model; its SDK has no fine-tuning "
        "since version 2.5, so it may not be available to your account"
    )

    def __init__(self, api: ServiceApi) -> None:
        self._api = api

    @property
    def address(self) -> str:
        return self._api.base_url

    def check_plan(self, plan: JobPlan) -> None:
        if plan.suffix is not None and len(plan.suffix) > _MAX_SUFFIX:
            raise ConfigError(f"the suffix has {len(plan.suffix)} characters, and Mistral allows {_MAX_SUFFIX}")
        if plan.seed is not None:
            raise ConfigError("Mistral has no seed for fine-tuning", hint="remove seed")

    async def find_file(self, name: str, size: int) -> str | None:
        found = await self._api.get("/files", {"purpose": "fine-tune", "search": name, "page_size": _PAGE})
        for file in read_list(found):
            if file.get("filename") == name and file.get("bytes") == size:
                return require_text(file, "id")
        return None

    async def upload(self, file: Path, name: str) -> str:
        try:
            found = await self._api.upload_form("/files", {"purpose": "fine-tune"}, file, name)
        except UpstreamError as error:
            raise refused_upload(error, "Mistral") from None
        return require_text(found, "id")

    async def quote(self, plan: JobPlan) -> ServiceQuote | None:
        return None

    async def find_job(self, plan: JobPlan) -> TuningJob | None:
        for page in page_numbers("/fine_tuning/jobs"):
            query: dict[str, str | int] = {"page": page, "page_size": _PAGE, "model": plan.model}
            jobs = read_list(await self._api.get("/fine_tuning/jobs", query))
            for job in jobs:
                if plan.training_file in (job.get("training_files") or ()):
                    return _read_job(job)
            if len(jobs) < _PAGE:
                break
        return None

    async def create(self, plan: JobPlan) -> TuningJob:
        numbers: Object = {"epochs": plan.epochs}
        if plan.learning_rate is not None:
            numbers["learning_rate"] = plan.learning_rate
        body: Object = {
            "model": plan.model,
            "training_files": [{"file_id": plan.training_file, "weight": 1}],
            "hyperparameters": numbers,
            "suffix": plan.suffix or plan.tag,
            "auto_start": False,
            "job_type": "completion",
        }
        if plan.validation_file is not None:
            body["validation_files"] = [plan.validation_file]
        return _read_job(await self._api.request("POST", "/fine_tuning/jobs", body))

    async def start(self, job_id: str) -> None:
        await self._api.repeat(lambda: self._api.request("POST", f"/fine_tuning/jobs/{job_id}/start"))

    async def get(self, job_id: str) -> TuningJob:
        return _read_job(await self._api.get(f"/fine_tuning/jobs/{job_id}"))

    async def cancel(self, job_id: str) -> TuningJob:
        return _read_job(await self._api.request("POST", f"/fine_tuning/jobs/{job_id}/cancel"))

    async def progress(self, job_id: str) -> str:
        checkpoints = read_list(await self._api.get(f"/fine_tuning/jobs/{job_id}"), "checkpoints")
        steps = [row["step_number"] for row in checkpoints if type(row.get("step_number")) is int]
        return f"step {max(steps)}" if steps else ""

    async def fetch(self, job: TuningJob, folder: Path) -> Object:
        return {key: read_list(job.answer, key) for key in ("checkpoints", "events")}


def _read_job(job: Object) -> TuningJob:
    """Read a job: with its events, which have the reason of a failure, if it was requested by its id."""
    status = require_text(job, "status")
    metadata = read_object(job, "metadata")
    phase = _PHASES.get(status, "active")
    return TuningJob(
        id=require_text(job, "id"),
        phase=phase,
        status=status,
        model=read_text(job, "fine_tuned_model"),
        problem=_failure_of(job) if phase == "failed" else "",
        is_file_problem=status == "FAILED_VALIDATION",
        trained_tokens=read_count(job, "trained_tokens") or read_count(metadata, "train_tokens"),
        cost=read_number(metadata, "cost"),
        currency=read_text(metadata, "cost_currency") or "USD",
        answer=job,
    )


def _failure_of(job: Object) -> str:
    """Return the text of the newest event with an error; events are sorted, newest first."""
    for event in read_list(job, "events"):
        data = event.get("data")
        if type(data) is dict and data.get("error"):
            return str(data["error"])
    return ""
