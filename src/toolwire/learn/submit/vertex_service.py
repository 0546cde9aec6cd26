"""Vertex AI: objects of Cloud Storage and tuning jobs, as google-genai 3.3.0 requests them (`tunings.py`).

    PUT-like upload   POST {storage}/upload/storage/v1/b/{bucket}/o?uploadType=media&name=…&ifGenerationMatch=0
    jobs              POST, GET https://{location}-aiplatform.googleapis.com/v1beta1/projects/…/tuningJobs

`ifGenerationMatch=0` writes an object only if there is none, so an upload is never repeated. A job has a label with the
tag, and the address of its training data contains it, too.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import ClassVar
from urllib.parse import quote, urlencode

from ...ir.errors import ConfigError
from ...ir.pointer import JSON, Object
from ...ir.response import UpstreamError
from .datasets import FileRules, encode_vertex
from .service import JobPhase, JobPlan, ServiceQuote, TuningJob
from .service_answers import read_count, read_list, read_object, read_text, require_text
from .service_api import RefusedTrainingFile, ServiceApi, page_numbers

_PHASES: dict[str, JobPhase] = {
    "JOB_STATE_SUCCEEDED": "done",
    "JOB_STATE_PARTIALLY_SUCCEEDED": "done",
    "JOB_STATE_FAILED": "failed",
    "JOB_STATE_EXPIRED": "failed",
    "JOB_STATE_CANCELLED": "cancelled",
}
_PAGE = 100  # jobs of a request; more pages are read
_LABEL = "toolwire_run"
_INVALID_ARGUMENT = 3  # google.rpc.Code
_parse_bucket = re.compile(r"gs://([a-z0-9][a-z0-9._-]{1,220})(?:/(.*?))?/?").fullmatch


class VertexService:
    """Supervised tuning at Vertex AI. `parent` is `projects/PROJECT/locations/LOCATION`; `storage` a base URL."""

    name: ClassVar[str] = "vertex"
    # https://docs.cloud.google.com/vertex-ai/generative-ai/docs/models/gemini-supervised-tuning, read 2026-11:
    # 1 GB for a file, 131,072 tokens for an example
    rules: ClassVar[FileRules] = FileRules(
        encode=encode_vertex, least_examples=1, most_bytes=1024**3, most_example_tokens=131_072
    )
    is_quoted: ClassVar[bool] = False
    notice: ClassVar[str] = ""

    def __init__(self, api: ServiceApi, parent: str, storage: str, bucket: str | None) -> None:
        found = _parse_bucket(bucket or "")
        if found is None:
            raise ConfigError(f"Vertex AI needs a bucket of Cloud Storage, got {bucket!r}", hint="gs://name/folder")
        self._api = api
        self._parent = parent
        self._storage = storage.rstrip("/")
        self._bucket = found[1]
        self._folder = f"{found[2]}/" if found[2] else ""

    @property
    def address(self) -> str:
        return f"{self._api.base_url}/{self._parent} {self._storage}"

    def check_plan(self, plan: JobPlan) -> None:
        if plan.seed is not None:
            raise ConfigError("Vertex AI has no seed for tuning", hint="remove seed")

    def _object_url(self, name: str) -> str:
        return f"{self._storage}/storage/v1/b/{self._bucket}/o/{quote(name, safe='')}"

    async def find_file(self, name: str, size: int) -> str | None:
        try:
            found = await self._api.get(self._object_url(self._folder + name))
        except UpstreamError as error:
            if error.fault.status == 404:
                return None
            raise
        return f"gs://{self._bucket}/{self._folder}{name}" if found.get("size") == str(size) else None

    async def upload(self, file: Path, name: str) -> str:
        query = {"uploadType": "media", "name": self._folder + name, "ifGenerationMatch": "0"}
        url = f"{self._storage}/upload/storage/v1/b/{self._bucket}/o?{urlencode(query)}"
        try:
            await self._api.send_file("POST", url, {"content-type": "application/jsonl"}, file)
        except UpstreamError as error:
            if error.fault.status != 412:  # the object exists: an earlier upload was complete
                raise
        return f"gs://{self._bucket}/{self._folder}{name}"

    async def quote(self, plan: JobPlan) -> ServiceQuote | None:
        return None

    async def find_job(self, plan: JobPlan) -> TuningJob | None:
        query: dict[str, str | int] = {"pageSize": _PAGE}
        path = f"/{self._parent}/tuningJobs"
        for _ in page_numbers(path):
            page = await self._api.get(path, query)
            for job in read_list(page, "tuningJobs"):
                uri = read_object(job, "supervisedTuningSpec").get("trainingDatasetUri")
                if read_object(job, "labels").get(_LABEL) == plan.tag or uri == plan.training_file:
                    return _read_job(job)
            token = read_text(page, "nextPageToken")
            if token is None:
                break
            query["pageToken"] = token
        return None

    async def create(self, plan: JobPlan) -> TuningJob:
        numbers: Object = {"epochCount": plan.epochs}
        if plan.learning_rate is not None:
            numbers["learningRateMultiplier"] = plan.learning_rate
        spec: Object = {"trainingDatasetUri": plan.training_file, "hyperParameters": numbers}
        if plan.validation_file is not None:
            spec["validationDatasetUri"] = plan.validation_file
        body: Object = {
            "baseModel": plan.model,
            "supervisedTuningSpec": spec,
            "tunedModelDisplayName": plan.suffix or f"toolwire-{plan.tag}",
            "labels": {_LABEL: plan.tag},
        }
        try:
            return _read_job(await self._api.request("POST", f"/{self._parent}/tuningJobs", body))
        except UpstreamError as error:
            if error.fault.status == 400 and "dataset" in error.message.lower():
                raise RefusedTrainingFile(f"Vertex AI refused the file: {error.message}") from None
            raise

    async def start(self, job_id: str) -> None:
        raise AssertionError("a job of Vertex AI starts by itself")

    async def get(self, job_id: str) -> TuningJob:
        return _read_job(await self._api.get(f"/{job_id}"))

    async def cancel(self, job_id: str) -> TuningJob:
        await self._api.request("POST", f"/{job_id}:cancel", {})
        return await self.get(job_id)

    async def progress(self, job_id: str) -> str:
        detail = read_text(await self._api.get(f"/{job_id}"), "tuningJobState")
        return (detail or "").removeprefix("TUNING_JOB_STATE_").replace("_", " ").lower()

    async def fetch(self, job: TuningJob, folder: Path) -> Object:
        """Download the objects with metrics, and return the endpoint, the checkpoints and the counts of the data."""
        tuned = read_object(job.answer, "tunedModel")
        files: list[JSON] = []
        metrics = _parse_bucket(read_text(job.answer, "gcsMetricsUri") or "")
        if metrics is not None:
            url = f"{self._storage}/storage/v1/b/{metrics[1]}/o"
            found = await self._api.get(url, {"prefix": metrics[2] or ""})
            for number, item in enumerate(read_list(found, "items")):
                target = folder / f"metrics-{number + 1}{Path(str(item.get('name'))).suffix[:8]}"
                name = quote(require_text(item, "name"), safe="")
                await self._api.download(f"{url}/{name}?alt=media", target)
                files.append(target.name)
        return {
            "files": files,
            "endpoint": tuned.get("endpoint"),
            "checkpoints": read_list(tuned, "checkpoints"),
            "data": job.answer.get("tuningDataStats"),
        }


def _read_job(job: Object) -> TuningJob:
    status = read_text(job, "state") or "JOB_STATE_PENDING"
    error = read_object(job, "error")
    stats = read_object(read_object(job, "tuningDataStats"), "supervisedTuningDataStats")
    message = read_text(error, "message") or ""
    return TuningJob(
        id=require_text(job, "name"),
        phase=_PHASES.get(status, "active"),
        status=status.removeprefix("JOB_STATE_"),
        model=read_text(read_object(job, "tunedModel"), "model"),
        problem=message,
        is_file_problem=error.get("code") == _INVALID_ARGUMENT and "dataset" in message.lower(),
        trained_tokens=read_count(stats, "totalBillableTokenCount"),
        answer=job,
    )
