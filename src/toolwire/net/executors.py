"""Worker processes, and folders for the results of `run.executor.map_items`.

    map_items(work, items, executor=ProcessPool(4), results=open_results("runs/counts"), names=names)

A process is started with `spawn`: a fork would copy the threads' locks of torch and of our event loops in any state.
Each process has a pipe of its own. A shared queue, as in `concurrent.futures`, is left broken by a worker that is killed
while it reads, and does not show which item the worker had.
"""

from __future__ import annotations

import os
import pickle
import secrets
import signal
import threading
import time
from collections.abc import Collection, Iterator, Mapping
from contextlib import suppress
from multiprocessing import connection, get_context, parent_process
from multiprocessing.connection import Connection
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from .._extras import install_command
from ..ir.errors import ConfigError, MissingExtra
from ..run.executor import (
    ATTEMPTS,
    LOST,
    READY,
    FailedItem,
    ItemFault,
    ItemFunction,
    Results,
    WorkerEvent,
    attempt_item,
    distribute,
    require_positive,
)

if TYPE_CHECKING:
    from multiprocessing.context import SpawnProcess

_MAX_PART_AGE = 24 * 60 * 60.0  # seconds; no write takes a day, so the process of an older part was killed
_END_TIMEOUT = 5.0  # seconds for a worker to close its files and tools; after it, the worker is killed


class ProcessPool:
    """Computes items in `workers` processes of this machine. A process that ends is replaced.

    A worker holds its own copy of the work, so the work opens its model once in each worker.
    """

    def __init__(self, workers: int, *, attempts: int = ATTEMPTS) -> None:
        self._count = require_positive("workers", workers)
        self._attempts = require_positive("attempts", attempts)

    def map(self, work: ItemFunction, items: Mapping[int, Any]) -> Iterator[tuple[int, bytes | FailedItem]]:
        """Yield the results. Raise ConfigError at once if the work cannot be sent to another process."""
        return distribute(_Processes(pickle_work(work)), self._count, items, self._attempts)


def pickle_work(work: Any) -> bytes:
    """Pickle a function or an item. Raise ConfigError if it depends on this process."""
    try:
        return pickle.dumps(work)
    except Exception as error:  # any object may be part of it, and raise any exception
        hint = "use a function of a module, or an instance of its class, without open files, locks and local functions"
        raise ConfigError(f"{type(work).__name__} cannot be sent to other processes: {error}", hint=hint) from error


def load_work(pickled: bytes) -> Any:
    """Load the work in a worker; return an ItemFault if that fails."""
    try:
        return pickle.loads(pickled)  # noqa: S301  # of the program that started this worker
    except Exception as error:  # noqa: BLE001  # the module of the work may fail in any way
        reason = f"a worker cannot load the work: {type(error).__name__}: {error}"
        return ItemFault(reason, "the workers need the modules of the program", stops=True)


class _ItemProcess(NamedTuple):
    process: SpawnProcess
    pipe: Connection


class _Processes:
    """Starts processes and exchanges pickled items and outcomes with them."""

    def __init__(self, work: bytes) -> None:
        self._work = work
        self._context = get_context("spawn")

    def start(self) -> _ItemProcess:
        pipe, other = self._context.Pipe()
        process = self._context.Process(target=_serve, args=(other, self._work), name="toolwire-worker", daemon=True)
        process.start()
        other.close()  # the process has the only other end, so its end closes the pipe
        return _ItemProcess(process, pipe)

    def send(self, worker: _ItemProcess, item: Any) -> None:
        content = pickle_work(item)
        try:
            worker.pipe.send_bytes(content)
        except OSError:
            pass  # the process has just ended; `wait` reports it

    def wait(self, workers: Collection[_ItemProcess]) -> list[tuple[_ItemProcess, WorkerEvent]]:
        by_pipe = {worker.pipe: worker for worker in workers}
        ready = set(connection.wait(list(by_pipe)))
        return [(worker, _receive(pipe)) for pipe, worker in by_pipe.items() if pipe in ready]

    def stop(self, worker: _ItemProcess, *, is_busy: bool) -> None:
        worker.pipe.close()  # an idle process reads the end of the pipe and ends by itself
        if is_busy:
            worker.process.terminate()
        worker.process.join(_END_TIMEOUT)
        if worker.process.exitcode is None:
            worker.process.kill()
            worker.process.join()

    def explain(self, worker: _ItemProcess) -> str:
        worker.pipe.close()
        worker.process.join()
        code = worker.process.exitcode or 0
        if code >= 0:
            return f"the worker ended with exit code {code}"
        known = {member.value: member.name for member in signal.Signals}
        return f"the worker was ended by {known.get(-code, f'signal {-code}')}"


def _receive(pipe: Connection) -> WorkerEvent:
    """Read a message; a process that ended in the middle of one is lost."""
    try:
        event: WorkerEvent = pickle.loads(pipe.recv_bytes())  # noqa: S301  # of our own process
    except (EOFError, OSError):
        return LOST
    return event


def _serve(pipe: Connection, pickled: bytes) -> None:
    """Compute items until the pipe is closed. This is the main function of a worker process."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the whole group; the parent ends its workers
    threading.Thread(target=_end_with_parent, daemon=True).start()
    work = load_work(pickled)
    if isinstance(work, ItemFault):
        _answer(pipe, work)
        return
    _answer(pipe, READY)
    while True:
        try:
            item = pickle.loads(pipe.recv_bytes())  # noqa: S301  # of our own parent
        except (EOFError, OSError):
            return
        _answer(pipe, attempt_item(work, item))


def _answer(pipe: Connection, event: WorkerEvent) -> None:
    try:
        pipe.send_bytes(pickle.dumps(event))
    except OSError:
        pass  # the parent has stopped reading; the next read ends the process


def _end_with_parent() -> None:
    """End this process when its parent has ended, also in the middle of an item."""
    parent = parent_process()
    assert parent is not None
    connection.wait([parent.sentinel])
    os._exit(1)


# Results by name: files of a folder, or objects of a store that fsspec can open.


def open_results(place: str | Path) -> Results:
    """Return the results in a folder, or under a URL such as `s3://bucket/run`.

    Raises `MissingExtra` for a URL without fsspec, and `ConfigError` for an unknown kind of URL.
    """
    if "://" not in str(place):
        return _FolderResults(Path(place))
    try:
        from fsspec.core import url_to_fs
    except ImportError:
        raise MissingExtra(f"results at {place} require fsspec", hint=install_command("ray")) from None
    try:
        system, root = url_to_fs(str(place))
    except (ValueError, ImportError) as error:
        raise ConfigError(f"cannot open {place}: {error}", hint="use a folder, or a URL that fsspec opens") from None
    return _ObjectResults(system, root)


def _part_name(name: str) -> str:
    """Return a new name for an incomplete result: another command may write the same result at the same time."""
    return f"{name}.{secrets.token_hex(8)}.part"


class _FolderResults:
    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._folder = folder
        for part in folder.glob("*.part"):
            with suppress(FileNotFoundError):  # another command may remove it, too
                if part.stat().st_mtime < time.time() - _MAX_PART_AGE:
                    part.unlink()

    def read(self, name: str) -> bytes | None:
        try:
            return (self._folder / name).read_bytes()
        except FileNotFoundError:
            return None

    def write(self, name: str, content: bytes) -> None:
        part = self._folder / _part_name(name)
        with part.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())  # a renamed file that the disk lost would be an empty result after a power failure
        part.replace(self._folder / name)


class _ObjectResults:
    """Objects of a store. Each is written under another name and moved, because not every store replaces atomically."""

    def __init__(self, system: Any, root: str) -> None:
        self._system = system
        self._root = root.rstrip("/")
        system.makedirs(self._root, exist_ok=True)

    def read(self, name: str) -> bytes | None:
        try:
            content: bytes = self._system.cat_file(f"{self._root}/{name}")
        except FileNotFoundError:
            return None
        return content

    def write(self, name: str, content: bytes) -> None:
        part = f"{self._root}/{_part_name(name)}"
        self._system.pipe_file(part, content)
        self._system.mv(part, f"{self._root}/{name}")
