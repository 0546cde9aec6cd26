"""A fine-tuning job of a provider, from the examples to the results, in a folder from which every step continues.

    async with open_tuning_service(settings) as service:
        submission = Submission.create("runs/job", "train.jsonl", settings, service)
        report = await submission.run(confirm=ask)

Steps, each with what makes it safe to repeat after a kill at any point:

    prepare    The tag of the run, 16 random hexadecimal digits, is written before anything is sent. The data are
               converted, checked and counted again from the same input (its SHA-256 is in the manifest).
    confirm    Nothing is sent before the caller has confirmed the cost. The confirmation is written.
    upload     The name of the file has the tag. A file with the name and the size at the service is used.
    quote      Together estimates the price of uploaded files; Mistral the price of a created job that does not run yet.
               A caller confirms it, too.
    create     The time of the attempt is written before the request, which is sent once. Afterwards, and after every
               error that leaves open whether there is a job, the service is asked for the job of the tag.
    start      Only a job that still waits is started (Mistral).
    watch      The id of the job is known; the service runs it, whatever happens here.
    fetch      Results are written again from the beginning.

A job may become visible in a list some time after its creation. So a second attempt begins only when the service still
shows no job `settle_seconds` after the first one can have ended, and never in the process whose request failed: the
user runs the command again. The folder is locked meanwhile, so that two commands cannot both create a job.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, Self

import msgspec
from msgspec.structs import replace

from ...ir.errors import ConfigError, ProtocolError, ToolwireError
from ...ir.pointer import Object
from ...ir.response import UpstreamError
from ...ir.value import Value
from ..run_folder import RunFolder, hash_file
from .datasets import WrittenDataset, write_dataset
from .prices import CostEstimate, estimate_cost
from .service import JobPlan, ServiceQuote, TuningJob, TuningService
from .service_api import REQUEST_SECONDS, RefusedTrainingFile, is_certainly_unprocessed, is_unsent, retry_wait

_STATE = "state.json"
_RESULT = "result.json"
_TRAIN = "train.jsonl"
_VALIDATION = "validation.jsonl"
_UPLOADS = 4  # attempts of an upload; each sends the whole file again
_LOOK_PAUSE = 5.0  # seconds between two looks for a job whose creation was not answered
_MAX_FAILURES = 20  # polls in a row without an answer: ten minutes at the usual interval


class TuningJobFailed(ToolwireError):
    """The job ended without a model; the message has the service's reason."""

    default_status = 422


class CostExceeded(ToolwireError):
    """The cost of a job exceeds the limit of the caller, or the caller did not confirm it. Nothing was started."""

    default_status = 402


class UnknownCreation(ToolwireError):
    """The service did not answer the creation of a job, and shows no job yet. Continue in the folder later."""

    default_status = 502


class SubmitSettings(Value, frozen=True, kw_only=True):
    """The options of a submission, which cannot change when it continues.

    `to`: openai, mistral, together or vertex. `learning_rate`: a multiplier at OpenAI and Vertex AI. `price`: USD per
    million tokens, where none is known. `max_cost`: USD; a job that costs more, or an unknown amount, is not started.
    `bucket`: of Cloud Storage, such as `gs://name/folder`, for Vertex AI. `base_url`: another server with the same API.
    """

    to: str
    model: str
    epochs: int = 3  # OpenAI's own default for small files
    suffix: str | None = None
    seed: int | None = None
    learning_rate: float | None = None
    price: float | None = None
    max_cost: float | None = None
    bucket: str | None = None
    base_url: str | None = None


class CostQuestion(Value, frozen=True):
    """A cost to confirm. `estimate.usd` is None if it is unknown. `is_quote`: the service itself calculated it."""

    service: str
    estimate: CostEstimate
    files: tuple[WrittenDataset, ...]
    notice: str
    is_quote: bool = False
    is_quoted_later: bool = False  # the service will calculate the cost before the job starts


class SubmitReport(Value, frozen=True):
    """A submission, as far as it came. `job` is None before its creation."""

    service: str
    folder: str
    estimate: CostEstimate
    job: TuningJob | None
    results: Object = {}


class _SubmitState(Value, frozen=True, kw_only=True):
    """The state of a submission in the folder."""

    tag: str
    address: str  # of the service: another one does not have the files and the job
    training: WrittenDataset
    validation: WrittenDataset | None = None
    is_confirmed: bool = False
    training_file: str = ""
    validation_file: str | None = None
    quote: ServiceQuote | None = None
    is_quote_confirmed: bool = False
    attempted_at: float | None = None  # Unix time when a request that may have created the job began or failed
    job_id: str = ""


class Waiting(Value, frozen=True, kw_only=True):
    """The waits of a submission, in seconds."""

    poll_seconds: float = 30.0  # a job takes minutes to hours
    watch_seconds: float | None = None  # the longest time to watch; the job goes on
    settle_seconds: float = 60.0  # until a created job is in every list of the service
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
    clock: Callable[[], float] = time.time


_USUAL = Waiting()


class Submission:
    """A submission in a folder. `service` sends the requests."""

    def __init__(
        self, folder: RunFolder, settings: SubmitSettings, service: TuningService, waiting: Waiting = _USUAL
    ) -> None:
        self.folder = folder
        self.settings = settings
        self._service = service
        self._waiting = waiting
        self._on_status: Callable[[str], None] = _ignore

    @classmethod
    def create(
        cls,
        path: str | Path,
        source: str | Path,
        settings: SubmitSettings,
        service: TuningService,
        *,
        validation: str | Path | None = None,
        waiting: Waiting = _USUAL,
    ) -> Self:
        """Create the folder, and convert and check the data. Nothing is sent.

        Raise ConfigError if the folder contains a run, or for an option that the service does not have.
        """
        service.check_plan(_plan_of(settings, "check"))
        inputs = [source, *([validation] if validation is not None else [])]
        if validation is not None and Path(validation).resolve() == Path(source).resolve():
            raise ConfigError(f"{source} is given for training and for validation", hint="split it first")
        folder = RunFolder.create(path, msgspec.to_builtins(settings), inputs)
        submission = cls(folder, settings, service, waiting)
        with folder.preparing(), folder.locked():
            try:
                submission._prepare()
            except ToolwireError:
                submission.training_file.unlink(missing_ok=True)  # the corrected command can use the folder
                raise
        return submission

    @property
    def training_file(self) -> Path:
        return self.folder.path / _TRAIN

    def _prepare(self) -> _SubmitState:
        """Write the data and the first state, or return the state that an earlier process wrote."""
        if self.folder.has(_STATE):
            return self._read_state()
        inputs: dict[str, str] = self.folder.manifest["inputs"]
        for name, digest in inputs.items():
            if hash_file(Path(name)) != digest:
                raise ConfigError(f"{name} has changed since the run began", hint="use a new folder")
        source, *others = inputs
        rules = self._service.rules
        training = write_dataset(source, self.training_file, rules)
        validation = None
        if others:
            fewer = replace(rules, least_examples=1)
            validation = write_dataset(others[0], self.folder.path / _VALIDATION, fewer)
        tag, address = secrets.token_hex(8), self._service.address
        state = _SubmitState(tag=tag, address=address, training=training, validation=validation)
        self._write_state(state)
        return state

    async def run(
        self,
        *,
        confirm: Callable[[CostQuestion], bool],
        on_status: Callable[[str], None] | None = None,
        is_watching: bool = True,
    ) -> SubmitReport:
        """Do the steps that are not done yet, and return the report of a finished job.

        `confirm` is asked before anything is sent, and again with the service's own price if it has one. `on_status`
        receives a line for each change. Without `is_watching`, return after the job has started. Raise
        CostExceeded, RefusedTrainingFile, TuningJobFailed, UnknownCreation and UpstreamError, and TimeoutError after
        `watch_seconds`. A job at the service goes on after every error. Raise ConfigError while another process works in
        the folder.
        """
        self._on_status = on_status or _ignore
        with self.folder.locked():
            return await self._run(confirm, is_watching=is_watching)

    async def _run(self, confirm: Callable[[CostQuestion], bool], *, is_watching: bool) -> SubmitReport:
        state = self._prepare()
        if not state.is_confirmed:
            self._confirm(confirm, self._question(state))
            state = self._write_state(replace(state, is_confirmed=True))
        if not state.job_id:
            state = await self._upload_files(state)
            state = await self._confirm_quote(state, confirm)
            state = await self._create_job(state)
        job = await self._poll(state.job_id)
        job = await self._start(state, job, confirm)
        if not is_watching:
            return self._report(state, job)
        job = await self._watch(job)
        return await self._finish(state, job)

    async def cancel(self) -> SubmitReport:
        """Cancel the job, also one whose creation was not answered. A finished job is left as it is.

        A job with a known id can be cancelled while another process watches it.
        """
        state = self._read_state() if self.folder.has(_STATE) else None
        if state is None or not state.job_id:
            with self.folder.locked():
                state = await self._find_created(self._prepare())
        job = await self._service.get(state.job_id)
        if not job.is_final:
            job = await self._service.cancel(job.id)
        return self._report(state, job)

    async def _find_created(self, state: _SubmitState) -> _SubmitState:
        """Return the state with the id of a job whose creation was not answered."""
        if state.job_id:
            return state
        job = None if state.attempted_at is None else await self._look_for_job(state)
        if job is None:
            raise ConfigError(f"{self.folder.path} has no job to cancel", hint="continue with resume, or delete it")
        return self._write_state(replace(state, job_id=job.id))

    def _question(self, state: _SubmitState) -> CostQuestion:
        files = tuple(file for file in (state.training, state.validation) if file is not None)
        estimate = self._estimate(state)
        return CostQuestion(
            self._service.name, estimate, files, self._service.notice, is_quoted_later=self._service.is_quoted
        )

    def _estimate(self, state: _SubmitState) -> CostEstimate:
        given = self.settings
        return estimate_cost(given.to, given.model, state.training.tokens, given.epochs, given.price)

    def _confirm(self, confirm: Callable[[CostQuestion], bool], question: CostQuestion) -> None:
        """Raise CostExceeded unless the cost is within the limit and confirmed."""
        usd, limit = question.estimate.usd, self.settings.max_cost
        if limit is not None and usd is not None and usd > limit:
            message = f"the job would cost about {usd:.2f} USD, and the limit is {limit:.2f} USD"
            raise CostExceeded(message, hint="use fewer examples or epochs, or a new folder with a higher limit")
        if limit is not None and usd is None and not question.is_quoted_later:
            message = f"the cost in USD is unknown, and the limit is {limit:.2f} USD"
            raise CostExceeded(message, hint="use a new folder with the price, or without a limit")
        if not confirm(question):
            raise CostExceeded("the cost was not confirmed", hint="continue in the same folder to be asked again")

    async def _upload_files(self, state: _SubmitState) -> _SubmitState:
        if not state.training_file:
            file_id = await self._upload(self.training_file, f"toolwire-{state.tag}-train.jsonl", state.training.bytes)
            state = self._write_state(replace(state, training_file=file_id))
        if state.validation is not None and state.validation_file is None:
            name, size = f"toolwire-{state.tag}-validation.jsonl", state.validation.bytes
            file_id = await self._upload(self.folder.path / _VALIDATION, name, size)
            state = self._write_state(replace(state, validation_file=file_id))
        return state

    async def _upload(self, file: Path, name: str, size: int) -> str:
        """Upload a file, unless the service has it. An upload that was cut is repeated as a whole."""
        for attempt in range(1, _UPLOADS + 1):
            known = await self._service.find_file(name, size)
            if known is not None:
                return known
            self._on_status(f"uploading {name}: {size} bytes")
            try:
                return await self._service.upload(file, name)
            except UpstreamError as error:
                is_lasting = is_certainly_unprocessed(error) and error.fault.status != 429
                if (is_lasting and not is_unsent(error)) or attempt == _UPLOADS:
                    raise
                await self._waiting.sleep(retry_wait(error, attempt))
        raise AssertionError("the last attempt returns or raises")

    async def _confirm_quote(self, state: _SubmitState, confirm: Callable[[CostQuestion], bool]) -> _SubmitState:
        """Confirm the price that the service itself estimates for the uploaded files."""
        if state.is_quote_confirmed or state.attempted_at is not None:
            return state
        quote = await self._service.quote(self._plan(state))
        if quote is None:
            return state
        if quote.problem:
            raise CostExceeded(quote.problem, hint="the files are uploaded, and no job was created")
        self._confirm(confirm, self._quote_question(state, quote))
        return self._write_state(replace(state, quote=quote, is_quote_confirmed=True))

    def _quote_question(self, state: _SubmitState, quote: ServiceQuote) -> CostQuestion:
        tokens = quote.tokens or state.training.tokens * self.settings.epochs
        estimate = CostEstimate(tokens, quote.usd, f"calculated by {self._service.name}")
        return replace(self._question(state), estimate=estimate, is_quote=True, is_quoted_later=False)

    async def _create_job(self, state: _SubmitState) -> _SubmitState:
        """Create the job, unless there is one. Raise UnknownCreation if that stays open."""
        plan = self._plan(state)
        job = await self._look_for_job(state)
        if job is None:
            try:
                job = await self._create_once(plan, state)
            except (UpstreamError, ProtocolError) as error:
                if isinstance(error, UpstreamError) and is_certainly_unprocessed(error):
                    self._write_state(replace(state, attempted_at=None))
                    raise
                # The request may have taken long: the time until its job is visible begins now.
                state = self._write_attempt(state)
                job = await self._look_for_job(state, request_seconds=0)
                if job is None:
                    message = f"{error.message}; {self._service.name} shows no job of this run"
                    hint = "continue in the same folder: it looks again before it creates a job"
                    raise UnknownCreation(message, hint=hint) from None
        self._on_status(f"job {job.id}: {job.status}")
        return self._write_state(replace(state, job_id=job.id))

    def _write_attempt(self, state: _SubmitState) -> _SubmitState:
        return self._write_state(replace(state, attempted_at=self._waiting.clock()))

    async def _create_once(self, plan: JobPlan, state: _SubmitState) -> TuningJob:
        """Send the request that creates a job; again only after the service refused it because of its rate."""
        for attempt in range(1, _UPLOADS + 1):
            self._write_attempt(state)
            try:
                return await self._service.create(plan)
            except UpstreamError as error:
                if not (error.fault.status == 429 or is_unsent(error)) or attempt == _UPLOADS:
                    raise
                await self._waiting.sleep(retry_wait(error, attempt))
        raise AssertionError("the last attempt returns or raises")

    async def _look_for_job(self, state: _SubmitState, *, request_seconds: float = REQUEST_SECONDS) -> TuningJob | None:
        """Return the job of this run. After an attempt, look until the service must show it.

        `request_seconds`: how long after `attempted_at` the request may have been processed.
        """
        plan, waiting = self._plan(state), self._waiting
        hidden_seconds = request_seconds + waiting.settle_seconds
        while True:
            job = await self._service.find_job(plan)
            if job is not None or state.attempted_at is None:
                return job
            if waiting.clock() >= state.attempted_at + hidden_seconds:
                return None
            await waiting.sleep(_LOOK_PAUSE)

    async def _start(self, state: _SubmitState, job: TuningJob, confirm: Callable[[CostQuestion], bool]) -> TuningJob:
        """Wait until a job is validated, confirm its price, and start it; for services whose jobs wait."""
        while job.phase == "checking":
            await self._waiting.sleep(self._waiting.poll_seconds)
            job = await self._poll(job.id)
        if job.phase != "waiting":
            return job
        if not state.is_quote_confirmed:
            usd = job.cost if job.currency == "USD" else None  # limits and confirmations are in USD
            quote = ServiceQuote(usd, job.trained_tokens)
            self._confirm(confirm, self._quote_question(state, quote))
            self._write_state(replace(state, quote=quote, is_quote_confirmed=True))
        await self._service.start(job.id)
        return await self._service.get(job.id)

    async def _poll(self, job_id: str) -> TuningJob:
        """Return the job. A service may be out of order for some minutes while a job runs."""
        for failures in range(1, _MAX_FAILURES + 1):
            try:
                return await self._service.get(job_id)
            except UpstreamError as error:
                is_lasting = error.fault.status < 500 and error.fault.status != 429
                if is_lasting or failures == _MAX_FAILURES:
                    raise
                await self._waiting.sleep(self._waiting.poll_seconds)
        raise AssertionError("the last attempt returns or raises")

    async def _watch(self, job: TuningJob) -> TuningJob:
        """Poll the job until it is final. Raise TimeoutError after `watch_seconds`."""
        waiting = self._waiting
        end = None if waiting.watch_seconds is None else waiting.clock() + waiting.watch_seconds
        shown = ""
        while not job.is_final:
            with suppress(UpstreamError):  # only the text would be missing
                line = f"{job.status} {await self._service.progress(job.id)}".strip()
                if line != shown:
                    self._on_status(line)
                    shown = line
            if end is not None and waiting.clock() >= end:
                raise TimeoutError(f"the job {job.id} still runs")
            await waiting.sleep(waiting.poll_seconds)
            job = await self._poll(job.id)
        return job

    async def _finish(self, state: _SubmitState, job: TuningJob) -> SubmitReport:
        """Fetch the results of a finished job, or raise the service's reason."""
        if job.phase == "done":
            results = await self._service.fetch(job, self.folder.path)
        else:
            results = {}
        report = self._report(state, job, results)
        self.folder.write_json(_RESULT, report)
        if job.phase == "done":
            return report
        reason = job.problem or f"the job {job.id} is {job.status}"
        if job.is_file_problem:
            raise RefusedTrainingFile(f"{self._service.name} refused the training data: {reason}")
        raise TuningJobFailed(reason, hint=f"the whole answer is in {self.folder.path / _RESULT}")

    def _plan(self, state: _SubmitState) -> JobPlan:
        plan = _plan_of(self.settings, state.tag)
        return replace(plan, training_file=state.training_file, validation_file=state.validation_file)

    def _report(self, state: _SubmitState, job: TuningJob | None, results: Object | None = None) -> SubmitReport:
        return SubmitReport(self._service.name, str(self.folder.path), self._estimate(state), job, results or {})

    def _read_state(self) -> _SubmitState:
        try:
            state = msgspec.convert(self.folder.read_json(_STATE), _SubmitState)
        except msgspec.ValidationError as error:
            raise ConfigError(f"{self.folder.path / _STATE} is damaged: {error}", hint="use another folder") from None
        if state.address != self._service.address:
            raise ConfigError(
                f"the run began at {state.address}, and the environment names {self._service.address}",
                hint="set the variables of the address, the project and the location as before",
            )
        return state

    def _write_state(self, state: _SubmitState) -> _SubmitState:
        self.folder.write_json(_STATE, state)
        return state


def open_settings(folder: RunFolder) -> SubmitSettings:
    """Return the settings of the run in a folder. Raise ConfigError if it is another kind of run."""
    try:
        return msgspec.convert(folder.manifest["settings"], SubmitSettings)
    except msgspec.ValidationError:
        raise ConfigError(f"{folder.path} contains no submission", hint="give its folder") from None


def _plan_of(given: SubmitSettings, tag: str) -> JobPlan:
    fields: dict[str, Any] = {name: getattr(given, name) for name in ("model", "epochs", "suffix", "seed")}
    return JobPlan(tag=tag, learning_rate=given.learning_rate, **fields)


def _ignore(_: str) -> None:
    pass
