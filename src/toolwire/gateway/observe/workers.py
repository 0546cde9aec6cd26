"""Log lines and metrics of a gateway with several worker processes."""

from __future__ import annotations

import asyncio
import fcntl
import os
from collections.abc import Iterator, Mapping, Sequence
from logging import getLogger
from pathlib import Path
from threading import Lock
from time import monotonic, sleep
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Struct

from .metrics import Metrics, MetricsSnapshot, render_page

if TYPE_CHECKING:
    from prometheus_client.core import Metric


# A lock for the worker processes of one gateway, which write lines to the same standard error. A pipe accepts 4,096
# bytes at once; longer lines of two processes would be mixed.


_MAX_HELD = 0.5  # seconds; writing a line takes microseconds, and a process waits 50 ms in a second for a slow reader
_PAUSE = 0.0001  # seconds between two tries; a line is written within that time
_IGNORE = 30.0  # seconds in which lines are written without the lock, so that few lines are lost


class LineLock:
    """A lock that excludes other processes with the same file, and other threads of this one.

    A stopped process may hold it for any time. Half a second after the first failure it is ignored: then lines of
    different processes may be mixed.
    """

    def __init__(self, file: Path) -> None:
        self._descriptor = os.open(file, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
        self._lock = Lock()
        self._held_since: float | None = None  # by another process, at every attempt
        self._ignored_until = 0.0

    def acquire(self, *, timeout: float) -> bool:
        """Acquire the lock within `timeout` seconds, and return whether that succeeded.

        After a process has held it for too long, ignore it for 30 seconds: then only threads are excluded.
        """
        deadline = monotonic() + timeout
        if not self._lock.acquire(timeout=timeout):
            return False
        while (now := monotonic()) >= self._ignored_until:
            try:
                fcntl.lockf(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except (BlockingIOError, PermissionError):  # POSIX allows EAGAIN and EACCES
                self._held_since = self._held_since or now
                if now < deadline:
                    sleep(_PAUSE)
                elif now - self._held_since > _MAX_HELD:
                    self._ignored_until = now + _IGNORE
                else:
                    self._lock.release()
                    return False
            else:
                self._held_since = None
                break
        return True

    def release(self) -> None:
        fcntl.lockf(self._descriptor, fcntl.LOCK_UN)  # without effect if it was ignored
        self._lock.release()


# Metrics of a gateway with several worker processes: every worker serves the sum of all.
#
# Each worker writes its figures to a file of its own, once a second and before it serves a page, so no counter of a
# page is lower than on an earlier page of another worker. A worker that replaces one that ended continues with the
# figures of that file, so counters do not decrease either.


_log = getLogger("toolwire.gateway")
_INTERVAL = 1.0  # seconds between two writes; Prometheus reads the page every 15 or 60 seconds
_CPU = "process_cpu_seconds"
_MINIMA = frozenset({"process_start_time_seconds", "process_max_fds"})  # all others are sums
_DESCRIPTIONS = {
    "process_virtual_memory_bytes": "virtual memory of all workers",
    "process_resident_memory_bytes": "resident memory of all workers",
    "process_start_time_seconds": "start of the oldest worker, in seconds since 1970",
    _CPU: "user and system CPU time of all workers, including those that ended",
    "process_open_fds": "open file descriptors of all workers",
    "process_max_fds": "maximum number of open file descriptors of a worker",
}


class _WorkerFigures(Struct):
    """The contents of a file: the figures of one worker and of those that it replaced."""

    pid: int
    metrics: MetricsSnapshot
    process: dict[str, float]  # by the name of prometheus_client

    @property
    def is_running(self) -> bool:
        try:
            os.kill(self.pid, 0)
        except ProcessLookupError:
            return False
        return True


_decoder = msgspec.msgpack.Decoder(_WorkerFigures)


class WorkerMetrics:
    """The metrics of worker `number`, and the page of all. `folder` is shared by the workers."""

    def __init__(self, metrics: Metrics, folder: Path, number: int) -> None:
        """Continue with the figures of the worker that this process replaces, if there was one."""
        from prometheus_client import ProcessCollector

        self._metrics = metrics
        self._folder = folder
        self._file = folder / f"metrics-{number}"
        self._collector = ProcessCollector(registry=None)
        self._is_failing = False
        self._previous_cpu = 0.0  # seconds of the workers that this one replaced
        previous = _read(self._file)
        if previous is not None:
            metrics.merge(previous.metrics)
            self._previous_cpu = previous.process.get(_CPU, 0.0)

    async def publish_periodically(self) -> None:
        """Write the figures every second, until cancelled, and once more at the end."""
        try:
            while True:
                self.publish()
                await asyncio.sleep(_INTERVAL)
        finally:
            self.publish()

    def publish(self) -> _WorkerFigures:
        """Replace the file of this worker, and return its contents. Log the first of several failures in a row.

        It is small and on this machine, so this is not done in a thread. If its disk is full, the pages of the other
        workers have older figures of this one.
        """
        process = {family.name: family.samples[0].value for family in self._collector.collect()}
        process[_CPU] = process.get(_CPU, 0.0) + self._previous_cpu
        figures = _WorkerFigures(os.getpid(), self._metrics.snapshot(), process)
        new_file = self._file.with_name(f".{self._file.name}")
        try:
            new_file.write_bytes(msgspec.msgpack.encode(figures))
            new_file.replace(self._file)
        except OSError as error:
            if not self._is_failing:
                _log.error("cannot write the metrics of this worker to %s: %s", self._file, error.strerror)
            self._is_failing = True
        else:
            self._is_failing = False
        return figures

    def page(self) -> bytes:
        """Write this worker's figures, and render the sums over all workers in Prometheus' text format.

        Counters include workers that have ended; current numbers are of running workers only.
        """
        own = self.publish()
        total, running = Metrics(), []
        cpu = 0.0
        for file in sorted({self._file, *self._folder.glob("metrics-*")}):
            figures = own if file == self._file else _read(file)
            if figures is None:
                continue
            total.merge(figures.metrics)
            cpu += figures.process.get(_CPU, 0.0)
            if figures.is_running:
                total.add_current(figures.metrics)
                running.append(figures.process)
        return render_page(total, _ProcessTotals(running, cpu))


class _ProcessTotals:
    """A collector of the process metrics of all workers."""

    def __init__(self, running: Sequence[Mapping[str, float]], cpu: float) -> None:
        self._running = running
        self._cpu = cpu

    def collect(self) -> Iterator[Metric]:
        """Yield the CPU time of all workers, and the sum or the minimum of every other figure of the running ones."""
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

        for name, description in _DESCRIPTIONS.items():
            if name == _CPU:
                yield CounterMetricFamily(name, description, value=self._cpu)
                continue
            values = [process[name] for process in self._running if name in process]
            if values:
                combine: Any = min if name in _MINIMA else sum
                yield GaugeMetricFamily(name, description, value=combine(values))


def _read(file: Path) -> _WorkerFigures | None:
    """Return the figures in a file, or None if there is none, or if another version has written it."""
    try:
        return _decoder.decode(file.read_bytes())
    except (FileNotFoundError, msgspec.MsgspecError):
        return None
