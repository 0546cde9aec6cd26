"""The queues of a store: their database, their limits, and the segments in them.

DBOS has the queues in a database of its own. It is PostgreSQL for many machines. For one machine it is an SQLite file, which DBOS
recommends for development and testing only.
"""

from __future__ import annotations

import os
import secrets
import threading
import time
from collections.abc import Iterable
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Self

import dbos
import msgspec

from ..ir.errors import ConfigError
from ..net.stores import open_store
from ..net.stores.address import server_error
from ..run.values.records import DAY, WEEK
from .jobs import DEFAULT_QUEUE, RUN_WORKFLOW, SCHEDULE_WORKFLOW, Job, read_job

WORKER_KEY = "toolwire-worker/"
"""The beginning of the keys under which the store has the heartbeats of workers."""

StartRate = tuple[int, float]
"""A number of starts, and the seconds in which they may happen."""

_QUEUE_POLL = 0.5  # seconds between two looks of a worker at a queue: one small query, and half of it is the mean delay
_WORKER_RUNS = 16  # runs of a queue in one process; an agent mostly waits for its model
_MAX_WORKERS = 10_000  # records that are read to find the workers: these, and the calls in progress
_KEPT = WEEK + DAY  # seconds; a run that waits for longer has expired in its store
_SWEEP_BATCH = 500  # segments that are deleted in one statement
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
                self._client = dbos.DBOSClient(
                    system_database_url=self.database,
                    serializer=dbos.DBOSPortableJSONSerializer(),
                    application_name=self.application,
                )
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
        """Delete the segments that ended more than `ttl` seconds ago, and return their number. The store has the runs.

        The heartbeats of workers that died are deleted, too.
        """
        for record in self.store.records("unknown", _MAX_WORKERS):
            if record.key.startswith(WORKER_KEY):  # the heartbeat of a worker that died
                self.store.resolve(record.key, None)
        before = datetime.fromtimestamp(time.time() - ttl, UTC).isoformat()
        swept = 0
        while True:
            ended = self.client.list_workflows(
                name=[RUN_WORKFLOW, SCHEDULE_WORKFLOW],
                status=["SUCCESS", "ERROR", "CANCELLED", "MAX_RECOVERY_ATTEMPTS_EXCEEDED"],
                completed_before=before,
                limit=_SWEEP_BATCH,
                load_input=False,
                load_output=False,
            )
            if not ended:
                return swept
            self.client.delete_workflows([workflow.workflow_id for workflow in ended])
            swept += len(ended)

    def enqueue_job(self, job: Job, *, version: str | None = None, delay: float = 0.0) -> None:
        """Enqueue a segment, once for its id. `version`: only workers of this version take it; by default the latest.

        Raise ConfigError for a name that no queue can have, and for a negative priority.
        """
        if not job.queue or job.queue.startswith("_dbos"):
            raise ConfigError(f"invalid queue {job.queue!r}", hint="a name is not empty and does not begin with _dbos")
        if job.priority < 0:
            raise ConfigError(f"invalid priority {job.priority}", hint="0 is first, larger numbers are later")
        self._require_queue(job.queue)
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
        if delay > 0:
            options["delay_seconds"] = delay
        self.client.enqueue(options, msgspec.to_builtins(job))

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

    def latest(self, run_ids: Iterable[str]) -> dict[str, tuple[Any, Job]]:
        """Return the workflow and the job of the latest segment of each run that is durable."""
        wanted = set(run_ids)
        if not wanted:
            return {}
        prefixes = [f"{run_id}:" for run_id in sorted(wanted)]
        found: dict[str, tuple[Any, Job]] = {}
        for workflow in self.client.list_workflows(workflow_id_prefix=prefixes, name=RUN_WORKFLOW):
            job = read_job(workflow)
            known = found.get(job.run_id)
            if job.run_id in wanted and (known is None or known[1].segment < job.segment):
                found[job.run_id] = workflow, job
        return found


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
