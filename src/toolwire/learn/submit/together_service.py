"""Together: files and fine-tuning jobs, as together 3.1.1 requests them (`lib/resources/files.py`, `resources/fine_tuning.py`).

A file is uploaded in three requests: its name and checksum, which are answered with a redirect to a storage address;
the content to that address, without the key; and `preprocess`. A file that is known is answered with 409 and its id.
So two runs may share a file, and the job of a run is found by the suffix of its model, which contains the tag.
"""

from __future__ import annotations

from hashlib import file_digest
from pathlib import Path
from typing import ClassVar

from ...ir.errors import ConfigError, ProtocolError
from ...ir.pointer import Object
from ...ir.response import UpstreamError
from .datasets import FileRules, encode_together
from .openai_service import refused_upload
from .service import JobPhase, JobPlan, ServiceQuote, TuningJob
from .service_answers import read_count, read_list, read_number, read_object, read_text, require_text
from .service_api import RefusedTrainingFile, ServiceApi, known_file

_PHASES: dict[str, JobPhase] = {"completed": "done", "error": "failed", "cancelled": "cancelled"}
_MAX_SUFFIX = 40  # characters with the tag: resources/fine_tuning.py, `create`
_VALIDATION_PAUSE = 5.0  # seconds between two looks at a file that the service validates
_VALIDATION_LOOKS = 240  # 20 minutes; the service does not document a limit
_NANO = 1_000_000_000  # `total_price` of a job is in billionths of a USD: lib/cli/api/fine_tuning/list.py


class TogetherService:
    """Fine-tuning at Together, with LoRA, which is its default."""

    name: ClassVar[str] = "together"
    # lib/constants.py: MIN_SAMPLES; larger files need an upload in parts: MULTIPART_THRESHOLD_GB
    rules: ClassVar[FileRules] = FileRules(encode=encode_together, least_examples=1, most_bytes=5 * 1024**3)
    is_quoted: ClassVar[bool] = True
    notice: ClassVar[str] = ""

    def __init__(self, api: ServiceApi) -> None:
        self._api = api

    @property
    def address(self) -> str:
        return self._api.base_url

    def check_plan(self, plan: JobPlan) -> None:
        if len(_suffix_of(plan)) > _MAX_SUFFIX:
            most = _MAX_SUFFIX - 1 - len(plan.tag)
            raise ConfigError(f"the suffix {plan.suffix!r} is too long", hint=f"use at most {most} characters")

    async def find_file(self, name: str, size: int) -> str | None:
        for file in read_list(await self._api.get("/files")):
            if file.get("filename") == name and file.get("bytes") == size:
                file_id = require_text(file, "id")
                if file.get("processing_status") == "PENDING":  # the upload ended before this last request
                    await self._validate(file_id)
                return file_id
        return None

    async def _validate(self, file_id: str) -> None:
        """Let the service validate a file whose content is complete."""
        await self._api.repeat(lambda: self._api.request("POST", f"/files/{file_id}/preprocess"))

    async def upload(self, file: Path, name: str) -> str:
        with file.open("rb") as stream:
            checksum = file_digest(stream, "sha256").hexdigest()
        fields = {"purpose": "fine-tune", "file_name": name, "file_type": "jsonl", "checksum": checksum}
        try:
            head = await self._api.send_form("/files", fields)
        except UpstreamError as error:
            known = known_file(error)
            if known is not None:
                return known
            raise refused_upload(error, "Together") from None
        file_id, address = head.headers.get("x-together-file-id"), head.headers.get("location")
        if not file_id or not address:
            raise ProtocolError("Together answered an upload without an address for the content", status=502)
        await self._api.put_without_key(address, file)
        await self._validate(file_id)
        return file_id

    async def quote(self, plan: JobPlan) -> ServiceQuote | None:
        """Estimate the price, after the service has validated the files. Raise RefusedTrainingFile if they are invalid."""
        body: Object = {
            "training_file": plan.training_file,
            "model": plan.model,
            "n_epochs": plan.epochs,
            "training_method": {"method": "sft", "train_on_inputs": "auto"},
        }
        if plan.validation_file is not None:
            body.update(validation_file=plan.validation_file, n_evals=plan.epochs)
        for _ in range(_VALIDATION_LOOKS):
            found = await self._api.repeat(lambda: self._api.request("POST", "/fine-tunes/estimate-price", body))
            if found.get("estimation_available") is not False:
                return _read_quote(found)
            reason = found.get("unavailable_reason")
            if reason in ("train_file_invalid", "eval_file_invalid"):
                await self._refuse(plan, is_training=reason == "train_file_invalid")
            if reason not in ("train_file_not_validated", "eval_file_not_validated"):
                return ServiceQuote(None)
            await self._api.sleep(_VALIDATION_PAUSE)
        raise ProtocolError("Together has not validated the files in time", hint="continue later", status=504)

    async def _refuse(self, plan: JobPlan, *, is_training: bool) -> None:
        file_id = plan.training_file if is_training else plan.validation_file
        report = read_object(await self._api.get(f"/files/{file_id}"), "validation_report")
        reason = report.get("error") or "no reason given"
        raise RefusedTrainingFile(f"Together refused the file: {reason}", hint="correct the examples")

    async def find_job(self, plan: JobPlan) -> TuningJob | None:
        suffix = _suffix_of(plan)
        for job in read_list(await self._api.get("/fine-tunes")):
            if job.get("suffix") == suffix or suffix in (read_text(job, "model_output_name") or ""):
                return _read_job(job)
        return None

    async def create(self, plan: JobPlan) -> TuningJob:
        body: Object = {
            "training_file": plan.training_file,
            "model": plan.model,
            "n_epochs": plan.epochs,
            "suffix": _suffix_of(plan),
            "training_method": {"method": "sft", "train_on_inputs": "auto"},
        }
        optional: Object = {"random_seed": plan.seed, "learning_rate": plan.learning_rate}
        body.update({key: value for key, value in optional.items() if value is not None})
        if plan.validation_file is not None:
            body.update(validation_file=plan.validation_file, n_evals=plan.epochs)
        return _read_job(await self._api.request("POST", "/fine-tunes", body))

    async def start(self, job_id: str) -> None:
        raise AssertionError("a job of Together starts by itself")

    async def get(self, job_id: str) -> TuningJob:
        return _read_job(await self._api.get(f"/fine-tunes/{job_id}"))

    async def cancel(self, job_id: str) -> TuningJob:
        return _read_job(await self._api.request("POST", f"/fine-tunes/{job_id}/cancel"))

    async def progress(self, job_id: str) -> str:
        events = read_list(await self._api.get(f"/fine-tunes/{job_id}/events"))
        return str(events[-1].get("message") or "") if events else ""

    async def fetch(self, job: TuningJob, folder: Path) -> Object:
        """Return checkpoints, events and metrics. The weights, many gigabytes, stay at the service."""
        base = f"/fine-tunes/{job.id}"
        return {
            "checkpoints": read_list(await self._api.get(f"{base}/checkpoints")),
            "events": read_list(await self._api.get(f"{base}/events")),
            "metrics": read_list(await self._api.get(f"{base}/metrics"), "metrics"),
        }


def _suffix_of(plan: JobPlan) -> str:
    return f"{plan.suffix or 'toolwire'}-{plan.tag}"


def _read_quote(found: Object) -> ServiceQuote:
    """Read an estimate. Its problem is that the account's limit is below the price."""
    price = read_number(found, "estimated_total_price")
    problem = ""
    if found.get("allowed_to_proceed") is False:
        problem = (
            f"Together would not run the job: it costs {price} USD, and your limit is {found.get('user_limit')} USD"
        )
    return ServiceQuote(price, read_count(found, "estimated_train_token_count"), problem)


def _read_job(job: Object) -> TuningJob:
    status = require_text(job, "status")
    price = read_number(job, "total_price")
    events = read_list(job, "events")
    problem = next((str(event.get("message")) for event in reversed(events) if event.get("level") == "error"), "")
    return TuningJob(
        id=require_text(job, "id"),
        phase=_PHASES.get(status, "active"),
        status=status,
        model=read_text(job, "model_output_name"),
        problem=problem if status == "error" else "",
        trained_tokens=read_count(job, "token_count"),
        cost=price / _NANO if price else None,
        answer=job,
    )
