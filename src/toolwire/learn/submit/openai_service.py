"""OpenAI: files and fine-tuning jobs, as openai 3.51.0 requests them (`resources/files.py`, `resources/fine_tuning`).

OpenAI documents no idempotency key for jobs. A job has metadata, by which jobs are listed, so the tag of the run finds
a job whose creation was answered with an error, or not at all.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import ClassVar

from ...ir.errors import ConfigError
from ...ir.pointer import JSON, Object
from ...ir.response import UpstreamError
from .datasets import FileRules, encode_openai
from .service import JobPhase, JobPlan, ServiceQuote, TuningJob
from .service_answers import read_count, read_list, read_object, read_text, require_text
from .service_api import RefusedTrainingFile, ServiceApi, page_numbers

_PHASES: dict[str, JobPhase] = {"succeeded": "done", "failed": "failed", "cancelled": "cancelled"}
_TAG = "toolwire_run"  # the key in the metadata of a job
_MAX_SUFFIX = 64  # characters: job_create_params.py
_PAGE = 100  # rows of a request; more pages are read


class OpenAIService:
    """Fine-tuning at OpenAI."""

    name: ClassVar[str] = "openai"
    # https://developers.openai.com/api/docs/guides/supervised-fine-tuning: 10 examples; Files API: 512 MB;
    # 65,536 tokens of an example of gpt-4.1 and gpt-4o; 128 tools (zed-industries/zed#32946)
    rules: ClassVar[FileRules] = FileRules(
        encode=encode_openai,
        least_examples=10,
        most_bytes=512 * 1024 * 1024,
        most_example_tokens=65_536,
        most_tools=128,
    )
    is_quoted: ClassVar[bool] = False
    # https://developers.openai.com/api/docs/deprecations, read 2026-11
    notice: ClassVar[str] = (
        "OpenAI accepts new fine-tuning jobs only from organisations that used them before May 2026, "
        "and none after 2027-01-06"
    )

    def __init__(self, api: ServiceApi) -> None:
        self._api = api

    @property
    def address(self) -> str:
        return self._api.base_url

    def check_plan(self, plan: JobPlan) -> None:
        if plan.suffix is not None and len(plan.suffix) > _MAX_SUFFIX:
            raise ConfigError(f"the suffix has {len(plan.suffix)} characters, and OpenAI allows {_MAX_SUFFIX}")

    async def find_file(self, name: str, size: int) -> str | None:
        async for file in self._list("/files", {"purpose": "fine-tune"}):
            if file.get("filename") == name and file.get("bytes") == size and file.get("status") != "error":
                return require_text(file, "id")
        return None

    async def upload(self, file: Path, name: str) -> str:
        try:
            found = await self._api.upload_form("/files", {"purpose": "fine-tune"}, file, name)
        except UpstreamError as error:
            raise refused_upload(error, "OpenAI") from None
        if found.get("status") == "error":
            raise RefusedTrainingFile(f"OpenAI refused {name}: {found.get('status_details') or 'no reason given'}")
        return require_text(found, "id")

    async def quote(self, plan: JobPlan) -> ServiceQuote | None:
        return None

    async def find_job(self, plan: JobPlan) -> TuningJob | None:
        async for job in self._list("/fine_tuning/jobs", {"limit": _PAGE, f"metadata[{_TAG}]": plan.tag}):
            # servers with OpenAI's API may ignore the filter
            if read_object(job, "metadata").get(_TAG) == plan.tag or job.get("training_file") == plan.training_file:
                return _read_job(job)
        return None

    async def create(self, plan: JobPlan) -> TuningJob:
        numbers: Object = {"n_epochs": plan.epochs}
        if plan.learning_rate is not None:
            numbers["learning_rate_multiplier"] = plan.learning_rate
        body: Object = {
            "model": plan.model,
            "training_file": plan.training_file,
            "metadata": {_TAG: plan.tag},
            "method": {"type": "supervised", "supervised": {"hyperparameters": numbers}},
        }
        optional: Object = {"validation_file": plan.validation_file, "suffix": plan.suffix, "seed": plan.seed}
        body.update({key: value for key, value in optional.items() if value is not None})
        return _read_job(await self._api.request("POST", "/fine_tuning/jobs", body))

    async def start(self, job_id: str) -> None:
        raise AssertionError("a job of OpenAI starts by itself")

    async def get(self, job_id: str) -> TuningJob:
        return _read_job(await self._api.get(f"/fine_tuning/jobs/{job_id}"))

    async def cancel(self, job_id: str) -> TuningJob:
        return _read_job(await self._api.request("POST", f"/fine_tuning/jobs/{job_id}/cancel"))

    async def progress(self, job_id: str) -> str:
        events = read_list(await self._api.get(f"/fine_tuning/jobs/{job_id}/events", {"limit": 1}))
        return str(events[0].get("message") or "") if events else ""

    async def fetch(self, job: TuningJob, folder: Path) -> Object:
        """Download the metrics of the steps (CSV), and return checkpoints and events."""
        files: list[JSON] = []
        for number, file_id in enumerate(job.answer.get("result_files") or ()):
            target = folder / (f"metrics-{number + 1}.csv" if number else "metrics.csv")
            await self._api.download(f"/files/{file_id}/content", target)
            files.append(target.name)
        checkpoints = [row async for row in self._list(f"/fine_tuning/jobs/{job.id}/checkpoints", {"limit": _PAGE})]
        events = [row async for row in self._list(f"/fine_tuning/jobs/{job.id}/events", {"limit": _PAGE})]
        return {"files": files, "checkpoints": checkpoints, "events": events[::-1]}

    async def _list(self, path: str, query: Mapping[str, str | int]) -> AsyncIterator[Object]:
        """Yield the rows of all pages of a list; the service sorts events, newest first."""
        after: dict[str, str | int] = {}
        for _ in page_numbers(path):
            page = await self._api.get(path, {**query, **after})
            rows = read_list(page)
            for row in rows:
                yield row
            if not page.get("has_more") or not rows:
                return
            after = {"after": require_text(rows[-1], "id")}


def refused_upload(error: UpstreamError, service: str) -> UpstreamError | RefusedTrainingFile:
    """Return RefusedTrainingFile with the service's reason if an upload was refused because of the file."""
    if error.fault.status in (400, 413, 415, 422):
        return RefusedTrainingFile(f"{service} refused the file: {error.message}", hint="correct the examples")
    return error


def _read_job(job: Object) -> TuningJob:
    status = require_text(job, "status")
    error = read_object(job, "error")
    message, code = read_text(error, "message"), read_text(error, "code")
    return TuningJob(
        id=require_text(job, "id"),
        phase=_PHASES.get(status, "active"),
        status=status,
        model=read_text(job, "fine_tuned_model"),
        problem=" ".join(part for part in (message, code and f"({code})") if part) or read_text(job, "error") or "",
        is_file_problem=error.get("param") in ("training_file", "validation_file"),
        trained_tokens=read_count(job, "trained_tokens"),
        answer=job,
    )
