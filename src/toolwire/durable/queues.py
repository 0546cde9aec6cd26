"""The queues of a store: their database, their limits, and the segments in them.

DBOS has the queues in a database of its own. It is PostgreSQL for many machines. For one machine it is an SQLite file, which DBOS
recommends for development and testing only.
"""

from __future__ import annotations

import os
import secrets
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any, Self

import dbos
import msgspec
from sqlalchemy.exc import SQLAlchemyError

from ..ir.errors import ConfigError
from ..net.stores import open_store
from ..net.stores.address import server_error
from ..run.values.records import DAY, WEEK
from .jobs import DEFAULT_QUEUE, RUN_WORKFLOW, WORKFLOWS, Job, read_job, segment_id, split_segment_id

WORKER_KEY = "toolwire-worker/"
"""The beginning of the keys under which the store has the heartbeats of workers."""

StartRate = tuple[int, float]
"""A number of starts, and the seconds in which they may happen."""

_QUEUE_POLL = 0.5  # seconds between two looks of a worker at a queue: one small query, and half of it is the mean delay
_WORKER_RUNS = 16  # runs of a queue in one process; an agent mostly waits for its model
_MAX_WORKERS = 10_000  # records that are read to find the workers: these, and the calls in progress
_KEPT = WEEK + DAY  # seconds; a run that waits for longer has expired in its store
_MAX_DELAY = 366 * DAY  # a longer one is a mistake, such as a time in place of a duration
_SWEEP_BATCH = 500  # entries that are deleted in one statement
_PAGE_SEGMENTS = 8  # of a run, which are looked up at once; few runs have more
_PAGE_IDS = 4000  # ids in one statement; SQLite and PostgreSQL accept at least 32,766 parameters
_PAGE_JOBS = 50  # whose prompts are in memory at once
# All workers of a set of agents have this name; a second set of agents in the same database needs another one.
_APPLICATION = "toolwire"


class RunQueues:
    """The queues of a store. `database`: the database of DBOS, by default beside the store (SQLite) or in it.

    `application` separates sets of agents that share a database: each set has its own versions and workers. Nothing is
    opened before it is used.
    """

    def __init__(self, store: str, *, database: str | None = None, application: str = _APPLICATION) -> None:
        """Raise ConfigError for a store in memory, which no other process reaches, and for Redis without `database`."""
        self.store = open_store(store)
        self.database = database or _database_of(store)
        self.application = application
        self._client: Any = None
        self._lock = threading.Lock()
        self._known_queues: set[str] = set()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        with self._lock:
            if self._client is not None:
                self._client.destroy()
                self._client = None
        self.store.close()

    @property
    def client(self) -> Any:
        """The client of DBOS. The database is created on first use."""
        with self._lock:
            if self._client is None:
                self.store.runs.list(limit=1)  # creates the store, which `toolwire runs` looks for
                _create_database(self.database)
                self._client = _QueueClient(self.database, self.application)
            return self._client

    def exists(self) -> bool:
        """Return whether the database of the queues exists. It is not created."""
        if self.database.startswith("sqlite:///"):
            return Path(self.database.removeprefix("sqlite:///")).exists()
        import psycopg

        try:
            with psycopg.connect(self.database) as connection:
                row = connection.execute("SELECT to_regclass('dbos.workflow_status')").fetchone()
        except psycopg.Error as error:
            raise server_error("PostgreSQL", self.database, error) from error
        return row is not None and row[0] is not None

    def live_versions(self) -> set[str]:
        """Return the versions that have a live worker."""
        records = self.store.records("running", _MAX_WORKERS)
        return {record.fingerprint for record in records if record.key.startswith(WORKER_KEY)}

    def sweep(self, ttl: float = _KEPT) -> int:
        """Delete the entries of runs that ended more than `ttl` seconds ago, and return their number.

        The store has the runs. The entries of a run that is not done there are kept: it would not be continued. The
        heartbeats of workers that died are deleted, too.
        """
        for record in self.store.records("unknown", _MAX_WORKERS):
            if record.key.startswith(WORKER_KEY):  # the heartbeat of a worker that died
                self.store.resolve(record.key, None)
        before = time.time() - ttl
        swept = kept = 0
        while ended := self.client.list_workflows(
            name=WORKFLOWS,
            status=["SUCCESS", "ERROR", "CANCELLED", "MAX_RECOVERY_ATTEMPTS_EXCEEDED"],
            completed_before=datetime.fromtimestamp(before, UTC).isoformat(),
            limit=_SWEEP_BATCH,
            offset=kept,
            load_input=False,
            load_output=False,
        ):
            segments = {entry.workflow_id for entry in ended if entry.name == RUN_WORKFLOW}
            needed = self._unfinished({split_segment_id(segment)[0] for segment in segments}, before)
            deleted = [
                entry.workflow_id
                for entry in ended
                if entry.workflow_id not in segments or split_segment_id(entry.workflow_id)[0] not in needed
            ]
            if deleted:
                self.client.delete_workflows(deleted)
            swept, kept = swept + len(deleted), kept + len(ended) - len(deleted)
        return swept

    def _unfinished(self, run_ids: Iterable[str], before: float) -> set[str]:
        """Return the runs that are not done in the store, or have a segment that did not end before a time."""
        latest = self.latest(run_ids)
        recent = {run for run, segment in latest.items() if (segment.completed_at or float("inf")) > before * 1000}
        stored = {run_id: self.store.runs.get(run_id) for run_id in latest.keys() - recent}
        return recent | {
            run.run_id for run in stored.values() if run is not None and run.status in ("running", "waiting")
        }

    def enqueue_job(self, job: Job, *, version: str | None = None, delay: float = 0.0) -> None:
        """Enqueue a segment, once for its id. `version`: only workers of this version take it; by default the latest.

        Raise ConfigError for a name that no queue can have, and for a priority or a delay out of range.
        """
        if not job.queue or job.queue.startswith("_dbos"):
            raise ConfigError(f"invalid queue {job.queue!r}", hint="a name is not empty and does not begin with _dbos")
        if not 0 <= job.priority < 2**31:  # the type of the column
            raise ConfigError(f"invalid priority {job.priority}", hint="0 is first, larger numbers are later")
        if not 0 <= delay <= _MAX_DELAY:
            raise ConfigError(f"invalid delay {delay}", hint="give seconds, up to a year")
        options: dict[str, Any] = {
            "workflow_name": RUN_WORKFLOW,
            "workflow_id": job.workflow_id,
            "queue_name": job.queue,
            "queue_partition_key": job.tenant or "-",  # a queue with limits per tenant takes no job without a key
        }
        if job.priority:  # DBOS numbers them from 1; a job without a priority precedes them
            options["priority"] = job.priority
        if version is not None:
            options["app_version"] = version
        self.enqueue_workflow(options, msgspec.to_builtins(job), delay)

    def enqueue_workflow(self, options: dict[str, Any], argument: Any, delay: float = 0.0) -> None:
        """Enqueue a workflow, once for its id, to start in `delay` seconds. Its queue is created if it does not exist."""
        self._require_queue(options["queue_name"])
        if delay > 0:
            options["delay_seconds"] = delay
        self.client.enqueue(options, argument)

    def configure_queue(
        self,
        name: str = DEFAULT_QUEUE,
        *,
        concurrency: int | None = None,
        worker_concurrency: int | None = None,
        rate: StartRate | None = None,
        tenant_concurrency: int | None = None,
        tenant_rate: StartRate | None = None,
    ) -> None:
        """Create a queue or change its limits; workers take over a change within seconds.

        `concurrency`: runs of the queue at the same time, on all machines; `worker_concurrency`: in one process, 16
        by default.
        `rate`: at most so many starts in so many seconds. `tenant_…`: the same for each tenant.
        """
        if worker_concurrency is None:
            worker_concurrency = min(_WORKER_RUNS, concurrency or _WORKER_RUNS)
        try:
            self.client.register_queue(
                name,
                global_concurrency=concurrency,
                worker_concurrency=worker_concurrency,
                limiter=_limiter(rate),
                partition_concurrency=tenant_concurrency,
                partition_limiter=_limiter(tenant_rate),
                polling_interval_sec=_QUEUE_POLL,
                on_conflict="always_update",
            )
        except ValueError as error:
            raise ConfigError(f"invalid limits of queue {name!r}: {error}") from None
        self._known_queues.add(name)

    def _require_queue(self, name: str) -> None:
        """Create the queue without limits, unless it exists: no worker takes jobs of an unknown queue."""
        if name not in self._known_queues:
            self.client.register_queue(
                name, worker_concurrency=_WORKER_RUNS, polling_interval_sec=_QUEUE_POLL, on_conflict="never_update"
            )
            self._known_queues.add(name)

    def latest(self, run_ids: Iterable[str]) -> dict[str, Any]:
        """Return the latest segment of each run that is durable, without its job and its outcome.

        The segments of a run are numbered without gaps. They are looked up by their ids, because DBOS has no index for
        the beginning of an id: the queries of a worker would read all entries of a week.
        """
        found: dict[str, Any] = {}
        wanted, first = list(dict.fromkeys(run_ids)), 1
        while wanted:
            numbers = range(first, first + _PAGE_SEGMENTS)
            for segment in self._read_workflows([segment_id(run, number) for run in wanted for number in numbers]):
                run_id, number = split_segment_id(segment.workflow_id)
                if run_id not in found or split_segment_id(found[run_id].workflow_id)[1] < number:
                    found[run_id] = segment
            wanted = [run for run in wanted if run in found and found[run].workflow_id == segment_id(run, numbers[-1])]
            first += _PAGE_SEGMENTS
        return found

    def load(self, segments: Iterable[Any]) -> Iterator[tuple[Any, Job]]:
        """Yield segments with their outcome and their job. A segment that was deleted meanwhile is left out."""
        ids = [segment.workflow_id for segment in segments]
        for start in range(0, len(ids), _PAGE_JOBS):
            for workflow in self.client.list_workflows(workflow_ids=ids[start : start + _PAGE_JOBS]):
                yield workflow, read_job(workflow)

    def _read_workflows(self, ids: list[str]) -> Iterator[Any]:
        for start in range(0, len(ids), _PAGE_IDS):
            yield from self.client.list_workflows(
                workflow_ids=ids[start : start + _PAGE_IDS], name=RUN_WORKFLOW, load_input=False, load_output=False
            )


class _QueueClient:
    """The client of DBOS. It raises StoreError if the database cannot be reached.

    Without `retry_connection_errors=False` it would wait for the database without a limit, with pauses of up to 90
    seconds, in which a worker does not look at the others. The errors of SQLAlchemy contain the parameters of
    statements: prompts. DBOS logs them, and its client has no setting for that.
    """

    def __init__(self, database: str, application: str) -> None:
        self._database = database
        self._client = self._call(
            dbos.DBOSClient,
            system_database_url=database,
            serializer=dbos.DBOSPortableJSONSerializer(),
            application_name=application,
            retry_connection_errors=False,
        )
        self._client._sys_db.engine.hide_parameters = True

    def __getattr__(self, name: str) -> Any:
        return partial(self._call, getattr(self._client, name))

    def _call(self, method: Any, *arguments: Any, **options: Any) -> Any:
        try:
            return method(*arguments, **options)
        except UnicodeEncodeError:
            raise ConfigError("a prompt or a name has a lone surrogate, which no database stores") from None
        except SQLAlchemyError as error:
            raise server_error("queues", self._database, getattr(error, "orig", None) or error) from None


def describe_error(error: BaseException) -> str:
    """Return the type of an error and the driver's message. SQLAlchemy adds the parameters of the statement: prompts."""
    cause = getattr(error, "orig", None) or error
    return f"{type(error).__name__}: {cause}"


def _limiter(rate: StartRate | None) -> dict[str, float] | None:
    return None if rate is None else {"limit": rate[0], "period": rate[1]}


def _database_of(store: str) -> str:
    """Return the address of DBOS's database for a store: the same PostgreSQL, or a file beside an SQLite file."""
    scheme, separator, _ = store.partition("://")
    if scheme in ("postgres", "postgresql") and separator:
        return f"postgresql{store[len(scheme) :]}"
    if store == "memory:" or (separator and scheme != "sqlite"):
        hint = 'use a path or postgresql://…, or pass database="postgresql://…"'
        raise ConfigError("durable runs need a database that all workers reach", hint=hint)
    path = Path(store.removeprefix("sqlite:///"))
    return f"sqlite:///{path.with_name(f'{path.stem}-queues{path.suffix}')}"


def _create_database(database: str) -> None:
    """Create or migrate the database of the queues.

    DBOS creates an SQLite file in many transactions. So it is created under another name, complete, and with access for its owner
    only, because jobs contain prompts: no process sees half of it, whether two create it at once or one is killed.
    """
    path = Path(database.removeprefix("sqlite:///"))
    if not database.startswith("sqlite:///") or path.exists():
        dbos.DBOS.migrate(database)
        return
    new = path.with_name(f"{path.name}.{secrets.token_hex(8)}")
    try:
        os.close(os.open(new, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
        dbos.DBOS.migrate(f"sqlite:///{new}")
        with suppress(FileExistsError):  # of another process
            os.link(new, path)
    finally:
        new.unlink(missing_ok=True)
