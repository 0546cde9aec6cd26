"""Mock fine-tuning services, whose accepted requests and answers are judged by the official SDKs' own types.

A service is a function of a request; `Wire` serves it without sockets, `serve` over HTTP. The SDKs of OpenAI and Google
are always installed; those of Mistral (2.4, the last with fine-tuning) and Together judge where they are installed.
"""

import json
import re
import threading
from contextlib import contextmanager
from email.parser import BytesParser
from email.policy import HTTP
from functools import cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, unquote, urlsplit

from pydantic import TypeAdapter

try:
    from mistralai.client import models as mistral_types
except ImportError:
    mistral_types = None
try:
    import together.types as together_types
except ImportError:
    together_types = None

adapter = cache(TypeAdapter)  # building one takes 25 ms
CREATED = 1_790_000_000
KEY = "test-key"


def judged(kind, value):
    """Return a JSON value after the SDK's type has accepted it; `kind` is None without the SDK."""
    if kind is not None:
        adapter(kind).validate_python(value)
    return value


def known_fields(kind, body):
    """Fail if a body has fields that the SDK's TypedDict does not have, then validate the others."""
    assert set(body) <= set(kind.__annotations__), set(body) - set(kind.__annotations__)
    exhaust(adapter(kind).validate_python(body))


def exhaust(value):
    """pydantic validates an Iterable when it is read, so read everything."""
    for item in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        exhaust(item)


def mistral(name):
    return None if mistral_types is None else getattr(mistral_types, name, None)


@cache
def together(module, name):
    if together_types is None:
        return None
    from importlib import import_module

    return getattr(import_module(f"together.types.{module}"), name)


class Answer(Exception):
    def __init__(self, status, body=None, headers=None):
        super().__init__(status)
        self.status = status
        self.body = body if isinstance(body, bytes) else json.dumps({} if body is None else body).encode()
        self.headers = {"content-type": "application/json", **(headers or {})}


class Call:
    """A request: `query` has the last value of each parameter, `form` the parts of a multipart body."""

    def __init__(self, method, target, headers, body):
        parts = urlsplit(target)
        self.method = method
        self.path = unquote(parts.path)
        self.query = {name: values[-1] for name, values in parse_qs(parts.query).items()}
        self.headers = {name.lower(): value for name, value in headers.items()}
        self.data = body

    @property
    def name(self):
        return f"{self.method} {self.path}"

    @property
    def json(self):
        assert self.headers["content-type"] == "application/json"
        return json.loads(self.data)

    @property
    def form(self):
        head = f"content-type: {self.headers['content-type']}\r\n\r\n".encode()
        message = BytesParser(policy=HTTP).parsebytes(head + self.data)
        return {
            part.get_param("name", header="content-disposition"): (part.get_filename(), part.get_payload(decode=True))
            for part in message.iter_parts()
        }


class Service:
    """Files, jobs and scripted states. `states` are the states that a job passes, one for each look at it."""

    prefix = "/v1"
    states = ()
    is_frozen = False  # jobs keep their state

    def __init__(self):
        self.files = {}
        self.jobs = {}
        self.calls = []
        self.faults = []
        self.failure = None
        self.lock = threading.Lock()

    def handle(self, call):
        with self.lock:
            try:
                self.calls.append(call)
                fault = next((one for one in self.faults if re.fullmatch(one.request, call.name)), None)
                if fault is not None:
                    fault.times -= 1
                    if not fault.times:
                        self.faults.remove(fault)
                    if not fault.after:
                        raise fault.answer
                answer = self.answer(call)
                if fault is not None:
                    raise fault.answer
                return answer
            except Answer as answer:
                return answer

    def fail(self, request, status, body=None, headers=None, *, times=1, after=False):
        """Answer the next requests with an error; `after`: the service has executed them."""
        self.faults.append(Fault(request, Answer(status, body, headers), times, after))

    def drop(self, request, *, times=1, after=False):
        """Close the connection instead of an answer."""
        self.faults.append(Fault(request, Answer(0), times, after))

    def answer(self, call):
        if call.headers.get("authorization") != f"Bearer {KEY}":
            return Answer(401, {"error": {"message": "Incorrect API key provided", "code": "invalid_api_key"}})
        path = call.path.removeprefix(self.prefix)
        for pattern, method in self.routes:
            found = re.fullmatch(pattern, f"{call.method} {path}")
            if found:
                return Answer(200, getattr(self, method)(call, *found.groups()))
        return Answer(404, {"error": {"message": f"no route {call.name}"}})

    def names(self):
        return [call.name for call in self.calls]

    def advance(self, job, key="status"):
        """Move a job to its next state."""
        states = self.states if self.failure is None else self.failed_states
        if job[key] in states[:-1] and not self.is_frozen:
            job[key] = states[states.index(job[key]) + 1]

    def job(self, job_id):
        if job_id not in self.jobs:
            raise Answer(404, {"error": {"message": f"no job {job_id}"}})
        return self.jobs[job_id]


class Fault:
    def __init__(self, request, answer, times, after):
        self.request = request
        self.answer = answer
        self.times = times
        self.after = after


class OpenAIMock(Service):
    states = ("validating_files", "queued", "running", "succeeded")
    failed_states = ("validating_files", "failed")
    routes = (
        (r"GET /files", "list_files"),
        (r"POST /files", "upload"),
        (r"GET /files/([\w-]+)/content", "content"),
        (r"GET /fine_tuning/jobs", "list_jobs"),
        (r"POST /fine_tuning/jobs", "create"),
        (r"GET /fine_tuning/jobs/([\w-]+)", "get"),
        (r"POST /fine_tuning/jobs/([\w-]+)/cancel", "cancel"),
        (r"GET /fine_tuning/jobs/([\w-]+)/events", "events"),
        (r"GET /fine_tuning/jobs/([\w-]+)/checkpoints", "checkpoints"),
    )

    def page(self, kind, rows, call):
        """A page of at most two rows, so that lists have several."""
        ids = [row["id"] for row in rows]
        start = ids.index(call.query["after"]) + 1 if "after" in call.query else 0
        shown = [judged(kind, row) for row in rows[start : start + 2]]
        return {"object": "list", "data": shown, "has_more": start + 2 < len(rows)}

    def list_files(self, call):
        from openai.types import FileObject

        return self.page(FileObject, [row for row, _ in self.files.values()], call)

    def upload(self, call):
        from openai.types import FileObject

        form = call.form
        assert set(form) == {"purpose", "file"} and form["purpose"][1] == b"fine-tune"
        name, data = form["file"]
        row = {
            "id": f"file-{len(self.files)}",
            "object": "file",
            "bytes": len(data),
            "created_at": CREATED,
            "filename": name,
            "purpose": "fine-tune",
            "status": "processed",
        }
        self.files[row["id"]] = row, data
        return judged(FileObject, row)

    def content(self, call, file_id):
        raise Answer(200, b"step,train_loss\n1,0.5\n", {"content-type": "text/csv"})

    def list_jobs(self, call):
        from openai.types.fine_tuning import FineTuningJob

        wanted = call.query.get("metadata[toolwire_run]")
        rows = [job for job in self.jobs.values() if wanted in (None, (job["metadata"] or {}).get("toolwire_run"))]
        return self.page(FineTuningJob, rows, call)

    def create(self, call):
        from openai.types.fine_tuning import FineTuningJob
        from openai.types.fine_tuning.job_create_params import JobCreateParams

        body = call.json
        known_fields(JobCreateParams, body)
        if body["training_file"] not in self.files:
            raise Answer(400, {"error": {"message": "invalid training_file", "param": "training_file"}})
        job = {
            "id": f"ftjob-{len(self.jobs)}",
            "object": "fine_tuning.job",
            "created_at": CREATED,
            "error": None,
            "fine_tuned_model": None,
            "finished_at": None,
            "hyperparameters": {"n_epochs": body["method"]["supervised"]["hyperparameters"]["n_epochs"]},
            "model": body["model"],
            "organization_id": "org-1",
            "result_files": [],
            "seed": body.get("seed", 7),
            "status": "validating_files",
            "trained_tokens": None,
            "training_file": body["training_file"],
            "validation_file": body.get("validation_file"),
            "metadata": body.get("metadata"),
            "method": body["method"],
        }
        self.jobs[job["id"]] = job
        return judged(FineTuningJob, job)

    def get(self, call, job_id):
        from openai.types.fine_tuning import FineTuningJob

        job = self.job(job_id)
        self.advance(job)
        if job["status"] == "succeeded":
            job.update(fine_tuned_model=f"ft:{job['model']}:org::1", trained_tokens=900, result_files=["file-results"])
        if job["status"] == "failed":
            job["error"] = self.failure
        return judged(FineTuningJob, job)

    def cancel(self, call, job_id):
        from openai.types.fine_tuning import FineTuningJob

        job = self.job(job_id)
        job["status"] = "cancelled"
        return judged(FineTuningJob, job)

    def events(self, call, job_id):
        from openai.types.fine_tuning import FineTuningJobEvent

        self.job(job_id)
        rows = [
            {
                "id": f"ftevent-{number}",
                "object": "fine_tuning.job.event",
                "created_at": CREATED + number,
                "level": "info",
                "message": f"Step {number}/3",
                "type": "message",
            }
            for number in (3, 2, 1)
        ]
        return self.page(FineTuningJobEvent, rows, call)

    def checkpoints(self, call, job_id):
        from openai.types.fine_tuning.jobs import FineTuningJobCheckpoint

        row = {
            "id": "ftckpt-1",
            "object": "fine_tuning.job.checkpoint",
            "created_at": CREATED,
            "fine_tuned_model_checkpoint": "ft:model:ckpt-step-2",
            "fine_tuning_job_id": job_id,
            "metrics": {"step": 2, "train_loss": 0.5},
            "step_number": 2,
        }
        return self.page(FineTuningJobCheckpoint, [row], call)


class MistralMock(Service):
    states = ("QUEUED", "VALIDATING", "VALIDATED")
    running = ("VALIDATED", "RUNNING", "SUCCESS")
    currency = "USD"
    failed_states = ("QUEUED", "VALIDATING", "FAILED_VALIDATION")
    routes = (
        (r"GET /files", "list_files"),
        (r"POST /files", "upload"),
        (r"GET /fine_tuning/jobs", "list_jobs"),
        (r"POST /fine_tuning/jobs", "create"),
        (r"GET /fine_tuning/jobs/([\w-]+)", "get"),
        (r"POST /fine_tuning/jobs/([\w-]+)/start", "start"),
        (r"POST /fine_tuning/jobs/([\w-]+)/cancel", "cancel"),
    )

    def list_files(self, call):
        rows = [row for row, _ in self.files.values() if call.query.get("search", "") in row["filename"]]
        return judged(mistral("ListFilesResponse"), {"data": rows, "object": "list", "total": len(rows)})

    def upload(self, call):
        form = call.form
        assert set(form) <= {"purpose", "file", "visibility"} and form["purpose"][1] == b"fine-tune"
        name, data = form["file"]
        row = {
            "id": f"0000000{len(self.files)}",
            "object": "file",
            "bytes": len(data),
            "created_at": CREATED,
            "filename": name,
            "purpose": "fine-tune",
            "sample_type": "instruct",
            "source": "upload",
        }
        self.files[row["id"]] = row, data
        return judged(mistral("CreateFileResponse"), row)

    def list_jobs(self, call):
        rows = list(self.jobs.values())
        start = int(call.query.get("page", 0)) * int(call.query.get("page_size", 100))
        document = {"data": rows[start : start + 100], "object": "list", "total": len(rows)}
        return judged(mistral("ListFineTuningJobsResponse"), document)

    def create(self, call):
        body = call.json
        kind = mistral("CreateFineTuningJobRequestTypedDict")
        if kind is not None:
            known_fields(kind, body)
            mistral_types.CompletionTrainingParameters.model_validate(body["hyperparameters"])
        assert body["training_files"][0]["file_id"] in self.files
        job = {
            "id": f"job-{len(self.jobs)}",
            "object": "job",
            "job_type": "completion",
            "auto_start": body["auto_start"],
            "model": body["model"],
            "status": "QUEUED",
            "created_at": CREATED,
            "modified_at": CREATED,
            "training_files": [one["file_id"] for one in body["training_files"]],
            "validation_files": body.get("validation_files"),
            "hyperparameters": body["hyperparameters"],
            "suffix": body.get("suffix"),
            "metadata": None,
        }
        self.jobs[job["id"]] = job
        return judged(mistral("CompletionFineTuningJob"), job)

    def get(self, call, job_id):
        job = self.job(job_id)
        if job.get("is_started"):
            if job["status"] in self.running[:-1] and not self.is_frozen:
                job["status"] = self.running[self.running.index(job["status"]) + 1]
        else:
            self.advance(job)
        if job["status"] == "VALIDATED":
            job["metadata"] = {"cost": 4.5, "cost_currency": self.currency, "train_tokens": 900}
        if job["status"] == "SUCCESS":
            job.update(fine_tuned_model="ft:ministral:abc", trained_tokens=900)
        failed = job["status"] == "FAILED_VALIDATION"
        details = {
            **{key: value for key, value in job.items() if key != "is_started"},
            "events": [{"name": "status-updated", "created_at": CREATED, "data": self.failure}] if failed else [],
            "checkpoints": [
                {"metrics": {"train_loss": 0.5}, "step_number": 2, "created_at": CREATED},
            ],
        }
        return judged(mistral("CompletionFineTuningJobDetails"), details)

    def start(self, call, job_id):
        job = self.job(job_id)
        assert job["status"] == "VALIDATED"
        job["is_started"] = True
        return {key: value for key, value in job.items() if key != "is_started"}

    def cancel(self, call, job_id):
        job = self.job(job_id)
        job["status"] = "CANCELLED"
        return {**{key: value for key, value in job.items() if key != "is_started"}, "events": [], "checkpoints": []}


class TogetherMock(Service):
    states = ("pending", "queued", "running", "completed")
    failed_states = ("pending", "error")
    routes = (
        (r"GET /files", "list_files"),
        (r"POST /files", "announce"),
        (r"GET /files/([\w-]+)", "get_file"),
        (r"POST /files/([\w-]+)/preprocess", "preprocess"),
        (r"POST /fine-tunes/estimate-price", "estimate"),
        (r"GET /fine-tunes/models/limits", "limits"),
        (r"GET /fine-tunes", "list_jobs"),
        (r"POST /fine-tunes", "create"),
        (r"GET /fine-tunes/([\w-]+)", "get"),
        (r"POST /fine-tunes/([\w-]+)/cancel", "cancel"),
        (r"GET /fine-tunes/([\w-]+)/events", "events"),
        (r"GET /fine-tunes/([\w-]+)/checkpoints", "checkpoints"),
        (r"GET /fine-tunes/([\w-]+)/metrics", "metrics"),
    )
    url = "https://storage.invalid"
    is_invalid = False
    limit = 100.0
    price = 1.25

    def answer(self, call):
        if call.path.startswith("/storage/"):
            assert call.method == "PUT" and "authorization" not in call.headers
            file_id = call.path.removeprefix("/storage/")
            row, _ = self.files[file_id]
            row["bytes"] = len(call.data)
            self.files[file_id] = row, call.data
            return Answer(200, b"")
        return super().answer(call)

    def list_files(self, call):
        return judged(together("file_list", "FileList"), {"data": [row for row, _ in self.files.values()]})

    def announce(self, call):
        form = {name: value.decode() for name, (_, value) in call.form.items()}
        assert set(form) == {"purpose", "file_name", "file_type", "checksum"} and form["purpose"] == "fine-tune"
        for row, data in self.files.values():
            if data is not None and row["checksum"] == form["checksum"]:
                raise Answer(409, {"file_id": row["id"]})
        row = {
            "id": f"file-{len(self.files)}",
            "object": "file",
            "bytes": 0,
            "created_at": CREATED,
            "filename": form["file_name"],
            "FileType": form["file_type"],
            "purpose": "fine-tune",
            "processing_status": "PENDING",
            "checksum": form["checksum"],
        }
        self.files[row["id"]] = row, None
        headers = {"location": f"{self.url}/storage/{row['id']}", "x-together-file-id": row["id"]}
        raise Answer(302, b"", headers)

    def get_file(self, call, file_id):
        row, _ = self.files[file_id]
        report = {"valid": not self.is_invalid, "error": "line 3: no messages" if self.is_invalid else None}
        return judged(together("file_response", "FileResponse"), {**row, "validation_report": report})

    def preprocess(self, call, file_id):
        row, data = self.files[file_id]
        assert data is not None
        row["processing_status"] = "RUNNING"
        return judged(together("file_response", "FileResponse"), row)

    def estimate(self, call):
        body = call.json
        kind = together("fine_tuning_estimate_price_params", "FineTuningEstimatePriceParams")
        if kind is not None:
            known_fields(kind, body)
        row, _ = self.files[body["training_file"]]
        if row["processing_status"] == "RUNNING":  # one look before it is validated
            row["processing_status"] = "INVALID_FORMAT" if self.is_invalid else "COMPLETED"
            reason = "train_file_not_validated"
        elif row["processing_status"] == "PENDING":  # nobody has requested its validation
            reason = "train_file_not_validated"
        elif self.is_invalid:
            reason = "train_file_invalid"
        else:
            found = {
                "estimation_available": True,
                "allowed_to_proceed": self.price <= self.limit,
                "estimated_total_price": self.price,
                "estimated_train_token_count": 900,
                "user_limit": self.limit,
            }
            return judged(together("fine_tuning_estimate_price_response", "AvailableEstimate"), found)
        found = {"estimation_available": False, "unavailable_reason": reason}
        return judged(together("fine_tuning_estimate_price_response", "UnavailableEstimate"), found)

    def limits(self, call):
        return {
            "max_num_epochs": 20,
            "max_num_evals": 100,
            "max_learning_rate": 1.0,
            "min_learning_rate": 1e-6,
            "min_max_seq_length": 1,
            "max_seq_length_sft": 8192,
            "max_seq_length_dpo": 8192,
            "supports_vision": False,
            "supports_tools": True,
            "supports_reasoning": False,
            "supports_full_training": True,
            "merge_output_lora": False,
            "model_name": call.query.get("model_name", ""),
            "lora_training": {
                "max_batch_size": 8,
                "max_batch_size_dpo": 8,
                "min_batch_size": 1,
                "max_rank": 64,
                "default_rank": 8,
                "target_modules": ["q"],
            },
        }

    def short(self, job):
        return judged(together("fine_tuning_list_response", "Data"), {k: v for k, v in job.items() if k != "events"})

    def list_jobs(self, call):
        return {"data": [self.short(job) for job in self.jobs.values()]}

    def create(self, call):
        body = call.json
        if together_types is not None:
            from together.lib.types.fine_tuning import FinetuneRequest

            assert set(body) <= set(FinetuneRequest.model_fields), set(body) - set(FinetuneRequest.model_fields)
            defaults = {"learning_rate": 1e-5, "warmup_ratio": 0, "max_grad_norm": 1, "weight_decay": 0}
            FinetuneRequest.model_validate({**defaults, **body})
        assert self.files[body["training_file"]][1] is not None
        job = {
            "id": f"ft-{len(self.jobs)}",
            "created_at": "2026-11-19T10:00:00Z",
            "updated_at": "2026-11-19T10:00:00Z",
            "user_id": "user-1",
            "status": "pending",
            "model": body["model"],
            "training_file": body["training_file"],
            "validation_file": body.get("validation_file"),
            "suffix": body.get("suffix"),
            "n_epochs": body["n_epochs"],
            "total_price": 0,
        }
        self.jobs[job["id"]] = job
        return self.short(job)

    def get(self, call, job_id):
        job = self.job(job_id)
        self.advance(job)
        if job["status"] == "completed":
            name = f"me/{job['model']}-{job['suffix']}"
            job.update(model_output_name=name, token_count=900, total_price=1_250_000_000)
        if job["status"] == "error":
            job["events"] = [self.event("job_error", self.failure, "error")]
        return judged(together("finetune_response", "FinetuneResponse"), job)

    def cancel(self, call, job_id):
        job = self.job(job_id)
        job["status"] = "cancelled"
        return self.short(job)

    def event(self, kind, message, level="info"):
        row = {"object": "fine-tune-event", "created_at": "x", "type": kind, "message": message, "level": level}
        return judged(together("finetune_event", "FinetuneEvent"), row)

    def events(self, call, job_id):
        self.job(job_id)
        return {
            "data": [self.event("job_pending", "Job is pending"), self.event("epoch_complete", "Epoch 1 completed")]
        }

    def checkpoints(self, call, job_id):
        row = {"checkpoint_type": "Final", "created_at": "2026-11-19T10:00:00Z", "path": "s3://x", "step": 2}
        return {"data": [judged(together("fine_tuning_list_checkpoints_response", "Data"), row)]}

    def metrics(self, call, job_id):
        return {"metrics": [{"train/loss": 0.5, "train/global_step": 1.0}]}


class VertexMock(Service):
    prefix = "/v1beta1/projects/demo/locations/us-central1"
    states = ("JOB_STATE_PENDING", "JOB_STATE_RUNNING", "JOB_STATE_SUCCEEDED")
    failed_states = ("JOB_STATE_PENDING", "JOB_STATE_FAILED")
    routes = (
        (r"GET /tuningJobs", "list_jobs"),
        (r"POST /tuningJobs", "create"),
        (r"GET /tuningJobs/(\d+)", "get"),
        (r"POST /tuningJobs/(\d+):cancel", "cancel"),
        (r"GET /storage/v1/b/data/o", "list_objects"),
        (r"GET /storage/v1/b/data/o/(.+)", "get_object"),
        (r"POST /upload/storage/v1/b/data/o", "upload"),
    )

    def upload(self, call):
        name = call.query["name"]
        assert call.query["uploadType"] == "media" and call.query["ifGenerationMatch"] == "0"
        if name in self.files:
            raise Answer(412, {"error": {"code": 412, "message": "At least one of the pre-conditions did not hold."}})
        row = {"kind": "storage#object", "name": name, "bucket": "data", "size": str(len(call.data))}
        self.files[name] = row, call.data
        return row

    def get_object(self, call, name):
        if name.startswith("metrics/"):
            raise Answer(200, b'{"loss": 0.5}\n')
        if name not in self.files:
            raise Answer(404, {"error": {"code": 404, "message": f"No such object: data/{name}"}})
        return self.files[name][0]

    def list_objects(self, call):
        return {"kind": "storage#objects", "items": [{"name": "metrics/train.jsonl", "size": "14"}]}

    def list_jobs(self, call):
        return {"tuningJobs": [self.answer_of(job) for job in self.jobs.values()]}

    def answer_of(self, job):
        from google.genai.types import TuningJob

        return judged(TuningJob, job)

    def create(self, call):
        from google.genai import types

        body = call.json
        known = {"baseModel", "supervisedTuningSpec", "tunedModelDisplayName", "labels", "description"}
        assert set(body) <= known, set(body) - known
        types.SupervisedTuningSpec.model_validate(body["supervisedTuningSpec"])
        uri = body["supervisedTuningSpec"]["trainingDatasetUri"]
        assert uri.removeprefix("gs://data/") in self.files
        number = str(100 + len(self.jobs))
        job = {
            "name": f"projects/demo/locations/us-central1/tuningJobs/{number}",
            "state": "JOB_STATE_PENDING",
            "createTime": "2026-11-19T10:00:00Z",
            **body,
        }
        self.jobs[number] = job
        return self.answer_of(job)

    def get(self, call, number):
        job = self.job(number)
        self.advance(job, "state")
        if job["state"] == "JOB_STATE_RUNNING":
            job["tuningJobState"] = "TUNING_JOB_STATE_TUNING"
        if job["state"] == "JOB_STATE_SUCCEEDED":
            job["tunedModel"] = {
                "model": "projects/demo/locations/us-central1/models/9@1",
                "endpoint": "projects/demo/locations/us-central1/endpoints/8",
                "checkpoints": [{"checkpointId": "1", "epoch": "1", "step": "2", "endpoint": "e"}],
            }
            job["tuningDataStats"] = {"supervisedTuningDataStats": {"totalBillableTokenCount": "900"}}
            job["gcsMetricsUri"] = "gs://data/metrics"
        if job["state"] == "JOB_STATE_FAILED":
            job["error"] = self.failure
        return self.answer_of(job)

    def cancel(self, call, number):
        self.job(number)["state"] = "JOB_STATE_CANCELLED"
        return {}


class Wire:
    """A transport without sockets. `before(name)` and `after(name)` are called around each request."""

    def __init__(self, service, around=None):
        self.service = service
        self.around = around or (lambda name: None)

    def send(self, method, url, headers, secrets, body, seconds):
        return _Exchange(self, method, url, {**headers, **secrets}, body)


class _Exchange:
    def __init__(self, wire, method, url, headers, body):
        self.wire, self.method, self.url, self.all_headers, self.body = wire, method, url, headers, body

    async def __aenter__(self):
        data = self.body
        if not isinstance(data, bytes):
            data = b"".join([chunk async for chunk in data.chunks])
        parts = urlsplit(self.url)
        target = parts.path + (f"?{parts.query}" if parts.query else "")
        self.wire.around(f"before {self.method} {parts.path}")
        answer = self.wire.service.handle(Call(self.method, target, self.all_headers, data))
        self.wire.around(f"after {self.method} {parts.path}")
        if not answer.status:
            raise ConnectionError("the connection was closed")
        self.status, self.headers, self.rest = answer.status, answer.headers, [answer.body, b""]
        return self

    async def read(self):
        return self.rest.pop(0)

    async def __aexit__(self, *_):
        pass


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        data = self.rfile.read(int(self.headers.get("content-length", 0)))
        answer = self.server.service.handle(Call(self.command, self.path, dict(self.headers), data))
        if not answer.status:
            self.close_connection = True
            return
        self.send_response(answer.status)
        for name, value in answer.headers.items():
            self.send_header(name, value)
        self.send_header("content-length", str(len(answer.body)))
        self.end_headers()
        self.wfile.write(answer.body)

    do_POST = do_PUT = do_GET

    def log_message(self, *_):
        pass


class _Server(ThreadingHTTPServer):
    daemon_threads = True


@contextmanager
def serve(service):
    """Serve over HTTP on loopback; yields the origin."""
    server = _Server(("127.0.0.1", 0), _Handler)
    server.service = service
    service.url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    try:
        yield service.url
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
