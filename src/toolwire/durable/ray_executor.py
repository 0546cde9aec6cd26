"""Items computed on a cluster of Ray (extra `ray`), with the same decisions as for processes (`run.executor`).

Each worker is an actor with its own copy of the work, so the work opens its model once in each worker. Actors are never restarted
by Ray, and their tasks never retried: `distribute` does both, and so it knows which item ended a worker.
"""

from __future__ import annotations

import os
import pickle
from collections.abc import Collection, Iterator, Mapping
from typing import Any

from .._extras import install_command
from ..ir.errors import ConfigError, MissingExtra
from ..net.executors import load_work, pickle_work
from ..run.executor import (
    ATTEMPTS,
    LOST,
    READY,
    FailedItem,
    ItemFault,
    ItemFunction,
    WorkerEvent,
    attempt_item,
    distribute,
    require_positive,
)

# Ray reads these when it is imported; values of the user take precedence.
_SETTINGS = {
    "RAY_USAGE_STATS_ENABLED": "0",  # Ray sends reports to its vendor otherwise
    # Seconds that a starting cluster may take, 30 by default: with all cores of a machine busy, four of four starts failed.
    "RAY_raylet_start_wait_time_s": "120",
}
# With 0, Ray uses the loopback address, as it does on Windows and macOS; a cluster of Linux listens on all networks.
_LOCAL_SETTINGS = {"RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0"}
_LOCAL = "local"


class RayExecutor:
    """Computes items on a cluster.

    `address` is `HOST:PORT` or `ray://HOST:PORT` of a running cluster, or `local` for a cluster of this machine that
    ends with the map. `workers` is the number of items at a time: by default one for each CPU of the cluster. A worker
    occupies `cpus` and `gpus` of it. The machines need the same version of toolwire and the modules of the work.
    """

    def __init__(
        self, address: str, *, workers: int | None = None, attempts: int = ATTEMPTS, cpus: float = 1, gpus: float = 0
    ) -> None:
        """Raise MissingExtra without Ray."""
        for name, value in (_SETTINGS | (_LOCAL_SETTINGS if address == _LOCAL else {})).items():
            os.environ.setdefault(name, value)
        try:
            import ray
        except ImportError:
            raise MissingExtra("a cluster of Ray requires ray", hint=install_command("ray")) from None
        self._ray: Any = ray
        self._address = address
        self._workers = workers if workers is None else require_positive("workers", workers)
        self._attempts = require_positive("attempts", attempts)
        self._resources = {"num_cpus": cpus, "num_gpus": gpus}

    def map(self, work: ItemFunction, items: Mapping[int, Any]) -> Iterator[tuple[int, bytes | FailedItem]]:
        """Yield the results. Raise ConfigError if the cluster cannot be used."""
        content = pickle_work(work)
        is_own = not self._ray.is_initialized()  # otherwise the program has connected, and stays connected
        if is_own:
            self._connect()
        try:
            count = self._workers or max(1, int(self._ray.cluster_resources().get("CPU", 1)))
            actors = _Actors(self._ray, content, self._resources)
            yield from distribute(actors, count, items, self._attempts)
        finally:
            if is_own:
                self._ray.shutdown()

    def _connect(self) -> None:
        """Connect to the cluster, or start one on the loopback interface, without the dashboard of Ray."""
        options: dict[str, Any] = {"address": self._address, "log_to_driver": False}
        if self._address == _LOCAL:
            options |= {"include_dashboard": False, "num_cpus": self._workers}
        try:
            self._ray.init(**options)
            is_local = self._address != _LOCAL or self._ray.util.get_node_ip_address() == "127.0.0.1"
        except Exception as error:  # Ray raises plain exceptions for a cluster that does not start
            hint = "check the address, and that the cluster runs; a local one may need a minute on a busy machine"
            raise ConfigError(f"cannot use Ray at {self._address}: {error}", hint=hint) from error
        if not is_local:
            self._ray.shutdown()
            hint = "make the executor before `import ray`, or give the address of a cluster that you have started"
            raise ConfigError("Ray was imported earlier, so its cluster would listen on all networks", hint=hint)


class _Actor:
    """Computes items on a machine of the cluster."""

    def __init__(self, work: bytes) -> None:
        self._pickled = work
        self._work: Any = None

    def begin(self) -> str | ItemFault:
        loaded = load_work(self._pickled)
        if isinstance(loaded, ItemFault):
            return loaded
        self._work = loaded
        return READY

    def compute(self, item: bytes) -> bytes | ItemFault:
        return attempt_item(self._work, pickle.loads(item))  # noqa: S301  # of the program that started this worker


class _RayWorker:
    """An actor and its unfinished call."""

    def __init__(self, actor: Any) -> None:
        self.actor = actor
        self.call = actor.begin.remote()
        self.reason = ""


class _Actors:
    """Starts actors, and exchanges items and outcomes with them."""

    def __init__(self, ray: Any, work: bytes, resources: Mapping[str, float]) -> None:
        self._ray = ray
        self._work = ray.put(work)
        self._kind = ray.remote(_Actor).options(max_restarts=0, max_task_retries=0, **resources)

    def start(self) -> _RayWorker:
        return _RayWorker(self._kind.remote(self._work))

    def send(self, worker: _RayWorker, item: Any) -> None:
        worker.call = worker.actor.compute.remote(pickle_work(item))

    def wait(self, workers: Collection[_RayWorker]) -> list[tuple[_RayWorker, WorkerEvent]]:
        by_call = {worker.call: worker for worker in workers}
        ready, _ = self._ray.wait(list(by_call), num_returns=1)
        return [(by_call[call], self._receive(by_call[call])) for call in ready]

    def stop(self, worker: _RayWorker, *, is_busy: bool) -> None:
        self._ray.kill(worker.actor)

    def explain(self, worker: _RayWorker) -> str:
        return worker.reason

    def _receive(self, worker: _RayWorker) -> WorkerEvent:
        try:
            event: WorkerEvent = self._ray.get(worker.call)
        except self._ray.exceptions.RayError as error:
            worker.reason = f"the worker of Ray was lost: {str(error).strip().splitlines()[0]}"
            return LOST
        return event
